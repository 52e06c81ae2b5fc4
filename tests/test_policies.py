"""Policies on non-finite gradients: PyTorch's own numbers, hand-worked ones, and the float64 oracle."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector import policies
from inspector.floats import F32Array, ulp_distance
from inspector.hyper import Hyper
from inspector.optimizers.adamw import oracle
from inspector.policies import POLICIES, Outcome, PolicyName, PolicyTable, Tensor, weigh
from inspector.stores import Lane

sys.path.append(str(Path(__file__).parent / "peers"))
import torch_policies as peer

PEER = json.loads(peer.FILE.read_text(encoding="utf-8"))["cases"]
HYPER = Hyper(**peer.SETTINGS)
TENSORS = tuple(Tensor(n, math.prod(s), len(s) >= 2) for n, s in peer.SHAPES.items())


def reader(lanes: dict[str, dict[str, np.ndarray]]) -> policies.Read:
    return lambda lane, name, start, stop: lanes[lane][name].reshape(-1)[start:stop]


def weighed(case: str, **changes: Any) -> PolicyTable:
    settings: dict[str, Any] = {"hyper": HYPER, "step": peer.STEP, **changes}
    return weigh(TENSORS, reader(peer.lanes(case)), **settings)


def outcome(table: PolicyTable, policy: PolicyName) -> Outcome:
    return next(o for o in table.outcomes if o.policy == policy)


def every_element(case: str, policy: PolicyName, lane: Lane, name: str, numel: int) -> F32Array:
    """A lane of a param after the step, element by element, as the table shows the one asked for."""
    found = []
    for index in range(numel):
        element = outcome(weighed(case, element=(name, index)), policy).element
        assert element is not None
        found.append(element.after[lane])
    return np.array(found, np.float32)


@pytest.mark.parametrize("case", peer.CASES)
@pytest.mark.parametrize("policy", ["clip_grad_norm", "loss_scaler", "propagate"])
def test_every_element_is_as_pytorch_leaves_it(case: str, policy: PolicyName) -> None:
    theirs = PEER[case][policy]
    for name in ("h.0.weight", "h.0.norm"):
        for lane in ("w", "m", "v"):
            expected = np.array(theirs[lane][name], np.float64).astype(np.float32)
            mine = every_element(case, policy, lane, name, len(expected))
            # Fused or not, a product and a sum: an ULP a line, and cancellation in m.
            assert np.array_equal(np.isnan(mine), np.isnan(expected))
            with np.errstate(invalid="ignore"):
                near = (ulp_distance(mine, expected) <= 4) | (np.abs(mine - expected) <= 1e-8)
            assert near.all()


@pytest.mark.parametrize("case", peer.CASES)
def test_norms_counts_and_steps_are_pytorchs(case: str) -> None:
    table = weighed(case)
    for policy in ("clip_grad_norm", "loss_scaler", "propagate"):
        mine, theirs = outcome(table, policy), PEER[case][policy]
        assert mine.counts == (theirs["t"] == peer.STEP)
        assert (not mine.counts) == (theirs["scale"] == 0.5)
        if policy != "propagate":
            expected = np.float32(float(theirs["norm"]))
            assert ulp_distance(np.float32([mine.grad_norm]), np.array([expected]))[0] <= 2
        hit = set()
        for lane in ("w", "m", "v"):
            bad = {n: int((~np.isfinite(np.array(x, np.float64))).sum()) for n, x in theirs[lane].items()}
            assert mine.nonfinite[lane] == sum(bad.values())
            hit |= {name for name, count in bad.items() if count}
        assert mine.params == len(hit)


def test_a_nan_norm_makes_the_whole_model_nan_and_the_kernel_does_not() -> None:
    table = weighed("nan")
    elements = sum(t.numel for t in TENSORS)
    torch, kernel = outcome(table, "clip_grad_norm"), outcome(table, "published")
    assert math.isnan(torch.clip_scale or 0.0)
    assert torch.nonfinite == dict.fromkeys(("w", "m", "v"), elements)
    assert (torch.params, math.isnan(torch.update_norm)) == (3, True)
    assert kernel.nonfinite == dict.fromkeys(("w", "m", "v"), 0)
    assert (table.param, table.index, math.isnan(table.gradient)) == ("h.0.weight", 8, True)
    assert (table.gradients.nan, table.gradients.total, table.hit_params) == (1, 1, 1)


@pytest.mark.parametrize("case", peer.CASES)
def test_masking_policies_agree_with_the_float64_oracle(case: str) -> None:
    lanes = peer.lanes(case)
    flat = {lane: np.concatenate([x.reshape(-1) for x in lanes[lane].values()]) for lane in "wmvg"}
    decays = np.concatenate([np.full(t.numel, t.decays) for t in TENSORS])
    norm = oracle.true_norm(flat["g"])
    if norm > 1e19:
        norm = math.inf
    scale = float(oracle.clip_scale(norm, HYPER.max_grad_norm))
    for policy in ("published", "reset"):
        mine = outcome(weighed(case), policy)
        assert mine.grad_norm == pytest.approx(norm, rel=2e-7)
        assert mine.clip_scale == pytest.approx(scale, rel=2e-7)
        m, v = flat["m"], flat["v"]
        if policy == "reset":
            m, v = (np.where(np.isfinite(flat["g"]), x, 0) for x in (m, v))
        done = oracle.update(
            flat["w"], flat["g"], m, v, scale=scale, hyper=HYPER, step=peer.STEP, decays=decays
        )
        moved = float(np.linalg.norm(done.w - flat["w"].astype(np.float64)))
        assert mine.update_norm == pytest.approx(moved, rel=1e-5)


def test_an_element_by_hand() -> None:
    # One element with g = NaN beside one with g = 3: w = 1, m = 0.5, v = 0.25, β = 0.5, t = 1, lr 0.5, λ 0.5.
    lanes = {
        "w": {"a": np.ones(2, np.float32)},
        "m": {"a": np.full(2, 0.5, np.float32)},
        "v": {"a": np.full(2, 0.25, np.float32)},
        "g": {"a": np.array([np.nan, 3], np.float32)},
    }
    hyper = Hyper(lr=0.5, beta1=0.5, beta2=0.5, eps=0.0, weight_decay=0.5, max_grad_norm=math.inf)
    table = weigh([Tensor("a", 2, True)], reader(lanes), hyper=hyper, step=1)
    after = {o.policy: o.element.after for o in table.outcomes if o.element}
    # m = 0.25 and v = 0.125, over 1-β: 0.5/√0.25 = 1; w = 1 - 0.5·(1 + 0.5).
    assert after["published"] == {"w": 0.25, "m": 0.25, "v": 0.125}
    # 0/(0 + ε) with ε = 0 is not finite, which leaves w.
    assert after["reset"] == {"w": 1.0, "m": 0.0, "v": 0.0}
    assert after["loss_scaler"] == {"w": 1.0, "m": 0.5, "v": 0.25}
    assert all(math.isnan(x) for x in after["propagate"].values())
    assert outcome(table, "published").grad_norm == 3.0
    # The other: m = 1.75, v = 4.625; 3.5/√9.25 = 1.150793; w = 1 - 0.5·(1.150793 + 0.5), PyTorch's the same.
    other = weigh([Tensor("a", 2, True)], reader(lanes), hyper=hyper, step=1, element=("a", 1))
    shown = {o.policy: o.element.after for o in other.outcomes if o.element}
    for policy in ("published", "reset", "propagate"):
        assert shown[policy]["m"] == 1.75
        assert shown[policy]["v"] == 4.625
        assert shown[policy]["w"] == pytest.approx(1 - 0.5 * (3.5 / math.sqrt(9.25) + 0.5), rel=3e-7)


@pytest.mark.parametrize("limit", [0.0, -1.0, math.inf, math.nan])
def test_any_clip_limit_is_taken_as_it_would_be_run(limit: float) -> None:
    table = weighed("inf", hyper=Hyper(max_grad_norm=limit))
    scale = outcome(table, "clip_grad_norm").clip_scale
    assert scale is not None
    # limit · (1/∞): 0, and NaN where the limit is not finite.
    assert scale == 0 if math.isfinite(limit) else math.isnan(scale)


def test_nothing_is_shown_of_a_healthy_step_unless_asked_for() -> None:
    table = weighed("finite")
    assert (table.param, table.index) == (None, None)
    assert all(o.element is None and o.counts for o in table.outcomes)
    assert "All gradients are finite" in table.outcomes[0].says
    assert tuple(o.policy for o in table.outcomes) == POLICIES


def test_parts_of_a_param_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = weighed("both")
    monkeypatch.setattr(policies, "CHUNK", 7)
    told: list[tuple[int, int]] = []
    parts = weighed("both", progress=lambda done, of: told.append((done, of)))
    for a, b in zip(whole.outcomes, parts.outcomes, strict=True):
        assert (a.nonfinite, a.params, a.says) == (b.nonfinite, b.params, b.says)
        np.testing.assert_allclose(a.update_norm, b.update_norm, rtol=1e-12)
    assert told[0] == (0, 108)
    assert told[-1] == (108, 108)


def test_progress_can_end_it() -> None:
    def stop(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weighed("nan", progress=stop)


def test_decay_in_the_gradient() -> None:
    # torch.optim.Adam adds λ·w to g, and so moves w by lr·(…) of that alone.
    table = weighed("finite", l2=True, element=("h.0.weight", 0))
    lanes = peer.lanes("finite")
    w, m, v, g = (lanes[x]["h.0.weight"].reshape(-1)[:1] for x in "wmvg")
    for policy in ("published", "clip_grad_norm"):
        mine = outcome(table, policy)
        done = oracle.update(
            w, g, m, v, scale=mine.clip_scale or 0.0, hyper=HYPER, step=peer.STEP, decays=True,
            numerics="precise", l2=True,
        )  # fmt: skip
        assert mine.element is not None
        assert mine.element.after["w"] == pytest.approx(float(done.w[0]), rel=2e-6)


def test_pytorch_adds_to_the_norm_what_the_kernel_bounds_it_by() -> None:
    # A norm of 5e-6 and a limit of 3e-6: 3 / (5 + 1), and 3 / max(5, 1).
    lanes = {lane: {"a": np.zeros(2, np.float32)} for lane in "wmv"}
    lanes["g"] = {"a": np.array([3e-6, 4e-6], np.float32)}
    table = weigh([Tensor("a", 2, True)], reader(lanes), hyper=Hyper(max_grad_norm=3e-6), step=1)
    assert outcome(table, "clip_grad_norm").clip_scale == pytest.approx(0.5, rel=1e-6)
    assert outcome(table, "loss_scaler").clip_scale == pytest.approx(0.5, rel=1e-6)
    assert outcome(table, "published").clip_scale == pytest.approx(0.6, rel=1e-6)
    assert outcome(table, "propagate").clip_scale is None
