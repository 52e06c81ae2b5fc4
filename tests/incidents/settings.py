"""Settings that cannot be meant, or that stop or spoil a run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from incidents.incident import Incident, Wanted
from incidents.sources import NO_CLIP, PARAMS, Drawn, weights
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Variant
from inspector.schedule import Schedule

FINALIZE = "finalize_grad_stats"
DECAYED_NORM = tuple(replace(p, decay=True) if p.name == "h.1.norm.weight" else p for p in PARAMS)
_MATRICES = {p.name: weights(PARAMS)[p.name] for p in PARAMS if len(p.shape) == 2}
SMALLEST = min(_MATRICES, key=lambda name: float(np.mean(np.square(_MATRICES[name]))))
"""The matrix with the smallest rms weight."""
UNBOUNDED = frozenset({"large-update", "lagging-second-moment", "eps-dominates", "zero-second-moment"})
"""What comes of it where √v̂ does not bound the update."""

INCIDENTS = (
    Incident(
        "clip limit 0", "max_grad_norm 0", 1,
        Wanted("invalid-max-grad-norm", 1, "exact", dispatch=FINALIZE,
               evidence={"max_grad_norm": 0.0, "clip_scale": 0.0}),
        lambda: Drawn(hyper=Hyper(max_grad_norm=0.0)),
    ),
    Incident(
        "clip limit negative", "max_grad_norm -1", 1,
        Wanted("invalid-max-grad-norm", 1, "exact", dispatch=FINALIZE, evidence={"max_grad_norm": -1.0}),
        lambda: Drawn(hyper=Hyper(max_grad_norm=-1.0)),
    ),
    Incident(
        "clip limit NaN", "max_grad_norm NaN", 1,
        Wanted("invalid-max-grad-norm", 1, "exact", dispatch=FINALIZE),
        lambda: Drawn(hyper=Hyper(max_grad_norm=math.nan)),
    ),
    Incident(
        "clip limit far too low", "max_grad_norm 0.001 for gradients of norm 0.054", 1,
        Wanted("clip-saturated", 128, "every one of 128 steps is clipped to about 0.02", dispatch=FINALIZE),
        lambda: Drawn(hyper=Hyper(max_grad_norm=1e-3)),
    ),
    Incident(
        "clip limit a slip of the keyboard", "max_grad_norm 1e-6 for gradients of norm 0.054", 1,
        Wanted("clip-collapse", 1, "the clip scale is about 2e-5", dispatch=FINALIZE),
        lambda: Drawn(hyper=Hyper(max_grad_norm=1e-6)),
    ),
    Incident(
        "schedule too short", "a cosine that ends at step 10, while the run goes on", 10,
        Wanted("zero-learning-rate", 11, "a single step of 0 may be the end of a schedule, the second one is not"),
        lambda: Drawn(schedule=Schedule(total=10)),
    ),
    Incident(
        "warm-up again", "the schedule starts a warm-up of 1,000 steps in step 6: lr falls to 6e-6", 6,
        Wanted("learning-rate-jump", 6, "from 1e-3 to 6e-6 is a fall by 167, above 20", evidence={"before": 1e-3}),
        Drawn, before={6: lambda engine, _: engine.set_schedule("warmup:1000") and None},
    ),
    Incident(
        "ε 0 in float32", "ε 1e-50 with the f16 kernel, 0 in the float32 it computes in", 1,
        Wanted("zero-eps", 1, "exact", evidence={"eps": 1e-50, "eps_float32": 0.0}),
        lambda: Drawn(hyper=Hyper(eps=1e-50)), Variant(kernel="f16"),
    ),
    Incident(
        "ε subnormal", "ε 1e-40, which a GPU may take for 0", 1,
        Wanted("zero-eps", 1, "below the smallest normal float32, 1.2e-38", evidence={"eps": 1e-40}),
        lambda: Drawn(hyper=Hyper(eps=1e-40)),
    ),
    Incident(
        "ε too large", "ε 1, gradients of 0.001", 1,
        Wanted("eps-dominates", 8, "√v̂ is a thousandth of ε from step 1 on, told after 8", ("embed.weight",), None,
               "adamw_update wd"),
        lambda: Drawn(hyper=Hyper(eps=1.0)),
    ),
    Incident(
        "β₂ 1", "β₂ 1: v never moves from 0", 1,
        Wanted("invalid-setting", 1, "exact", evidence={"beta2": 1.0}),
        lambda: Drawn(hyper=Hyper(beta2=1.0)), follows=UNBOUNDED,
    ),
    Incident(
        "β₁ negative", "β₁ -0.9", 1,
        Wanted("invalid-setting", 1, "exact", evidence={"beta1": -0.9}),
        lambda: Drawn(hyper=Hyper(beta1=-0.9)),
    ),
    Incident(
        "β₁ above β₂", "β₁ 0.99 with β₂ 0.9", 1,
        Wanted("unstable-betas", 1, "0.99² = 0.98 is not below √0.9 = 0.949", evidence={"beta1": 0.99, "beta2": 0.9}),
        lambda: Drawn(hyper=Hyper(beta1=0.99, beta2=0.9)),
    ),
    Incident(
        "learning rate negative", "lr -0.001: ascent", 1,
        Wanted("invalid-setting", 1, "exact", evidence={"lr": -1e-3}),
        lambda: Drawn(hyper=Hyper(lr=-1e-3)),
    ),
    Incident(
        "weight decay negative", "λ -0.1: weights grow", 1,
        Wanted("invalid-setting", 1, "exact", evidence={"weight_decay": -0.1}),
        lambda: Drawn(hyper=Hyper(weight_decay=-0.1)),
    ),
    Incident(
        "weight decay as large as 1/lr", "λ 300 at lr 0.001", 1,
        Wanted("large-update", 1, "0.3 of each weight goes, and the more the larger lr is beside the weights",
               (SMALLEST,), None, "adamw_update wd"),
        lambda: Drawn(hyper=replace(NO_CLIP, weight_decay=300.0)),
    ),
    Incident(
        "decay on a norm gain", "h.1.norm.weight lies in the block with decay", 1,
        Wanted("decay-on-norm-or-bias", 1, "exact", ("h.1.norm.weight",), None, "adamw_update wd", {"params": 1}),
        lambda: Drawn(params=DECAYED_NORM),
    ),
    Incident(
        "8 bits asked for in vain", "8-bit state with no param of 4,096 elements or more", 1,
        Wanted("wrong-state-type", 1, "exact", evidence={"least": 4096}),
        lambda: Drawn(params=[Param("a.weight", (40, 50)), Param("b.weight", (16, 16))]), Variant(kernel="8bit"),
    ),
)  # fmt: skip
