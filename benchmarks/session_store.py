"""What recording costs and how fast a recording is read: 10,000 and 100,000 steps, and tensors beside safetensors.

    python benchmarks/session_store.py [FOLDER] [--tensor-mb N]

The session of so many steps is that of a tiny run of four kernels a step. Tensors are written by the store and by
safetensors' own save_file in turn, both made durable, so that a disk whose speed drifts favours neither; "to the
cache" is without waiting for the disk.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
from safetensors.numpy import save_file

from inspector.hyper import Hyper
from inspector.layout import BlockName, Param
from inspector.param_statistics import ParamTable, param_stats
from inspector.plan import Variant
from inspector.preset import gpt_116m_params
from inspector.session import tensor_store
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.records import About, RecordedStep
from inspector.session.tensorboard import write_tensorboard
from inspector.stepping import DeviceInfo, KernelTime

ROUNDS = 5
KERNELS: tuple[tuple[str, BlockName | None], ...] = (
    ("reduce_norm_sq", None),
    ("finalize_grad_stats", None),
    ("adamw_update", "wd"),
    ("adamw_update", "no_wd"),
)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=tempfile.gettempdir(), type=Path)
    parser.add_argument("--tensor-mb", type=int, default=464)
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="session-store-", dir=options.folder))
    try:
        for steps in (10_000, 100_000):
            scalars(work, steps)
        with_statistics(work, 2_000)
        small_captures(work, 3_000)
        tensors(work, options.tensor_mb)
    finally:
        shutil.rmtree(work)


def about(params: tuple[Param, ...], policy: str) -> About:
    device = DeviceInfo("none", "none", True, False)
    return About("benchmark", params, Variant(), Hyper(), "constant", device, 0, policy, "0", time.time())


def step_of(step: int) -> RecordedStep:
    kernels = tuple(
        KernelTime(name, block, 0.1 * step, "gpu", began_ms=float(step)) for name, block in KERNELS
    )
    return RecordedStep(step, Hyper(), Variant(), 4.0, 1.5, 0.5, kernels=kernels, ended=time.time())


def scalars(work: Path, steps: int) -> None:
    """Write, open, first metric, going to random steps, and following."""
    path = work / f"{steps}.session"
    params = (Param("w", (3,)),)
    began = time.perf_counter()
    with Recorder.create(path, about(params, "stats")) as recorder:
        for step in range(1, steps + 1):
            recorder.offer(step_of(step))
        offered = time.perf_counter() - began
    wrote = time.perf_counter() - began
    size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    print(
        f"{steps:,} steps: offered {steps / offered:,.0f} a second, durable {steps / wrote:,.0f} a second, "
        f"{size / steps:.0f} bytes a step"
    )
    opened = median_ms(lambda: Session.open(path).close())
    first = median_ms(lambda: Session.open(path).metric("loss"))
    session = Session.open(path)
    again = median_ms(lambda: session.metric("grad_norm"))
    kernels = median_ms(lambda: Session.open(path).metric("ms/adamw_update wd"))
    where = np.random.default_rng(0).integers(1, steps + 1, 2000).tolist()
    began = time.perf_counter()
    for step in where:
        session.step(step)
    rate = len(where) / (time.perf_counter() - began)
    print(
        f"  open {opened:.1f} ms, with the first metric {first:.0f} ms, with kernel times {kernels:.0f} ms, "
        f"another metric {again:.2f} ms; {rate:,.0f} random steps a second; follow {median_ms(session.follow):.2f} ms"
    )
    exported(session)


def with_statistics(work: Path, steps: int) -> None:
    """Full statistics of the reference layout's 74 params, of small tensors."""
    params = gpt_116m_params()
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(8):
        found = []
        for p in params:
            w, g, m = (rng.normal(size=2000).astype(np.float32) * scale for scale in (0.02, 1e-3, 1e-4))
            lanes = {"w": w, "g": g, "m": m, "v": m * m}
            found.append(param_stats(p.name, p.block, lanes, clip_scale=1.0, hyper=Hyper(), step=5))  # type: ignore[arg-type]
        tables.append(ParamTable.of(found))
    path = work / "statistics.session"
    began = time.perf_counter()
    with Recorder.create(path, about(tuple(params), "stats")) as recorder:
        for step in range(1, steps + 1):
            recorder.offer(step_of(step), statistics=tables[step % len(tables)])
            while recorder.waiting_bytes > 200 << 20:
                time.sleep(0.001)
    wrote = time.perf_counter() - began
    size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    session = Session.open(path)
    where = np.random.default_rng(0).integers(1, steps + 1, 300).tolist()
    began = time.perf_counter()
    for step in where:
        session.histogram("v", step, params[0].name)
    rate = len(where) / (time.perf_counter() - began)
    print(
        f"full statistics of 74 params: durable {steps / wrote:,.0f} steps a second, {size / steps / 1000:.1f} kB "
        f"a step ({size / steps / len(params):.0f} bytes a param); {rate:,.0f} random histograms a second"
    )
    exported(session)


