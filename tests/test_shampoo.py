"""Shampoo on a device against its float64 oracle, and what a run with it promises: undo, bits, idle params, limits.

A distance is the Frobenius norm of the difference over that of what is right; for weights over that of how far they
moved. The oracle takes roots by eigenvalues, the device by Newton iterations.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_helpers import F32, make_stepper, normal_state, whole

from inspector.floats import F64Array
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers import is_between, optimizer_of
from inspector.optimizers.evaluation import Array
from inspector.optimizers.shampoo.oracle import preconditioned
from inspector.plan import Variant
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
MATRICES = tuple(p.name for p in PARAMS if len(p.shape) >= 2)
FORMS = [
    SHAMPOO,
    replace(SHAMPOO, dispatch="per-tensor", numerics="precise"),
    replace(SHAMPOO, factors="sum", root_block=256, root_every=2),
    replace(SHAMPOO, root_block=8, root_every=7),
]


def apart(found: F32 | F64Array, wanted: F64Array) -> float:
    """Frobenius norm of the difference, relative to that of what is right."""
    return float(np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(wanted))


def gradients(step: int) -> dict[str, F32]:
    """Matrices whose singular values fall off a hundredfold; every other step is clipped."""
    found = normal_state(PARAMS, seed=step)[1]
    for p in PARAMS:
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


@pytest.mark.gpu
@pytest.mark.parametrize(
    "form", FORMS, ids=lambda v: f"{v.root_block} {v.root_every} {v.factors} {v.numerics}"
)
def test_fifty_steps_agree_with_the_oracle(gpu: Gpu, form: Variant) -> None:
    w = {name: x * np.float32(0.1) for name, x in normal_state(PARAMS)[0].items()}
    stepper = make_stepper(gpu, PARAMS, form, w=w)
    oracle = Oracle(stepper)
    clipped = between = 0
    worst: dict[str, dict[str, float]] = {
        p.name: dict.fromkeys(("v", "w", "factor", "root"), 0.0) for p in PARAMS
    }
    for step in range(1, 51):
        g = gradients(step)
        stepper.begin_step(HostGradients(g), HYPER)
        between += stepper.plan.between
        stepper.run_to_end(HYPER)
        scale = stepper.grad_stats().clip_scale
        clipped += scale < 1
        oracle.step(g, scale, step)
        state = stepper.state()
        for p in PARAMS:
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
        # Of one row the factor has rank 1: most of a root is the ridge's, and what gradients between bring meets that.
        assert off["w"] < (1e-4 if name == "thin.weight" else 1e-5), name
    assert 0 < clipped < 50
    assert between == sum(form.root_every < step and step % form.root_every != 0 for step in range(51))
    assert not whole(stepper, "g").view(np.uint32).any()
