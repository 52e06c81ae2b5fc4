"""20 steps of PyTorch's AdamW with three param groups: one param without gradient in steps 3 to 5, one added at step 7.

Every step is taken here from PyTorch's own w, m and v before it. PyTorch decays w before the update instead of within
it and fuses other operations, so w may differ by the roundings of either: 2 units of float32's spacing at the larger of
w before and after, m and v by 2 at the larger of their terms.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.floats import ulp_size
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers.adamw.oracle import oracle_step
from inspector.plan import Limits, Variant, layout_for
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.records import About, RecordedStep
from inspector.settings import ParamSettings, Settings
from inspector.stepping import DeviceInfo, HostGradients, HostState

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import torch_groups as peer

Call = Any
NUMBER = {name: i for i, names in enumerate(peer.MEMBERS) for name in names} | {peer.ADDED[0]: 3}
PARAMS = tuple(
    Param(name, shape, peer.GROUPS[min(NUMBER[name], 2)]["weight_decay"] != 0, NUMBER[name])
    for name, shape in peer.SHAPES.items()
)
FORM = Variant(numerics="precise")
Lanes = dict[str, dict[str, np.ndarray]]


@pytest.fixture(scope="module", params=peer.FORMS)
def theirs(request: pytest.FixtureRequest) -> list[Lanes]:
    """w, m and v after step 0 (as they begin), 1, 2, …"""
    document = json.loads(peer.FILE.read_text(encoding="utf-8"))
    assert document["groups"] == list(peer.GROUPS)
    start: Lanes = {
        name: {"w": w.ravel(), "m": np.zeros(w.size, np.float32), "v": np.zeros(w.size, np.float32)}
        for name, w in peer.initial_weights().items()
    }
    steps = document["steps"][request.param]
    return [start, *({n: {k: peer.unpacked(t) for k, t in x.items()} for n, x in s.items()} for s in steps)]


def hyper_at(step: int) -> Hyper:
    """As a recording of the run has it: of what is not there yet nothing is said before step 7."""
    base = [Settings(g["lr"], g["beta1"], g["beta2"], g["eps"], g["weight_decay"]) for g in peer.GROUPS]
    missed = sum(at < step for at in peer.SILENT[1])
    b = base[1]
    silent = Settings(b.lr, b.beta1, b.beta2, b.eps, b.weight_decay, missed, step in peer.SILENT[1])
    c = base[2]
    late = Settings(c.lr, c.beta1, c.beta2, c.eps, c.weight_decay, peer.ADDED[1] - 1)
    of = (0, 0, 3, 1, 2, 4)
    there = 6 if step >= peer.ADDED[1] else 5
    own = ParamSettings((*base, silent, late), of[:there])
    return Hyper(base[0].lr, base[0].beta1, base[0].beta2, base[0].eps, base[0].weight_decay, np.inf, own)


def state_of(lanes: Lanes, step: int) -> HostState:
    return HostState(*({n: x[lane] for n, x in lanes.items()} for lane in "wmv"), step)


def flat(step: int) -> dict[str, np.ndarray]:
    return {name: g.ravel() for name, g in peer.gradients(step).items()}


def assert_like(
    ours: Mapping[str, Mapping[str, np.ndarray]], before: Lanes, after: Lanes, step: int
) -> float:
    """See above; the largest distance of w, in units of its spacing."""
    worst = 0.0
    g = flat(step)
    for name, was in before.items():
        for lane in "wmv":
            a, b = np.asarray(ours[lane][name], np.float64), after[name][lane].astype(np.float64)
            if name not in g:
                assert np.asarray(ours[lane][name], np.float32).tobytes() == was[lane].tobytes(), (
                    name,
                    lane,
                    step,
                )
                assert after[name][lane].tobytes() == was[lane].tobytes()
                continue
            terms = {
                "w": was["w"],
                "m": np.maximum(np.abs(was["m"]), np.abs(g[name])),
                "v": np.maximum(was["v"], g[name] ** 2),
            }
            off = np.abs(a - b) / ulp_size(np.maximum(np.abs(terms[lane]), np.abs(b)))
            assert off.max() <= 2, (name, lane, step, float(off.max()))
            if lane == "w":
                worst = max(worst, float(off.max()))
    return worst


def test_the_oracle_takes_every_step_as_pytorch_does(theirs: list[Lanes]) -> None:
    layout = layout_for(PARAMS, Limits(), FORM)
    for step in range(1, peer.STEPS + 1):
        state = state_of(theirs[step - 1], step - 1)
        done = oracle_step(
            layout,
            (state.w, state.m, state.v),
            flat(step),
            hyper=hyper_at(step),
            step=step,
            numerics="precise",
        )
        assert done.clip_scale == 1
        assert_like({"w": done.w, "m": done.m, "v": done.v}, theirs[step - 1], theirs[step], step)


@pytest.mark.gpu
@pytest.mark.parametrize("dispatch", ["two-block", "per-tensor"])
def test_the_kernels_take_every_step_as_pytorch_does(gpu: Gpu, theirs: list[Lanes], dispatch: str) -> None:
    variant = Variant(numerics="precise", dispatch=dispatch)  # type: ignore[arg-type]
    layout = layout_for(PARAMS, gpu.limits, variant)
    stepper = GpuStepper(gpu, layout, variant, state_of(theirs[0], 0), undo_bytes=0)
    for step in range(1, peer.STEPS + 1):
        stepper.restore(state_of(theirs[step - 1], step - 1))
        stepper.begin_step(HostGradients(flat(step)), hyper_at(step))
        stepper.run_to_end(hyper_at(step))
        state = stepper.state()
        assert_like({"w": state.w, "m": state.m, "v": state.v}, theirs[step - 1], theirs[step], step)


def record(path: Path, theirs: list[Lanes], policy: str = "all") -> None:
    """The run as a recording of it, in which "late.weight" joins at step 7."""
    about = About(
        "PyTorch", PARAMS[:-1], FORM, hyper_at(1), "constant", DeviceInfo("CPU", "torch", True, False), 0, policy,
        "test", 1.75e9, origin="PyTorch 2.13.0 AdamW", stats="off",
    )  # fmt: skip
    early = {n for n in peer.SHAPES if n != peer.ADDED[0]}

    def known(step: int, lanes: Lanes) -> HostState:
        return state_of({n: x for n, x in lanes.items() if n in early or step >= peer.ADDED[1] - 1}, step)

    with Recorder.create(path, about) as recorder:
        recorder.offer_start(known(0, theirs[0]))
        for step in range(1, peer.STEPS + 1):
            if step == peer.ADDED[1]:
                recorder.add_params(step, PARAMS[-1:], known(step - 1, theirs[step - 1]))
            after = state_of(
                {n: x for n, x in theirs[step].items() if n in early or step >= peer.ADDED[1]}, step
            )
            wanted = recorder.wants(step)
            recorder.offer(
                RecordedStep(step, hyper_at(step), FORM),
                gradients=flat(step) if wanted.gradients else None,
                keyframe=after if wanted.keyframe else None,
            )
    assert recorder.problem is None


@pytest.mark.gpu
def test_a_recording_of_it_is_verified_and_replayed(tmp_path: Path, theirs: list[Lanes], call: Call) -> None:
    path, saved = tmp_path / "run.session", tmp_path / "again.session"
    record(path, theirs)
    code, out, err = call("replay", path, "--verify", "--json")
    report = json.loads(out)
    assert code == 0, err
    # Run again on one device it is the same, bit for bit, although classes change on the way.
    assert call("replay", path, "--save", saved, "--capture", "all", "--from", 1, "--to", 6)[0] == 0
    code, out, err = call("replay", saved, "--verify", "--json")
    again = json.loads(out)
    assert (code, again["bit_exact"]) == (0, True), err
    assert again["compared"]["keyframes"] == 6
    with Session.open(saved) as session:
        assert [session.step(t).hyper.per_param for t in session.steps] == [
            hyper_at(t).per_param for t in range(1, 7)
        ]
        assert len({len(session.step(t).kernels) for t in session.steps}) == 2
    assert report["steps"]


@pytest.mark.gpu
def test_what_if_scales_the_rates_of_all_groups(tmp_path: Path, theirs: list[Lanes], call: Call) -> None:
    path, saved = tmp_path / "run.session", tmp_path / "twice.session"
    record(path, theirs)
    assert call("replay", path, "--save", saved, "--lr", 2e-3, "--from", 8)[0] == 0
    with Session.open(saved) as session:
        own = session.step(9).hyper.per_param
        assert own is not None
        assert [c.lr for c in own.classes] == [2 * g["lr"] for g in peer.GROUPS] + [6e-4, 1e-3]
        assert [c.behind for c in own.classes] == [0, 0, 0, 3, 6]
