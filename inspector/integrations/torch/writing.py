"""The thread that turns steps of PyTorch into steps of a session: it waits for devices so that the script need not."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from inspector.diagnosis.diagnosis import Diagnosis
from inspector.errors import InspectorError
from inspector.findings import Finding
from inspector.floats import significant
from inspector.integrations.torch.counting import Counted, table_of
from inspector.integrations.torch.facts import facts_of, recorded_facts
from inspector.integrations.torch.keeping import Keeping
from inspector.integrations.torch.pending import I64Array, Pending, Settling, Unclipped
from inspector.layout import BlockName, Layout, Param
from inspector.param_statistics import LaneColumns, ParamTable, UpdateColumns, counts_of
from inspector.plan import Limits, layout_for
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.records import About, RecordedLayout, RecordedStep, Shard
from inspector.statistics import NonFinite
from inspector.stepping import HostState

WAITING = 64
"""Steps that may wait for this thread; where a step takes less time than what is made of it, the script waits."""

PATIENCE_S = 60
"""How long the script waits then, before it goes on without being recorded."""


@dataclass(frozen=True, slots=True, eq=False)
class Grown:
    """Params that joined; `t` are their step counts, `state` the one before `step`, where it is captured."""

    step: int
    params: tuple[Param, ...]
    dtypes: tuple[str, ...]
    shards: tuple[Shard | None, ...]
    t: tuple[int, ...]
    state: Pending | None


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to be noted at a step."""

    step: int
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class PutInPlace:
    """The script wrote w, m or v before `step`, as `texts` say.

    `t` are the step counts of the params then, `state` is what stands there, where it is captured.
    """

    step: int
    texts: tuple[str, ...]
    t: tuple[int, ...]
    state: Pending | None


@dataclass(frozen=True, slots=True, eq=False)
class Save:
    """The flight recorder is written, as `text` of `step` says; `done` is set once it is on disk."""

    step: int
    text: str
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class End:
    """The last item. The flight recorder is written where the run `failed`."""

    reason: str | None
    failed: bool


Item = Pending | Grown | Remark | PutInPlace | Save | End


