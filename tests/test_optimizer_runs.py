"""Runs of optimizers with fewer moments than Adam: statistics, explain, recordings, state files, rules, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_helpers import F32, make_stepper, normal_state, whole
from safetensors.numpy import load_file

from inspector.cli import run
from inspector.gpu.device import Gpu
from inspector.gpu.explain import explain_element
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers import OPTIMIZERS, optimizer, plan_step
from inspector.optimizers.definition import LINE_SLOTS
from inspector.plan import Limits, Variant, layout_for
from inspector.session.reader import Session
from inspector.settings import ParamSettings, Settings
from inspector.shader_lines import update_code
from inspector.stepping import HostGradients

pytestmark = pytest.mark.gpu

HYPER = Hyper(lr=1e-2, beta1=0.9, beta2=0.99, weight_decay=0.1, max_grad_norm=0.25)
PARAMS = [Param("a", (97, 31)), Param("b", (5,)), Param("c", (300,)), Param("d", (64, 4))]
NEW = ("sgd", "momentum", "lion")
each_new = pytest.mark.parametrize("name", NEW)


def test_each_optimizer_names_lines_that_the_kernels_have_a_place_for() -> None:
    one = np.ones(1, np.float32)
    for each in OPTIMIZERS.values():
        if each.update is None:
            # No kernel works out an element by itself.
            assert each.rule is None
            assert each.update_param is not None
            continue
        done = each.update(one, one, one, one, scale=1.0, hyper=HYPER, step=1, decays=True)
        names = [line.name for line in done.lines]
        assert set(names) <= set(LINE_SLOTS)
        assert {"g'", "decay", "update", "w", *each.state} <= set(names)
        assert len({LINE_SLOTS[n] for n in names}) == len(names)


@each_new
def test_every_line_of_its_update_is_lit_in_its_wgsl(name: str) -> None:
    variant, one = Variant(optimizer=name), np.ones(1, np.float32)
    plan = plan_step(layout_for(PARAMS, Limits(), variant), Limits(), variant)
    code = update_code(plan, next(d for d in plan.dispatches if d.updates))
    done = optimizer(name).update(one, one, one, one, scale=1.0, hyper=HYPER, step=1, decays=True)
    for line in done.lines:
        shown, lit = code.of(line.name)
        places = {shown.unit.place(at).partition(":")[0] for at in lit}
        assert places == {f"optimizers/{name}/{name}.wgsl"}, line.name
        # The member that has the value which is explained.
        member = ("grad", "m", "v", "m_hat", "v_hat", "denominator", "ratio", "decay", "change", "w")
        text = shown.unit.text.splitlines()
        assert all(f"to.{member[LINE_SLOTS[line.name]]} =" in text[at - 1] for at in lit)


@pytest.mark.parametrize(
    ("name", "options", "idle"),
    [
        ("sgd", ("--lr", "1", "--beta1", "0.5", "--beta2", "0.5", "--eps", "1", "--weight-decay", "1"),
         ("--beta1", "--beta2", "--eps")),
        ("momentum", ("--beta1", "0.5", "--eps", "1"), ("--eps",)),
        ("lion", ("--beta2", "0.5", "--eps", "1"), ("--eps",)),
        ("adam", ("--weight-decay", "0.5", "--eps", "1"), ("--weight-decay",)),
        ("adafactor", ("--weight-decay", "0.5", "--beta1", "0.5"), ("--beta1",)),
        ("muon", ("--weight-decay", "0.5", "--beta2", "0.5", "--eps", "1"), ()),
    ],
)  # fmt: skip
def test_settings_that_an_optimizer_does_not_use_are_told_to_do_nothing(
    name: str, options: tuple[str, ...], idle: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "synthetic:64", "--steps", "1", "--optimizer", name, *options]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "does nothing" in line]
    assert said == [f"inspector: {each} does nothing with --optimizer {name}." for each in idle]


@each_new
@pytest.mark.parametrize("fused", [True, False])
def test_statistics_are_of_the_update_that_it_makes(gpu: Gpu, name: str, fused: bool) -> None:
    w, g, m, _ = normal_state(PARAMS)
    kept = {"m": m} if "m" in optimizer(name).state else {}
    stepper = make_stepper(gpu, PARAMS, Variant(optimizer=name, fused=fused), w=w, **kept)
    stepper.begin_step(HostGradients(g))
    update = next(d.index for d in stepper.plan.dispatches if d.updates)
    stepper.run_until(HYPER, update)
    table = stepper.param_stats(HYPER)
    before = whole(stepper, "w").astype(np.float64)
    stepper.run_to_end(HYPER)
    moved = whole(stepper, "w").astype(np.float64) - before
    for row, param in enumerate(table):
        segment = stepper.layout[table.names[row]]
        change = moved[segment.offset : segment.stop]
        # What w changes by is the update but for the rounding of w.
        slack = np.sqrt(segment.numel) * 6e-8 * np.abs(before[segment.offset : segment.stop]).max()
        assert param.update.norm == pytest.approx(float(np.linalg.norm(change)), abs=slack, rel=1e-5)
        assert param.update.largest == pytest.approx(
            np.abs(change).max() / HYPER.lr, rel=1e-4, abs=slack / HYPER.lr
        )
        assert param.update.below_eps == 0
        for lane in ("m", "v"):
            if lane not in stepper.plan.lanes:
                assert param.lanes[lane].norm == 0  # type: ignore[index]


@each_new
def test_what_is_not_kept_is_read_from_zeros_of_bounded_size(
    gpu: Gpu, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics bind all four lanes: a moment that is not there must not take the memory that it saves."""
    w, g, *_ = normal_state(PARAMS)
    found, taken = [], []
    for most in (1 << 22, 1024):
        monkeypatch.setattr("inspector.gpu.memory.DECODED_ELEMENTS", most)
        stepper = make_stepper(gpu, PARAMS, Variant(optimizer=name), w=w)
        before = stepper.memory_bytes
        counts = stepper.stats("v", None)
        assert counts.zeros == stepper.layout.elements
        taken.append(stepper.memory_bytes - before)
        stepper.begin_step(HostGradients(g))
        stepper.run_until(HYPER, next(d.index for d in stepper.plan.dispatches if d.updates))
        table = stepper.param_stats(HYPER)
        found.append([(p.update, p.lanes["w"].norm, p.lanes["g"].norm) for p in table])
    assert taken[0] - taken[1] == 4 * (stepper.layout.segments[-1].stop - 1024)
    for one, other in zip(*found, strict=True):
        assert one[0].norm == pytest.approx(other[0].norm, rel=1e-6)
        assert (one[0].largest_at, one[0].lost) == (other[0].largest_at, other[0].lost)
        assert one[1:] == pytest.approx(other[1:], rel=1e-6)


