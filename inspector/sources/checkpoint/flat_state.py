"""Optimizer states in files that know no nesting: moments under names that begin or end with what they are.

optax keeps mu, nu and a count, which people flatten with "/", "." or jax.tree_util.keystr, as in `opt_state/0/mu/wte`,
`1.0.nu.params.wte` or `[0].mu['wte']`; flattened states of PyTorch are `state.wte.exp_avg` or `exp_avg.wte`. A step
that stands beside all params holds for all of them, one beside a param for that. What else optax keeps stands under the
names of its fields: hyperparams are settings, and the rest is told apart from the weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from inspector.errors import UsageError
from inspector.sources.checkpoint.optimizer_state import MAX_STEP, SavedGroup, SavedOptimizer, SavedState
from inspector.tensor_tree import StoredTensor, Tree, number_of

_WORDS = {
    "mu": "m", "exp_avg": "m", "m": "m",
    "nu": "v", "exp_avg_sq": "v", "v": "v",
    "count": "t", "step": "t",
    "max_exp_avg_sq": "more", "nu_max": "more",
}  # fmt: skip
_OF_PARAMS = frozenset({"acc_grads", "ema", "sum_of_squares", "trace", "v_col", "v_row"})
_OF_ALL = frozenset(
    {
        "gradient_step", "hyperparams", "hyperparams_states", "last_finite", "mini_step", "notfinite_count",
        "skip_state", "total_notfinite",
    }
)  # fmt: skip
"""What states of optax keep besides count, mu and nu, of each param or of all: names of fields in optax 0.2."""
_SETTINGS = {
    "learning_rate": "lr", "step_size": "lr", "b1": "beta1", "b2": "beta2", "eps": "eps",
    "weight_decay": "weight_decay",
}  # fmt: skip
_FACTORED = frozenset({"v_row", "v_col", "count"})
"""Of Adafactor, which keeps no moments element by element."""
_PAIRS = (("mu", "nu"), ("exp_avg", "exp_avg_sq"))
"""Words that mean moments wherever they stand; m and v alone do so as the first part of a name."""
_SPLIT = re.compile(r"[/.\[\]'\"]+")
_ROOTS = frozenset({"params", "state", "opt_state", "optimizer", "optimizer_state", "opt"})

Parts = tuple[str, ...]


@dataclass(slots=True)
class _Found:
    """Moments by what is left of their names, steps by what stands before them."""

    lanes: dict[str, dict[Parts, tuple[str, StoredTensor]]] = field(
        default_factory=lambda: {"m": {}, "v": {}, "more": {}}
    )
    steps: dict[Parts, StoredTensor] = field(default_factory=dict)
    bases: dict[Parts, Parts] = field(default_factory=dict)
    """What stands before the word, by what is left of the name."""
    others: dict[Parts, set[str]] = field(default_factory=dict)
    """What else is kept of a param, by what is left of its name."""
    settings: dict[Parts, dict[str, Tree]] = field(default_factory=dict)
    """By what stands before them, which is the beginning of the bases that they hold for."""


def parts_of(name: str) -> Parts:
    """A name at its separators, without what only says that params or a state follow."""
    return tuple(part for part in _SPLIT.split(name) if part)


def split_flat(
    tensors: Mapping[str, StoredTensor], where: str
) -> tuple[SavedOptimizer | None, dict[str, StoredTensor]]:
    """The optimizer among tensors by name, None where there is none, and the tensors that are no part of it."""
    words = {part for name in tensors for part in parts_of(name)}
    known = {word for pair in _PAIRS if words.issuperset(pair) for word in pair}
    if "mu" in words and _has_count_beside_mu(tensors):
        # Lion keeps a first moment alone.
        known |= {"mu"}
    factored = words >= _FACTORED
    if not known and not factored:
        return None, dict(tensors)
    found, rest = _Found(), {}
    for name, tensor in tensors.items():
        if not _sort(found, known, name, tensor):
            rest[name] = tensor
    optax = "mu" in known or factored
    if optax:
        rest = _without_fields(found, rest)
    if not found.lanes["m"] and not found.others:
        return None, dict(tensors)
    return _optimizer(found, where, "optax" if optax else "PyTorch"), rest


def _has_count_beside_mu(tensors: Mapping[str, StoredTensor]) -> bool:
    counted = {parts[:-1] for parts in map(parts_of, tensors) if parts and parts[-1] == "count"}
    found = (parts for parts in map(parts_of, tensors) if "mu" in parts[:-1])
    return any(parts[: parts.index("mu")] in counted for parts in found)


def _without_fields(found: _Found, rest: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors that are weights; what fields of optax hold is noted of the params that it is of."""
    used = {part for lane in found.lanes.values() for left in lane for part in left}
    fields, weights = (_OF_PARAMS | _OF_ALL) - used, {}
    factored = any("v_row" in parts_of(name) for name in rest)
    for name, tensor in rest.items():
        parts = parts_of(name)
        at = next((i for i, p in enumerate(parts) if p in fields or (factored and p == "v")), None)
        if at is None:
            weights[name] = tensor
        elif parts[at] == "hyperparams" and parts[-1] in _SETTINGS and tensor.numel == 1:
            found.settings.setdefault(parts[:at], {})[_SETTINGS[parts[-1]]] = tensor
        elif parts[at] not in _OF_ALL and parts[at + 1 :]:
            found.others.setdefault(_without_roots(parts[at + 1 :]), set()).add(parts[at])
    return weights


