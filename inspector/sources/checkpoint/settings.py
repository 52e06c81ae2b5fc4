"""From the groups of a saved optimizer to settings: one for all params, or classes of params with their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from inspector.errors import UsageError
from inspector.floats import shortest
from inspector.hyper import Hyper
from inspector.settings import ParamSettings, Settings
from inspector.sources.checkpoint.eight_bit import CodedMoment
from inspector.sources.checkpoint.optimizer_state import Key, SavedGroup, SavedOptimizer, SavedState
from inspector.tensor_tree import StoredTensor, Tree, children, number_of

UNKNOWN = Hyper(max_grad_norm=float("inf"))
"""What is taken where a file does not say: the published defaults, and no clipping, which no optimizer does itself."""
_NO_PART = Settings(0.0, 0.0, 0.0, UNKNOWN.eps, 0.0, idle=True)


@dataclass(frozen=True, slots=True)
class Settled:
    """Settings of a run that goes on after `finished_steps`; `l2` for Adam with its decay in the gradient.

    `groups` has the group of each param, `decays` whether it is decayed (None: the usual split).
    """

    hyper: Hyper
    finished_steps: int
    groups: tuple[int, ...]
    decays: tuple[bool, ...] | None
    l2: bool
    origin: str
    remarks: tuple[str, ...]
    unreplayable: str = ""


def settle(
    shapes: Mapping[str, tuple[int, ...]],
    optimizer: SavedOptimizer,
    keys: Mapping[str, Key],
    *,
    others: Sequence[str] = (),
) -> Settled:
    """`keys` has the key of the state of each param that has one; `others` are params that another optimizer steps.

    UsageError for a setting that is no number.
    """
    states = {name: optimizer.states[key] for name, key in keys.items() if key in optimizer.states}
    finished = max((state.step for state in states.values() if state.step is not None), default=0)
    each = [_settings(group, f"{optimizer.where}, group {i}") for i, group in enumerate(optimizer.groups)]
    group_of = {key: i for i, group in enumerate(optimizer.groups) for key in group.keys}
    groups = tuple(group_of[keys[name]] if name in keys else len(each) for name in shapes)
    own = tuple(_own(each[group], states.get(name), finished) if name in keys else _NO_PART
                for name, group in zip(shapes, groups, strict=True))  # fmt: skip
    said = any(group.settings for group in optimizer.groups)
    if not said:
        # As a run without groups: decayed by the usual split.
        own = tuple(replace(s, weight_decay=s.weight_decay if len(shape) >= 2 else 0.0)
                    for s, shape in zip(own, shapes.values(), strict=True))  # fmt: skip
    run = _of_most(own)
    hyper = Hyper(run.lr, run.beta1, run.beta2, run.eps, run.weight_decay, UNKNOWN.max_grad_norm)
    decay = tuple(s.weight_decay != 0 for s in own)
    if not _is_one(own, run):
        hyper = replace(hyper, per_param=_classes(own))
    apart = set(others)
    own_names = [name for name in shapes if name not in apart]
    untouched = len(decay) == 0 or not any(decay) or not said
    return Settled(
        hyper,
        finished,
        groups,
        None if untouched else decay,
        _is_l2(optimizer),
        _origin(optimizer),
        tuple(_remarks(own_names, optimizer, keys, states, finished)),
        _unreplayable(states),
    )


def _own(base: Settings, state: SavedState | None, finished: int) -> Settings:
    if state is None:
        # Without a step so far: the next is its first.
        return replace(base, behind=finished)
    return base if state.step is None else replace(base, behind=finished - state.step)


def _of_most(own: Sequence[Settings]) -> Settings:
    """The settings that most params have; those with decay before those that differ in nothing else."""
    counts = Counter(s for s in own if not s.idle)
    if not counts:
        return Settings(UNKNOWN.lr, UNKNOWN.beta1, UNKNOWN.beta2, UNKNOWN.eps, UNKNOWN.weight_decay)
    most = counts.most_common(1)[0][0]
    alike = [s for s in counts if replace(s, weight_decay=0.0) == replace(most, weight_decay=0.0)]
    return max(alike, key=lambda s: (s.weight_decay != 0, counts[s]))


def _is_one(own: Sequence[Settings], run: Settings) -> bool:
    """True where all params share the settings of the run, but that some are not decayed."""
    return all(s in (run, replace(run, weight_decay=0.0)) for s in own)


def _classes(own: Sequence[Settings]) -> ParamSettings:
    numbers: dict[Settings, int] = {}
    of = tuple(numbers.setdefault(s, len(numbers)) for s in own)
    return ParamSettings(tuple(numbers), of)


def _settings(group: SavedGroup, where: str) -> Settings:
    given = group.settings
    betas = [number_of(value) for _, value in children(given.get("betas"))]

    def value(name: str, usual: float, *also: Tree) -> float:
        found = next((v for v in (given.get(name), *also) if v is not None), None)
        if found is None:
            return usual
        number = number_of(found)
        if number is None:
            shown = f"a tensor of {found.shape}" if isinstance(found, StoredTensor) else repr(found)[:40]
            raise UsageError(f"{where}: its {name} is {shown}, which is not a number.")
        return number

    if "betas" in given and (len(betas) < 2 or None in betas):
        raise UsageError(f"{where}: its betas are not two numbers.")
    first, second = [*betas, None, None][:2]
    return Settings(
        value("lr", UNKNOWN.lr),
        value("beta1", UNKNOWN.beta1, first),
        value("beta2", UNKNOWN.beta2, second),
        value("eps", UNKNOWN.eps),
        value("weight_decay", UNKNOWN.weight_decay if not given else 0.0),
    )


def _is_l2(optimizer: SavedOptimizer) -> bool:
    """True where every decayed group says that its decay is not decoupled."""
    decayed = [group.settings for group in optimizer.groups if number_of(group.settings.get("weight_decay"))]
    return bool(decayed) and all(each.get("decoupled_weight_decay") is False for each in decayed)


def _origin(optimizer: SavedOptimizer) -> str:
    if optimizer.family != "PyTorch" or not optimizer.groups:
        return optimizer.family
    settings = optimizer.groups[0].settings
    decoupled = settings.get("decoupled_weight_decay")
    name = {True: " AdamW", False: " Adam"}.get(decoupled, "") if isinstance(decoupled, bool) else ""
    kind = next(
        (f" ({word})" for word in ("fused", "foreach", "capturable") if settings.get(word) is True), ""
    )
    return f"PyTorch{name}{kind}"


def _unreplayable(states: Mapping[str, SavedState]) -> str:
    if any("max_exp_avg_sq" in state.more for state in states.values()):
        return (
            "The optimizer keeps max_exp_avg_sq (amsgrad), which the kernels here do not: steps would differ."
        )
    if states and not any(state.m is not None and state.v is not None for state in states.values()):
        return "The optimizer keeps no first and second moment: it is none of the Adam family."
    return ""


def _remarks(
    names: Sequence[str],
    optimizer: SavedOptimizer,
    keys: Mapping[str, Key],
    states: Mapping[str, SavedState],
    finished: int,
) -> Iterator[str]:
    """What a person should know of the state as it was taken, each a sentence."""
    frozen = [name for name in names if name not in keys]
    if frozen and optimizer.keys:
        yield f"{_some(frozen)} had no place in the optimizer: taken as not trained, and left as they are."
    fresh = [name for name in keys if name not in states]
    if fresh and states:
        yield f"The optimizer has no state of {_some(fresh)}: m and v start at 0, with their first step."
    late = [n for n, s in states.items() if s.step is not None and s.step != finished]
    if late:
        yield (
            f"{_some(late)} took fewer steps than others: {late[0]} {states[late[0]].step:,} of {finished:,}. The bias "
            "correction of each follows its own count."
        )
    if states and all(state.step is None for state in states.values()):
        yield "The file does not say how many steps are finished: taken as none, so m and v are corrected as in step 1."
    several = [n for n, s in states.items() if s.steps_differ]
    if several:
        yield f"The step of {_some(several)} has several values: the largest is taken."
    kept = sorted({name for state in states.values() for name in state.more})
    bare = states and not any(s.m is not None or s.v is not None for s in states.values())
    if bare:
        what = f" (it keeps {', '.join(kept)})" if kept else ""
        yield f"The optimizer keeps no first and second moment{what}: m and v start at 0."
    half = [n for n, s in states.items() if (s.m is None) != (s.v is None)]
    if half:
        what = "second" if states[half[0]].v is None else "first"
        lane = "v" if what == "second" else "m"
        yield f"The optimizer keeps no {what} moment of {_some(half)}: {lane} starts at 0."
    if kept and not bare:
        yield f"The optimizer also keeps {', '.join(kept)}, for which the kernels have no place: left aside."
    decoded = [
        n
        for n, s in states.items()
        if any(isinstance(x, CodedMoment) and not x.is_dynamic for x in (s.m, s.v))
    ]
    if decoded:
        yield (
            f"The 8-bit state of {_some(decoded)} is in blocks or a map other than the dynamic codec's (256 elements): "
            "decoded to float32, so 8-bit kernels code it anew."
        )
    flags = [group.settings for group in optimizer.groups]
    if not any(flags):
        yield (
            "The file says nothing of learning rate, β, ε and weight decay: the published defaults hold until you set "
            "them (--lr, --beta1, --beta2, --eps, --weight-decay)."
        )
    if any(each.get("maximize") is True for each in flags):
        yield "The optimizer maximizes: its m is of the negative gradient, and so are the gradients drawn here."
    undecided = [
        each for each in flags if number_of(each.get("weight_decay")) and optimizer.family == "PyTorch"
    ]
    if undecided and all("decoupled_weight_decay" not in each for each in undecided):
        decay = shortest(number_of(undecided[0]["weight_decay"]) or 0.0)
        yield (
            f"The file does not say whether its weight decay of {decay} is decoupled: taken as AdamW's; for Adam's "
            "--optimizer adam-l2."
        )


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"
