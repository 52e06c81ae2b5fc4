"""What a run is on its way to: a dispatch, the next finding, or a step that is being looked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from inspector.diagnosis.findings import Finding
from inspector.diagnosis.watchpoints import Condition
from inspector.errors import UsageError
from inspector.runtime import commands as c
from inspector.runtime.breakpoints import Breakpoints, before_updates
from inspector.runtime.engine import Engine
from inspector.runtime.searching import LookBack, NextFinding, Search
from inspector.runtime.snapshots import Searching
from inspector.runtime.travel import Travel
from inspector.stepping import Cursor

SEARCH_S = 0.05
"""So long at a time a step is looked for."""
ANY_FINDING = Condition(rule="*")
BESIDE_SEARCH = (*c.BESIDE_COMPARISON, c.SetBookmark, c.MeasureCopy, c.SaveReport)
"""These leave a step being looked for; any other command ends that."""

Command = c.RunToDispatch | c.RunToFinding | c.RunBack
Say = Callable[[Literal["info", "warning", "error"], str], None]


class RunTo:
    """Where the run of `breakpoints` is to stop beside them. One thing at a time."""

    def __init__(self, breakpoints: Breakpoints, say: Say) -> None:
        self._breakpoints = breakpoints
        self._say = say
        self.search: Search | None = None
        self.place: Cursor | None = None
        """Where a run within a step is to stand."""
        self.found: Finding | None = None
        """What was gone to last."""

    @property
    def picture(self) -> Searching | None:
        """The step that is looked for, None for none."""
        return self.search.picture if self.search is not None else None

    def start(self, command: Command, engine: Engine, travel: Travel) -> bool:
        """Set out for it; True where the run has to go on for that. UsageError for what is not there."""
        self.found = None
        if isinstance(command, c.RunToDispatch):
            cursor = engine.stepper.cursor
            if not 0 <= command.dispatch < cursor.count:
                raise UsageError(f"A step has dispatches 1 to {cursor.count}, and no {command.dispatch + 1}.")
            later = cursor.at_end or cursor.dispatch >= command.dispatch
            self.place = Cursor(cursor.step + later, command.dispatch, cursor.count)
            return True
        if isinstance(command, c.RunBack):
            self.search = LookBack(engine, command.condition, _last_judged(command.condition, engine, travel))
            return False
        if travel.recorded is not None:
            self.search = NextFinding(travel.recorded, travel.cursor)
            return False
        self._breakpoints.aim(ANY_FINDING, told=tuple(engine.findings))
        return True

    def stop(self) -> None:
        """The run stands still: it is on its way to nothing."""
        self.place = None
        self._breakpoints.aim(None)

    def given(self, command: c.Command) -> None:
        """A command is about to be carried out, which ends the search for a step unless it leaves that alone."""
        if self.search is not None and not isinstance(command, BESIDE_SEARCH):
            search = self.end_search()
            if isinstance(command, (c.CancelSeek, c.CancelWork, c.Pause)):
                self._say("info", f"Looking for {search.words} was ended at step {search.at:,}.")

    def look_on(self) -> Search | None:
        """A piece of the search; itself once it has come to its end. What goes wrong ends it."""
        assert self.search is not None
        try:
            done = self.search.advance(SEARCH_S)
        except Exception:
            self.end_search()
            raise
        if not done:
            return None
        ended = self.end_search()
        self.found = ended.found if isinstance(ended, NextFinding) else None
        return ended

    def end_search(self) -> Search:
        """Look for nothing any more."""
        search, self.search = self.search, None
        assert search is not None
        search.close()
        return search


def _last_judged(condition: Condition, engine: Engine, travel: Travel) -> int:
    """The last step in which a condition may hold by now: of w, m and v one that has left something behind."""
    cursor = travel.cursor
    unchanged = travel.glance is None and before_updates(engine.stepper.plan, cursor)
    return cursor.step - (condition.of_state and unchanged)
