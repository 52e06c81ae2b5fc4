"""Shampoo on a device against its float64 oracle, and what a run with it promises: undo, bits, idle params, limits.

A distance is the Frobenius norm of the difference over that of what is right; for weights over that of how far they
moved. The oracle takes roots by eigenvalues, the device by Newton iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from gpu_helpers import F32, everything, make_stepper, normal_state, smaller, whole

from inspector.errors import UsageError
from inspector.floats import F64Array
from inspector.gpu.device import Gpu
from inspector.gpu.explain import explain_element
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param, make_layout
from inspector.optimizers import is_between, optimizer_of, plan_step
from inspector.optimizers.evaluation import Array
from inspector.optimizers.shampoo.blocks import grid_of
from inspector.optimizers.shampoo.oracle import inverse_fourth_root, largest_eigenvalue, preconditioned
from inspector.optimizers.shampoo.plan import iterations
from inspector.plan import Limits, Plan, Variant
from inspector.settings import ParamSettings, Settings
from inspector.stepping import HostGradients

SHAMPOO = Variant(optimizer="shampoo", root_block=24, root_every=4)
HYPER = Hyper(lr=0.05, beta1=0.9, beta2=0.95, weight_decay=0.1, max_grad_norm=1.0)
PARAMS = [
    Param("wte.weight", (26, 20)),
    Param("h.0.weight", (20, 45)),
    Param("h.1.weight", (20, 45)),
    Param("conv.weight", (8, 3, 3, 3)),
    Param("norm.weight", (20,)),
    Param("thin.weight", (1, 30)),
]
FEW = [Param("pair.weight", (2, 64)), Param("tall.weight", (60, 3))]
"""Of few rows or columns: most of a root is the ridge's, and gradients between bring what it has not seen."""
MATRICES = tuple(p.name for p in (*PARAMS, *FEW) if len(p.shape) >= 2)
FORMS = [
    SHAMPOO,
    replace(SHAMPOO, dispatch="per-tensor", numerics="precise"),
    replace(SHAMPOO, factors="sum", root_block=256, root_every=2),
    replace(SHAMPOO, root_block=8, root_every=7),
]


def apart(found: F32 | F64Array, wanted: F64Array) -> float:
    """Frobenius norm of the difference, relative to that of what is right."""
    return float(np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(wanted))


def gradients(step: int, params: Sequence[Param] = PARAMS) -> dict[str, F32]:
    """Matrices whose singular values fall off a hundredfold; every other step is clipped."""
    found = normal_state(params, seed=step)[1]
    for p in params:
        if len(p.shape) >= 2:
            rng = np.random.default_rng(p.numel)
            rows, columns = p.shape[0], p.numel // p.shape[0]
            left, right = 10 ** rng.uniform(-1, 0, rows), 10 ** rng.uniform(-1, 0, columns)
            values = left[:, None] * found[p.name].reshape(rows, columns) * right
            found[p.name] = values.astype(np.float32).ravel()
    return {k: x * np.float32(20 if step % 2 else 1) for k, x in found.items()}


class Oracle:
    """A run in float64 that is told nothing but gradients and clip scales."""

    def __init__(self, stepper: GpuStepper, hyper: Hyper = HYPER) -> None:
        self.layout, self.variant, self.hyper = stepper.layout, stepper.plan.variant, hyper
        state = stepper.state()
        self.w = {name: x.astype(np.float64) for name, x in state.w.items()}
        self.m, self.v = ({n: np.zeros(len(x)) for n, x in self.w.items()} for _ in "mv")
        self.states: dict[str, dict[str, Array]] = {
            p: {s: by[p].astype(np.float64) for s, by in state.states.items() if p in by} for p in self.w
        }

    def step(self, g: dict[str, F32], scale: float, step: int) -> None:
        variant, form = self.variant, self.variant.numerics
        refresh = not is_between(variant, step)
        for segment in self.layout:
            name, shape = segment.name, segment.param.shape
            v = self.v[name]
            if name in MATRICES:
                found, self.states[name] = preconditioned(
                    g[name].reshape(shape), self.m[name].reshape(shape), self.states[name], scale=np.float64(scale),
                    hyper=self.hyper, step=step, block=variant.root_block, refresh=refresh, numerics=form,
                    summed=variant.factors == "sum",
                )  # fmt: skip
                v = found.ravel()
            done = optimizer_of(variant, segment.param).element_wise()(
                self.w[name], g[name], self.m[name], v, scale=np.float64(scale), hyper=self.hyper, step=step,
                decays=segment.block == "wd", numerics=form,
            )  # fmt: skip
            self.w[name], self.m[name], self.v[name] = (
                np.asarray(x, np.float64) for x in (done.w, done.m, done.v)
            )


