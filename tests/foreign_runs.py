"""Runs of another program, written as sessions by hand: steps in float64, by a peer, or by PyTorch itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers.adamw.peers import PEERS, Given, Lanes
from inspector.plan import Variant
from inspector.session.recorder import Recorder
from inspector.session.records import About, RecordedStep
from inspector.stepping import DeviceInfo, HostState

PARAMS = (
    Param("h.0.weight", (40, 32)),
    Param("h.0.norm", (48,)),
    Param("head.weight", (21, 9)),
    Param("bias", (30,)),
)
HYPER = Hyper(3e-3, 0.9, 0.95, 1e-8, 0.1, math.inf)
VARIANT = Variant(numerics="precise")
ORIGIN = "PyTorch 2.13.0 AdamW (for-loop)"
StepOf = Callable[[Given, Param], Lanes]
"""What the program makes of one param in one step."""


def by_peer(key: str) -> StepOf:
    peer = next(peer for peer in PEERS if peer.key == key)
    return lambda given, param: peer.step(given)


def start(params: Sequence[Param] = PARAMS) -> HostState:
    rng = np.random.default_rng(23)
    w = {p.name: (0.1 * rng.standard_normal(p.numel)).astype(np.float32) for p in params}
    w["bias"] = np.zeros_like(w["bias"])
    return HostState(w, *({p.name: np.zeros(p.numel, np.float32) for p in params} for _ in range(2)))


def gradients(step: int, params: Sequence[Param] = PARAMS) -> dict[str, F32Array]:
    rng = np.random.default_rng([23, step])
    return {p.name: (0.02 * rng.standard_normal(p.numel)).astype(np.float32) for p in params}


def about(policy: str, **changes: Any) -> About:
    facts: dict[str, Any] = {
        "source": "a PyTorch script", "params": PARAMS, "variant": VARIANT, "hyper": HYPER, "schedule": "constant",
        "device": DeviceInfo("CPU", "PyTorch", True, False), "finished_steps": 0, "policy": policy,
        "software": "test", "began": 1.75e9, "stats": "off", "origin": ORIGIN,
    }  # fmt: skip
    return About(**{**facts, **changes})


def write(
    path: Path,
    steps: int = 5,
    policy: str = "all",
    step_of: StepOf | None = None,
    hyper_of: Callable[[int], Hyper] = lambda step: HYPER,
    clip_scale_of: Callable[[int], float | None] = lambda step: None,
    **changes: Any,
) -> None:
    """Record `steps` that `step_of` makes, by default as PyTorch's for-loop does."""
    step_of = step_of or by_peer("torch-loop")
    state = start()
    with Recorder.create(path, about(policy, **changes)) as recorder:
        if recorder.policy.captures:
            recorder.offer_start(state)
        for step in range(1, steps + 1):
            hyper, given = hyper_of(step), gradients(step)
            lanes: dict[str, dict[str, F32Array]] = {lane: {} for lane in "wmv"}
            for number, param in enumerate(recorder.about.params):
                used = hyper.of_param(number, decays=param.block == "wd")
                mine = Hyper(used.lr, used.beta1, used.beta2, used.eps, used.weight_decay, math.inf)
                before = Lanes(*(getattr(state, lane)[param.name] for lane in "wmv"))
                made = before
                if not used.idle:
                    made = step_of(Given(before, given[param.name], mine, used.t(step)), param)
                for lane in "wmv":
                    lanes[lane][param.name] = getattr(made, lane)
            state = replace(state, **lanes, finished_steps=step)
            wanted = recorder.wants(step)
            recorder.offer(
                RecordedStep(
                    step,
                    hyper,
                    recorder.about.variant,
                    5.0 - step / 16,
                    None,
                    clip_scale_of(step),
                    ended=1.75e9 + step,
                ),
                gradients=given if wanted.gradients else None,
                keyframe=state if wanted.keyframe else None,
            )
    assert recorder.problem is None
