"""Faults of training: gradients, losses and learning rates as they go wrong in practice."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from incidents.incident import Incident, Wanted
from incidents.sources import (
    NO_CLIP,
    PARAMS,
    Drawn,
    Edit,
    HalfNetwork,
    Lanes,
    WrongTokens,
    from_step,
    in_step,
    put,
    steady_loss,
    times,
    tiny,
    trained,
    weights,
    with_hyper,
)
from inspector.hyper import Hyper
from inspector.schedule import Schedule
from inspector.sources.charlm.config import CharLmConfig
from inspector.sources.charlm.model import initial_weights, make_params

REDUCE, FINALIZE = "reduce_norm_sq", "finalize_grad_stats"
FIRST = 5001
"""The first step after the state of `trained`."""


def nan_below(g: Lanes) -> None:
    """NaN in three elements of a layer, which the backward pass spreads over all layers before it."""
    g["h.1.mlp.up.weight"][[70, 71, 300]] = np.nan
    for name in (
        "embed.weight",
        "h.0.attn.weight",
        "h.0.mlp.up.weight",
        "h.0.mlp.down.weight",
        "h.0.norm.weight",
    ):
        g[name][:] = np.nan


def smallest_weights(config: CharLmConfig) -> str:
    """The param of which an update of the same size an element is the largest share."""
    w = initial_weights(config)
    return min((p.name for p in make_params(config)), key=lambda name: float(np.sqrt(np.mean(w[name] ** 2))))


def largest_update(name: str, factor: float, step: int) -> int:
    """The element of a param that moves furthest in `step` by float64, where its gradients are `factor` times as large.

    From the state of `trained`, β₁ = 0.9, β₂ = 0.999, λ = 0.01, no clipping.
    """
    source, state = Drawn(), trained()
    m, v, w = (np.float64(lane[name]) for lane in (state.m, state.v, state.w))
    for t in range(FIRST, step + 1):
        g = np.float64(source.gradients(t, dict).values[name]) * (factor if t == step else 1.0)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    ratio = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8) + 0.01 * w
    return int(np.argmax(np.abs(ratio)))


def rising_loss(step: int) -> float:
    """Steady for 40 steps, then up by 0.11 a step."""
    return steady_loss(step) if step <= 40 else 2.0 + 0.11 * (step - 40)


def large_weights(name: str, size: float, share: float, rest: float) -> Drawn:
    """A param of which a share of the weights is `size`, the others `rest`; at a learning rate of 1e-8.

    Half a ULP is 6e-8 at weights from 1 to 2, 2.4e-7 from 4 to 8 and 1.9e-9 at 0.05.
    """
    w = weights(PARAMS)
    for p in PARAMS:
        if len(p.shape) < 2:
            w[p.name] *= np.float32(0.05)
    count = math.ceil(share * len(w[name]))
    w[name][:count], w[name][count:] = size, rest
    return Drawn(state=replace(trained(step=0), w=w, m={}, v={}), hyper=Hyper(lr=1e-8))


def falling_but(step: int, factor: float) -> Edit:
    """Gradients that become a hundredth over 100 steps, and `factor` times as large in one step."""

    def edit(t: int, g: Lanes) -> None:
        times(0.01 ** (t / 100) * (factor if t == step else 1.0))(g)

    return edit


def every_second(first: int, period: int) -> Edit:
    """From step `first` on gradients in every step that `period` divides evenly from the one before it, else none."""

    def edit(t: int, g: Lanes) -> None:
        if t >= first and (t - first + 1) % period:
            times(0.0)(g)

    return edit


INCIDENTS = (
    Incident(
        "NaN in one layer", "one NaN in the gradient of h.0.mlp.down.weight in step 5", 5,
        Wanted("nonfinite-gradient", 5, "a NaN is seen when it is there", ("h.0.mlp.down.weight",), 55, REDUCE,
               {"nan": 1, "posinf": 0}),
        lambda: Drawn(edit=in_step(5, put("h.0.mlp.down.weight", 55, math.nan))),
    ),
    Incident(
        "-Inf in a bias", "-Inf in the last element of the last and smallest param", 3,
        Wanted("nonfinite-gradient", 3, "exact", ("norm.bias",), 15, REDUCE, {"neginf": 1, "in_param": 1}),
        lambda: Drawn(edit=in_step(3, put("norm.bias", 15, -math.inf))),
    ),
    Incident(
        "NaN spread by the backward pass", "3 NaN in h.1.mlp.up.weight, all of the layers before it NaN", 6,
        Wanted("nonfinite-gradient", 6, "the origin has 3 of 512, the others are NaN throughout",
               ("h.1.mlp.up.weight",), 70, REDUCE, {"in_param": 3}),
        lambda: Drawn(edit=in_step(6, nan_below)),
    ),
    Incident(
        "loss scale too large for float16", "a loss scale of 256: the gradient of one unit overflows", 6,
        Wanted("nonfinite-gradient", 6, "100 times that of other units, and beyond 65,504 in its 4 weights",
               ("down.weight",), 4 * HalfNetwork.HOT, REDUCE, {"in_param": 4}),
        lambda: HalfNetwork(scale=lambda t: 1.0 if t < 6 else 256.0, inputs=lambda t: 1.0),
    ),
    Incident(
        "activations overflow float16", "inputs 2,000 times as large: activations beyond 65,504 become infinite", 4,
        Wanted("nonfinite-loss", 4, "an infinite activation makes the loss of its step infinite or NaN"),
        lambda: HalfNetwork(scale=lambda t: 1.0, inputs=lambda t: 1.0 if t < 4 else 2000.0),
        follows=frozenset({"nonfinite-gradient"}),
    ),
    Incident(
        "loss NaN", "the loss alone is NaN, from 0 · log 0 over a masked batch", 10,
        Wanted("nonfinite-loss", 10, "exact"),
        lambda: Drawn(loss=lambda t: steady_loss(t) if t != 10 else math.nan),
    ),
    Incident(
        "learning rate 100 times too high", "lr 0.001 becomes 0.1 in step 6", 6,
        Wanted("learning-rate-jump", 6, "100 times all before is above 3 times", evidence={"lr": 0.1, "peak": 1e-3}),
        Drawn, before={6: lambda engine, _: engine.set_hyper("lr", 0.1) and None},
        follows=frozenset({"large-update"}),
    ),
    Incident(
        "no warm-up", "charlm from step 1 on at lr 0.3", 1,
        Wanted("large-update", 1, "step 1 moves each element by lr, here more than its weights are large",
               (smallest_weights(tiny().config),), None, "adamw_update wd"),
        lambda: with_hyper(tiny(schedule=Schedule()), lr=0.3),
    ),
    Incident(
        "gradients still scaled", "gradients are 65,536 times what they are: not unscaled before the step", 1,
        Wanted("loss-scaled-gradient", 8, "the norm is 3,500 times the clip limit; 8 steps, since one may be a spike",
               dispatch=FINALIZE),
        lambda: Drawn(size=65.536), follows=frozenset({"clip-collapse"}),
    ),
    Incident(
        "dead layer", "h.0.mlp.up.weight gets no gradient from step 10 on", 10,
        Wanted("dead-gradient", 25, "for 16 steps, which a part of a model may be left out", ("h.0.mlp.up.weight",),
               None, REDUCE, {"steps": 16}),
        lambda: Drawn(edit=from_step(10, times(0.0, "h.0.mlp.up.weight"))),
    ),
    Incident(
        "frozen by mistake", "norm.bias never has a gradient", 1,
        Wanted("dead-gradient", 16, "the sixteenth step without any", ("norm.bias",), None, REDUCE, {"steps": 16}),
        lambda: Drawn(edit=from_step(1, times(0.0, "norm.bias"))),
    ),
    Incident(
        "gradients zeroed before the step", "zero_grad stands between backward pass and step from step 3 on", 3,
        Wanted("no-gradient", 10, "for 8 steps", dispatch=REDUCE),
        lambda: Drawn(edit=from_step(3, times(0.0))),
    ),
    Incident(
        "vanishing gradients", "all gradients are a ten-thousandth from step 40 on", 40,
        Wanted("vanishing-gradient", 47, "8 steps below a thousandth of the 39 before", dispatch=FINALIZE),
        lambda: Drawn(edit=from_step(40, times(1e-4))),
    ),
    Incident(
        "exploding gradients", "micro-batches summed, not averaged: 15 times the gradient from step 40 on", 40,
        Wanted("exploding-gradient", 47, "8 steps above 10 times the 39 before", dispatch=FINALIZE),
        lambda: Drawn(edit=from_step(40, times(15.0))), follows=frozenset({"gradient-spike"}),
    ),
    Incident(
        "bad batch", "all gradients of step 40 are 30 times as large", 40,
        Wanted("gradient-spike", 40, "above 16 times, when it is there", dispatch=FINALIZE),
        lambda: Drawn(edit=in_step(40, times(30.0))), follows=frozenset({"param-gradient-spike"}),
    ),
    Incident(
        "bad batch while the norm falls", "gradients fall to a hundredth over 100 steps, but for 30 times as "
        "large ones in step 100", 100,
        Wanted("gradient-spike", 100, "0.3 of what they were at first: usual for the mean of the window",
               dispatch=FINALIZE),
        lambda: Drawn(hyper=NO_CLIP, edit=falling_but(100, 30.0)), follows=frozenset({"param-gradient-spike"}),
    ),
    Incident(
        "steps within an accumulation", "from step 10 on every second step has no gradient at all", 10,
        Wanted("intermittent-gradient", 24, "8 of the last 16: steps 10, 12, … 24", dispatch=REDUCE,
               evidence={"steps_without": 8, "period": 2}),
        lambda: Drawn(edit=every_second(10, 2)),
    ),
    Incident(
        "one gradient in four steps", "micro-batches: only every fourth step has a gradient, from the first on", 1,
        Wanted("intermittent-gradient", 16, "16 steps are looked at", dispatch=REDUCE,
               evidence={"steps_without": 12, "period": 4}),
        lambda: Drawn(edit=every_second(1, 4)),
    ),
    Incident(
        "bad batch for one param", "the gradient of norm.bias is 64 times as large in step 40", 40,
        Wanted("param-gradient-spike", 40, "above 32 times; the norm of all rises 5 times only", ("norm.bias",), None,
               REDUCE),
        lambda: Drawn(edit=in_step(40, times(64.0, "norm.bias"))),
    ),
    Incident(
        "v lags behind", "β₂ = 0.999, and gradients of h.1.attn.weight 14 times as large from one step on", 5003,
        Wanted("lagging-second-moment", 5003, "m becomes 1.4 g, v 1.2 to 2.5: 2 to 3 learning rates",
               ("h.1.attn.weight",), largest_update("h.1.attn.weight", 14.0, 5003), "adamw_update wd"),
        lambda: Drawn(hyper=NO_CLIP, state=trained(), edit=from_step(5003, times(14.0, "h.1.attn.weight"))),
    ),
    Incident(
        "v lags behind in one element", "one gradient of h.0.mlp.up.weight is 40 times the usual size", 5035,
        Wanted("lagging-second-moment", 5035, "m becomes 4, √v 1.6 of the usual size: 2.5 learning rates",
               ("h.0.mlp.up.weight",), 345, "adamw_update wd"),
        lambda: Drawn(hyper=NO_CLIP, state=trained(), edit=in_step(5035, put("h.0.mlp.up.weight", 345, 0.04))),
    ),
    Incident(
        "v keeps a spike", "one gradient spike of a million times the size, unclipped, β₁ = 0", 5,
        Wanted("starved-update", 37, "from step 6 on updates are 1e-5 lr: 32 of them", ("h.1.mlp.down.weight",), None,
               "adamw_update wd"),
        lambda: Drawn(hyper=replace(NO_CLIP, beta1=0.0), edit=in_step(5, times(1e6, "h.1.mlp.down.weight"))),
        follows=frozenset({"lagging-second-moment"}),
    ),
    Incident(
        "loss spike", "the loss of step 40 is 3.5 nats, those before 2", 40,
        Wanted("loss-spike", 40, "75 standard deviations, and three quarters above"),
        lambda: Drawn(loss=lambda t: 3.5 if t == 40 else steady_loss(t)),
    ),
    Incident(
        "divergence", "the loss rises by 0.11 a step from step 41 on", 41,
        Wanted("loss-divergence", 53, "half of steps 38 to 53 are above 2.5, of 37 to 52 above 2.4; the limit is 2.5"),
        lambda: Drawn(loss=rising_loss), follows=frozenset({"loss-spike"}),
    ),
    Incident(
        "wrong vocabulary", "charlm reads by another vocabulary from step 60 on, while its loss still falls", 60,
        Wanted("loss-spike", 60, "what was learnt of characters holds for none: the loss is as before step 1"),
        lambda: WrongTokens(tiny(Schedule(), rows=32), since=60),
        follows=frozenset({"gradient-spike", "param-gradient-spike", "lagging-second-moment"}),
    ),
    Incident(
        "norm overflows", "one gradient of 1e20, whose square is beyond float32", 4,
        Wanted("norm-overflow", 4, "exact", dispatch=REDUCE),
        lambda: Drawn(edit=in_step(4, put("h.0.attn.weight", 9, 1e20))),
    ),
    Incident(
        "norm overflows without a limit", "one gradient of 1e20, no clipping", 4,
        Wanted("norm-overflow", 4, "exact", dispatch=REDUCE),
        lambda: Drawn(hyper=NO_CLIP, edit=in_step(4, put("h.0.attn.weight", 9, 1e20))),
        follows=frozenset({"nonfinite-state"}), steps=6,
    ),
    Incident(
        "norm underflows", "gradients of 1e-25, whose squares are below float32", 1,
        Wanted("norm-underflow", 1, "exact", dispatch=REDUCE),
        lambda: Drawn(size=1e-25),
    ),
    Incident(
        "clip scale collapses", "all gradients of step 5 are 100,000 times as large", 5,
        Wanted("clip-collapse", 5, "the norm is about 5,400, the limit 1", dispatch=FINALIZE),
        lambda: Drawn(edit=in_step(5, times(1e5))),
    ),
    Incident(
        "gradients divided twice", "gradients of 1e-9, below ε = 1e-8", 1,
        Wanted("eps-dominates", 8, "√v̂ is 1e-9 from step 1 on, told after 8", ("embed.weight",), None,
               "adamw_update wd"),
        lambda: Drawn(size=1e-9),
    ),
    Incident(
        "updates below half a ULP", "lr 1e-8 with 70% of the weights of h.0.attn.weight at 1.5", 1,
        Wanted("lost-update", 8, "half a ULP of 1.5 is 6e-8; told after 8", ("h.0.attn.weight",), None,
               "adamw_update wd"),
        lambda: large_weights("h.0.attn.weight", 1.5, 0.7, 1e-6),
    ),
    Incident(
        "weights that stand still", "lr 1e-8 with all weights of h.0.attn.weight at 5", 1,
        Wanted("unchanged-param", 8, "half a ULP of 5 is 2.4e-7; told after 8", ("h.0.attn.weight",), None,
               "adamw_update wd"),
        lambda: large_weights("h.0.attn.weight", 5.0, 1.0, 0.0),
    ),
)  # fmt: skip
