"""Moving the run that is open: on by dispatches and steps, back, to a step, and what it is on its way to."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from inspector.errors import UsageError
from inspector.progress import advanced, watched
from inspector.runtime.current_run import CurrentRun
from inspector.runtime.engine import Engine
from inspector.runtime.mailbox import Mailbox
from inspector.runtime.run_to import Command as RunToCommand
from inspector.runtime.travel import GivenUpError


class Moving:
    """Moves `run` by one call at a time. What waited in it for an arrival goes back into `mail`."""

    def __init__(self, run: CurrentRun, mail: Mailbox) -> None:
        self._run = run
        self._mail = mail

    # --- on

    def step_dispatch(self, engine: Engine) -> None:
        """Run one dispatch, and stand still."""
        self._run.pause()
        self._timed(engine.step_dispatch)

    def step_iteration(self, engine: Engine) -> None:
        """The rest of the step, a slow one by dispatches, so that closing need not wait for all of it."""
        if not self._run.pace.slow:
            with watched(None):
                self._timed(engine.step_iteration)
            return
        while not self._run.closing():
            cursor = engine.stepper.cursor
            # Ended here, it stands between two dispatches; within one, what follows the run would miss part of it.
            advanced(cursor.dispatch % cursor.count, cursor.count)
            with watched(None):
                self._timed(engine.step_dispatch)
            if engine.stepper.cursor.at_end or engine.breakpoints.stop is not None:
                return

    def advance(self) -> None:
        """One step of a run that goes on, or one dispatch of a slow one."""
        run, engine = self._run, self._run.engine
        assert engine is not None
        travel = run.on_the_way
        if travel.playing is not None:
            if not travel.play_on():
                run.pause()
            return
        cursor = engine.stepper.cursor
        if run.race.behind:
            run.race.catch_up()
            return
        if run.heading is not None and cursor.finished_steps >= run.heading.to:
            run.pause()
            return
        if run.to.place is not None:
            if cursor == run.to.place:
                run.pause()
            else:
                self._timed(partial(engine.step_towards, run.to.place))
            return
        started = time.perf_counter()
        if run.pace.slow:
            self._timed(engine.step_dispatch)
            run.pace.time_slow_step(engine)
        else:
            run.race.prepare()
            self._timed(engine.step_iteration)
            took = time.perf_counter() - started
            travel.step_s = took
            run.pace.step_s = took if engine.source.last_step is None else 0.0
        run.pace.count()
        if run.heading is not None and engine.stepper.cursor.finished_steps >= run.heading.to:
            run.pause()

    def _timed(self, act: Callable[[], None]) -> None:
        before = self._finished_steps
        act()
        self._run.viewer.moved()
        self._run.pace.ran(self._finished_steps - before)
        self._run.tell_stop()

    @property
    def _finished_steps(self) -> int:
        engine = self._run.engine
        return engine.stepper.cursor.finished_steps if engine else 0

    # --- back

    def undo_dispatch(self, engine: Engine) -> None:
        """Take the last dispatch back, where memory does not reach by going there."""
        self._run.pause()
        cursor = engine.stepper.cursor
        if engine.undo_dispatch():
            self._run.viewer.moved()
        elif cursor.dispatch:
            self.seek(engine, cursor.step, cursor.dispatch - 1)
        else:
            # From the start of a step this takes back its gradients and the last dispatch of the step before.
            self.seek(engine, cursor.step - 1, cursor.count - 1)

    def undo_iteration(self, engine: Engine) -> None:
        """To the start of the step, or of the one before, where memory does not reach by going there."""
        self._run.pause()
        cursor = engine.stepper.cursor
        if engine.undo_iteration():
            self._run.viewer.moved()
        else:
            self.seek(engine, cursor.step - (cursor.dispatch == 0), 0)

    # --- to a place

    def seek(self, engine: Engine, step: int, dispatch: int | None = None) -> None:
        """Go back, or to where a state leads; a run that only has to go on goes on as by Run."""
        run = self._run
        run.pause()
        travel = run.on_the_way
        now_at = engine.stepper.cursor.finished_steps
        if dispatch is None and step > now_at and travel.recorded is None:
            run.go_on(step)
            return
        if step < 0:
            raise UsageError("The run stands where it began: nothing lies before.")
        travel.seek(step, dispatch)
        if travel.busy and travel.recorded is None:
            # Nothing but the way there is on show: it runs, and can be paused.
            run.go_on(step, travel.way_start)
        run.viewer.moved()

    def travel_on(self) -> None:
        """A piece of the way to where a person wants to look; what waited for the arrival is carried out then."""
        run, travel = self._run, self._run.on_the_way
        if travel.wait_s():
            return
        try:
            travel.advance()
        except GivenUpError:
            travel.cancel()
        except Exception:
            travel.cancel()
            raise
        run.viewer.moved()
        if not travel.busy:
            if run.mode == "running" and not run.playing:
                run.mode, run.heading = "paused", None
            self._mail.put_first(travel.after)
            travel.after.clear()

    def run_to(self, engine: Engine, command: RunToCommand) -> None:
        """Set out for a dispatch, the next finding, or a step that is to be looked for."""
        self._run.pause()
        if self._run.to.start(command, engine, self._run.on_the_way):
            self._run.go_on()

    def search_on(self) -> None:
        """A piece of looking for a step; where it is found, the run sets off for it."""
        run = self._run
        found = run.to.look_on()
        if found is None:
            return
        if found.target is not None and run.engine is not None:
            self.seek(run.engine, found.target.step, found.target.dispatch)
        run.say("info", found.sentence)

    def poll(self) -> None:
        """See what another process has recorded since."""
        if self._run.on_the_way.poll():
            self._run.viewer.moved()
