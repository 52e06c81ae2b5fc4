"""The map of a run on the device: which quantity of which lane stands in which cells, and when they are worked out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from inspector.gpu.coding_error import CodingErrorKernel
from inspector.gpu.device import Gpu
from inspector.gpu.map_ages import Ages
from inspector.gpu.map_image import Job, PixelKernels, check
from inspector.gpu.map_parts import Part, Runs, changed_parts, plain_parts
from inspector.gpu.map_pyramid import Levels, Pyramid, PyramidKernels
from inspector.gpu.memory import LaneMemory
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.undo import Entry, Range, UndoLog
from inspector.hyper import Hyper
from inspector.mapping import (
    QUANTITIES,
    Kind,
    MapPictures,
    MapRequest,
    Quantity,
    kind_of,
    lanes_of,
)
from inspector.param_hyper import columns
from inspector.plan import Plan
from inspector.stepping import Cursor
from inspector.stores import Lane, Store, stores

MAX_STEPS = 4096
"""Of settings that are kept for steps that can be gone back to."""


class GpuMapper:
    """See `inspector.mapping.Mapper`. `stands` gives the plan and where it stands.

    The stepper tells what it writes; cells are worked out when somebody looks, and only where that changed.
    """

    def __init__(
        self,
        gpu: Gpu,
        pipelines: Pipelines,
        memory: LaneMemory,
        undo: UndoLog,
        stands: Callable[[], tuple[Plan, Cursor]],
    ) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._memory = memory
        self._undo = undo
        self._stands = stands
        self.kernels = PyramidKernels(gpu, pipelines)
        self._images = PixelKernels(gpu, pipelines)
        self._pyramids: dict[Lane, Pyramid] = {}
        self._made_of: dict[Lane, tuple[Kind, Any]] = {}
        """What the cells of each lane are of: another kind or key and all of them are out of date."""
        self._levels: Levels | None = None
        self._runs: tuple[Any, Runs] | None = None
        self._ages: Ages | None = None
        self._coding: tuple[int, CodingErrorKernel] | None = None
        self._moves = 0
        self._updates: dict[int, tuple[Hyper, int]] = {}
        """The settings of each step, and the first of its dispatches that updates."""

    # --- what the stepper tells

    def wrote(self, ranges: Iterable[Range]) -> None:
        """Ranges of buffers hold something else now."""
        self._moves += 1
        if not self._pyramids:
            return
        held: dict[str, list[tuple[Lane, Store]]] = {}
        for lane in self._pyramids:
            for store in stores(self._memory.layout, lane):
                held.setdefault(store.buffer, []).append((lane, store))
        for buffer, offset, size in ranges:
            for lane, store in held.get(buffer, ()):
                self._pyramids[lane].stale.add(*store.elements(offset, size))

    def wrote_lane(self, lane: Lane) -> None:
        """All of a lane may hold something else now."""
        self._moves += 1
        if lane in self._pyramids:
            self._pyramids[lane].stale.add(0, self._memory.end)

    def updated(self, step: int, hyper: Hyper, dispatch: int) -> None:
        """A dispatch of a step has run that updates, with these settings."""
        known = self._updates.get(step)
        self._updates[step] = hyper, dispatch if known is None else min(known[1], dispatch)
        if len(self._updates) > MAX_STEPS:
            del self._updates[min(self._updates)]

    def given_gradients(self) -> None:
        """The gradients of the step at the cursor are in place."""
        self.wrote_lane("g")
        step = self._stands()[1].step
        # It may have run before, in another form, and have been gone back from.
        self._updates.pop(step, None)
        if self._ages is not None:
            self._ages.seen("g", step)

    def finished_step(self) -> None:
        """The step at the cursor is complete."""
        if self._ages is not None:
            plan, cursor = self._stands()
            for lane in plan.lanes:
                if lane != "g":
                    self._ages.seen(lane, cursor.step)

    def went_back(self) -> None:
        """The run stands at an earlier moment, or holds another state."""
        plan, cursor = self._stands()
        for lane in plan.lanes:
            self.wrote_lane(lane)
            if self._ages is not None:
                self._ages.back(lane, _begun_step(lane, cursor))
        if self._coding is not None and self._coding[0] > cursor.step:
            self._coding = None

    def coded(self, kernel: CodingErrorKernel | None) -> None:
        """Errors of coding the update to come have been measured, or are known no more."""
        self._moves += 1
        self._coding = None if kernel is None else (self._stands()[1].step, kernel)

    # --- looking

    def reasons(self) -> dict[Quantity, str]:
        """Why a quantity cannot be shown now, of those that cannot; not of what is measured once it is asked for."""
        found = {quantity: self._reason(kind_of(quantity)) for quantity in QUANTITIES}
        if self._codes:
            del found["coding_error"]
        return {quantity: reason for quantity, reason in found.items() if reason}

    @property
    def _codes(self) -> bool:
        """True where the plan codes m and v."""
        return self._stands()[0].variant.kernel == "8bit" and self._memory.coded

    def _reason(self, kind: Kind) -> str:
        _, cursor = self._stands()
        if kind == "change" and self._undo.top is None:
            return (
                "What was there before is not kept: no dispatch has run, or going back has too little memory."
            )
        if kind == "step_change" and self._since_start() is None:
            return (
                f"What was there at the start of step {cursor.step} is not in memory any more."
                if cursor.step
                else "No step has begun."
            )
        if kind == "update" and self._last_update() is None:
            return "No update is kept in memory: run a step, or give going back more memory (--undo-mb)."
        if kind == "coding_error":
            if not self._codes:
                return "m and v are in float32: choose the 8-bit kernel in the toolbar."
            if self._coding is None:
                return "Errors are measured before each update while this is shown: run a step."
        return ""

    def pixels(
        self, requests: Sequence[MapRequest], stop: Callable[[], bool] = lambda: False, *, stale: bool = False
    ) -> MapPictures | None:
        """The lanes as pixels, all requests being of one quantity; None once `stop`, asked between lanes, says so.

        With `stale` what was worked out of the lanes before is good enough, where there is any.
        """
        quantity, kind = requests[0].quantity, kind_of(requests[0].quantity)
        for request in requests:
            check(request)
        if kind != "age" and self._ages is not None:
            self._ages.close()
            self._ages = None
        reason = self._reason(kind)
        if reason:
            return MapPictures(tuple({} for _ in requests), reason)
        plan, cursor = self._stands()
        lanes = lanes_of(quantity, plan.lanes)
        levels = self._known_levels()
        runs = self._known_runs(kind)
        if kind == "age":
            self._count_ages(lanes)
        jobs: list[Job] = []
        for lane in lanes:
            if stop():
                return None
            step = _age_step(lane, cursor)
            for request in requests:
                if request.cell(levels.sizes) > 1:
                    if not (stale and lane in self._pyramids and self._made_of[lane][0] == kind):
                        self._refresh(lane, kind, runs, step)
                    jobs.append(Job(request, self._pyramids[lane], step))
                else:
                    jobs.append(Job(request, self._in_sight(kind, lane, request), step))
        found = self._images.run(jobs, kind, levels, runs)
        since = max(self._ages.since.values(), default=None) if self._ages is not None else None
        return MapPictures(
            tuple(
                {lane: found[i * len(requests) + k] for i, lane in enumerate(lanes)}
                for k in range(len(requests))
            ),
            since=since,
        )

    def rest(self) -> None:
        """Nobody looks any more: give the memory back, and count no ages."""
        for part in (*self._pyramids.values(), self._images, self.kernels, self._ages):
            if part is not None:
                part.close()
        self._pyramids.clear()
        self._made_of.clear()
        self._ages = None
        if self._runs is not None:
            self._runs[1].close()
            self._runs = None

    close = rest

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that the map holds."""
        parts = (*self._pyramids.values(), self._images, self.kernels, self._ages)
        return sum(part.nbytes for part in parts if part is not None)

    def refreshed(self, lane: Lane, quantity: Quantity = "value") -> Pyramid:
        """The cells of one lane, up to date."""
        kind = kind_of(quantity)
        step = _age_step(lane, self._stands()[1])
        self._known_levels()
        self._refresh(lane, kind, self._known_runs(kind), step)
        return self._pyramids[lane]

    # --- inside

    def _known_levels(self) -> Levels:
        if self._levels is None:
            self._levels = Levels.over(self._memory.end, self._gpu.limits)
        return self._levels

    def _refresh(self, lane: Lane, kind: Kind, runs: Runs, step: int) -> None:
        levels = self._known_levels()
        pyramid = self._pyramids.get(lane)
        if pyramid is None:
            pyramid = self._pyramids[lane] = Pyramid(self._gpu, levels)
        made_of = kind, self._key(kind)
        if self._made_of.get(lane) != made_of:
            self._made_of[lane] = made_of
            pyramid.stale.add(0, levels.end)
        if pyramid.stale:
            self.kernels.refresh(pyramid, kind, self._parts(kind, lane, 0, levels.end), runs, step)

    def _key(self, kind: Kind) -> Any:
        """What the cells of a kind hang on besides the lane itself."""
        if kind == "value":
            return None
        if kind == "step_change":
            return self._stands()[1].step
        # Of the last dispatch or update all cells may differ from those of the one before.
        return self._moves

    def _in_sight(self, kind: Kind, lane: Lane, request: MapRequest) -> tuple[Part, ...]:
        """The parts of what a request shows."""
        low = int(max(request.start, 0.0))
        high = min(int(request.start + request.width * request.elements_per_pixel) + 2, self._memory.end)
        parts = self._parts(kind, lane, low, high)
        return tuple(cut for cut in (part.cut(low, high) for part in parts) if cut is not None)

    def _parts(self, kind: Kind, lane: Lane, start: int, stop: int) -> Iterable[Part]:
        """The parts of elements [start, stop), and of others."""
        if kind == "change":
            top = self._undo.top
            return changed_parts(self._memory, lane, () if top is None else (top,))
        if kind == "step_change":
            return changed_parts(self._memory, lane, self._since_start() or ())
        if kind == "update":
            return changed_parts(self._memory, lane, self._last_update() or ())
        plain = plain_parts(self._memory, lane, start, stop)
        if kind == "age" and self._ages is not None:
            extra = self._ages.extra(lane)
            return (Part(part.now, part.low, part.high, extra) for part in plain)
        if kind == "coding_error" and self._coding is not None:
            return _coding_parts(plain, self._coding[1], lane)
        return plain

    def _since_start(self) -> tuple[Entry, ...] | None:
        """What was overwritten since the step at the cursor began, the newest first; None where that is not known."""
        _, cursor = self._stands()
        if cursor.dispatch == 0:
            return ()
        return self._undo.back_to(Cursor(cursor.step, 0, cursor.count))

    def _last_update(self) -> tuple[Entry, ...] | None:
        """What the latest update overwrote, the newest first; None where nothing of one is kept."""
        found: list[Entry] = []
        for entry in self._undo.newest_first():
            if found and entry.cursor.step != found[0].cursor.step:
                break
            if entry.cursor.at_end:
                continue
            if next(self._memory.saved(entry, "w", 0, self._memory.end), None) is not None:
                found.append(entry)
            elif not found and self._stands()[1].step - entry.cursor.step > 1:
                break
        known = self._updates.get(found[0].cursor.step) if found else None
        # Of a step of very many dispatches the first may have been dropped.
        return tuple(found) if known is not None and found[-1].cursor.dispatch <= known[1] else None

    def _known_runs(self, kind: Kind) -> Runs:
        """The runs of params, with the learning rate of the latest update where that is needed."""
        layout, hyper = self._memory.layout, None
        if kind == "update":
            entries = self._last_update()
            assert entries
            step = entries[0].cursor.step
            hyper = self._updates[step][0]
        if self._runs is None or self._runs[0] != hyper:
            if self._runs is not None:
                self._runs[1].close()
            lr = None
            if hyper is not None:
                lr = columns(hyper, layout, [s.name for s in layout], step).lr
            self._runs = hyper, Runs(self._gpu, layout, lr)
        return self._runs[1]

    def _count_ages(self, lanes: Sequence[Lane]) -> None:
        if self._ages is None:
            self._ages = Ages(self._gpu, self._pipelines, self._memory, self._known_levels())
        for lane in lanes:
            if lane not in self._ages.since:
                self._ages.begin(lane, _begun_step(lane, self._stands()[1]))


def _age_step(lane: Lane, cursor: Cursor) -> int:
    """The step whose gradients, or whose outcome, a lane holds."""
    return cursor.step if lane == "g" else cursor.finished_steps


def _begun_step(lane: Lane, cursor: Cursor) -> int:
    """The latest step that may have changed a lane so far."""
    return cursor.finished_steps if lane != "g" and cursor.dispatch == 0 else cursor.step


def _coding_parts(parts: Iterable[Part], kernel: CodingErrorKernel, lane: Lane) -> Iterable[Part]:
    """A moment beside the error of each block; nothing of what is in float32."""
    measured = kernel.measured(lane)
    for part in parts:
        for low, high, extra in measured:
            cut = part.cut(low, high)
            if cut is not None:
                yield Part(cut.now, cut.low, cut.high, extra)
