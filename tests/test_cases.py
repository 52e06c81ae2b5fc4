"""Cases that went wrong in other projects, each with its source: what the kernels give and what is said about it."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from gpu_helpers import (
    ATOMIC,
    F32,
    PUBLISHED_GRID,
    ListedSource,
    host,
    make_engine,
    make_stepper,
    params_of,
    variant_name,
    whole,
)

from inspector.errors import DeviceLostError, UsageError
from inspector.gpu import device
from inspector.gpu.device import AdapterReport, Gpu
from inspector.gpu.opener import StepperMaker
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers.adamw.oracle import oracle_step
from inspector.plan import Variant
from inspector.runtime import commands as c
from inspector.runtime.engine import Engine
from inspector.runtime.snapshots import Snapshot
from inspector.runtime.worker import Worker
from inspector.stepping import HostGradients, HostState

pytestmark = pytest.mark.gpu

NORMS = [Variant(), ATOMIC, PUBLISHED_GRID]
each_norm = pytest.mark.parametrize("variant", NORMS, ids=variant_name)


def run_gradients(
    gpu: Gpu, g: F32, variant: Variant | None = None, *, w: float = 1.0, **hyper: float
) -> Engine:
    """One step of one param with these gradients."""
    n = len(g)
    engine = make_engine(
        gpu, params_of(n), {"p0": g}, w=host(n, value=w), hyper=Hyper(**hyper), variant=variant
    )
    engine.step_iteration()
    return engine


def numbers(engine: Engine) -> tuple[float | None, float | None]:
    assert engine.record is not None
    return engine.record.grad_norm, engine.record.clip_scale


def rules(engine: Engine) -> list[str]:
    return [finding.rule for finding in engine.findings]


# --- norms


@each_norm
def test_gradients_that_are_not_finite_are_counted_and_named(gpu: Gpu, variant: Variant) -> None:
    """pytorch/pytorch#46849: they vanish without a word."""
    engine = run_gradients(gpu, np.float32([3, 4, np.nan, np.inf]), variant)
    assert numbers(engine) == (5.0, pytest.approx(0.2, rel=1e-6))
    (finding,) = engine.findings
    assert (finding.rule, finding.severity, finding.param, finding.index) == (
        "nonfinite-gradient",
        "error",
        "p0",
        2,
    )
    assert {k: finding.evidence[k] for k in ("nan", "posinf", "neginf")} == {
        "nan": 1,
        "posinf": 1,
        "neginf": 0,
    }


@each_norm
def test_gradients_that_are_all_infinite_are_no_healthy_step(gpu: Gpu, variant: Variant) -> None:
    """pytorch/pytorch#46849: masked, so norm 0 and clip scale 1 look healthy."""
    engine = run_gradients(gpu, np.full(16, np.inf, np.float32), variant)
    assert numbers(engine) == (0.0, 1.0)
    assert [(f.rule, f.severity) for f in engine.findings] == [("nonfinite-gradient", "error")]
    assert engine.findings[0].evidence["share"] == 1.0


@each_norm
def test_a_sum_of_squares_that_overflows_is_said_to(gpu: Gpu, variant: Variant) -> None:
    """pytorch/pytorch#46849: 100 × 1e20 overflow float32, the clip scale becomes 0 and nothing trains."""
    engine = run_gradients(gpu, np.full(100, 1e20, np.float32), variant)
    assert numbers(engine) == (math.inf, 0.0)
    assert rules(engine) == ["norm-overflow"]
    assert engine.findings[0].evidence["largest_gradient"] == pytest.approx(1e20, rel=1e-6)
    assert engine.stepper.weights()["p0"].tolist() == [1.0] * 100


@each_norm
def test_squares_that_all_vanish_are_said_to(gpu: Gpu, variant: Variant) -> None:
    """gpuweb/gpuweb#349: 1,000,000 × 1e-25 has the norm 1e-22, the kernels see 0."""
    engine = run_gradients(gpu, np.full(1_000_000, 1e-25, np.float32), variant)
    assert numbers(engine) == (0.0, 1.0)
    assert rules(engine) == ["norm-underflow"]


