"""Rules over what a user's own kernels left behind once a step was complete."""

from __future__ import annotations

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import Memory
from inspector.diagnosis.rules.rule import NOTHING, Seen, Story, alone, are, multi_index, number, two_numbers


def gradients_not_zeroed(facts: StepFacts, memory: Memory) -> Seen | None:
    """Gradients that are left after the update, which the next backward pass would add to."""
    if facts.after is None or facts.after.gradients is None:
        return None
    counts = facts.after.gradients
    left = counts.count - counts.zeros

    def tell() -> Story:
        return Story(
            f"{left:,} of {counts.count:,} gradients {are(left)} not 0 after the step, the largest is "
            f"{number(counts.max_abs)}: the "
            "next backward pass adds to them.",
            "Let the update kernel write 0 to g, or run fill_zero after it.",
            {"elements": left, "largest": counts.max_abs}, dispatch=_last(facts),
        )  # fmt: skip

    return alone(left > 0, tell, float(left))


def padding_not_zero(facts: StepFacts, memory: Memory) -> Seen | None:
    """Elements between params that are no longer 0: a kernel wrote beyond the end of one."""
    if facts.after is None:
        return None
    padding = facts.after.padding
    total = sum(padding.values())

    def tell() -> Story:
        lanes = ", ".join(f"{count:,} in {lane}" for lane, count in padding.items() if count)
        return Story(
            f"{total:,} elements between params are not 0 after the step ({lanes}): a kernel writes beyond the "
            "end of a param. "
            "They count in the norm.",
            "Compare the flat index with size before writing, and load no more than size elements.",
            {"elements": total, **padding}, dispatch=_last(facts),
        )  # fmt: skip

    return alone(total > 0, tell, float(total))


def own_kernel_differs(facts: StepFacts, memory: Memory) -> Seen | None:
    """w, m or v after the user's kernel are not those of the built-in one on the same step."""
    if facts.after is None or facts.after.differs is None:
        return NOTHING if facts.after is not None else None
    found = facts.after.differs
    segment = facts.layout[found.param]
    place = f"{found.lane} of {found.param}{multi_index(found.index, segment.param.shape)}"

    def tell() -> Story:
        own, built_in = two_numbers(found.own, found.built_in)
        line = f" The first line of the update that does not fit is {found.line}." if found.line else ""
        return Story(
            f"After this step {place} is {own} by your kernel and {built_in} by the built-in one.{line}",
            f"Set your line beside the built-in one: inspector explain … --param {found.param} --index {found.index}.",
            {
                "lane": found.lane, "own": found.own, "built_in": found.built_in, "difference": found.difference,
                "norm": found.norm, "line": found.line,
            },
            found.param, found.index, facts.dispatch_updating(segment.offset + found.index),
        )  # fmt: skip

    return alone(True, tell, found.difference / found.norm if found.norm else 1.0)


def _last(facts: StepFacts) -> int | None:
    return facts.plan.dispatches[-1].index if facts.plan and facts.plan.dispatches else None
