"""Adafactor on a device against its float64 oracle: 1e-5 of each param's size over 50 steps, in every form there is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_helpers import F32, everything, make_stepper, normal_state
from safetensors.numpy import load_file, save_file

from inspector.cli import run
from inspector.errors import UsageError
from inspector.floats import F64Array
from inspector.gpu.device import Gpu
from inspector.gpu.explain import explain_element
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers import OPTIMIZERS, PARAM_STATES, optimizer, plan_step
from inspector.optimizers.evaluation import UpdatedParam
from inspector.plan import Limits, Variant, layout_for
from inspector.session.diff import diff
from inspector.session.plans import recorded_plan
from inspector.session.reader import Session
from inspector.settings import ParamSettings, Settings
from inspector.sources.statefile import StateFile
from inspector.stepping import HostGradients, HostState

HYPER = Hyper(lr=1e-2, weight_decay=0.1, max_grad_norm=0.25)
PARAMS = [
    Param("a", (97, 31)), Param("wide", (3, 700)), Param("tall", (1100, 5)), Param("b", (5,)), Param("c", (9000,)),
    Param("stack", (3, 70, 9)), Param("conv", (80, 2, 3, 3)), Param("column", (7, 1)), Param("one", ()),
]  # fmt: skip
FORMS = [
    Variant(),
    Variant(numerics="precise"),
    Variant(dispatch="per-tensor"),
    Variant(dispatch="single"),
    Variant(reduce="atomic", fused=False),
]
each_form = pytest.mark.parametrize(
    "form", FORMS, ids=lambda v: f"{v.numerics} {v.reduce} {v.dispatch} {'fused' if v.fused else 'unfused'}"
)


def gradients(step: int) -> dict[str, F32]:
    """Rows and columns of very different size, so that factors matter; every other step is clipped."""
    g = normal_state(PARAMS, seed=step)[1]
    for p in PARAMS:
        if len(p.shape) >= 2:
            rng = np.random.default_rng(p.numel)
            rows, columns = (10.0 ** rng.uniform(-3, 1, n) for n in p.shape[-2:])
            values = g[p.name].reshape(p.shape) * rows[:, None] * columns
            g[p.name] = values.astype(np.float32).reshape(-1)
    return {k: x * np.float32(100 if step % 2 else 0.01) for k, x in g.items()}


def exact(
    stepper: GpuStepper,
    param: Param,
    w: F32,
    g: F32,
    states: dict[str, F64Array],
    step: int,
    hyper: Hyper = HYPER,
) -> UpdatedParam:
    update = optimizer("adafactor").update_param
    assert update is not None
    return update(
        w.astype(np.float64).reshape(param.shape), g.astype(np.float64).reshape(param.shape), states,
        scale=np.float64(stepper.grad_stats().clip_scale), hyper=hyper, step=step,
        decays=stepper.layout[param.name].block == "wd", numerics=stepper.plan.variant.numerics,
    )  # fmt: skip


def off(got: F32, wanted: F64Array) -> float:
    """The distance of two arrays by the size of the second."""
    size = float(np.linalg.norm(wanted))
    return float(np.linalg.norm(got.astype(np.float64).reshape(-1) - wanted.reshape(-1))) / (size or 1.0)


@pytest.mark.gpu
@each_form
def test_fifty_steps_agree_with_the_oracle(gpu: Gpu, form: Variant) -> None:
    """The oracle runs 50 steps by itself, from the gradients and clip scales alone."""
    w = normal_state(PARAMS)[0]
    stepper = make_stepper(gpu, PARAMS, replace(form, optimizer="adafactor"), w=w)
    state = stepper.state()
    true = {name: values.astype(np.float64) for name, values in state.w.items()}
    kept = {
        p.name: {s: v[p.name].astype(np.float64) for s, v in state.states.items() if p.name in v}
        for p in PARAMS
    }
    clipped = scaled = 0
    for step in range(1, 51):
        g = gradients(step)
        stepper.begin_step(HostGradients(g))
        stepper.run_to_end(HYPER)
        clipped += stepper.grad_stats().clip_scale < 1
        for p in PARAMS:
            done = exact(stepper, p, true[p.name], g[p.name], kept[p.name], step)
            true[p.name], kept[p.name] = done.w.reshape(-1), dict(done.states)
            scaled += bool(done.line("RMS(u)") > 1)
    after = stepper.state()
    for p in PARAMS:
        assert off(after.w[p.name], true[p.name]) < 1e-5, p.name
        moved = true[p.name] - w[p.name]
        assert off(after.w[p.name] - w[p.name], moved) < 1e-5, p.name
        for name, values in kept[p.name].items():
            got = after.states[name][p.name]
            assert got.shape == values.shape
            # Each mean by itself: rows differ by orders of magnitude.
            assert np.max(np.abs(got / values - 1)) < 1e-5, (p.name, name)
    assert 0 < clipped < 50
    assert scaled
    assert not any(x.view(np.uint32).any() for x in stepper.gradients().values())


@pytest.mark.gpu
def test_bits_are_the_same_every_run(gpu: Gpu) -> None:
    w = normal_state(PARAMS)[0]
    found = []
    for _ in range(2):
        stepper = make_stepper(gpu, PARAMS, Variant(optimizer="adafactor"), w=w)
        for step in (1, 2, 3):
            stepper.begin_step(HostGradients(gradients(step)))
            stepper.run_to_end(HYPER)
        found.append(everything(stepper))
    assert found[0] == found[1]


# --- cut, undone, looked at


@pytest.mark.gpu
@pytest.mark.parametrize("most", [{"max_binding": 8192}, {"max_binding": 40_960}, {"max_buffer": 40_960}])
def test_params_that_bindings_and_pages_cut_are_updated_as_whole(gpu: Gpu, most: dict[str, int]) -> None:
    """Tiles that g is cut through have sums of their own in each binding: the same but for how they are added up."""
    w, after = normal_state(PARAMS)[0], []
    for limits in ({}, most):
        stepper = make_stepper(gpu, PARAMS, Variant(optimizer="adafactor"), w=w, **limits)  # type: ignore[arg-type]
        for step in (1, 2):
            stepper.begin_step(HostGradients(gradients(step)))
            stepper.run_to_end(HYPER)
        after.append(stepper.state())
    assert len([d for d in stepper.plan.dispatches if d.updates]) > 2
    for p in PARAMS:
        moved = after[0].w[p.name].astype(np.float64) - w[p.name]
        assert off(after[1].w[p.name] - w[p.name], moved) < 1e-5, p.name
        for name, by_param in after[0].states.items():
            if p.name in by_param:
                assert np.allclose(after[1].states[name][p.name], by_param[p.name], rtol=1e-5, atol=0)


@pytest.mark.gpu
def test_every_dispatch_is_taken_back_byte_for_byte(gpu: Gpu) -> None:
    stepper = make_stepper(gpu, PARAMS, Variant(optimizer="adafactor"), w=normal_state(PARAMS)[0])
    seen = []
    for step in (1, 2):
        stepper.begin_step(HostGradients(gradients(step)))
        while not stepper.cursor.at_end:
            seen.append((stepper.cursor, everything(stepper)))
            stepper.run_dispatch(HYPER)
    for cursor, was in reversed(seen):
        assert stepper.undo_dispatch()
        assert stepper.cursor == cursor
        assert everything(stepper) == was


@pytest.mark.gpu
def test_a_state_that_is_read_back_goes_on_bit_for_bit(gpu: Gpu) -> None:
    stepper = make_stepper(gpu, PARAMS, Variant(optimizer="adafactor"), w=normal_state(PARAMS)[0])
    stepper.begin_step(HostGradients(gradients(1)))
    stepper.run_to_end(HYPER)
    kept = stepper.state()
    assert {n: {p: v.shape for p, v in by.items()} for n, by in kept.states.items()} == {
        "row_var": {
            "a": (97,), "wide": (3,), "tall": (1100,), "stack": (3, 70), "conv": (80, 2, 3), "column": (7,),
        },
        "col_var": {
            "a": (31,), "wide": (700,), "tall": (5,), "stack": (3, 9), "conv": (80, 2, 3), "column": (1,),
        },
        "variance": {"b": (5,), "c": (9000,), "one": ()},
    }  # fmt: skip
    other = stepper.another(kept)
    for each in (stepper, other):
        for step in (2, 3):
            each.begin_step(HostGradients(gradients(step)))
            each.run_to_end(HYPER)
    assert everything(stepper) == everything(other)
    stepper.restore(kept)
    assert stepper.cursor.step == 1
    assert all(
        (stepper.state().states[n][p] == v).all() for n, by in kept.states.items() for p, v in by.items()
    )


@pytest.mark.gpu
def test_statistics_are_of_the_update_to_come_and_leave_everything_as_it_is(gpu: Gpu) -> None:
    stepper = make_stepper(gpu, PARAMS, Variant(optimizer="adafactor"), w=normal_state(PARAMS)[0])
    for step in (1, 2):
        stepper.begin_step(HostGradients(gradients(step)))
        ready = next(d.index for d in stepper.plan.dispatches if d.entry_point == "finalize_grad_stats") + 1
        stepper.run_until(HYPER, ready)
        was, before = everything(stepper), stepper.state().w
        table = stepper.param_stats(HYPER)
        assert everything(stepper) == was
        g = stepper.gradients()
        stepper.run_to_end(HYPER)
        after = stepper.state().w
        for row, each in enumerate(table):
            name = table.names[row]
            moved = before[name].astype(np.float64) - after[name]
            assert each.update.norm == pytest.approx(float(np.linalg.norm(moved)), rel=1e-5)
            assert each.update.largest == pytest.approx(float(np.abs(moved).max()) / HYPER.lr, rel=1e-5)
            assert each.lanes["g"].norm == pytest.approx(float(np.linalg.norm(g[name])), rel=1e-5)
            assert each.lanes["w"].norm == pytest.approx(float(np.linalg.norm(before[name])), rel=1e-5)
            assert (each.update.below_eps, each.update.skipped, each.lanes["v"].norm) == (0, 0, 0)


@pytest.mark.gpu
def test_params_may_have_settings_and_steps_of_their_own(gpu: Gpu) -> None:
    """Two classes, one of them a step behind, and one that is idle: each as a run in which all share its settings."""
    params = [Param("a", (97, 31)), Param("b", (5,)), Param("c", (300,)), Param("d", (64, 4))]
    w = normal_state(params)[0]
    one, other = Settings(1e-2, 0.9, 0.99, 0.0, 0.1), Settings(3e-3, 0.8, 0.95, 0.0, 0.0)
    free = replace(HYPER, max_grad_norm=float("inf"))
    after = {}
    for label, own in (
        ("own", ParamSettings((one, other, replace(one, idle=True)), (0, 1, 2, 1))),
        ("one", ParamSettings((one,), (0,) * 4)),
        ("other", ParamSettings((other,), (0,) * 4)),
    ):
        hyper = replace(free, per_param=own)
        stepper = make_stepper(gpu, params, Variant(optimizer="adafactor"), w=w)
        for step in (1, 2):
            stepper.begin_step(HostGradients(normal_state(params, seed=step)[1]), hyper)
            stepper.run_to_end(hyper)
        after[label] = stepper.state()
    for name, label in (("a", "one"), ("b", "other"), ("d", "other")):
        assert after["own"].w[name].tobytes() == after[label].w[name].tobytes()
    assert after["own"].w["c"].tobytes() == w["c"].tobytes()
    assert not after["own"].states["variance"]["c"].any()


@pytest.mark.gpu
def test_gradients_that_are_not_finite_count_as_0_and_leave_finite_weights(gpu: Gpu) -> None:
    w = normal_state(PARAMS)[0]
    g, zeroed = gradients(1), gradients(1)
    for name, index, bad in (("a", 40, np.nan), ("a", 2000, np.inf), ("c", 17, -np.inf)):
        g[name][index], zeroed[name][index] = bad, 0
    after = []
    for each in (g, zeroed):
        stepper = make_stepper(gpu, PARAMS, Variant(optimizer="adafactor"), w=w)
        stepper.begin_step(HostGradients(each))
        stepper.run_to_end(HYPER)
        after.append(everything(stepper))
    assert after[0] == after[1]


@pytest.mark.gpu
def test_an_element_is_not_explained_by_itself_and_a_sentence_says_why(gpu: Gpu) -> None:
    stepper = make_stepper(gpu, PARAMS, Variant(optimizer="adafactor"), w=normal_state(PARAMS)[0])
    stepper.begin_step(HostGradients(gradients(1)))
    with pytest.raises(UsageError, match="Adafactor updates it by sums over its param"):
        explain_element(stepper, HYPER, "a", 3)
    assert stepper.cursor.dispatch == 0


def test_the_factors_take_little_memory_and_the_update_moves_what_it_has_to() -> None:
    params = [Param("a", (1024, 512)), Param("b", (512,))]
    variant = Variant(optimizer="adafactor")
    plan = plan_step(layout_for(params, Limits(), variant), Limits(), variant)
    sizes = {b.name: b.size for b in plan.buffers if b.kind == "state"}
    assert sizes == {
        "w": 4 * (524_288 + 512), "g": 4 * (524_288 + 512), "row_var": 4096, "col_var": 2048, "variance": 2048,
    }  # fmt: skip
    moved = {d.entry_point: sum(b.moved_bytes for b in d.bindings if b.name in "wg") for d in plan.dispatches}
    n = 524_288
    assert moved["adafactor_sums"] == moved["adafactor_rms"] == 4 * n
    assert moved["adafactor_update"] == 16 * n
    assert moved["adafactor_vector_moment"] == 4 * 512


# --- recordings and files


def call(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = run([*words, "--json"])
    told = capsys.readouterr()
    assert code == 0, told.err
    found: dict[str, Any] = json.loads(told.out)
    return found


@pytest.mark.gpu
def test_a_recording_holds_the_factors_and_replays_bit_for_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, again = (
        tmp_path / "run.session",
        tmp_path / "after.safetensors",
        tmp_path / "again.safetensors",
    )
    words = (
        "run",
        "charlm:width=16,layers=1",
        "--optimizer",
        "adafactor",
        "--save",
        str(path),
        "--capture",
        "all",
    )
    call(capsys, *words, "--steps", "3")
    call(capsys, *words, "--steps", "5", "--resume", "--out", str(out))
    with Session.open(path) as session:
        state = session.keyframe(5)
        matrices = {p.name: p.shape for p in session.about.params if len(p.shape) == 2}
        vectors = {p.name: p.shape for p in session.about.params if len(p.shape) == 1}
        assert {n: v.shape for n, v in state.states["row_var"].items()} == {
            n: s[:1] for n, s in matrices.items()
        }
        assert {n: v.shape for n, v in state.states["variance"].items()} == vectors
        name = next(iter(matrices))
        assert session.param_state("col_var", 5, name).tobytes() == state.states["col_var"][name].tobytes()
        with pytest.raises(UsageError, match="it has col_var, row_var"):
            session.param_state("variance", 5, name)
        assert load_file(out)[f"row_var/{name}"].tobytes() == state.states["row_var"][name].tobytes()
    replayed = call(capsys, "replay", str(path), "--verify")
    assert replayed["bit_exact"]
    # From its middle it goes on from the captured factors.
    assert call(capsys, "replay", str(path), "--verify", "--from", "4")["bit_exact"]
    call(capsys, "export", str(path), "--format", "safetensors", "--out", str(again))
    theirs, mine = load_file(out), load_file(again)
    assert {k for k in theirs if k[:2] != "g/"} == {k for k in mine if k[:2] not in ("g/", "m/", "v/")}
    assert all(mine[k].tobytes() == v.tobytes() for k, v in theirs.items() if k[:2] != "g/")


@pytest.mark.gpu
def test_a_difference_in_the_factors_is_found_and_its_dispatch_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.session"
    words = (
        "run",
        "charlm:width=16,layers=1",
        "--optimizer",
        "adafactor",
        "--save",
        str(path),
        "--capture",
        "all",
    )
    call(capsys, *words, "--steps", "2")
    real = Session.keyframe

    def keyframe(self: Session, step: int) -> HostState:
        state = real(self, step)
        if step != 2:
            return state
        changed = {n: {p: v.copy() for p, v in by.items()} for n, by in state.states.items()}
        values = next(iter(changed["row_var"].values()))
        values[1] = np.nextafter(values[1], np.float32(np.inf))
        return replace(state, states=changed)

    monkeypatch.setattr(Session, "keyframe", keyframe)
    assert run(["replay", str(path), "--verify", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    first = found["first_difference"]
    assert (first["buffer"], first["index"], found["max_ulp"]) == ("row_var", 1, 1)
    with Session.open(path) as session:
        plan = recorded_plan(session, session.step(2))
    assert plan.dispatches[first["dispatch"]].entry_point == "adafactor_factors"


@pytest.mark.gpu
def test_a_state_file_goes_on_from_its_factors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params = [Param("a", (8, 4)), Param("b", (3,))]
    w, g = normal_state(params)[:2]
    tensors = {
        f"{lane}/{p.name}": x[p.name].reshape(p.shape) for lane, x in (("w", w), ("g", g)) for p in params
    }
    tensors |= {f"g@2/{p.name}": tensors[f"g/{p.name}"] for p in params}
    start, middle, end, whole = (
        tmp_path / f"{name}.safetensors" for name in ("start", "middle", "end", "whole")
    )
    save_file(tensors, start)
    words = ("--optimizer", "adafactor", "--steps")
    call(capsys, "run", str(start), *words, "2", "--out", str(whole))
    call(capsys, "run", str(start), *words, "1", "--out", str(middle))
    assert load_file(middle)["row_var/a"].shape == (8,)
    call(capsys, "run", str(middle), *words, "1", "--out", str(end))
    one, other = load_file(whole), load_file(end)
    assert one.keys() == other.keys()
    assert all(one[key].tobytes() == other[key].tobytes() for key in one)


@pytest.mark.parametrize(
    ("key", "shape", "says"),
    [
        ("row_var/a", (7,), r"has the shape \[7\]; a param of shape \[8, 4\] has one of shape \[8\]"),
        ("variance/a", (8,), "has no such state"),
        ("row_var/z", (8,), "but no 'w/z'"),
        ("col_vat/a", (4,), "has no place in a state file: names are .* row_var/NAME"),
    ],
)
def test_states_that_do_not_fit_are_refused(
    tmp_path: Path, key: str, shape: tuple[int, ...], says: str
) -> None:
    path = tmp_path / "bad.safetensors"
    ones = np.ones((8, 4), np.float32)
    save_file({"w/a": ones, "g/a": ones, key: np.ones(shape, np.float32)}, path)
    with pytest.raises(UsageError, match=says):
        StateFile(path)


@pytest.mark.gpu
def test_a_healthy_run_has_no_findings(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "diagnose",
        "charlm:width=16,layers=1",
        "--steps",
        "40",
        "--optimizer",
        "adafactor",
        "--lr",
        "0.01",
    )
    assert call(capsys, *words)["findings"] == []


def test_names_of_states_mean_one_thing() -> None:
    for each in OPTIMIZERS.values():
        for state in each.param_states:
            assert PARAM_STATES[state.name] == state
            assert len(state.name) > 1


@pytest.mark.gpu
def test_two_recordings_are_held_against_each_other_in_their_factors_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, other = (tmp_path / f"{name}.session" for name in ("a", "b", "other"))
    words = ("run", "charlm:width=16,layers=1", "--steps", "2", "--capture", "keyframes:1")
    for path, seed in ((a, "1"), (b, "1"), (other, "2")):
        call(capsys, *words, "--optimizer", "adafactor", "--seed", seed, "--save", str(path))
    assert call(capsys, "diff", str(a), str(b))["first_difference"] is None
    with Session.open(a) as one, Session.open(other) as two:
        found = diff(one, two)
    lanes = found.keyframes[2]
    assert {"row_var", "col_var", "variance"} <= set(lanes)
    assert all(lanes[name].differing for name in ("row_var", "col_var", "variance"))
    embed = next(p for p in found.params if "row_var" in p.tensors)
    assert embed.tensors["row_var"][2] > 0


@pytest.mark.gpu
def test_a_run_goes_over_to_adafactor_and_back(gpu: Gpu) -> None:
    """What another optimizer does not keep begins anew, and what was kept is dropped."""
    stepper = make_stepper(gpu, PARAMS, Variant(), w=normal_state(PARAMS)[0])
    stepper.begin_step(HostGradients(gradients(1)))
    stepper.run_to_end(HYPER)
    w = stepper.state().w
    stepper.set_variant(Variant(optimizer="adafactor"))
    assert not any(x.any() for by in stepper.state().states.values() for x in by.values())
    assert stepper.state().m == {}
    stepper.begin_step(HostGradients(gradients(2)))
    stepper.run_to_end(HYPER)
    state = stepper.state()
    p = PARAMS[0]
    done = exact(
        stepper, p, w[p.name], gradients(2)[p.name], {"row_var": np.zeros(97), "col_var": np.zeros(31)}, 2
    )
    assert off(state.w[p.name] - w[p.name], done.w.reshape(-1) - w[p.name]) < 1e-5
    stepper.set_variant(Variant())
    assert stepper.state().states == {}
    assert not any("var" in name for name in stepper.buffer_bytes)


def test_the_layout_says_where_the_factors_lie(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("layout", "charlm:width=16,layers=1")
    found = call(capsys, *words, "--optimizer", "adafactor")
    shapes = {p["name"]: p["shape"] for p in found["params"]}
    states = {(s["name"], s["param"]): s for s in found["states"]}
    for name, shape in shapes.items():
        kept = {"variance": shape} if len(shape) < 2 else {"row_var": shape[:1], "col_var": shape[1:]}
        assert {n: states[n, p]["shape"] for n, p in states if p == name} == kept
        assert all(states[n, name]["nbytes"] == 4 * int(np.prod(s)) for n, s in kept.items())
    assert all(s["offset"] % 256 == 0 for s in states.values())
    assert not any(p["state_bytes"] for p in found["params"])
    assert run([*words, "--optimizer", "adafactor"]) == 0
    assert "States in shapes of their own" in capsys.readouterr().out
    kept_of = {name: call(capsys, *words, "--optimizer", name) for name in ("adamw", "lion")}
    assert all(found["states"] == [] for found in kept_of.values())
    for p, q in zip(kept_of["adamw"]["params"], kept_of["lion"]["params"], strict=True):
        assert p["state_bytes"] == 2 * q["state_bytes"] == 8 * p["numel"]
