"""Which state belongs to which param: by name where there are names, otherwise by position, held against the shapes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inspector.errors import UsageError
from inspector.sources.checkpoint.flat_state import parts_of
from inspector.sources.checkpoint.optimizer_state import Key, SavedOptimizer
from inspector.sources.checkpoint.order import in_usual_order
from inspector.sources.checkpoint.weights import clean

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
MAX_TRIES = 200_000
"""Places that are tried for params of several groups before a file is given up."""


@dataclass(frozen=True, slots=True)
class Join:
    """The key of the state of each param by name; params that are not there were in no group of the optimizer."""

    keys: Mapping[str, Key]
    remarks: tuple[str, ...] = ()


def join(
    shapes: Shapes, optimizer: SavedOptimizer, *, ordered: bool, file: str, listed: bool = False
) -> Join:
    """`shapes` has the weights by name, in the order of the model where `ordered`, `listed` by somebody.

    UsageError, naming params and both shapes, where they do not fit.
    """
    names = saved_names(optimizer)
    if names is not None:
        return _by_name(shapes, optimizer, names, file)
    if ordered:
        keys = _by_place(shapes, optimizer, file)
        why = "states are kept by position" + (", taken in the order of the list of names" if listed else "")
    else:
        keys = _by_shape(shapes, optimizer, file)
        why = "states are kept by position, and the file of the weights does not keep the order of the model"
    return Join(keys, _unverified(shapes, optimizer, keys, why, listed=listed))


def saved_names(optimizer: SavedOptimizer) -> dict[Key, str] | None:
    """The name of each key, where names were saved for all."""
    if optimizer.named:
        return {key: str(key) for key in optimizer.keys}
    if not optimizer.groups or any(group.names is None for group in optimizer.groups):
        return None
    return {key: name for g in optimizer.groups for key, name in zip(g.keys, g.names or (), strict=True)}


def _by_name(shapes: Shapes, optimizer: SavedOptimizer, names: Mapping[Key, str], file: str) -> Join:
    exact = {clean(name): name for name in shapes}
    by_parts: dict[tuple[str, ...], str | None] = {}
    for name in shapes:
        parts = parts_of(name)
        # Shorter ones stand for a param as long as no other ends alike.
        for i in range(len(parts)):
            by_parts[parts[i:]] = None if parts[i:] in by_parts else name
    keys: dict[str, Key] = {}
    for key, saved in names.items():
        parts = parts_of(clean(saved))
        found = exact.get(clean(saved)) or exact.get(clean(saved).removeprefix("module."))
        while found is None and parts:
            found = by_parts.get(parts)
            parts = parts[1:] if len(parts) > 2 else ()
        shape = optimizer.states[key].shape if key in optimizer.states else None
        if found is None:
            if shape is None:
                continue
            raise UsageError(
                f"{file}: the optimizer has a state of {saved!r}, of the shape {list(shape)}, and the weights have no "
                "such param: give the weights that it was saved with."
            )
        if found in keys:
            raise UsageError(
                f"{file}: both {keys[found]!r} and {saved!r} of the optimizer would be the state of {found!r}."
            )
        if shape is not None and not _fits(shape, shapes[found]):
            raise UsageError(
                f"{file}: the state of {saved!r} has the shape {list(shape)}, its weights {found!r} have "
                f"{list(shapes[found])}."
            )
        keys[found] = key
    return Join(keys)


def _fits(state: Shape | None, weight: Shape) -> bool:
    """True for equal shapes; a scalar may be kept with one element, and what was not kept fits anything."""
    return state is None or state == weight or (state in ((), (1,)) and weight in ((), (1,)))


def _state_shapes(optimizer: SavedOptimizer) -> dict[Key, Shape | None]:
    return {k: optimizer.states[k].shape if k in optimizer.states else None for k in optimizer.keys}


def _by_place(shapes: Shapes, optimizer: SavedOptimizer, file: str) -> dict[str, Key]:
    wanted, keys, names = _state_shapes(optimizer), optimizer.keys, list(shapes)
    if len(keys) > len(names):
        raise _too_few(shapes, optimizer, file)
    if len(keys) == len(names) and all(_fits(wanted[k], shapes[n]) for k, n in zip(keys, names, strict=True)):
        return dict(zip(names, keys, strict=True))
    groups = [[(key, wanted[key]) for key in group.keys] for group in optimizer.groups]
    found = _merged(shapes, groups, len(names) - len(keys))
    if found is None:
        raise _no_place(shapes, wanted, keys, file)
    return found


def _merged(
    shapes: Shapes, groups: Sequence[Sequence[tuple[Key, Shape | None]]], frozen: int
) -> dict[str, Key] | None:
    """Params in the order of the model to the next place of a group that they fit, `frozen` of them to none.

    The usual split is tried first: matrices to one group and vectors to another, then the group of the param before.
    """
    names = list(shapes)
    sizes = [len(group) for group in groups]
    taken: list[int] = []
    at = [0] * len(groups)
    choices: list[list[int]] = []
    dead: set[tuple[int, ...]] = set()
    last = _matrix_group(groups)

    def options(i: int) -> list[int]:
        shape = shapes[names[i]]
        fitting = [g for g, group in enumerate(groups) if at[g] < sizes[g] and _fits(group[at[g]][1], shape)]
        matrix = len(shape) >= 2
        before = taken[-1] if taken else -1
        fitting.sort(key=lambda g: (last.get(g) is not None and last[g] != matrix, g != before, g))
        skipped = sum(g < 0 for g in taken)
        return fitting + ([-1] if skipped < frozen else [])

    tries = 0
    choices.append(options(0) if names else [])
    while choices:
        if len(taken) == len(names):
            break
        tries += 1
        if tries > MAX_TRIES:
            return None
        if not choices[-1]:
            choices.pop()
            if taken:
                dead.add((len(taken), *at))
                if (g := taken.pop()) >= 0:
                    at[g] -= 1
            continue
        g = choices[-1].pop(0)
        taken.append(g)
        if g >= 0:
            at[g] += 1
        if (len(taken), *at) in dead:
            taken.pop()
            if g >= 0:
                at[g] -= 1
            continue
        choices.append(options(len(taken)) if len(taken) < len(names) else [])
    if len(taken) < len(names) or at != sizes:
        return None
    places = [iter(group) for group in groups]
    return {name: next(places[g])[0] for name, g in zip(names, taken, strict=True) if g >= 0}


def _matrix_group(groups: Sequence[Sequence[tuple[Key, Shape | None]]]) -> dict[int, bool | None]:
    """Of each group whether its known shapes are all matrices (True) or all not (False)."""
    found: dict[int, bool | None] = {}
    for g, group in enumerate(groups):
        kinds = {len(shape) >= 2 for _, shape in group if shape is not None}
        found[g] = kinds.pop() if len(kinds) == 1 else None
    return found


def _by_shape(shapes: Shapes, optimizer: SavedOptimizer, file: str) -> dict[str, Key]:
    """States of a shape to the params of that shape, in the usual order of modules."""
    wanted = _state_shapes(optimizer)
    if len(wanted) > len(shapes):
        raise _too_few(shapes, optimizer, file)
    free: defaultdict[Shape, list[str]] = defaultdict(list)
    usual = in_usual_order(shapes)
    for name in usual:
        free[_scalar_as_one(shapes[name])].append(name)
    found: dict[str, Key] = {}
    for key, shape in wanted.items():
        if shape is None:
            continue
        if not free[_scalar_as_one(shape)]:
            raise _no_place(shapes, wanted, tuple(wanted), file)
        found[free[_scalar_as_one(shape)].pop(0)] = key
    unknown = [key for key, shape in wanted.items() if shape is None]
    if len(unknown) + len(found) == len(shapes):
        left = [name for name in usual if name not in found]
        found |= dict(zip(left, unknown, strict=True))
    return {name: found[name] for name in shapes if name in found}


def _scalar_as_one(shape: Shape) -> Shape:
    return () if shape == (1,) else shape


def _unverified(
    shapes: Shapes, optimizer: SavedOptimizer, keys: Mapping[str, Key], why: str, *, listed: bool
) -> tuple[str, ...]:
    """A warning where another order would fit as well: params without a state may take a place too."""
    stated = [name for name, key in keys.items() if key in optimizer.states]
    counts = Counter(_scalar_as_one(shape) for shape in shapes.values())
    alike = [name for name in stated if counts[_scalar_as_one(shapes[name])] > 1]
    if not alike:
        return ()
    same = [name for name in shapes if _scalar_as_one(shapes[name]) == _scalar_as_one(shapes[alike[0]])]
    otherwise = "" if listed else ", or name a text file that lists the params in their order, one a line"
    return (
        f"The order of the params is not verified: {why}, and {same[0]} and {same[1]} among {len(alike):,} params "
        f"share their shape with another ({list(shapes[same[0]])}). Save the optimizer with names "
        f"(model.named_parameters()){otherwise}.",
    )


def _too_few(shapes: Shapes, optimizer: SavedOptimizer, file: str) -> UsageError:
    wanted, counts = _state_shapes(optimizer), Counter(_scalar_as_one(s) for s in shapes.values())
    for key, shape in wanted.items():
        if shape is not None:
            counts[_scalar_as_one(shape)] -= 1
            if counts[_scalar_as_one(shape)] < 0:
                return UsageError(
                    f"{file}: the optimizer keeps state of {len(wanted):,} params, the weights have {len(shapes):,}; "
                    f"none is left for its state {key!r} of the shape {list(shape)}. Give the weights it was saved "
                    "with."
                )
    return UsageError(
        f"{file}: the optimizer keeps state of {len(wanted):,} params, the weights have {len(shapes):,}: give the "
        "weights that it was saved with."
    )


def _no_place(
    shapes: Shapes, wanted: Mapping[Key, Shape | None], keys: Sequence[Key], file: str
) -> UsageError:
    """Where the first state does not fit, and where it would."""
    pairs = list(zip(keys, shapes.items(), strict=False))
    for key, (name, shape) in pairs:
        state = wanted[key]
        if state is None or _fits(state, shape):
            continue
        other = next((n for n, s in shapes.items() if n != name and _fits(state, s)), None)
        swapped = (
            f"It would fit {other!r}, which has {list(shapes[other])}: the params were in another order."
            if other is not None
            else "No param has that shape."
        )
        return UsageError(
            f"{file}: state {key!r} of the optimizer has the shape {list(state)}, and the param in its place, "
            f"{name!r}, has {list(shape)}. {swapped} Give the weights that the optimizer was saved with, in their "
            "order."
        )
    counts = Counter(_scalar_as_one(shape) for shape in shapes.values())
    for key in keys:
        state = wanted[key]
        if state is not None:
            counts[_scalar_as_one(state)] -= 1
            if counts[_scalar_as_one(state)] < 0:
                return UsageError(
                    f"{file}: state {key!r} of the optimizer has the shape {list(state)}, and no param of that shape "
                    "is left for it. Give the weights that the optimizer was saved with."
                )
    return UsageError(
        f"{file}: the states of the optimizer fit the params in no order: give the weights it was saved with."
    )