def words(form: Variant) -> str:
    return f"{form.root_block} {form.root_every} {form.factors} {form.numerics}"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("form", "steps"),
    [
        pytest.param(form, steps, id=f"{words(form)} {steps}", marks=pytest.mark.soak if long else ())
        for form in FORMS
        # Roots in the first steps, several times since, and steps between: of the usual form fifty of them.
        for steps, long in ((16, False), (50, form is not SHAMPOO))
        if form is not SHAMPOO or steps == 50
    ],
)
def test_steps_agree_with_the_oracle(gpu: Gpu, form: Variant, steps: int) -> None:
    params = [*PARAMS, *FEW]
    w = {name: x * np.float32(0.1) for name, x in normal_state(params)[0].items()}
    stepper = make_stepper(gpu, params, form, w=w)
    oracle = Oracle(stepper)
    clipped = between = 0
    worst: dict[str, dict[str, float]] = {
        p.name: dict.fromkeys(("v", "w", "factor", "root"), 0.0) for p in params
    }
    for step in range(1, steps + 1):
        g = gradients(step, params)
        stepper.begin_step(HostGradients(g), HYPER)
        between += stepper.plan.between
        stepper.run_to_end(HYPER)
        scale = stepper.grad_stats().clip_scale
        clipped += scale < 1
        oracle.step(g, scale, step)
        state = stepper.state()
        for p in params:
            name, moved = p.name, oracle.w[p.name] - w[p.name]
            off = {
                "v": apart(state.v[name], oracle.v[name]),
                "w": apart(state.w[name].astype(np.float64) - w[name], moved),
            }
            for kept, values in oracle.states[name].items():
                kind = kept.rpartition("_")[2]
                away = apart(state.states[kept][name], np.asarray(values, np.float64))
                off[kind] = max(off.get(kind, 0.0), away)
            worst[name] = {kind: max(off.get(kind, 0.0), so_far) for kind, so_far in worst[name].items()}
    for name, off in worst.items():
        assert off["factor"] < 1e-6, name
        assert off["w"] < 1e-5, name
    assert 0 < clipped < steps
    assert between == sum(form.root_every < step and step % form.root_every != 0 for step in range(steps + 1))
    assert not whole(stepper, "g").view(np.uint32).any()


def test_the_root_of_a_diagonal_by_hand() -> None:
    """16 and 1 with a ridge of 16e-3: the eigenvectors are known, so are the roots."""
    found = inverse_fourth_root(np.diag([16.0, 1.0]))
    ridge = 16 * float(np.float32(1e-3))
    assert np.allclose(found, np.diag([(16 + ridge) ** -0.25, (1 + ridge) ** -0.25]), rtol=1e-12)
    assert largest_eigenvalue(np.diag([16.0, 1.0])) == pytest.approx(16, rel=1e-12)
    assert np.array_equal(inverse_fourth_root(np.zeros((3, 3))), np.eye(3))


def test_power_iteration_finds_what_adds_up_to_0() -> None:
    """The gradient of a head: its columns add up to 0, so that a vector of ones would see nothing of it."""
    x = np.random.default_rng(3).standard_normal((40, 7))
    factor = (x - x.mean(axis=0)) @ (x - x.mean(axis=0)).T
    assert largest_eigenvalue(factor) == pytest.approx(np.linalg.eigvalsh(factor)[-1], rel=0.02)


def test_enough_iterations_for_the_ridge_and_none_to_spare() -> None:
    for side in (8, 256, 1024):
        x = 2.5e-3 / side**0.5
        errors = []
        for _ in range(iterations(side)):
            x *= (1.25 - 0.25 * x) ** 4
            errors.append(abs(x - 1))
        assert errors[-2] < 1e-7 < errors[-3]