class Writer:
    """Takes steps in order and offers them to `recorder`, with what the rules find in them.

    `problem` is a sentence once it could not go on; `skipped` counts steps that a fused optimizer left out by itself.
    """

    def __init__(
        self,
        recorder: Recorder,
        t: I64Array,
        *,
        earlier: Session | None = None,
        check: Callable[[int, Any], Finding | None] | None = None,
    ) -> None:
        """`t` is the step count of each param now, `earlier` the session that is gone on with.

        `check` is told of checksums of the weights, and gives what is wrong with another process.
        """
        self.recorder = recorder
        self.problem: str | None = None
        self.skipped = 0
        self._t = t.copy()
        self._check = check
        self._settling = Settling()
        self._unclipped = False
        """Whether the step before was counted as it was before clipping."""
        self._put_in_place = 0
        """The last step before which the script wrote w, m or v."""
        self._laid: _Laid | None = None
        layout = self._layout().layout
        self._earlier = earlier
        self._diagnosis = Diagnosis(
            lambda step: recorded_facts(earlier, step, layout) if earlier is not None else None
        )
        self._found_late: list[Finding] = []
        self._queue: queue.Queue[Item] = queue.Queue(WAITING)
        self._keeping = Keeping(
            lambda: recorder.durable_step, lambda: (self.problem or recorder.problem) is not None
        )
        recorder.call_when_written(self._keeping.advanced)
        self._thread = threading.Thread(target=self._run, name="inspector-torch", daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Hand it over; waits where too many wait already, InspectorError where that does not end."""
        try:
            self._queue.put(item, timeout=PATIENCE_S)
        except queue.Full:
            raise InspectorError(
                f"The recording {self.recorder.path} could not keep up: nothing of it was written for {PATIENCE_S} s."
            ) from None

    def wait_for(self, step: int) -> None:
        """Wait until `step` would outlive the process; where that takes too long, note it and go on."""
        waited_s = self._keeping.wait_for(step)
        if waited_s is not None:
            self.put(Remark(step, f"not on disk after {waited_s:.0f} s: a kill may lose steps from here on"))

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until `End` was carried out; False where that takes longer."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """How many items wait."""
        return self._queue.qsize()

    # --- the thread

    def _run(self) -> None:
        with torch.no_grad():
            while True:
                item = self._queue.get()
                try:
                    self._take(item)
                except Exception as error:  # noqa: BLE001 - the script goes on whatever happens here
                    self.problem = self.problem or _sentence(error)
                    self._keeping.advanced()
                if isinstance(item, End):
                    break
        if self._earlier is not None:
            with contextlib.suppress(Exception):
                self._earlier.close()

    def _take(self, item: Item) -> None:
        recorder = self.recorder
        if isinstance(item, End):
            if item.failed:
                recorder.fire()
            # What could not be gone on with is said in the session as well.
            recorder.close(item.reason or self.problem)
            self.problem = self.problem or recorder.problem
        elif self.problem is not None:
            return
        elif isinstance(item, Remark):
            recorder.mark(item.step, item.text)
        elif isinstance(item, Save):
            recorder.mark(item.step, item.text)
            recorder.fire()
            recorder.flush()
            item.done.set()
        elif isinstance(item, PutInPlace):
            self._t = np.array(item.t, np.int64)
            self._put_in_place = item.step
            for text in item.texts:
                recorder.mark(item.step, text)
            if item.state is not None:
                recorder.put_in_place(_state(item.state, item.step - 1))
        elif isinstance(item, Grown):
            self._grow(item)
        else:
            self._step(item)
            self.problem = recorder.problem

    def _grow(self, item: Grown) -> None:
        state = HostState({}, {}, {}, item.step - 1)
        if item.state is not None and item.state.keyframe is not None:
            state = _state(item.state, item.step - 1)
        self.recorder.add_params(item.step, item.params, state, dtypes=item.dtypes, shards=item.shards)
        self._t = np.concatenate((self._t, np.array(item.t, np.int64)))
        self._laid = None

    def _step(self, item: Pending) -> None:
        recorder, about = self.recorder, self.recorder.about
        arrays = item.transfer.arrays()
        found_inf = 0.0 if item.found_inf is None else item.found_inf.read(arrays)
        skipped = item.skipped or found_inf > 0
        if not skipped:
            self._t[item.active] += 1
        elif not item.skipped:
            self.skipped += 1
        hyper = self._settling.hyper_of(item, arrays, self._t, about.params, skipped=skipped)
        laid = self._layout()
        layout = laid.layout
        table, unclipped = None, False
        if item.counts is not None:
            table = self._table(item, item.counts.host(arrays), laid, skipped=skipped)
            for each in item.clippings:
                if each.before is not None and not math.isfinite(each.norm.read(arrays)):
                    table = _as_before(table, each.before, arrays, layout)
                    unclipped = True
        norm, scale, counted = _norms(item, arrays, table)
        gradients = None if table is None else counts_of(table, "g")
        nonfinite = NonFinite() if gradients is None else gradients.nonfinite
        ran = RecordedStep(
            item.step, hyper, about.variant, _mean([each.read(arrays) for each in item.losses]), norm, scale,
            nonfinite, (), item.ended, laid.recorded, counted and any(about.shards),
        )  # fmt: skip
        facts = facts_of(
            ran,
            None if item.light else table,
            layout,
            about,
            gradients,
            put_in_place=item.step == self._put_in_place,
        )
        findings = self._diagnosis.observe(facts)
        if item.checksums is not None and self._check is not None:
            parted = self._check(item.step, arrays[item.checksums])
            findings += [parted] if parted is not None else []
        for text in item.gaps:
            recorder.gap(item.step, text)
        if unclipped and not self._unclipped:
            # Once weights are NaN every step is so: told where it begins.
            recorder.mark(
                item.step,
                "gradients are counted as they were before clipping as long as its norm is not finite; captured are "
                "those that the optimizer took",
            )
        self._unclipped = unclipped
        if item.broken_off:
            recorder.mark(item.step, "the run ended before this step was complete")
        elif skipped:
            by = "" if item.scale is None else f", whose scale was {significant(item.scale.read(arrays), 6)}"
            recorder.mark(
                item.step, f"skipped by the loss scaler{by}: gradients were not finite, nothing was updated"
            )
        recorder.offer(
            ran,
            statistics=None if item.light else table,
            findings=findings,
            gradients=None if item.gradients is None else item.gradients.arrays(),
            keyframe=None if item.keyframe is None else _state(item, item.step),
        )

    def _table(self, item: Pending, counted: Counted, laid: _Laid, *, skipped: bool) -> ParamTable:
        strides = item.strides
        if laid.order is not None:
            order = np.array(laid.order, np.intp)
            counted = Counted(counted.records[order], counted.bins[order])
            strides = [strides[number] for number in laid.order]
        names = laid.names
        table = table_of(counted, names, laid.blocks, laid.numel, laid.offsets, strides)
        if skipped and not item.skipped:
            # What the device counted of an update that it then left out.
            nothing = np.zeros(len(names), np.int64)
            none = UpdateColumns(
                nothing.astype("f8"), nothing.astype("f8"), nothing - 1, nothing, nothing, nothing,
                table.update.f16_overflows, table.update.f16_underflows,
            )  # fmt: skip
            table = replace(table, lanes=MappingProxyType(dict(table.lanes)), update=none)
        return table

    def _layout(self) -> _Laid:
        if self._laid is None:
            self._laid = _Laid.of(self.recorder.about)
        return self._laid


@dataclass(frozen=True, slots=True, eq=False)
class _Laid:
    """Where the params lie, and columns of them in the order of memory, as statistics are everywhere."""

    layout: Layout
    recorded: RecordedLayout
    order: tuple[int, ...] | None
    """Their numbers; None where they were given in that order."""
    names: tuple[str, ...]
    blocks: tuple[BlockName, ...]
    numel: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def of(cls, about: About) -> _Laid:
        """As they lie by default."""
        layout = layout_for(about.params, Limits(), about.variant)
        segments, order = layout.segments, tuple(layout.numbers)
        return cls(
            layout,
            RecordedLayout.of(layout, Limits(), about.params),
            None if order == tuple(range(len(order))) else order,
            tuple(segment.name for segment in segments),
            tuple(segment.block for segment in segments),
            np.array([about.params[number].numel for number in order], np.int64),
            np.array([segment.offset for segment in segments], np.int64),
        )


def _as_before(table: ParamTable, before: Unclipped, arrays: Any, layout: Layout) -> ParamTable:
    """`table` with those gradients as they were before they were clipped."""
    rows = before.numbers
    names = tuple(table.names[row] for row in rows)
    block: BlockName = "wd"  # Of no account here.
    here = table_of(
        before.counts.host(arrays),
        names,
        (block,) * len(rows),
        table.numel[rows].tolist(),
        [layout[name].offset for name in names],
        before.strides,
    ).lanes["g"]
    now = table.lanes["g"]
    columns = {}
    for each in fields(now):
        columns[each.name] = getattr(now, each.name).copy()
        columns[each.name][rows] = getattr(here, each.name)
    return replace(table, lanes=MappingProxyType({**table.lanes, "g": LaneColumns(**columns)}))


def _state(item: Pending, finished: int) -> HostState:
    assert item.keyframe is not None
    lanes: dict[str, dict[str, Any]] = {"w": {}, "m": {}, "v": {}}
    for (lane, name), values in item.keyframe.arrays().items():
        lanes[lane][name] = values
    return HostState(lanes["w"], lanes["m"], lanes["v"], finished)


def _norms(item: Pending, arrays: Any, table: ParamTable | None) -> tuple[float | None, float | None, bool]:
    """Gradient norm before clipping and clip scale: as noticed, else of what was counted, which nothing clipped.

    The last is True where the norm is of what was counted here.
    """
    counted = None
    if table is not None:
        counted = math.sqrt(math.fsum(np.square(table.lanes["g"].norm).tolist()))
    if not item.clippings:
        return (None if counted is None else _f32(counted)), (None if counted is None else 1.0), True
    norms = [each.norm.read(arrays) for each in item.clippings]
    scales = [
        min(1.0, each.limit / (norm + 1e-6)) if not math.isnan(norm) else math.nan
        for each, norm in zip(item.clippings, norms, strict=True)
    ]
    # Python's min passes over a NaN or not, as it stands first or later.
    scale = math.nan if any(map(math.isnan, scales)) else min(scales)
    if all(each.kind == 2.0 for each in item.clippings):
        # Of groups that are clipped one by one, the norm of all of them.
        whole = math.sqrt(math.fsum(norm * norm for norm in norms)) if len(norms) > 1 else norms[0]
        return _f32(whole), _f32(scale), False
    return (None if counted is None or not scale > 0 else _f32(counted / scale)), _f32(scale), True


def _f32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _mean(values: list[float]) -> float | None:
    if not values:
        return None
    if len(values) == 1 or not all(map(math.isfinite, values)):
        return sum(values) / len(values)
    return math.fsum(values) / len(values)


def _sentence(error: Exception) -> str:
    if isinstance(error, InspectorError):
        return str(error)
    return f"The recording has ended by {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
