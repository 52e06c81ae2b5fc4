"""Every form of the step against the one it stands beside: mirror, single dispatch, passes of their own, L2."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest
from gpu_helpers import host, lanes, make_stepper, normal_state, params_of, whole

from inspector.errors import UsageError
from inspector.gpu.device import Gpu
from inspector.gpu.explain import explain_element
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param, make_layout
from inspector.mapping import MapRequest
from inspector.optimizers import plan_step
from inspector.optimizers.adamw.oracle import oracle_step, update
from inspector.plan import Limits, Variant, required_placement
from inspector.stepping import HostGradients

pytestmark = pytest.mark.gpu

HYPER = Hyper(weight_decay=0.1, lr=1e-2)
PARAMS = [
    Param("a", (40, 33)),
    Param("b", (7,)),
    Param("c", (50, 20)),
    Param("d", (300,)),
    Param("e", (3, 1)),
]
SHARED = {"max_buffer": 20_480, "max_binding": 5_120}


def stepped(gpu: Gpu, variant: Variant, steps: int = 3, **limits: int) -> GpuStepper:
    w, _, m, v = normal_state(PARAMS)
    stepper = make_stepper(gpu, PARAMS, variant, w=w, m=m, v=v, align_bytes=512, finished_steps=4, **limits)
    for step in range(steps):
        g = normal_state(PARAMS, seed=step + 1)[1]
        g["a"][5], g["d"][0] = np.nan, np.inf
        stepper.begin_step(HostGradients(g))
        stepper.run_to_end(HYPER)
    return stepper


@pytest.mark.parametrize("limits", [{}, SHARED], ids=["one page", "pages"])
@pytest.mark.parametrize("kernel", ["f32", "f16"])
@pytest.mark.parametrize("numerics", ["published", "precise"])
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "passes"])
@pytest.mark.parametrize("dispatch", ["two-block", "single", "per-tensor"])
def test_every_form_gives_the_same_bits(
    gpu: Gpu, dispatch: str, fused: bool, numerics: str, kernel: str, limits: dict[str, int]
) -> None:
    variant = Variant(kernel=kernel, numerics=numerics, dispatch=dispatch, fused=fused)  # type: ignore[arg-type]
    plain = Variant(numerics=numerics)  # type: ignore[arg-type]
    stepper = stepped(gpu, variant, **limits)
    assert lanes(stepper) == lanes(stepped(gpu, plain, **limits))
    assert not whole(stepper, "g").any()
    if kernel == "f16":
        assert_mirrored(stepper)


def assert_mirrored(stepper: GpuStepper) -> None:
    half = stepper.half_weights()
    for name, w in stepper.state().w.items():
        with np.errstate(over="ignore"):
            assert half[name].tobytes() == w.astype(np.float16).tobytes(), name


def half_edges() -> npt.NDArray[np.float32]:
    """Every half, the midpoints between neighbours, and the float32 values next to both, of either sign."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    halves = np.append(halves, 65536.0)
    middles = ((halves[1:] + halves[:-1]) / 2).astype(np.float32)
    exact = np.concatenate([halves.astype(np.float32), middles])
    largest = np.float32(np.finfo(np.float32).max)
    near = np.concatenate(
        [
            exact,
            np.nextafter(exact, largest),
            np.nextafter(exact, -largest),
            np.array([1e10, 1e-30], np.float32),
        ]
    )
    return np.concatenate([near, -near])


