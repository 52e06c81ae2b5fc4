"""The example sessions open, verify, and show what sessions/README.md says of them."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from inspector.floats import ulp_distance
from inspector.gpu.device import Gpu
from inspector.session import examples
from inspector.session.examples import EXAMPLES
from inspector.session.reader import Session
from inspector.sources.open import open_source

Call = Any
FOLDER = Path(__file__).parent.parent / "sessions"
MAX_BYTES = 1_500_000


def row(name: str) -> list[str]:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_examples", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=[example.name for example in EXAMPLES])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_they_are_those_that_the_script_makes_and_the_readme_names() -> None:
    names = sorted(example.name for example in EXAMPLES)
    assert names == sorted(path.name.removesuffix(".session.zip") for path in FOLDER.glob("*.zip"))
    assert all(row(each) for each in names)
    assert all(example.path == FOLDER / example.file for example in EXAMPLES)


def test_an_installation_without_them_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(examples, "FOLDERS", (tmp_path,))
    assert [example.path for example in EXAMPLES] == [None] * 3


def test_a_wheel_takes_each_of_them_along() -> None:
    text = (FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8")
    for example in EXAMPLES:
        assert f'"sessions/{example.file}" = "inspector/examples/{example.file}"' in text


def test_each_is_small_and_sound(name: str) -> None:
    path = FOLDER / f"{name}.session.zip"
    assert path.stat().st_size <= MAX_BYTES
    with Session.open(path) as session:
        assert session.state == "complete"
        assert session.verify() == []
        assert session.layout() is not None
        assert session.param_statistics(session.steps[0]) is not None
        assert len(session.steps) == 48
        found = {(f.rule, f.step) for f in session.findings()}
    said = set(re.findall(r"`([\w-]+)` at step (\d+)", row(name)[3]))
    assert found == {(rule, int(step)) for rule, step in said}
    assert open_source(str(path)).last_step is not None


@pytest.mark.gpu
def test_each_replays_as_recorded(name: str, gpu: Gpu, call: Call) -> None:
    code, out, err = call("replay", FOLDER / f"{name}.session.zip", "--verify", "--json")
    report = json.loads(out)
    assert code == 0, err
    assert report["compared"]["steps"] == (6 if name == "nan-gradient" else 48)
    if gpu.info.name == report["recorded_device"]["name"]:
        assert report["bit_exact"]
    else:
        # On another adapter sums are rounded elsewhere, and that adds up over the steps.
        assert max(s["grad_norm_ulp"] for s in report["steps"]) <= 8


def test_the_healthy_one_learns() -> None:
    with Session.open(FOLDER / "healthy.session.zip") as session:
        loss = session.metric("loss")
        assert loss[0] == pytest.approx(4.62, abs=0.01)
        assert np.isfinite(loss).all()
        assert loss[-8:].mean() < 3
        assert not session.metric("nonfinite").any()
        assert session.captures("keyframe") == (0, 16, 32, 48)
        assert session.captures("gradients") == tuple(range(1, 49))


def test_the_one_with_nan_has_it_where_it_is_said_to_be() -> None:
    assert row("nan-gradient")[2] == "30"
    with Session.open(FOLDER / "nan-gradient.session.zip") as session:
        counts = session.metric("nan")
        assert counts[29] == 3
        assert np.flatnonzero(counts).tolist() == [29]
        assert np.isfinite(session.metric("loss")).all()
        assert np.isfinite(session.metric("grad_norm")).all()
        values = session.tensor("g", 30, "h.0.ffn.down.weight")
        assert [tuple(map(int, at)) for at in np.argwhere(np.isnan(values))] == [(38, 18), (38, 19), (38, 20)]
        assert session.captures("gradients") == (25, 26, 27, 28, 29, 30)
        assert 24 in session.captures("keyframe")
        # What the published kernel makes of it: state that is finite.
        state = session.keyframe(30)
        assert all(np.isfinite(each[name]).all() for each in (state.w, state.m, state.v) for name in each)


def test_the_one_that_diverges_does_so_at_its_step() -> None:
    first = int(row("diverges")[2])
    with Session.open(FOLDER / "diverges.session.zip") as session:
        loss = session.metric("loss")
        assert int(np.flatnonzero(loss > loss[0] + 1)[0]) + 1 == first == 29
        assert loss[:16].min() < 3.3
        largest = [float(max(session.param_statistics(t).update.largest)) for t in session.steps]  # type: ignore[union-attr]
        assert largest[3] == pytest.approx(2.1, abs=0.05)
        assert largest[28] > 30_000
        assert math.isfinite(loss[-1])


@pytest.mark.gpu
def test_the_script_records_what_it_says(tmp_path: Path) -> None:
    """The text depends on the Python that runs it, the start does not: the first loss is that of the weights drawn."""
    module = script()
    for name, example in module.EXAMPLES.items():
        path = tmp_path / f"{name}.session"
        module.record(example, path, steps=3, adapter=None)
        with Session.open(path) as made, Session.open(FOLDER / f"{name}.session.zip") as kept:
            assert made.steps == range(1, 4)
            for same in (
                "source",
                "description",
                "params",
                "variant",
                "hyper",
                "schedule",
                "policy",
                "stats",
            ):
                assert getattr(made.about, same) == getattr(kept.about, same)
            assert made.metric("loss")[0] == pytest.approx(kept.metric("loss")[0], abs=0.5)
            if name == "healthy":
                start = made.keyframe(0).w, kept.keyframe(0).w
                assert all(int(ulp_distance(start[0][n], start[1][n]).max()) == 0 for n in start[0])
