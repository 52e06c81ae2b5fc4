"""`--break` of run and replay: what stops, what is printed and written, and what is refused before anything runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from state_files import write

from inspector.session.reader import Session

pytestmark = pytest.mark.gpu

Call = Callable[..., tuple[int, str, str]]
SHAPES = {"h.0.attn.w": (8, 16), "h.0.norm": (16,), "tiny": (1,), "head": (5, 3)}
STEPS = 8
BAD = 4


def values(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([3, step])
    return {n: (0.1 * rng.standard_normal(s)).astype(np.float32) for n, s in SHAPES.items()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Eight steps; in the fourth head[2, 1] is NaN and head[4, 2] +Inf."""
    tensors: dict[str, Any] = {f"w/{n}": 10 * v for n, v in values(0).items()}
    for step in range(1, STEPS + 1):
        given = values(step)
        if step == BAD:
            given["head"][2, 1], given["head"][4, 2] = math.nan, math.inf
        tensors |= {f"g@{step}/{n}": v for n, v in given.items()}
    return write(tmp_path / "state.safetensors", tensors, lr="0.01")


def document(result: tuple[int, str, str], code: int) -> Any:
    assert result[0] == code, result[2]
    return json.loads(result[1])


def run(call: Call, source: Path, *words: object) -> tuple[int, str, str]:
    return call("run", source, "--steps", STEPS, *words)


def test_a_stop_is_in_the_document_and_the_exit_code(call: Call, source: Path) -> None:
    report = document(run(call, source, "--break", "nonfinite > 0", "--json"), 1)
    assert len(report["steps"]) == BAD - 1
    assert report["stopped"] == {
        "condition": "nonfinite > 0", "value": 2.0, "step": 4, "dispatch": 0, "kernel": "reduce_norm_sq",
        "where": "before", "param": "head", "index": [2, 1], "also": [],
        "message": "Stopped in step 4 before reduce_norm_sq (dispatch 0/4) by nonfinite > 0: nonfinite is 2 in "
        "head[2, 1].",
    }  # fmt: skip
    assert [f["rule"] for f in report["findings"]] == ["nonfinite-gradient"]
    report = document(run(call, source, "--break", "posinf@head>0", "--json"), 1)
    assert (report["stopped"]["condition"], report["stopped"]["index"]) == ("posinf@head > 0", [4, 2])


def test_all_that_hold_at_once_are_named(call: Call, source: Path) -> None:
    breaks = ("--break", "nan > 0", "--break", "posinf > 0", "--break", "neginf > 0")
    report = document(run(call, source, *breaks, "--json"), 1)
    assert report["stopped"]["condition"] == "nan > 0"
    assert report["stopped"]["also"] == [
        {"condition": "posinf > 0", "value": 1.0, "param": "head", "index": [4, 2]}
    ]
    assert report["stopped"]["message"].endswith(
        "by nan > 0: nan is 1 in head[2, 1]. Also by posinf > 0: posinf is 1 in head[4, 2]."
    )


def test_a_stop_after_an_update_takes_the_step_to_its_end(call: Call, source: Path, tmp_path: Path) -> None:
    """Of w = 10·0.1·N(0, 1) the largest moves by lr in the first step, to where an update of AdamW leads."""
    out, saved = tmp_path / "after.safetensors", tmp_path / "run.session"
    w, g = values(0)["h.0.attn.w"] * 10, values(1)["h.0.attn.w"].astype("f8")
    after = w * (1 - 0.01 * 0.01) - 0.01 * g / (np.abs(g) + 1e-8)
    was, now = float(np.linalg.norm(w.astype("f8"))), float(np.linalg.norm(after))
    text = f"w_norm@h.0.attn.w {'>' if now > was else '<'} {(was + now) / 2}"
    words = ("--break", text, "--max-grad-norm", "inf", "--json")
    report = document(run(call, source, *words, "--out", out, "--save", saved, "--capture", "all"), 1)
    stopped = report["stopped"]
    assert (stopped["step"], stopped["dispatch"], stopped["where"]) == (1, 2, "after")
    assert stopped["value"] == pytest.approx(now, rel=1e-6)
    assert [s["step"] for s in report["steps"]] == [1]
    written = load_file(out)
    assert written["w/h.0.attn.w"] == pytest.approx(after, rel=1e-5)
    with Session.open(saved) as session:
        assert session.steps == range(1, 2)
        assert session.verify() == []
    again = document(call("replay", saved, "--break", text, "--json"), 1)
    assert {k: again["stopped"][k] for k in stopped} == stopped
    assert [s["step"] for s in again["steps"]] == [1]
    assert again["bit_exact"]