@each_norm
def test_every_bit_pattern_is_finite_or_not_by_its_exponent(gpu: Gpu, variant: Variant) -> None:
    """pygfx/wgpu-py PR#473, gpuweb/gpuweb#2270: a NaN test by comparison is optimised away."""
    raw = [
        0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF, 0x7F800000, 0xFF800000, 0x40400000, 0x40800000,
        0x80000000,
    ]  # fmt: skip
    engine = run_gradients(gpu, np.array(raw, np.uint32).view(np.float32), variant)
    assert numbers(engine)[0] == 5.0
    assert engine.record is not None
    bad = engine.record.nonfinite
    assert (bad.nan, bad.posinf, bad.neginf) == (4, 1, 1)
    state = engine.stepper.state()
    assert np.isfinite(state.w["p0"]).all()
    assert np.flatnonzero(state.m["p0"]).tolist() == [6, 7]


@each_norm
def test_the_norm_counts_no_gap(gpu: Gpu, variant: Variant) -> None:
    """gfx-rs/wgpu#6221: 10, 250 and 3 ones have the norm √263."""
    stepper = make_stepper(gpu, params_of(10, 250, 3), variant, w=host(10, 250, 3))
    stepper.begin_step(HostGradients(host(10, 250, 3, value=1)))
    stepper.run_to_end(Hyper())
    assert stepper.grad_stats().grad_norm == pytest.approx(16.217274740226856, rel=1e-6)


# --- the clip limit


@pytest.mark.parametrize(
    ("limit", "scale", "after", "finding"),
    [
        (1.0, 0.2, 1.0, []),
        (math.inf, 1.0, 5.0, []),
        (0.0, 0.0, 0.0, ["invalid-max-grad-norm"]),
        (-1.0, -0.2, 1.0, ["invalid-max-grad-norm"]),
    ],
)
@each_norm
def test_clip_limits_that_make_no_sense_run_as_they_would_and_are_told(
    gpu: Gpu, variant: Variant, limit: float, scale: float, after: float, finding: list[str]
) -> None:
    """strands-labs/robots PR#2028, huggingface/open-r1#609: 0 freezes training, a negative one reverses it."""
    engine = run_gradients(gpu, np.float32([3, 4]), variant, max_grad_norm=limit)
    assert numbers(engine) == (5.0, pytest.approx(scale, rel=1e-6))
    # m = 0.1 · g' after the first step, so its norm is a tenth of the clipped one.
    m = whole(engine.stepper, "m").astype(np.float64)
    assert 10 * math.hypot(*m) == pytest.approx(after, rel=1e-6)
    assert rules(engine) == finding
    if limit < 0:
        assert (engine.stepper.weights()["p0"] > 1).all()


@each_norm
def test_a_clip_limit_that_is_nan_is_told_and_moves_no_weight_to_nan(gpu: Gpu, variant: Variant) -> None:
    engine = run_gradients(gpu, np.float32([3, 4]), variant, max_grad_norm=math.nan)
    assert rules(engine) == ["invalid-max-grad-norm"]
    assert np.isfinite(engine.stepper.weights()["p0"]).all()


# --- counters and blocks


@pytest.mark.parametrize("numerics", ["published", "precise"])
def test_moments_with_a_counter_back_at_1_are_noticed(gpu: Gpu, numerics: Any) -> None:
    """allenai/OLMo-core PR#317: g = m = 0.1, v = 0.01, t = 1 moves by 2.236 instead of one learning rate."""
    for beta2, ratio in ((0.95, 2.2360679274997923), (0.999, 0.3162277650168382)):
        engine = make_engine(
            gpu,
            params_of(1),
            host(1, value=0.1),
            w=host(1),
            m=host(1, value=0.1),
            v=host(1, value=0.01),
            hyper=Hyper(beta2=beta2, lr=0.5),
            variant=Variant(numerics=numerics),
        )
        engine.step_iteration()
        moved = -float(engine.stepper.weights()["p0"][0]) / 0.5
        assert moved == pytest.approx(ratio, rel=2e-5)
        assert rules(engine) == ["step-counter-reset"]
    resumed = make_engine(
        gpu, params_of(1), host(1, value=0.1), w=host(1), m=host(1, value=0.1), finished_steps=1000
    )
    resumed.step_iteration()
    assert rules(resumed) == []


