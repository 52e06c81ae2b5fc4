"""`inspector run --lockstep` and the errors of 8-bit state beside each param, as JSON and for people."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtGui import QImage
from test_cli import Call, document

from inspector.codecs import state_bytes

pytestmark = pytest.mark.gpu

ELEMENTS = 20_000


def lane(found: dict[str, Any], name: str) -> dict[str, Any]:
    one: dict[str, Any] = found[name]
    return one


def test_lockstep_of_each_step(call: Call) -> None:
    found = document(call("run", f"synthetic:{ELEMENTS}", "--steps", 3, "--lockstep", "dynamic", "--json"))
    steps = [step["lockstep"] for step in found["steps"]]
    assert len(steps) == 3
    drifts = [step["drift"]["relative"] for step in steps]
    assert 0 <= drifts[0] < drifts[1] < drifts[2] < 0.01
    last = steps[-1]
    assert (last["codec"], last["kernels"], last["open_loop"]) == ("dynamic", ["f32", "8bit"], True)
    params = {each["name"]: each for each in last["params"]}
    assert last["drift"]["param"] in params
    coded = [each for each in params.values() if "coding" in each]
    assert coded
    assert last["drift"]["largest"] == max(each["drift"]["largest"] for each in params.values())
    for name in ("m", "v"):
        total = lane(last["coding"], name)
        assert 0 < total["relative"] < 0.1
        assert total["largest"] >= total["rms"] > 0
        assert sum(total["histogram"]["counts"]) <= ELEMENTS
        assert total["worst_block"]["param"] in params
        assert "histogram" not in lane(coded[0]["coding"], name), "of a param only where --stats full asks"
    taken = last["bytes"]
    assert taken["f32"]["total"] == 16 * ELEMENTS
    # Params below 4,096 elements stay float32.
    assert state_bytes(ELEMENTS) <= taken["8bit"]["m"] + taken["8bit"]["v"] < 3 * ELEMENTS
    assert taken["8bit"]["allocated"] >= taken["8bit"]["total"]


def test_without_it_steps_have_no_lockstep(call: Call) -> None:
    found = document(call("run", "synthetic:5000", "--steps", 1, "--json"))
    assert "lockstep" not in found["steps"][0]


def test_beside_8_bit_state_runs_float32_and_params_have_their_errors(call: Call) -> None:
    found = document(
        call(
            "run", f"synthetic:{ELEMENTS}", "--steps", 2, "--kernel", "8bit", "--codec", "sqrt",
            "--stats", "full", "--lockstep", "linear", "--json",
        )
    )  # fmt: skip
    last = found["steps"][-1]
    assert last["lockstep"]["kernels"] == ["8bit", "f32"]
    assert last["lockstep"]["codec"] == "sqrt", "that of the run itself"
    coded = [param for param in last["params"] if "coding" in param]
    assert coded
    for param in coded:
        assert set(param["coding"]) == {"m", "v", "lost"}
        assert param["coding"]["lost"] == 0, "with sqrt no v that is not 0 becomes 0"
        for name in ("m", "v"):
            assert set(param["coding"][name]) == {"largest", "rms", "relative", "worst_block", "histogram"}
            assert set(param["coding"][name]["worst_block"]) == {"index", "rms"}


def test_for_people_in_three_lines(call: Call) -> None:
    code, out, err = call("run", "synthetic:8000", "--steps", 2, "--lockstep", "linear")
    assert (code, err) == (0, "")
    assert "Lockstep with linear, on gradients of the first run (open loop): drift ‖Δw‖/‖w‖ " in out
    assert "Rms error over rms: m " in out
    assert "w, g, m, v take 128 kB in float32" in out


def test_a_codec_that_there_is_not(call: Call) -> None:
    code, _, err = call("run", "synthetic:8000", "--steps", 1, "--lockstep", "cubic")
    assert code == 2
    assert "cubic" in err
    assert len(err.splitlines()) == 1


def test_a_picture_of_the_view(tmp_path: Path) -> None:
    out = tmp_path / "view.png"
    words = [
        "--steps",
        "2",
        "--lockstep",
        "sqrt",
        "--view",
        "lockstep",
        "--size",
        "900x300",
        "--theme",
        "dark",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "inspector", "screenshot", "synthetic:8000", "--out", str(out), *words],
        capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    image = QImage(str(out))
    assert (image.width(), image.height()) == (900, 300)