@pytest.mark.parametrize(
    ("shape", "block", "wanted"),
    [
        ((300, 64), 256, (2, 1, 152, 64)),
        ((768, 2304), 256, (3, 9, 256, 256)),
        ((8, 3, 3, 3), 16, (1, 2, 8, 16)),
        ((1, 5), 8, (1, 1, 8, 8)),
        # Nine parts of 8 would be one too many: 65 in parts of 8 are 9, rounded up to 8 each.
        ((65, 8), 8, (9, 1, 8, 8)),
    ],
)
def test_sides_are_cut_in_parts_of_one_size(
    shape: tuple[int, ...], block: int, wanted: tuple[int, int, int, int]
) -> None:
    grid = grid_of(shape, block)
    assert grid is not None
    assert (grid.down, grid.across, grid.height, grid.width) == wanted
    extents = [grid.extent(i, j) for i in range(grid.down) for j in range(grid.across)]
    assert all(
        0 < rows <= grid.height <= block and 0 < columns <= grid.width <= block for rows, columns in extents
    )
    assert sum(rows * columns for rows, columns in extents) == int(np.prod(shape))


def test_vectors_and_empty_params_have_no_blocks() -> None:
    assert grid_of((7,), 8) is None
    assert grid_of((), 8) is None
    assert grid_of((0, 4), 8) is None


# --- what the plan promises


def shampoo_plan(limits: Limits | None = None, *, between: bool = False, **changes: object) -> Plan:
    limits = limits or Limits()
    variant = replace(SHAMPOO, **changes)  # type: ignore[arg-type]
    layout = make_layout(PARAMS, max_buffer_bytes=limits.max_buffer_size)
    return plan_step(layout, limits, variant, between=between)


def test_labels_say_param_blocks_and_iteration() -> None:
    labels = [d.label for d in shampoo_plan().dispatches]
    last = iterations(16)
    # Of wte.weight (26 by 20) blocks of 16 by 24: two below each other.
    assert f"newton 3/{last} left T² - I = 2E + E² wte.weight blocks 0-1" in labels
    wide = iterations(24)
    assert f"newton {wide}/{wide} right X·T = X + X·E h.0.weight blocks 0-1 and 1 more" in labels
    assert "shampoo_eigenvalue left conv.weight blocks 0-1 and 1 more" in labels
    assert "left_root · m̂ · right_root conv.weight blocks 0-1 and 1 more" in labels


def test_a_step_between_leaves_out_the_roots_and_binds_the_same_buffers() -> None:
    full, between = shampoo_plan(), shampoo_plan(between=True)
    assert between.buffers == full.buffers
    assert (full.between, between.between) == (False, True)
    kept = [
        d
        for d in full.dispatches
        if not any(
            b.name in ("coupled", "root", "turn", "scales")
            or b.buffer in ("coupled", "coupled_next", "turn", "root", "root_next")
            for b in d.bindings
        )
    ]
    assert [d.label for d in between.dispatches] == [d.label for d in kept]
    assert [d.index for d in between.dispatches] == list(range(len(kept)))


def test_roots_are_new_in_the_first_steps_and_then_in_each_so_many() -> None:
    fresh = [step for step in range(1, 21) if not is_between(SHAMPOO, step)]
    assert fresh == [1, 2, 3, 4, 8, 12, 16, 20]
    assert not any(is_between(replace(SHAMPOO, root_every=1), step) for step in range(1, 9))
    assert not any(is_between(Variant(), step) for step in range(1, 50))


def test_every_element_is_updated_once() -> None:
    plan = shampoo_plan()
    for segment in plan.layout:
        kernels = [
            d.entry_point
            for d in plan.dispatches
            if d.updates and d.elements[0] <= segment.offset < d.elements[1]
        ]
        assert kernels == ["shampoo_update" if segment.name in MATRICES else "adamw_update"]