def test_the_mirror_is_the_nearest_half_ties_to_even_for_every_half_midpoint_and_neighbour(gpu: Gpu) -> None:
    values = half_edges()
    special = np.array([0x7F800000, 0xFF800000, 0x7FC00000, 0x00000001, 0x80000001, 0x7F7FFFFF], np.uint32)
    values = np.concatenate([values, special.view(np.float32)])
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = values.astype(np.float16)
    params = [Param("p", (len(values),))]
    stepper = make_stepper(gpu, params, Variant(kernel="f16"), w={"p": values}, align_bytes=512)
    # Before any step it is the mirror already; a step with no gradient and no decay leaves w as it is.
    for _ in range(2):
        got = stepper.half_weights()["p"]
        nan = np.isnan(wanted)
        assert np.array_equal(got.view(np.uint16)[~nan], wanted.view(np.uint16)[~nan])
        assert np.isnan(got[nan]).all()
        stepper.begin_step(HostGradients({}))
        stepper.run_to_end(HYPER)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 127, 128, 129, 1023, 1025])
def test_the_mirror_at_odd_sizes_leaves_its_padding_zero(gpu: Gpu, n: int) -> None:
    params = params_of(n, n)
    w = host(n, n, value=1.5)
    stepper = make_stepper(gpu, params, Variant(kernel="f16"), w=w, align_bytes=512)
    stepper.begin_step(HostGradients(host(n, n, value=1.0)))
    stepper.run_to_end(HYPER)
    assert_mirrored(stepper)
    buffer = stepper._memory.buffers["w_f16"]
    raw = stepper._gpu.read(buffer, 0, buffer.size).view(np.uint16)
    used = np.zeros(len(raw), bool)
    for segment in stepper.layout:
        used[segment.offset : segment.stop] = True
    assert not raw[~used].any()


def test_undo_takes_the_mirror_back_too(gpu: Gpu) -> None:
    stepper = stepped(gpu, Variant(kernel="f16"), steps=1)
    before = stepper.half_weights()
    stepper.begin_step(HostGradients(normal_state(PARAMS, seed=9)[1]))
    stepper.run_to_end(HYPER)
    assert any(before[name].tobytes() != half.tobytes() for name, half in stepper.half_weights().items())
    assert stepper.rewind_to(5)
    assert all(before[name].tobytes() == half.tobytes() for name, half in stepper.half_weights().items())
    assert_mirrored(stepper)


@pytest.mark.parametrize("numerics", ["published", "precise"])
@pytest.mark.parametrize("dispatch", ["two-block", "single", "per-tensor"])
def test_l2_in_the_gradient_follows_its_oracle(gpu: Gpu, dispatch: str, numerics: str) -> None:
    variant = Variant(optimizer="adam-l2", numerics=numerics, dispatch=dispatch)  # type: ignore[arg-type]
    w, g, m, v = normal_state(PARAMS)
    stepper = make_stepper(gpu, PARAMS, variant, w=w, m=m, v=v, finished_steps=9)
    stepper.begin_step(HostGradients(g))
    stepper.run_to_end(HYPER)
    got = stepper.state()
    exact = oracle_step(stepper.layout, (w, m, v), g, hyper=HYPER, step=10, numerics=numerics, l2=True)  # type: ignore[arg-type]
    for name in w:
        # The gradient is a sum here, so m is off by a rounding of its largest term.
        np.testing.assert_allclose(got.m[name], exact.m[name], rtol=1e-6, atol=3e-8)
        np.testing.assert_allclose(got.v[name], exact.v[name], rtol=2e-6, atol=1e-11)
        np.testing.assert_allclose(got.w[name], exact.w[name], rtol=1e-6, atol=1e-8)


def test_what_decoupling_changes_by_hand() -> None:
    """w = 1, g = 0.5, λ = 0.1, lr = 0.01 at step 1. L2: g' = 0.6, update lr·0.6/0.6. AdamW: lr·(1 + 0.1)."""
    one = np.array([1.0])
    args = {"scale": 1.0, "hyper": dataclasses.replace(HYPER, eps=0.0), "step": 1, "decays": True}
    coupled = update(one, one / 2, 0 * one, 0 * one, l2=True, numerics="precise", **args)  # type: ignore[arg-type]
    assert coupled.w[0] == pytest.approx(1 - 0.01, rel=1e-12)
    assert coupled.m[0] == pytest.approx(0.06, rel=1e-12)
    decoupled = update(one, one / 2, 0 * one, 0 * one, numerics="precise", **args)  # type: ignore[arg-type]
    assert decoupled.w[0] == pytest.approx(1 - 0.01 * 1.1, rel=1e-12)


