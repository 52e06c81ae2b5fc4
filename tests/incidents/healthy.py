"""Runs in which nothing is wrong, with gradients as spiky as healthy training gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from own_wgsl import FINALIZE, NORM, UPDATE, UPDATE_F16

from incidents.incident import Healthy
from incidents.kernels import BIG, UPDATE_8BIT
from incidents.sources import PARAMS, Drawn, Lanes, tiny, weights, with_hyper
from inspector.codecs import CODECS
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Variant
from inspector.schedule import Schedule
from inspector.sources.charlm.config import CharLmConfig
from inspector.sources.charlm.source import CharLm
from inspector.sources.synthetic import Synthetic
from inspector.stepping import HostState

GPT3 = Hyper(beta2=0.95, weight_decay=0.1)
EXPERTS = (*PARAMS, Param("h.0.expert.weight", (16, 32)), Param("lora.b.weight", (16, 8)), Param("gate", ()))


class Redrawn(Drawn):
    """Drawn gradients that take their shape from `draw`, given a generator and the gradients as they are."""

    def __init__(self, draw: Callable[[np.random.Generator, int, Lanes], None], **given: object) -> None:
        super().__init__(edit=lambda step, g: draw(np.random.default_rng([17, step]), step, g), **given)  # type: ignore[arg-type]


def student(rng: np.random.Generator, step: int, g: Lanes) -> None:
    """Elements of Student's t with 3 degrees of freedom: one in 3,000 is 10 times the usual size."""
    for name, values in g.items():
        g[name] = (1e-3 * rng.standard_t(3, len(values))).astype(np.float32)


def bursts(rng: np.random.Generator, step: int, g: Lanes) -> None:
    """Batches whose size is lognormal, half of them beyond 0.7 to 1.4 times the median, one in 50 twice to 4 times."""
    size = float(np.exp(0.5 * rng.standard_normal()))
    for values in g.values():
        values *= np.float32(size * np.exp(0.2 * rng.standard_normal()))


def words(rng: np.random.Generator, step: int, g: Lanes) -> None:
    """Rows of an embedding that get a gradient when their word is in the batch: by Zipf's law, most of them seldom."""
    rows = g["embed.weight"].reshape(24, 16)
    rows[rng.random(24) > 1.5 / np.arange(1, 25)] = 0


def experts(rng: np.random.Generator, step: int, g: Lanes) -> None:
    """An expert that sees no token in three of four steps, an adapter that begins at 0, and a scalar gate."""
    if step % 4:
        g["h.0.expert.weight"][:] = 0


def falling(rng: np.random.Generator, step: int, g: Lanes) -> None:
    """Gradients that become a tenth over 60 steps, as they do while a loss falls."""
    for values in g.values():
        values *= np.float32(0.1 ** (step / 60))


def resting(rng: np.random.Generator, step: int, g: Lanes) -> None:
    """Gradients that become a thousandth over 40 steps and stay there: a line through them leads too low."""
    for values in g.values():
        values *= np.float32(0.001 ** (min(step, 40) / 40))


def with_experts() -> HostState:
    """Adapters begin at 0."""
    w = weights(EXPERTS)
    w["lora.b.weight"][:] = 0
    w["gate"][:] = 1
    return HostState(w, {}, {})


def resumed(steps: int) -> HostState:
    """A state after steps of Redrawn(bursts), by AdamW in float64 kept in float32."""
    source = Redrawn(bursts)
    state = source.initial_state()
    w, m, v = ({n: np.float64(values) for n, values in state.w.items()}, {}, {})
    for t in range(1, steps + 1):
        for name, g in source.gradients(t, dict).values.items():
            m[name] = 0.9 * m.get(name, 0.0) + 0.1 * np.float64(g)
            v[name] = 0.999 * v.get(name, 0.0) + 0.001 * np.float64(g) ** 2
            w[name] -= 1e-3 * (m[name] / (1 - 0.9**t) / (np.sqrt(v[name] / (1 - 0.999**t)) + 1e-8))
    lanes = [{n: values.astype(np.float32) for n, values in lane.items()} for lane in (w, m, v)]
    return HostState(*lanes, steps)


def in_8_bits(codec: str) -> Variant:
    return Variant(kernel="8bit", codec=codec)  # type: ignore[arg-type]


def charlm(seed: int = 0, schedule: Schedule | None = None) -> Callable[[], CharLm]:
    """At its default size."""
    return lambda: CharLm(CharLmConfig(seed=seed), schedule=schedule)


