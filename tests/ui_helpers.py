"""Snapshots made by hand, and a worker that answers requests for pixels without any GPU."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from inspector.comparison import BenchReport, Comparison
from inspector.cost import step_costs
from inspector.diagnosis.findings import Finding
from inspector.floats import F32Array
from inspector.history import History, HistoryRecorder
from inspector.hyper import Hyper
from inspector.layout import Layout, Param, make_layout
from inspector.mapping import MapPixels, MapRequest
from inspector.optimizers import optimizer, plan_step
from inspector.plan import Limits, Plan, Variant
from inspector.runtime.commands import Command, ViewMap
from inspector.runtime.map_picture import MapImage, map_image
from inspector.runtime.race_pictures import LanePicture, RacePicture
from inspector.runtime.snapshots import Histograms, Mark, Recorded, Snapshot, StepRecord, ValuesWindow
from inspector.statistics import buffer_stats
from inspector.stepping import Cursor, DeviceInfo, KernelTime, UndoInfo
from inspector.stores import LANES, Lane
from inspector.variants import Skipped

# Before any test makes the application.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

_serials = itertools.count(1)
SAMPLES = 8
"""How many elements at most are looked at under one pixel of a made-up map."""


def llama_params(layers: int = 2, dim: int = 64, vocab: int = 96) -> tuple[Param, ...]:
    """A small Llama-like model: 6 params a layer and two more (12 layers: the 74 of the reference)."""
    params = [Param("tok_embeddings.weight", (vocab, dim))]
    for i in range(layers):
        params += [
            Param(f"h.{i}.attn_norm.weight", (dim,)),
            Param(f"h.{i}.attn.qkv.weight", (dim, 3 * dim)),
            Param(f"h.{i}.attn.out.weight", (dim, dim)),
            Param(f"h.{i}.ffn_norm.weight", (dim,)),
            Param(f"h.{i}.ffn.gate_up.weight", (dim, 5 * dim)),
            Param(f"h.{i}.ffn.down.weight", (5 * dim // 2, dim)),
        ]
    return (*params, Param("norm.weight", (dim,)))


@lru_cache
def small_layout(max_buffer_bytes: int | None = None) -> Layout:
    """The layout of a two-layer model; with a buffer limit, over several pages."""
    return make_layout(llama_params(), max_buffer_bytes=max_buffer_bytes)


@lru_cache
def reference_layout() -> Layout:
    """74 params and 116 M elements, as in the reference preset."""
    return make_layout(llama_params(layers=12, dim=768, vocab=40448))


@lru_cache
def wide_layout(params: int = 20_000) -> Layout:
    """Tens of thousands of params of 1 to 4,096 elements, every fourth without decay."""
    rng = np.random.default_rng(7)
    sizes = rng.integers(1, 65, (params, 2))
    return make_layout(
        Param(f"blocks.{i}.weight", (int(a), int(b)), decay=bool(i % 4)) for i, (a, b) in enumerate(sizes)
    )


@lru_cache
def small_plan(reduce: str = "two-pass") -> Plan:
    """The plan of the small model with default limits."""
    return plan_step(small_layout(), Limits(), Variant(reduce=reduce))  # type: ignore[arg-type]


def lane_values(lane: Lane, layout: Layout, elements: np.ndarray, step: int = 1) -> F32Array:
    """Made-up values of a lane at any elements, NaN outside params; the same for the same arguments."""
    index = np.asarray(elements, np.int64)
    seed = (index * 2654435761 + LANES.index(lane) * 97 + step * 7919) % 4_294_967_291
    noise = (seed / 2_147_483_645.5 - 1.0) * (0.3 + 0.7 * np.cos(index / 400.0) ** 2)
    scale = {"w": 0.08, "g": 2e-3, "m": 4e-4, "v": 1e-6}[lane]
    values = (noise * scale).astype(np.float32)
    if lane == "v":
        values = np.abs(values)
    starts = np.array([s.offset for s in layout.segments if s.numel], np.int64)
    stops = np.array([s.stop for s in layout.segments if s.numel], np.int64)
    at = np.searchsorted(starts, index, side="right") - 1
    inside = (at >= 0) & (index < stops[np.maximum(at, 0)])
    return np.where(inside, values, np.float32(np.nan)).astype(np.float32)


def make_map(
    request: MapRequest,
    layout: Layout | None = None,
    *,
    nonfinite: Sequence[tuple[Lane, int]] = (),
    step: int = 1,
) -> MapImage:
    """A map image for `request`; `nonfinite` are (lane, element) to flag."""
    layout = layout or small_layout()
    x = np.arange(request.width)[None, :]
    y = np.arange(request.height)[:, None]
    e = np.floor(request.start + (x + y / max(request.height, 1)) * request.elements_per_pixel)
    pixels: dict[Lane, MapPixels] = {}
    for lane in LANES:
        under = lane_values(lane, layout, e, step)
        counts = np.zeros(under.shape, np.float32)
        for flagged, element in nonfinite:
            column = int((element - request.start) // request.elements_per_pixel)
            if flagged == lane and 0 <= column < request.width:
                part = (element - request.start) / request.elements_per_pixel - column
                row = min(int(part * request.height), request.height - 1)
                rows = slice(None) if request.elements_per_pixel <= 1 else row
                counts[rows, column] = 1
        pixels[lane] = map_pixels_of(under, counts, request)
    return map_image(request, pixels)


def map_pixels_of(
    values: F32Array, nonfinite: F32Array, request: MapRequest, end: int = 1 << 40
) -> MapPixels:
    """Pixels under which every finite element has the same value; NaN where no element is."""
    each = max(int(request.each), 1)
    finite = np.where(np.isnan(values), 0, np.maximum(each - nonfinite, 0)).astype(np.float32)
    planes = [_frozen(np.asarray(a, np.float32)) for a in (values, values, np.abs(values), finite, nonfinite)]
    return MapPixels(*planes, cell=1, end=end)


def make_history(steps: int = 128, *, labels: Sequence[str] | None = None) -> History:
    """A training run that goes well: the loss falls, one spike of the gradient norm at two thirds."""
    recorder = HistoryRecorder()
    names = labels if labels is not None else [d.label for d in small_plan().dispatches]
    rng = np.random.default_rng(3)
    for t in range(1, steps + 1):
        norm = 0.6 + 1.5 * math.exp(-t / 20) + 0.1 * float(rng.standard_normal())
        if t == steps * 2 // 3:
            norm *= 12
        recorder.append(
            t,
            {
                "loss": 1.5 + 2.7 * math.exp(-t / 60) + 0.05 * float(rng.standard_normal()),
                "grad_norm": abs(norm),
                "clip_scale": min(1.0, 1.0 / max(abs(norm), 1e-6)),
                "lr": 1e-3 * min(1.0, t / 20),
                "nonfinite": 0.0,
                **{
                    f"ms/{name}": 0.02 + 0.01 * i + 0.002 * float(rng.random())
                    for i, name in enumerate(names)
                },
            },
        )
    return recorder.freeze()


def make_values(param: str, start: int = 0, count: int = 64, layout: Layout | None = None) -> ValuesWindow:
    """The value window of a param, with w, m and v as before and after an update."""
    layout = layout or small_layout()
    segment = layout[param]
    elements = segment.offset + start + np.arange(max(0, min(count, segment.numel - start)))
    after = {lane: _frozen(lane_values(lane, layout, elements, 2)) for lane in LANES}
    before = {lane: _frozen(lane_values(lane, layout, elements, 1)) for lane in LANES}
    return ValuesWindow(param, start, MappingProxyType(after), MappingProxyType(before))


def make_histograms(param: str | None = None, cursor: Cursor | None = None) -> Histograms:
    """Histograms of m and v with the shape of log-normal magnitudes."""
    rng = np.random.default_rng(11)
    stats = {
        lane: buffer_stats((rng.standard_normal(20_000) * scale).astype(np.float32))
        for lane, scale in (("w", 0.05), ("g", 1e-3), ("m", 1e-4), ("v", 1e-7))
    }
    return Histograms(param, cursor or Cursor(128, 2, 4), MappingProxyType(stats))  # type: ignore[arg-type]


def make_findings() -> tuple[Finding, ...]:
    """One of each severity."""
    return (
        Finding(
            "nan-gradient",
            "error",
            97,
            "8 gradients of h.1.attn.qkv.weight are NaN at step 97, first at [0, 17].",
            "Look at the loss scale and the backward pass of this layer.",
            dispatch=0,
            param="h.1.attn.qkv.weight",
            index=17,
            evidence={"nan": 8},
        ),
        Finding(
            "norm-spike",
            "warning",
            85,
            "gradNorm is 7.4, twelve times its median of 0.62.",
            "Lower the learning rate or the clip limit.",
            evidence={"grad_norm": 7.4, "median": 0.62},
        ),
        Finding("warmup", "info", 20, "The warm-up ended at step 20.", "Nothing to do."),
    )


def make_recorded(
    last: int = 1000,
    keyframes: Sequence[int] = (),
    rebuildable: Sequence[tuple[int, int]] = (),
    *,
    first: int = 1,
    policy: str = "stats",
    state: Any = "complete",
) -> Recorded:
    """What a recording of steps `first` to `last` holds."""
    return Recorded(
        first, last,
        _frozen(np.array(keyframes, np.int64)),
        _frozen(np.array(rebuildable, np.int64).reshape(-1, 2)),
        policy, state,
    )  # fmt: skip


def make_snapshot(**changes: Any) -> Snapshot:
    """A paused run in the middle of step 128; any field of Snapshot can be given."""
    plan: Plan | None = changes.get("plan", small_plan())
    count = len(plan.dispatches) if plan else 0
    cursor = changes.get("cursor", Cursor(128, min(2, count), count))
    hyper = changes.get("hyper", Hyper())
    times = tuple(
        KernelTime(d.label, d.block, 0.011 * (i + 1), "gpu")
        if i < (cursor.dispatch if cursor else 0)
        else None
        for i, d in enumerate(plan.dispatches if plan else ())
    )
    uniforms = {}
    if plan and cursor:
        made = optimizer(plan.variant.optimizer).uniforms(hyper, max(cursor.step, 1), plan.variant.numerics)
        uniforms = {key: tuple(float(x) for x in value) for key, value in made.items()}
    base = Snapshot(
        serial=next(_serials),
        mode="paused",
        source="charlm",
        description="a two-layer Llama-shaped character model, 112,000 params",
        plan=plan,
        cursor=cursor,
        hyper=hyper,
        record=StepRecord(128, 1e-3, loss=1.83, grad_norm=0.734, clip_scale=1.0),
        dispatch_times=times,
        uniforms=MappingProxyType(uniforms),
        history=changes.pop("history", None) or _history(),
        marks=(Mark(40, "β₂ 0.999 → 0.95"),),
        undo=UndoInfo(dispatches=3, steps=24, nbytes=48 << 20, limit=512 << 20),
        device=DeviceInfo("llvmpipe (LLVM 15, 256 bits)", "Vulkan", True, True),
        memory_bytes=181 << 20,
        steps_per_second=42.3,
    )
    return replace(base, **changes)


def make_comparison() -> Comparison:
    """Three variants of the small model, of 10, 20 and 5 ms a step, and one that was left out."""
    reports = []
    for name, variant, factor in (
        ("default", Variant(), 2.0),
        ("numerics precise", Variant(numerics="precise"), 4.0),
        ("reduce atomic", Variant(reduce="atomic"), 1.0),
    ):
        plan = plan_step(small_layout(), Limits(), variant)
        count = len(plan.dispatches)
        # The first update takes what the others leave of 5 ms.
        ms = [factor * (5 - 0.5 * (count - 1)) if i == count - 2 else factor * 0.5 for i in range(count)]
        steps = [
            tuple(
                KernelTime(d.entry_point, d.block, t * stretch, "gpu", cold)
                for d, t in zip(plan.dispatches, ms, strict=True)
            )
            for stretch, cold in ((9, True), (1, False), (1, False), (1.2, False))
        ]
        kernels, step = step_costs(plan, steps, 100.0)
        layout = plan.layout
        reports.append(
            BenchReport(
                "a GPU", layout.elements, len(layout.segments), variant, 100.0, kernels, step, math.nan, plan,
                tuple(steps[1:]), name, through_ms=4.5 * factor,
            )
        )  # fmt: skip
    return Comparison(tuple(reports), (Skipped("kernel f16", "This adapter has no 16-bit floats."),))


class FakeWorker:
    """Records what it is sent and answers requests for maps; `post` sends a snapshot."""

    def __init__(self, first: Snapshot | None = None) -> None:
        self.sent: list[Command] = []
        self.closed_with: float | None = None
        self.close_result = True
        self._on_snapshot: Callable[[Snapshot], None] | None = None
        self.current = first or make_snapshot()

    def start(
        self, on_snapshot: Callable[[Snapshot], None], wait_until_idle: Callable[[float], None] | None = None
    ) -> None:
        self._on_snapshot = on_snapshot
        on_snapshot(self.current)

    def send(self, command: Command) -> None:
        self.sent.append(command)
        if isinstance(command, ViewMap) and command.request and self.current.plan:
            self.post(map=make_map(command.request, self.current.plan.layout))

    def close(self, timeout: float) -> bool:
        self.closed_with = timeout
        self._on_snapshot = None
        return self.close_result

    def post(self, **changes: Any) -> Snapshot:
        self.current = replace(self.current, serial=next(_serials), **changes)
        if self._on_snapshot is not None:
            self._on_snapshot(self.current)
        return self.current

    def of_type(self, *kinds: type) -> list[Command]:
        """The commands of these types, in the order sent."""
        return [c for c in self.sent if isinstance(c, kinds)]


@lru_cache
def _history() -> History:
    return make_history()


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def lane_history(*losses: float, norms: bool = True) -> History:
    made = HistoryRecorder()
    for step, loss in enumerate(losses, start=1):
        row = {"loss": loss, "grad_norm": 2 * loss, "lr": 1e-3}
        made.append(step, row | ({"update_norm": loss / 10, "weight_norm": 5.0} if norms else {}))
    return made.freeze()


def make_race() -> RacePicture:
    """Three lanes: one that runs, one that diverged, one that ended."""
    return RacePicture(
        (
            LanePicture("adamw", "adamw", 3, lane_history(4.0, 3.0, 2.5)),
            LanePicture(
                "sgd:lr=9",
                "sgd:lr=9",
                3,
                lane_history(4.0, 9.0, 30.0),
                (3, "its loss is 30 as the mean"),
            ),
            LanePicture("lion", "lion", 2, lane_history(4.0, 3.5), None, "The device has no memory."),
        ),
        front=0,
        together=True,
        closed_loop=True,
    )
