"""Rules over the settings of a step."""

from __future__ import annotations

import math

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import Memory
from inspector.diagnosis.rules.rule import NOTHING, Seen, Story, alone, number, once
from inspector.errors import UsageError
from inspector.hyper import HYPER_NAMES, check_value
from inspector.layout import Layout, Segment

SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
"""Below it, 1.18e-38, a GPU may take a float32 for 0 (WGSL §15.7.2)."""
RATE_JUMP = 3.0
RATE_DROP = 20.0
ZERO_RATE_STEPS = 2


def invalid_setting(facts: StepFacts, memory: Memory) -> Seen | None:
    """A hyper-parameter outside what it can mean; the kernels run it all the same. The clip limit has its own rule."""
    problems = [
        None if name == "max_grad_norm" else _problem(name, getattr(facts.hyper, name))
        for name in HYPER_NAMES
    ]

    def tell(row: int) -> Story:
        name = HYPER_NAMES[row]
        return Story(
            f"{name} {problems[row]}.",
            f"Set {name} to a value that AdamW is defined for.",
            {name: getattr(facts.hyper, name)},
        )

    hit = np.array([problem is not None for problem in problems])
    return Seen(hit, hit.astype("f8"), tell, names=HYPER_NAMES)


def _problem(name: str, value: float) -> str | None:
    try:
        check_value(name, value)
    except UsageError as error:
        return str(error).removeprefix(f"--{name.replace('_', '-')} ").rstrip(".")
    return None


def decay_on_norm_or_bias(facts: StepFacts, memory: Memory) -> Seen | None:
    """A norm gain or bias that lies in the wd block, so weight decay pulls it to 0."""
    wrong = once(facts.layout, "diagnosis: decayed", _decayed)

    def tell() -> Story:
        decay = facts.hyper.weight_decay
        return Story(
            f"Weight decay is applied to {len(wrong):,} norm gains or biases, {wrong[0].name} among them.",
            "Put tensors of fewer than two dimensions in the block without decay.",
            {"params": len(wrong), "weight_decay": decay}, wrong[0].name,
            dispatch=facts.dispatch_updating(wrong[0].offset),
        )  # fmt: skip

    return alone(bool(wrong) and facts.hyper.weight_decay != 0, tell)


def _decayed(layout: Layout) -> list[Segment]:
    block = layout.block("wd")
    return [s for s in block.segments if len(s.param.shape) < 2] if block else []


def zero_eps(facts: StepFacts, memory: Memory) -> Seen | None:
    """An ε that is 0 in the float32 of the kernels, or that a GPU may take for 0."""
    eps = facts.hyper.eps
    rounded = float(np.float32(eps))

    def tell() -> Story:
        what = "0" if rounded == 0 else f"{number(rounded)}, which a GPU may take for 0"
        return Story(
            f"ε is {number(eps)}, in the float32 of the kernels {what}: where v is 0 the update becomes 0/0 or "
            "infinite, "
            "and is skipped.",
            "Set ε to 1e-8, or larger where gradients are small.",
            {"eps": eps, "eps_float32": rounded},
        )

    return alone(0 <= eps < SMALLEST_NORMAL, tell)


def unstable_betas(facts: StepFacts, memory: Memory) -> Seen | None:
    """β₁² ≥ √β₂: v forgets faster than m, so updates are not bounded by the learning rate."""
    beta1, beta2 = facts.hyper.beta1, facts.hyper.beta2
    hit = 0 <= beta1 < 1 and 0 <= beta2 < 1 and beta1**2 >= math.sqrt(beta2) and beta1 > 0

    def tell() -> Story:
        return Story(
            f"β₁² = {number(beta1**2)} is not below √β₂ = {number(math.sqrt(beta2))}: v forgets gradients that m still "
            "holds, and updates may be many times the learning rate.",
            "Raise β₂ (0.95 to 0.999) or lower β₁.",
            {"beta1": beta1, "beta2": beta2},
        )

    return alone(hit, tell)


def zero_learning_rate(facts: StepFacts, memory: Memory) -> Seen | None:
    """A learning rate of 0, but for a single step as at the ends of a schedule."""
    rates = memory.latest("lr", ZERO_RATE_STEPS)
    hit = facts.hyper.lr == 0 and len(rates) == ZERO_RATE_STEPS and all(rate == 0 for rate in rates)

    def tell() -> Story:
        return Story(
            f"The learning rate has been 0 for {ZERO_RATE_STEPS} steps: no weight changes.",
            "Check the schedule: its length, and whether it counts steps or epochs.",
            {"lr": 0.0, "steps": ZERO_RATE_STEPS},
        )

    return alone(hit, tell)


def learning_rate_jump(facts: StepFacts, memory: Memory) -> Seen | None:
    """A learning rate that leaps above all there were, or falls to a fraction, from one step to the next."""
    rates = memory.latest("lr", 2)
    lr, peak = facts.hyper.lr, memory.before.lr_peak
    if len(rates) < 2 or not (0 < lr < math.inf and 0 < rates[0] < math.inf):
        return NOTHING
    up = lr > RATE_JUMP * peak > 0
    down = rates[0] > RATE_DROP * lr and rates[0] >= 0.5 * peak

    def tell() -> Story:
        way = "rose" if up else "fell"
        return Story(
            f"The learning rate {way} from {number(rates[0])} to {number(lr)} in one step"
            f"{f', the highest so far was {number(peak)}' if up else ''}.",
            "Check the schedule and the step it counts from, above all where a run was resumed.",
            {"lr": lr, "before": rates[0], "peak": peak},
        )

    return alone(up or down, tell)
