"""A race: several runs side by side on one device, from the same start, over the same batches, each by its own rule."""

from __future__ import annotations

import hashlib
import math
import os
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.errors import DeviceLostError, InspectorError
from inspector.floats import F32Array, significant
from inspector.history import History, HistoryRecorder
from inspector.hyper import Hyper
from inspector.optimizers import runs_as
from inspector.plan import Variant
from inspector.progress import EndedError, part
from inspector.race import LaneSpec, lane_names
from inspector.runtime.engine import Engine
from inspector.runtime.snapshots import StepRecord
from inspector.sources.base import EndOfSourceError, ReadWeights, Source, is_closed_loop, seed_of
from inspector.statistics import StatsLevel
from inspector.stepping import Gradients, State, Stepper

JUDGED_STEPS = 20
"""A lane has diverged once its loss, as the mean of so many steps, is above that of its first step by `RISE`."""
RISE = 0.1
"""As a share of the first loss: batches differ by less, and a lane that hardly moves has not diverged."""
FINAL_SHARE = 10
"""The final loss is the mean over the last tenth of the steps, at least one: a batch alone says little."""

POINT = ("x", "y")
"""The two weights of a run that has no others, after each step: its path over a surface."""

Weights = Mapping[str, F32Array]
FloatArray = npt.NDArray[np.floating[Any]]
MakeFirst = Callable[[Source, Variant, State], Stepper]


