"""`inspector policies`: a state file, steps of a recording with and without their state at hand, and wrong usage."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from state_files import write

from inspector.session.reader import Session

Call = Callable[..., tuple[int, str, str]]
EXAMPLE = Path(__file__).parent.parent / "sessions" / "nan-gradient.session.zip"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    w = np.ones((2, 3), np.float32)
    g = np.array([[3, 4, 0], [np.nan, np.inf, 0]], np.float32)
    return write(tmp_path / "s.safetensors", {"w/a": w, "g/a": g, "w/b": w[0], "g/b": g[0] * 0}, t="4")


def policies(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["policy"]: each for each in document["policies"]}


def test_a_state_file_needs_no_device(call: Call, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: object, **options: object) -> None:
        raise AssertionError("a device was opened")

    monkeypatch.setattr("inspector.gpu.opener.StepperMaker.make", none)
    code, out, _ = call("policies", state, "--json")
    document = json.loads(out)
    found = policies(document)
    assert code == 0
    assert (document["step"], document["param"], document["multi_index"]) == (5, "a", [1, 0])
    assert document["nonfinite_gradients"] == {"nan": 1, "posinf": 1, "neginf": 0, "params": 1}
    # 3-4-5: the norm of what is finite, and a fifth of it.
    assert (found["published"]["grad_norm"], found["published"]["clip_scale"]) == (5.0, 0.2)
    assert (found["clip_grad_norm"]["grad_norm"], found["clip_grad_norm"]["clip_scale"]) == ("NaN", "NaN")
    assert found["clip_grad_norm"]["nonfinite"] == {"w": 9, "m": 9, "v": 9}
    assert found["propagate"]["nonfinite"] == {"w": 2, "m": 2, "v": 2}
    assert (found["propagate"]["nonfinite_params"], found["loss_scaler"]["step_counts"]) == (1, False)
    assert found["loss_scaler"]["after"] == {"w": 1.0, "m": 0.0, "v": 0.0}


def test_settings_given_hold(call: Call, state: Path) -> None:
    _, out, _ = call("policies", state, "--max-grad-norm", "2.5", "--param", "a", "--index", "0,1", "--json")
    document = json.loads(out)
    assert policies(document)["published"]["clip_scale"] == 0.5
    assert (document["index"], document["gradient"]) == (1, 4.0)


def test_what_is_printed_names_every_policy(call: Call, state: Path) -> None:
    code, out, _ = call("policies", state)
    assert code == 0
    for words in ("2 of 9 gradients", "Published kernel", "Loss scaler", "a[1, 0], gradient NaN", "t = 4"):
        assert words in out


@pytest.mark.gpu
def test_a_recorded_step_from_its_state_and_from_one_before(call: Call) -> None:
    with Session.open(EXAMPLE) as session:
        keyframes = session.captures("keyframe")
    assert 29 not in keyframes
    code, out, err = call("policies", EXAMPLE, "--step", 30, "--json")
    assert code == 0, err
    document = json.loads(out)
    with Session.open(EXAMPLE) as session:
        recorded = session.step(30)
        bad = int((~np.isfinite(session.tensor("g", 30, "h.0.ffn.down.weight"))).sum())
    assert document["nonfinite_gradients"]["nan"] == recorded.nonfinite.nan == bad
    assert document["param"] == "h.0.ffn.down.weight"
    kernel = policies(document)["published"]
    assert recorded.grad_norm is not None
    assert math.isclose(kernel["grad_norm"], recorded.grad_norm, rel_tol=3e-7)
    assert policies(document)["propagate"]["nonfinite"]["w"] == bad


def test_a_recorded_step_whose_state_was_captured_needs_no_device(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inspector.gpu.opener.StepperMaker.make", None)
    with Session.open(EXAMPLE) as session:
        first = session.captures("gradients")[0]
        assert first - 1 in session.captures("keyframe")
    code, out, err = call("policies", EXAMPLE, "--step", first, "--json")
    assert code == 0, err
    assert json.loads(out)["step"] == first


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--step", "6"), "--step 6 cannot be looked at"),
        (("--step", "4"), "before the first step"),
        (("--param", "c"), "has no param 'c'"),
        (("--index", "1"), "name it with --param"),
        (("--param", "a", "--index", "2,0"), "lies outside"),
    ],
)
@pytest.mark.gpu
def test_what_there_is_not_is_told_in_one_sentence(
    call: Call, state: Path, words: tuple[str, ...], says: str
) -> None:
    code, out, err = call("policies", state, *words)
    assert (code, out) == (2, "")
    assert says in err
    assert len([line for line in err.splitlines() if line.startswith("inspector:")]) == 1


def test_a_step_that_was_not_captured(call: Call) -> None:
    code, _, err = call("policies", EXAMPLE, "--step", 5)
    assert code == 2
    assert "its gradients were not captured" in err
