"""A recording of a run: follows an engine and offers each step to a recorder, with what its policy wants of tensors."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from pathlib import Path

from inspector import __version__
from inspector.diagnosis.findings import Finding
from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.hyper import KERNELS_REVISION, Hyper
from inspector.layout import Layout
from inspector.runtime.engine import Engine
from inspector.runtime.snapshots import RecordingPicture, StepRecord
from inspector.session.new_place import check_new
from inspector.session.places import open_places
from inspector.session.policy import Policy
from inspector.session.recorder import Recorder, check_room
from inspector.session.records import About, RecordedLayout, RecordedStep
from inspector.sources.base import Source
from inspector.stepping import GeneratedState
from inspector.stores import stores

KEPT_BYTES = 256 << 20
"""Of gradients of the latest steps, for a step that is gone back into and completed again."""
LOOK_S = 0.5
"""How often the size on disk is looked at."""

Gradients = dict[str, F32Array]


class Recording:
    """Follows `engine`, which stands between steps where the recorder goes on.

    A step is offered once the one before it is on disk, so that a killed process loses at most the step in progress.
    That is waited for at most `patience_s`, or as long as it takes where it is None; beyond that the recorder's queue
    takes steps, and leaves out tensors once it is full.
    """

    def __init__(self, engine: Engine, recorder: Recorder, *, patience_s: float | None = None) -> None:
        self.path = recorder.path
        self.policy = recorder.policy
        self.ended: str | None = None
        """Why it ended by itself, in a sentence: the disk is full, the run went back to before its start."""
        self.cut_short = False
        """True where it was ended before all tensors that had been captured were written."""
        self._engine = engine
        self._recorder = recorder
        self._patience_s = patience_s
        self._open = True
        self._gradients: OrderedDict[int, Gradients] = OrderedDict()
        self._laid: tuple[Layout, RecordedLayout] | None = None
        self._before = 0 if recorder.last_step == recorder.about.finished_steps else _size(self.path)
        self._looked = -math.inf
        self._picture = RecordingPicture(str(self.path), str(self.policy), 0, 0)
        engine.follower = self
        if not engine.stepper.cursor.at_end:
            self.begun(engine)

    @classmethod
    def start(
        cls,
        engine: Engine,
        path: Path,
        policy: Policy,
        *,
        planned_steps: int | None = None,
        patience_s: float | None = None,
        lane_of: Path | None = None,
    ) -> Recording:
        """A new recording at `path` from where the run stands; UsageError where it cannot be made or has no room.

        That of a lane lies in the folder of its race, `lane_of`.
        """
        stepper = engine.stepper
        if not stepper.cursor.between_steps:
            raise UsageError("A recording can start only between steps: finish this one first.")
        start = stepper.cursor.finished_steps
        check_new(path, lane_of=lane_of)
        expected = policy.expected_bytes(
            stepper.layout, planned_steps or 1, stats=engine.stats_level, start=start
        )
        check_room(path, expected)
        about = About(
            source=engine.source.name,
            params=engine.source.params,
            variant=stepper.plan.variant,
            hyper=engine.hyper,
            schedule=str(engine.schedule),
            device=stepper.device,
            finished_steps=start,
            policy=str(policy),
            software=f"inspector {__version__}",
            kernels=KERNELS_REVISION,
            began=time.time(),
            description=described(engine.source),
            stats=engine.stats_level,
            planned_steps=planned_steps,
            layout=RecordedLayout.of(stepper.layout, stepper.plan.limits, engine.source.params),
        )
        state = stepper.state() if policy.captures else None
        recorder = Recorder.create(path, about)
        try:
            if state is not None:
                recorder.offer_start(state)
            return cls(engine, recorder, patience_s=patience_s)
        except BaseException:
            recorder.close("The run could not be read.")
            raise

    @property
    def open(self) -> bool:
        """False once it has ended."""
        return self._open

    @property
    def last_step(self) -> int:
        """The last step that was recorded; that of the start before there is one."""
        return self._recorder.last_step

    @property
    def first_step(self) -> int:
        """The step it begins with."""
        return self._recorder.about.finished_steps + 1

    def picture(self) -> RecordingPicture:
        """What to show of it; its size as of the last half second."""
        now = time.monotonic()
        steps = self.last_step + 1 - self.first_step
        nbytes = self._picture.nbytes
        if now - self._looked > LOOK_S:
            self._looked = now
            nbytes = self._before + self._recorder.bytes_written + _database_size(self.path)
        if (steps, nbytes) != (self._picture.steps, self._picture.nbytes):
            self._picture = RecordingPicture(str(self.path), str(self.policy), steps, nbytes)
        return self._picture

    def size(self) -> int:
        """Bytes on disk."""
        return _size(self.path)

    def words(self) -> str:
        """What it holds and where, for a sentence."""
        first, last = self.first_step, self.last_step
        return f"steps {first:,} to {last:,}: {self.path}" if last >= first else f"no step: {self.path}"

    def flush(self) -> None:
        """Wait until every step that was offered is on disk."""
        self._recorder.flush()

    def fire(self) -> None:
        """A breakpoint was hit: the flight recorder writes what it holds."""
        stepper = self._engine.stepper
        # No update of the step at the cursor has run where a breakpoint stops.
        self._recorder.fire(stepper.state() if self._recorder.has_ring else None)

    def end(self, reason: str | None = None) -> None:
        """End it once everything is written; `reason` says why, where not because it was done. Again does nothing.

        It says how far it is. Where it is ended, tensors that are not written yet are left out.
        """
        if not self._open:
            return
        self._open = False
        if self._engine.follower is self:
            self._engine.follower = None
        self._gradients.clear()
        self._recorder.close(reason)
        self.cut_short = self._recorder.cut_short
        self.ended = self.ended or self._recorder.problem

    # --- what the engine tells

    def begun(self, engine: Engine) -> None:
        """Read the gradients back where they are wanted: the update takes them."""
        step = engine.stepper.cursor.step
        if self._recorder.wants(step).gradients:
            self._keep(step, engine.stepper.gradients())

    def completed(self, engine: Engine, record: StepRecord, hyper: Hyper) -> None:
        """Offer the step."""
        recorder, step = self._recorder, record.step
        # The one before it is on disk first: nothing that is complete is lost with the process but this.
        recorder.flush(self._patience_s)
        if self._stopped():
            return
        if step > recorder.last_step + 1:
            self._stop(f"The recording {self.path} has ended, step {step - 1:,} could not be recorded.")
            return
        wanted = recorder.wants(step)
        gradients = self._gradients.get(step) if wanted.gradients else None
        keyframe = None
        if wanted.keyframe:
            made = engine.checkpoint
            keyframe = made if made and made.finished_steps == step else engine.stepper.state()
        counted = engine.counted
        recorder.offer(
            RecordedStep(
                step,
                hyper,
                engine.stepper.plan.variant,
                record.loss,
                record.grad_norm,
                record.clip_scale,
                record.nonfinite,
                record.kernels,
                time.time(),
                self._laid_out(engine),
            ),
            statistics=counted.params if counted is not None and counted.step == step else None,
            findings=_found_in(engine, step),
            gradients=gradients,
            keyframe=keyframe,
        )
        if wanted.gradients and gradients is None:
            recorder.mark(step, "gradients not captured, the step was gone back into")
        if not engine.stepper.undo_info.limit:
            self._gradients.clear()

    def moved_back(self, engine: Engine) -> None:
        """Drop what came later, in the recording as well."""
        cursor = engine.stepper.cursor
        if self._stopped():
            return
        if cursor.finished_steps + 1 < self.first_step:
            self._stop(
                f"The recording {self.path} has ended, the run went back to before step {self.first_step:,}, where it "
                "began."
            )
            return
        if cursor.finished_steps < self.last_step:
            self._recorder.rewind(cursor.finished_steps)
        for step in [step for step in self._gradients if step > cursor.step]:
            del self._gradients[step]
        if not cursor.at_end and cursor.step not in self._gradients and _gradients_are_whole(engine):
            self.begun(engine)

    def marked(self, step: int, text: str) -> None:
        """Note it beside the steps."""
        self._recorder.mark(step, text)

    # --- inner parts

    def _laid_out(self, engine: Engine) -> RecordedLayout:
        layout = engine.stepper.layout
        if self._laid is None or self._laid[0] is not layout:
            params, limits = self._recorder.about.params, engine.stepper.plan.limits
            self._laid = layout, RecordedLayout.of(layout, limits, params)
        return self._laid[1]

    def _keep(self, step: int, gradients: Gradients) -> None:
        self._gradients[step] = gradients
        self._gradients.move_to_end(step)
        each = max(sum(values.nbytes for values in gradients.values()), 1)
        while len(self._gradients) > max(KEPT_BYTES // each, 1):
            self._gradients.popitem(last=False)

    def _stopped(self) -> bool:
        """True where the recorder gave up, which ends the recording."""
        if self._open and self._recorder.problem is not None:
            self._stop(self._recorder.problem)
        return not self._open

    def _stop(self, sentence: str) -> None:
        self.ended = sentence
        self.end(sentence)


def described(source: Source) -> str:
    """What a source is, with the seed of what is drawn on the device, which its name does not say."""
    state = source.initial_state()
    drawn = isinstance(state, GeneratedState) and state.seed
    return f"{source.description}, seed {state.seed}" if drawn else source.description  # type: ignore[union-attr]


def _found_in(engine: Engine, step: int) -> list[Finding]:
    found: list[Finding] = []
    for finding in reversed(engine.findings):
        if finding.step < step:
            break
        if finding.step == step:
            found.append(finding)
    return found[::-1]


def _gradients_are_whole(engine: Engine) -> bool:
    """True where no dispatch that has run of the step wrote to the gradients."""
    buffers = {store.buffer for store in stores(engine.stepper.layout, "g")}
    done = engine.stepper.plan.dispatches[: engine.stepper.cursor.dispatch]
    return not any(b.buffer in buffers for d in done for b in d.writes)


def _size(path: Path) -> int:
    try:
        return open_places(path).nbytes()
    except OSError:
        return 0


def _database_size(path: Path) -> int:
    try:
        return sum(file.stat().st_size for file in path.glob("*.sqlite*"))
    except OSError:
        return 0
