"""What the form of the step may be changed to."""

from __future__ import annotations

import time
from collections.abc import Iterator

from inspector.plan import Plan
from inspector.variants import Choice, all_choices

CHOICES_S = 0.02
"""So long at a time it is looked for."""


class Choices:
    """The choices of a plan, worked out anew for each plan while nothing else is to do."""

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._looking: Iterator[Choice] | None = None
        self._found: tuple[Choice, ...] = ()

    @property
    def complete(self) -> bool:
        """False while there is something left to look for."""
        return self._looking is None

    def of(self, plan: Plan) -> tuple[Choice, ...]:
        """What was found for this plan so far."""
        if plan is not self._plan:
            self._plan, self._looking, self._found = plan, all_choices(plan), ()
        return self._found

    def look(self) -> None:
        """Go on for a moment, so that commands need not wait for all of it."""
        looking, self._looking = self._looking, None
        until = time.perf_counter() + CHOICES_S
        for choice in looking or ():
            self._found = (*self._found, choice)
            if time.perf_counter() > until:
                self._looking = looking
                return
