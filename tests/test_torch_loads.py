"""Checkpoints that a script loads in mid-run, and other writes to weights: told, and nothing follows across them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.runtime.recorded_facts import RecordedFacts
from inspector.session.reader import Session
from inspector.session.records import LOADED_STATE, LOADED_WEIGHTS, WRITTEN_WEIGHTS
from inspector.sources.recording import Stretch, stretches

torch = pytest.importorskip("torch")

import torch_runs as runs  # noqa: E402

from inspector.integrations.torch import record  # noqa: E402

AdamW = torch.optim.AdamW
TRANSITIONS = {
    "unexplained-weights", "unexplained-moments", "swapped-moments", "update-not-applied", "step-counter-reset",
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.session"


def trained(path: Path, capture: str, between: Any, **options: Any) -> tuple[Any, Any]:
    """Steps 1 to 4, what `between` does, steps 5 to 8."""
    torch.manual_seed(0)
    model = runs.Net()
    optimizer = AdamW(runs.split(model), lr=3e-3, **options)
    early = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    with record(optimizer, path, model, capture) as recording:
        runs.train(model, optimizer, range(1, 3), recording=recording)
        early = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        runs.train(model, optimizer, range(3, 5), recording=recording)
        between(model, optimizer, copy.deepcopy(early))
        runs.train(model, optimizer, range(5, 9), recording=recording)
    assert recording.problem is None
    return model, early


def load_both(model: Any, optimizer: Any, early: Any) -> None:
    model.load_state_dict(early[0])
    optimizer.load_state_dict(early[1])


def load_weights(model: Any, optimizer: Any, early: Any) -> None:
    model.load_state_dict(early[0])


def load_state(model: Any, optimizer: Any, early: Any) -> None:
    optimizer.load_state_dict(early[1])


def shrink(model: Any, optimizer: Any, early: Any) -> None:
    with torch.no_grad():
        model.mix.weight.mul_(0.25)


@pytest.mark.parametrize(
    ("between", "told"),
    [
        (load_both, [LOADED_WEIGHTS, LOADED_STATE]),
        (load_weights, [LOADED_WEIGHTS]),
        (load_state, [LOADED_STATE]),
        (shrink, [f"{WRITTEN_WEIGHTS}: mix.weight"]),
    ],
)
@pytest.mark.parametrize("stats", ["stats", "keyframes:2"])
def test_what_was_loaded_is_told_at_its_step_and_by_no_rule(
    path: Path, stats: str, between: Any, told: list[str]
) -> None:
    trained(path, stats, between)
    with Session.open(path) as session:
        assert [(note.step, note.text) for note in session.notes("mark") if note.step > 1] == [
            (5, t) for t in told
        ]
        assert session.put_in_place() == (5,)
        assert not TRANSITIONS & {finding.rule for finding in session.findings()}
        facts = RecordedFacts(session)
        assert [step for step in session.steps if (f := facts.at(step)) is not None and f.put_in_place] == [5]


def test_a_rule_tells_of_weights_that_nobody_is_known_to_have_written(path: Path) -> None:
    """Through `data` PyTorch counts no write: then the norms give it away."""

    def hidden(model: Any, optimizer: Any, early: Any) -> None:
        model.mix.weight.data.mul_(0.25)

    trained(path, "stats", hidden)
    with Session.open(path) as session:
        assert session.put_in_place() == ()
        assert [(f.rule, f.step) for f in session.findings() if f.rule in TRANSITIONS] == [
            ("unexplained-weights", 5)
        ]


def test_a_script_that_writes_in_each_step_is_told_of_once(path: Path) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters())

    def clamp(step: int) -> None:
        with torch.no_grad():
            for param in model.parameters():
                param.clamp_(-1, 1)

    with record(optimizer, path, model):
        runs.train(model, optimizer, range(1, 8), before=clamp)
    with Session.open(path) as session:
        marks = [note for note in session.notes("mark") if note.text.startswith(WRITTEN_WEIGHTS)]
        assert [note.step for note in marks] == [2]
        assert marks[0].text.endswith("and 5 more")


@pytest.mark.parametrize("capture", ["all", "keyframes:3+grads:1", "flight:8+grads:1"])
def test_the_state_that_was_loaded_is_kept_and_leads_on_and_none_before_it_does(
    path: Path, capture: str
) -> None:
    _, (weights, state) = trained(path, capture, load_both)
    with Session.open(path) as session:
        assert 4 in session.captures("keyframe")
        kept = session.keyframe(4)
        for name, tensor in weights.items():
            if name in kept.w:
                np.testing.assert_array_equal(kept.w[name].reshape(tensor.shape), tensor.numpy())
        # Number 0 of the optimizer is the tied embedding.
        expected = state["state"][0]["exp_avg"].numpy().reshape(-1)
        np.testing.assert_array_equal(np.asarray(kept.m["embed.weight"]).reshape(-1), expected)
        found = stretches(session)
        assert found[0].last == 4
        assert found[-1] == Stretch(5, 8)


def test_a_flight_recorder_holds_the_state_that_was_loaded(path: Path) -> None:
    model = runs.Net()
    optimizer = AdamW(runs.split(model), lr=3e-3)

    def run() -> None:
        with record(optimizer, path, model, "flight:2") as recording:
            runs.train(model, optimizer, range(1, 5), recording=recording)
            load_both(model, optimizer, copy.deepcopy((model.state_dict(), optimizer.state_dict())))
            runs.train(model, optimizer, range(5, 7), recording=recording)
            raise FloatingPointError("planned")

    with pytest.raises(FloatingPointError):
        run()
    with Session.open(path) as session:
        assert Stretch(5, 6) in stretches(session)


def test_steps_on_either_side_of_a_load_are_those_of_pytorch(path: Path, call: Any) -> None:
    """Verified step by step; the state after step 4 is the one that was loaded, to which step 4 does not lead."""
    trained(path, "all", load_both)
    code, out, err = call("replay", path, "--verify", "--json")
    assert code == 0, err
    document = json.loads(out)
    compared = [each["step"] for each in document["steps"] if each.get("max_ulp") is not None]
    assert compared == [1, 2, 3, 5, 6, 7, 8]
    # Nothing but the roundings of PyTorch's own way of computing.
    assert {each["kind"] for each in document["kinds"]} == {"rounding"}
    assert max(document["peer_ulp"].values()) <= 2
