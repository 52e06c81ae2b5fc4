"""The norm is added up in two dispatches: shares of the squares, then finalize_grad_stats adds up those."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_helpers import F32, Gpu, host, make_stepper, params_of, smaller
from own_wgsl import FINALIZE, NORM

from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param, make_layout
from inspector.optimizers import OPTIMIZERS, plan_step
from inspector.own_kernels import OwnKernels
from inspector.plan import Limits, Variant, layout_for
from inspector.shader_edit import built_in_text, read_edited
from inspector.stepping import HostGradients

SHARE = 4096
"""Elements of a workgroup of reduce_norm_sq, which leaves one number."""
LAST = "finalize_grad_stats"
FINAL = "reduce_norm_sq_final"


def with_own(*texts: tuple[str, str], variant: Variant | None = None) -> Variant:
    """A form in which kernels, by entry point, are those of texts."""
    kernels = []
    for entry, text in texts:
        kernel, messages = read_edited(entry, text)
        assert kernel is not None, messages
        kernels.append(kernel)
    return replace(variant or Variant(), own=OwnKernels(tuple(kernels)))


OWN_FINALIZE = with_own((LAST, FINALIZE))


# --- the plan


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_the_norm_of_every_optimizer_takes_two_dispatches(name: str) -> None:
    variant = Variant(optimizer=name)
    layout = layout_for([Param("a", (64, 96)), Param("b", (3,))], Limits(), variant)
    plan = plan_step(layout, Limits(), variant)
    assert [d.entry_point for d in plan.dispatches[:2]] == ["reduce_norm_sq", LAST]
    assert FINAL not in {d.entry_point for d in plan.dispatches}
    squares, last = plan.dispatches[0].bindings[1], plan.dispatches[1].bindings[0]
    assert (last.buffer, last.offset, last.size) == (squares.buffer, squares.offset, squares.size)
    assert "norm_sq" not in {b.name for b in plan.buffers}


def test_a_step_of_adamw_is_four_dispatches() -> None:
    layout = make_layout([Param("a", (2, 3)), Param("b", (3,))])
    labels = [d.label for d in plan_step(layout, Limits(), Variant()).dispatches]
    assert labels == ["reduce_norm_sq", LAST, "adamw_update wd", "adamw_update no-wd"]


@pytest.mark.parametrize("size", [1, SHARE, SHARE + 1, 300 * SHARE, 600 * SHARE])
def test_finalize_takes_a_number_of_each_workgroup(size: int) -> None:
    plan = plan_step(make_layout([Param("p", (size,))]), Limits(), Variant())
    norm, last = plan.dispatches[:2]
    assert last.bindings[0].items == norm.groups[0] == min(-(-size // SHARE), 512)
    assert last.bindings[0].bound_size == 4 * norm.groups[0], "its kernel counts what is bound"
    assert last.moved_bytes == 4 * norm.groups[0] + 16


def test_an_own_finalize_takes_one_number_that_a_pass_before_it_adds_up() -> None:
    layout = make_layout([Param("p", (3 * SHARE,))])
    plan = plan_step(layout, Limits(), OWN_FINALIZE)
    assert [d.entry_point for d in plan.dispatches[:3]] == ["reduce_norm_sq", FINAL, LAST]
    last = plan.dispatches[2].bindings[0]
    assert (last.buffer, last.offset, last.size) == ("norm_sq", 0, 4)
    assert plan.dispatches[1].bindings[1].buffer == "norm_sq"
    assert next(b.size for b in plan.buffers if b.name == "norm_sq") == 4


def test_an_own_last_pass_runs() -> None:
    variant = with_own((FINAL, built_in_text(FINAL, FINAL)))
    plan = plan_step(make_layout([Param("p", (3 * SHARE,))]), Limits(), variant)
    assert [(d.entry_point, d.own is not None) for d in plan.dispatches[:3]] == [
        ("reduce_norm_sq", False), (FINAL, True), (LAST, False),
    ]  # fmt: skip
    assert plan.dispatches[2].bindings[0].buffer == "norm_sq"


@pytest.mark.parametrize(
    "variant", [Variant(reduce="atomic"), with_own(("reduce_norm_sq", NORM)), with_own((LAST, FINALIZE),
    ("reduce_norm_sq", NORM))], ids=["atomic", "own", "both own"],
)  # fmt: skip
def test_atomics_add_up_in_one_number(variant: Variant) -> None:
    plan = plan_step(make_layout([Param("p", (3 * SHARE,))]), Limits(), variant)
    assert [d.entry_point for d in plan.dispatches[:2]] == ["reduce_norm_sq", LAST]
    last = plan.dispatches[1].bindings[0]
    assert (last.buffer, last.offset, last.size) == ("norm_sq", 0, 4)


# --- on the device


def added_up(parts: F32) -> np.float32:
    """In float32: 256 threads stride over the parts, and their sums are halved until one is left."""
    sums = np.zeros(256, np.float32)
    for start in range(0, len(parts), 256):
        turn = parts[start : start + 256]
        sums[: len(turn)] += turn
    half = 128
    while half:
        sums[:half] += sums[half : 2 * half]
        half //= 2
    return sums[0]


def begun(gpu: Gpu, n: int) -> GpuStepper:
    """At the start of its first step, of gradients that are all zero."""
    stepper = make_stepper(gpu, params_of(n), w={}, undo_bytes=0)
    stepper.begin_step(HostGradients({"p0": np.zeros(n, np.float32)}))
    return stepper


def finalized(stepper: GpuStepper, parts: F32, hyper: Hyper) -> tuple[float, float]:
    """What the step's finalize_grad_stats makes of these parts."""
    gpu, buffers = stepper._gpu, stepper._memory.buffers
    number = next(d.index for d in stepper.plan.dispatches if d.entry_point == LAST)
    prepared = stepper._runner.prepared[number]
    bound = prepared.dispatch.bindings[0]
    assert bound.items == len(parts)
    stepper._runner.write_uniforms(hyper)
    gpu.write(buffers[bound.buffer], bound.offset, parts)
    encoder = gpu.encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(prepared.pipeline)
    compute.set_bind_group(0, prepared.group)
    compute.dispatch_workgroups(*prepared.dispatch.groups)
    compute.end()
    norm, scale = np.frombuffer(gpu.read(buffers["grad_stats"], 0, 8, encoder), np.float32)
    return float(norm), float(scale)


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 2, 3, 128, 129, 255, 256, 257, 300, 512])
def test_finalize_adds_up_the_parts_in_a_fixed_order(gpu: Gpu, count: int) -> None:
    """Held against numpy in the same order; parts of all sizes, so that another order gives other bits."""
    stepper = begun(gpu, count * SHARE)
    rng = np.random.default_rng(count)
    others = 0
    for _ in range(20):
        parts = np.exp2(rng.uniform(-4, 4, count)).astype(np.float32)
        norm, scale = finalized(stepper, parts, Hyper(max_grad_norm=1.5))
        total = added_up(parts)
        assert norm == np.sqrt(total)
        assert scale == pytest.approx(min(1.0, 1.5 / norm), rel=1e-6)
        others += np.sqrt(np.add.accumulate(parts)[-1]) != norm
    assert others or count < 128, "an order would not show"


