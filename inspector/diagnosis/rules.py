"""Rules over the numbers of one step: what they show to be wrong, in plain words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from inspector.diagnosis.findings import Finding
from inspector.errors import UsageError
from inspector.floats import shortest
from inspector.hyper import HYPER_NAMES, Hyper, check_value
from inspector.layout import Layout
from inspector.statistics import BufferStats


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the rules look at: the counts over all gradients, and the scalars once they are known."""

    step: int
    layout: Layout
    hyper: Hyper
    gradients: BufferStats
    grad_norm: float | None = None
    clip_scale: float | None = None
    loss: float | None = None
    initial_moments: bool = False
    """True where m or v was not zero before step 1."""
    initial_state: Mapping[str, BufferStats] = field(default_factory=dict)
    """Counts over w, m and v as they were before the first step of the run."""


def nonfinite_gradient(facts: StepFacts) -> Iterator[Finding]:
    """Gradients that are NaN or infinite: the kernels take them as zero without a word."""
    bad = facts.gradients.nonfinite
    if not bad.total:
        return
    segment = facts.layout.at(bad.first) if bad.first is not None else None
    param = segment.name if segment else None
    index = bad.first - segment.offset if segment and bad.first is not None else None
    where = ""
    if segment and index is not None:
        where = f", the first in {segment.name}{multi_index(index, segment.param.shape)}"
    share = bad.total / max(facts.gradients.count, 1)
    yield Finding(
        rule="nonfinite-gradient",
        severity="error",
        step=facts.step,
        param=param,
        index=index,
        evidence={
            "nan": bad.nan,
            "posinf": bad.posinf,
            "neginf": bad.neginf,
            "elements": facts.gradients.count,
            "share": share,
        },
        message=(
            f"{bad.total:,} of {facts.gradients.count:,} gradients are not finite ({bad.nan:,} NaN, "
            f"{bad.posinf:,} +Inf, {bad.neginf:,} -Inf){where}. The kernels take them as 0, so norm and clip "
            "scale look healthy."
        ),
        advice="Look at the loss and the layer that owns the first of them; check for overflow in its forward pass.",
    )


def norm_overflow(facts: StepFacts) -> Iterator[Finding]:
    """The float32 sum of squares overflowed although every gradient that counts is finite."""
    if facts.grad_norm is None or not math.isinf(facts.grad_norm):
        return
    yield Finding(
        rule="norm-overflow",
        severity="error",
        step=facts.step,
        evidence={
            "grad_norm": facts.grad_norm,
            "largest_gradient": facts.gradients.max_abs,
            "clip_scale": facts.clip_scale if facts.clip_scale is not None else math.nan,
        },
        message=(
            f"The sum of squared gradients overflowed float32: the largest finite gradient is "
            f"{shortest(np.float32(facts.gradients.max_abs))}, the norm became infinite and the clip scale "
            f"{shortest(facts.clip_scale or 0.0)}, so nothing trains in this step."
        ),
        advice="Scale the loss down, or unscale the gradients before the optimizer sees them.",
    )


def norm_underflow(facts: StepFacts) -> Iterator[Finding]:
    """The float32 sum of squares vanished although there are gradients other than zero."""
    if facts.grad_norm != 0 or facts.gradients.max_abs == 0:
        return
    yield Finding(
        rule="norm-underflow",
        severity="warning",
        step=facts.step,
        evidence={"grad_norm": 0.0, "largest_gradient": facts.gradients.max_abs},
        message=(
            f"The gradient norm reads 0 although the largest gradient is "
            f"{shortest(np.float32(facts.gradients.max_abs))}: its square is too small for float32."
        ),
        advice="Scale the loss up; check that the gradients were not divided twice.",
    )


def invalid_max_grad_norm(facts: StepFacts) -> Iterator[Finding]:
    """A clip limit that stops or reverses training: 0, negative or NaN."""
    limit = facts.hyper.max_grad_norm
    if limit > 0:
        return
    effect = (
        "every update is 0"
        if limit == 0
        else "gradients change their sign"
        if limit < 0
        else "it is undefined"
    )
    yield Finding(
        rule="invalid-max-grad-norm",
        severity="error",
        step=facts.step,
        evidence={
            "max_grad_norm": limit,
            "clip_scale": facts.clip_scale if facts.clip_scale is not None else math.nan,
        },
        message=f"max_grad_norm is {shortest(limit)}: with this clip limit {effect}.",
        advice="Set max_grad_norm to a positive number such as 1.0, or to inf for no clipping.",
    )


