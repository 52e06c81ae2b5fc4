"""Runs of another program, executed again step by step: what is found, what it is called, and with which exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import foreign_runs
import numpy as np
import pytest
from replays import pipelines_of

from inspector.cli import run as main
from inspector.gpu.device import Gpu
from inspector.gpu.opener import suits
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Layout, Param
from inspector.optimizers.adamw.mistakes import moments
from inspector.optimizers.adamw.oracle import clip_scale, true_norm, update
from inspector.optimizers.adamw.peers import PEERS, Given, Lanes
from inspector.plan import Variant, layout_for
from inspector.session.verdicts import judge
from inspector.settings import Settings
from inspector.stepping import HostState

pytestmark = pytest.mark.gpu
Verify = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def shared_device(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the one device of the tests, with its compiled kernels."""

    class Shared(GpuStepper):
        def close(self) -> None:
            self.release()

    class Maker:
        def __init__(self, adapter: str | None = None, undo_bytes: int | None = None) -> None:
            pass

        def make(
            self, params: tuple[Param, ...], variant: Variant, state: HostState, layout: Layout | None = None
        ) -> GpuStepper:
            if layout is None or not suits(gpu, layout, variant):
                layout = layout_for(params, gpu.limits, variant)
            return Shared(gpu, layout, variant, state, undo_bytes=0, pipelines=pipelines_of(gpu))

    monkeypatch.setattr(import_module("inspector.cli.replay"), "StepperMaker", Maker)


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Verify:
    def call(path: Path, *options: object, code: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        got = main(["replay", str(path), "--verify", "--json", *(str(o) for o in options)])
        out, err = capsys.readouterr()
        assert got == code, (out[:2000], err)
        return json.loads(out) if out else {"error": err}

    return call


@pytest.mark.parametrize("peer", ["torch-loop", "torch-fused", "torch-foreach-cuda", "torch-fused-cuda"])
def test_a_healthy_run_is_rounding_alone(verify: Verify, tmp_path: Path, peer: str) -> None:
    path = tmp_path / "run.session"
    foreign_runs.write(path, 5, step_of=foreign_runs.by_peer(peer))
    report = verify(path)
    assert report["compared"] == {"steps": 5, "anchored": 5}
    assert report["as_expected"]
    if peer in ("torch-loop", "torch-fused") and report["device"]["software"]:
        # Divisions and roots are exact there, and in PyTorch's order they give its bits.
        assert report["bit_exact"]
        assert report["kinds"] == []
        return
    assert not report["bit_exact"]
    assert [kind["kind"] for kind in report["kinds"]] == ["rounding"]
    assert {p["param"] for p in report["by_param"]} == {p.name for p in foreign_runs.PARAMS}
    if peer == "torch-fused-cuda":
        # It forms 1-β and 1-βᵗ in float32, which precise numerics do not: 0.9 leaves four float32 too much of 1-β₁.
        assert 2 < report["max_ulp_by_lane"]["m"] <= 12
        assert report["max_ulp_in_step"] <= 12
        assert "how the kernel here forms 1-β" in report["kinds"][0]["words"]
        weights = next(p for p in report["by_param"] if p["param"] == "h.0.weight")
        assert 0 < weights["beyond_2_ulp"]["w"] <= 0.01 * 5 * 40 * 32
        first = report["first_difference"]
        assert (first["step"], first["nearer"]) == (1, "here")
        assert abs(first["replayed"] - first["float64"]) < abs(first["recorded"] - first["float64"])
        return
    # Another order in v, and w moved with one rounding less.
    assert max(report["max_ulp_by_lane"][lane] for lane in "mv") <= 2
    assert report["max_ulp_by_lane"]["w"] <= 4


@pytest.mark.parametrize(
    ("here", "off", "says"),
    [
        ("torch-loop", 3, "PyTorch's square root, which is off by one ULP now and then"),
        ("published", 0, "how the kernel here forms 1-β and rounds"),
        ("torch-loop", 0, ""),
    ],
)
def test_what_is_beyond_2_ulp_is_said_to_be_of_who_brought_it(here: str, off: int, says: str) -> None:
    """Of w as large as its change, `off` ULP from what the order of PyTorch's for-loop gives."""
    rng = np.random.default_rng(0)
    g, m = (rng.standard_normal(640).astype(np.float32) for _ in range(2))
    v = rng.uniform(0.5, 2, 640).astype(np.float32)
    given = Given(Lanes(np.zeros(640, np.float32), m, v), g, Hyper(weight_decay=0.0), 5)
    peers = {peer.key: peer for peer in PEERS}
    wrote = peers["torch-loop"].step(given)
    w = wrote.w.copy()
    w[7] += np.float32(off) * np.spacing(w[7])
    settings = Settings(1e-3, 0.9, 0.999, 1e-8, 0.0)
    found = judge(
        given, settings, Param("p", (640,)), 0, replace(wrote, w=w), peers[here].step(given),
        step=5, start=4, dispatch=3, peer="torch-loop", explain=lambda verdict: True,
    )  # fmt: skip
    assert found.key == ("rounding" if says else "same")
    assert found.beyond == ((says,) if says else ())
    assert not says or str(found).endswith(f" What is beyond 2 ULP comes of {says}.")


def test_differences_of_a_step_do_not_reach_the_next(verify: Verify, tmp_path: Path) -> None:
    """A mistake in step 3 alone is told of step 3 alone, though all later steps go on from what it left."""

    def step_of(given: Given, param: Param) -> Lanes:
        right = foreign_runs.by_peer("torch-loop")(given, param)
        return replace(right, w=right.w - np.float32(1e-3)) if given.t == 3 else right

    path = tmp_path / "run.session"
    foreign_runs.write(path, 6, step_of=step_of)
    report = verify(path, code=1)
    assert [s["step"] for s in report["steps"] if "unknown" in s["kinds"]] == [3]
    assert not report["as_expected"]
    sentence = next(kind["words"] for kind in report["kinds"] if kind["kind"] == "unknown")
    assert "w differs by up to" in sentence
    assert "in 100 % of elements" in sentence


def test_a_run_with_keyframes_now_and_then_runs_on_between_them(verify: Verify, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    foreign_runs.write(path, 8, "grads:1+keyframes:4")
    report = verify(path)
    assert [(s["step"], s["from"]) for s in report["steps"]] == [(4, 0), (8, 4)]
    assert report["compared"] == {"steps": 2, "anchored": 0}
    assert report["max_ulp_in_step"] == 0


def eps_inside(given: Given, _param: Param) -> Lanes:
    h, w = given.hyper, given.before.w.astype(np.float64)
    m, v = (x.astype(np.float32) for x in moments(given))
    v_hat = v.astype(np.float64) / (1 - h.beta2**given.t)
    m_hat = m.astype(np.float64) / (1 - h.beta1**given.t)
    w = w * (1 - h.lr * h.weight_decay) - h.lr * m_hat / np.sqrt(v_hat + h.eps)
    return Lanes(w.astype(np.float32), m, v)


def test_a_mistake_is_named_with_its_params_and_fails(
    verify: Verify, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def step_of(given: Given, param: Param) -> Lanes:
        return (
            eps_inside(given, param)
            if param.name == "head.weight"
            else foreign_runs.by_peer("torch-loop")(given, param)
        )

    path = tmp_path / "run.session"
    hyper = replace(foreign_runs.HYPER, eps=1e-6)
    foreign_runs.write(path, 4, step_of=step_of, hyper_of=lambda step: hyper, hyper=hyper)
    report = verify(path, code=1)
    kinds = {kind["kind"]: kind for kind in report["kinds"]}
    assert kinds["eps-inside"]["params"] == {"head.weight": 4}
    assert kinds["eps-inside"]["steps"] == 4
    assert report["by_param"][0]["param"] == "head.weight"
    assert main(["replay", str(path), "--verify"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "ε inside the root" in out
    assert "did not compute what its settings say" in out


def test_the_rate_of_the_step_before_is_recognised(verify: Verify, tmp_path: Path) -> None:
    """The scheduler stepped after the optimizer where the recording says before."""

    def hyper_of(step: int) -> Hyper:
        return replace(foreign_runs.HYPER, lr=1e-3 * step)

    def step_of(given: Given, param: Param) -> Lanes:
        late = replace(given, hyper=replace(given.hyper, lr=1e-3 * max(given.t - 1, 1)))
        return foreign_runs.by_peer("torch-loop")(late, param)

    path = tmp_path / "run.session"
    foreign_runs.write(path, 4, step_of=step_of, hyper_of=hyper_of)
    report = verify(path, code=1)
    late = next(kind for kind in report["kinds"] if kind["kind"] == "lr-of")
    assert late["first_step"] == 2
    assert "that of the step before" in late["words"]


def test_what_cannot_be_held_against_is_said(verify: Verify, tmp_path: Path) -> None:
    amsgrad = tmp_path / "amsgrad.session"
    foreign_runs.write(
        amsgrad, 2, unreplayable="It ran with amsgrad, whose largest v so far the kernels here do not keep."
    )
    assert "amsgrad" in verify(amsgrad, code=2)["error"]
    stats = tmp_path / "stats.session"
    foreign_runs.write(stats, 2, "stats")
    assert "cannot be rebuilt" in verify(stats, code=2)["error"]
    run = tmp_path / "run.session"
    foreign_runs.write(run, 2)
    assert "without --save" in verify(run, "--save", tmp_path / "new.session", code=2)["error"]
    start_only = tmp_path / "grads.session"
    foreign_runs.write(start_only, 2, "grads:1")
    assert "nothing to hold against" in verify(start_only, code=2)["error"]


@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=str)
@pytest.mark.parametrize("name", ["AdamW", "Adam"])
def test_a_recorded_run_of_pytorch_is_rounding_alone(
    verify: Verify, tmp_path: Path, options: dict[str, bool], name: str
) -> None:
    """Two groups, one of them without decay and slower; a rate that warms up; gradients clipped; a bias from 0."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from inspector.integrations.torch import record

    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.Tanh(), torch.nn.Linear(40, 7))
    torch.nn.init.zeros_(model[2].bias)
    weights = [p for p in model.parameters() if p.dim() > 1]
    groups = [
        {"params": weights, "weight_decay": 0.1},
        {"params": [model[0].bias, model[2].bias], "weight_decay": 0.0, "lr": 1e-3, "betas": (0.8, 0.999)},
    ]
    optimizer = getattr(torch.optim, name)(groups, lr=3e-3, betas=(0.9, 0.95), **options)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min((k + 1) / 4, 1.0))
    path = tmp_path / "run.session"
    with record(optimizer, path, model=model, capture="all"):
        for _ in range(8):
            loss = model(torch.randn(16, 24)).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    report = verify(path)
    assert report["compared"] == {"steps": 8, "anchored": 8}
    assert [kind["kind"] for kind in report["kinds"]] == ["rounding"]
    assert report["origin"].startswith("PyTorch")
    if report["device"]["software"]:
        # What is left is PyTorch's: in w where its change is as large, from a root that is off by one ULP.
        assert report["max_ulp_by_lane"]["m"] <= (1 if options.get("fused") else 0)
        assert report["max_ulp_by_lane"]["v"] <= (1 if options.get("fused") else 0)
        assert report["beyond_2_ulp"]["w"] <= 8
    # Its square root on a CPU is off by one ULP, and elements behind the last whole vector are rounded otherwise.
    assert max(report["peer_ulp"]["m"], report["peer_ulp"]["v"]) <= (1 if options.get("fused") else 0)
    assert report["peer_ulp"]["w"] <= 4


def test_a_scheduler_in_the_wrong_place_is_found_in_a_recorded_run_of_pytorch(
    verify: Verify, tmp_path: Path
) -> None:
    """A subclass that takes the step with the rate of the step before, as if the scheduler came too late."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from inspector.integrations.torch import record

    torch.manual_seed(5)
    weight = torch.nn.Parameter(0.1 * torch.randn(30, 30))
    optimizer = torch.optim.AdamW([weight], lr=1e-3)
    wrong = 1e-3

    def late(_optimizer: object, _args: object, _kwargs: object) -> None:
        optimizer.param_groups[0]["lr"] = wrong

    path = tmp_path / "run.session"
    with record(optimizer, path, capture="all"):
        # After the recorder's hook has read the settings.
        optimizer.register_step_pre_hook(late)
        for step in range(5):
            optimizer.param_groups[0]["lr"] = 1e-3 * (step + 1)
            weight.grad = torch.randn(30, 30)
            optimizer.step()
            wrong = 1e-3 * (step + 1)
    report = verify(path, code=1)
    late_kind = next(kind for kind in report["kinds"] if kind["kind"] == "lr-of")
    assert (late_kind["first_step"], late_kind["steps"]) == (2, 4), report["kinds"]


def test_a_dump_of_an_engine_that_forgets_to_clip_in_one_step(
    verify: Verify, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The published kernel's own bits but for step 3; gradients are as they were before clipping."""
    rng = np.random.default_rng(0)
    hyper = Hyper(lr=1e-3)
    lanes = {"w": 0.02 * rng.standard_normal(640), "m": np.zeros(640), "v": np.zeros(640)}
    state = {lane: values.astype(np.float32) for lane, values in lanes.items()}
    steps = []

    def kept(name: str, values: np.ndarray) -> str:
        values.tofile(tmp_path / name)
        return name

    for step in (1, 2, 3):
        g = rng.standard_normal(640).astype(np.float32)
        before = {lane: kept(f"{lane}{step}.bin", values) for lane, values in {**state, "g": g}.items()}
        scale = 1.0 if step == 3 else clip_scale(true_norm(g), 1.0)
        done = update(
            state["w"], g, state["m"], state["v"],
            scale=scale, hyper=hyper, step=step, decays=True, numerics="published", dtype=np.float32,
        )  # fmt: skip
        state = {"w": done.w, "m": done.m, "v": done.v}
        after = {lane: kept(f"{lane}{step}a.bin", values) for lane, values in state.items()}
        steps.append({"t": step, "before": before, "after": after})
    layout = {
        "format": "optimizer-dump", "version": 1, "optimizer": "adamw", "hyper": {"lr": 1e-3},
        "params": [{"name": "wte", "shape": [64, 10], "offset": 0, "block": "wd"}], "steps": steps,
    }  # fmt: skip
    file, path = tmp_path / "dump.json", tmp_path / "dump.session"
    file.write_text(json.dumps(layout), encoding="utf-8")
    assert main(["import", str(file), "--save", str(path)]) == 0
    report = verify(path, code=1)
    assert [kind["kind"] for kind in report["kinds"] if kind["kind"] != "rounding"] == ["clip-missing"]
    assert [s["step"] for s in report["steps"] if "clip-missing" in s["kinds"]] == [3]


def test_the_clip_scale_that_the_program_told_is_what_it_is_judged_by(verify: Verify, tmp_path: Path) -> None:
    """Its norm was added up in another order: the same to 3e-6, which every element of m and v shows."""
    hyper = replace(foreign_runs.HYPER, max_grad_norm=0.5)
    scales = {}
    for step in (1, 2, 3):
        whole = np.concatenate(list(foreign_runs.gradients(step).values())).astype("f8")
        scales[step] = float(np.float32(0.5 / (np.linalg.norm(whole) + 1e-6) * (1 + 3e-6)))
    peer = foreign_runs.by_peer("torch-loop")

    def clipped(given: Given, param: Param) -> Lanes:
        return peer(replace(given, scale=scales[given.t]), param)

    path = tmp_path / "run.session"
    foreign_runs.write(
        path, 3, step_of=clipped, hyper_of=lambda step: hyper, clip_scale_of=scales.get, hyper=hyper
    )
    report = verify(path)
    assert {kind["kind"] for kind in report["kinds"]} == {"rounding"}
    untold = tmp_path / "untold.session"
    foreign_runs.write(untold, 3, step_of=clipped, hyper_of=lambda step: hyper, hyper=hyper)
    report = verify(untold, code=1)
    assert {kind["kind"] for kind in report["kinds"]} - {"rounding"} == {"clip-norm"}
