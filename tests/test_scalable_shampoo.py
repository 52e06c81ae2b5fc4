"""The same 50 steps as ScalableShampoo of pytorch_optimizer in float64: sums and averages, several blocks.

A distance is the Frobenius norm of w's difference over that of the way from where it began. Measured on llvmpipe
against pytorch_optimizer 4.1: 4.3e-6 with sums, 3.8e-6 with averages.
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
from inspector.optimizers.shampoo.oracle import RIDGE
from inspector.plan import FACTORS, Factors, Variant
from inspector.stepping import HostGradients

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import scalable_shampoo as peer

PARAMS = [Param(name, shape) for name, shape in peer.SHAPES.items()]
LIMIT = 1e-5


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(peer.FILE.read_text(encoding="utf-8"))
    assert document["settings"] == peer.SETTINGS
    return document["steps"]


def hyper_at(step: int, factors: Factors) -> Hyper:
    """Their averages are not corrected for their start, which makes the update as much larger; the decay is not."""
    lr, decay, beta2 = peer.SETTINGS["lr"], peer.SETTINGS["weight_decay"], peer.BETA2[factors]
    grown = 1.0 if factors == "sum" else (1 - beta2**step) ** -0.5
    used = beta2 if factors == "mean" else 0.5
    return Hyper(lr * grown, 0.0, used, weight_decay=decay / grown, max_grad_norm=float("inf"))


def farthest(gpu: Gpu, theirs: dict[str, Any], factors: Factors) -> dict[str, float]:
    """The largest distance of each param's w after any step shown."""
    assert peer.RIDGE == RIDGE
    variant = Variant(
        optimizer="shampoo", numerics="precise", root_block=peer.BLOCK, root_every=1, factors=factors
    )
    start = {name: w.ravel() for name, w in peer.initial_weights().items()}
    stepper = make_stepper(gpu, PARAMS, variant, w=start)
    found = dict.fromkeys(start, 0.0)
    for step in range(1, peer.STEPS + 1):
        hyper = hyper_at(step, factors)
        stepper.begin_step(HostGradients({k: g.ravel() for k, g in peer.gradients(step).items()}), hyper)
        stepper.run_to_end(hyper)
        if str(step) in theirs:
            w = stepper.state().w
            for name, values in theirs[str(step)].items():
                wanted = np.array(values)
                off = np.linalg.norm(w[name] - wanted) / np.linalg.norm(wanted - start[name])
                found[name] = max(found[name], float(off))
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("factors", FACTORS)
def test_it_follows_stored_steps(gpu: Gpu, stored: dict[str, Any], factors: Factors) -> None:
    found = farthest(gpu, stored[factors], factors)
    assert max(found.values()) < LIMIT, found


@pytest.mark.gpu
@pytest.mark.parametrize("factors", FACTORS)
def test_it_follows_the_package_as_installed(gpu: Gpu, factors: Factors) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("pytorch_optimizer", reason="pytorch_optimizer is not installed")
    found = farthest(gpu, peer.run_torch(factors), factors)
    assert max(found.values()) < LIMIT, found


def test_a_square_root_in_place_of_the_fourth_would_not_pass(stored: dict[str, Any]) -> None:
    """After one step a block of a sum is UVᵀ but for the ridge: singular values just below 1, whatever the gradient."""
    before = peer.initial_weights()["a"].astype(np.float64)
    after = np.array(stored["sum"]["1"]["a"]).reshape(before.shape)
    lr, decay = peer.SETTINGS["lr"], peer.SETTINGS["weight_decay"]
    block = ((before * (1 - lr * decay) - after) / lr)[:16, :16]
    values = np.linalg.svd(block, compute_uv=False)
    assert 0.9 < values[0] <= 1
    assert np.median(values) > 0.8
