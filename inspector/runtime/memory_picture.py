"""What a run takes in memory as it is shown: its buffers on the device, and the bill of its params."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inspector.memory_bill import Bill, bills
from inspector.plan import Plan
from inspector.state_memory import BufferUse, run_use
from inspector.stepping import Stepper


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
            self._known = plan, MemoryPicture(run_use(plan, stepper.buffer_bytes), billed, *looking)
        elif (self._known[1].map_bytes, self._known[1].undo_bytes) != looking:
            map_bytes, undo_bytes = looking
            self._known = plan, replace(self._known[1], map_bytes=map_bytes, undo_bytes=undo_bytes)
        return self._known[1]