@each_new
def test_an_element_is_explained_line_by_line(gpu: Gpu, name: str) -> None:
    w, g, m, _ = normal_state(PARAMS)
    kept = {"m": m} if "m" in optimizer(name).state else {}
    stepper = make_stepper(gpu, PARAMS, Variant(optimizer=name), w=w, **kept)
    stepper.begin_step(HostGradients(g))
    found = explain_element(stepper, HYPER, "a", 40)
    assert found.agrees
    assert tuple(found.before) == stepper.plan.lanes
    assert found.after["w"] == stepper.weights()["a"].ravel()[40]
    by_name = {line.name: line for line in found.lines}
    assert all(line.ulp <= 2 for line in found.lines)
    lr = float(np.float32(HYPER.lr))
    pushed = {
        "sgd": by_name.get("direction"), "momentum": by_name.get("m"), "lion": by_name.get("sign"),
    }[name]  # fmt: skip
    assert pushed is not None
    decay = by_name["decay"].f64 if name == "lion" else 0.0
    assert by_name["update"].f64 == pytest.approx(lr * (pushed.f64 + decay), rel=1e-12)


@each_new
def test_params_may_have_settings_of_their_own(gpu: Gpu, name: str) -> None:
    """Two classes and one that is idle: each as a run in which all params share those settings; idle ones stay."""
    w = normal_state(PARAMS)[0]
    one, other = Settings(1e-2, 0.9, 0.99, 0.0, 0.1), Settings(3e-3, 0.8, 0.95, 0.0, 0.0)
    own = ParamSettings((one, other, replace(one, idle=True)), (0, 1, 2, 1))
    free = replace(HYPER, max_grad_norm=float("inf"))
    after: dict[str, dict[str, F32]] = {}
    for label, hyper in (
        ("own", replace(free, per_param=own)),
        ("one", replace(free, per_param=ParamSettings((one,), (0,) * 4))),
        ("other", replace(free, per_param=ParamSettings((other,), (0,) * 4))),
    ):
        stepper = make_stepper(gpu, PARAMS, Variant(optimizer=name), w=w)
        for step in (1, 2):
            stepper.begin_step(HostGradients(normal_state(PARAMS, seed=step)[1]), hyper)
            stepper.run_to_end(hyper)
        after[label] = stepper.state().w
    for param, label in (("a", "one"), ("b", "other"), ("d", "other")):
        assert after["own"][param].tobytes() == after[label][param].tobytes()
    assert after["own"]["c"].tobytes() == w["c"].tobytes()


