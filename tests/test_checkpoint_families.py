"""Files with several optimizers: Adam's part is stepped, what another one steps is left alone and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_files import adam, loaded, needs_torch, opened, stored, weights

SHAPES = {"a": (3, 2), "b": (4, 3), "c": (5,), "d": (6,)}


def sgd(shapes: list[tuple[int, ...]], *, momentum: float = 0.9) -> dict[str, Any]:
    """A state_dict() of SGD; without momentum it keeps nothing."""
    state = {i: {"momentum_buffer": stored(np.full(s, 7.0, np.float32))} for i, s in enumerate(shapes)}
    group = {"lr": 0.1, "momentum": momentum, "dampening": 0, "weight_decay": 0.5, "nesterov": False}
    return {
        "state": state if momentum else {},
        "param_groups": [{**group, "params": list(range(len(shapes)))}],
    }


@pytest.mark.parametrize("first", ["adam", "sgd"])
def test_sgd_beside_adamw_is_left_alone_and_named(tmp_path: Path, first: str) -> None:
    theirs, mine = sgd([(5,), (6,)]), adam([(3, 2), (4, 3)], betas=(0.8, 0.9), weight_decay=0.0)
    optimizers = {"adam": mine, "sgd": theirs} if first == "adam" else {"sgd": theirs, "adam": mine}
    source = loaded(tmp_path, {"model": weights(**SHAPES), "optimizers": optimizers})
    of = {p.name: source.hyper.of_param(n, decays=False) for n, p in enumerate(source.params)}
    assert {name: each.idle for name, each in of.items()} == {"a": False, "b": False, "c": True, "d": True}
    assert (of["a"].lr, of["a"].beta1, of["a"].weight_decay) == (1e-3, 0.8, 0.0)
    assert source.finished_steps == 3
    state = source.initial_state()
    assert {name: values[0] for name, values in state.m.items()} == {"a": 1.0, "b": 2.0}
    told = [remark for remark in source.remarks if "none of the Adam family" in remark]
    assert len(told) == 1
    assert told[0].startswith("c and d are stepped by another optimizer of the file")
    assert "momentum_buffer" in told[0]
    assert not any("no first and second moment" in remark for remark in source.remarks)
    assert source.unreplayable == ""


def test_sgd_that_kept_nothing_is_told_by_its_settings(tmp_path: Path) -> None:
    """Without momentum SGD has no state: it is no Adam that has not begun."""
    tree = {
        "model": weights(**SHAPES),
        "adam": adam([(3, 2), (4, 3)], betas=(0.9, 0.99)),
        "sgd": sgd([(5,), (6,)], momentum=0),
    }
    source = loaded(tmp_path, tree)
    assert [source.hyper.of_param(n, decays=False).idle for n in range(4)] == [False, False, True, True]
    assert any("c and d are stepped by another" in r and "no betas" in r for r in source.remarks)
    assert not any("m and v start at 0" in remark for remark in source.remarks)


def test_a_group_of_adam_that_has_not_begun_is_adams(tmp_path: Path) -> None:
    begun = adam([(3, 2), (4, 3)], betas=(0.9, 0.99))
    new = {"state": {}, "param_groups": [{"lr": 1e-2, "betas": (0.9, 0.99), "params": [0, 1]}]}
    source = loaded(tmp_path, {"model": weights(**SHAPES), "one": begun, "two": new})
    assert not any(source.hyper.of_param(n, decays=False).idle for n in range(4))


def test_an_optimizer_of_the_first_moment_alone_is_said(tmp_path: Path) -> None:
    """Lion keeps exp_avg, and no exp_avg_sq."""
    lion = adam([(3, 2)], betas=(0.9, 0.99))
    for state in lion["state"].values():
        del state["exp_avg_sq"]
    source = loaded(tmp_path, {"model": weights(a=(3, 2)), "optimizer": lion})
    assert any("no second moment of a" in remark for remark in source.remarks)
    assert source.unreplayable


def test_a_frozen_param_of_the_same_shape_may_have_the_place_of_another(tmp_path: Path) -> None:
    """By position alone a frozen param and a trained one of its shape are not told apart."""
    tree = {"model": weights(frozen=(3, 2), head=(3, 2)), "optimizer": adam([(3, 2)])}
    source = loaded(tmp_path, tree)
    assert any("not verified" in r and "frozen and head" in r for r in source.remarks)


def test_what_pytorch_saves_of_two_optimizers(tmp_path: Path) -> None:
    torch = needs_torch()
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    body = torch.optim.AdamW(model[0].parameters(), lr=2e-3)
    head = torch.optim.SGD(model[1].parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        model(torch.ones(5, 3)).square().sum().backward()
        body.step()
        head.step()
    path = tmp_path / "run.pt"
    torch.save({"model": model.state_dict(), "optimizers": [body.state_dict(), head.state_dict()]}, path)
    source = opened(path)
    idle = {p.name: source.hyper.of_param(n, decays=False).idle for n, p in enumerate(source.params)}
    assert idle == {"0.weight": False, "0.bias": False, "1.weight": True, "1.bias": True}
    expected = body.state[model[0].weight]["exp_avg"].numpy().ravel()
    np.testing.assert_array_equal(source.initial_state().m["0.weight"], expected)


def test_several_first_moments_are_no_damage(tmp_path: Path) -> None:
    """AdEMAMix of bitsandbytes 0.50 keeps two of them in state1, one behind the other."""
    state = {"step": 4, "state1": stored(np.ones((2, 3, 2))), "state2": stored(np.ones((3, 2)))}
    tree = {"state": {0: state}, "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999, 0.9999), "params": [0]}]}
    source = loaded(tmp_path, {"model": weights(a=(3, 2)), "optimizer": tree})
    assert any("no first and second moment (it keeps state1, state2)" in r for r in source.remarks)
    assert "none of the Adam family" in source.unreplayable
    assert not source.initial_state().m


def test_scalars_have_one_first_moment(tmp_path: Path) -> None:
    source = loaded(tmp_path, {"model": weights(scale=()), "optimizer": adam([()], betas=(0.9, 0.99))})
    assert source.initial_state().m["scale"].tolist() == [1.0]
    assert source.unreplayable == ""