def decay_on_norm_or_bias(facts: StepFacts) -> Iterator[Finding]:
    """A norm gain or bias that lies in the wd block, so weight decay pulls it to 0."""
    if facts.hyper.weight_decay == 0:
        return
    block = facts.layout.block("wd")
    wrong = [s for s in block.segments if len(s.param.shape) < 2] if block else []
    if not wrong:
        return
    yield Finding(
        rule="decay-on-norm-or-bias",
        severity="warning",
        step=facts.step,
        param=wrong[0].name,
        evidence={"params": len(wrong), "weight_decay": facts.hyper.weight_decay},
        message=f"Weight decay is applied to {len(wrong):,} norm gains or biases, {wrong[0].name} among them.",
        advice="Put tensors of fewer than two dimensions in the block without decay.",
    )


def nonfinite_loss(facts: StepFacts) -> Iterator[Finding]:
    """A loss that is NaN or infinite."""
    if facts.loss is None or math.isfinite(facts.loss):
        return
    yield Finding(
        rule="nonfinite-loss",
        severity="error",
        step=facts.step,
        evidence={"loss": facts.loss},
        message=f"The loss is {shortest(facts.loss)}.",
        advice="Go back to the last step with a finite loss and look at the update that followed it.",
    )


def step_counter_reset(facts: StepFacts) -> Iterator[Finding]:
    """Moments of a run that has gone on for long, with a counter that says this is its first step."""
    if facts.step != 1 or not facts.initial_moments:
        return
    beta2 = facts.hyper.beta2
    yield Finding(
        rule="step-counter-reset",
        severity="warning",
        step=facts.step,
        evidence={"t": facts.step, "beta1": facts.hyper.beta1, "beta2": beta2},
        message=(
            "The moments m and v are not zero before step 1: the step counter was lost. The bias correction of step "
            f"1 takes v for {format(1 / (1 - beta2), '.4g') if beta2 < 1 else 'infinitely'} times what it is."
        ),
        advice="Restore t with the moments, or start with m = v = 0.",
    )


def nonfinite_state(facts: StepFacts) -> Iterator[Finding]:
    """Weights or moments that were not finite before the run began."""
    names = {"w": "weights", "m": "first moments", "v": "second moments"}
    for lane, stats in facts.initial_state.items():
        bad = stats.nonfinite
        if not bad.total:
            continue
        segment = facts.layout.at(bad.first) if bad.first is not None else None
        index = bad.first - segment.offset if segment and bad.first is not None else None
        where = ""
        if segment and index is not None:
            where = f", the first in {segment.name}{multi_index(index, segment.param.shape)}"
        yield Finding(
            rule="nonfinite-state",
            severity="error",
            step=facts.step,
            param=segment.name if segment else None,
            index=index,
            evidence={
                "lane": lane,
                "nan": bad.nan,
                "posinf": bad.posinf,
                "neginf": bad.neginf,
                "elements": stats.count,
            },
            message=(
                f"{bad.total:,} of {stats.count:,} {names[lane]} were not finite before this step ({bad.nan:,} NaN, "
                f"{bad.posinf:,} +Inf, {bad.neginf:,} -Inf){where}. An update that is not finite leaves its weight as "
                "it was, so these elements no longer train."
            ),
            advice="Go back to a state from before they appeared.",
        )


def invalid_setting(facts: StepFacts) -> Iterator[Finding]:
    """A hyper-parameter outside what it can mean; the kernels run it all the same. The clip limit has its own rule."""
    for name in HYPER_NAMES:
        value = getattr(facts.hyper, name)
        if name == "max_grad_norm":
            continue
        try:
            check_value(name, value)
        except UsageError as error:
            problem = str(error).removeprefix(f"--{name.replace('_', '-')} ").rstrip(".")
            yield Finding(
                rule="invalid-setting",
                severity="warning",
                step=facts.step,
                evidence={name: value},
                message=f"{name} {problem}.",
                advice=f"Set {name} to a value that AdamW is defined for.",
            )


RULES: tuple[Callable[[StepFacts], Iterator[Finding]], ...] = (
    nonfinite_loss,
    nonfinite_gradient,
    norm_overflow,
    norm_underflow,
    nonfinite_state,
    invalid_max_grad_norm,
    invalid_setting,
    decay_on_norm_or_bias,
    step_counter_reset,
)

RULE_NAMES = tuple(rule.__name__.replace("_", "-") for rule in RULES)
"""The rules as findings name them."""

SETTING_RULES = frozenset(
    {"invalid-max-grad-norm", "invalid-setting", "decay-on-norm-or-bias", "nonfinite-state"}
)
"""Rules about settings rather than a step's numbers: true at every step, so reported once."""


def step_findings(facts: StepFacts) -> list[Finding]:
    """Everything the rules find in one step, in the order of RULES."""
    return [finding for rule in RULES for finding in rule(facts)]


def multi_index(index: int, shape: tuple[int, ...]) -> str:
    """A flat index as people write it for that shape: "[3, 17]"."""
    if not shape:
        return "[]"
    return str([int(i) for i in np.unravel_index(index, shape)])
