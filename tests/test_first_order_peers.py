"""The same 50 steps as torch.optim.SGD, SGD with momentum and Adam, and as optax.lion.

Each step may leave three roundings of w (PyTorch's, ours, and that of an update as large as w), 3 · 6e-8 · |w|, and
1e-6 of the update itself: 2.4e-7 of Adam's for 1-β₁ in float32. After n steps at most n times that. m is a sum that
either side rounds twice a step, of terms that then shrink by β. Lion's update is its learning rate whatever the blend
is, so that a sign that came out otherwise would stand far outside. Measured on llvmpipe against PyTorch 2.13 and optax
0.2.8 after 50 steps: w off by 4.9e-7 (SGD), 1.6e-6 (momentum), 4.7e-5 (Adam) and 3.4e-4 (Lion) of the learning rate, m
by 6e-8 of its largest (Adam 2.7e-7).
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

import first_order as peer
import torch_adamw as model

PARAMS = [Param(name, shape) for name, shape in model.SHAPES.items()]
NAMES = ("sgd", "momentum", "adam", "lion")


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(peer.FILE.read_text(encoding="utf-8"))
    assert document["settings"] == peer.SETTINGS
    return document["steps"]


def run_kernel(gpu: Gpu, name: str, theirs: dict[str, Any]) -> tuple[float, float]:
    """The largest distances of w, in learning rates, and of m, in its largest magnitude, after any step shown."""
    hyper = Hyper(**({"weight_decay": 0.0} | peer.SETTINGS[name]), max_grad_norm=float("inf"))
    w = {key: value.ravel() for key, value in model.initial_weights().items()}
    variant = Variant(optimizer=name, numerics="precise")
    stepper = make_stepper(gpu, PARAMS, variant, w=w)
    largest = {key: np.abs(value).astype(np.float64) for key, value in w.items()}
    worst_w = worst_m = moved = 0.0
    for step in range(1, peer.STEPS + 1):
        before = stepper.state().w
        stepper.begin_step(HostGradients({k: g.ravel() for k, g in model.gradients(step).items()}))
        stepper.run_to_end(hyper)
        state = stepper.state()
        moved = max(moved, *(float(np.abs(state.w[k] - before[k]).max()) for k in before))
        for key, value in state.w.items():
            largest[key] = np.maximum(largest[key], np.abs(value))
        if str(step) not in theirs["w"]:
            continue
        for key, value in theirs["w"][str(step)].items():
            off = np.abs(state.w[key].astype(np.float64) - np.array(value))
            worst_w = max(worst_w, float(off.max()) / hyper.lr)
            assert np.all(off <= step * (3 * 6e-8 * largest[key] + 1e-6 * moved)), (name, key, step)
        for key, value in theirs["m"].get(str(step), {}).items():
            off_m = np.abs(state.m[key].astype(np.float64) - np.array(value))
            worst_m = max(worst_m, float(off_m.max() / np.abs(value).max()))
            assert np.all(off_m <= 1e-6 * np.abs(value).max()), (name, key, step)
    return worst_w, worst_m


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_the_kernel_follows_stored_steps_of_its_peer(gpu: Gpu, stored: dict[str, Any], name: str) -> None:
    run_kernel(gpu, name, stored[name])


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_the_kernel_follows_pytorch_as_installed(gpu: Gpu, name: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    w, m = peer.run_torch(name)
    run_kernel(gpu, name, {"w": w, "m": m})


def test_another_momentum_would_not_pass(stored: dict[str, Any]) -> None:
    """Nesterov's step, or dampening, is far outside what rounding explains."""
    first, second = (np.array(stored["momentum"]["m"][step]["h.0.norm.weight"]) for step in ("1", "2"))
    g = model.gradients(2)["h.0.norm.weight"].ravel()
    assert np.allclose(second, 0.9 * first + g, rtol=0, atol=1e-7)
    assert not np.allclose(second, 0.9 * first + 0.1 * g, rtol=0, atol=1e-3)
