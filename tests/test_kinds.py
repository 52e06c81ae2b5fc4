"""Mistakes planted in an update written out here in float64, each to be named; and healthy updates, never to be."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from inspector.hyper import Hyper
from inspector.optimizers.adamw.explaining import explain_difference
from inspector.optimizers.adamw.kinds import KINDS
from inspector.optimizers.adamw.peers import PEERS, Given, Lanes
from inspector.step_ulp import rounded

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import torch_kinds

STORED, CUDA = torch_kinds.stored(), torch_kinds.stored(torch_kinds.CUDA_FILE)


@dataclass
class Step:
    """One step of a framework, as it should be: every line may be replaced."""

    lr: float = 3e-4
    b1: float = 0.9
    b2: float = 0.99
    eps: float = 1e-8
    decay: float = 0.1
    t: int = 7
    grad: Callable = lambda g, w: g
    m_of: Callable | None = None
    eps_at: str = "outside"
    correct: tuple[bool, bool] = (True, True)
    decay_at: str = "before"
    keep: Callable = lambda w, m, v: (w, m, v)
    v_used: Callable = lambda v: v

    def run(self, w: np.ndarray, m: np.ndarray, v: np.ndarray, g: np.ndarray) -> Lanes:
        w, m, v, g = (x.astype(np.float64) for x in (w, m, v, g))
        g = self.grad(g, w)
        m = self.m_of(m, g) if self.m_of else m + (1 - self.b1) * (g - m)
        v = v - (1 - self.b2) * (v - g * g)
        # What the framework keeps is float32, and the rest of the step starts from that.
        m, v = (x.astype(np.float32).astype(np.float64) for x in (m, v))
        first = 1 - self.b1**self.t if self.correct[0] else 1.0
        second = 1 - self.b2**self.t if self.correct[1] else 1.0
        used = self.v_used(v)
        if self.eps_at == "inside":
            denominator = np.sqrt(used / second + self.eps)
        elif self.eps_at == "before":
            denominator = (np.sqrt(used) + self.eps) / math.sqrt(second)
        else:
            denominator = np.sqrt(used) / math.sqrt(second) + self.eps
        step = self.lr * (m / first) / denominator
        if self.decay_at == "before":
            w = w * (1 - self.lr * self.decay) - step
        elif self.decay_at == "after":
            w = (w - step) * (1 - self.lr * self.decay)
        elif self.decay_at == "unscaled":
            w = w * (1 - self.decay) - step
        else:
            w = w - step
        w, m, v = self.keep(w, m, v)
        return Lanes(*(np.asarray(x).astype(np.float32) for x in (w, m, v)))


def made(size: int, magnitude: float, seed: int = 3) -> tuple[np.ndarray, ...]:
    """w, m, v and g of a run under way; some elements of w are 0, some of v far below the others."""
    rng = np.random.default_rng([seed, size])
    w = 0.02 * rng.standard_normal(size)
    g = magnitude * rng.standard_normal(size) * 10.0 ** rng.uniform(-2, 0, size)
    m = 0.3 * magnitude * rng.standard_normal(size)
    v = magnitude**2 * rng.gamma(1.0, size=size)
    w[:: max(size // 7, 2)] = 0
    return tuple(x.astype(np.float32) for x in (w, m, v, g))


def given_of(size: int, magnitude: float, step: Step, **changes: object) -> Given:
    w, m, v, g = made(size, magnitude)
    hyper = Hyper(step.lr, step.b1, step.b2, step.eps, step.decay, math.inf)
    return replace(Given(Lanes(w, m, v), g, hyper, step.t), **changes)


def written(given: Given, step: Step) -> Lanes:
    before = given.before
    return step.run(before.w, before.m, before.v, given.g)


def bf16(x: np.ndarray) -> np.ndarray:
    """To bfloat16, by cutting a float32 in two and rounding the rest by hand."""
    raw = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    low, high = raw & 0xFFFF, raw >> 16
    high = high + ((low > 0x8000) | ((low == 0x8000) & (high & 1 == 1)))
    return (high << 16).astype(np.uint32).view(np.float32)


SIZES = [
    pytest.param(20_000, 1e-3, id="large"),
    pytest.param(48, 1e-3, id="small"),
    pytest.param(500, 1e-7, id="tiny"),
]
BASE = Step()
MISTAKES: dict[str, Step] = {
    "eps-inside": replace(BASE, eps_at="inside"),
    "eps-before": replace(BASE, eps_at="before", eps=1e-5),
    "no-correction": replace(BASE, correct=(False, False)),
    "no-correction-m": replace(BASE, correct=(False, True)),
    "no-correction-v": replace(BASE, correct=(True, False)),
    "decay-after": replace(BASE, decay_at="after", lr=3e-2),
    "decay-unscaled": replace(BASE, decay_at="unscaled"),
    "decay-off": replace(BASE, decay_at="none"),
    "l2": replace(BASE, decay_at="none", grad=lambda g, w: g + 0.1 * w),
    "sign": replace(BASE, grad=lambda g, w: -g),
    "unscaled-missing": replace(BASE, grad=lambda g, w: 65536 * g),
    "gradient-factor": replace(BASE, grad=lambda g, w: g / 3),
    "no-dampening": replace(BASE, m_of=lambda m, g: 0.9 * m + g),
    "moments-bf16": replace(BASE, keep=lambda w, m, v: (w, m, v)),
    "weights-bf16": replace(BASE, keep=lambda w, m, v: (bf16(w), m, v)),
    "weights-f16": replace(BASE, keep=lambda w, m, v: (w.astype(np.float16), m, v)),
    "weights-skipped": replace(BASE, lr=0.0, decay_at="none"),
}  # fmt: skip
del MISTAKES["moments-bf16"]


@pytest.mark.parametrize(("size", "magnitude"), SIZES)
@pytest.mark.parametrize("key", MISTAKES)
def test_a_planted_mistake_is_named(key: str, size: int, magnitude: float) -> None:
    step = MISTAKES[key]
    if key.startswith("eps") and magnitude < 1e-6:
        # An epsilon of 1e-8 inside the root outweighs such a v: in the largest of terms it is still seen.
        step = replace(step, eps=1e-9)
    given = given_of(size, magnitude, step)
    if key == "weights-skipped":
        given = replace(given, hyper=replace(given.hyper, lr=3e-4))
    found = explain_difference(given, written(given, step))
    assert found.explained, found
    assert found.key == key, found
    assert key in KINDS


def test_settings_that_were_others_are_worked_out() -> None:
    cases = {
        "lr-other": (replace(BASE, lr=6e-4), {}, "0.0006"),
        "lr-of": (
            replace(BASE, lr=2.9e-4),
            {"lrs": {"the step before": 2.9e-4}},
            "0.00029, that of the step before",
        ),
        "decay-other": (replace(BASE, decay=0.3), {}, "λ 0.3"),
        "beta1": (replace(BASE, b1=0.8), {}, "0.8"),
        "beta2": (replace(BASE, b2=0.95), {}, "0.95"),
        "t-behind": (replace(BASE, t=6), {}, "6"),
        "t-ahead": (replace(BASE, t=8), {}, "8"),
        "t-other": (replace(BASE, t=70), {"counts": {"the run": 70}}, "70, that of the run"),
    }
    for key, (step, changes, value) in cases.items():
        given = given_of(4_000, 1e-3, BASE, **changes)
        # Bias corrections go by β too, which the framework had wrong in m or v alone.
        if key.startswith("beta"):
            right = written(given, BASE)
            wrong = written(given, replace(step, b1=step.b1, b2=step.b2))
            after = Lanes(right.w, wrong.m, wrong.v)
            moments = Step(**{**vars(BASE), "m_of": lambda m, g, x=wrong.m: x.astype(np.float64)})
            after = moments.run(given.before.w, given.before.m, given.before.v, given.g)
            after = Lanes(after.w, wrong.m, wrong.v) if key == "beta1" else _with_v(given, wrong)
        else:
            after = written(given, step)
        found = explain_difference(given, after)
        assert (found.key, found.kinds[0].value) == (key, value), found


def _with_v(given: Given, wrong: Lanes) -> Lanes:
    """w as it follows from a v that another β₂ gave."""
    taken = replace(BASE, v_used=lambda v: wrong.v.astype(np.float64))
    return Lanes(written(given, taken).w, wrong.m, wrong.v)


def test_clipping_that_is_missing_or_done_twice_is_named() -> None:
    scale = float(np.float32(0.37))
    for key, factor in (("clip-missing", 1.0), ("clip-twice", scale**2)):
        given = given_of(3_000, 1e-3, BASE, scale=scale)
        found = explain_difference(given, written(given, replace(BASE, grad=lambda g, w, f=factor: f * g)))
        assert found.key == key, found
    given = given_of(3_000, 1e-3, BASE, scale=scale)
    healthy = explain_difference(given, written(given, replace(BASE, grad=lambda g, w: scale * g)))
    assert healthy.key == "rounding"


def test_betas_in_each_others_place_are_named() -> None:
    swapped = replace(BASE, b1=0.99, b2=0.9)
    given = given_of(3_000, 1e-3, BASE)
    after = written(given, swapped)
    found = explain_difference(given, after)
    assert found.kinds[0].key == "betas-swapped", found


def test_decay_where_none_was_set_and_none_in_the_gradient() -> None:
    given = given_of(3_000, 1e-3, BASE, decays=False)
    found = explain_difference(given, written(given, BASE))
    assert (found.key, found.kinds[0].value) == ("decay-on", "λ 0.1"), found
    given = given_of(3_000, 1e-3, BASE, l2=True)
    assert explain_difference(given, written(given, BASE)).key == "decay-decoupled"
    assert explain_difference(given, written(given, replace(BASE, decay_at="none"))).key == "l2-missing"


def test_moments_in_fewer_bits_are_named() -> None:
    given = given_of(3_000, 1e-3, BASE)
    for key, keep in (
        ("moments-bf16", bf16),
        ("moments-f16", lambda x: x.astype(np.float16).astype(np.float32)),
    ):
        given = given_of(3_000, 0.1, BASE)
        right = written(given, BASE)
        m, v = keep(right.m), keep(right.v)
        step = replace(
            BASE, m_of=lambda _m, _g, m=m: m.astype(np.float64), v_used=lambda _v, v=v: v.astype(np.float64)
        )
        found = explain_difference(given, Lanes(written(given, step).w, m, v))
        assert found.key == key, found


def test_two_mistakes_are_both_named() -> None:
    both = replace(BASE, grad=lambda g, w: -g, correct=(False, False))
    given = given_of(3_000, 1e-3, BASE)
    found = explain_difference(given, written(given, both))
    assert found.key == "sign+no-correction"


def test_amsgrad_is_named_with_and_without_its_largest_v() -> None:
    given = given_of(3_000, 1e-3, BASE)
    largest = (given.before.v * np.random.default_rng(1).uniform(0.5, 2, 3_000)).astype(np.float32)
    step = replace(BASE, v_used=lambda v: np.maximum(v, largest))
    after = written(given, step)
    assert explain_difference(given, after).key == "amsgrad"
    assert explain_difference(replace(given, max_v=largest), after).key == "amsgrad"


@pytest.mark.parametrize("t", [2, 7])
def test_all_that_is_formed_of_a_rounded_beta_is_one_kind(t: int) -> None:
    """An engine that holds β in float32, and forms 1-β and 1-βᵗ of that exactly: w moves a little less everywhere."""
    meant = replace(BASE, b2=0.999, t=t)
    given = given_of(3_000, 1e-3, meant)
    held = replace(meant, b1=float(np.float32(meant.b1)), b2=float(np.float32(meant.b2)))
    found = explain_difference(given, written(given, held))
    assert (found.key, found.explained) == ("float32-betas", True), found


@pytest.mark.parametrize("changes", [{"eps_at": "inside"}, {"correct": (True, False)}, {"decay_at": "after"}])
def test_a_mistake_of_an_engine_with_rounded_betas_is_named(changes: dict[str, object]) -> None:
    meant = replace(BASE, b2=0.999, lr=1e-3, eps=1e-8)
    given = given_of(3_000, 1e-3, meant)
    held = replace(meant, b1=float(np.float32(meant.b1)), b2=float(np.float32(meant.b2)), **changes)
    found = explain_difference(given, written(given, held))
    keys = {"eps_at": "eps-inside", "correct": "float32-betas+no-correction-v", "decay_at": "decay-after"}
    key = keys[next(iter(changes))]
    assert (found.key, found.explained) == (key, True), found


@pytest.mark.parametrize("b2", [0.99, 0.999, 0.9999])
def test_a_correction_that_is_a_little_off_is_not_taken_for_amsgrad(b2: float) -> None:
    """1-β₂ᵗ may be off by what float32 loses of it, in each element alike; a largest v is well above v in some."""
    meant = replace(BASE, b2=b2, t=3)
    given = given_of(3_000, 1e-3, meant)
    off = 1 + 2.0**-25 / (1 - b2)
    found = explain_difference(given, written(given, replace(meant, v_used=lambda v: v * off * off)))
    assert "amsgrad" not in found.key, found


def test_a_step_of_which_a_part_is_known_is_unknown_and_says_which_part() -> None:
    given = given_of(3_000, 1e-3, BASE)
    found = explain_difference(
        given, written(given, replace(BASE, grad=lambda g, w: -g, v_used=lambda v: v**0.9))
    )
    assert (found.key, found.explained) == ("unknown", False)
    assert str(found).endswith(f"; a part of it is {KINDS['sign'].words}."), found


def test_the_published_kernels_own_roundings_are_named() -> None:
    peers = {peer.key: peer for peer in PEERS}
    given = given_of(3_000, 1e-3, replace(BASE, b2=0.999))
    found = explain_difference(given, peers["published"].step(given))
    assert (found.key, [peer.key for peer in found.peers]) == ("rounding", ["published"]), found


def test_a_skipped_step_and_gradients_that_are_not_finite_are_named() -> None:
    given = given_of(300, 1e-3, BASE)
    assert explain_difference(given, given.before).key == "skipped"
    given.g[[3, 40]] = np.nan, np.inf
    with np.errstate(all="ignore"):
        after = written(given, BASE)
    found = explain_difference(given, after)
    assert found.kinds[0].key == "nonfinite"
    assert found.nonfinite == 2
    after.w[7] = np.nan
    assert not explain_difference(given, after).explained


def test_what_nobody_knows_is_said_to_be_so() -> None:
    given = given_of(3_000, 1e-3, BASE)
    odd = replace(BASE, v_used=lambda v: v**0.9)
    found = explain_difference(given, written(given, odd))
    assert not found.explained
    assert found.key == "unknown"
    assert "m agrees within" in str(found)
    assert "first at [" in str(found)


@pytest.mark.parametrize("t", [1, 2, 3, 10, 1000, 100_000])
@pytest.mark.parametrize("magnitude", [1e-12, 1e-7, 1e-3, 10.0])
@pytest.mark.parametrize("size", [1, 3, 64, 5_000])
def test_healthy_steps_never_get_a_name(t: int, magnitude: float, size: int) -> None:
    for lr, b2, decay in ((3e-4, 0.95, 0.1), (1e-1, 0.999, 0.0), (1e-6, 0.999, 0.01)):
        step = Step(lr=lr, b2=b2, decay=decay, t=t)
        given = given_of(
            size,
            magnitude,
            step,
            lrs={"the step before": 0.9 * lr, "the step after": 1.1 * lr},
            counts={"the run": 2 * t},
        )
        if t == 1:
            given.before.m[:] = 0
            given.before.v[:] = 0
        for after in (written(given, step), *(peer.step(given) for peer in PEERS)):
            found = explain_difference(given, after)
            assert found.key == "rounding", (lr, b2, decay, found)


def test_weights_kept_in_fewer_bits_are_judged_in_units_of_theirs() -> None:
    for dtype in ("bf16", "f16"):
        w, m, v, g = (rounded(x, dtype) for x in made(4_000, 0.05))
        given = Given(Lanes(w, m, v), g, Hyper(3e-4, 0.9, 0.99, 1e-8, 0.1, math.inf), 7, dtype=dtype)
        for peer in PEERS[:5]:
            found = explain_difference(given, peer.step(given))
            assert found.key == "rounding", (dtype, peer.key, found)


# --- PyTorch's own numbers


def torch_given(case: torch_kinds.Case, *, largest: bool = True) -> Given:
    lanes = torch_kinds.inputs(case)
    dtype = {"float32": "f32", "bfloat16": "bf16"}[case.dtype]
    w, g, m, v, most = (rounded(lanes[name], dtype) for name in ("w", "g", "m", "v", "largest"))
    hyper = Hyper(case.lr, 0.9, case.beta2, 1e-8, case.decay, math.inf)
    return Given(
        Lanes(w, m, v), g, hyper, case.t, l2=case.optimizer == "Adam", dtype=dtype,
        max_v=most if case.amsgrad and largest else None,
    )  # fmt: skip


@pytest.mark.parametrize("case", torch_kinds.CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_stored_steps_of_pytorch_on_a_gpu_are_its_roundings_bit_for_bit(case: torch_kinds.Case) -> None:
    made = CUDA[case.name]
    found = explain_difference(torch_given(case), Lanes(made["w"], made["m"], made["v"]))
    assert found.explained, found
    if case.amsgrad or case.maximize:
        # 1-β of a float32 β, and in the fused kernel 1-βᵗ too, come on top of what the option does.
        named = {"amsgrad" if case.amsgrad else "sign"} | (
            {"float32-betas"} if case.kind == "fused" else set()
        )
        assert {each.key for each in found.kinds} <= named | {"float32-corrections"}, found
        return
    assert found.key == "rounding"
    mine = f"torch-{case.kind}-cuda"
    assert mine in {peer.key for peer in found.peers}
    if (case.kind, case.optimizer) == ("fused", "Adam"):
        # Where the decay enters the gradient a few elements are rounded once more or less.
        assert max(found.left.values()) <= 2
    else:
        assert found.exact


def check_torch_case(case: torch_kinds.Case, made: dict[str, np.ndarray]) -> None:
    found = explain_difference(torch_given(case), Lanes(made["w"], made["m"], made["v"]))
    assert found.explained, (case, found)
    if case.amsgrad or case.maximize:
        assert found.key == ("amsgrad" if case.amsgrad else "sign"), (case, found)
        return
    assert found.key == "rounding", (case, found)
    if case.dtype == "float32":
        whose = {peer.key for peer in found.peers}
        assert whose & {"torch-loop", "torch-fused"}, (case, found)
    if case.kind == "fused":
        assert found.exact, (case, found)
    for lane in "mv" if case.dtype == "float32" else "":
        # Only its square root is not rounded as IEEE 754 has it.
        assert found.left[lane] == 0, (case, lane, found)


@pytest.mark.parametrize("case", torch_kinds.CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_stored_steps_of_pytorch_are_its_roundings_or_its_options(case: torch_kinds.Case) -> None:
    check_torch_case(case, STORED[case.name])


def test_steps_of_pytorch_as_installed() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    for case in torch_kinds.CASES:
        check_torch_case(case, torch_kinds.run_torch(case))
