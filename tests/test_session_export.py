"""What a recording holds, as other programs read it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recordings
import replays
from safetensors.numpy import load_file

from inspector.gpu.device import Gpu
from inspector.session.reader import Session

Call = Any


def document(result: tuple[int, str, str], code: int = 0) -> Any:
    got, out, err = result
    assert got == code, err
    return json.loads(out)


def test_a_table_of_steps_reads_back_as_recorded(tmp_path: Path, call: Call) -> None:
    path, out = tmp_path / "run.session", tmp_path / "steps.csv"
    recordings.record(path, 9)
    report = document(call("export", path, "--out", out, "--json"))
    assert (report["format"], report["steps"], report["bytes"]) == ("csv", 9, out.stat().st_size)
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    for row in rows:
        was = recordings.recorded(int(row["step"]))
        assert float(row["loss"]) == was.loss
        assert np.float32(row["grad_norm"]) == np.float32(was.grad_norm or 0)
        assert [float(row[n]) for n in ("lr", "beta2", "eps")] == [
            was.hyper.lr,
            was.hyper.beta2,
            was.hyper.eps,
        ]
        assert int(row["posinf"]) == was.nonfinite.posinf
        assert float(row["ms/reduce_norm_sq"]) == 0.25
        # No time is an empty cell, not 0.
        assert row["ms/adamw_update no-wd"] == ""
    code, text, _ = call("export", path, "--out", out)
    assert code == 0
    assert f"Wrote 9 steps of {path} to {out}" in text


@pytest.mark.gpu
def test_a_state_runs_on_as_the_recording_did(gpu: Gpu, tmp_path: Path, call: Call) -> None:
    path, out, after = (tmp_path / name for name in ("run.session", "at.safetensors", "after.safetensors"))
    replays.record(gpu, path, 6, "grads:1+keyframes:1", stats="light")
    report = document(call("export", path, "--format", "safetensors", "--step", 3, "--out", out, "--json"))
    assert (report["step"], report["gradients_of_step"], report["params"]) == (3, 4, len(replays.PARAMS))
    document(call("run", out, "--steps", 1, "--out", after, "--json"))
    got = load_file(after)
    with Session.open(path) as session:
        for p in replays.PARAMS:
            for lane in ("w", "m", "v"):
                assert got[f"{lane}/{p.name}"].tobytes() == session.tensor(lane, 4, p.name).tobytes()  # type: ignore[arg-type]
    code, _, err = call("export", path, "--format", "safetensors", "--step", 9, "--out", out)
    assert code == 2
    assert "has no state after step 9 to write: there are states after step 0, 1, 2, 3, 4, 5, 6." in err


@pytest.mark.gpu
def test_kernel_times_are_a_trace(gpu: Gpu, tmp_path: Path, call: Call) -> None:
    path, out = tmp_path / "run.session", tmp_path / "trace.json"
    replays.record(gpu, path, 4, "stats")
    assert document(call("export", path, "--format", "perfetto", "--out", out, "--json"))["steps"] == 4
    events = json.loads(out.read_text(encoding="utf-8"))["traceEvents"]
    assert sum(e["name"].startswith("finalize_grad_stats") for e in events if e["ph"] in "Xi") == 4


def test_what_cannot_be_exported_is_said(tmp_path: Path, call: Call) -> None:
    path = tmp_path / "run.session"
    recordings.record(path, 3)
    for words, sentence in (
        (
            ("--format", "safetensors", "--out", tmp_path / "x"),
            "has no state to write: no state was captured.",
        ),
        (("--format", "perfetto", "--out", tmp_path / "x"), "hold no times of all their dispatches."),
        (("--step", 3, "--out", tmp_path / "x"), "--step names the state to write as safetensors"),
        (("--out", tmp_path / "none" / "x"), "does not exist"),
    ):
        code, out, err = call("export", path, *words)
        assert (code, out) == (2, "")
        assert sentence in err
        assert err.count("\n") == 1
    assert not (tmp_path / "x").exists()
