"""Rules over what is usual: a value far outside the last 128 steps, and a loss that goes up for good."""

from __future__ import annotations

import math

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import LEAST, Memory, log2_of
from inspector.diagnosis.rules.rule import NOTHING, Seen, Story, alone, exact, number, of_params
from inspector.floats import BoolArray, F64Array

Z = 6.0
LOSS_RISE = 0.25
NORM_RATIO = 16.0
PARAM_RATIO = 32.0
DIVERGING_STEPS = 16
RECENT = 8
"""Steps whose mean is where a norm has come to."""
LEAST_SPREAD = 0.05
"""Of log₂ norms and of losses relative to their mean: a window calmer than that makes no spike of a small rise."""


def nonfinite_loss(facts: StepFacts, memory: Memory) -> Seen | None:
    """A loss that is NaN or infinite."""
    if facts.loss is None:
        return None
    loss = facts.loss

    def tell() -> Story:
        return Story(
            f"The loss is {exact(loss)}.",
            "Go back to the last step with a finite loss and look at the update that followed it.",
            {"loss": loss},
        )

    return alone(not math.isfinite(loss), tell)


def loss_spike(facts: StepFacts, memory: Memory) -> Seen | None:
    """A loss far above that of the last steps."""
    if facts.loss is None:
        return None
    usual = memory.window("loss", until=1)
    if len(usual) < LEAST or not math.isfinite(facts.loss):
        return NOTHING
    mean = float(usual.mean())
    expected, deviation = _trend(usual)
    spread = max(deviation, LEAST_SPREAD * abs(mean) / Z, 1e-12)
    # A loss that has been rising is no spike where it goes on to.
    z, rise = (facts.loss - max(mean, expected)) / spread, facts.loss - mean
    hit = z >= Z and rise >= LOSS_RISE * abs(mean)

    def tell() -> Story:
        return Story(
            f"The loss jumped to {number(facts.loss or 0)} nats: over the {len(usual)} steps before it was "
            f"{number(mean)}, with a standard deviation of {number(deviation)} about its trend (z = {number(z)}).",
            "Look at the updates of the last steps, the largest in units of the learning rate above all, and "
            "at the batch.",
            {"loss": facts.loss or 0.0, "mean": mean, "std": deviation, "z": z, "window": len(usual)},
        )  # fmt: skip

    return alone(hit, tell, max(rise, 0.0))


def _trend(values: F64Array) -> tuple[float, float]:
    """What a straight line through the values leads to next, and their standard deviation about it.

    While a loss falls, its deviation from the mean is that of the fall, and would hide a spike.
    """
    at = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float(at @ values) / float(at @ at)
    mean = float(values.mean())
    return mean + slope * (len(values) + 1) / 2, float(np.std(values - mean - slope * at))