def test_norm_gains_do_not_decay_in_a_thousand_steps_and_are_told_where_they_would(gpu: Gpu) -> None:
    """ServiceNow/Fast-LLM#542."""
    names = ["norm.weight", "ln_f.weight", "post_attention_layernorm.weight", "layer_norm.bias"]
    w = {name: np.ones(3, np.float32) for name in names}
    hyper = Hyper(weight_decay=0.1)
    engine = make_engine(gpu, [Param(name, (3,)) for name in names], {}, w=w, hyper=hyper)
    wrong = make_engine(gpu, [Param(name, (3,), decay=True) for name in names], {}, w=w, hyper=hyper)
    for _ in range(1000):
        engine.stepper.begin_step(HostGradients({}))
        engine.stepper.run_to_end(hyper)
    wrong.step_iteration()
    wrong.step_iteration()
    assert all((value == 1).all() for value in engine.stepper.weights().values())
    assert [(f.rule, f.param, f.evidence["params"]) for f in wrong.findings] == [
        ("decay-on-norm-or-bias", "norm.weight", 4)
    ]
    assert (wrong.stepper.weights()["norm.weight"] < 1).all()


def test_a_thousand_decaying_steps_shrink_as_they_should(gpu: Gpu) -> None:
    """(1 - 1e-4)^1000 = 0.9048328935585462; float32 rounds a thousand times, at most half an ULP each."""
    stepper = make_stepper(gpu, params_of(4, decay=True), w=host(4, value=1), undo_bytes=0)
    for _ in range(1000):
        stepper.begin_step(HostGradients({}))
        stepper.run_to_end(Hyper(weight_decay=0.1))
    assert stepper.weights()["p0"] == pytest.approx(0.9048328935585462, abs=1000 * 3e-8)


# --- compare-and-swap


@pytest.mark.parametrize("variant", [ATOMIC, PUBLISHED_GRID], ids=variant_name)
def test_a_million_adds_end_and_are_exact(gpu: Gpu, variant: Variant) -> None:
    """ProjectPhysX/FluidX3D#217: whole numbers, so that no order of additions changes the sum."""
    n = 1_000_000
    stepper = make_stepper(gpu, params_of(n), variant, w=host(n), undo_bytes=0)
    stepper.begin_step(HostGradients(host(n, value=1)))
    stepper.run_to_end(Hyper())
    assert stepper.grad_stats().grad_norm == 1000.0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("variant", [ATOMIC, PUBLISHED_GRID], ids=variant_name)
def test_a_sum_that_is_not_a_number_does_not_loop_for_ever(gpu: Gpu, variant: Variant, value: float) -> None:
    """A NaN never equals itself as a float: the swap has to compare bits. No group's sum is NaN, as gradients are
    masked, so the cell starts as one here."""
    n = 100_000
    stepper = make_stepper(gpu, params_of(n), variant, w=host(n))
    stepper.begin_step(HostGradients(host(n, value=1)))
    for dispatch in stepper.plan.dispatches:
        for clear in dispatch.clears:
            assert clear.buffer == "norm_sq"
    prepared = stepper._runner.prepared[0]
    encoder = stepper._gpu.encoder()
    stepper._runner.write_uniforms(Hyper())
    stepper._gpu.write(stepper._memory.buffers["norm_sq"], 0, np.float32([value]))
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(prepared.pipeline)
    compute.set_bind_group(0, prepared.group)
    compute.dispatch_workgroups(*prepared.dispatch.groups)
    compute.end()
    raw = stepper._gpu.read(stepper._memory.buffers["norm_sq"], 0, 4, encoder)
    np.testing.assert_equal(np.frombuffer(raw, np.float32)[0], np.float32(value))


def test_partial_sums_that_overflow_make_an_infinite_norm_and_not_nan(gpu: Gpu) -> None:
    engine = run_gradients(gpu, np.full(10_000, 1e19, np.float32))
    assert numbers(engine) == (math.inf, 0.0)


# --- adapters


def report(**changes: Any) -> AdapterReport:
    made = {
        "name": "Some GPU", "backend": "Vulkan", "type": "DiscreteGPU", "description": "", "features": (),
        "limits": {}, "problem": "",
    }  # fmt: skip
    return AdapterReport(**(made | changes))


def test_without_any_adapter_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "list_adapters", list)
    with pytest.raises(UsageError, match=r"No GPU adapter was found: install a Vulkan driver.*apt-get"):
        Gpu()


