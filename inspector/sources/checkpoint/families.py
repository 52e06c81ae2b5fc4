"""Which groups of a saved optimizer are Adam's: a file may hold another optimizer beside it, over other params."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from inspector.sources.checkpoint.optimizer_state import Key, SavedGroup, SavedOptimizer, SavedState


@dataclass(frozen=True, slots=True)
class AdamsPart:
    """The optimizer without the groups of others, the keys of its params by name, and the params that others step."""

    optimizer: SavedOptimizer
    keys: Mapping[str, Key]
    others: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def adams_part(optimizer: SavedOptimizer, keys: Mapping[str, Key]) -> AdamsPart:
    """All of it where no group is Adam's: then there is nothing to tell the others from."""
    adams = [_is_adams(group, optimizer.states) for group in optimizer.groups]
    if all(adams) or not any(adams):
        return AdamsPart(optimizer, keys)
    theirs = {
        key for group, mine in zip(optimizer.groups, adams, strict=True) if not mine for key in group.keys
    }
    others = tuple(name for name, key in keys.items() if key in theirs)
    states = {key: state for key, state in optimizer.states.items() if key not in theirs}
    groups = tuple(group for group, mine in zip(optimizer.groups, adams, strict=True) if mine)
    mine = {name: key for name, key in keys.items() if key not in theirs}
    if not others:
        return AdamsPart(replace(optimizer, groups=groups, states=states), mine)
    kept = sorted({name for key in theirs & optimizer.states.keys() for name in optimizer.states[key].more})
    why = f"it keeps {', '.join(kept)}" if kept else "it has no betas"
    are = "is" if len(others) == 1 else "are"
    remark = (
        f"{_listed(others)} {are} stepped by another optimizer of the file, which is none "
        f"of the Adam family ({why}): left as they are, and a step is that of the other params alone."
    )
    return AdamsPart(
        replace(optimizer, groups=groups, states=states),
        mine,
        others,
        (remark,),
    )


def _is_adams(group: SavedGroup, states: Mapping[Key, SavedState]) -> bool:
    """By what it kept of its params; where it kept nothing yet, by its settings. A group that says nothing may be."""
    kept = [states[key] for key in group.keys if key in states]
    kept = [state for state in kept if state.m is not None or state.v is not None or state.more]
    if kept:
        return any(state.m is not None and state.v is not None for state in kept)
    settings = {name for name, value in group.settings.items() if value is not None}
    return not settings or "betas" in settings or "beta1" in settings


MOST_NAMED = 3


def _listed(names: tuple[str, ...]) -> str:
    if len(names) == 1:
        return names[0]
    if len(names) <= MOST_NAMED:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED:,} more params"
