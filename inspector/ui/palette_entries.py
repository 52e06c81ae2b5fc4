"""What the palette lists: actions with their keys, the likeliest or latest first. No Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inspector.ui.fuzzy import SCATTERED, Texts

MOST_RECENT = 20
BY_GROUP = 4
"""What it costs to be found by the name of its group as well."""
BY_HELP = 2 * SCATTERED
"""What a match in the explanation alone costs beside one in the name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that can be done. `reason` says why it cannot be done now, "" where it can."""

    name: str
    group: str
    text: str
    keys: tuple[str, ...] = ()
    help: str = ""
    reason: str = ""
    checked: bool | None = None
    """None where it is nothing that can be on or off."""

    @property
    def title(self) -> str:
        """Its name behind that of its group."""
        return f"{self.group}: {self.text}" if self.group else self.text


def ranked(entries: Sequence[Entry], query: str, recent: Sequence[str] = ()) -> list[Entry]:
    """The entries that hold `query`, the likeliest first; among equals those done last, then in their order.

    `recent` are names, the latest first; without a query they come before all others.
    """
    used = {name: i for i, name in enumerate(recent)}
    # The name of its group may help to find an action, but its own name is what it is called.
    costs = {i: cost + BY_GROUP for i, cost in Texts(entry.title for entry in entries).costs(query).items()}
    for i, cost in Texts(entry.text for entry in entries).costs(query).items():
        costs[i] = min(cost, costs.get(i, cost))
    words = query.lower().split()
    for i, entry in enumerate(entries):
        help_text = entry.help.lower()
        if words and i not in costs and all(word in help_text for word in words):
            costs[i] = BY_HELP
    order = sorted(costs, key=lambda i: (costs[i], used.get(entries[i].name, len(used)), i))
    return [entries[i] for i in order]


def with_latest(recent: Sequence[str], name: str) -> tuple[str, ...]:
    """`recent` after `name` was done."""
    return (name, *(each for each in recent if each != name))[:MOST_RECENT]