def test_an_adapter_that_is_not_there_or_cannot_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = report(name="Poor GPU", problem="adamw_update binds 5 storage buffers, the adapter allows 4")
    monkeypatch.setattr(device, "list_adapters", lambda: [(None, report()), (None, poor)])
    assert device.choose_adapter()[1].name == "Some GPU"
    assert device.choose_adapter("some gpu")[1].name == "Some GPU"
    with pytest.raises(UsageError, match=r"'GTX'; there are: Some GPU \(Vulkan\), Poor GPU"):
        device.choose_adapter("GTX")
    with pytest.raises(UsageError, match=r"Poor GPU \(Vulkan\) cannot run the step: .* allows 4"):
        device.choose_adapter("poor")


def test_hardware_comes_before_software_and_the_native_api_before_opengl() -> None:
    class Adapter:
        def __init__(self, name: str, kind: str, backend: str, buffers: int = 8, threads: int = 256) -> None:
            self.info = {"device": name, "adapter_type": kind, "backend_type": backend, "description": ""}
            self.limits = {
                "max-storage-buffers-per-shader-stage": buffers,
                "max-compute-invocations-per-workgroup": threads,
            }
            self.features: set[str] = set()

    adapters = [
        Adapter("software", "CPU", "Vulkan"),
        Adapter("poor", "DiscreteGPU", "Vulkan", buffers=4),
        Adapter("weak", "DiscreteGPU", "Vulkan", threads=128),
        Adapter("gl", "DiscreteGPU", "OpenGL"),
        Adapter("built in", "IntegratedGPU", "Metal"),
        Adapter("card", "DiscreteGPU", "D3D12"),
    ]
    reports = sorted((device._report(a) for a in adapters), key=device._rank)
    assert [r.name for r in reports if r.usable] == ["card", "built in", "software"]
    problems = {r.name: r.problem for r in reports if not r.usable}
    assert "5 storage buffers, the adapter allows 4" in problems["poor"]
    assert "256 threads" in problems["weak"]
    assert "OpenGL" in problems["gl"]


def test_without_shader_f16_and_timestamps_float32_runs_on_the_cpu_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """elicwhite/spotify-clonehero#27: an adapter with features masked."""
    monkeypatch.setattr(device, "USED_FEATURES", ())
    masked = Gpu()
    try:
        stepper = make_stepper(masked, params_of(4), w=host(4))
        stepper.begin_step(HostGradients(host(4, value=2)))
        times = stepper.run_to_end(Hyper())
        assert stepper.grad_stats().grad_norm == 4.0
        assert {t.clock for t in times} == {"cpu"}
        assert all(t.ms is not None and t.ms > 0 for t in times)
    finally:
        masked.close()


# --- a lost device


LOST: list[Callable[[GpuStepper], object]] = [
    lambda s: s.run_dispatch(Hyper()),
    lambda s: s.run_to_end(Hyper()),
    lambda s: s.begin_step(HostGradients(host(300, value=1))),
    lambda s: s.undo_dispatch(),
    lambda s: s.rewind_step(),
    lambda s: s.grad_stats(),
    lambda s: s.counts("g"),
    lambda s: s.stats("m", "p0"),
    lambda s: s.read("w", 0, 4),
    lambda s: s.read("w", 0, 4, before=True),
    lambda s: s.weights(),
    lambda s: s.state(),
    lambda s: s.set_variant(ATOMIC),
]
NAMES = [
    "run_dispatch", "run_to_end", "begin_step", "undo_dispatch", "rewind_step", "grad_stats", "gradient_counts",
    "stats", "read", "before", "weights", "state", "set_variant",
]  # fmt: skip


@pytest.mark.parametrize("act", LOST, ids=NAMES)
def test_whatever_is_asked_of_a_lost_device_says_that_it_is_lost(
    act: Callable[[GpuStepper], object],
) -> None:
    """ALaggyDev/CoordsFinder#14: and never gives a norm of 0."""
    lost = Gpu()
    stepper = make_stepper(lost, params_of(300), w=host(300, value=1))
    stepper.begin_step(HostGradients(host(300, value=1)))
    if act is LOST[-1]:
        stepper.run_to_end(Hyper())
        stepper.begin_step(HostGradients(host(300, value=1)))
    else:
        stepper.run_dispatch(Hyper())
    lost.device.destroy()
    with pytest.raises(DeviceLostError, match="lost"):
        act(stepper)


