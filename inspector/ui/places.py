"""Places visited in a run, and the way back and forward through them. No Qt."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

MOST_PLACES = 200
SAME_MOVE_S = 1.0
"""Moves of one kind that follow each other so fast are one: dragging along the timeline, an arrow key held down."""
AT_ONCE_S = 0.05
"""Moves of any kind that follow each other so fast are one: a click on a finding goes to its step and element."""

Part = Literal["moment", "selection", "view"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a person is: the step and dispatch on show, what is selected, and the view in front.

    `index` is flat, None for no element; `param` "" for none; `view` "" for one that nobody asked for.
    """

    step: int = 0
    dispatch: int = 0
    param: str = ""
    index: int | None = None
    view: str = ""

    def parts_unlike(self, other: Place) -> frozenset[Part]:
        """In which respects this is another place."""
        unlike: dict[Part, bool] = {
            "moment": (self.step, self.dispatch) != (other.step, other.dispatch),
            "selection": (self.param, self.index) != (other.param, other.index),
            "view": self.view != other.view,
        }
        return frozenset(part for part, differs in unlike.items() if differs)


@dataclass(frozen=True, slots=True)
class Way:
    """Where to go, and in which respects: what a move left as it was is not touched when it is taken back."""

    to: Place
    parts: frozenset[Part]


@dataclass(slots=True)
class _Move:
    before: Place
    after: Place
    kind: str
    at: float


@dataclass
class Places:
    """What was left is remembered when something else is gone to; running on from a place does not leave it."""

    clock: Callable[[], float] = time.monotonic
    here: Place = field(default_factory=Place)
    _done: list[_Move] = field(default_factory=list)
    _undone: list[_Move] = field(default_factory=list)
    _open: bool = False
    """True while the last move may still be added to."""

    @property
    def behind(self) -> int:
        """How many moves can be taken back."""
        return len(self._done)

    @property
    def ahead(self) -> int:
        """How many moves can be made again."""
        return len(self._undone)

    def update(self, here: Place) -> None:
        """The place has changed by itself, as where a run goes on."""
        self.here = here

    def go(self, to: Place, kind: str) -> None:
        """A person goes to `to`; `kind` says how, so that a stretch of like moves is one."""
        if to == self.here:
            return
        now = self.clock()
        last = self._done[-1] if self._done and self._open else None
        waited = now - last.at if last is not None else float("inf")
        if last is not None and waited <= (SAME_MOVE_S if last.kind == kind else AT_ONCE_S):
            last.after, last.kind, last.at = to, kind, now
        else:
            self._done.append(_Move(self.here, to, kind, now))
            del self._done[:-MOST_PLACES]
        self._undone.clear()
        self._open, self.here = True, to

    def back(self) -> Way | None:
        """The way to where one was before the last move; None where there was none."""
        return self._take(self._done, self._undone, back=True)

    def forward(self) -> Way | None:
        """The way to where one was before going back."""
        return self._take(self._undone, self._done, back=False)

    def forget(self) -> None:
        """Another run: none of the places is in it."""
        self._done.clear()
        self._undone.clear()
        self.here, self._open = Place(), False

    def _take(self, taken: list[_Move], given: list[_Move], *, back: bool) -> Way | None:
        self._open = False
        while taken:
            move = taken.pop()
            given.append(move)
            start, to = (move.after, move.before) if back else (move.before, move.after)
            # Where the run has come there by itself, the move leads nowhere.
            if parts := start.parts_unlike(to) & self.here.parts_unlike(to):
                return Way(to, parts)
        return None
