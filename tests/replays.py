"""Runs on a GPU that are recorded, to be replayed; and single bits of a recording changed with its checksums."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import KERNELS_REVISION, Hyper
from inspector.layout import Param
from inspector.plan import Variant, layout_for
from inspector.session import database, jsonform
from inspector.session.compare import grad_stats_dispatch
from inspector.session.recorder import Recorder
from inspector.session.records import About, RecordedLayout, RecordedStep, StoredFile
from inspector.session.step_rows import checksum
from inspector.session.tensorfile import TensorFile
from inspector.stepping import HostGradients, HostState

PARAMS = (
    Param("h.0.attn.weight", (80, 64)),
    Param("h.0.norm", (70,)),
    Param("empty", (0, 3)),
    Param("h.1.mlp.weight", (33, 7)),
    Param("head.bias", (5000,)),
    Param("scalar", ()),
)
Settings = Callable[[int], tuple[Hyper, Variant]]


def gradients(step: int) -> dict[str, F32Array]:
    """Those of a step, the same each time; "scalar" has none."""
    rng = np.random.default_rng([7, step])
    return {
        p.name: (0.03 * rng.standard_normal(p.numel)).astype(np.float32) for p in PARAMS if p.name != "scalar"
    }


def start() -> HostState:
    rng = np.random.default_rng(5)
    w = {p.name: (0.1 * rng.standard_normal(p.numel)).astype(np.float32) for p in PARAMS}
    return HostState(w, {}, {})


def constant(variant: Variant | None = None, **hyper: float) -> Settings:
    """The same settings at every step, but for a rate that warms up."""
    used = Hyper(**{"lr": 3e-3, "weight_decay": 0.1, "beta2": 0.95, **hyper})
    return lambda step: (replace(used, lr=used.lr * min(step, 4) / 4), variant or Variant())


_pipelines: list[tuple[Gpu, Pipelines]] = []


def pipelines_of(gpu: Gpu) -> Pipelines:
    """The compiled kernels of a device, kept: compiling takes longer than what they run on here."""
    if not _pipelines or _pipelines[0][0] is not gpu:
        _pipelines[:] = [(gpu, Pipelines(gpu))]
    return _pipelines[0][1]


def stepper_of(gpu: Gpu, variant: Variant, state: HostState, align_bytes: int = 256) -> GpuStepper:
    layout = layout_for(PARAMS, gpu.limits, variant, align_bytes)
    return GpuStepper(gpu, layout, variant, state, undo_bytes=0, pipelines=pipelines_of(gpu))


def record(
    gpu: Gpu,
    path: Path,
    steps: int = 6,
    policy: str = "all",
    settings: Settings | None = None,
    *,
    stats: str = "full",
    given: Callable[[int], Mapping[str, F32Array]] = gradients,
    laid_out: bool = True,
    align_bytes: int = 256,
    **about: Any,
) -> HostState:
    """Run `steps` on `gpu` and record them, with their layout if `laid_out`; the state after the last."""
    settings = settings or constant()
    hyper, variant = settings(1)
    stepper = stepper_of(gpu, variant, start(), align_bytes)
    facts: dict[str, Any] = {
        "source": "made-up", "params": PARAMS, "variant": variant, "hyper": replace(hyper, lr=hyper.lr * 4),
        "schedule": "warmup:4", "device": gpu.info, "finished_steps": 0, "policy": policy, "software": "test",
        "began": 1.75e9, "stats": stats, "layout": layout_of(stepper) if laid_out else None,
        "kernels": KERNELS_REVISION, **about,
    }  # fmt: skip
    with Recorder.create(path, About(**facts)) as recorder:
        if recorder.policy.captures:
            recorder.offer_start(stepper.state())
        for step in range(1, steps + 1):
            hyper, variant = settings(step)
            stepper = in_form(gpu, stepper, variant)
            ran, table, state = run_step(stepper, hyper, given(step), stats == "full")
            wanted = recorder.wants(step)
            recorder.offer(
                replace(
                    ran,
                    ended=1.75e9 + step,
                    loss=5.0 - step / 16,
                    layout=layout_of(stepper) if laid_out else None,
                ),
                statistics=table,
                gradients=given(step) if wanted.gradients else None,
                keyframe=state if wanted.keyframe else None,
            )
    assert recorder.problem is None
    return state


def layout_of(stepper: GpuStepper) -> RecordedLayout:
    return RecordedLayout.of(stepper.layout, stepper.plan.limits, PARAMS)


def in_form(gpu: Gpu, stepper: GpuStepper, variant: Variant) -> GpuStepper:
    """A stepper that goes on in another form."""
    if variant == stepper.plan.variant:
        return stepper
    if stepper.can_take(variant):
        stepper.set_variant(variant)
        return stepper
    return stepper_of(gpu, variant, stepper.state())


def run_step(
    stepper: GpuStepper, hyper: Hyper, given: Mapping[str, F32Array], counted: bool
) -> tuple[RecordedStep, Any, HostState]:
    stepper.begin_step(HostGradients(given))
    counts = stepper.counts("g")
    norm_at = grad_stats_dispatch(stepper.plan.dispatches)
    assert norm_at is not None
    times = [stepper.run_dispatch(hyper) for _ in range(norm_at + 1)]
    table = stepper.param_stats(hyper) if counted else None
    times += stepper.run_to_end(hyper)
    stats = stepper.grad_stats()
    ran = RecordedStep(
        stepper.cursor.step, hyper, stepper.plan.variant, None, stats.grad_norm, stats.clip_scale,
        counts.nonfinite, tuple(times),
    )  # fmt: skip
    return ran, table, stepper.state()


# --- damage that no checksum finds


def flip(path: Path, step: int, kind: str, key: str, index: int, bit: int) -> None:
    """Change one bit of an item of a captured tensor, and the checksums with it."""
    connection = sqlite3.connect(path / database.DATABASE_NAME)
    number, file = connection.execute(
        "SELECT c.file, f.data FROM captures c JOIN files f ON f.id = c.file WHERE c.step = ? AND c.kind = ?",
        (step, kind),
    ).fetchone()
    stored = jsonform.from_text(StoredFile, file)
    tensor = path / stored.name
    entry = TensorFile(tensor).entries[key]
    width = {"F32": 4, "I8": 1, "U8": 1}[entry.dtype]
    raw = bytearray(tensor.read_bytes())
    raw[entry.start + width * index + bit // 8] ^= 1 << bit % 8
    tensor.write_bytes(raw)
    data = jsonform.to_text(replace(stored, crc32=zlib.crc32(raw)))
    connection.execute(
        "UPDATE files SET data = ?, crc = ? WHERE id = ?", (data, checksum("files", number, data), number)
    )
    connection.commit()
    connection.close()