def exported(session: Session) -> None:
    """A TensorBoard event file of a session whose metrics were read: time, bytes, and memory that it takes more."""
    out = session.path.with_suffix(".board")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    written = write_tensorboard(session, out)
    took = time.perf_counter() - began
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(
        f"  for TensorBoard: {took:.1f} s, {(out / written.file).stat().st_size / 1e6:.0f} MB, params at "
        f"{written.param_steps:,} and histograms at {written.histogram_steps:,} steps, {more / 1024:+.0f} MiB of memory"
    )


def small_captures(work: Path, steps: int) -> None:
    """Gradients of every step of a small model: what waits together goes in one file."""
    params = tuple(Param(f"p{i}", (100, 10)) for i in range(10))
    gradients = {p.name: np.ones(p.numel, np.float32) for p in params}
    path = work / "small.session"
    began = time.perf_counter()
    with Recorder.create(path, about(params, "grads:1")) as recorder:
        for step in range(1, steps + 1):
            recorder.offer(step_of(step), gradients=gradients)
    wrote = time.perf_counter() - began
    session = Session.open(path)
    where = np.random.default_rng(0).integers(1, steps + 1, 1000).tolist()
    began = time.perf_counter()
    for step in where:
        session.tensor("g", step, "p3").sum()
    rate = len(where) / (time.perf_counter() - began)
    print(
        f"40 kB of gradients a step: durable {steps / wrote:,.0f} steps a second in {len(session.files()):,} files; "
        f"{rate:,.0f} random tensors a second"
    )


def tensors(work: Path, megabytes: int) -> None:
    """MB/s of one large capture, the store and safetensors in turn; and of the first use of one, with its checksum."""
    rows = megabytes * 1_000_000 // 4 // 768 // 12
    params = tuple(Param(f"h.{i}", (rows, 768)) for i in range(12))
    rng = np.random.default_rng(0)
    named = {p.name: rng.random(p.shape, np.float32) for p in params}
    flat = {name: each.reshape(-1) for name, each in named.items()}
    shapes = {p.name: p.shape for p in params}
    nbytes = sum(each.nbytes for each in named.values())
    capture = tensor_store.Capture.of_gradients(1, flat)

    def store(*, durable: bool) -> None:
        with patch.object(os, "fsync", os.fsync if durable else lambda handle: None):
            tensor_store.write_file(work / "speed.session", 1, [capture], shapes)

    def library(*, durable: bool) -> None:
        save_file(named, work / "speed.safetensors")
        if durable:
            for path in (work / "speed.safetensors", work):
                handle = os.open(path, os.O_RDONLY)
                os.fsync(handle)
                os.close(handle)

    forms: dict[str, Callable[[], None]] = {
        "store": lambda: store(durable=True),
        "safetensors": lambda: library(durable=True),
        "store, to the cache": lambda: store(durable=False),
        "safetensors, to the cache": lambda: library(durable=False),
    }
    taken: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(ROUNDS):
        for name, write in forms.items():
            shutil.rmtree(work / "speed.session", ignore_errors=True)
            (work / "speed.safetensors").unlink(missing_ok=True)
            os.sync()
            began = time.perf_counter()
            write()
            taken[name].append(nbytes / 1e6 / (time.perf_counter() - began))
    middle = {name: statistics.median(rates) for name, rates in taken.items()}
    print(f"{nbytes / 1e6:,.0f} MB of gradients, written durably (MB/s, median of {ROUNDS}):")
    for name, rates in taken.items():
        print(f"  {name}: {middle[name]:,.0f} ({min(rates):,.0f} to {max(rates):,.0f})")
    durable, cached = (middle[f"store{how}"] / middle[f"safetensors{how}"] for how in ("", ", to the cache"))
    print(
        f"  the store writes at {durable:.2f} times the speed of safetensors, to the cache {cached:.2f} times"
    )
    path = work / "large.session"
    with Recorder.create(path, about(params, "grads:1")) as recorder:
        recorder.offer(step_of(1), gradients=flat)
    session = Session.open(path)
    began = time.perf_counter()
    session.tensor("g", 1, params[0].name)
    first = time.perf_counter() - began
    began = time.perf_counter()
    session.tensor("g", 1, params[1].name)
    then = time.perf_counter() - began
    print(f"  first use {first * 1e3:.0f} ms ({nbytes / 1e9 / first:.1f} GB/s), then {then * 1e6:.0f} µs")


def median_ms(part: Callable[[], object]) -> float:
    """Milliseconds, median of 9."""
    taken = []
    for _ in range(9):
        began = time.perf_counter()
        part()
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
