"""Rules over clipping by the global norm."""

from __future__ import annotations

import math

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import WINDOW, Memory
from inspector.diagnosis.rules.rule import Seen, Story, alone, exact, number

COLLAPSED = 1e-3
SATURATED = 0.1
SCALED_STEPS = 8
SCALED = 1024.0


def invalid_max_grad_norm(facts: StepFacts, memory: Memory) -> Seen | None:
    """A clip limit that stops or reverses training: 0, negative or NaN. Infinity is no clipping, which is allowed."""
    limit = facts.hyper.max_grad_norm
    effect = (
        "every update is 0"
        if limit == 0
        else "gradients change their sign"
        if limit < 0
        else "it is undefined"
    )

    def tell() -> Story:
        scale = math.nan if facts.clip_scale is None else facts.clip_scale
        return Story(
            f"max_grad_norm is {exact(limit)}: with this clip limit {effect}.",
            "Set max_grad_norm to a positive number such as 1.0, or to inf for no clipping.",
            {"max_grad_norm": limit, "clip_scale": scale}, dispatch=facts.dispatch_writing("grad_stats"),
        )  # fmt: skip

    return alone(not limit > 0, tell)


def clip_collapse(facts: StepFacts, memory: Memory) -> Seen | None:
    """The clip scale takes almost all of the gradient away."""
    scale, norm = facts.clip_scale, facts.grad_norm
    if scale is None or norm is None:
        return None
    hit = 0 < scale < COLLAPSED and facts.hyper.max_grad_norm > 0

    def tell() -> Story:
        return Story(
            f"The clip scale is {number(scale)}: the gradient norm of {number(norm)} is {number(1 / scale)} "
            "times the limit "
            f"of {number(_limit(facts))}. Beside this step all others hardly count in m and v.",
            "Look for what made the norm so large in this step; skip the step where it is one bad batch.",
            {"clip_scale": scale, "grad_norm": norm, "max_grad_norm": _limit(facts)},
            dispatch=facts.dispatch_writing("grad_stats"),
        )  # fmt: skip

    return alone(hit, tell, 1 / scale if scale else 0.0)


def clip_saturated(facts: StepFacts, memory: Memory) -> Seen | None:
    """Every step of the window was clipped to less than a tenth: the limit sets the size of all gradients."""
    scales = memory.latest("clip_scale", WINDOW)
    if facts.clip_scale is None:
        return None
    known = np.array(scales)
    full = len(known) == WINDOW and facts.hyper.max_grad_norm > 0
    worst = float(known.max()) if full else math.inf

    def tell() -> Story:
        middle = float(np.median(known))
        return Story(
            f"Each of the last {WINDOW} steps was clipped, to {number(middle)} of its gradient in the middle and to "
            f"{number(worst)} at most: max_grad_norm {number(_limit(facts))} sets the size of "
            "every gradient.",
            "Set max_grad_norm near the norms that healthy steps have, so that it cuts off the exceptions alone.",
            {"clip_scale": facts.clip_scale or 0.0, "median": middle, "largest": worst, "steps": WINDOW},
            dispatch=facts.dispatch_writing("grad_stats"),
        )  # fmt: skip

    return alone(worst < SATURATED, tell, 1.0)


def loss_scaled_gradient(facts: StepFacts, memory: Memory) -> Seen | None:
    """Gradients that are still multiplied by a loss scale when they are clipped."""
    limit = facts.hyper.max_grad_norm
    norms = [n for n in memory.latest("grad_norm", SCALED_STEPS) if math.isfinite(n)]
    if facts.grad_norm is None or not 0 < limit < math.inf:
        return None
    least = min(norms) if len(norms) == SCALED_STEPS else 0.0
    hit = least >= SCALED * limit and (facts.loss is None or abs(facts.loss) < SCALED)

    def tell() -> Story:
        middle = float(np.exp2(np.log2(norms).mean()))
        power = round(math.log2(middle / limit))
        return Story(
            f"For {SCALED_STEPS} steps the gradient norm has been {number(middle)}, about 2^{power} times the "
            "clip limit of "
            f"{number(limit)}, "
            f"{'while the loss is ' + number(facts.loss) if facts.loss is not None else 'in every step'}: "
            "the gradients seem to be multiplied by a loss scale still.",
            "Unscale the gradients before they are clipped and before the optimizer sees them "
            "(scaler.unscale_(optimizer) in PyTorch).",
            {"grad_norm": middle, "max_grad_norm": limit, "log2_ratio": power, "steps": SCALED_STEPS},
            dispatch=facts.dispatch_writing("grad_stats"),
        )  # fmt: skip

    return alone(hit, tell)


def _limit(facts: StepFacts) -> float:
    """The clip limit; of a step that another program ran, as it follows from the norm and the scale."""
    if facts.origin and facts.grad_norm is not None and facts.clip_scale is not None:
        return float(np.float32(facts.grad_norm * facts.clip_scale))
    return facts.hyper.max_grad_norm
