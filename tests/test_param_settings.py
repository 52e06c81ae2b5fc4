"""Params with settings and step counts of their own, on the device: as the oracle has it; idle ones byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from gpu_helpers import F32, everything, lanes, normal_state, whole

from inspector.codecs import CODECS
from inspector.errors import UsageError
from inspector.floats import ulp_size
from inspector.gpu.device import Gpu
from inspector.gpu.explain import explain_element
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers.adamw.oracle import oracle_step, update
from inspector.optimizers.adamw.oracle_8bit import update_8bit
from inspector.param_statistics import param_stats
from inspector.plan import Variant, layout_for
from inspector.settings import ParamSettings, Settings
from inspector.stepping import HostGradients, HostState

pytestmark = pytest.mark.gpu

PARAMS = [
    Param("a", (70, 64)), Param("gain", (300,)), Param("b", (80, 64), group=1), Param("empty", (0, 2), group=1),
    Param("head", (90, 64), group=2), Param("bias", (70,), group=2), Param("late", (65, 64), group=2),
]  # fmt: skip
SIZES = (4480, 300, 5120, 0, 5760, 70, 4160)
BASE = (
    Settings(2e-3, 0.9, 0.999, 1e-8, 0.1), Settings(5e-4, 0.85, 0.95, 1e-6, 0.0),
    Settings(3e-3, 0.7, 0.99, 1e-8, 0.3),
)  # fmt: skip
"""By group."""


def settings_at(step: int) -> ParamSettings:
    """b sits out in steps 3 to 5, "late" takes part from step 7 on."""
    missed = min(max(step - 3, 0), 3)
    classes = (
        *BASE,
        replace(BASE[1], behind=missed, idle=3 <= step <= 5),
        replace(BASE[2], behind=6, idle=step < 7),
    )
    return ParamSettings(classes, (0, 0, 3, 1, 2, 2, 4))


def taken(name: str, step: int) -> tuple[Hyper, int] | None:
    """By hand, without the code that looks it up: settings and step count of a param; None where it is idle."""
    group = {"a": 0, "gain": 0, "b": 1, "empty": 1, "head": 2, "bias": 2, "late": 2}[name]
    c = BASE[group]
    t = step
    if name == "b":
        if 3 <= step <= 5:
            return None
        t = step if step < 3 else step - 3
    if name == "late":
        if step < 7:
            return None
        t = step - 6
    return Hyper(c.lr, c.beta1, c.beta2, c.eps, c.weight_decay, 0.5), t


def hyper_at(step: int) -> Hyper:
    return Hyper(lr=2e-3, max_grad_norm=0.5, per_param=settings_at(step))


def given(step: int, *, silent: bool = True) -> dict[str, F32]:
    g = normal_state(PARAMS, seed=step)[1]
    return {n: x for n, x in g.items() if not silent or taken(n, step) is not None}


def stepper_of(gpu: Gpu, variant: Variant, undo_bytes: int = 64 << 20) -> GpuStepper:
    w, _, _, _ = normal_state(PARAMS)
    layout = layout_for(PARAMS, gpu.limits, variant, alone=True)
    return GpuStepper(gpu, layout, variant, HostState(w, {}, {}), undo_bytes=undo_bytes)


def parts(stepper: GpuStepper, lane: str) -> dict[str, F32]:
    values = whole(stepper, lane)
    return {s.name: values[s.offset : s.stop] for s in stepper.layout}


FORMS = [
    Variant(), Variant(numerics="precise"), Variant(dispatch="per-tensor", numerics="precise"),
    Variant(optimizer="adam-l2", numerics="precise"), Variant(kernel="f16"), Variant(fused=False),
    Variant(kernel="f16", fused=False), Variant(reduce="atomic", grid="published"),
]  # fmt: skip


@pytest.mark.parametrize("variant", FORMS, ids=str)
def test_every_param_is_stepped_as_the_oracle_steps_it_with_its_own_settings(
    gpu: Gpu, variant: Variant
) -> None:
    stepper = stepper_of(gpu, variant)
    for step in range(1, 10):
        g = given(step)
        before = {lane: parts(stepper, lane) for lane in "wmv"}
        stepper.begin_step(HostGradients(g), hyper_at(step))
        stepper.run_to_end(hyper_at(step))
        scale = stepper.grad_stats().clip_scale
        norm = np.sqrt(sum(float(np.sum(x.astype(np.float64) ** 2)) for x in g.values()))
        assert stepper.grad_stats().grad_norm == pytest.approx(norm, rel=1e-6)
        after = {lane: parts(stepper, lane) for lane in "wmv"}
        for p in PARAMS:
            own = taken(p.name, step)
            now, was = ({lane: x[lane][p.name] for lane in "wmv"} for x in (after, before))
            if own is None:
                assert all(now[lane].tobytes() == was[lane].tobytes() for lane in "wmv"), (p.name, step)
                continue
            hyper, t = own
            exact = update(
                was["w"], g[p.name], was["m"], was["v"], scale=scale, hyper=hyper, step=t, decays=True,
                numerics=variant.numerics, l2=variant.optimizer == "adam-l2",
            )  # fmt: skip
            assert_near(now, was, exact, hyper, t, 1 if variant.numerics == "published" else 3)
        assert not whole(stepper, "g").any()
        if variant.kernel == "f16":
            mirror = stepper.half_weights()
            assert all((mirror[n] == after["w"][n].astype(np.float16)).all() for n in after["w"])


def assert_near(
    now: Mapping[str, F32], was: Mapping[str, F32], exact: object, hyper: Hyper, t: int, roundings: int
) -> None:
    """As test_kernels: m and v within 1e-6 of their largest term, w within 8 of the change, and its roundings."""
    grad = exact.line("g'")  # type: ignore[attr-defined]
    # With L2 in it the gradient is a sum, which may cancel.
    terms = np.abs(grad) + 2 * np.abs(exact.line("decay"))  # type: ignore[attr-defined]
    for lane, beta, new in (("m", hyper.beta1, terms), ("v", hyper.beta2, terms * terms)):
        largest = np.maximum(np.abs(beta * was[lane].astype(np.float64)), np.abs((1 - beta) * new))
        assert np.all(np.abs(now[lane] - getattr(exact, lane)) <= 1e-6 * largest + 2**-126)
    terms = hyper.beta1 * np.abs(was["m"].astype(np.float64)) + (1 - hyper.beta1) * terms
    ratio = terms / (1 - hyper.beta1**t) / exact.line("denominator")  # type: ignore[attr-defined]
    change = hyper.lr * (ratio + np.abs(exact.line("decay")))  # type: ignore[attr-defined]
    off = np.abs(now["w"].astype(np.float64) - exact.w)  # type: ignore[attr-defined]
    half = 0.5 * roundings * ulp_size(np.maximum(np.abs(was["w"]), np.abs(exact.w)))  # type: ignore[attr-defined]
    assert np.all(off <= 8 * ulp_size(change) + half)


def test_the_oracles_whole_step_takes_each_param_with_its_own(gpu: Gpu) -> None:
    layout = layout_for(PARAMS, gpu.limits, Variant())
    w, g, m, v = normal_state(PARAMS)
    for step in (1, 4, 9):
        done = oracle_step(layout, (w, m, v), g, hyper=hyper_at(step), step=step, numerics="precise")
        heard = [g[p.name] for p in PARAMS if taken(p.name, step) is not None]
        norm = np.sqrt(sum(float(np.sum(x.astype(np.float64) ** 2)) for x in heard))
        assert done.grad_norm == pytest.approx(norm, rel=1e-7)
        for p in PARAMS:
            own, name = taken(p.name, step), p.name
            if own is None:
                assert (done.w[name] == w[name]).all()
                assert (done.m[name] == m[name]).all()
                continue
            alone = update(
                w[name], g[name], m[name], v[name], scale=done.clip_scale, hyper=own[0], step=own[1], decays=True,
                numerics="precise",
            )  # fmt: skip
            assert (done.w[name] == alone.w).all()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dispatch", ["two-block", "per-tensor"])
def test_coded_params_too(gpu: Gpu, codec: str, dispatch: str) -> None:
    """Coding what was coded may give other codes, so an idle param must not be coded again."""
    variant = Variant(kernel="8bit", codec=codec, dispatch=dispatch)  # type: ignore[arg-type]
    stepper = stepper_of(gpu, variant)
    for step in range(1, 9):
        before = {p.name: stepper.state_of(p.name) for p in PARAMS if p.numel >= 4096}
        w = parts(stepper, "w")
        g = given(step)
        stepper.begin_step(HostGradients(g), hyper_at(step))
        stepper.run_to_end(hyper_at(step))
        scale = stepper.grad_stats().clip_scale
        for name, was in before.items():
            now, own = stepper.state_of(name), taken(name, step)
            assert now is not None
            assert was is not None
            if own is None:
                for which in ("m", "v"):
                    a, b = getattr(now, which), getattr(was, which)
                    assert a.codes.tobytes() == b.codes.tobytes()
                    assert a.scales.tobytes() == b.scales.tobytes()
                assert parts(stepper, "w")[name].tobytes() == w[name].tobytes()
                continue
            exact = update_8bit(w[name], g[name], was, scale=scale, hyper=own[0], step=own[1], decays=True)
            unsure = exact.ambiguous(8)
            for k, which in enumerate(("m", "v")):
                same = getattr(now, which).codes == getattr(exact.state, which).codes
                assert (same | unsure[k]).all(), (name, step, which)


def test_what_is_given_for_an_idle_param_counts_as_nothing(gpu: Gpu) -> None:
    loud, quiet = stepper_of(gpu, Variant()), stepper_of(gpu, Variant())
    for step in range(1, 5):
        for stepper, silent in ((loud, False), (quiet, True)):
            stepper.begin_step(HostGradients(given(step, silent=silent)), hyper_at(step))
            stepper.run_to_end(hyper_at(step))
        assert loud.grad_stats() == quiet.grad_stats()
        assert lanes(loud) == lanes(quiet)


def test_settings_that_are_first_known_when_the_step_runs_give_the_same(gpu: Gpu) -> None:
    early, late = stepper_of(gpu, Variant()), stepper_of(gpu, Variant())
    for step in range(1, 5):
        early.begin_step(HostGradients(given(step)), hyper_at(step))
        late.begin_step(HostGradients(given(step, silent=False)))
        early.run_to_end(hyper_at(step))
        late.run_until(hyper_at(step), 1)
        late.run_to_end(hyper_at(step))
        assert lanes(early) == lanes(late)
        assert early.cursor == late.cursor
    late.begin_step(HostGradients(given(5)), hyper_at(5))
    late.run_dispatch(hyper_at(5))
    with pytest.raises(UsageError, match="only between steps"):
        late.run_dispatch(hyper_at(6))


@pytest.mark.parametrize("go_back", ["dispatches", "steps", "at once"])
def test_going_back_over_steps_of_other_classes_is_exact(gpu: Gpu, go_back: str) -> None:
    stepper = stepper_of(gpu, Variant(kernel="f16"))
    seen, cursors = [lanes(stepper)], [stepper.cursor]
    for step in range(1, 9):
        stepper.begin_step(HostGradients(given(step)), hyper_at(step))
        stepper.run_to_end(hyper_at(step))
        seen.append(lanes(stepper))
        cursors.append(stepper.cursor)
    assert len({c.count for c in cursors}) == 4
    ways: dict[str, Callable[[int], bool]] = {
        "dispatches": lambda step: all(stepper.undo_dispatch() for _ in range(cursors[step].count)),
        "steps": lambda step: stepper.rewind_step() and stepper.cursor.dispatch == 0,
        "at once": lambda step: stepper.rewind_to(step - 1),
    }
    for step in range(8, 2, -1):
        assert ways[go_back](step)
        if go_back == "steps":
            assert (stepper.cursor.step, stepper.cursor.count) == (step, cursors[step].count)
            assert len(stepper.plan.dispatches) == cursors[step].count
        if go_back == "at once":
            assert stepper.cursor == replace(cursors[step - 1], dispatch=cursors[step - 1].count)
            assert lanes(stepper) == seen[step - 1]
        if go_back == "dispatches":
            assert (stepper.cursor.step, stepper.cursor.dispatch) == (step, 0)
    # Forward again it comes to the same.
    start = stepper.cursor.finished_steps + 1
    for step in range(start, 9):
        if stepper.cursor.at_end:
            stepper.begin_step(HostGradients(given(step)), hyper_at(step))
        stepper.run_to_end(hyper_at(step))
        assert lanes(stepper) == seen[step]
        assert stepper.cursor == cursors[step]


def test_a_change_of_form_keeps_the_classes(gpu: Gpu) -> None:
    one, other = stepper_of(gpu, Variant()), stepper_of(gpu, Variant(dispatch="per-tensor"))
    for step in range(1, 6):
        for stepper in (one, other):
            stepper.begin_step(HostGradients(given(step)), hyper_at(step))
            if step == 3 and stepper is one:
                stepper.set_variant(Variant(dispatch="per-tensor"))
                with pytest.raises(UsageError, match="One dispatch has one learning rate"):
                    stepper.set_variant(Variant(dispatch="single"))
                with pytest.raises(UsageError, match="One dispatch has one learning rate"):
                    stepper.check_form(stepper.layout.given, Variant(dispatch="single"))
            stepper.run_to_end(hyper_at(step))
    assert everything(one) == everything(other)


def test_a_second_run_beside_takes_the_same_classes(gpu: Gpu) -> None:
    stepper = stepper_of(gpu, Variant())
    stepper.begin_step(HostGradients(given(1)), hyper_at(1))
    made = stepper.beside(Variant(kernel="8bit", codec="dynamic"))
    same = stepper.beside(Variant(numerics="published", dispatch="per-tensor"))
    for step in range(1, 6):
        for each in (stepper, made, same):
            if each.cursor.at_end:
                each.begin_step(HostGradients(given(step)))
            each.run_to_end(hyper_at(step))
    assert lanes(same) == lanes(stepper)
    assert parts(made, "w")["b"].tobytes() != parts(stepper, "w")["b"].tobytes()
    assert np.allclose(parts(made, "w")["b"], parts(stepper, "w")["b"], atol=2e-3)
    made.release()
    same.release()


# --- what is counted and shown before the update


@pytest.mark.parametrize(
    "variant", [Variant(numerics="precise"), Variant(kernel="8bit", codec="dynamic")], ids=str
)
def test_statistics_are_of_the_update_with_its_own_settings(gpu: Gpu, variant: Variant) -> None:
    stepper = stepper_of(gpu, variant)
    for step in range(1, 9):
        g = given(step)
        stepper.begin_step(HostGradients(g), hyper_at(step))
        while not any(
            b.buffer == "grad_stats" for b in stepper.plan.dispatches[stepper.cursor.dispatch - 1].writes
        ):
            stepper.run_dispatch(hyper_at(step))
        table = stepper.param_stats(hyper_at(step))
        coded = {e.name for e in stepper.coding_errors(hyper_at(step))}
        before = {lane: parts(stepper, lane) for lane in "wgmv"}
        scale = stepper.grad_stats().clip_scale
        for got in table:
            own = taken(got.name, step)
            if own is None:
                assert (got.update.norm, got.update.largest, got.update.largest_at) == (0, 0, None)
                assert (got.update.lost, got.update.skipped, got.update.below_eps) == (0, 0, 0)
                assert got.lanes["w"].norm > 0
                assert got.name not in coded
                continue
            big = variant.kernel == "8bit" and stepper.layout[got.name].state == "8bit"
            assert (got.name in coded) == big
            wanted = param_stats(
                got.name, "wd", {lane: before[lane][got.name] for lane in "wgmv"},  # type: ignore[misc]
                clip_scale=scale, hyper=own[0], step=own[1], numerics=variant.numerics,
                codec="dynamic" if big else None,
            )  # fmt: skip
            assert got.update.norm == pytest.approx(wanted.update.norm, rel=1e-5)
            assert got.update.largest == pytest.approx(wanted.update.largest, rel=1e-5)
            assert got.update.below_eps == wanted.update.below_eps
        stepper.run_to_end(hyper_at(step))


def test_an_element_is_explained_with_the_settings_of_its_param(gpu: Gpu) -> None:
    stepper = stepper_of(gpu, Variant(numerics="precise"))
    for step in range(1, 8):
        stepper.begin_step(HostGradients(given(step)))
        if step == 4:
            with pytest.raises(UsageError, match=r"b takes no part in step 4: .* it took was number 2"):
                explain_element(stepper, hyper_at(step), "b", 7)
        if step == 7:
            got = explain_element(stepper, hyper_at(step), "b", 7)
            assert got.agrees
            assert (got.t, got.settings) == (4, replace(BASE[1], behind=3))
            line = {each.name: each for each in got.lines}
            # By hand from its own t: m̂ = m / (1 - 0.85⁴).
            assert line["m̂"].f64 == pytest.approx(line["m"].f64 / (1 - 0.85**4), rel=1e-9)
            assert line["decay"].f64 == 0
            assert line["v"].ulp <= 4, got.lines
            assert line["ratio"].ulp <= 16, got.lines
            assert "group 1" in got.dispatch.label
        stepper.run_to_end(hyper_at(step))