@pytest.mark.parametrize(
    "variant",
    [
        Variant(kernel="f16"),
        Variant(dispatch="single"),
        Variant(fused=False),
        Variant(kernel="f16", fused=False, dispatch="per-tensor"),
        Variant(optimizer="adam-l2", dispatch="single"),
    ],
    ids=lambda v: f"{v.optimizer} {v.kernel} {v.dispatch} {v.fused}",
)
@pytest.mark.parametrize(("param", "index"), [("a", 77), ("d", 299), ("e", 2)])
def test_explain_agrees_with_every_form(gpu: Gpu, variant: Variant, param: str, index: int) -> None:
    w, g, m, v = normal_state(PARAMS)
    stepper = make_stepper(gpu, PARAMS, variant, w=w, m=m, v=v, align_bytes=512, finished_steps=9)
    stepper.begin_step(HostGradients(g))
    found = explain_element(stepper, HYPER, param, index)
    assert found.agrees
    assert max(line.ulp for line in found.lines) < 8
    assert stepper.cursor.at_end
    assert found.lines[-1].f32 == stepper.state().w[param][index]


def test_the_form_changes_in_mid_run_and_the_numbers_go_on(gpu: Gpu) -> None:
    w, _, m, v = normal_state(PARAMS)
    forms = [
        Variant(),
        Variant(kernel="f16"),
        Variant(dispatch="single"),
        Variant(fused=False),
        Variant(kernel="f16"),
    ]
    changing = make_stepper(gpu, PARAMS, w=w, m=m, v=v, align_bytes=512)
    steady = make_stepper(gpu, PARAMS, w=w, m=m, v=v, align_bytes=512)
    for step, form in enumerate(forms):
        changing.set_variant(form)
        if form.kernel == "f16":
            assert_mirrored(changing)
        for each in (changing, steady):
            each.begin_step(HostGradients(normal_state(PARAMS, seed=step)[1]))
            each.run_to_end(HYPER)
    assert lanes(changing) == lanes(steady)
    assert_mirrored(changing)


def test_a_mirror_needs_its_alignment_and_says_so() -> None:
    aligned = [required_placement(Variant(kernel=kernel)).align for kernel in ("f32", "f16", "8bit")]  # type: ignore[arg-type]
    assert aligned == [64, 128, 256]
    with pytest.raises(UsageError, match="--align 512"):
        plan_step(make_layout(PARAMS, align_bytes=256), Limits(), Variant(kernel="f16"))


def test_the_single_dispatch_decays_up_to_the_edge_of_the_block_and_no_further(gpu: Gpu) -> None:
    params = [Param("m", (64, 1)), Param("n", (64,))]
    w = {"m": np.ones(64, np.float32), "n": np.ones(64, np.float32)}
    stepper = make_stepper(gpu, params, Variant(dispatch="single"), w=w)
    stepper.begin_step(HostGradients({}))
    stepper.run_to_end(HYPER)
    after = stepper.state().w
    assert np.all(after["m"] == np.float32(1) - np.float32(np.float32(1e-2) * np.float32(0.1)))
    assert np.all(after["n"] == 1.0)


def test_views_work_on_a_mirrored_run(gpu: Gpu) -> None:
    stepper = stepped(gpu, Variant(kernel="f16", dispatch="single"))
    assert stepper.stats("m", None).count == stepper.layout.elements
    found = stepper.mapper.pixels([MapRequest(0, 20, 100, 2, "change")])
    assert found is not None
    assert np.nanmax(np.abs(found.pixels[0]["w"].extreme)) > 0