def test_the_nth_hit_stops(call: Call, source: Path) -> None:
    report = document(run(call, source, "--break", "grad_norm > 0, hit 3", "--json"), 1)
    assert (report["stopped"]["step"], len(report["steps"])) == (3, 2)
    code, _, told = run(call, source, "--break", "grad_norm > 0, hit x")
    assert (code, "'x' in 'grad_norm > 0, hit x' is no hit" in told) == (2, True)


def test_the_value_is_that_of_float64(call: Call, source: Path) -> None:
    norms = [
        math.sqrt(math.fsum(float(np.sum(np.float64(v) ** 2)) for v in values(t).values()))
        for t in range(1, STEPS + 1)
    ]
    step = max(range(1, BAD), key=lambda t: norms[t - 1])
    level = norms[step - 1] * (1 - 1e-5)
    report = document(run(call, source, "--break", f"grad_norm > {level}", "--json"), 1)
    stopped = report["stopped"]
    assert (stopped["step"], stopped["dispatch"], stopped["kernel"]) == (step, 2, "adamw_update")
    assert stopped["value"] == pytest.approx(norms[step - 1], rel=1e-6)
    assert (stopped["param"], stopped["index"]) == (None, None)
    own = [float(np.linalg.norm(np.float64(values(t)["tiny"]))) for t in range(1, STEPS + 1)]
    largest = int(np.argmax(own))
    level = own[largest] * (1 - 1e-6)
    report = document(run(call, source, "--break", f"grad_norm@t?ny >= {level}", "--json"), 1)
    stopped = report["stopped"]
    assert (stopped["step"], stopped["param"]) == (largest + 1, "tiny")
    assert stopped["value"] == pytest.approx(own[largest], rel=1e-6)


def test_what_never_holds_stops_nothing(call: Call, source: Path) -> None:
    result = run(
        call, source, "--break", "step > 8", "--break", "loss > 1", "--json", "--max-grad-norm", "inf"
    )
    report = document(result, 1)
    assert report["stopped"] is None
    assert len(report["steps"]) == STEPS
    assert "loss > 1 never held, since no step had a loss" in result[2]
    assert "step > 8" not in result[2]


def test_for_people_the_stop_is_the_last_line(call: Call, source: Path) -> None:
    code, out, _ = run(call, source, "--break", "step == 1")
    assert code == 1
    assert out.rstrip().splitlines()[-1] == (
        "Stopped in step 1 before reduce_norm_sq (dispatch 0/4) by step == 1: step is 1."
    )


def test_the_level_is_raised_and_said(call: Call, source: Path) -> None:
    result = run(call, source, "--stats", "off", "--break", "nan > 0", "--json")
    report = document(result, 1)
    assert (report["stats"], report["stopped"]["step"]) == ("light", BAD)
    assert "statistics are light instead of off: the breakpoint nan > 0 needs them" in result[2]
    result = run(call, source, "--break", "update_max@* > 0.9", "--json")
    report = document(result, 1)
    # The first update of Adam is one learning rate, and the decay of 1 % of w beside it.
    assert (report["stats"], report["stopped"]["step"]) == ("full", 1)
    assert report["stopped"]["value"] == pytest.approx(
        1 + 0.01 * max(float(np.abs(10 * values(0)[n]).max()) for n in ("h.0.attn.w", "head")), rel=0.05
    )
    assert "statistics are full instead of light" in result[2]