@pytest.mark.parametrize(
    "changes",
    [
        {"dispatch": "single"}, {"fused": False}, {"kernel": "f16"}, {"grid": "published", "reduce": "atomic"},
        {"root_block": 12}, {"root_block": 2048}, {"root_block": 0}, {"root_every": 0},
    ],
)  # fmt: skip
def test_forms_that_there_are_not_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        shampoo_plan(**changes)


@pytest.mark.parametrize("binding", [8192, 4096, 2304])
def test_blocks_are_put_together_as_the_limits_allow(binding: int) -> None:
    plan = shampoo_plan(Limits(max_storage_buffer_binding_size=binding))
    assert all(b.size <= binding for d in plan.dispatches for b in d.bindings)
    # Each block is stacked once, however its band is cut.
    blocks = sum(d.groups[2] for d in plan.dispatches if d.entry_point == "gram")
    grids = [grid_of(p.shape, 24) for p in PARAMS]
    assert blocks == 2 * sum(g.down * g.across for g in grids if g is not None)


def test_a_grid_counts_no_more_blocks_than_it_can() -> None:
    plan = shampoo_plan(Limits(max_compute_workgroups_per_dimension=3))
    assert all(n <= 3 for d in plan.dispatches for n in d.groups)


# --- on a device


def started(
    gpu: Gpu, form: Variant = SHAMPOO, hyper: Hyper = HYPER, steps: int = 0, **given: object
) -> GpuStepper:
    """At the start of a step, `steps` steps on."""
    stepper = make_stepper(gpu, PARAMS, form, w=normal_state(PARAMS)[0], **given)  # type: ignore[arg-type]
    for step in range(1, steps + 1):
        stepper.begin_step(HostGradients(gradients(step)), hyper)
        stepper.run_to_end(hyper)
    stepper.begin_step(HostGradients(gradients(steps + 1)), hyper)
    return stepper


@pytest.mark.gpu
def test_every_dispatch_is_taken_back_byte_for_byte_and_runs_again_to_the_same_bits(gpu: Gpu) -> None:
    # One step with roots, one between, one with roots again.
    form = replace(SHAMPOO, root_block=256, root_every=2)
    params = PARAMS[:1]
    stepper = make_stepper(gpu, params, form, w=normal_state(params)[0], undo_bytes=1 << 28)
    for step in (1, 2):
        stepper.begin_step(HostGradients(gradients(step)))
        stepper.run_to_end(HYPER)
    seen = []
    for step in (3, 4):
        stepper.begin_step(HostGradients(gradients(step)), HYPER)
        while not stepper.cursor.at_end:
            seen.append((stepper.cursor, stepper.plan.between, everything(stepper)))
            stepper.run_dispatch(HYPER)
    end = everything(stepper)
    assert {between for _, between, _ in seen} == {True, False}
    for cursor, between, before in reversed(seen):
        assert stepper.undo_dispatch()
        assert (stepper.cursor, stepper.plan.between) == (cursor, between)
        assert everything(stepper) == before
    stepper.run_to_end(HYPER)
    stepper.begin_step(HostGradients(gradients(4)), HYPER)
    stepper.run_to_end(HYPER)
    assert everything(stepper) == end