@dataclass
class Opener:
    """Opens a ListedSource, and steppers each on a device of its own."""

    source: ListedSource
    steppers: list[GpuStepper] = field(default_factory=list)

    def open_source(self, spec: str) -> ListedSource:
        return self.source

    def hyper(self, source: Any) -> Hyper:
        return source.hyper

    def make_stepper(self, source: Any, variant: Variant, state: Any, layout: Any = None) -> GpuStepper:
        self.steppers.append(StepperMaker(undo_bytes=1 << 20).make(source.params, variant, state))
        return self.steppers[-1]


@dataclass
class Watched:
    """A running worker and the snapshots it sends."""

    worker: Worker
    seen: queue.SimpleQueue[Snapshot]
    all: list[Snapshot] = field(default_factory=list)

    def send(self, command: c.Command, until: Callable[[Snapshot], bool]) -> Snapshot:
        self.worker.send(command)
        return self.wait(until)

    def wait(self, until: Callable[[Snapshot], bool]) -> Snapshot:
        end = time.monotonic() + 30
        while True:
            snapshot = self.seen.get(timeout=max(end - time.monotonic(), 0.01))
            self.all.append(snapshot)
            if until(snapshot):
                return snapshot


@pytest.fixture
def running() -> Iterator[tuple[Watched, Opener]]:
    g = {"p0": np.linspace(-1, 1, 300, dtype=np.float32)}
    source = ListedSource(params_of(300), g, state=HostState(host(300, value=1), {}, {}))
    opener = Opener(source)
    watched = Watched(Worker(opener, "listed"), queue.SimpleQueue())
    watched.worker.start(watched.seen.put)
    yield watched, opener
    assert watched.worker.close(20)


def at(step: int, dispatch: int) -> Callable[[Snapshot], bool]:
    return lambda s: s.cursor is not None and (s.cursor.step, s.cursor.dispatch) == (step, dispatch)


def test_a_device_lost_between_dispatches_is_shown_stale_and_recovers_from_the_last_step(
    running: tuple[Watched, Opener],
) -> None:
    """ALaggyDev/CoordsFinder#14."""
    watched, opener = running
    watched.wait(at(1, 0))
    watched.send(c.StepIteration(), at(1, 3))
    # Copies of the state are made no more often than is cheap: ten times what one costs has to pass.
    time.sleep(0.5)
    watched.send(c.StepIteration(), at(2, 3))
    middle = watched.send(c.StepDispatch(), at(3, 1))
    kept = opener.steppers[0].state()
    opener.steppers[0]._gpu.device.destroy()
    lost = watched.send(c.StepDispatch(), lambda s: s.mode == "lost")
    assert lost.stale
    assert lost.cursor == middle.cursor
    assert lost.notice is not None
    assert lost.notice.severity == "error"
    assert "lost" in lost.notice.text
    assert "stale" in lost.notice.text
    still = watched.send(c.StepIteration(), lambda s: s.notice is not None and s.notice.severity == "warning")
    assert (still.mode, still.stale) == ("lost", True)
    back = watched.send(c.RecoverDevice(), lambda s: s.mode == "paused")
    assert not back.stale
    assert len(opener.steppers) == 2
    assert back.notice is not None
    assert "after step 2" in back.notice.text
    assert back.cursor is not None
    assert (back.cursor.step, back.cursor.dispatch) == (3, 0)
    again = opener.steppers[1].state()
    for lane in ("w", "m", "v"):
        assert getattr(again, lane)["p0"].tobytes() == getattr(kept, lane)["p0"].tobytes()
    done = watched.send(c.StepIteration(), at(3, 3))
    assert done.record is not None
    norms = {s.record.grad_norm for s in watched.all if s.record is not None}
    assert 0.0 not in norms
    assert done.record.grad_norm == pytest.approx(math.sqrt(float(np.sum(np.linspace(-1, 1, 300) ** 2))))
    # The step gives what it would have given without the loss.
    straight = oracle_step(
        opener.steppers[1].layout, (kept.w, kept.m, kept.v),
        {"p0": np.linspace(-1, 1, 300, dtype=np.float32)}, hyper=Hyper(), step=3,
    )  # fmt: skip
    np.testing.assert_allclose(opener.steppers[1].state().w["p0"], straight.w["p0"], rtol=1e-6)
