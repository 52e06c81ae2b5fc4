"""State files with groups of params: read, run, written, and refused in a sentence where they are none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from inspector.errors import UsageError
from inspector.hyper import Hyper
from inspector.optimizers.adamw.oracle import update
from inspector.session.reader import Session
from inspector.settings import Settings
from inspector.sources.statefile import StateFile

Call = Any
SHAPES = {"a.weight": (8, 4), "a.bias": (4,), "b.weight": (6, 4), "c.weight": (5, 4)}
GROUPS = [
    {"params": ["b.weight"], "lr": 5e-4, "beta1": 0.8, "weight_decay": 0.3, "t": 2},
    {"params": ["c.weight"], "idle": True, "t": 1},
]


def write(path: Path, groups: object, **metadata: str) -> Path:
    rng = np.random.default_rng(3)
    tensors = {
        f"{lane}/{name}": rng.standard_normal(shape).astype(np.float32) ** (2 if lane == "v" else 1)
        for name, shape in SHAPES.items()
        for lane in "wgmv"
    }
    text = groups if isinstance(groups, str) else json.dumps(groups)
    save_file(tensors, path, {"t": "5", "lr": "0.001", "max_grad_norm": "inf", "groups": text, **metadata})
    return path


def test_groups_are_settings_of_their_params(tmp_path: Path) -> None:
    source = StateFile(write(tmp_path / "s.safetensors", GROUPS))
    own = source.hyper.per_param
    assert own is not None
    of = {p.name: own.of_param(i) for i, p in enumerate(source.params)}
    assert of["b.weight"] == Settings(5e-4, 0.8, 0.999, 1e-8, 0.3, behind=3)
    assert of["c.weight"] == Settings(1e-3, 0.9, 0.999, 1e-8, 0.01, behind=4, idle=True)
    # What no group names is as the file says, decayed by its block.
    assert of["a.weight"] == Settings(1e-3, 0.9, 0.999, 1e-8, 0.01)
    assert of["a.bias"] == Settings(1e-3, 0.9, 0.999, 1e-8, 0.0)
    assert {p.name: p.group for p in source.params} == {
        "b.weight": 0,
        "c.weight": 1,
        "a.weight": 2,
        "a.bias": 2,
    }


@pytest.mark.gpu
def test_a_step_is_taken_with_them_and_written(tmp_path: Path, call: Call) -> None:
    path, out = write(tmp_path / "s.safetensors", GROUPS), tmp_path / "after.safetensors"
    code, text, err = call("run", path, "--steps", 1, "--numerics", "precise", "--out", out, "--json")
    assert code in (0, 1), err
    before, after = load_file(path), load_file(out)
    done = update(
        *(before[f"{lane}/b.weight"] for lane in "wgmv"), scale=1.0, hyper=Hyper(5e-4, 0.8, 0.999, 1e-8, 0.3),
        step=3, decays=True, numerics="precise",
    )  # fmt: skip
    for lane in "wmv":
        assert after[f"{lane}/c.weight"].tobytes() == before[f"{lane}/c.weight"].tobytes()
    document = json.loads(text)
    assert [c["t"] for c in document["steps"][0]["classes"]] == [6, 6, 3, 1]
    assert [c["params"] for c in document["steps"][0]["classes"]] == [1, 1, 1, 1]
    # By hand beside the oracle: m and the first correction have β₁ 0.8 and t = 3.
    m = 0.8 * before["m/b.weight"].astype(np.float64) + 0.2 * before["g/b.weight"]
    assert np.allclose(after["m/b.weight"], m, rtol=3e-7, atol=1e-7)
    assert np.allclose(after["w/b.weight"], done.w, rtol=2e-7, atol=1e-9)
    again = StateFile(out)
    own = again.hyper.per_param
    assert own is not None
    assert again.finished_steps == 6
    assert {p.name: (own.of_param(i).t(7), own.is_idle(i), p.group) for i, p in enumerate(again.params)} == {
        "b.weight": (4, False, 0), "c.weight": (1, True, 1), "a.weight": (7, False, 2), "a.bias": (7, False, 2),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ("{", "groups is not valid JSON"),
        ({"params": []}, "groups is no list of groups"),
        ([{"lr": 1}], "group 0 names no params"),
        ([{"params": ["x"]}], "group 0 names 'x', which the file does not hold"),
        ([{"params": ["a.bias"]}, {"params": ["a.bias"]}], "group 1 names 'a.bias', which another group has"),
        ([{"params": ["a.bias"], "lr": "fast"}], "lr is 'fast', which is not a number"),
        ([{"params": ["a.bias"], "rate": 1}], "group 0 has 'rate'"),
        ([{"params": ["a.bias"], "t": 9}], "has finished 9 steps, and the file t 5"),
        ([{"params": ["a.bias"], "t": -1}], "t is '-1': give a whole number"),
        ([{"params": ["a.bias"], "idle": 1}], "idle is '1': give true or false"),
    ],
)
def test_what_is_no_list_of_groups_is_refused(tmp_path: Path, groups: object, says: str, call: Call) -> None:
    path = write(tmp_path / "s.safetensors", groups)
    with pytest.raises(UsageError, match=re.escape(says)):
        StateFile(path)
    code, _, err = call("run", path, "--steps", 1)
    assert code == 2
    assert says in " ".join(err.split())
    assert "Traceback" not in err


@pytest.mark.gpu
def test_a_run_with_groups_is_recorded_and_verified(tmp_path: Path, call: Call) -> None:
    path, saved = write(tmp_path / "s.safetensors", GROUPS), tmp_path / "run.session"
    assert call("run", path, "--steps", 1, "--save", saved, "--capture", "all")[0] in (0, 1)
    code, text, err = call("replay", saved, "--verify", "--json")
    assert (code, json.loads(text)["bit_exact"]) == (0, True), err
    with Session.open(saved) as session:
        own = session.step(6).hyper.per_param
        assert own == StateFile(path).hyper.per_param
        assert session.about.hyper.per_param == own