HEALTHY = (
    Healthy("charlm", "the live model at its defaults", charlm(), 40),
    Healthy("charlm, seed 1, half precision", "f16", charlm(1), 20, Variant(kernel="f16")),
    Healthy("charlm, seed 2, linear codes", "8 bits", charlm(2), 20, in_8_bits("linear")),
    Healthy("charlm, seed 3, dynamic codes", "8 bits", charlm(3), 20, in_8_bits("dynamic")),
    Healthy("charlm, seed 4, codes of roots", "8 bits", charlm(4), 20, in_8_bits("sqrt")),
    Healthy("charlm, constant rate", "no warm-up at the default rate", charlm(5, Schedule()), 20),
    Healthy("small charlm, cosine", "a cosine from 60 steps down to a tenth, with warm-up",
            lambda: tiny(Schedule(20, 60, 0.1)), 70),
    Healthy("small charlm, one row a batch", "the noisiest batches", lambda: tiny(rows=1, seed=6), 60),
    Healthy("small charlm, precise numerics, a dispatch a param", "", lambda: tiny(seed=7), 30,
            Variant(numerics="precise", dispatch="per-tensor", reduce="atomic")),
    Healthy("small charlm, unfused", "clip and zeroing as passes of their own", lambda: tiny(seed=8), 30,
            Variant(fused=False)),
    Healthy("small charlm, Adam with L2", "decay in the gradient", lambda: tiny(seed=9), 30,
            Variant(optimizer="adam-l2")),
    Healthy("small charlm, β₂ 0.999", "a slow v", lambda: with_hyper(tiny(seed=10), beta2=0.999), 60),
    Healthy("heavy tails", "Student's t with 3 degrees of freedom", lambda: Redrawn(student), 150),
    Healthy("heavy tails, β₂ 0.95", "Student's t with 3 degrees of freedom", lambda: Redrawn(student, hyper=GPT3), 60),
    Healthy("bursts", "lognormal batches", lambda: Redrawn(bursts), 150),
    Healthy("rare words", "rows without a gradient for long", lambda: Redrawn(words, hyper=GPT3), 80),
    Healthy("experts and adapters", "a param without a gradient in 3 of 4 steps, one that begins at 0, a scalar",
            lambda: Redrawn(experts, params=EXPERTS, state=with_experts()), 60),
    Healthy("falling gradients", "to a tenth over 60 steps", lambda: Redrawn(falling), 80),
    Healthy("gradients that fall fast and then rest", "to a thousandth over 40 steps, then as they are",
            lambda: Redrawn(resting), 120),
    Healthy("half precision at a small rate", "lr 1e-4: the mirror changes in a few steps",
            lambda: Drawn(hyper=Hyper(lr=1e-4)), 40, Variant(kernel="f16")),
    Healthy("resumed", "goes on from a state after 50 steps", lambda: Redrawn(bursts, state=resumed(50)), 40),
    Healthy("synthetic", "20,000 elements drawn on the device", lambda: Synthetic.of_size(20_000), 40),
    Healthy("own kernels without a slip", "update, norm and finalize", Drawn, 12,
            shaders={"update": UPDATE, "norm": NORM, "finalize": FINALIZE}),
    *(
        Healthy(f"own kernel over 8 bits without a slip, {codec} codes", "", lambda: Drawn(params=BIG), 12,
                in_8_bits(codec), {"update": UPDATE_8BIT})
        for codec in CODECS
    ),
    Healthy("own half-precision kernel without a slip", "", Drawn, 12, Variant(kernel="f16"), {"update": UPDATE_F16}),
)  # fmt: skip

DRAWN = ("heavy tails", "heavy tails, β₂ 0.95", "bursts", "rare words", "experts and adapters")
LONG = (
    *(replace(each, name=f"{each.name}, 1,000 steps", steps=1000) for each in HEALTHY if each.name in DRAWN),
    Healthy("small charlm, one row a batch, 1,000 steps", "", lambda: tiny(rows=1, seed=16), 1000),
    *(
        Healthy(f"charlm in {name}, 500 steps", "", charlm(seed), 500, variant)
        for seed, (name, variant) in enumerate(
            {
                "half precision": Variant(kernel="f16"),
                "linear codes": in_8_bits("linear"),
                "dynamic codes": in_8_bits("dynamic"),
                "codes of roots": in_8_bits("sqrt"),
            }.items(),
            start=11,
        )
    ),
    Healthy("charlm, 1,000 steps by a cosine", "", charlm(15, Schedule(100, 1000, 0.1)), 1000),
    Healthy("charlm, 5,000 steps", "the live model at its defaults", charlm(), 5000),
)  # fmt: skip