@pytest.mark.gpu
def test_batches_pages_and_single_params_give_the_same_bits(gpu: Gpu) -> None:
    hyper = replace(HYPER, max_grad_norm=float("inf"))
    form = replace(SHAMPOO, root_block=16, root_every=2)
    # The last begins on one page of 16 kB and ends on the next.
    params = [*PARAMS, Param("z.weight", (50, 60))]
    found = []
    for device, used in (
        (gpu, form),
        (smaller(gpu, max_binding=4096, max_buffer=16_384), form),
        (gpu, replace(form, dispatch="per-tensor")),
    ):
        stepper = make_stepper(device, params, used, w=normal_state(params)[0], undo_bytes=0)
        for step in range(1, 4):
            stepper.begin_step(HostGradients(normal_state(params, seed=step)[1]), hyper)
            while not stepper.cursor.at_end:
                # Few enough at once that their times can be read back through a buffer of this size.
                stepper.run_until(hyper, stepper.cursor.dispatch + 400)
        found.append({s.name: stepper.read("w", s.offset, s.numel) for s in stepper.layout})
        if device is not gpu:
            # A band of one param is moved in two pieces where a page ends in it.
            moved = [d.label for d in stepper.plan.dispatches if d.entry_point == "shampoo_scatter"]
            assert len(stepper.layout.pages) > 1
            assert len(moved) > len(set(moved))
    for name, values in found[0].items():
        assert np.array_equal(values, found[1][name]), name
        assert np.array_equal(values, found[2][name]), name


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
def test_a_matrix_without_gradient_only_decays_and_its_roots_are_the_identity(gpu: Gpu) -> None:
    params = [Param("h.weight", (6, 8))]
    w = normal_state(params)[0]
    stepper = make_stepper(gpu, params, SHAMPOO, w=w)
    identity = np.eye(8, dtype=np.float32)[None, None]
    assert np.array_equal(stepper.state().states["left_root"]["h.weight"], identity)
    stepper.begin_step(HostGradients({"h.weight": np.zeros(48, np.float32)}))
    stepper.run_to_end(HYPER)
    assert np.array_equal(stepper.state().states["left_root"]["h.weight"], identity)
    assert not stepper.read("v", 0, 48).any()
    assert apart(stepper.read("w", 0, 48), (1 - 0.05 * 0.1) * w["h.weight"].astype(np.float64)) < 1e-6


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1e-12, 1e8])
def test_gradients_of_any_size_give_the_same_update(gpu: Gpu, size: float) -> None:
    """The roots take the size off: squares of small and large gradients stay in the range of float32."""
    params = [Param("h.weight", (12, 20))]
    g = normal_state(params, seed=4)[1]["h.weight"]
    found = []
    for scale in (1.0, size):
        stepper = make_stepper(gpu, params, SHAMPOO, w=normal_state(params)[0])
        stepper.begin_step(HostGradients({"h.weight": (g * np.float32(scale)).astype(np.float32)}))
        stepper.run_to_end(replace(HYPER, max_grad_norm=float("inf")))
        found.append(stepper.read("v", 0, 240))
    assert apart(found[1], found[0].astype(np.float64)) < 1e-5


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1e-15, 1e-18, 1e-19, 1e-20, 1e-21])
def test_factors_too_small_to_be_divided_by_have_the_identity_as_root(gpu: Gpu, size: float) -> None:
    # Squares of 1e-38 and less have no normal float32, and some of them none that 1 can be divided by.
    param = Param("h.weight", (20, 12))
    g = normal_state([param], seed=5)[1]["h.weight"]
    stepper = make_stepper(gpu, [param], SHAMPOO, w=normal_state([param])[0])
    stepper.begin_step(HostGradients({"h.weight": g * np.float32(size)}))
    stepper.run_to_end(replace(HYPER, max_grad_norm=float("inf")))
    state = stepper.state()
    for name, side in (("left_root", 24), ("right_root", 16)):
        root = state.states[name]["h.weight"]
        assert np.array_equal(root.reshape(side, side), np.eye(side))
    assert apart(state.v["h.weight"].ravel() / np.float32(size), g.astype(np.float64)) < 1e-5


@pytest.mark.gpu
def test_a_momentum_that_is_not_finite_leaves_its_block_and_no_other(gpu: Gpu) -> None:
    w = normal_state(PARAMS)[0]
    bad = np.zeros(900, np.float32)
    bad[7] = np.nan
    found = []
    for moments in ({}, {"h.0.weight": bad}):
        stepper = make_stepper(gpu, PARAMS, SHAMPOO, w=w, m=moments)
        stepper.begin_step(HostGradients(gradients(1)))
        stepper.run_to_end(HYPER)
        found.append({s.name: stepper.read("w", s.offset, s.numel) for s in stepper.layout})
    for name, values in found[0].items():
        other = found[1][name]
        if name == "h.0.weight":
            # Blocks of 20 by 24: the NaN is in the first.
            values, other = values.reshape(20, 45).copy(), other.reshape(20, 45)
            values[:, :24] = w[name].reshape(20, 45)[:, :24]
        assert np.array_equal(other, values), name


