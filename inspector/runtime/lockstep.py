"""8-bit state beside float32: a second run on the same gradients, and what coding m and v does in either.

The gradients come from the weights of the first run alone: an open loop. The second run stands between steps at all
times; it runs a step once the first has completed it, and goes back with it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inspector.codecs import CODECS, Codec
from inspector.coding_error import ParamCodingError, at_most, merged_error
from inspector.drift import ParamDrift, merged_drift
from inspector.errors import DeviceLostError, InspectorError
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import StateType
from inspector.plan import Kernel, Plan, Variant
from inspector.progress import EndedError, part
from inspector.state_memory import LaneBytes, lane_bytes
from inspector.stepping import Cursor, Gradients, KernelTime, Stepper, lost_moments

MAX_POINTS = 2000
"""Blocks of a param are shown as so many points at most, each the worst of its run."""
UNDO_SHARE = 2
"""The second run may keep as much for going back as the first over this."""
RUNNING_SHARE = 5
RUNNING_PERIOD_S = 0.1

METRICS = ("lockstep/drift", "lockstep/largest", "lockstep/ms", "coding/m", "coding/v", "coding/lost")
"""Names in the history: ‖Δw‖/‖w‖, the largest |Δw|, what lockstep costs in ms of GPU time a step; the rms error of m
and v over their rms, and how many v became 0 under an m that did not."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which second run is wanted: codec and small state of the 8-bit one of the two."""

    codec: Codec = CODECS[0]
    small_state: StateType = "f32"


@dataclass(frozen=True, slots=True, eq=False)
class BlockErrors:
    """Rms errors of m and v by block of `param`, float32, read-only; each value the largest of `group` blocks."""

    param: str
    blocks: int
    group: int
    m: F32Array
    v: F32Array


@dataclass(frozen=True, slots=True, eq=False)
class EightBitPicture:
    """What is known of 8-bit state at one moment.

    `drift` is of all params after step `drift_step`, `coding` of those with 8-bit state in the update of step
    `coding_step`; empty and None where nothing was measured. `companion` is None while there is no second run, and
    `message` says why one ended.
    """

    codec: Codec
    primary: Kernel
    companion: Kernel | None = None
    waiting: bool = False
    """A second run starts as soon as this step is complete."""
    since: int | None = None
    """The step after which both runs had the same weights."""
    drift_step: int | None = None
    drift: tuple[ParamDrift, ...] = ()
    drift_total: ParamDrift | None = None
    coding_step: int | None = None
    coding: tuple[ParamCodingError, ...] = ()
    coding_total: ParamCodingError | None = None
    blocks: BlockErrors | None = None
    f32_bytes: LaneBytes | None = None
    coded_bytes: LaneBytes | None = None
    ms: float | None = None
    """GPU time of the last step of the second run and of all that was measured in it."""
    message: str = ""


def companion_variant(primary: Variant, asked: Asked) -> Variant:
    """The form of the second run: 8-bit beside float32 or half precision, float32 beside 8-bit."""
    if primary.kernel == "8bit":
        return replace(primary, kernel="f32")
    return replace(primary, kernel="8bit", codec=asked.codec, small_state=asked.small_state, grid="capped")


