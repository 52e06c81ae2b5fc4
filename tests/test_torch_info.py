"""What `info` and `replay --verify` say of runs of PyTorch that are out of the ordinary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inspector.cli import run as main
from inspector.layout import Param
from inspector.plan import Limits, Variant, layout_for

torch = pytest.importorskip("torch")

import torch_runs as runs  # noqa: E402

from inspector.integrations.torch import record  # noqa: E402

AdamW = torch.optim.AdamW


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.session"


def said(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> tuple[Any, str]:
    """The document of a command, and what it says to people."""
    capsys.readouterr()
    texts = []
    for more in (["--json"], []):
        assert main([*map(str, words), *more]) == code
        out, err = capsys.readouterr()
        texts.append(out or err)
    return json.loads(texts[0]) if code == 0 else None, texts[1]


@pytest.mark.parametrize("after", [0, 2])
def test_the_layout_of_a_run_whose_params_grew_is_that_of_its_last_step(
    path: Path, capsys: pytest.CaptureFixture[str], after: int
) -> None:
    model = runs.Net()
    first, *others = model.parameters()
    optimizer = AdamW([first], lr=1e-3)
    with record(optimizer, path, model):
        runs.train(model, optimizer, range(1, 3))
        optimizer.add_param_group({"params": others})
        runs.train(model, optimizer, range(3, 3 + after))
    document, words = said(capsys, "info", path)
    assert "not recorded by the version" not in words
    if not after:
        assert document["layout"]["step"] is None
        return
    assert document["layout"]["step"] == 4
    params = [Param(n, tuple(p.shape)) for n, p in model.named_parameters()]
    expected = {s.name: s.offset for s in layout_for(params, Limits(), Variant())}
    assert {p["name"] for p in document["layout"]["params"]} == set(expected)
    assert "layout      in step 4, with all params: aligned to" in words


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("SGD", {"momentum": 0.9}), ("Adagrad", {}), ("RMSprop", {}), ("NAdam", {}), ("Adamax", {})],
)
def test_another_optimizer_is_called_by_its_name(
    path: Path, capsys: pytest.CaptureFixture[str], kind: str, settings: dict[str, float]
) -> None:
    model = runs.Net()
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01, **settings)
    with record(optimizer, path, model):
        runs.train(model, optimizer, range(1, 3))
    document, words = said(capsys, "info", path)
    assert document["foreign"] == document["variant"]["optimizer"] == kind
    assert f"variant     optimizer {kind}, which is none of those here" in words
    assert "adamw" not in words


def test_a_run_that_ended_in_its_first_step_is_not_told_to_capture_what_it_did(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters())
    recording = record(optimizer, path, model, "all")
    runs.loss_of(model, 1).backward()
    recording.close(RuntimeError("out of luck"))
    _, words = said(capsys, "replay", path, "--verify", code=2)
    assert "--capture" not in words
    assert "the first is captured once step 1 has run" in " ".join(words.split())


class AdamW8bit(torch.optim.Optimizer):  # type: ignore[misc]
    """Keeps its state as bitsandbytes does: codes in the shape of the param, and a largest magnitude a block."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                for number in (1, 2):
                    codes = torch.full_like(param, 7, dtype=torch.uint8)
                    self.state[param] |= {f"state{number}": codes, f"absmax{number}": torch.ones(1)}


def test_a_state_in_codes_is_said_not_to_be_recorded(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = runs.Net()
    with record(optimizer := AdamW8bit(model.parameters()), path, model, "all"):
        runs.train(model, optimizer, range(1, 4))
    document, _ = said(capsys, "info", path)
    told = [each for each in document["changes"] if "recorded as 0" in each["text"]]
    assert [each["step"] for each in told] == [1]
    assert "keeps absmax1, absmax2, state1, state2" in told[0]["text"]


def test_an_optimizer_of_another_package_is_not_called_as_pytorchs(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = type("AdamW", (AdamW8bit,), {"__module__": "bitsandbytes.optim.adamw"})
    model = runs.Net()
    with record(optimizer := theirs(model.parameters()), path, model):
        runs.train(model, optimizer, range(1, 3))
    document, _ = said(capsys, "info", path)
    assert document["foreign"] == "AdamW of bitsandbytes"
