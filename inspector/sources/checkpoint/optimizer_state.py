"""An optimizer's state as PyTorch's `state_dict()` gives it: entries by id or name, and the settings of its groups.

{"state": {id: {"step", "exp_avg", "exp_avg_sq", …}}, "param_groups": [{"lr", "betas", …, "params": [id, …]}]}. Ids are
positions in the order of the groups, in older versions addresses; in states for several processes names. The 8-bit
optimizers of bitsandbytes keep state1, state2 with absmax and qmap in the same places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inspector.errors import UsageError
from inspector.sources.checkpoint.eight_bit import CodedMoment, coded_moment
from inspector.tensor_tree import StoredTensor, Tree, children, number_of

M_NAMES = ("exp_avg", "state1")
V_NAMES = ("exp_avg_sq", "state2")
STEP_NAMES = ("step", "steps", "t")
QUANT_STATE = "__bnb_optimizer_quant_state__"
MAX_DEPTH = 5
MAX_STEP = 2**31 - 1

Moment = StoredTensor | CodedMoment
Key = str | int


@dataclass(frozen=True, slots=True)
class SavedState:
    """What an optimizer kept of one param. `step` is None where it is not said, `more` names what it kept besides."""

    step: int | None
    m: Moment | None
    v: Moment | None
    more: tuple[str, ...] = ()
    steps_differ: bool = False
    """True where `step` has several values, of which it is the largest."""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the param, None where nothing says it."""
        for moment in (self.m, self.v):
            if moment is not None:
                return moment.shape
        return None


@dataclass(frozen=True, slots=True)
class SavedGroup:
    """A group of params: their keys in order, their names where those were saved, and the settings by name."""

    keys: tuple[Key, ...]
    names: tuple[str, ...] | None
    settings: Mapping[str, Tree] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SavedOptimizer:
    """`states` by key; `named` is True where keys are names. `where` says what it is and where, for people."""

    where: str
    groups: tuple[SavedGroup, ...]
    states: Mapping[Key, SavedState]
    named: bool
    family: str = "PyTorch"

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of all params in the order of the groups."""
        return tuple(key for group in self.groups for key in group.keys)


def is_optimizer(node: Tree) -> bool:
    """True for what an optimizer's `state_dict()` looks like."""
    return (
        isinstance(node, Mapping)
        and isinstance(node.get("state"), Mapping)
        and isinstance(node.get("param_groups"), Sequence)
        and not isinstance(node.get("param_groups"), (str, bytes))
    )


def holds_bare_states(tree: Tree, depth: int = 0) -> bool:
    """True where states of an optimizer stand somewhere in a tree without the groups that say whose they are."""
    if (
        not isinstance(tree, Mapping)
        or isinstance(tree, StoredTensor)
        or depth >= MAX_DEPTH
        or is_optimizer(tree)
    ):
        return False
    states = tree.get("state")
    if isinstance(states, Mapping) and any(
        isinstance(entry, Mapping) and any(name in entry for name in (*M_NAMES, *V_NAMES))
        for entry in states.values()
    ):
        return True
    return any(holds_bare_states(child, depth + 1) for _, child in children(tree))


def find_optimizers(tree: Tree, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Tree]]:
    """Every optimizer state in a tree, with the keys that lead to it."""
    if is_optimizer(tree):
        yield path, tree
    elif len(path) < MAX_DEPTH and not isinstance(tree, StoredTensor):
        for key, child in children(tree):
            yield from find_optimizers(child, (*path, key))


def read_optimizer(node: Tree, where: str) -> SavedOptimizer:
    """UsageError, naming the entry, for what has the outline of a state and not its content."""
    groups = tuple(_group(group, where, i) for i, group in enumerate(node["param_groups"]))
    states: dict[Key, SavedState] = {}
    positions = {key for group in groups for key in group.keys if isinstance(key, int)}
    for key, entry in node["state"].items():
        if isinstance(key, str) and key.isdecimal() and len(key) < 20 and int(key) in positions:
            # Formats whose keys are text, as torch.distributed.checkpoint, keep positions as that.
            key = int(key)
        if isinstance(entry, Mapping) and isinstance(key, (str, int)):
            states[key] = read_state(entry, f"{where}: the state of {key!r}")
    _check_halves(states, where)
    keys = [key for group in groups for key in group.keys]
    if len(set(keys)) != len(keys):
        double = next(key for i, key in enumerate(keys) if key in keys[:i])
        raise UsageError(f"{where} lists the param {double!r} in two places of its groups.")
    known = set(keys)
    strangers = [key for key in states if key not in known]
    if strangers:
        raise UsageError(
            f"{where} has a state of the param {strangers[0]!r}, which is in none of its groups: it is damaged."
        )
    named = bool(keys) and all(isinstance(key, str) and not key.isdecimal() for key in keys)
    coded = any(
        isinstance(entry, Mapping) and (QUANT_STATE in entry or "state1" in entry)
        for entry in node["state"].values()
    )
    return SavedOptimizer(where, groups, states, named, "bitsandbytes" if coded else "PyTorch")