class EightBit:
    """Follows a run: the second run where one is wanted, and errors of coding where there are codes.

    Each method is called at the moment of a run that its name says; `primary` is the first run.
    """

    def __init__(self) -> None:
        self.asked = Asked()
        self.watched = False
        """True while somebody looks: errors of coding are then measured without a second run as well."""
        self.wanted = False
        """True where breakpoints are set on errors of the first run's own coding, which are then measured as well."""
        self.mapped = False
        """True while the map shows them."""
        self.companion: Stepper | None = None
        self.said: str | None = None
        """A sentence for the person, until it is taken."""
        self._waiting = False
        self._since: int | None = None
        self._began: Cursor | None = None
        """Where the first run stood when the second started; only from there on is there anything to go back to."""
        self._message = ""
        self._param: str | None = None
        self._drift: tuple[int, tuple[ParamDrift, ...]] | None = None
        self._coding: tuple[int, tuple[ParamCodingError, ...]] | None = None
        self._coded: Stepper | None = None
        """The run that was measured last."""
        self._ms: float | None = None
        self._primary_ms: float | None = 0.0
        self._blocks: BlockErrors | None = None
        self._blocks_stale = True
        self._blocks_at = -math.inf
        self._blocks_cost = 0.0
        self._memory: tuple[object, LaneBytes, LaneBytes] | None = None
        self._picture: EightBitPicture | None = None

    # --- asked for

    @property
    def on(self) -> bool:
        """True with a second run, be it still to start."""
        return self.companion is not None or self._waiting

    def start(self, primary: Stepper, asked: Asked) -> None:
        """Start a second run from this moment, or from the end of the step within one; in place of one there is.

        It says how far it is; where it is ended there is no second run.
        """
        self.stop()
        self.asked = asked
        self._changed()
        if not primary.cursor.between_steps:
            self._waiting = True
            return
        variant, of = companion_variant(primary.plan.variant, asked), primary.plan.variant
        try:
            with part(0, 0.8):
                self.companion = primary.beside(variant, undo_bytes=primary.undo_info.limit // UNDO_SHARE)
            self._since, self._began = primary.cursor.finished_steps, primary.cursor
            with part(0.8, 1):
                lost = lost_moments(primary.state()) if (of.kernel, of.codec) == ("8bit", "linear") else 0
            if lost:
                self.said = (
                    f"{lost:,} v are 0 in linear codes, under an m that is not 0. The float32 run starts from them "
                    "without the limit on updates that linear codes have: the drift begins with a jump. Start lockstep "
                    "at step 0 to see what the codes do."
                )
            self._measure_drift(primary)
        except (InspectorError, EndedError):
            self.stop()
            raise

    def stop(self, message: str = "", *, release: bool = True) -> None:
        """End the second run; `release` False where its device is gone already."""
        if self.companion is not None and release:
            self.companion.release()
        if message and self.on:
            self.said = self._message = message
        elif not message:
            self._message = ""
        if self._coded is self.companion:
            self._coding, self._coded = None, None
        self.companion, self._waiting, self._since, self._began = None, False, None, None
        self._drift, self._ms = None, None
        self._changed()

    def look(self, param: str | None, *, watched: bool) -> None:
        """Whose blocks are looked at, and whether anybody looks at all."""
        self.watched = watched
        if param != self._param:
            self._param = param
            self._changed()

    # --- as the run goes on

    def measures(self, primary: Stepper) -> bool:
        """True where errors of the first run's own coding are measured before its update."""
        looked_at = self.watched or self.wanted or self.mapped or self.companion is not None
        return primary.plan.variant.kernel == "8bit" and looked_at

    def before_update_of(self, primary: Stepper) -> tuple[ParamCodingError, ...] | None:
        """Errors of the first run's own coding in the update to come; None where they were not measured."""
        if self._coding is None or self._coded is not primary or self._coding[0] != primary.cursor.step:
            return None
        return self._coding[1]

    def begun(self, gradients: Gradients) -> None:
        """The first run has begun a step."""
        if self.companion is not None:
            self.companion.begin_step(gradients)

    def before_update(self, primary: Stepper, hyper: Hyper) -> None:
        """The first run stands between finalize_grad_stats and its update."""
        if self.measures(primary):
            self._keep_coding(primary, hyper)

    def finished(self, primary: Stepper, hyper: Hyper) -> dict[str, float]:
        """The first run has completed a step; what the history takes of it."""
        metrics: dict[str, float] = {}
        if self.companion is not None:
            try:
                metrics = self._run_companion(primary, self.companion, hyper)
            except DeviceLostError:
                raise
            except InspectorError as error:
                self.stop(f"Lockstep ended: {error}")
        if self._coding is not None and self._coding[0] == primary.cursor.step:
            total = merged_error(self._coding[1])
            metrics |= {
                "coding/m": total.m.relative,
                "coding/v": total.v.relative,
                "coding/lost": float(total.lost),
            }
        if self._waiting:
            self.start(primary, self.asked)
        self._changed()
        return metrics

    def _run_companion(self, primary: Stepper, companion: Stepper, hyper: Hyper) -> dict[str, float]:
        times: list[float | None] = []
        ran: list[KernelTime] = []
        if companion.plan.variant.kernel == "8bit":
            while not _knows_clip_scale(companion):
                ran.append(companion.run_dispatch(hyper))
            times.append(self._keep_coding(companion, hyper))
        else:
            times.append(primary.coding_ms)
        ran += companion.run_to_end(hyper)
        times += [each.ms for each in ran]
        times.append(self._measure_drift(primary))
        self._ms = None if None in times else math.fsum(t for t in times if t is not None)
        assert self._drift is not None
        total = merged_drift(self._drift[1])
        return {
            "lockstep/drift": total.relative,
            "lockstep/largest": total.largest,
            "lockstep/ms": math.nan if self._ms is None else self._ms,
        }

    def _keep_coding(self, stepper: Stepper, hyper: Hyper) -> float | None:
        self._coding = stepper.cursor.step, stepper.coding_errors(hyper)
        self._coded = stepper
        self._changed()
        return stepper.coding_ms

    def _measure_drift(self, primary: Stepper) -> float | None:
        assert self.companion is not None
        self._drift = self.companion.cursor.finished_steps, primary.drift_from(self.companion)
        return primary.drift_ms

    def moved_back(self, primary: Stepper) -> None:
        """The first run has gone back: so does the second, to the start of a step or its end."""
        cursor = primary.cursor
        measured = self._coding[0] if self._coding else 0
        before = cursor.step < measured or (cursor.step == measured and not _knows_clip_scale(primary))
        if before:
            # It was of an update that has not happened now, and how the one before erred is not kept.
            self._coding = None
        self._changed()
        companion = self.companion
        if companion is None:
            return
        began = self._began
        if began is not None and (cursor.step, cursor.at_end) < (began.step, began.at_end):
            when = f"after step {began.step:,}" if began.at_end else f"at the start of step {began.step:,}"
            self.stop(
                f"Lockstep ended: it began {when}, and the run stands before that now. Start it again from here."
            )
            return
        self._ms = None
        at_end = cursor.at_end
        while (companion.cursor.step, companion.cursor.at_end) != (cursor.step, at_end):
            back = companion.rewind_to(cursor.step) if at_end else companion.rewind_step()
            if not back or companion.cursor.step < cursor.step:
                self.stop(
                    f"Lockstep ended: memory of the second run does not reach back to step {cursor.step:,}. Start it "
                    "again from here, or with a larger --undo-mb."
                )
                return
        if cursor.between_steps:
            self._measure_drift(primary)

    def reformed(self, primary: Stepper) -> None:
        """The first run goes on in another form: so does the second."""
        self._changed()
        if self.companion is None:
            return
        variant = companion_variant(primary.plan.variant, self.asked)
        if self.companion.can_take(variant):
            self.companion.set_variant(variant)
        else:
            self.stop(_NEW_FORM)

    def replaced(self, *, lost: bool) -> None:
        """The first run goes on with a new stepper on a new device: the old one was `lost`, or left for a new form."""
        self._coding = self._coded = None
        self.stop(_LOST_DEVICE if lost else _NEW_FORM, release=False)

    # --- what is shown

    def _changed(self) -> None:
        self._blocks_stale = True
        self._picture = None

    def refresh(self, *, running: bool) -> None:
        """Read the errors of the blocks looked at; while running, only as often as that is cheap."""
        if not self._blocks_stale or not (self.watched and self._param):
            return
        started = time.perf_counter()
        wait = max(RUNNING_PERIOD_S, RUNNING_SHARE * self._blocks_cost) if running else 0.0
        if started - self._blocks_at < wait:
            return
        self._blocks = self._read_blocks(self._param)
        self._blocks_stale = False
        self._picture = None
        self._blocks_at = time.perf_counter()
        self._blocks_cost = self._blocks_at - started

    def _read_blocks(self, param: str) -> BlockErrors | None:
        stepper = self._coded
        if self._coding is None or stepper is None or param not in (e.name for e in self._coding[1]):
            return None
        m, v = stepper.block_errors(param)
        (few_m, group), (few_v, _) = at_most(m, MAX_POINTS), at_most(v, MAX_POINTS)
        for array in (few_m, few_v):
            array.flags.writeable = False
        return BlockErrors(param, len(m), group, few_m, few_v)

    def picture(self, primary: Stepper) -> EightBitPicture:
        """This moment; the same object while nothing has changed."""
        if self._picture is None:
            self._picture = self._make_picture(primary)
        return self._picture

    def _make_picture(self, primary: Stepper) -> EightBitPicture:
        variant, companion = primary.plan.variant, self.companion
        drift, coding = self._drift, self._coding
        f32_bytes, coded_bytes = self._bytes(primary)
        blocks = self._blocks
        return EightBitPicture(
            codec=variant.codec if variant.kernel == "8bit" else self.asked.codec,
            primary=variant.kernel,
            companion=companion.plan.variant.kernel if companion is not None else None,
            waiting=self._waiting,
            since=self._since,
            drift_step=drift[0] if drift else None,
            drift=drift[1] if drift else (),
            drift_total=merged_drift(drift[1]) if drift else None,
            coding_step=coding[0] if coding else None,
            coding=coding[1] if coding else (),
            coding_total=merged_error(coding[1]) if coding else None,
            blocks=blocks if coding and blocks is not None and blocks.param == self._param else None,
            f32_bytes=f32_bytes,
            coded_bytes=coded_bytes,
            ms=self._ms,
            message=self._message,
        )

    def _bytes(self, primary: Stepper) -> tuple[LaneBytes, LaneBytes]:
        plans: Sequence[Plan | None] = (primary.plan, self.companion.plan if self.companion else None)
        key = (*plans, self.asked)
        if self._memory is None or self._memory[0] != key:
            found = []
            for coded in (False, True):
                plan = next((p for p in plans if p and (p.variant.kernel == "8bit") == coded), None)
                form = plan.variant if plan else companion_variant(primary.plan.variant, self.asked)
                found.append(lane_bytes(primary.layout.params, form, plan))
            self._memory = key, found[0], found[1]
        return self._memory[1], self._memory[2]


_NEW_FORM = "Lockstep ended with the change of form: start it again from here."
_LOST_DEVICE = "Lockstep ended with the lost device: start it again from here."


def _knows_clip_scale(stepper: Stepper) -> bool:
    done = stepper.plan.dispatches[: stepper.cursor.dispatch]
    return any(d.entry_point == "finalize_grad_stats" for d in done)