class LaneSource:
    """A source whose gradients may be asked for ahead, on another thread; else as the one it wraps."""

    closed_loop = True

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name, self.description = source.name, source.description
        self.params, self.hyper = source.params, source.hyper
        self.last_step, self.schedule = source.last_step, source.schedule
        self.seed = seed_of(source)
        self._ahead: tuple[int, Future[Gradients]] | None = None

    def initial_state(self) -> State:
        """That of the source."""
        return self._source.initial_state()

    def ask(self, step: int, weights: Weights, pool: ThreadPoolExecutor) -> None:
        """Begin to work out the gradients of `step` at these weights, unless that has begun."""
        if self._ahead is None or self._ahead[0] != step:
            self._ahead = step, pool.submit(self._source.gradients, step, lambda: weights)

    def forget(self) -> None:
        """What was asked for is of weights that are no longer there."""
        self._ahead = None

    def gradients(self, step: int, read_weights: ReadWeights) -> Gradients:
        """Those asked for ahead, where they are of this step."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == step:
            return ahead[1].result()
        return self._source.gradients(step, read_weights)


@dataclass(frozen=True, slots=True)
class LaneStep:
    """One step of one lane: what was recorded of it, ‖w‖ of the weights that it began with, and ‖Δw‖ of what it made.

    Over all elements, in float64. The two are None where nobody knows them: the weights are read for a source in a
    closed loop alone, and the statistics of all params tell both.
    """

    record: StepRecord
    weight_norm: float | None
    update_norm: float | None


class Lane:
    """One run of a race. `name` is what it is called among the others."""

    def __init__(self, name: str, spec: LaneSpec, source: Source, engine: Engine) -> None:
        self.name = name
        self.spec = spec
        self.engine = engine
        self.ended: str | None = None
        """Why it runs no further, in a sentence."""
        self.diverged: tuple[int, str] | None = None
        """The step at which it was first seen to diverge, and by what."""
        self.runs_as = runs_as(engine.stepper.plan.variant, source.params)
        """What steps its params where its optimizer takes none of them, and why."""
        self.latest: LaneStep | None = None
        self._source = source
        self._weights: Weights | None = None
        self._read_weights()
        self._losses = array("d")
        """One a step since the start, NaN where the source tells none."""
        self._history = HistoryRecorder()
        self._began_at = engine.stepper.cursor.finished_steps

    @property
    def steps(self) -> int:
        """Steps that are complete."""
        return self.engine.stepper.cursor.finished_steps

    @property
    def ran(self) -> int:
        """Those of them that it ran itself: its source may begin after others."""
        return self.steps - self._began_at

    def ask_ahead(self, pool: ThreadPoolExecutor) -> None:
        """Begin to work out the gradients of the next step on a thread of `pool`, where they come from the weights."""
        stepper = self.engine.stepper
        if isinstance(self._source, LaneSource) and stepper.cursor.at_end:
            if self._weights is None:
                self._weights = stepper.weights()
            self._source.ask(stepper.cursor.step + 1, self._weights, pool)

    def step(self) -> bool:
        """The rest of its step, or the next whole one; False where a breakpoint stops it, or it has ended."""
        if self.ended is not None:
            return False
        try:
            self.engine.step_iteration()
        except (DeviceLostError, EndOfSourceError):
            raise
        except InspectorError as error:
            self.ended = str(error)
            return False
        before = len(self._losses)
        self.observe()
        return len(self._losses) > before

    def observe(self) -> bool:
        """Take over the numbers of the steps that are complete now; True where it went back."""
        known = self._began_at + len(self._losses)
        if self.steps < known:
            self.moved()
            return True
        while known < self.steps:
            known += 1
            record = self.engine.record_of(known)
            if record is None:
                record = StepRecord(known, math.nan, None)
            self._completed(record, alone=known == self.steps)
        return False

    def moved(self) -> None:
        """It stands elsewhere than after its last step, or on other weights."""
        self._read_weights()
        if isinstance(self._source, LaneSource):
            self._source.forget()
        if self.latest is not None and self.latest.record.step > self.steps:
            self.latest = None
        if self.diverged is not None and self.diverged[0] > self.steps:
            self.diverged = None
        del self._losses[max(self.steps - self._began_at, 0) :]
        self._history.truncate(self.steps)

    @property
    def history(self) -> History:
        """loss, grad_norm, clip_scale, lr, weight_norm and update_norm of its steps."""
        return self._history.freeze()

    def final_loss(self) -> float:
        """The mean loss over the last tenth of its steps, in the unit of the source; NaN where it has none."""
        count = max(len(self._losses) // FINAL_SHARE, 1)
        return float(np.mean(self._losses[-count:])) if self._losses else math.nan

    def digest(self) -> str:
        """SHA-256 of its weights, params in the order of the source: the same where every bit is. In the middle of a
        step of those that it began with, "" where nobody kept these."""
        weights = self.engine.stepper.weights() if self.engine.stepper.cursor.between_steps else self._weights
        if weights is None:
            return ""
        digest = hashlib.sha256()
        for param in self._source.params:
            digest.update(np.ascontiguousarray(weights[param.name], dtype="<f4").tobytes())
        return digest.hexdigest()

    def _read_weights(self) -> None:
        """Those that its next step begins with, where its gradients come from them; none in the middle of a step."""
        self._weights = None
        if isinstance(self._source, LaneSource) and self.engine.stepper.cursor.between_steps:
            self._weights = self.engine.stepper.weights()

    def _completed(self, record: StepRecord, *, alone: bool) -> None:
        """`alone` where it is the step that was completed last, so that the weights are of right after it."""
        before, self._weights = self._weights, None
        weight_norm = update_norm = None
        if isinstance(self._source, LaneSource):
            if alone:
                self._weights = self.engine.stepper.weights()
            if before is not None and self._weights is not None:
                weight_norm = norm_of(before.values())
                update_norm = norm_of(after - before[name] for name, after in self._weights.items())
        elif self.engine.counted is not None and self.engine.counted.step == record.step:
            table = self.engine.counted.params
            weight_norm, update_norm = norm_of([table.lanes["w"].norm]), norm_of([table.update.norm])
        self.latest = LaneStep(record, weight_norm, update_norm)
        known = {
            "loss": record.loss, "grad_norm": record.grad_norm, "clip_scale": record.clip_scale, "lr": record.lr,
            "weight_norm": weight_norm, "update_norm": update_norm,
        }  # fmt: skip
        metrics = {name: x for name, x in known.items() if x is not None}
        if self._weights is not None and self.engine.stepper.layout.elements == len(POINT):
            metrics |= zip(
                POINT, np.concatenate([w.ravel() for w in self._weights.values()]).tolist(), strict=True
            )
        self._history.append(record.step, metrics)
        self._losses.append(math.nan if record.loss is None else record.loss)
        self._judge(record)

    def _judge(self, record: StepRecord) -> None:
        loss, elements = record.loss, self.engine.stepper.layout.elements
        if loss is None or self.diverged is not None:
            return
        first, lost = self._losses[0], record.nonfinite.total
        mean = (
            float(np.mean(self._losses[-JUDGED_STEPS:])) if len(self._losses) >= JUDGED_STEPS else -math.inf
        )
        why = ""
        if not math.isfinite(loss):
            why = f"its loss is {loss}"
        elif 2 * lost > elements:
            why = f"{lost:,} of its {elements:,} gradients are not finite"
        elif record.grad_norm == 0:
            why = "all of its gradients are 0, so that nothing is learned any more"
        elif mean > first + RISE * abs(first):
            mean_text, first_text = significant(mean, 4), significant(first, 4)
            why = (
                f"its loss is {mean_text} as the mean of {JUDGED_STEPS} steps, and was {first_text} at first"
            )
        if why:
            self.diverged = record.step, why


def norms_level(stats: StatsLevel, *, closed_loop: bool) -> StatsLevel:
    """How much has to be counted for ‖w‖ and ‖Δw‖ of the lanes where as much as `stats` is wanted.

    In a closed loop the weights are read in any case. In an open one these two are all in which lanes differ.
    """
    return "full" if stats == "light" and not closed_loop else stats


class Race:
    """Lanes that take their steps together. Their gradients are worked out on as many threads as there are cores.

    All belong to one device; `close` ends it.
    """

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.lanes = tuple(lanes)
        count = min(len(self.lanes), os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="inspector-gradients")

    @classmethod
    def start(
        cls,
        sources: Sequence[Source],
        specs: Sequence[LaneSpec],
        make: MakeFirst,
        *,
        variant: Variant,
        hypers: Sequence[Hyper],
        forms: Sequence[Variant] | None = None,
        stats: StatsLevel = "light",
        undo_bytes: int = 0,
    ) -> Race:
        """Lanes at the start of their sources: `make` makes the first stepper, and with it the device.

        `sources` and `hypers` one a lane, the settings before the lane's own; several lanes may have one source. Of
        all else the form is as in `variant`. With `forms`, one a lane, these and `hypers` are what the lanes run, to
        which what a lane says adds nothing. UsageError for a form that the device or the optimizer does not have.
        """
        lanes: list[Lane] = []
        first: Stepper | None = None
        try:
            for i, (name, spec, source, hyper) in enumerate(
                zip(lane_names(specs), specs, sources, hypers, strict=True)
            ):
                own = LaneSource(source) if is_closed_loop(source) else source
                form = spec.variant_of(variant) if forms is None else forms[i]
                with part(i / len(specs), (i + 1) / len(specs)):
                    with part(0, 0.3):
                        state = source.initial_state()
                    with part(0.3, 1):
                        if first is None:
                            first = stepper = make(own, form, state)
                        else:
                            stepper = first.another(state, form, undo_bytes=undo_bytes)
                used = spec.settings_of(hyper, source.params, form) if forms is None else hyper
                engine = Engine(own, stepper, hyper=used, keep_checkpoint=False, stats=stats)
                lanes.append(Lane(name, spec, own, engine))
        except (InspectorError, EndedError):
            if first is not None:
                with suppress(InspectorError):
                    first.close()
            raise
        return cls(lanes)

    @property
    def running(self) -> tuple[Lane, ...]:
        """The lanes that have not ended."""
        return tuple(lane for lane in self.lanes if lane.ended is None)

    def watch_decay(self) -> None:
        """Add up the decay that each element receives, in every lane that can be watched."""
        for lane in self.lanes:
            lane.engine.decay.start(lane.engine.stepper)

    def step(self) -> None:
        """One step of every lane that has not ended. What stops one does not stop the others.

        Raises EndOfSourceError where there are no more gradients, DeviceLostError where the device is gone.
        """
        self.round(max((lane.steps for lane in self.running), default=0) + 1)

    def round(self, step: int, *, without: Lane | None = None) -> bool:
        """One step of each lane that is behind step `step`; False where none was, or none could."""
        return self.step_lanes(self._behind(step, without))

    def step_lanes(self, lanes: Sequence[Lane]) -> bool:
        """One step of each of these; False where none took one."""
        for lane in lanes:
            lane.ask_ahead(self._pool)
        moved = [lane.step() for lane in lanes]
        return any(moved)

    def ask_ahead(self) -> None:
        """Begin to work out the next gradients of every lane that has not ended."""
        for lane in self.running:
            lane.ask_ahead(self._pool)

    def is_behind(self, front: Lane) -> bool:
        """True where a lane has not run as many steps as `front`, and can."""
        return bool(self._behind(front.steps, front))

    def _behind(self, step: int, without: Lane | None) -> list[Lane]:
        return [lane for lane in self.running if lane.steps < step and lane is not without]

    def close(self) -> None:
        """End the threads and the device."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        with suppress(InspectorError):
            self.lanes[0].engine.stepper.close()


def norm_of(arrays: Iterable[FloatArray]) -> float:
    """√Σx² over all elements of the arrays, in float64."""
    total = 0.0
    with np.errstate(all="ignore"):
        for values in arrays:
            wide = np.asarray(values, np.float64).ravel()
            total += float(wide @ wide)
    return math.sqrt(total) if total >= 0 else math.nan