@pytest.mark.gpu
def test_each_part_is_added_once(gpu: Gpu) -> None:
    """Powers of four at each place in turn: the norm is that power of two and nothing else."""
    stepper = begun(gpu, 512 * SHARE)
    for at in range(512):
        parts = np.zeros(512, np.float32)
        parts[at] = 4.0 ** (at % 32)
        assert finalized(stepper, parts, Hyper(max_grad_norm=0.5)) == (
            2.0 ** (at % 32),
            0.5 / 2.0 ** (at % 32),
        )


def numbers_after(stepper: GpuStepper, g: F32, hyper: Hyper) -> bytes:
    stepper.begin_step(HostGradients({"p0": g}))
    stepper.run_to_end(hyper)
    stats = stepper._gpu.read(stepper._memory.buffers["grad_stats"], 0, 8).tobytes()
    return stats + stepper.read("w", 0, len(g)).tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 200, 300, 515])
def test_the_bits_are_those_of_a_pass_that_stands_alone(gpu: Gpu, count: int) -> None:
    """The built-in text as an edit, an own finalize and an own last pass each have the pass before finalize."""
    n = count * SHARE - 17
    rng = np.random.default_rng(count)
    g = (rng.standard_normal(n) * np.exp2(rng.uniform(-8, 8, n))).astype(np.float32)
    hyper = Hyper(max_grad_norm=3.0)
    found = {}
    for name, variant in {
        "built in": Variant(),
        "built in, as an edit": with_own((LAST, built_in_text(LAST, LAST))),
        "own finalize": OWN_FINALIZE,
        "own pass": with_own((FINAL, built_in_text(FINAL, FINAL))),
    }.items():
        stepper = make_stepper(gpu, params_of(n), variant, w=host(n), undo_bytes=0)
        assert (len(stepper.plan.dispatches) == 3) == (name == "built in")
        found[name] = numbers_after(stepper, g, hyper)
    assert len(set(found.values())) == 1, [name for name in found if found[name] != found["built in"]]


@pytest.mark.gpu
def test_what_an_own_norm_leaves_behind_its_number_is_not_added(gpu: Gpu) -> None:
    """A kernel may keep a count in the words that a binding is rounded up to."""
    text = NORM.replace(
        "var<storage, read_write> sum: atomic<u32>", "var<storage, read_write> sum: array<atomic<u32>>"
    )
    text = text.replace("&sum", "&sum[0]").replace(
        "    if (local == 0u) {\n", "    if (local == 0u) {\n        atomicAdd(&sum[1], 0x3f800000u);\n"
    )
    assert "sum[1]" in text
    stepper = make_stepper(gpu, params_of(100), with_own(("reduce_norm_sq", text)), w=host(100))
    stepper.begin_step(HostGradients(host(100, value=1)))
    stepper.run_to_end(Hyper())
    assert stepper.grad_stats().grad_norm == 10.0


@pytest.mark.gpu
@pytest.mark.parametrize("variant", [Variant(), OWN_FINALIZE], ids=["built in", "own finalize"])
def test_partials_of_more_than_a_binding_are_added_up_in_levels(gpu: Gpu, variant: Variant) -> None:
    """70 pieces of 16,384 elements whose partials lie 1024 bytes apart, and 64 KiB to bind."""
    n = 1_130_000
    far = smaller(gpu, alignment=1024)
    stepper = make_stepper(
        far, params_of(n), variant, w=host(n), max_binding=64 << 10, align_bytes=1024, undo_bytes=0
    )
    passes = [d for d in stepper.plan.dispatches if d.entry_point == FINAL]
    assert len(passes) == 2 + (variant is OWN_FINALIZE)
    assert passes[0].bindings[1].buffer == "partials[1]"
    g = np.zeros(n, np.float32)
    g[::1000] = 2
    stepper.begin_step(HostGradients({"p0": g}))
    stepper.run_to_end(Hyper())
    assert stepper.grad_stats().grad_norm == float(np.sqrt(np.float32(4 * len(g[::1000]))))
