"""Going to a step, playing through steps, following a recording: what was recorded is shown at once, buffers follow."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

from inspector.diagnosis.findings import Finding
from inspector.errors import UsageError
from inspector.runtime import commands as c
from inspector.runtime.engine import Engine
from inspector.runtime.recorded import RecordedRun
from inspector.runtime.snapshots import Glance, Playing, Snapshot
from inspector.runtime.watching import Say, Watching
from inspector.runtime.ways import Way
from inspector.sources.base import EndOfSourceError
from inspector.stepping import Cursor

QUICK_S = 0.03
"""What takes no longer is done before anything is shown."""
SETTLE_S = 0.12
"""A state is put on the device once a person has stayed at a step so long: scrubbing passes over many."""
SMALL_ELEMENTS = 1 << 20
"""A step over fewer elements is taken to be quick until one has been timed."""
PLAYED_SHARE = 0.5
"""While playing a recording, buffers are shown where running the steps takes no more of the time."""


@dataclass(slots=True)
class _Going:
    """On the way to step `step`, after its dispatch `dispatch`, to its end where that is None."""

    way: Way
    step: int
    dispatch: int | None
    off: bool = False


class GivenUpError(Exception):
    """Something else is asked for than to put a state on the device."""


class Travel:
    """Moves `engine` to where a person wants to look. `run_step` runs a step of it, or a part of a slow one."""

    def __init__(
        self,
        engine: Engine,
        run_step: Callable[[], None],
        say: Say,
        look_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """`look_up` is called now and then while a state is put on the device; True gives that up."""
        self.engine = engine
        self.glance: Glance | None = None
        self.playing: Playing | None = None
        self.following = False
        self.after: list[c.Command] = []
        """Commands that wait for the arrival."""
        self.step_s = 0.0
        """What a step takes, as measured last."""
        self._run_step = run_step
        self._say = say
        self._look_up = look_up
        self._going: _Going | None = None
        self._found: tuple[Finding, ...] = ()
        """What was found before in the step that is gone into."""
        self._asked_at = -float("inf")
        self._watching = Watching(say)
        self._played_from = (0.0, 0)
        self._played = 0

    # --- where it is

    @property
    def recorded(self) -> RecordedRun | None:
        """The recording, while its steps run as recorded: otherwise its numbers are not those of this run."""
        return self.engine.recorded if self.engine.course.as_recorded else None

    @property
    def busy(self) -> bool:
        """True while it is on its way."""
        return self._going is not None

    @property
    def way_start(self) -> int | None:
        """The step at whose end the way begins that it is on."""
        return self._going.way.start if self._going is not None else None

    @property
    def shown(self) -> int:
        """The step on show, its end or a point in it."""
        cursor = self.engine.stepper.cursor
        return self.glance.step if self.glance else cursor.finished_steps

    @property
    def cursor(self) -> Cursor:
        """Where the run is seen to stand."""
        cursor = self.engine.stepper.cursor
        return Cursor(self.glance.step, cursor.count, cursor.count) if self.glance else cursor

    def wait_s(self) -> float | None:
        """How long nothing has to be done; None for as long as nobody asks for anything."""
        if self.playing is not None:
            due = self._played_from[0] + (self._played + 1) / self.playing.steps_per_second
            return max(due - time.perf_counter(), 0.0)
        if self._going is not None:
            return max(self._asked_at + SETTLE_S - time.perf_counter(), 0.0) if self._settles() else 0.0
        recorded = self.engine.recorded
        return None if recorded is None else self._watching.wait_s(recorded)

    def pictured(self, picture: Snapshot) -> Snapshot:
        """A picture of where the device stands, as one of the step on show."""
        picture = replace(picture, playing=self.playing, following=self.following, glance=self.glance)
        recorded, glance = self.engine.recorded, self.glance
        if recorded is None or glance is None:
            return picture
        stepper = self.engine.stepper
        record = recorded.record(glance.step, stepper.plan)
        times = record.kernels if record is not None else ()
        return replace(
            picture,
            cursor=self.cursor,
            uniforms=self.engine.uniforms_of(glance.step),
            step_hyper=self.engine.course.hyper_at(glance.step),
            record=record,
            counted=recorded.counted(glance.step),
            dispatch_times=times or (None,) * stepper.cursor.count,
            eight_bit=None,
        )

    # --- going there

    def start(self) -> None:
        """Take the gradients of the first step where there are any; without any state, look at the last step."""
        engine, recorded = self.engine, self.engine.recorded
        if recorded is not None and engine.nowhere:
            self.seek(recorded.steps.stop - 1)
            return
        first = engine.stepper.cursor.finished_steps
        if recorded is None or recorded.leads(first, first + 1):
            engine.begin()

    def seek(self, step: int, dispatch: int | None = None) -> None:
        """Set off for a step; UsageError where a run that is no recording cannot be brought there."""
        self._stop()
        recorded = self.recorded
        if recorded is not None:
            wanted, (first, last) = step, (recorded.steps.start, recorded.steps.stop - 1)
            step = min(max(step, first - 1), last)
            if step != wanted:
                self._say("info", f"The recording holds steps {first:,} to {last:,}, and no step {wanted:,}.")
        way = self.engine.way_to(step if dispatch is None else step - 1)
        missing = self._missing(step, dispatch, way)
        if missing and dispatch is not None and dispatch >= self.engine.stepper.cursor.count:
            # Nothing leads into the step, but its end may have been captured.
            self._tell_no_dispatch(step, dispatch, self.engine.stepper.cursor.count)
            dispatch = None
            way = self.engine.way_to(step)
            missing = self._missing(step, dispatch, way)
        if recorded is not None and step in recorded.steps:
            self.glance = Glance(step, missing, 0, 0 if missing else max(way.steps, 1) if way else 0)
        elif missing:
            raise UsageError(missing)
        if missing or way is None:
            return
        self._going = _Going(way, step, dispatch)
        # Whoever goes into a step to look at a finding still has it there.
        self._found = tuple(f for f in self.engine.findings if f.step == step) if dispatch is not None else ()
        self._asked_at = time.perf_counter()
        if way.cost * self.step_s <= QUICK_S and not self._settles():
            try:
                while self._going is not None:
                    self.advance()
            except GivenUpError:
                # What was asked for in the meantime comes next.
                self.cancel()

    def cancel(self) -> None:
        """Stay where it is: the device on its way, what was recorded on show."""
        self._going = None
        self.after.clear()
        if self.glance is not None:
            self.glance = replace(self.glance, done=0, of=0, restored=None)

    def hold(self, command: c.Command) -> bool:
        """True where `command` needs the device at the step on show, and it is not there yet: it waits for that."""
        if self.glance is None:
            return False
        if self.glance.missing:
            self._step_over(command)
            return True
        waiting = [*self.after, command]
        if self._going is None:
            self.seek(self.glance.step)
        if self._going is None:
            # It was near, and is there now; or it was given up for something else, and the command with it.
            return self.glance is not None
        self.after = waiting
        return True

    def advance(self) -> None:
        """A piece of the way, on which no breakpoint stops."""
        with self.engine.breakpoints.set_aside():
            self._advance()

    def _advance(self) -> None:
        going, engine = self._going, self.engine
        if going is None:
            return
        cursor = engine.stepper.cursor
        if not going.off:
            going.off = True
            engine.set_off(going.way, self._restored)
        elif cursor.finished_steps < going.way.to:
            self._run()
        elif not self._arrived(going, cursor):
            if cursor.at_end:
                engine.begin()
            else:
                engine.step_dispatch()
        else:
            self._going = self.glance = None
            if going.dispatch is not None:
                self._tell_no_dispatch(going.step, going.dispatch, cursor.count)
            engine.tell_again(self._found)
            return
        if self.glance is not None:
            done = max(engine.stepper.cursor.finished_steps - going.way.start, 0) if going.off else 0
            self.glance = replace(self.glance, done=min(done, self.glance.of), restored=None)

    def _arrived(self, going: _Going, cursor: Cursor) -> bool:
        """True where the steps have been run and the dispatches too: all of the step where it has fewer than asked for.

        Steps differ in how many they have (params may sit a step out), so that only the step itself knows.
        """
        if going.dispatch is None:
            return True
        return cursor.step == going.step and (cursor.dispatch == going.dispatch or cursor.at_end)

    def _tell_no_dispatch(self, step: int, dispatch: int, count: int) -> None:
        if dispatch > count:
            self._say(
                "info",
                f"Step {step:,} has dispatches 1 to {count}, and no dispatch {dispatch:,}: this is the end of the "
                "step.",
            )

    def _restored(self, share: float) -> None:
        """So much of a state is on the device."""
        if self.glance is not None and self.recorded is not None:
            self.glance = replace(self.glance, restored=share)
            # Only what was recorded can be shown where the device holds parts of two states.
            if self._look_up():
                raise GivenUpError

    def _missing(self, step: int, dispatch: int | None, way: Way | None) -> str | None:
        recorded = self.engine.recorded
        if recorded is not None and (dispatch is not None or way is None) and step in recorded.steps:
            missing = recorded.source.missing(step)
            if missing:
                return missing
        if way is not None:
            return None
        if recorded is None:
            return (
                f"Step {step:,} cannot be gone back to: the form of the step has changed since, and memory does not "
                "reach that far. Start with a larger --undo-mb to keep more."
            )
        return f"Step {step:,} cannot be rebuilt: no state was captured from which captured gradients lead up to it."

    def _settles(self) -> bool:
        """True where setting off is put off for a moment, since it takes long."""
        going = self._going
        if going is None or going.off or going.way.state is None:
            return False
        return self.engine.stepper.layout.elements > 1 << 22

    def _stop(self) -> None:
        self._going = self.playing = None
        self.after.clear()

    def _step_over(self, command: c.Command) -> None:
        """What moves by whole steps goes from one recorded step to another; nothing else can be done there."""
        assert self.glance is not None
        step = self.glance.step
        if isinstance(command, c.StepIteration):
            self.seek(step + 1)
        elif isinstance(command, c.UndoIteration):
            self.seek(step - 1)
        elif isinstance(command, c.Run):
            self.play(c.Play(30.0))
        else:
            self._say("info", self.glance.missing or "")

    # --- playing

    def play(self, command: c.Play) -> None:
        """Play from the step on show on, or from the start of the loop where it is outside."""
        if not command.steps_per_second > 0:
            raise UsageError("Steps are played at a speed above 0.")
        first, last = command.first, command.last
        if (first is None) != (last is None) or (first is not None and last is not None and first > last):
            raise UsageError("A loop goes from a first step to a last one that does not lie before it.")
        self._stop()
        self.playing = Playing(command.steps_per_second, first, last)
        recorded = self.recorded
        ended = first is None and recorded is not None and self.shown >= recorded.steps.stop - 1
        if ended and recorded is not None:
            self._show(recorded.steps.start)
        elif first is not None and last is not None and not first <= self.shown <= last:
            self._show(first)
        self._played_from, self._played = (time.perf_counter(), self.shown), 0

    def pause(self) -> None:
        """Stop playing, and rebuild the step on show."""
        was, self.playing = self.playing, None
        if self.busy and self.recorded is None:
            self.cancel()
        if was is not None and self.glance is not None and not self.glance.missing:
            self.seek(self.glance.step)

    def play_on(self) -> bool:
        """Show the step that is due, if one is; False where there is none left."""
        playing, now = self.playing, time.perf_counter()
        if playing is None:
            return False
        due = int((now - self._played_from[0]) * playing.steps_per_second) - self._played
        if due < 1:
            return True
        recorded = self.recorded
        # A run that is too slow for the speed does not have to catch up.
        steps = due if recorded is not None else 1
        self._played += due
        target = self.shown + steps
        if playing.first is not None and playing.last is not None and target > playing.last:
            target = playing.first
        elif recorded is not None and target >= recorded.steps.stop - 1:
            self._show(recorded.steps.stop - 1)
            return recorded.session.state == "recording"
        self._show(target)
        return True

    def _show(self, step: int) -> None:
        """Show a step: with its buffers where these come in time, otherwise as recorded."""
        recorded, playing = self.recorded, self.playing
        if recorded is None:
            way = self.engine.way_to(step)
            if way is None:
                raise EndOfSourceError(f"Step {step:,} cannot be reached.")
            self._go_at_once(way)
            return
        way = self.engine.way_to(step)
        rate = playing.steps_per_second if playing is not None else 1.0
        known = self.step_s > 0 or self.engine.stepper.layout.elements < SMALL_ELEMENTS
        if way is not None and known and way.cost * self.step_s < PLAYED_SHARE / rate:
            self._go_at_once(way)
        else:
            self.glance = Glance(step, recorded.source.missing(step) if way is None else None)

    def _go_at_once(self, way: Way) -> None:
        engine = self.engine
        # Steps that are new are run, and breakpoints stop there; the others are only looked at again.
        new = engine.recorded is None and way.state is None and not way.rewinds
        with nullcontext() if new else engine.breakpoints.set_aside():
            engine.set_off(way)
            while engine.stepper.cursor.finished_steps < way.to:
                self._run()
                if engine.breakpoints.stop is not None:
                    break
        self.glance = None

    def _run(self) -> None:
        started = time.perf_counter()
        self._run_step()
        self.step_s = time.perf_counter() - started

    # --- following

    def follow(self, on: bool) -> None:
        """Show each new step as it comes, or stay; UsageError where nothing is written any longer."""
        recorded = self.engine.recorded
        if on and (recorded is None or recorded.session.state != "recording"):
            raise UsageError("Nothing is being recorded there any longer: there is nothing to follow.")
        if on and not self.engine.course.as_recorded:
            # Its own steps are on show, of which those that are written now are no continuation.
            since = self.engine.course.own_from
            raise UsageError(
                f"This run goes otherwise than recorded from step {since:,} on: open the recording again to follow it."
            )
        was, self.following = self.following, on
        if on and recorded is not None:
            self._stop()
            self._to_newest(recorded)
        elif was and self.glance is not None and not self.glance.missing:
            self.seek(self.glance.step)

    def poll(self) -> bool:
        """Take in what was written since; True where there is anything new."""
        recorded = self.engine.recorded
        if recorded is None or not self._watching.look(recorded):
            return False
        if self.following:
            if self.engine.course.as_recorded:
                self._to_newest(recorded)
            if recorded.session.state != "recording":
                self.follow(False)
        return True

    def _to_newest(self, recorded: RecordedRun) -> None:
        last = recorded.steps.stop - 1
        if last in recorded.steps and self.shown != last:
            way = self.engine.way_to(last)
            self.glance = Glance(last, recorded.source.missing(last) if way is None else None)
