"""A run taken back, and to any step: through memory, by running, or from a state that was kept or captured."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from inspector.runtime.changing import Changing
from inspector.runtime.judging import Judging
from inspector.runtime.placing import Placing
from inspector.runtime.run_diagnosis import RunDiagnosis
from inspector.runtime.run_state import MAX_FINDINGS, RunState
from inspector.runtime.ways import Way
from inspector.stepping import State


class Returning:
    """Puts `run` elsewhere. `moved` is called once it stands there."""

    def __init__(
        self,
        run: RunState,
        placing: Placing,
        changing: Changing,
        diagnosis: RunDiagnosis,
        judging: Judging,
        moved: Callable[[], None],
    ) -> None:
        self._run = run
        self._placing = placing
        self._changing = changing
        self._diagnosis = diagnosis
        self._judging = judging
        self._moved = moved

    # --- where ways lead

    def way_to(self, to: int) -> Way | None:
        """The shortest way to the end of step `to`, None where none leads there."""
        run = self._run
        cursor, here = run.stepper.cursor, run.stepper.cursor.finished_steps
        ways: list[Way] = []
        if not run.nowhere:
            if cursor.at_end and to == here:
                return Way(here, to)
            oldest = run.stepper.undo_info.oldest_step
            if to <= here and oldest is not None and oldest <= to:
                ways.append(Way(to, to, rewinds=True))
            if to > here and self._leads(here, to):
                ways.append(Way(here, to))
        ways += self.ways_from_states(to)
        return min(ways, key=lambda way: way.cost, default=None)

    def ways_from_states(self, to: int) -> Iterator[Way]:
        """Ways to the end of step `to` from states that are kept, were captured, or that it began with."""
        run, kept = self._run, self._run.checkpoints.kept
        own = kept.nearest(to)
        if own is not None and own >= run.form_since - 1 and self._leads(own, to):
            yield Way(own, to, state=partial(kept.at, own))
        if run.recorded is not None:
            # What was captured later is of a run that went otherwise.
            captured = run.recorded.nearest_state(
                to if run.course.as_recorded else min(to, run.course.own_from - 1)
            )
            if captured is not None and self._leads(captured, to):
                yield Way(captured, to, state=partial(run.recorded.state, captured))
        elif run.form_since - 1 <= run.began_at <= to:
            yield Way(run.began_at, to, state=run.source.initial_state)

    def _leads(self, start: int, to: int) -> bool:
        if self._run.recorded is not None:
            return self._run.recorded.leads(start, to)
        last = self._run.source.last_step
        return last is None or to <= last

    # --- going there

    def set_off(self, way: Way, progress: Callable[[float], None]) -> None:
        """Go to where `way` begins; its steps are to be run. What `progress` raises leaves the run nowhere."""
        if way.rewinds:
            self.rewind_to(way.start)
        elif way.state is not None:
            self._restore(way.state(), progress)
        if way.jumps:
            self._run.course.rerun_to = way.to

    def undo_dispatch(self) -> bool:
        """Take the last dispatch back; False where memory does not reach."""
        return self._stands_elsewhere(self._run.stepper.undo_dispatch())

    def undo_iteration(self) -> bool:
        """Go to the start of the step, or of the one before; False where memory does not reach."""
        return self._stands_elsewhere(self._run.stepper.rewind_step())

    def rewind_to(self, step: int) -> bool:
        """Go back to the end of step `step`; False where memory does not reach."""
        return self._stands_elsewhere(self._run.stepper.rewind_to(step))

    def _stands_elsewhere(self, went: bool) -> bool:
        if went:
            self.stands_elsewhere()
        return went

    def _restore(self, state: State, progress: Callable[[float], None]) -> None:
        run, recorded, finished = self._run, self._run.recorded, state.finished_steps
        run.nowhere = True
        if recorded is None or run.course.is_own(finished):
            run.stepper.restore(state, progress)
        else:
            step = max(finished, recorded.steps.start)
            layout, laid = run.course.layout_at(step), recorded.source.laid_out_for(finished)
            if self._placing.fits(laid, layout, run.stepper.layout):
                run.stepper.restore(state, progress)
            else:
                self._changing.place(laid, state, layout)
            self._changing.take_form(run.course.form_at(step, laid), layout)
        run.nowhere = False
        self.stands_elsewhere()

    # --- what is known then

    def stands_elsewhere(self) -> None:
        """The stepper stands elsewhere now: what was known of later steps is so no longer, unless it was recorded."""
        run, cursor = self._run, self._run.stepper.cursor
        finished, course, recorded = cursor.finished_steps, self._run.course, self._run.recorded
        self._judging.moved_back()
        self._diagnosis.moved_back()
        run.eight_bit.moved_back(run.stepper)
        run.decay.moved_back(run.stepper)
        course.rerun_to = 0
        run.marks.moved_back(finished)
        run.checkpoints.forget_after(finished)
        run.log.forget_after(cursor.step)
        if not course.as_recorded:
            run.own_history.truncate(max(finished, course.own_from - 1))
            if run.plotting is not None:
                run.plotting.truncate(max(finished, course.own_from - 1))
            last = max(cursor.step, course.own_from - 1)
            run.findings = deque((f for f in run.findings if f.step <= last), maxlen=MAX_FINDINGS)
        run.log.stand_at(cursor, run.stepper.plan, recorded, own=course.is_own(cursor.step))
        run.breakpoints.moved_back(cursor)
        self._moved()
