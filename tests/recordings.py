"""Made-up runs to record, and what to hold their recordings against."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from inspector.codecs import Moments8bit, encode
from inspector.findings import Finding
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.param_statistics import ParamTable, param_stats
from inspector.plan import Variant
from inspector.session.recorder import Recorder
from inspector.session.records import About, RecordedStep
from inspector.statistics import NonFinite
from inspector.stepping import DeviceInfo, HostState, KernelTime

PARAMS = (
    Param("h.0.attn.weight", (8, 40)),
    Param("h.0.norm", (7,)),
    Param("empty", (0, 3)),
    Param("scalar", ()),
)
NAMES = tuple(p.name for p in PARAMS)


def about(policy: str = "stats", *, params: tuple[Param, ...] = PARAMS, **changes: Any) -> About:
    settings: dict[str, Any] = {
        "source": "made-up", "params": params, "variant": Variant(), "hyper": Hyper(lr=3e-4), "schedule": "warmup:10",
        "device": DeviceInfo("Device", "Vulkan", False, True), "finished_steps": 0, "policy": policy,
        "software": "inspector 0.1.0", "began": 1.75e9, "stats": "full",
    }  # fmt: skip
    return About(**{**settings, **changes})


def values(step: int, lane: str, params: tuple[Param, ...] = PARAMS) -> dict[str, F32Array]:
    """The same for the same step and lane."""
    rng = np.random.default_rng([step, ord(lane)])
    return {p.name: rng.normal(size=p.numel).astype(np.float32) for p in params}


def state(step: int, *, coded: bool = False, params: tuple[Param, ...] = PARAMS) -> HostState:
    w, m, v = (values(step, lane, params) for lane in "wmv")
    v = {name: np.abs(each) for name, each in v.items()}
    moments = {}
    if coded:
        name = params[0].name
        moments[name] = Moments8bit(
            "dynamic", encode("dynamic", "m", m[name]), encode("dynamic", "v", v[name])
        )
        wide = moments[name].decoded(len(m[name]))
        m[name], v[name] = (each.astype(np.float32) for each in wide)
    return HostState(w, m, v, step, moments)


def recorded(step: int, **changes: Any) -> RecordedStep:
    settings: dict[str, Any] = {
        "hyper": Hyper(lr=1e-3 / step), "variant": Variant(), "loss": 4.5 - step / 1000,
        "grad_norm": float(np.float32(1 / step)), "clip_scale": 1.0, "nonfinite": NonFinite(0, step % 3, 0, 5),
        "kernels": (
            KernelTime("reduce_norm_sq", None, 0.25, "gpu", began_ms=1.5),
            KernelTime("adamw_update", "wd", 0.5 + step, "gpu", cold=step % 4 == 1),
            KernelTime("adamw_update", "no_wd", None, "cpu"),
        ),
        "ended": 1.75e9 + step,
    }  # fmt: skip
    return RecordedStep(step, **{**settings, **changes})


def table(step: int) -> ParamTable:
    lanes = {lane: values(step, lane) for lane in "wgmv"}
    lanes["v"] = {name: np.abs(each) for name, each in lanes["v"].items()}
    return ParamTable.of(
        param_stats(
            p.name, p.block, {lane: lanes[lane][p.name] for lane in "wgmv"},  # type: ignore[misc]
            clip_scale=1.0, hyper=Hyper(), step=step,
        )
        for p in PARAMS
    )  # fmt: skip


def finding(step: int, **changes: Any) -> Finding:
    evidence = {"nan": 3, "norm": math.inf, "kind": "NaN"}
    return Finding(
        "nonfinite-gradient",
        "error",
        step,
        "3 gradients are NaN.",
        "Look.",
        1,
        NAMES[0],
        7,
        evidence,
        **changes,
    )


def record(
    path: Path, steps: int, policy: str = "stats", *, statistics: bool = True, **settings: Any
) -> None:
    """Record steps 1 to `steps`, all that the policy wants of them, with a finding every tenth."""
    with Recorder.create(path, about(policy), **settings) as recorder:
        if recorder.policy.captures:
            recorder.offer_start(state(0))
        record_on(recorder, steps, statistics=statistics)


def record_on(recorder: Recorder, steps: int, *, statistics: bool = True) -> None:
    """Go on to step `steps`."""
    for step in range(recorder.last_step + 1, steps + 1):
        wanted = recorder.wants(step)
        recorder.offer(
            recorded(step),
            statistics=table(step) if statistics else None,
            findings=[finding(step)] if step % 10 == 0 else [],
            gradients=values(step, "g") if wanted.gradients else None,
            keyframe=state(step) if wanted.keyframe else None,
        )
