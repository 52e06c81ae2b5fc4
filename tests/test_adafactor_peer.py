"""The same 50 steps as torch.optim.Adafactor.

Means of squares agree but for how they are added up. Adafactor's update is about lr whatever the gradient is, so that a
difference in kind would be of the size of lr at once. Measured on llvmpipe against PyTorch 2.13 after 50 steps:
w off by 1.9e-5 of the learning rate, states by 5.5e-7 of their values.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_helpers import make_stepper

from inspector.gpu.device import Gpu
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Variant
from inspector.stepping import HostGradients

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import torch_adafactor as peer

PARAMS = [Param(name, shape) for name, shape in peer.SHAPES.items()]
HYPER = Hyper(**peer.SETTINGS)


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(peer.FILE.read_text(encoding="utf-8"))
    assert document["settings"] == peer.SETTINGS
    return document["steps"]


def run_kernel(gpu: Gpu, theirs: dict[str, Any]) -> tuple[float, float]:
    """The largest distances of w, in learning rates, and of the states, each by its own value."""
    w = {key: value.ravel() for key, value in peer.initial_weights().items()}
    stepper = make_stepper(gpu, PARAMS, Variant(optimizer="adafactor", numerics="precise"), w=w)
    worst_w = worst_state = 0.0
    for step in range(1, peer.STEPS + 1):
        stepper.begin_step(HostGradients({k: g.ravel() for k, g in peer.gradients(step).items()}))
        stepper.run_to_end(HYPER)
        if str(step) not in theirs["w"]:
            continue
        state = stepper.state()
        for key, value in theirs["w"][str(step)].items():
            off = np.abs(state.w[key].astype(np.float64) - np.array(value)).max() / HYPER.lr
            worst_w = max(worst_w, float(off))
            # Each step may leave a few roundings of w, and 1e-6 of an update of a few lr.
            assert off <= step * (3 * 6e-8 * np.abs(value).max() / HYPER.lr + 5e-6), (key, step)
        for name in peer.STATES:
            assert state.states[name].keys() == theirs[name][str(step)].keys()
            for key, value in theirs[name][str(step)].items():
                off = np.abs(state.states[name][key].reshape(-1) / np.array(value) - 1).max()
                worst_state = max(worst_state, float(off))
                assert off <= 1e-5, (name, key, step)
    return worst_w, worst_state


@pytest.mark.gpu
def test_the_kernels_follow_stored_steps_of_pytorch(gpu: Gpu, stored: dict[str, Any]) -> None:
    run_kernel(gpu, stored)


@pytest.mark.gpu
@pytest.mark.parametrize("foreach", [False, True])
def test_the_kernels_follow_pytorch_as_installed(gpu: Gpu, foreach: bool) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    run_kernel(gpu, peer.run_torch(foreach=foreach))


def test_another_schedule_would_not_pass(stored: dict[str, Any]) -> None:
    """1-β₂ of a step further on is far outside what rounding explains."""
    first, second = (np.array(stored["variance"][step]["h.0.norm.weight"]) for step in ("1", "2"))
    g = peer.gradients(2)["h.0.norm.weight"].astype(np.float64)
    everything = np.concatenate([x.ravel() for x in peer.gradients(2).values()]).astype(np.float64)
    g *= min(1.0, 1.0 / np.linalg.norm(everything))
    for t, fits in ((2, True), (3, False)):
        rest = t**-0.8
        assert np.allclose(second, (1 - rest) * first + rest * g * g, rtol=1e-5, atol=0) is fits