# --- recordings and files


def call(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = run([*words, "--json"])
    told = capsys.readouterr()
    assert code == 0, told.err
    found: dict[str, Any] = json.loads(told.out)
    return found


@each_new
def test_a_recording_holds_what_is_kept_and_replays_bit_for_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path, out = tmp_path / "run.session", tmp_path / "after.safetensors"
    words = ("run", "charlm:width=16,layers=1", "--optimizer", name, "--save", str(path), "--capture", "all")
    call(capsys, *words, "--steps", "3", "--out", str(out))
    call(capsys, *words, "--steps", "5", "--resume")
    with Session.open(path) as session:
        assert session.about.variant.optimizer == name
        state = session.keyframe(5)
        params = {p.name for p in session.about.params}
        assert set(state.m) == (params if name != "sgd" else set())
        assert state.v == {}
        # Of what was not kept a tensor reads as 0.
        assert not session.tensor("v", 5, next(iter(params))).any()
    replayed = call(capsys, "replay", str(path), "--verify")
    assert replayed["bit_exact"]
    kept = {"w", "g"} | ({"m"} if name != "sgd" else set())
    assert {key.partition("/")[0] for key in load_file(out)} == kept
    # A state file goes on from there.
    assert call(capsys, "run", str(path), "--steps", "1")["variant"]["optimizer"] == name


@each_new
def test_a_healthy_run_has_no_findings(capsys: pytest.CaptureFixture[str], name: str) -> None:
    lr = {"sgd": "0.1", "momentum": "0.03", "lion": "0.001"}[name]
    words = ("diagnose", "charlm:width=16,layers=1", "--steps", "40", "--optimizer", name, "--lr", lr)
    assert call(capsys, *words)["findings"] == []


def test_gradients_that_are_not_finite_are_found_whatever_the_optimizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.numpy import save_file

    g = np.ones((4, 4), np.float32)
    g[1, 2] = np.nan
    path = tmp_path / "bad.safetensors"
    save_file({"w/a": np.ones((4, 4), np.float32), "g/a": g}, path)
    assert run(["diagnose", str(path), "--optimizer", "sgd", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert (found["rule"], found["param"], found["index"]) == ("nonfinite-gradient", "a", 6)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("run", "charlm", "--steps", "1", "--optimizer", "lion", "--kernel", "8bit"),
            "there for AdamW, Adam and",
        ),
        (
            ("run", "charlm", "--steps", "1", "--optimizer", "sgd", "--kernel", "f16"),
            "there for AdamW, Adam and",
        ),
        (("run", "charlm", "--steps", "1", "--optimizer", "lion", "--lockstep", "linear"), "there for AdamW"),
        (
            ("policies", "charlm", "--optimizer", "momentum"),
            "runs SGD with momentum, which keeps no m and v as Adam does",
        ),
        (
            ("run", "charlm", "--steps", "1", "--optimizer", "adamax"),
            "choose one of adamw, adam-l2, adam, sgd",
        ),
    ],
)
def test_what_it_cannot_do_is_refused_in_a_sentence(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(list(words)) == 2
    told = capsys.readouterr().err
    assert says in told
    assert "Traceback" not in told
