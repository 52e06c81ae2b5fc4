"""8-bit state and half precision: values that their formats do not hold."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
from gpu_helpers import make_stepper

from incidents.incident import Act, Incident, Wanted
from incidents.sources import NO_CLIP, PARAMS, Drawn, Lanes, from_step, in_step, put, weights
from inspector.codecs import BLOCK
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Layout, Param
from inspector.plan import Variant
from inspector.runtime.engine import Engine
from inspector.sources.base import Source
from inspector.stepping import HostState, State

WD = "adamw_update wd"
BIG = (Param("a.weight", (32, 128)), Param("b.weight", (64, 128)))
"""Both large enough for 8-bit state."""
LINEAR = Variant(kernel="8bit", codec="linear")
GAINS = tuple(p.name for p in PARAMS if p.name.endswith("norm.weight"))
RISING = Param("gain.weight", (8, 16))


def outliers(g: Lanes) -> None:
    """Gradients of b.weight of one size, but for one in each block of 256 that is 30 times as large.

    Its m is 30 times that of the others, which is 4 linear codes of 127; its v 900 times: theirs is a seventh of one.
    """
    b = g["b.weight"]
    b[:] = np.copysign(np.float32(1e-3), b)
    b[::BLOCK] *= 30


def rising(size: float, largest: float, lr: float) -> Drawn:
    """All weights `size`, one `largest`; gradients of -1 for ever, so that each step adds lr to each weight."""
    w = {RISING.name: np.full(RISING.numel, size, np.float32)}
    w[RISING.name][35] = largest

    def edit(step: int, g: Lanes) -> None:
        g[RISING.name][:] = -1.0

    return Drawn(
        params=[RISING], state=HostState(w, {}, {}), edit=edit,
        hyper=replace(NO_CLIP, lr=lr, weight_decay=0.0),
    )  # fmt: skip


def small_weights() -> Drawn:
    """26 of the 512 weights of h.0.mlp.up.weight at 1e-9, below 2^-25, and a learning rate that leaves them there."""
    w = weights(PARAMS)
    w["h.0.mlp.up.weight"][:26] = 1e-9
    return Drawn(state=HostState(w, {}, {}), hyper=Hyper(lr=1e-9))


def go_on_as(variant: Variant) -> Act:
    """The run is laid out anew and goes on in another form, as when a person chooses it."""

    def act(engine: Engine, gpu: Gpu) -> None:
        def make(source: Source, form: Variant, state: State, layout: Layout | None = None) -> GpuStepper:
            assert isinstance(state, HostState)
            return make_stepper(
                gpu, source.params, form, w=state.w, m=state.m, v=state.v,
                finished_steps=state.finished_steps, undo_bytes=0,
            )  # fmt: skip

        # The device is that of all incidents, and stays open.
        with (
            patch.object(engine.stepper, "close", engine.stepper.release),
            patch.object(engine._placing, "make", make),
        ):
            engine.lay_out_anew(variant)

    return act


INCIDENTS = (
    Incident(
        "v rounds to zero in linear codes", "one gradient in 256 is 30 times the others", 1,
        Wanted("zeroed-second-moment", 2, "v is first coded at the end of step 1", ("b.weight",), None,
               "adamw_8bit_update wd", {"elements": 64 * 128 - 32}),
        lambda: Drawn(params=BIG, edit=from_step(1, outliers)), LINEAR,
    ),
    Incident(
        "outlier in a block", "one gradient of b.weight is 100,000 times the others", 6,
        Wanted("block-outlier", 7, "m is coded at the end of step 6: the others of its block are below half a code",
               ("b.weight",), 3 * BLOCK, "adamw_8bit_update wd", {"block": 3}),
        lambda: Drawn(params=BIG, hyper=NO_CLIP, edit=in_step(6, put("b.weight", 3 * BLOCK + 77, 100.0))), LINEAR,
        follows=frozenset({"param-gradient-spike", "gradient-spike", "lagging-second-moment"}),
    ),
    Incident(
        "linear codes left", "a run in linear codes goes on in float32 from step 7 on", 7,
        Wanted("left-linear-codes", 7, "v that are 0 divide m̂ by ε in that step", ("b.weight",), None, WD),
        lambda: Drawn(params=BIG, edit=from_step(1, outliers)), LINEAR, before={7: go_on_as(Variant())},
        follows=frozenset({"zeroed-second-moment", "zero-second-moment", "large-update", "lagging-second-moment"}),
    ),
    Incident(
        "linear codes left for others", "a run in linear codes goes on in dynamic codes from step 7 on", 7,
        Wanted("left-linear-codes", 7, "v that are 0 divide m̂ by ε in that step", ("b.weight",), None,
               "adamw_8bit_update wd"),
        lambda: Drawn(params=BIG, edit=from_step(1, outliers)), LINEAR,
        before={7: go_on_as(Variant(kernel="8bit", codec="dynamic"))},
        follows=frozenset({"zeroed-second-moment", "large-update", "lagging-second-moment"}),
    ),
    Incident(
        "weights grow beyond float16", "weights rise by 50 a step, the largest from 65,400 on", 3,
        Wanted("f16-overflow", 3, "65,400 + 3·50 = 65,550 is beyond 65,504, and 65,500 is not", (RISING.name,), None,
               "adamw_update_f16 wd", {"elements": 1}),
        lambda: rising(30000.0, 65400.0, 50.0), Variant(kernel="f16"),
    ),
    Incident(
        "weights beyond float16 from the start", "one weight of 100,000", 1,
        Wanted("f16-overflow", 1, "exact", (RISING.name,), None, "adamw_update_f16 wd", {"elements": 1}),
        lambda: rising(1.0, 1e5, 1e-3), Variant(kernel="f16"),
    ),
    Incident(
        "weights flushed in float16", "5% of the weights of h.0.mlp.up.weight are 1e-9", 1,
        Wanted("f16-underflow", 1, "below 2^-25 = 2.98e-8, and lr moves them by 1e-9", ("h.0.mlp.up.weight",), None,
               "adamw_update_f16 wd", {"elements": 26}),
        small_weights, Variant(kernel="f16"),
    ),
    Incident(
        "mirror stands still", "lr 1e-6: half the spacing of float16 is 4.9e-4 at gains of 1 and 1.5e-5 at 0.05", 1,
        Wanted("stuck-mirror", 8, "64 updates of 1e-6 are below 4.9e-4; told after 8 steps", GAINS, None,
               "adamw_update_f16 no-wd", {"share": 1.0}),
        lambda: Drawn(hyper=Hyper(lr=1e-6)), Variant(kernel="f16"),
    ),
)  # fmt: skip
