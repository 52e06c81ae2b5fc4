"""Engines that compute AdamW in float32 throughout, as in JavaScript, C and WGSL: rounding alone at any size.

Every operation of `Engine` rounds to float32, in one of the orders that people write. β, 1-β, βᵗ and the clip scale are
float32 too. The bounds that they are held to are derived in `roundings.py`; here they have to hold element for element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.optimizers.adamw.explaining import explain_difference
from inspector.optimizers.adamw.peers import Given, Lanes

f = np.float32
ONE = f(1)
HYPER = Hyper(1e-3, 0.9, 0.999, 1e-8, 0.1, math.inf)
ROUNDINGS = {"rounding", "float32-betas", "float32-corrections"}
"""All of them say that nothing but roundings, of β and what is formed of it among others, is there."""

Power = Callable[[Any, int], Any]


def multiplied_up(beta: Any, t: int) -> Any:
    """βᵗ as a loop keeps it from step to step."""
    power = ONE
    for _ in range(t):
        power = f(power * beta)
    return power


def pow_f32(beta: Any, t: int) -> Any:
    """βᵗ as shaders work out pow: 2 to the t·log₂β, each in float32."""
    return np.exp2(f(f(t) * np.log2(beta, dtype=f)), dtype=f)


@dataclass(frozen=True)
class Engine:
    order: str
    power: Power = pow_f32
    clip: float = 1.0

    def step(self, given: Given) -> Lanes:
        h = given.hyper
        lr, b1, b2, eps, decay = (f(x) for x in (h.lr, h.beta1, h.beta2, h.eps, h.weight_decay))
        w, m, v = given.before.w, given.before.m, given.before.v
        g = given.g * f(self.clip)
        bc1, bc2 = ONE - self.power(b1, given.t), ONE - self.power(b2, given.t)
        if self.order == "interpolated":
            m, v = m + (ONE - b1) * (g - m), v + (ONE - b2) * (g * g - v)
            size = lr * np.sqrt(bc2) / bc1
            return Lanes(w * (ONE - lr * decay) - size * m / (np.sqrt(v) + eps * np.sqrt(bc2)), m, v)
        m, v = b1 * m + (ONE - b1) * g, b2 * v + (ONE - b2) * g * g
        if self.order == "reciprocals":
            change = (m * (ONE / bc1)) / (np.sqrt(v * (ONE / bc2)) + eps)
            return Lanes(w - lr * change - lr * decay * w, m, v)
        return Lanes(w - lr * ((m / bc1) / (np.sqrt(v / bc2) + eps) + decay * w), m, v)


def drawn(elements: int, t: int) -> Given:
    """A param in mid-training, of gradients whose size spans many orders; a few percent of w are below lr."""
    rng = np.random.default_rng(t)

    def normal(scale: Any) -> F32Array:
        return np.asarray(rng.standard_normal(elements) * scale, f)

    size = 1e-3 * np.exp(2 * rng.standard_normal(elements))
    v = np.asarray(size**2 * rng.chisquare(3, elements) / 3 * (1 - 0.999 ** (t - 1)), f)
    return Given(Lanes(normal(0.02), normal(0.3 * size), v), normal(size), HYPER, t)


@pytest.mark.parametrize("clip", [1.0, 0.37])
@pytest.mark.parametrize("order", ["textbook", "reciprocals", "interpolated"])
@pytest.mark.parametrize(
    ("power", "t"), [(pow_f32, 3), (multiplied_up, 20), (pow_f32, 100), (multiplied_up, 1000)]
)
def test_an_engine_in_float32_differs_by_roundings(order: str, clip: float, power: Power, t: int) -> None:
    given = drawn(300_000, t)
    found = explain_difference(replace(given, scale=float(f(clip))), Engine(order, power, clip).step(given))
    assert (found.key in ROUNDINGS, found.explained) == (True, True), found


@pytest.mark.parametrize("clip", [1.0, 0.37])
def test_a_mistake_of_such_an_engine_is_still_named(clip: float) -> None:
    given = drawn(300_000, 10)
    scaled = replace(given, scale=float(f(clip)))
    engine = Engine("textbook", pow_f32, clip)
    made = engine.step(given)
    no_decay = engine.step(replace(given, hyper=replace(HYPER, weight_decay=0.0)))
    late = engine.step(replace(given, t=given.t + 1))
    for after, kind in (
        (no_decay, "decay-off"),
        (late, "t-ahead"),
        (Lanes(made.w, given.before.m, given.before.v), "moments-skipped"),
    ):
        found = explain_difference(scaled, after)
        assert kind in {each.key for each in found.kinds}, (kind, found)


def test_a_single_element_that_is_off_is_not_rounding() -> None:
    """One in hundreds of thousands, by 1e-4 of what it moved: no order of roundings does that."""
    given = drawn(300_000, 10)
    after = Engine("textbook").step(given)
    moved = np.abs(after.w - given.before.w)
    at = int(np.argmax(moved / np.abs(after.w)))
    after.w[at] += f(1e-4) * moved[at]
    assert not explain_difference(given, after).explained


@pytest.mark.parametrize(("power", "t"), [(multiplied_up, 2), (pow_f32, 2), (pow_f32, 20)])
@pytest.mark.parametrize("order", ["textbook", "reciprocals", "interpolated"])
def test_roundings_of_beta_are_not_taken_for_a_decay_after_the_update(
    order: str, power: Power, t: int
) -> None:
    """lr·λ of 1e-5 is what the decay after the update would change the step by, and βᵗ in float32 does as much."""
    given = replace(drawn(300_000, t), hyper=replace(HYPER, weight_decay=0.01))
    found = explain_difference(given, Engine(order, power).step(given))
    assert (found.key in ROUNDINGS, found.explained) == (True, True), found


@pytest.mark.parametrize("off", [3e-6, -4e-5, 5e-4])
def test_a_clip_scale_of_another_norm_is_named(off: float) -> None:
    """Squares added up in float32 lose a little of a norm over many elements, in each of them alike."""
    clip = 0.37 * (1 + off)
    given = drawn(300_000, 10)
    found = explain_difference(replace(given, scale=0.37), Engine("textbook", pow_f32, clip).step(given))
    assert found.explained, found
    assert found.kinds[0].key == "clip-norm", found
    assert float(found.kinds[0].value.split()[0]) == pytest.approx(1e6 * off, rel=0.05, abs=0.3)
