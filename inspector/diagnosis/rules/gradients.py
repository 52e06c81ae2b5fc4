"""Rules over the gradients: not finite, dead, exploding, vanishing."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import LEAST, Memory, Past
from inspector.diagnosis.rules.rule import (
    NOTHING,
    Seen,
    Story,
    alone,
    are,
    element_at,
    number,
    of_params,
    percent,
    the_same_in,
)
from inspector.floats import BoolArray
from inspector.number_words import nonfinite_counts
from inspector.statistics import NonFinite

DEAD_STEPS = 16
"""Without any gradient for so many steps: experts that see no token and adapters that begin at 0 take fewer."""
TREND_STEPS = 8
EXPLODES = 10.0
VANISHES = 1e-3


def nonfinite_gradient(facts: StepFacts, memory: Memory) -> Seen | None:
    """NaN or infinite gradients; of several params the one of which the smallest share is hit comes first."""
    counts = facts.gradients
    if counts is None:
        return None
    bad = counts.nonfinite
    table = facts.table
    if table is None:
        return alone(bad.total > 0, lambda: _nonfinite_of_few(facts, bad), bad.total)
    lane = table.lanes["g"]
    each = lane.nonfinite
    share = each / np.maximum(table.numel, 1)

    def tell(row: int) -> Story:
        kinds = NonFinite(
            int(lane.nan[row]), int(lane.posinf[row]), int(lane.neginf[row]), int(lane.first[row])
        )
        return _nonfinite(facts, bad, kinds, *element_at(facts, int(lane.first[row])))

    return of_params(facts, each > 0, each.astype("f8"), tell, -share)


def _nonfinite_of_few(facts: StepFacts, bad: NonFinite) -> Story:
    """Where the params were not all counted: the param of which the smallest share is hit, or the first element."""
    shares = {name: kinds.total / max(facts.layout[name].numel, 1) for name, kinds in facts.nonfinite.items()}
    if not shares:
        return _nonfinite(facts, bad, None, *element_at(facts, bad.first))
    # Of equals the first in memory.
    origin = min(shares, key=lambda name: shares[name])
    here = facts.nonfinite[origin]
    story = _nonfinite(facts, bad, here, *element_at(facts, here.first))
    others = [name for name in sorted(shares, key=lambda name: shares[name]) if name != origin]
    if not others:
        return story
    return replace(
        story,
        message=f"{story.message} {the_same_in(others)}",
        evidence={**story.evidence, "params": len(shares)},
    )


def _taken(facts: StepFacts) -> str:
    """What an optimizer that takes them as they are makes of them."""
    unless = "unless the step is skipped, w, m and v of"
    norm = facts.grad_norm
    if norm is None or math.isfinite(norm):
        return f"The optimizer takes them as they are: {unless} these elements are not finite from now on."
    if math.isnan(norm):
        return (
            "Clipping by a norm that is not finite (NaN) has made all gradients that were clipped with them NaN: "
            f"{unless} all those elements are not finite from now on."
        )
    return (
        "Clipping by a norm that is not finite (inf) has made them NaN and the others 0: "
        f"{unless} these elements are not finite from now on."
    )


def _nonfinite(
    facts: StepFacts,
    total: NonFinite,
    here: NonFinite | None,
    param: str | None,
    index: int | None,
    where: str,
) -> Story:
    """`here` is what the param has of them, None where that is not known."""
    assert facts.gradients is not None
    elements = facts.gradients.count
    evidence: dict[str, float | int] = {
        "nan": total.nan, "posinf": total.posinf, "neginf": total.neginf, "elements": elements,
        "share": total.total / max(elements, 1),
    }  # fmt: skip
    of_param = ""
    if here is not None and param is not None:
        numel = facts.layout[param].numel
        evidence |= {"in_param": here.total, "param_share": here.total / max(numel, 1)}
        of_param = (
            f", which has {here.total:,} ({percent(here.total / max(numel, 1))} of its {numel:,} elements)"
        )
    after = (
        _taken(facts) if facts.origin else "The kernels take them as 0, so norm and clip scale look healthy."
    )
    return Story(
        f"{total.total:,} of {elements:,} gradients {are(total.total)} not finite ("
        f"{nonfinite_counts(total.nan, total.posinf, total.neginf)})"
        f"{f', the first in {where}' if where else ''}{of_param}. {after}",
        "Look at the loss and the layer that owns the first of them; check for overflow in its forward pass.",
        evidence, param, index, 0,
    )  # fmt: skip


# --- nothing comes


def is_dead(facts: StepFacts, past: Past) -> BoolArray:
    """Params all of whose gradients are 0."""
    assert facts.table is not None
    return np.asarray((facts.table.lanes["g"].zeros == facts.table.numel) & (facts.table.numel > 0))


def dead_gradient(facts: StepFacts, memory: Memory) -> Seen | None:
    """A param that gets no gradient at all while others do."""
    if facts.table is None:
        return None
    runs = memory.now.run("dead")
    # Where nothing has a gradient there is another rule.
    some = bool((~is_dead(facts, memory.before) & (facts.table.numel > 0)).any())

    def tell(row: int) -> Story:
        segment, steps = facts.segment(row), int(runs[row])
        if facts.idle[row]:
            return Story(
                f"{segment.name} has had no gradient for {steps:,} steps, in which it takes no part, while other "
                "params have some: it does not train.",
                "Check that it takes part in the loss; leave it out of the optimizer where it is frozen on purpose.",
                {"steps": steps, "elements": segment.numel}, segment.name, None, 0,
            )  # fmt: skip
        return Story(
            f"Every gradient of {segment.name} has been 0 for {steps:,} steps, while other params have some: "
            "it does not "
            "train.",
            "Check that it takes part in the loss, that nothing detaches it, and that its activation is not "
            "stuck at 0; "
            "leave it out of the optimizer where it is frozen on purpose.",
            {"steps": steps, "elements": segment.numel}, segment.name, None, 0,
        )  # fmt: skip

    hit = (runs >= DEAD_STEPS) & some & _there(facts)
    return of_params(facts, hit, hit.astype("f8"), tell)


def _there(facts: StepFacts) -> BoolArray:
    """Params that the run has by now: others join it later."""
    assert facts.table is not None
    own = facts.hyper.per_param
    if own is None or len(own.of) >= len(facts.layout.segments):
        return np.ones(len(facts.table), np.bool_)
    return np.array([facts.layout.number_of(name) < len(own.of) for name in facts.table.names], np.bool_)


NO_GRADIENT_STEPS = 8


def no_gradient(facts: StepFacts, memory: Memory) -> Seen | None:
    """No gradient anywhere: they were zeroed before the step, or never reach the optimizer."""
    norms = memory.latest("grad_norm", NO_GRADIENT_STEPS)
    if facts.gradients is None or facts.grad_norm is None:
        return None
    none = len(norms) == NO_GRADIENT_STEPS and all(n == 0 for n in norms)
    none = none and facts.gradients.max_abs == 0 and not facts.gradients.nonfinite.total

    def tell() -> Story:
        return Story(
            f"Every gradient of every param has been 0 for {NO_GRADIENT_STEPS} steps: nothing trains but for "
            "weight decay.",
            "Check that gradients are not set to 0 between the backward pass and the step, and that the loss "
            "hangs on the "
            "weights.",
            {"steps": NO_GRADIENT_STEPS}, dispatch=0,
        )  # fmt: skip

    return alone(none, tell)


INTERMITTENT_STEPS = 16


def intermittent_gradient(facts: StepFacts, memory: Memory) -> Seen | None:
    """No gradient in most steps, and some again at even distances: stepped within an accumulation, or twice."""
    if facts.gradients is None or facts.grad_norm is None:
        return None
    norms = memory.latest("grad_norm", INTERMITTENT_STEPS)
    some = np.flatnonzero(np.array(norms) != 0)
    none = len(norms) - len(some)
    # A norm of 0 under gradients that are not is another matter.
    vanishes = facts.grad_norm == 0 and facts.gradients.max_abs > 0
    period = int(some[-1] - some[-2]) if len(some) > 1 else 0
    # Not one after the other, nor until some time ago: they come back after as many steps each time, still.
    even = period > 1 and bool((np.diff(some) == period).all())
    even = even and some[0] < period and len(norms) - 1 - some[-1] < period
    hit = len(norms) == INTERMITTENT_STEPS and 2 * none >= INTERMITTENT_STEPS and even and not vanishes

    def tell() -> Story:
        return Story(
            f"Every gradient of every param was 0 in {none} of the last {INTERMITTENT_STEPS} steps: only every "
            f"{_nth(period)} has any. The moments decay in between, and weights move by what is left of them.",
            "Step the optimizer once gradients are accumulated and not with every micro-batch; look for a second call "
            "of step after zero_grad.",
            {"steps_without": none, "of": INTERMITTENT_STEPS, "period": period}, dispatch=0,
        )  # fmt: skip

    return alone(hit, tell)


def _nth(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


# --- where the norm goes


def exploding_gradient(facts: StepFacts, memory: Memory) -> Seen | None:
    """The global norm has stayed at many times what it was; a single step is a spike."""
    return _trend(facts, memory, EXPLODES)


def vanishing_gradient(facts: StepFacts, memory: Memory) -> Seen | None:
    """The global norm has fallen to nothing while the loss has not."""
    return _trend(facts, memory, VANISHES)


def _trend(facts: StepFacts, memory: Memory, factor: float) -> Seen | None:
    if facts.grad_norm is None:
        return None
    recent = memory.latest("grad_norm", TREND_STEPS)
    usual = memory.window("grad_norm", until=TREND_STEPS)
    usual = usual[usual > 0]
    finite = [n for n in recent if 0 < n < np.inf]
    if len(usual) < LEAST or len(finite) < TREND_STEPS:
        return NOTHING
    before, now = float(np.exp2(np.log2(usual).mean())), float(np.exp2(np.log2(finite).mean()))
    up = factor > 1
    # All of the last steps, so that one of them alone decides nothing.
    edge = min(finite) / before if up else max(finite) / before
    hit = edge >= factor if up else edge <= factor
    if not up and hit and _has_converged(memory):
        hit = False

    def tell() -> Story:
        evidence = {"grad_norm": now, "usual": before, "ratio": now / before, "steps": TREND_STEPS}
        if up:
            return Story(
                f"The gradient norm has been {number(now)} over the last {TREND_STEPS} steps, "
                f"{number(now / before)} times "
                f"the {number(before)} that it was over the {len(usual)} steps before: the gradients explode.",
                "Go back to where the norm began to rise and lower the learning rate there, or lengthen the warm-up.",
                evidence, dispatch=facts.dispatch_writing("grad_stats"),
            )  # fmt: skip
        return Story(
            f"The gradient norm has been {number(now)} over the last {TREND_STEPS} steps, "
            f"{number(before / now)} times less "
            f"than the {number(before)} of the {len(usual)} steps before, and the loss has not come down with it: the "
            "gradients vanish.",
            "Look for activations that saturated, a loss that is masked away, or gradients divided once too often.",
            evidence, dispatch=facts.dispatch_writing("grad_stats"),
        )  # fmt: skip

    return alone(hit, tell, now / before if up else before / now)


def _has_converged(memory: Memory) -> bool:
    """True where the loss has come down to a tenth, so that small gradients are as it should be."""
    loss = memory.window("loss", TREND_STEPS)
    before = memory.window("loss", until=TREND_STEPS)
    return len(loss) > 0 and len(before) > 0 and bool(np.abs(loss).mean() <= 0.1 * np.abs(before).mean())