def loss_divergence(facts: StepFacts, memory: Memory) -> Seen | None:
    """A loss that has gone up and stays there."""
    if facts.loss is None:
        return None
    recent = np.array(memory.latest("loss", DIVERGING_STEPS))
    usual = memory.window("loss", until=DIVERGING_STEPS)
    if len(recent) < DIVERGING_STEPS or len(usual) < LEAST or not np.isfinite(recent).all():
        return NOTHING
    # The lower of the two in the middle: more than half are as high.
    mean, now = float(usual.mean()), float(np.sort(recent)[DIVERGING_STEPS // 2 - 1])
    hit = now > float(usual.max()) and now - mean >= LOSS_RISE * abs(mean)

    def tell() -> Story:
        return Story(
            f"The loss has been {number(now)} nats over the last {DIVERGING_STEPS} steps (median), above all of the "
            f"{len(usual)} before, whose mean is {number(mean)}: training diverges.",
            "Go back to before the rise; lower the learning rate there, or lower β₂ to 0.95 so that v keeps up "
            "with g².",
            {"loss": now, "mean": mean, "highest_before": float(usual.max()), "steps": DIVERGING_STEPS},
        )  # fmt: skip

    return alone(hit, tell, max(now - mean, 0.0))


def gradient_spike(facts: StepFacts, memory: Memory) -> Seen | None:
    """A gradient norm many times that of the last steps."""
    norm = facts.grad_norm
    if norm is None:
        return None
    usual = memory.window("grad_norm", until=1)
    usual = usual[usual > 0]
    if len(usual) < LEAST or not 0 < norm < math.inf:
        return NOTHING
    logs = np.log2(usual)
    expected, deviation = _trend(logs)
    # Where it falls it is held against where it has come to; where it rises, against what that leads to.
    level = max(expected, float(logs[-RECENT:].mean()))
    spread = max(deviation, LEAST_SPREAD)
    z, ratio = (math.log2(norm) - level) / spread, norm / 2**level

    def tell() -> Story:
        return Story(
            f"The gradient norm is {number(norm)}, {number(ratio)} times the {number(2**level)} that the {len(usual)} "
            f"steps before lead to (z = {number(z)} of its logarithm about their trend).",
            "Look at the params whose own norms jumped, and at the batch of this step.",
            {"grad_norm": norm, "usual": 2**level, "ratio": ratio, "z": z, "window": len(usual)},
            dispatch=facts.dispatch_writing("grad_stats"),
        )  # fmt: skip

    return alone(z >= Z and ratio >= NORM_RATIO, tell, ratio)


def param_gradient_spike(facts: StepFacts, memory: Memory) -> Seen | None:
    """A param whose gradient norm is many times what it was; where all jump, the one that jumps most comes first."""
    if facts.table is None:
        return None
    norms = facts.table.lanes["g"].norm
    now = log2_of(norms)
    above, z, usual, hit = _beyond(now, memory)

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        ratio = float(2 ** above[row])
        steps = int(np.isfinite(memory.log2_norms(np.arange(len(norms)) == row)).sum())
        return Story(
            f"The gradient norm of {segment.name} is {number(norms[row])}, {number(ratio)} times the "
            f"{number(2 ** usual[row])} that the {steps} steps before lead to (z = {number(z[row])} of its logarithm "
            "about their trend).",
            "Look at what feeds this param in the batch of this step.",
            {
                "grad_norm": float(norms[row]), "usual": float(2 ** usual[row]), "ratio": ratio, "z": float(z[row]),
                "window": steps,
                "largest_gradient": float(facts.table.lanes["g"].max_abs[row]) if facts.table else math.nan,
            },
            segment.name, None, 0,
        )  # fmt: skip

    return of_params(facts, hit, np.where(hit, np.exp2(np.minimum(above, 1000.0)), 0.0), tell)


def _beyond(now: F64Array, memory: Memory) -> tuple[F64Array, F64Array, F64Array, BoolArray]:
    """How far log₂ norms are above what theirs lead to, that in deviations, and what that is; and which are spikes.

    The trend is worked out for those alone that are far above their last steps, as every spike is: 0 for the others.
    """
    above, z, usual = np.zeros(len(now)), np.zeros(len(now)), np.zeros(len(now))
    latest = memory.log2_norms(steps=RECENT)
    near = now - latest.sum(axis=0) / max(len(latest), 1)
    # Where one of them is not known, the last that are have to be looked for further back.
    chosen = np.isfinite(now) & ~(near < math.log2(PARAM_RATIO))
    if len(latest) and chosen.any():
        values = memory.log2_norms(chosen)
        expected, deviation, recent = _trends(values)
        usual[chosen] = np.maximum(expected, recent)
        enough = np.isfinite(values).sum(axis=0) >= LEAST
        above[chosen] = np.where(enough, now[chosen] - usual[chosen], 0.0)
        z[chosen] = above[chosen] / np.maximum(deviation, LEAST_SPREAD)
    return above, z, usual, (above >= math.log2(PARAM_RATIO)) & (z >= Z)


def _trends(values: F64Array) -> tuple[F64Array, F64Array, F64Array]:
    """`_trend` of each column of float64[steps, n] over those that are not NaN, and the mean of the last RECENT."""
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    order = np.cumsum(known, axis=0) - 1
    at = np.where(known, order - (count - 1) / 2, 0.0)
    value = np.where(known, values, 0.0)
    slope = (at * value).sum(axis=0) / np.maximum((at * at).sum(axis=0), 1e-300)
    mean = value.sum(axis=0) / count
    off = np.where(known, value - mean - slope * at, 0.0)
    late = known & (order >= count - RECENT)
    recent = np.where(late, value, 0.0).sum(axis=0) / np.maximum(late.sum(axis=0), 1)
    return mean + slope * (count + 1) / 2, np.sqrt((off * off).sum(axis=0) / count), recent
