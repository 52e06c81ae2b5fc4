"""SGD, momentum, Adam without decay and Lion on a device against their float64 oracles, in every form there is.

An error is measured as in test_kernels.py: of a sum in ULP of its largest term or of the sum, whichever is larger. The
three new updates have neither roots nor divisions, so each line is at most 2 such ULP from the exact one: a product and
a sum round once each, and g' once before them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_helpers import F32, lanes, make_stepper, normal_state, smaller, whole

from inspector.errors import UsageError
from inspector.floats import BoolArray, F64Array, ulp_size
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers import OPTIMIZERS, optimizer
from inspector.optimizers.evaluation import Updated
from inspector.plan import Variant
from inspector.stepping import HostGradients

HYPER = Hyper(lr=1e-3, beta1=0.9, beta2=0.99, weight_decay=0.1, max_grad_norm=0.25)
PARAMS = [Param("a", (97, 31)), Param("b", (5,)), Param("c", (300,)), Param("d", (64, 4)), Param("one", ())]
NEW = ("sgd", "momentum", "lion")
FORMS = [
    Variant(),
    Variant(numerics="precise"),
    Variant(dispatch="per-tensor"),
    Variant(dispatch="single"),
    Variant(reduce="atomic", numerics="precise", dispatch="single"),
    Variant(fused=False),
]
each_new = pytest.mark.parametrize("name", NEW)
each_form = pytest.mark.parametrize(
    "form", FORMS, ids=lambda v: f"{v.numerics} {v.reduce} {v.dispatch} {'fused' if v.fused else 'unfused'}"
)


def decays_of(stepper: GpuStepper) -> BoolArray:
    decays = np.zeros(stepper.layout.padded_elements, np.bool_)
    for segment in stepper.layout:
        decays[segment.offset : segment.stop] = segment.block == "wd"
    return decays


def exact(stepper: GpuStepper, before: dict[str, F32], step: int, hyper: Hyper = HYPER) -> Updated:
    """The oracle from the state before, with the clip scale that the device found."""
    variant = stepper.plan.variant
    return optimizer(variant.optimizer).update(
        before["w"], before["g"], before["m"], before["v"],
        scale=np.float64(stepper.grad_stats().clip_scale), hyper=hyper, step=step, decays=decays_of(stepper),
        numerics=variant.numerics,
    )  # fmt: skip


def off_in_ulp(got: F32, wanted: F64Array, *terms: F64Array) -> float:
    largest = np.max(np.abs(np.stack([wanted, *terms])), axis=0)
    # Below the least normal number a device may flush to zero.
    off = np.maximum(np.abs(got.astype(np.float64) - wanted) - 2.0**-126, 0)
    return float(np.max(off / ulp_size(largest), initial=0.0))


def assert_updated(stepper: GpuStepper, before: dict[str, F32], step: int) -> float:
    """Hold w and m after a step against the oracle; gives the share of elements whose sign is within rounding."""
    done, name = exact(stepper, before, step), stepper.plan.variant.optimizer
    after = {lane: whole(stepper, lane) for lane in "wgmv"}
    assert not after["g"].view(np.uint32).any()
    m0 = before["m"].astype(np.float64)
    grad, decay = done.line("g'"), done.line("decay")
    certain = np.ones(grad.shape, np.bool_)
    if name == "lion":
        terms = HYPER.beta1 * m0, (1 - HYPER.beta1) * grad
        # A float32 blend has another sign only where its two terms cancel to within its own rounding.
        near = 4 * ulp_size(np.maximum(*map(np.abs, terms))) + 2.0**-126
        certain = (np.abs(done.line("blend")) > near) | (done.line("blend") == 0)
        assert off_in_ulp(after["m"], done.m, HYPER.beta2 * m0, (1 - HYPER.beta2) * grad) <= 2
        change: tuple[F64Array, ...] = HYPER.lr * done.line("sign"), HYPER.lr * decay
    elif name == "momentum":
        assert off_in_ulp(after["m"], done.m, HYPER.beta1 * m0, grad, decay) <= 2
        change = HYPER.lr * HYPER.beta1 * m0, HYPER.lr * grad, HYPER.lr * decay
    else:
        change = HYPER.lr * grad, HYPER.lr * decay
    kept = certain & (done.line("update") != 0)
    w0 = before["w"].astype(np.float64)
    assert off_in_ulp(after["w"][kept], done.w[kept], w0[kept], *(c[kept] for c in change)) <= 2
    still = certain & (done.line("update") == 0)
    assert np.array_equal(after["w"][still].view(np.uint32), before["w"][still].view(np.uint32))
    return float(1 - certain.mean())


# --- the kernels against their oracles


@pytest.mark.gpu
@each_new
@each_form
def test_fifty_steps_agree_with_the_oracle_within_2_ulp(gpu: Gpu, name: str, form: Variant) -> None:
    w, _, m, _ = normal_state(PARAMS)
    kept = {"m": m} if "m" in optimizer(name).state else {}
    stepper = make_stepper(gpu, PARAMS, replace(form, optimizer=name), w=w, **kept)
    uncertain, clipped = 0.0, 0
    for step in range(1, 51):
        g = normal_state(PARAMS, seed=step)[1]
        # A clipped step, and one that is not.
        g = {k: x * np.float32(100 if step % 2 else 0.01) for k, x in g.items()}
        before = {lane: whole(stepper, lane) for lane in "wmv"}
        stepper.begin_step(HostGradients(g))
        before["g"] = whole(stepper, "g")
        stepper.run_to_end(HYPER)
        clipped += stepper.grad_stats().clip_scale < 1
        uncertain = max(uncertain, assert_updated(stepper, before, step))
    assert 0 < clipped < 50
    assert uncertain < 1e-3


@pytest.mark.gpu
@pytest.mark.parametrize("numerics", ["published", "precise"])
def test_adam_is_adamw_without_decay_bit_for_bit(gpu: Gpu, numerics: str) -> None:
    w, _, m, v = normal_state(PARAMS)
    after = []
    for name, hyper in (("adam", HYPER), ("adamw", replace(HYPER, weight_decay=0.0)), ("adamw", HYPER)):
        variant = Variant(optimizer=name, numerics=numerics)  # type: ignore[arg-type]
        stepper = make_stepper(gpu, PARAMS, variant, w=w, m=m, v=v)
        for step in range(1, 4):
            stepper.begin_step(HostGradients(normal_state(PARAMS, seed=step)[1]))
            stepper.run_to_end(hyper)
        after.append(lanes(stepper))
    assert after[0] == after[1]
    assert after[0] != after[2]


@pytest.mark.gpu
@each_new
@pytest.mark.parametrize("size", [1, 3, 4, 5, 255, 256, 257, 1025])
def test_sizes_around_every_edge_leave_the_padding_at_zero(gpu: Gpu, name: str, size: int) -> None:
    params = [Param("a", (size, 1)), Param("b", (size,))]
    w, g, *_ = normal_state(params)
    stepper = make_stepper(gpu, params, Variant(optimizer=name), w=w)
    before = {lane: whole(stepper, lane) for lane in "wmv"}
    stepper.begin_step(HostGradients(g))
    before["g"] = whole(stepper, "g")
    stepper.run_to_end(HYPER)
    assert_updated(stepper, before, 1)
    for lane in "wgm":
        values = whole(stepper, lane)
        for s in stepper.layout:
            values[s.offset : s.stop] = 0
        assert not values.any()


@pytest.mark.gpu
@each_new
def test_params_over_pages_and_split_bindings_give_the_same_bits(gpu: Gpu, name: str) -> None:
    w, _, _, _ = normal_state(PARAMS)
    found = []
    for device in (gpu, smaller(gpu, max_buffer=20_480, max_binding=5_120)):
        stepper = make_stepper(device, PARAMS, Variant(optimizer=name), w=w)
        for step in range(1, 4):
            stepper.begin_step(HostGradients(normal_state(PARAMS, seed=step)[1]))
            # The norm is added up in another order there, so that nothing is clipped.
            stepper.run_to_end(replace(HYPER, max_grad_norm=float("inf")))
        found.append({s.name: stepper.read("w", s.offset, s.numel).tobytes() for s in stepper.layout})
    assert found[0] == found[1]


@pytest.mark.gpu
@each_new
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_counts_as_zero(gpu: Gpu, name: str, bad: float) -> None:
    params = [Param("a", (8, 8))]
    w, g, *_ = normal_state(params)
    with_bad, with_zero = {"a": g["a"].copy()}, {"a": g["a"].copy()}
    with_bad["a"][5], with_zero["a"][5] = bad, 0
    after = []
    for given in (with_bad, with_zero):
        stepper = make_stepper(gpu, params, Variant(optimizer=name), w=w)
        stepper.begin_step(HostGradients(given))
        stepper.run_to_end(HYPER)
        after.append(lanes(stepper))
    assert after[0] == after[1]


@pytest.mark.gpu
@each_new
def test_an_update_that_is_not_finite_leaves_the_weight(gpu: Gpu, name: str) -> None:
    params = [Param("a", (2, 2))]
    w = {"a": np.array([1, 2, np.inf, 4], np.float32)}
    m = {"m": {"a": np.array([np.nan, 0, 0, 0], np.float32)}} if "m" in optimizer(name).state else {}
    stepper = make_stepper(gpu, params, Variant(optimizer=name), w=w, **m)
    stepper.begin_step(HostGradients({"a": np.ones(4, np.float32)}))
    stepper.run_to_end(HYPER)
    after = stepper.weights()["a"].ravel()
    # λ·w of an infinite weight is infinite; a moment that is no number makes no update.
    assert after[2] == np.inf
    assert (after[0] == 1) == ("m" in optimizer(name).state)
    assert after[1] != 2
    assert after[3] != 4


def test_the_sign_of_zero_is_zero() -> None:
    zero = np.zeros(1, np.float32)
    done = optimizer("lion").update(
        np.ones(1, np.float32), zero, zero, zero, scale=1.0, hyper=HYPER, step=1, decays=False
    )
    assert done.w[0] == 1


# --- hand-worked steps


def test_two_steps_of_each_by_hand() -> None:
    hyper = Hyper(lr=0.5, beta1=0.5, beta2=0.75, weight_decay=0.25, max_grad_norm=float("inf"))
    w, m, v = (np.array([x]) for x in (4.0, 0.0, 0.0))
    after: dict[str, list[tuple[float, float]]] = {}
    for name in NEW:
        state = (w, m, v)
        for step, g in ((1, 2.0), (2, -1.0)):
            done = optimizer(name).update(
                state[0], np.array([g]), *state[1:], scale=1.0, hyper=hyper, step=step, decays=True
            )
            state = done.w, done.m, done.v
            after.setdefault(name, []).append((float(done.w[0]), float(done.m[0])))
    assert after == {
        # 4 - ½(2 + 1) = 2½; 2½ - ½(-1 + ⅝) = 2.6875.
        "sgd": [(2.5, 0.0), (2.6875, 0.0)],
        # m = 3, w = 2½; m = 1½ + (-1 + ⅝) = 1⅛, w = 1.9375.
        "momentum": [(2.5, 3.0), (1.9375, 1.125)],
        # blend 1: 4 - ½(1 + 1) = 3, m = ½; blend ¼ - ½: 3 - ½(-1 + ¾) = 3⅛, m = ⅜ - ¼.
        "lion": [(3.0, 0.5), (3.125, 0.125)],
    }


# --- what it keeps


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "lanes_"), [("sgd", "wg"), ("momentum", "wgm"), ("lion", "wgm"), ("adam", "wgmv")]
)
def test_moments_that_are_not_kept_take_no_memory_and_read_zero(gpu: Gpu, name: str, lanes_: str) -> None:
    w, g, *_ = normal_state(PARAMS)
    stepper = make_stepper(gpu, PARAMS, Variant(optimizer=name), w=w)
    assert stepper.plan.lanes == tuple(lanes_)
    assert {n.partition("[")[0] for n in stepper.buffer_bytes} & set("wgmv") == set(lanes_)
    stepper.begin_step(HostGradients(g))
    stepper.run_to_end(HYPER)
    state = stepper.state()
    for lane, values in (("m", state.m), ("v", state.v)):
        if lane in lanes_:
            assert any(x.any() for x in values.values())
        else:
            assert values == {}
            assert not whole(stepper, lane).any()
            counts = stepper.stats(lane, None)
            assert (counts.count, counts.zeros) == (stepper.layout.elements, stepper.layout.elements)


@pytest.mark.gpu
@each_new
def test_going_back_restores_every_byte(gpu: Gpu, name: str) -> None:
    w, *_ = normal_state(PARAMS)
    stepper = make_stepper(gpu, PARAMS, Variant(optimizer=name), w=w, undo_bytes=1 << 24)
    seen = []
    for step in range(1, 4):
        stepper.begin_step(HostGradients(normal_state(PARAMS, seed=step)[1]))
        stepper.run_to_end(HYPER)
        seen.append(lanes(stepper))
    assert stepper.changed_lanes() == tuple(lane for lane in "wgmv" if lane in stepper.plan.lanes)
    for step in (2, 1):
        assert stepper.rewind_to(step)
        assert lanes(stepper) == seen[step - 1]


@pytest.mark.gpu
def test_a_change_of_optimizer_keeps_the_moments_that_both_have(gpu: Gpu) -> None:
    w, g, *_ = normal_state(PARAMS)
    stepper = make_stepper(gpu, PARAMS, Variant(optimizer="adamw"), w=w)
    stepper.begin_step(HostGradients(g))
    stepper.run_to_end(HYPER)
    m = whole(stepper, "m").tobytes()
    stepper.set_variant(Variant(optimizer="lion"))
    assert whole(stepper, "m").tobytes() == m
    assert stepper.plan.lanes == ("w", "g", "m")
    # A second moment that begins again is 0.
    stepper.set_variant(Variant(optimizer="adamw"))
    assert whole(stepper, "m").tobytes() == m
    assert not whole(stepper, "v").any()


@each_new
@pytest.mark.parametrize(
    ("form", "says"),
    [
        (Variant(kernel="8bit"), "--kernel 8bit is there for AdamW"),
        (Variant(kernel="f16"), "--kernel f16 is there for AdamW"),
        (Variant(reduce="atomic", grid="published"), "published grid is there for AdamW"),
    ],
)
def test_what_is_adamws_alone_is_refused_in_a_sentence(name: str, form: Variant, says: str) -> None:
    from inspector.optimizers import plan_step
    from inspector.plan import Limits, layout_for

    variant = replace(form, optimizer=name)
    with pytest.raises(UsageError, match=says):
        plan_step(layout_for(PARAMS, Limits(), variant), Limits(), variant)


def test_the_step_moves_the_bytes_that_it_has_to() -> None:
    from inspector.optimizers import plan_step
    from inspector.plan import Limits, layout_for

    params = [Param("a", (1024, 64))]
    moved = {}
    for name, each in OPTIMIZERS.items():
        if each.update is None:
            continue
        variant = Variant(optimizer=name)
        plan = plan_step(layout_for(params, Limits(), variant), Limits(), variant)
        (update,) = (d for d in plan.dispatches if d.updates)
        moved[name] = (update.moved_bytes - 8) / 65_536
    # w, g and each moment read and written; of Muon what is subtracted is only read.
    assert moved == {
        "adamw": 32,
        "adam-l2": 32,
        "adam": 32,
        "sgd": 16,
        "momentum": 24,
        "lion": 24,
        "muon": 28,
        "shampoo": 28,
    }
