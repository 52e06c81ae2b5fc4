"""Rules over the settings of a step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import Memory
from inspector.diagnosis.rules.rule import NOTHING, Seen, Story, alone, number, once
from inspector.errors import UsageError
from inspector.floats import BoolArray, F64Array
from inspector.hyper import HYPER_NAMES, check_value
from inspector.layout import Layout, Segment
from inspector.param_hyper import columns
from inspector.settings import SETTING_NAMES, Settings

SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
"""Below it, 1.18e-38, a GPU may take a float32 for 0 (WGSL §15.7.2)."""
RATE_JUMP = 3.0
RATE_DROP = 20.0
ZERO_RATE_STEPS = 2


@dataclass(frozen=True, slots=True)
class _Used:
    """Settings that some params take the step with; `where` says which in words, "" where all do."""

    settings: Settings
    where: str
    param: str | None = None


def _used(facts: StepFacts) -> Iterator[_Used]:
    """Settings in use in the step, each once: of the run, or of each class of params that takes part."""
    hyper, own = facts.hyper, facts.hyper.per_param
    if own is None:
        yield _Used(Settings(hyper.lr, hyper.beta1, hyper.beta2, hyper.eps, hyper.weight_decay), "")
        return
    given = facts.layout.given
    for i, each in enumerate(own.classes):
        count = 0 if each.idle else own.of.count(i)
        first = own.of.index(i) if count else len(given)
        if first < len(given):
            more = f" and {count - 1:,} more" if count > 1 else ""
            yield _Used(each, f" of {given[first].name}{more}", given[first].name)


def invalid_setting(facts: StepFacts, memory: Memory) -> Seen | None:
    """A hyper-parameter outside what it can mean; the kernels run it all the same. The clip limit has its own rule."""
    problems: dict[str, tuple[str, _Used]] = {}
    for used in _used(facts):
        for name in SETTING_NAMES:
            problem = _problem(name, getattr(used.settings, name))
            if problem is not None:
                problems.setdefault(name, (problem, used))

    def tell(row: int) -> Story:
        name = HYPER_NAMES[row]
        problem, used = problems[name]
        return Story(
            f"{name}{used.where} {problem}.",
            f"Set {name} to a value that AdamW is defined for.",
            {name: getattr(used.settings, name)},
            used.param,
        )

    hit = np.array([name in problems for name in HYPER_NAMES])
    return Seen(hit, hit.astype("f8"), tell, names=HYPER_NAMES)


def _problem(name: str, value: float) -> str | None:
    try:
        check_value(name, value)
    except UsageError as error:
        return str(error).removeprefix(f"--{name.replace('_', '-')} ").rstrip(".")
    return None


def decay_on_norm_or_bias(facts: StepFacts, memory: Memory) -> Seen | None:
    """A norm gain or bias that lies in the wd block, so weight decay pulls it to 0."""
    layout, hyper = facts.layout, facts.hyper
    if hyper.per_param is None:
        wrong = once(layout, "diagnosis: decayed", _decayed) if hyper.weight_decay != 0 else []
    else:
        classes = [each.weight_decay != 0 and not each.idle for each in hyper.per_param.classes]
        wrong = []
        if any(classes):
            of = hyper.per_param.of
            small, numbers = once(layout, "diagnosis: small", _small)
            wrong = [s for s, n in zip(small, numbers, strict=True) if n < len(of) and classes[of[n]]]

    def tell() -> Story:
        decay = hyper.of_param(layout.number_of(wrong[0].name), decays=True).weight_decay
        return Story(
            f"Weight decay is applied to {len(wrong):,} norm gains or biases, {wrong[0].name} among them.",
            "Put tensors of fewer than two dimensions in the block without decay.",
            {"params": len(wrong), "weight_decay": decay}, wrong[0].name,
            dispatch=facts.dispatch_updating(wrong[0].offset),
        )  # fmt: skip

    return alone(bool(wrong), tell)


def _small(layout: Layout) -> tuple[list[Segment], list[int]]:
    small = [s for s in layout if len(s.param.shape) < 2]
    return small, [layout.number_of(s.name) for s in small]


def _decayed(layout: Layout) -> list[Segment]:
    block = layout.block("wd")
    return [s for s in block.segments if len(s.param.shape) < 2] if block else []


def zero_eps(facts: StepFacts, memory: Memory) -> Seen | None:
    """An ε that is 0 in the float32 of the kernels, or that a GPU may take for 0."""
    used = next((u for u in _used(facts) if 0 <= u.settings.eps < SMALLEST_NORMAL), None)

    def tell() -> Story:
        assert used is not None
        eps = used.settings.eps
        rounded = float(np.float32(eps))
        what = "0" if rounded == 0 else f"{number(rounded)}, which a GPU may take for 0"
        return Story(
            f"ε{used.where} is {number(eps)}, in the float32 of the kernels {what}: where v is 0 the update "
            "becomes 0/0 or infinite, and is skipped.",
            "Set ε to 1e-8, or larger where gradients are small.",
            {"eps": eps, "eps_float32": rounded},
            used.param,
        )

    return alone(used is not None, tell)


def unstable_betas(facts: StepFacts, memory: Memory) -> Seen | None:
    """β₁² ≥ √β₂: v forgets faster than m, so updates are not bounded by the learning rate."""
    used = next((u for u in _used(facts) if _unstable(u.settings.beta1, u.settings.beta2)), None)

    def tell() -> Story:
        assert used is not None
        beta1, beta2 = used.settings.beta1, used.settings.beta2
        return Story(
            f"β₁² = {number(beta1**2)}{used.where} is not below √β₂ = {number(math.sqrt(beta2))}: v forgets "
            "gradients that m still holds, and updates may be many times the learning rate.",
            "Raise β₂ (0.95 to 0.999) or lower β₁.",
            {"beta1": beta1, "beta2": beta2},
            used.param,
        )

    return alone(used is not None, tell)


def _unstable(beta1: float, beta2: float) -> bool:
    return 0 <= beta1 < 1 and 0 <= beta2 < 1 and beta1**2 >= math.sqrt(beta2) and beta1 > 0


def zero_learning_rate(facts: StepFacts, memory: Memory) -> Seen | None:
    """A learning rate of 0, but for a single step as at the ends of a schedule."""
    rates = memory.latest("lr", ZERO_RATE_STEPS)
    hit = len(rates) == ZERO_RATE_STEPS and all(rate == 0 for rate in rates)

    def tell() -> Story:
        return Story(
            f"The learning rate has been 0 for {ZERO_RATE_STEPS} steps: no weight changes.",
            "Check the schedule: its length, and whether it counts steps or epochs.",
            {"lr": 0.0, "steps": ZERO_RATE_STEPS},
        )

    return alone(hit, tell)


def learning_rate_jump(facts: StepFacts, memory: Memory) -> Seen | None:
    """A learning rate that leaps above all there were, or falls to a fraction, from one step to the next."""
    if facts.hyper.per_param is not None:
        return _own_rate_jump(facts, memory)
    rates = memory.latest("lr", 2)
    lr, peak = facts.hyper.lr, memory.before.lr_peak
    if len(rates) < 2 or not (0 < lr < math.inf and 0 < rates[0] < math.inf):
        return NOTHING
    up, down = _jumps(lr, rates[0], peak)
    return alone(bool(up | down), lambda: _jumped("", lr, rates[0], peak, bool(up)))


def _jumps(
    lr: F64Array | float, before: F64Array | float, peak: F64Array | float
) -> tuple[BoolArray, BoolArray]:
    up = (np.asarray(lr) > RATE_JUMP * np.asarray(peak)) & (np.asarray(peak) > 0)
    down = (np.asarray(before) > RATE_DROP * np.asarray(lr)) & (np.asarray(before) >= 0.5 * np.asarray(peak))
    return up, down


def _jumped(where: str, lr: float, before: float, peak: float, up: bool, param: str | None = None) -> Story:
    way = "rose" if up else "fell"
    return Story(
        f"The learning rate{where} {way} from {number(before)} to {number(lr)} in one step"
        f"{f', the highest so far was {number(peak)}' if up else ''}.",
        "Check the schedule and the step it counts from, above all where a run was resumed.",
        {"lr": lr, "before": before, "peak": peak},
        param,
    )


def _own_rate_jump(facts: StepFacts, memory: Memory) -> Seen:
    """The same of params with rates of their own, each held against its own; those that sat out are left aside."""
    past, layout = memory.before, facts.layout
    if past.facts is None or past.facts.hyper.per_param is None or past.step != facts.step - 1:
        return NOTHING
    if past.facts.hyper.per_param == facts.hyper.per_param:
        return NOTHING
    names = [s.name for s in layout]
    now, was = (columns(each.hyper, layout, names, each.step) for each in (facts, past.facts))
    before, peak = past.rates(facts.hyper, layout, names)
    known = ~now.idle & ~was.idle & (now.lr > 0) & np.isfinite(now.lr) & (was.lr > 0) & np.isfinite(was.lr)
    up, down = _jumps(now.lr, before, peak)
    rows = np.flatnonzero(known & (up | down))

    def tell() -> Story:
        at = int(rows[0])
        more = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
        highest = float(np.broadcast_to(peak, len(names))[at])
        return _jumped(
            f" of {names[at]}{more}", float(now.lr[at]), float(was.lr[at]), highest, bool(up[at]), names[at]
        )

    return alone(len(rows) > 0, tell)
