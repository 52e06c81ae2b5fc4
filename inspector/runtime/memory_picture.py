"""What a run takes in memory as it is shown: its buffers on the device, and the bill of its params."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from inspector.layout import F32_BYTES
from inspector.memory_bill import Bill, bills
from inspector.optimizers import optimizer_of
from inspector.plan import Plan
from inspector.state_memory import BufferUse, run_use
from inspector.stepping import Stepper
from inspector.stores import Lane


@dataclass(frozen=True, slots=True, eq=False)
class MemoryPicture:
    """`use`: by lane, bytes worked out and as the device allocated them. `bills`: of training these params at all.

    `map_bytes` and `undo_bytes` are what looking at the run takes on the device: the cells and pixels of the map, and
    what is kept for going back.
    """

    use: tuple[BufferUse, ...]
    bills: tuple[Bill, ...]
    map_bytes: int = 0
    undo_bytes: int = 0
    scratch_bytes: int = 0
    """Of buffers that a step works things out in."""
    in_place: tuple[tuple[Lane, str, int], ...] = ()
    """Of lanes of which a part is no moment: what it is, and its bytes."""


class RunMemory:
    """Works the picture out once a plan: both look at every param, which no frame of the window has the time for."""

    def __init__(self) -> None:
        self._known: tuple[Plan, MemoryPicture] | None = None

    def of(self, stepper: Stepper) -> MemoryPicture:
        """What the run of this stepper takes; the same object while that is the same."""
        plan = stepper.plan
        looking = stepper.mapper.nbytes, stepper.undo_info.nbytes
        if self._known is None or self._known[0] is not plan:
            same = self._known is not None and self._known[0].layout is plan.layout
            billed = self._known[1].bills if self._known and same else bills(plan.layout.params)
            allocated = stepper.buffer_bytes
            scratch = sum(allocated.get(b.name, 0) for b in plan.buffers if b.kind == "scratch")
            self._known = (
                plan,
                MemoryPicture(run_use(plan, allocated), billed, *looking, scratch, tuple(_in_place(plan))),
            )
        elif (self._known[1].map_bytes, self._known[1].undo_bytes) != looking:
            map_bytes, undo_bytes = looking
            self._known = plan, replace(self._known[1], map_bytes=map_bytes, undo_bytes=undo_bytes)
        return self._known[1]


def _in_place(plan: Plan) -> Iterator[tuple[Lane, str, int]]:
    found: dict[tuple[Lane, str], int] = {}
    for segment in plan.layout:
        for place in optimizer_of(plan.variant, segment.param).in_place.items():
            found[place] = found.get(place, 0) + F32_BYTES * segment.numel
    for (lane, what), nbytes in found.items():
        yield lane, what, nbytes
