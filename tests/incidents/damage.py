"""State that was lost, exchanged or damaged: on the way from a checkpoint, or by something else that writes to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from incidents.incident import Act, Incident, Wanted
from incidents.sources import F32, NO_CLIP, PARAMS, Drawn, Lanes, from_step, times, trained
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.layout import Param
from inspector.runtime.engine import Engine
from inspector.settings import ParamSettings
from inspector.stepping import HostState
from inspector.stores import Lane

FIRST = 5001
"""The first step after the state of `trained`."""
WD, NO_WD = "adamw_update wd", "adamw_update no-wd"
REDUCE = "reduce_norm_sq"
UNBOUNDED = frozenset({"large-update", "lagging-second-moment", "zero-second-moment"})


def damaged(lane: Lane, name: str, damage: Callable[[F32], F32], step: int = 5000) -> Callable[[], Drawn]:
    """A run that goes on from a state in which `damage` was done to a lane of a param, without clipping."""

    def source() -> Drawn:
        state = trained(step=step)
        values = getattr(state, lane)
        values[name] = damage(values[name].copy())
        return Drawn(state=state, hyper=NO_CLIP)

    return source


def with_value(index: int, value: float) -> Callable[[F32], F32]:
    """Sets one element."""

    def damage(values: F32) -> F32:
        values[index] = value
        return values

    return damage


def overwritten(lane: Lane, name: str, damage: Callable[[F32], F32]) -> Act:
    """Something else writes to a lane of a param on the device, between two steps."""

    def act(engine: Engine, gpu: Gpu) -> None:
        stepper = engine.stepper
        assert isinstance(stepper, GpuStepper)
        lanes = getattr(stepper.state(), lane)
        stepper._memory.upload(lane, lanes | {name: damage(lanes[name].copy())}, {})

    return act


def exchange(a: str, b: str) -> Act:
    """m and v of two params are exchanged on the device."""

    def act(engine: Engine, gpu: Gpu) -> None:
        stepper = engine.stepper
        assert isinstance(stepper, GpuStepper)
        state = stepper.state()
        lanes: tuple[Lane, ...] = ("m", "v")
        for lane in lanes:
            values = getattr(state, lane)
            stepper._memory.upload(lane, values | {a: values[b], b: values[a]}, {})

    return act


def count_stands(name: str, t: int, step: int) -> Act:
    """In this step the count of one param is `t`; the others go on."""

    def act(engine: Engine, gpu: Gpu) -> None:
        shared = replace(engine.hyper, per_param=None)
        each = [shared.of_param(i, decays=p.block == "wd") for i, p in enumerate(engine.source.params)]
        behind = [replace(s, behind=step - t) if p.name == name else s
                  for s, p in zip(each, engine.source.params, strict=True)]  # fmt: skip
        classes = tuple(dict.fromkeys(behind))
        per_param = ParamSettings(classes, tuple(classes.index(s) for s in behind))
        engine.course.set(step, replace(shared, per_param=per_param), engine.schedule)

    return act


def put_back(name: str, step: int) -> dict[int, Act]:
    """The weights of a param as they were before `step`, written again after it."""
    kept: dict[str, F32] = {}

    def keep(engine: Engine, gpu: Gpu) -> None:
        state = engine.stepper.state()
        kept[name] = state.w[name].copy()

    return {step: keep, step + 1: overwritten("w", name, lambda _: kept[name])}


def exchanged(swap: Callable[[HostState], HostState]) -> Callable[[], Drawn]:
    """Attention weights of the first layer have gradients 16 times the others; `swap` exchanges moments."""
    state = trained(sizes={"h.0.attn.weight": 16e-3})
    edit = from_step(FIRST, times(16.0, "h.0.attn.weight"))
    return lambda: Drawn(state=swap(state), hyper=NO_CLIP, edit=edit)


def layers_exchanged(state: HostState) -> HostState:
    """m and v of the attention weights of both layers."""
    a, b = "h.0.attn.weight", "h.1.attn.weight"
    m = state.m | {a: state.m[b], b: state.m[a]}
    v = state.v | {a: state.v[b], b: state.v[a]}
    return replace(state, m=m, v=v)


LADDER = (Param("a.weight", (16, 16)), Param("b.weight", (16, 16)), Param("c.weight", (16, 16)), *PARAMS[:1])
"""Gradients of a, b and c are 1, 16 and 256 times the usual size."""


def shifted() -> Drawn:
    """Moments of three params of one shape each a place further on: a has those of c, b of a, c of b."""
    sizes = {"b.weight": 16e-3, "c.weight": 256e-3}
    state = trained(LADDER, sizes=sizes)

    def edit(step: int, g: Lanes) -> None:
        times(16.0, "b.weight")(g)
        times(256.0, "c.weight")(g)

    come_from = {"a.weight": "c.weight", "b.weight": "a.weight", "c.weight": "b.weight"}
    m, v = ({n: lane[come_from.get(n, n)] for n in lane} for lane in (state.m, state.v))
    return Drawn(params=LADDER, state=replace(state, m=m, v=v), hyper=NO_CLIP, edit=edit)


def lanes_exchanged(state: HostState) -> HostState:
    """m in the place of v."""
    return replace(state, m=state.v, v=state.m)


LOWEST = min(PARAMS, key=lambda p: float(trained().m[p.name].min())).name
"""The param with the lowest first moment."""

INCIDENTS = (
    Incident(
        "step counter lost", "moments of 5,000 steps with t = 0", 1,
        Wanted("step-counter-reset", 1, "exact: moments before step 1"),
        lambda: Drawn(state=trained(step=0)),
    ),
    Incident(
        "step counter begins again", "moments of 5,000 steps with t = 3", 4,
        Wanted("step-counter-reset", 4, "v̂ is 1/(1 - 0.999³) = 334 times g² in its first step"),
        lambda: Drawn(state=trained(step=3)),
    ),
    Incident(
        "step counter beyond float32", "t = 2^24 - 1 before the step", 2**24,
        Wanted("step-counter-stuck", 2**24, "exact", evidence={"t": 2**24}),
        lambda: Drawn(state=trained(step=2**24 - 1)),
    ),
    Incident(
        "step counter stands still", "the count of h.0.mlp.down.weight stays 5 from step 6 on", 6,
        Wanted("step-counter-stuck", 6, "exact: 5 in step 5 and in step 6", ("h.0.mlp.down.weight",),
               evidence={"t": 5, "params": 1}),
        Drawn, before={step: count_stands("h.0.mlp.down.weight", 5, step) for step in range(6, 9)}, steps=8,
    ),
    Incident(
        "moments of a param missing", "m and v of h.1.mlp.up.weight were not restored", FIRST,
        Wanted("missing-moments", FIRST, "exact", ("h.1.mlp.up.weight",), None, WD),
        lambda: Drawn(state=_without("h.1.mlp.up.weight")),
    ),
    Incident(
        "v not restored", "m was restored and v was not", FIRST,
        Wanted("missing-moments", FIRST, "exact: all params alike, so the first", ("embed.weight",), None, WD),
        lambda: Drawn(state=replace(trained(), v={})), follows=UNBOUNDED,
    ),
    Incident(
        "v flushed to zero", "26 of 512 v of h.0.mlp.down.weight are 0 under an m that is not", FIRST,
        Wanted("zero-second-moment", FIRST, "5% is above 1%", ("h.0.mlp.down.weight",), None, WD, {"elements": 26}),
        damaged("v", "h.0.mlp.down.weight", lambda v: np.where(np.arange(512) < 26, np.float32(0), v)),
        follows=frozenset({"lagging-second-moment"}),
    ),
    Incident(
        "moments exchanged", "m and v of the attention weights of both layers, by position and not by name", FIRST,
        Wanted("swapped-moments", FIRST, "v is 256 times too small or too large, and fits the other",
               ("h.0.attn.weight", "h.1.attn.weight"), None, WD),
        exchanged(layers_exchanged), follows=frozenset({"lagging-second-moment"}),
    ),
    Incident(
        "moments shifted by one", "m and v of three params of one shape, each a place further on in the list", FIRST,
        Wanted("swapped-moments", FIRST, "v of a is 65,536 times its g², and once that of c", ("a.weight",), None, WD,
               {"other": "c.weight"}),
        shifted, follows=frozenset({"lagging-second-moment"}),
    ),
    Incident(
        "m and v exchanged", "m was restored into v and v into m", FIRST,
        Wanted("negative-second-moment", FIRST, "half of v is negative", (LOWEST,), None,
               WD if LOWEST != "norm.bias" else NO_WD),
        lambda: Drawn(state=lanes_exchanged(trained())), follows=UNBOUNDED,
    ),
    Incident(
        "NaN in the weights", "a NaN in the restored h.0.mlp.up.weight", FIRST,
        Wanted("nonfinite-state", FIRST, "exact", ("h.0.mlp.up.weight",), 77, REDUCE, {"lane": "w", "nan": 1}),
        damaged("w", "h.0.mlp.up.weight", with_value(77, np.nan)),
    ),
    Incident(
        "Inf in m", "-Inf in m of norm.bias", FIRST,
        Wanted("nonfinite-state", FIRST, "exact", ("norm.bias",), 0, REDUCE, {"lane": "m", "neginf": 1}),
        damaged("m", "norm.bias", with_value(0, -np.inf)),
    ),
    Incident(
        "Inf in v", "+Inf in v of embed.weight, which a float16 optimizer state overflowed to", FIRST,
        Wanted("nonfinite-state", FIRST, "exact", ("embed.weight",), 383, REDUCE, {"lane": "v", "posinf": 1}),
        damaged("v", "embed.weight", with_value(383, np.inf)),
    ),
    Incident(
        "v far too large", "v of norm.bias is 1e30: its update is below half a ULP", FIRST,
        Wanted("unchanged-param", FIRST + 7, "told after 8 steps", ("norm.bias",), None, NO_WD, {"steps": 8}),
        damaged("v", "norm.bias", lambda v: np.full_like(v, 1e30)),
    ),
    Incident(
        "v of another loss scale", "v of h.0.mlp.up.weight is from gradients 65,536 times as large", FIRST,
        Wanted("starved-update", FIRST + 31, "the update is 1e-5 lr, the decay 5e-4: told after 32 steps",
               ("h.0.mlp.up.weight",), None, WD, {"steps": 32}),
        damaged("v", "h.0.mlp.up.weight", lambda v: v * np.float32(2.0**32)),
    ),
    Incident(
        "a bit of a weight flips", "an exponent bit of one weight of h.1.mlp.down.weight, between steps 5 and 6", 6,
        Wanted("unexplained-weights", 6, "‖w‖ goes from 1 to 3,000 by an update of 0.02", ("h.1.mlp.down.weight",),
               None, WD),
        Drawn, before={6: overwritten("w", "h.1.mlp.down.weight", with_value(100, 3000.0))},
    ),
    Incident(
        "m cleared in mid-run", "m of h.0.attn.weight is set to 0 between steps 5 and 6", 6,
        Wanted("unexplained-moments", 6, "0.9 ‖m‖ is 0.17 of ‖g‖/√n, 0.1 ‖g‖ cannot take it to 0", ("h.0.attn.weight",),
               None, WD, {"lane": "m", "norm": 0.0}),
        Drawn, before={6: overwritten("m", "h.0.attn.weight", np.zeros_like)},
    ),
    Incident(
        "v written by another param", "v of h.1.mlp.up.weight becomes 1,000 times as large between steps 5 and 6", 6,
        Wanted("unexplained-moments", 6, "far above β₂·v + (1-β₂)·g²", ("h.1.mlp.up.weight",), None, WD, {"lane": "v"}),
        Drawn, before={6: overwritten("v", "h.1.mlp.up.weight", lambda v: v * np.float32(1000))},
    ),
    Incident(
        "moments exchanged in mid-run", "m and v of h.0.attn.weight and h.1.attn.weight between steps 5 and 6", 6,
        Wanted("swapped-moments", 6, "gradients of the first are 16 times the others: so is its m, and v 256 times",
               ("h.0.attn.weight",), None, WD, {"other": "h.1.attn.weight"}),
        lambda: Drawn(hyper=NO_CLIP, edit=from_step(1, times(16.0, "h.0.attn.weight"))),
        before={6: exchange("h.0.attn.weight", "h.1.attn.weight")},
        follows=frozenset({"unexplained-moments", "lagging-second-moment", "large-update"}),
    ),
    Incident(
        "weights restored in mid-run", "h.0.mlp.up.weight is set back to where it was before step 6, before step 7", 7,
        Wanted("update-not-applied", 7, "exact: weights as before an update that was not 0", ("h.0.mlp.up.weight",),
               None, WD),
        Drawn, before=put_back("h.0.mlp.up.weight", 6),
    ),
)  # fmt: skip


def _without(name: str) -> HostState:
    """The state of `trained` without the moments of one param."""
    state = trained()
    return replace(
        state,
        m={key: m for key, m in state.m.items() if key != name},
        v={key: v for key, v in state.v.items() if key != name},
    )