@pytest.mark.gpu
def test_params_with_settings_of_their_own_and_idle_ones(gpu: Gpu) -> None:
    own, adamw = Settings(0.05, 0.9, 0.99, 1e-8, 0.1), Settings(3e-4, 0.9, 0.99, 1e-8, 0.0)
    classes = (own, adamw, replace(own, idle=True), replace(own, beta2=0.8))
    of = tuple({"h.1.weight": 2, "norm.weight": 1, "conv.weight": 3}.get(p.name, 0) for p in PARAMS)
    hyper = replace(HYPER, max_grad_norm=float("inf"), per_param=ParamSettings(classes, of))
    stepper = started(gpu, hyper=hyper)
    stepper.run_to_end(hyper)
    after, w = stepper.state(), normal_state(PARAMS)[0]
    assert np.array_equal(after.w["h.1.weight"], w["h.1.weight"])
    assert not after.states["left_factor"]["h.1.weight"].any()
    for name, settings in (("h.0.weight", own), ("conv.weight", classes[3])):
        alone = replace(hyper, beta2=settings.beta2, per_param=None)
        single = make_stepper(gpu, PARAMS, SHAMPOO, w=w)
        single.begin_step(HostGradients(gradients(1)), alone)
        single.run_to_end(alone)
        assert np.array_equal(after.w[name], single.state().w[name]), name


# --- what is shown of it


@pytest.mark.gpu
def test_statistics_foretell_the_update_of_every_param(gpu: Gpu) -> None:
    stepper = started(gpu)
    ready = next(d.index for d in stepper.plan.dispatches if d.entry_point == "finalize_grad_stats") + 1
    stepper.run_until(HYPER, ready)
    before, bits = stepper.state().w, everything(stepper)
    table = stepper.param_stats(HYPER)
    assert everything(stepper) == bits
    # In the middle of the iterations as well.
    stepper.run_until(HYPER, ready + 30)
    bits = everything(stepper)
    again = stepper.param_stats(HYPER)
    assert everything(stepper) == bits
    stepper.run_to_end(HYPER)
    after = stepper.state().w
    for row, name in enumerate(table.names):
        change = np.linalg.norm(after[name].astype(np.float64) - before[name])
        rounding = np.linalg.norm(np.spacing(np.abs(before[name])).astype(np.float64))
        assert abs(table.update.norm[row] - change) < 1e-5 * change + rounding, name
        assert table.update.norm[row] == again.update.norm[row]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["wte.weight", "conv.weight", "norm.weight"])
def test_every_line_of_an_element_is_explained_as_it_ran(gpu: Gpu, name: str) -> None:
    found = explain_element(started(gpu, steps=1), HYPER, name, 5)
    assert found.agrees
    lines = {line.name: line for line in found.lines}
    assert ("denominator" in lines) == (name not in MATRICES)
    if name in MATRICES:
        assert lines["v"].ulp == 0


@pytest.mark.gpu
def test_a_run_changes_to_shampoo_and_back_between_steps(gpu: Gpu) -> None:
    stepper = make_stepper(gpu, PARAMS, Variant(), w=normal_state(PARAMS)[0])
    for variant in (Variant(), replace(SHAMPOO, root_every=1), Variant()):
        if variant != stepper.plan.variant:
            stepper.set_variant(variant)
        step = stepper.cursor.step + 1
        stepper.begin_step(HostGradients(gradients(step)), HYPER)
        stepper.run_to_end(HYPER)
        assert stepper.cursor.step == step
        assert all(np.isfinite(values).all() for values in stepper.state().w.values())


@pytest.mark.gpu
def test_a_state_that_is_read_back_goes_on_bit_for_bit(gpu: Gpu) -> None:
    stepper = started(gpu, steps=5)
    stepper.run_to_end(HYPER)
    kept = stepper.state()
    other = stepper.another(kept)
    for each in (stepper, other):
        for step in (7, 8):
            each.begin_step(HostGradients(gradients(step)), HYPER)
            each.run_to_end(HYPER)
    after, again = stepper.state(), other.state()
    assert all(np.array_equal(after.w[p], again.w[p]) for p in after.w)
    for name, by in after.states.items():
        assert all(np.array_equal(by[p], again.states[name][p]) for p in by)