def test_the_state_written_is_that_before_the_update_and_goes_on_from_there(
    call: Call, source: Path, tmp_path: Path
) -> None:
    stopped, before, after, whole = (
        tmp_path / f"{n}.safetensors" for n in ("stop", "before", "after", "whole")
    )
    assert run(call, source, "--break", "nonfinite > 0", "--out", stopped)[0] == 1
    assert call("run", source, "--steps", BAD - 1, "--out", before)[0] == 0
    at_stop, at_end = load_file(stopped), load_file(before)
    for key in at_end:
        if key[0] in "wmv":
            assert at_stop[key].tobytes() == at_end[key].tobytes()
    given = load_file(source)
    for name in SHAPES:
        assert at_stop[f"g/{name}"].tobytes() == given[f"g@{BAD}/{name}"].tobytes()
    # The steps after it as well, and none of them twice.
    later = {key.split("/")[0] for key in at_stop if key.startswith("g@")}
    assert later == {f"g@{step}" for step in range(BAD + 1, STEPS + 1)}
    left = STEPS - BAD + 1
    assert call("run", stopped, "--steps", left, "--out", after)[0] == 1
    assert run(call, source, "--out", whole)[0] == 1
    for key, value in load_file(whole).items():
        if key[0] in "wmv":
            assert load_file(after)[key].tobytes() == value.tobytes()


@pytest.mark.parametrize("policy", ["stats", "grads:1", "flight:2", "all"])
def test_a_recording_ends_in_order_and_holds_the_finished_steps(
    call: Call, source: Path, tmp_path: Path, policy: str
) -> None:
    path = tmp_path / "run.session"
    words = ("--save", path, "--capture", policy)
    assert run(call, source, "--break", "nonfinite > 0", *words)[0] == 1
    with Session.open(path) as session:
        assert session.verify() == []
        assert session.state == "complete"
        assert session.steps == range(1, BAD)
        assert str(session.ended_because).startswith("Stopped in step 4 before reduce_norm_sq")
        if policy != "stats":
            assert {BAD - 2, BAD - 1} <= set(session.captures("gradients"))
    if policy == "stats":
        return
    assert call("replay", path, "--verify")[0] == 0
    assert run(call, source, *words, "--resume")[0] == 1
    with Session.open(path) as session:
        assert session.steps == range(1, STEPS + 1)
        # What the stop was for is still there.
        assert {BAD - 2, BAD - 1} <= set(session.captures("gradients"))
        assert session.verify() == []
    if policy != "flight:2":
        code, out, _ = call("replay", path, "--verify", "--json")
        assert code == 0
        assert json.loads(out)["bit_exact"]


def test_a_replay_stops_on_recorded_gradients(call: Call, source: Path, tmp_path: Path) -> None:
    path, again = tmp_path / "run.session", tmp_path / "again.session"
    assert run(call, source, "--save", path, "--capture", "all")[0] == 1
    report = document(call("replay", path, "--break", "nonfinite>0", "--json"), 1)
    stopped = report["stopped"]
    assert (stopped["step"], stopped["dispatch"], stopped["kernel"]) == (BAD, 0, "reduce_norm_sq")
    assert (stopped["param"], stopped["index"], stopped["value"]) == ("head", [2, 1], 2.0)
    assert report["compared"]["steps"] == BAD - 1
    assert report["bit_exact"]
    report = document(call("replay", path, "--from", 6, "--break", "nonfinite>0", "--json"), 0)
    assert report["stopped"] is None
    # Judged by what it runs with now.
    report = document(call("replay", path, "--lr", 0.5, "--break", "lr > 0.1", "--json"), 1)
    assert (report["stopped"]["value"], report["stopped"]["step"]) == (0.5, 1)
    # Nothing is said to be as recorded where nothing was run.
    code, out, _ = call("replay", path, "--break", "step == 1")
    assert (code, "as recorded" in out) == (1, False)
    assert "No step ran to its end, so nothing was compared" in out
    words = ("--beta1", 0.5, "--save", again, "--break", "finding:nonfinite-gradient")
    code, out, _ = call("replay", path, *words)
    assert code == 1
    assert "Stopped in step 4" in out.rstrip().splitlines()[-1]
    with Session.open(again) as session:
        assert session.verify() == []
        assert session.state == "complete"
        assert session.steps == range(1, BAD)
    first = document(run(call, source, "--break", "update_ratio@h.* > 0.001", "--json"), 1)["stopped"]
    report = document(call("replay", path, "--break", "update_ratio@h.* > 0.001", "--json"), 1)
    assert report["stopped"] == first