def _sort(found: _Found, known: set[str], name: str, tensor: StoredTensor) -> bool:
    parts = parts_of(name)
    for i, part in enumerate(parts):
        kind = _WORDS.get(part) if part in known or part in ("max_exp_avg_sq", "nu_max") else None
        if kind in ("m", "v", "more"):
            before, after = parts[:i], parts[i + 1 :]
            left = _without_roots(after or before)
            assert kind is not None
            found.lanes[kind][left] = name, tensor
            found.bases[left] = before if after else ()
            return True
    if parts and _WORDS.get(parts[-1]) == "t" and tensor.numel <= 1 << 16 and number_of(tensor) is not None:
        found.steps[parts[:-1]] = tensor
        return True
    return False


def _without_roots(parts: Parts) -> Parts:
    while len(parts) > 1 and parts[0] in _ROOTS:
        parts = parts[1:]
    return parts


def _optimizer(found: _Found, where: str, family: str) -> SavedOptimizer:
    states: dict[str | int, SavedState] = {}
    by_param = {_without_roots(before): tensor for before, tensor in found.steps.items()}
    for left, (name, m) in found.lanes["m"].items():
        v = found.lanes["v"].get(left)
        if v is None and found.lanes["v"]:
            raise UsageError(
                f"{where} holds {name!r}, and no second moment (nu, exp_avg_sq) of the same param."
            )
        if v is not None and v[1].shape != m.shape:
            raise UsageError(
                f"{where} is damaged: {name!r} has the shape {list(m.shape)}, {v[0]!r} {list(v[1].shape)}."
            )
        step = by_param.get(left) or found.steps.get(found.bases[left]) or _only(found.steps)
        more = {*found.others.pop(left, ()), *(["max_exp_avg_sq"] if left in found.lanes["more"] else [])}
        states[".".join(left)] = SavedState(
            _whole(step, where), m, None if v is None else v[1], tuple(sorted(more))
        )
    alone = next((left for left in found.lanes["v"] if left not in found.lanes["m"]), None)
    if alone is not None:
        name = found.lanes["v"][alone][0]
        raise UsageError(f"{where} holds {name!r}, and no first moment (mu, exp_avg) of the same param.")
    groups = _groups(found)
    # What another transformation of the same file steps.
    theirs: dict[str | int, SavedState] = {
        ".".join(left): SavedState(None, None, None, tuple(sorted(more)))
        for left, more in found.others.items()
    }
    if theirs:
        groups = (*groups, SavedGroup(tuple(theirs), None))
    return SavedOptimizer(where, groups, states | theirs, named=True, family=family)


def _groups(found: _Found) -> tuple[SavedGroup, ...]:
    """The params by the settings that stand nearest above their moments."""
    of: dict[Parts | None, list[str]] = {}
    for left in found.lanes["m"]:
        base = found.bases[left]
        above = [before for before in found.settings if base[: len(before)] == before]
        of.setdefault(max(above, key=len, default=None), []).append(".".join(left))
    return tuple(
        SavedGroup(tuple(names), None, {} if before is None else found.settings[before])
        for before, names in of.items()
    )


def _only(steps: Mapping[Parts, StoredTensor]) -> StoredTensor | None:
    """A step that holds for all: the one there is, or the first of several that say the same."""
    values = {number_of(each) for each in steps.values()}
    return next(iter(steps.values())) if len(values) == 1 else None


def _whole(tensor: StoredTensor | None, where: str) -> int | None:
    if tensor is None:
        return None
    number = number_of(tensor)
    if number is None or not 0 <= number <= MAX_STEP or number != int(number):
        raise UsageError(f"{where}: its count is {number}, which is no number of finished steps.")
    return int(number)