def _check_halves(states: Mapping[Key, SavedState], where: str) -> None:
    """UsageError for a state of m or v alone among those that have both; some optimizers keep one, of all params."""
    if not any(state.m is not None and state.v is not None for state in states.values()):
        return
    for key, state in states.items():
        if (state.m is None) != (state.v is None):
            gone, left = (M_NAMES[0], V_NAMES[0]) if state.m is None else (V_NAMES[0], M_NAMES[0])
            raise UsageError(
                f"{where} is damaged: the state of {key!r} has {left} and no {gone}, which others have."
            )


def joined(optimizers: Sequence[SavedOptimizer]) -> SavedOptimizer:
    """Several optimizers over the params of one model as one, in their order."""
    if len(optimizers) == 1:
        return optimizers[0]
    groups: list[SavedGroup] = []
    states: dict[Key, SavedState] = {}
    named = all(each.named for each in optimizers)
    for number, each in enumerate(optimizers):
        new: dict[Key, Key] = {key: key if named else f"{number}:{key}" for key in each.keys}
        groups += [SavedGroup(tuple(new[k] for k in g.keys), g.names, g.settings) for g in each.groups]
        states |= {new[key]: state for key, state in each.states.items()}
    return SavedOptimizer(optimizers[0].where, tuple(groups), states, named, optimizers[0].family)


def read_state(entry: Mapping[Any, Tree], where: str) -> SavedState:
    """What is kept of one param."""
    flat: dict[str, Tree] = {}
    for key, value in entry.items():
        if key == QUANT_STATE and isinstance(value, Mapping):
            flat |= {str(name): each for name, each in value.items()}
        else:
            flat[str(key)] = value
    step, differ = _step(flat, where)
    m, v = (_moment(flat, names, where) for names in (M_NAMES, V_NAMES))
    several: tuple[str, ...] = ()
    if m is not None and v is not None and m.shape[:1] > (1,) and m.shape[1:] == v.shape:
        # Several first moments of each element, one behind the other, as AdEMAMix has: no Adam.
        several = tuple(name for name in (*M_NAMES, *V_NAMES) if isinstance(flat.get(name), StoredTensor))
        m = v = None
    if m is not None and v is not None and m.shape != v.shape and m.numel > 0:
        raise UsageError(f"{where} is damaged: its m has the shape {list(m.shape)}, its v {list(v.shape)}.")
    used = {*M_NAMES, *V_NAMES, *STEP_NAMES, "absmax1", "absmax2", "qmap1", "qmap2", "max1", "max2",
            "new_max1", "new_max2"}  # fmt: skip
    more = tuple(
        sorted(name for name, value in flat.items() if name not in used and isinstance(value, StoredTensor))
    )
    more = (*more, *several)
    return SavedState(step, m, v, more, differ)


def _group(group: Tree, where: str, number: int) -> SavedGroup:
    keys: Tree = group.get("params") if isinstance(group, Mapping) else None
    sound = isinstance(keys, Sequence) and not isinstance(keys, (str, bytes))
    if not sound or not all(isinstance(k, (str, int)) and not isinstance(k, bool) for k in keys):
        raise UsageError(
            f"{where}: group {number} does not list its params, by which their states are found: it is no state of an "
            "optimizer, or was taken from another program."
        )
    names: Tree = group.get("param_names")
    if not isinstance(names, Sequence) or isinstance(names, (str, bytes)):
        names = None
    elif len(names) != len(keys) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{where}: group {number} has {len(keys)} params and {len(names)} param_names.")
    settings = {str(name): value for name, value in group.items() if name not in ("params", "param_names")}
    return SavedGroup(tuple(keys), None if names is None else tuple(names), settings)


def _moment(flat: Mapping[str, Tree], names: tuple[str, ...], where: str) -> Moment | None:
    name = next((n for n in names if isinstance(flat.get(n), StoredTensor)), None)
    if name is None:
        return None
    tensor: StoredTensor = flat[name]
    if name in ("state1", "state2") and tensor.dtype == "U8":
        number = name[-1]
        parts = {part: flat.get(f"{part}{number}") for part in ("absmax", "qmap", "max")}
        return coded_moment(tensor, parts, "m" if number == "1" else "v", f"{where}, {name},")
    if not tensor.is_float:
        raise UsageError(
            f"{where} has {name} of the type {tensor.dtype}, where moments are floats or the 8-bit codes of "
            "bitsandbytes with their maps."
        )
    return tensor


def _step(flat: Mapping[str, Tree], where: str) -> tuple[int | None, bool]:
    value = next((flat[name] for name in STEP_NAMES if name in flat), None)
    if value is None:
        return None, False
    number, differ = number_of(value), False
    if number is None and isinstance(value, StoredTensor) and 1 < value.numel <= 1 << 20:
        values = value.read().reshape(-1).astype(float)
        number, differ = float(values.max()), True
    if number is None or not 0 <= number <= MAX_STEP or number != int(number):
        shown = str(value)[:40] if not isinstance(value, StoredTensor) else f"a tensor of {value.dtype}"
        raise UsageError(f"{where}: its step is {shown}, which is no number of finished steps.")
    return int(number), differ