def test_a_replay_with_8_bit_state_stops_on_its_errors(call: Call, source: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    assert run(call, source, "--save", path, "--capture", "all")[0] == 1
    words = ("--kernel", "8bit", "--small-state", "8bit", "--break", "v_error > 0", "--json")
    report = document(call("replay", path, *words), 1)
    assert (report["stopped"]["step"], report["stopped"]["kernel"]) == (1, "adamw_8bit_update")
    code, _, err = call("replay", path, "--break", "v_error > 0")
    assert (code, "give --kernel 8bit" in err) == (2, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonfinit > 0", "did you mean nonfinite"),
        ("nonfinite", "write METRIC OP NUMBER"),
        ("w_norm@*.atn.* > 0", "did you mean h.0.attn.w"),
        ("m_error > 0", "give --kernel 8bit"),
        ("lr > abc", "is no number"),
        ("finding:spike", "There is no rule 'spike'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(
    call: Call, source: Path, tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "run.session"
    for words in (("run", source, "--steps", 2, "--save", path, "--json"), ("window", source)):
        code, out, err = call(*words, "--break", text)
        assert (code, out) == (2, ""), err
        lines = [line for line in err.strip().splitlines() if "XDG" not in line]
        assert len(lines) == 1
        assert told in lines[0]
    assert not path.exists()


@pytest.mark.parametrize(
    ("optimizer", "condition", "lane"),
    [("sgd", "m_norm > 0", "m"), ("sgd", "below_eps > 0", "v"), ("lion", "v_max@* >= 0", "v"),
     ("momentum", "below_eps_share > 0.5", "v")],
)  # fmt: skip
def test_a_moment_that_the_optimizer_does_not_keep_is_refused(
    call: Call, source: Path, optimizer: str, condition: str, lane: str
) -> None:
    code, out, err = run(call, source, "--optimizer", optimizer, "--break", condition)
    assert (code, out) == (2, "")
    assert f"is of {lane}, which {optimizer} does not keep" in err
    # What it does keep stops it.
    kept = "m_norm >= 0" if optimizer != "sgd" else "w_norm > 0"
    assert run(call, source, "--optimizer", optimizer, "--break", kept)[0] == 1


@pytest.mark.parametrize("level", ["light", "full"])
def test_where_nan_came_from_is_named_whatever_is_counted(call: Call, tmp_path: Path, level: str) -> None:
    """All of h.0.attn.w and of h.0.norm is NaN in step 4 and 2 of 15 of head: live, recorded and replayed alike."""
    tensors: dict[str, Any] = {f"w/{n}": 10 * v for n, v in values(0).items()}
    for step in range(1, STEPS + 1):
        given = values(step)
        if step == BAD:
            given["h.0.attn.w"][:], given["h.0.norm"][:], given["head"][2, 1:] = math.nan, math.nan, math.nan
        tensors |= {f"g@{step}/{n}": v for n, v in given.items()}
    given_file = write(tmp_path / "spread.safetensors", tensors, lr="0.01")
    saved = tmp_path / "run.session"
    words = ("--stats", level, "--save", saved, "--capture", "all", "--json")
    found = document(run(call, given_file, *words), 1)["findings"]
    (bad,) = [f for f in found if f["rule"] == "nonfinite-gradient"]
    assert (bad["step"], bad["param"], bad["index"]) == (BAD, "head", 2 * 3 + 1)
    assert bad["message"].endswith("The same in h.0.attn.w, h.0.norm.")
    assert (bad["evidence"]["nan"], bad["evidence"]["in_param"], bad["evidence"]["params"]) == (146, 2, 3)
    assert bad["evidence"]["param_share"] == pytest.approx(2 / 15)
    for again in (("diagnose", saved, "--json"), ("replay", saved, "--json")):
        others = document(call(*again), 1 if again[0] == "diagnose" else 0)["findings"]
        assert [f for f in others if f["rule"] == "nonfinite-gradient"] == [bad]
