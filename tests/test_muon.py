"""Muon on a device against its float64 oracle, and what a run with it promises: undo, bits, idle params, limits.

An orthogonalised matrix is held against the oracle's by the Frobenius norm of the difference over that of the oracle's,
at most 1e-5; weights likewise by their change. Entry by entry it can be further off: the iterations raise small
singular values by up to 3.4445⁵ = 485, and what rounding left along them as much.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_helpers import F32, everything, make_engine, make_stepper, normal_state, smaller, whole

from inspector.diagnosis.watchpoints import parse_condition
from inspector.errors import UsageError
from inspector.floats import F64Array
from inspector.gpu.device import Gpu
from inspector.gpu.explain import explain_element
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper, Numerics
from inspector.layout import Param, make_layout
from inspector.optimizers import optimizer_of, plan_step
from inspector.optimizers.muon.oracle import newton_schulz, orthogonalised
from inspector.plan import Limits, Plan, Variant
from inspector.settings import ParamSettings, Settings
from inspector.stepping import HostGradients

MUON = Variant(optimizer="muon")
HYPER = Hyper(lr=0.02, beta1=0.95, beta2=0.99, weight_decay=0.1, max_grad_norm=1.0)
PARAMS = [
    Param("wte.weight", (50, 33)),
    Param("h.0.wide.weight", (33, 130)),
    Param("h.0.tall.weight", (100, 33)),
    Param("h.1.wide.weight", (33, 130)),
    Param("h.1.tall.weight", (100, 33)),
    Param("conv.weight", (8, 3, 3, 3)),
    Param("norm.weight", (33,)),
    Param("lm_head.weight", (50, 33)),
]
HIDDEN = ("h.0.wide.weight", "h.0.tall.weight", "h.1.wide.weight", "h.1.tall.weight", "conv.weight")


def apart(found: F32 | F64Array, wanted: F64Array) -> float:
    """Frobenius norm of the difference, relative to that of what is right."""
    return float(np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(wanted))


def state_of(stepper: GpuStepper) -> dict[str, dict[str, F32]]:
    found = stepper.state()
    return {"w": dict(found.w), "m": dict(found.m), "v": dict(found.v)}


def assert_step(stepper: GpuStepper, before: dict[str, dict[str, F32]], g: dict[str, F32], step: int) -> None:
    """Hold a step against the oracle, from the state before and the clip scale that the device found."""
    after, scale = state_of(stepper), np.float64(stepper.grad_stats().clip_scale)
    for segment in stepper.layout:
        name, shape = segment.name, segment.param.shape
        w, m, v = (before[lane][name].astype(np.float64) for lane in "wmv")
        if name in HIDDEN:
            v = orthogonalised(
                g[name].reshape(shape),
                m.reshape(shape),
                scale=scale,
                hyper=HYPER,
                numerics=stepper.plan.variant.numerics,
            ).ravel()
            assert apart(after["v"][name], v) < 1e-5, name
        done = optimizer_of(stepper.plan.variant, segment.param).update(
            w,
            g[name],
            m,
            v,
            scale=scale,
            hyper=HYPER,
            step=step,
            decays=segment.block == "wd",
            numerics=stepper.plan.variant.numerics,
        )
        assert apart(after["m"][name], np.asarray(done.m, np.float64)) < 1e-6, name
        assert apart(after["v"][name], np.asarray(done.v, np.float64)) < 1e-5, name
        change = np.asarray(done.w, np.float64) - w
        # The rounding of w itself is no error of its change.
        off = np.abs(after["w"][name] - w - change) - np.spacing(np.abs(before["w"][name])).astype(np.float64)
        assert np.linalg.norm(np.maximum(off, 0)) <= 1e-5 * np.linalg.norm(change), name
    assert not whole(stepper, "g").view(np.uint32).any()


@pytest.mark.gpu
@pytest.mark.parametrize("form", [MUON, replace(MUON, dispatch="per-tensor", numerics="precise")], ids=str)
def test_fifty_steps_agree_with_the_oracle(gpu: Gpu, form: Variant) -> None:
    w = {name: x * np.float32(0.1) for name, x in normal_state(PARAMS)[0].items()}
    stepper = make_stepper(gpu, PARAMS, form, w=w)
    clipped = 0
    for step in range(1, 51):
        g = {k: x * np.float32(2 if step % 2 else 0.2) for k, x in normal_state(PARAMS, seed=step)[1].items()}
        before = state_of(stepper)
        stepper.begin_step(HostGradients(g))
        stepper.run_to_end(HYPER)
        clipped += stepper.grad_stats().clip_scale < 1
        if form is MUON or step % 10 == 0:
            assert_step(stepper, before, g, step)
    assert 0 < clipped < 50


LOW_RANK = [
    Param("h.0.point.weight", (1, 9)),
    Param("h.0.two.weight", (2, 2)),
    Param("h.0.four.weight", (4, 4)),
    Param("h.0.flat.weight", (8, 100)),
    Param("h.0.square.weight", (64, 64)),
    Param("h.0.wide.weight", (65, 260)),
    Param("h.0.tall.weight", (256, 40)),
    Param("h.0.large.weight", (192, 768)),
    Param("h.1.square.weight", (64, 64)),
]


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [1, 2, 5])
@pytest.mark.parametrize("numerics", ["published", "precise"])
def test_gradients_of_low_rank_agree_as_well(gpu: Gpu, rank: int, numerics: Numerics) -> None:
    # Of one sequence, or a few tokens: what no gradient points along has to stay as small as it is in float64.
    form = replace(MUON, numerics=numerics)
    stepper = make_stepper(gpu, LOW_RANK, form, w=normal_state(LOW_RANK)[0])
    inputs = {p.name: np.random.default_rng([i, rank]) for i, p in enumerate(LOW_RANK)}
    right = {p.name: inputs[p.name].standard_normal((rank, p.shape[1])) for p in LOW_RANK}
    for step in range(1, 7):
        g = {
            p.name: (inputs[p.name].standard_normal((p.shape[0], rank)) @ right[p.name])
            .astype(np.float32)
            .ravel()
            for p in LOW_RANK
        }
        before = state_of(stepper)
        stepper.begin_step(HostGradients(g))
        stepper.run_to_end(HYPER)
        scale, after = np.float64(stepper.grad_stats().clip_scale), state_of(stepper)
        for p in LOW_RANK:
            wanted = orthogonalised(
                g[p.name].reshape(p.shape),
                before["m"][p.name].astype(np.float64).reshape(p.shape),
                scale=scale,
                hyper=HYPER,
                numerics=numerics,
            )
            assert apart(after["v"][p.name], wanted.ravel()) < 1e-5, (step, p.name)


def test_the_iterations_bring_singular_values_near_1() -> None:
    x = np.random.default_rng(1).standard_normal((40, 90))
    for each in (x, x.T, 1e-3 * x):
        values = np.linalg.svd(newton_schulz(each), compute_uv=False)
        assert values.min() > 0.6
        assert values.max() < 1.3
    # The directions stay: U and V of the matrix are those of the result.
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    inside = u.T @ newton_schulz(x) @ vt.T
    assert np.allclose(inside, np.diag(np.diag(inside)), atol=1e-12)


def test_one_number_by_hand() -> None:
    # A 1 x 1 matrix is 1 after the division, but for 1e-7; then x ← ax + bx³ + cx⁵ five times.
    x = 1.0
    for _ in range(5):
        x = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
    assert np.isclose(newton_schulz(np.array([[-5.0]]))[0, 0], -x, rtol=1e-5)


# --- what the plan promises


def muon_plan(limits: Limits | None = None, **changes: object) -> Plan:
    limits = limits or Limits()
    variant = replace(MUON, **changes)  # type: ignore[arg-type]
    return plan_step(make_layout(PARAMS, max_buffer_bytes=limits.max_buffer_size), limits, variant)


def test_labels_say_matrix_and_iteration_and_equal_shapes_go_together() -> None:
    labels = [d.label for d in muon_plan().dispatches]
    assert "newton_schulz 3/5 XXᵀ h.0.wide.weight and 1 more" in labels
    assert "newton_schulz 5/5 aX + XB h.0.tall.weight and 1 more" in labels
    assert sum(label.startswith("newton_schulz") for label in labels) == 3 * 5 * 3
    # Every element is updated once, those of hidden matrices by Muon.
    plan = muon_plan()
    for segment in plan.layout:
        kernels = {
            d.entry_point
            for d in plan.dispatches
            if d.updates and d.elements[0] <= segment.offset < d.elements[1]
        }
        assert kernels == {"muon_update" if segment.name in HIDDEN else "adamw_update"}


def test_patterns_leave_matrices_to_adamw() -> None:
    plan = muon_plan(no_muon="h.1.*, conv*")
    taken = [s.name for s in plan.layout if optimizer_of(plan.variant, s.param).name == "muon"]
    assert taken == ["h.0.wide.weight", "h.0.tall.weight"]
    assert not any("h.1" in d.label or "conv" in d.label for d in plan.dispatches if "newton" in d.label)


@pytest.mark.parametrize(
    "changes",
    [{"dispatch": "single"}, {"fused": False}, {"kernel": "f16"}, {"grid": "published", "reduce": "atomic"}],
)
def test_forms_that_there_are_not_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        muon_plan(**changes)


def test_matrices_are_stacked_as_the_limits_allow() -> None:
    # Bindings of 40 kB hold two neighbouring matrices of 17 kB, but not what lies between those of two layers.
    small = muon_plan(Limits(max_storage_buffer_binding_size=40_960))
    assert "normalise h.0.wide.weight" in [d.label for d in small.dispatches]
    for dispatch in small.dispatches:
        assert all(b.size <= 40_960 for b in dispatch.bindings)
    with pytest.raises(
        UsageError,
        match=r"33 by 130 takes 34,848 bytes in two floats, over this device's binding limit of 16,384",
    ):
        muon_plan(Limits(max_storage_buffer_binding_size=16_384))


def test_a_batch_has_no_more_matrices_than_a_grid_can_count() -> None:
    params = [Param(f"h.{i}.weight", (2, 3)) for i in range(10)]
    limits = Limits(max_compute_workgroups_per_dimension=4)
    plan = plan_step(make_layout(params), limits, MUON)
    assert all(n <= 4 for d in plan.dispatches for n in d.groups)
    assert [d.groups[2] for d in plan.dispatches if d.entry_point == "normalise"] == [4, 4, 2]


# --- on a device


def started(gpu: Gpu, form: Variant = MUON, hyper: Hyper = HYPER, **given: object) -> GpuStepper:
    w, g, m, _ = normal_state(PARAMS)
    stepper = make_stepper(gpu, PARAMS, form, w=w, m=m, **given)  # type: ignore[arg-type]
    stepper.begin_step(HostGradients(g), hyper)
    return stepper


@pytest.mark.gpu
def test_every_dispatch_can_be_taken_back_byte_for_byte_and_runs_again_to_the_same_bits(gpu: Gpu) -> None:
    stepper = started(gpu, undo_bytes=1 << 28)
    seen = []
    while not stepper.cursor.at_end:
        seen.append(everything(stepper))
        stepper.run_dispatch(HYPER)
    end = everything(stepper)
    for before in reversed(seen):
        assert stepper.undo_dispatch()
        assert everything(stepper) == before
    stepper.run_to_end(HYPER)
    assert everything(stepper) == end


@pytest.mark.gpu
def test_batches_and_single_matrices_give_the_same_bits(gpu: Gpu) -> None:
    hyper = replace(HYPER, max_grad_norm=float("inf"))
    found = []
    for device, form in (
        (gpu, MUON),
        (smaller(gpu, max_binding=40_960, max_buffer=40_960), MUON),
        (gpu, replace(MUON, dispatch="per-tensor")),
    ):  # fmt: skip
        w, g, m, _ = normal_state(PARAMS)
        stepper = make_stepper(device, PARAMS, form, w=w, m=m, undo_bytes=0)
        stepper.begin_step(HostGradients(g))
        stepper.run_to_end(hyper)
        found.append({s.name: stepper.read("w", s.offset, s.numel) for s in stepper.layout})
        if device is not gpu:
            paged = {s.name for s in stepper.layout if len(list(stepper.layout.pieces(s.offset, s.stop))) > 1}
    assert "h.1.wide.weight" in paged
    for name, values in found[0].items():
        assert np.array_equal(values, found[2][name])
        if name in paged:
            # The squares of a matrix on two pages are added up in another order.
            assert apart(found[1][name], values.astype(np.float64)) < 1e-6
        else:
            assert np.array_equal(values, found[1][name])


@pytest.mark.gpu
def test_what_lies_between_params_stays_zero(gpu: Gpu) -> None:
    stepper = started(gpu)
    stepper.run_to_end(HYPER)
    for lane in "wgmv":
        values = whole(stepper, lane)
        for s in stepper.layout:
            values[s.offset : s.stop] = 0
        assert not values.view(np.uint32).any()


@pytest.mark.gpu
def test_a_matrix_without_gradient_and_momentum_only_decays(gpu: Gpu) -> None:
    params = [Param("h.weight", (6, 8))]
    w = normal_state(params)[0]
    stepper = make_stepper(gpu, params, MUON, w=w)
    stepper.begin_step(HostGradients({"h.weight": np.zeros(48, np.float32)}))
    stepper.run_to_end(HYPER)
    assert not stepper.read("v", 0, 48).any()
    assert apart(stepper.read("w", 0, 48), (1 - 0.02 * 0.1) * w["h.weight"].astype(np.float64)) < 1e-6


@pytest.mark.gpu
def test_a_momentum_that_is_not_finite_leaves_its_matrix_and_no_other(gpu: Gpu) -> None:
    w, g, m, _ = normal_state(PARAMS)
    bad = {**m, "h.0.wide.weight": m["h.0.wide.weight"].copy()}
    bad["h.0.wide.weight"][7] = np.nan
    found = []
    for moments in (m, bad):
        stepper = make_stepper(gpu, PARAMS, MUON, w=w, m=moments)
        stepper.begin_step(HostGradients(g))
        stepper.run_to_end(HYPER)
        found.append({s.name: stepper.read("w", s.offset, s.numel) for s in stepper.layout})
    for name, values in found[0].items():
        same = w[name] if name == "h.0.wide.weight" else values
        assert np.array_equal(found[1][name], same), name


@pytest.mark.gpu
def test_params_with_settings_of_their_own_and_idle_ones(gpu: Gpu) -> None:
    muon, adamw = Settings(0.02, 0.95, 0.99, 1e-8, 0.1), Settings(3e-4, 0.9, 0.99, 1e-8, 0.0)
    idle = replace(muon, idle=True)
    of = tuple(2 if p.name == "h.1.wide.weight" else 0 if p.name in HIDDEN else 1 for p in PARAMS)
    hyper = replace(HYPER, per_param=ParamSettings((muon, adamw, idle), of))
    stepper = started(gpu, hyper=hyper)
    before = state_of(stepper)
    stepper.run_to_end(hyper)
    after, (_, g, _, _) = state_of(stepper), normal_state(PARAMS)
    scale = np.float64(stepper.grad_stats().clip_scale)
    for lane in "wmv":
        assert np.array_equal(after[lane]["h.1.wide.weight"], before[lane]["h.1.wide.weight"])
    for segment, own in ((s, muon if s.name in HIDDEN else adamw) for s in stepper.layout):
        name, shape = segment.name, segment.param.shape
        if name == "h.1.wide.weight":
            continue
        used = Hyper(own.lr, own.beta1, own.beta2, own.eps, own.weight_decay)
        w, m, v = (before[lane][name].astype(np.float64) for lane in "wmv")
        if name in HIDDEN:
            v = orthogonalised(g[name].reshape(shape), m.reshape(shape), scale=scale, hyper=used).ravel()
        done = optimizer_of(MUON, segment.param).update(
            w, g[name], m, v, scale=scale, hyper=used, step=1, decays=True
        )
        assert apart(after["w"][name], np.asarray(done.w, np.float64)) < 1e-6, name


# --- what is shown of it


@pytest.mark.gpu
def test_statistics_foretell_the_update_of_every_param(gpu: Gpu) -> None:
    stepper = started(gpu)
    while not any(
        b.buffer == "grad_stats" for b in stepper.plan.dispatches[stepper.cursor.dispatch - 1].writes
    ):
        stepper.run_dispatch(HYPER)
    before, bits = state_of(stepper), everything(stepper)
    table = stepper.param_stats(HYPER)
    assert everything(stepper) == bits
    # In the middle of the iterations as well.
    for _ in range(9):
        stepper.run_dispatch(HYPER)
    bits = everything(stepper)
    again = stepper.param_stats(HYPER)
    assert everything(stepper) == bits
    stepper.run_to_end(HYPER)
    after = state_of(stepper)
    for row, name in enumerate(table.names):
        change = after["w"][name].astype(np.float64) - before["w"][name]
        # As measured: the weight itself is rounded.
        rounding = np.linalg.norm(np.spacing(np.abs(before["w"][name])).astype(np.float64))
        assert (
            abs(table.update.norm[row] - np.linalg.norm(change)) < 1e-5 * np.linalg.norm(change) + rounding
        ), name
        assert table.update.norm[row] == again.update.norm[row]
        assert np.isclose(table.lanes["m"].norm[row], np.linalg.norm(before["m"][name]), rtol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["h.0.tall.weight", "conv.weight", "norm.weight", "wte.weight"])
def test_every_line_of_an_element_is_explained_as_it_ran(gpu: Gpu, name: str) -> None:
    found = explain_element(started(gpu), HYPER, name, 5)
    assert found.agrees
    lines = {line.name: line for line in found.lines}
    assert ("direction" in lines) == (name in HIDDEN)
    if name in HIDDEN:
        # Neither roots nor divisions behind gradNorm: a product and a sum round once each, and g' before them.
        assert all(line.ulp <= 2 for line in found.lines[2:] if line.name != "w")


@pytest.mark.gpu
def test_a_run_changes_to_muon_and_back_between_steps(gpu: Gpu) -> None:
    w, *_ = normal_state(PARAMS)
    stepper = make_stepper(gpu, PARAMS, w=w)
    for step, form in enumerate((Variant(), MUON, MUON, Variant()), start=1):
        stepper.set_variant(form)
        before, g = state_of(stepper), normal_state(PARAMS, seed=step)[1]
        stepper.begin_step(HostGradients(g))
        stepper.run_to_end(HYPER)
        if form is MUON:
            assert_step(stepper, before, g, step)
    # Scratch buffers go with the form that needs them.
    assert not {"stacked", "gram", "squares"} & set(stepper.buffer_bytes)


@pytest.mark.gpu
def test_a_breakpoint_on_the_update_of_a_matrix_stops_before_it(gpu: Gpu) -> None:
    w, g, *_ = normal_state(PARAMS)
    engine = make_engine(gpu, PARAMS, g, w=w, hyper=HYPER, variant=MUON, stats="full")
    stepper = engine.stepper
    engine.breakpoints.set(parse_condition("update_ratio@h.1.tall.weight > 0"))
    engine.breakpoints_changed()
    engine.step_iteration()
    cursor = stepper.cursor
    assert not cursor.at_end
    assert not any(d.updates for d in stepper.plan.dispatches[: cursor.dispatch])
    told = {p.name: p.update.norm for p in engine.param_stats}
    before = state_of(stepper)["w"]
    engine.finish_step()
    change = state_of(stepper)["w"]["h.1.tall.weight"].astype(np.float64) - before["h.1.tall.weight"]
    assert told["h.1.tall.weight"] == pytest.approx(float(np.linalg.norm(change)), rel=1e-4)
