"""When a condition that holds stops a run: each time, once, or from its Nth hit on; as text behind the condition."""

from __future__ import annotations

import re
from dataclasses import dataclass

from inspector.diagnosis.watchpoints import Condition, parse_condition
from inspector.errors import UsageError

_OPTION = re.compile(r"(?P<rest>.*\S)\s*,\s*(?P<option>once|hit\s+(?P<hit>\S+))\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Stopping:
    """From which hit on a breakpoint stops the run, the first being 1, and whether it is disabled once it has."""

    once: bool = False
    hit: int = 1

    def __str__(self) -> str:
        """As it stands behind a condition; "" where it stops each time."""
        return (f", hit {self.hit}" if self.hit > 1 else "") + (", once" if self.once else "")

    @property
    def words(self) -> str:
        """When it stops, in few words."""
        if self.hit > 1:
            return f"at hit {self.hit:,}" if self.once else f"from hit {self.hit:,}"
        return "once" if self.once else "each time"


EACH_TIME = Stopping()


def parse_breakpoint(text: str) -> tuple[Condition, Stopping]:
    """A condition with `, once` or `, hit N` behind it, or neither; UsageError in one sentence where it is none."""
    rest, once, hit = text, False, 0
    while match := _OPTION.fullmatch(rest):
        rest = match["rest"]
        if match["hit"] is None:
            once = True
        elif hit:
            raise UsageError(f"{text.strip()!r} names two hits: write one, as in {rest}, hit {hit}.")
        elif match["hit"].isdecimal() and int(match["hit"]) > 0:
            hit = int(match["hit"])
        else:
            raise UsageError(
                f"{match['hit']!r} in {text.strip()!r} is no hit: write a whole number from 1 on."
            )
    return parse_condition(rest), Stopping(once, max(hit, 1))
