"""Rules over the plan of a step: bindings, and elements that no dispatch updates. Looked at once a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import Memory
from inspector.diagnosis.rules.rule import Seen, Story, alone, element_at
from inspector.plan import Binding, Dispatch, Plan
from inspector.settings import IDLE

Check = Callable[[StepFacts, Plan], Iterator[Story]]


def misaligned_binding(facts: StepFacts, memory: Memory) -> Seen | None:
    """A binding that starts where this device cannot bind."""
    return _judged(facts, "misaligned", _misaligned)


def overlapping_bindings(facts: StepFacts, memory: Memory) -> Seen | None:
    """Two bindings of a dispatch that share bytes of which one is written, or elements that two dispatches update."""
    return _judged(facts, "overlapping", _overlapping)


def unwritten_elements(facts: StepFacts, memory: Memory) -> Seen | None:
    """Elements of a param that no update dispatch works on."""
    return _judged(facts, "unwritten", _unwritten)


def _judged(facts: StepFacts, what: str, check: Check) -> Seen | None:
    plan = facts.plan
    if plan is None:
        return None
    known = facts.layout.derived.get(f"diagnosis: {what}")
    if known is None or known[0] is not plan:
        known = facts.layout.derived[f"diagnosis: {what}"] = (plan, tuple(check(facts, plan)))
    stories: tuple[Story, ...] = known[1]
    return alone(bool(stories), lambda: stories[0], float(len(stories)))


def _misaligned(facts: StepFacts, plan: Plan) -> Iterator[Story]:
    for dispatch in plan.dispatches:
        for binding in dispatch.bindings:
            uniform = binding.access == "uniform"
            limits = plan.limits
            align = (
                limits.min_uniform_buffer_offset_alignment
                if uniform
                else limits.min_storage_buffer_offset_alignment
            )
            if binding.offset % align:
                yield Story(
                    f"{_named(dispatch)} binds {binding.name} (slot {binding.slot}) at byte {binding.offset:,} of "
                    f"{binding.buffer}, which is not a multiple of the {align} bytes that this device asks for.",
                    f"Lay the params out with an alignment of {align} bytes (--align {align}).",
                    {"offset": binding.offset, "align": align, "slot": binding.slot},
                    dispatch=dispatch.index,
                )


def _overlapping(facts: StepFacts, plan: Plan) -> Iterator[Story]:
    for dispatch in plan.dispatches:
        storage = [b for b in dispatch.bindings if b.access != "uniform"]
        for a, b in combinations(storage, 2):
            if "read_write" in (a.access, b.access) and _share(a, b):
                yield Story(
                    f"{_named(dispatch)} binds {a.name} (slot {a.slot}) and {b.name} (slot {b.slot}) to bytes "
                    f"of {a.buffer} "
                    f"that overlap, from {max(a.offset, b.offset):,} to {min(a.stop, b.stop):,}, and writes to them.",
                    "Bind ranges that share no bytes, or only read both.",
                    {"from": max(a.offset, b.offset), "to": min(a.stop, b.stop)}, dispatch=dispatch.index,
                )  # fmt: skip
    updates = sorted((d for d in plan.dispatches if d.updates), key=lambda d: d.elements)
    end, last = 0, -1
    for dispatch in updates:
        start, stop = dispatch.elements
        if last >= 0 and start < end:
            param, index, where = element_at(facts, start)
            yield Story(
                f"Dispatches {last} and {dispatch.index} both update elements {start:,} to "
                f"{min(stop, end) - 1:,}, from "
                f"{where or 'a gap'} on: their step is taken twice.",
                "Give each update dispatch a range of its own.",
                {"from": start, "to": min(stop, end)}, param, index, dispatch.index,
            )  # fmt: skip
        if stop > end:
            end, last = stop, dispatch.index


def _unwritten(facts: StepFacts, plan: Plan) -> Iterator[Story]:
    ranges = sorted(d.elements for d in plan.dispatches if d.updates)
    at = 0
    classes = plan.classes or (0,) * len(facts.layout.segments)
    for segment, of in zip(facts.layout, classes, strict=True):
        if of == IDLE:
            continue
        done = segment.offset
        while at < len(ranges) and ranges[at][1] <= done:
            at += 1
        look = at
        while look < len(ranges) and ranges[look][0] <= done < segment.stop:
            done = max(done, ranges[look][1])
            look += 1
        if done < segment.stop:
            missing = segment.stop - done
            yield Story(
                f"No dispatch updates {missing:,} of the {segment.numel:,} elements of {segment.name}, from "
                f"{element_at(facts, done)[2]} on: they never train.",
                "Check the sizes and offsets of the update dispatches.",
                {"elements": missing, "first": done - segment.offset}, segment.name, done - segment.offset,
            )  # fmt: skip


def _share(a: Binding, b: Binding) -> bool:
    return a.buffer == b.buffer and a.offset < b.stop and b.offset < a.stop


def _named(dispatch: Dispatch) -> str:
    return f"Dispatch {dispatch.index} ({dispatch.label})"
