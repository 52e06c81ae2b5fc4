"""What optax keeps beside the moments, under the names of its fields (optax 0.2.8): none of it is a weight."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_files import opened
from safetensors.numpy import save_file

from inspector.sources.checkpoint.source import Checkpoint

SHAPES = {"body/kernel": (4, 3), "body/bias": (3,), "head/kernel": (3, 5)}
Tree = dict[str, Any]
SPELLINGS: dict[str, Callable[[str], str]] = {
    "slashes": lambda path: path,
    "dots": lambda path: path.replace("/", "."),
    "keystr": lambda path: "".join(f"[{p}]" if p.isdigit() else f"['{p}']" for p in path.split("/")),
}


def each(field: str, value: float, names: Any = tuple(SHAPES)) -> Tree:
    """A tensor of each param, under a field of a state."""
    return {f"{field}/params/{n}": np.full(SHAPES[n], value, np.float32) for n in names}


def adam(base: str = "0", names: Any = tuple(SHAPES)) -> Tree:
    """ScaleByAdamState(count, mu, nu)."""
    return {
        f"{base}/count": np.int32(6),
        **each(f"{base}/mu", 0.5, names),
        **each(f"{base}/nu", 0.25, names),
    }


def saved(folder: Path, state: Tree, how: str, *, together: bool) -> Checkpoint:
    """Weights and a state of optax, in one file or two."""
    spelt = SPELLINGS[how]
    weights = {f"params/{n}": np.ones(shape, np.float32) for n, shape in SHAPES.items()}
    parts = (
        [{f"params/{n}": w for n, w in weights.items()} | {f"opt_state/{n}": s for n, s in state.items()}]
        if together
        else [weights, state]
    )
    paths = [folder / f"{i}.safetensors" for i in range(len(parts))]
    for path, tensors in zip(paths, parts, strict=True):
        save_file({spelt(name): np.asarray(value) for name, value in tensors.items()}, path)
    return opened(*paths)


@pytest.fixture(params=[(how, together) for how in SPELLINGS for together in (True, False)], ids=str)
def save(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Tree], Checkpoint]:
    how, together = request.param
    return lambda state: saved(tmp_path, state, how, together=together)


def short(name: str) -> str:
    """The name of a param as it was before it was spelt."""
    return "/".join(re.findall(r"[^]['./]+", name)[-2:])


@pytest.mark.parametrize("field", ["acc_grads", "1/ema"])
def test_what_is_kept_besides_is_said_and_no_weight(save: Callable[[Tree], Checkpoint], field: str) -> None:
    """MultiSteps accumulates gradients, ema keeps averages of updates: each of the shape of its param."""
    more = {"mini_step": np.int32(0), "gradient_step": np.int32(6)} if field == "acc_grads" else {}
    source = save({**adam("inner_opt_state/0"), **each(field, 9.0), **more})
    assert [short(p.name) for p in source.params] == sorted(SHAPES)
    assert source.finished_steps == 6
    assert {float(m[0]) for m in source.initial_state().m.values()} == {0.5}
    assert any(f"also keeps {field.split('/')[-1]}" in remark for remark in source.remarks)


def test_hyperparams_are_the_settings(save: Callable[[Tree], Checkpoint]) -> None:
    """inject_hyperparams keeps them as arrays beside the state that they hold for."""
    given = {"learning_rate": 3e-3, "b1": 0.8, "b2": 0.95, "eps": 1e-6, "eps_root": 0.0, "weight_decay": 0.02}
    hyper = {f"hyperparams/{name}": np.float32([value]) for name, value in given.items()}
    source = save({"count": np.int32(6), **hyper, **adam("inner_state/0")})
    assert len(source.params) == len(SHAPES)
    found = source.hyper
    np.testing.assert_allclose(
        (found.lr, found.beta1, found.beta2, found.eps, found.weight_decay),
        (3e-3, 0.8, 0.95, 1e-6, 0.02),
        rtol=1e-7,
    )
    assert not any("published defaults" in remark for remark in source.remarks)


def test_sgd_over_a_part_of_the_params_is_left_alone(save: Callable[[Tree], Checkpoint]) -> None:
    """optax.partition: adamw over the matrices, sgd with momentum over the rest."""
    matrices = ["body/kernel", "head/kernel"]
    state = adam("inner_states/a/inner_state/0", matrices)
    source = save({**state, **each("inner_states/s/inner_state/0/trace", 1.0, ["body/bias"])})
    idle = {short(p.name): source.hyper.of_param(n, decays=True).idle for n, p in enumerate(source.params)}
    assert idle == {"body/bias": True, "body/kernel": False, "head/kernel": False}
    assert any("bias" in r and "keeps trace" in r for r in source.remarks)


def test_lion_and_adafactor_are_told_from_adam(save: Callable[[Tree], Checkpoint]) -> None:
    lion = save({"0/count": np.int32(6), **each("0/mu", 0.5)})
    assert len(lion.params) == len(SHAPES)
    assert "none of the Adam family" in lion.unreplayable
    factored = {**each("0/v_row", 1.0), **each("0/v_col", 1.0), **each("0/v", 1.0)}
    adafactor = save({"0/count": np.int32(6), **factored})
    assert len(adafactor.params) == len(SHAPES)
    assert "none of the Adam family" in adafactor.unreplayable
    assert any("v_col, v_row" in remark for remark in adafactor.remarks)


def test_a_param_that_is_called_like_a_field_is_a_param(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    tensors = {"params/ema/kernel": np.ones((2, 2)), "0/mu/ema/kernel": np.ones((2, 2)) / 2,
               "0/nu/ema/kernel": np.ones((2, 2)) / 4}  # fmt: skip
    save_file(
        {n: t.astype(np.float32) for n, t in tensors.items()} | {"0/count": np.array(3, np.int32)}, path
    )
    source = opened(path)
    assert [p.name for p in source.params] == ["params/ema/kernel"]
    assert source.finished_steps == 3
