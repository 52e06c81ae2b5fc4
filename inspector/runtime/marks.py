"""What was done at which step, as marks on the time axis: stops once each, changes that were undone not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inspector.runtime.snapshots import Mark

MAX_MARKS = 1000

Tell = Callable[[int, str], None]


@dataclass(slots=True)
class _Change:
    old: Any
    """What was there before the first change that holds from this step on."""
    mark: Mark
    told: bool = False


class Marks:
    """The marks of a run in the order made, the latest MAX_MARKS of them.

    Changes are told to a recording with the step that takes them: until then they may be undone.
    """

    def __init__(self) -> None:
        self._all: deque[Mark] = deque(maxlen=MAX_MARKS)
        self._changes: dict[tuple[int, str], _Change] = {}

    @property
    def all(self) -> tuple[Mark, ...]:
        """Every mark there is."""
        return tuple(self._all)

    def note(self, step: int, text: str) -> None:
        """Something that happened at `step`."""
        self._all.append(Mark(step, text))

    def stop(self, step: int, text: str) -> bool:
        """A breakpoint's stop; False where it has its mark, however often the run goes back before it."""
        mark = Mark(step, text, stop=True)
        if mark in self._all:
            return False
        self._all.append(mark)
        return True

    def change(self, step: int, what: str, old: Any, new: Any, words: Callable[[Any, Any], str]) -> None:
        """`what` holds as `new` from `step` on; `words` puts a change from one value to another in words.

        Changes of the same in one step are one change, and none where it comes to what was there.
        """
        key = step, what
        before = self._changes.get(key)
        if before is not None and not before.told:
            del self._changes[key]
            old = before.old
            if before.mark in self._all:
                self._all.remove(before.mark)
        if old == new:
            return
        mark = Mark(step, words(old, new))
        self._all.append(mark)
        self._changes[key] = _Change(old, mark)
        if len(self._changes) > MAX_MARKS:
            del self._changes[next(iter(self._changes))]

    def tell(self, step: int, tell: Tell) -> None:
        """Step `step` has run with what was changed for it: a recording gets what it was not told yet."""
        for (at, _), change in self._changes.items():
            if at == step and not change.told:
                change.told = True
                tell(at, change.mark.text)

    def moved_back(self, finished: int) -> None:
        """The run stands at the end of step `finished`: a recording keeps what holds from the next step on, no more."""
        for (at, _), change in self._changes.items():
            if at > finished + 1:
                change.told = False
