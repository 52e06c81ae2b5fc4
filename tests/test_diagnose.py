"""`inspector diagnose`, and that a run, its recording and its replay are found to have the same faults."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import own_wgsl
import pytest
from gpu_helpers import make_engine
from state_files import write

from inspector.gpu.device import Gpu
from inspector.layout import Param

pytestmark = pytest.mark.gpu

Call = Callable[..., tuple[int, str, str]]
SHAPES = {"h.0.attn.w": (16, 32), "h.0.norm": (16,), "tiny": (1,), "head": (9, 3)}
STEPS = 60


def gradients(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([3, step])
    return {n: (1e-2 * rng.standard_normal(s)).astype(np.float32) for n, s in SHAPES.items()}


def state(
    path: Path, plant: Callable[[int, dict[str, np.ndarray]], None], steps: int = STEPS, **settings: str
) -> Path:
    """Steps of normal gradients in which `plant` may change any."""
    rng = np.random.default_rng(1)
    tensors: dict[str, Any] = {
        f"w/{n}": (0.1 * rng.standard_normal(s)).astype(np.float32) for n, s in SHAPES.items()
    }
    for step in range(1, steps + 1):
        given = gradients(step)
        plant(step, given)
        tensors |= {f"g@{step}/{n}": v for n, v in given.items()}
    return write(path, tensors, **settings)


def healthy(step: int, g: dict[str, np.ndarray]) -> None:
    pass


def faulty(step: int, g: dict[str, np.ndarray]) -> None:
    """NaN in step 7 and from 21 on; no gradient for the norm from 10 on; head a hundred times as large in step 50."""
    if step == 7 or step >= 21:
        g["head"][2, 1] = math.nan
    if step >= 10:
        g["h.0.norm"][:] = 0
    if step == 50:
        g["head"] *= 300


def document(result: tuple[int, str, str], code: int) -> Any:
    assert result[0] == code, result[2]
    return json.loads(result[1])


def told(found: Any) -> list[tuple[str, int, str | None, int | None]]:
    return [(f["rule"], f["step"], f["param"], f["index"]) for f in found]


WANTED = [
    ("nonfinite-gradient", 7, "head", 7),
    ("nonfinite-gradient", 21, "head", 7),
    ("dead-gradient", 25, "h.0.norm", None),
    ("gradient-spike", 50, None, None),
    ("param-gradient-spike", 50, "head", None),
]


def test_the_document_holds_findings_as_agreed(call: Call, tmp_path: Path) -> None:
    report = document(call("diagnose", state(tmp_path / "s", faulty), "--json"), 1)
    named = [t for t in told(report["findings"]) if t[0] != "lagging-second-moment"]
    assert named == WANTED
    assert report["steps"] == {"first": 1, "last": 60, "count": 60}
    assert report["counts"] == {"error": 2, "warning": len(report["findings"]) - 2, "info": 0}
    first = report["findings"][0]
    assert set(first) >= {
        "rule", "severity", "step", "dispatch", "param", "index", "evidence", "message", "advice", "source",
    }  # fmt: skip
    assert "head[2, 1]" in first["message"]
    assert (first["index"], first["multi_index"]) == (7, [2, 1])
    assert [f["multi_index"] for f in report["findings"] if f["index"] is None] == [None] * 3
    # The heading names the element as its message does.
    assert "nonfinite-gradient, step 7, dispatch 0, head[2, 1]\n" in call("diagnose", tmp_path / "s")[1]
    ran = document(call("run", tmp_path / "s", "--steps", 8, "--json"), 1)
    assert [(f["index"], f["multi_index"]) for f in ran["findings"]] == [(7, [2, 1])]


def test_a_healthy_run_exits_with_0(call: Call, tmp_path: Path) -> None:
    report = document(call("diagnose", state(tmp_path / "s", healthy), "--steps", 40, "--json"), 0)
    assert report["findings"] == []
    assert report["steps"]["count"] == 40
    code, out, err = call("diagnose", state(tmp_path / "t", healthy), "--steps", 3)
    assert (code, err) == (0, "")
    assert out == f"{tmp_path / 't'}, steps 1 to 3: nothing found.\n"


def test_text_has_the_worst_first_and_each_rule_once(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("diagnose", state(tmp_path / "s", faulty))
    assert code == 1
    heads = [line.split(", ")[:2] for line in out.splitlines() if line.startswith(("Error", "Warning"))]
    assert heads[0] == ["Error", "nonfinite-gradient"]
    assert len(heads) == len({rule for _, rule in heads})
    assert "Again in step 21 (head)." in out


@pytest.mark.parametrize(
    "words",
    [
        ("--kernel", "f16"),
        pytest.param((), marks=pytest.mark.soak),
        pytest.param(("--dispatch", "single", "--reduce", "atomic"), marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_run_recording_and_replay_find_the_same(call: Call, tmp_path: Path, words: tuple[str, ...]) -> None:
    source, path = state(tmp_path / "s", faulty, max_grad_norm="0.1"), tmp_path / "r.session"
    live = document(
        call("run", source, "--steps", STEPS, "--save", path, "--capture", "all", *words, "--json"), 1
    )
    rows = document(call("diagnose", path, "--json"), 1)
    again = document(call("replay", path, "--json"), 0)
    assert len(live["findings"]) >= len(WANTED)
    assert rows["findings"] == live["findings"]
    assert again["findings"] == live["findings"]
    direct = document(call("diagnose", source, *words, "--json"), 1)
    assert direct["findings"] == live["findings"]


def test_a_part_of_a_recording_is_held_against_what_came_before(call: Call, tmp_path: Path) -> None:
    source, path = state(tmp_path / "s", faulty), tmp_path / "r.session"
    live = document(call("run", source, "--steps", STEPS, "--save", path, "--capture", "all", "--json"), 1)
    wanted = [f for f in live["findings"] if 30 <= f["step"] <= 55]
    assert {f["rule"] for f in wanted} >= {"param-gradient-spike"}
    part = document(call("diagnose", path, "--from", 30, "--to", 55, "--json"), 0)
    assert part["findings"] == wanted
    again = document(call("replay", path, "--from", 30, "--to", 55, "--json"), 0)
    assert again["findings"] == wanted


def test_of_a_recording_without_statistics_captured_gradients_are_looked_at(
    call: Call, tmp_path: Path
) -> None:
    def small(step: int, g: dict[str, np.ndarray]) -> None:
        if step == 3:
            for values in g.values():
                values[:] = 1e-25

    source = state(tmp_path / "s", small, steps=4)
    path, without = tmp_path / "r.session", tmp_path / "n.session"
    call("run", source, "--steps", 4, "--save", path, "--stats", "light", "--capture", "grads:1")
    call("run", source, "--steps", 4, "--save", without, "--stats", "light")
    for each in (path, without):
        found = document(call("diagnose", each, "--json"), 0)["findings"]
        assert told(found) == [("norm-underflow", 3, None, None)]
        assert found[0]["evidence"]["largest_gradient"] == pytest.approx(1e-25, rel=1e-6)
    code, out, _ = call("diagnose", path)
    assert code == 0
    assert "rules about single params and their updates need --stats full" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--from", 0), "--from 0 is not in"),
        (("--to", 61), "--to 61 is not in"),
        (("--from", 9, "--to", 8), "--to 8 lies before --from 9"),
        (("--steps", 4), "leave --steps out"),
        (("--lr", 0.1), "leave --lr out"),
        (("--kernel", "f16"), "leave --kernel out"),
    ],
)
def test_what_cannot_be_asked_of_a_recording(
    call: Call, tmp_path: Path, words: tuple[object, ...], says: str
) -> None:
    path = tmp_path / "r.session"
    call("run", state(tmp_path / "s", healthy, steps=9), "--steps", 9, "--save", path)
    code, out, err = call("diagnose", path, *words)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 1


def test_what_cannot_be_asked_of_a_run(call: Call, tmp_path: Path) -> None:
    source = state(tmp_path / "s", healthy, steps=3)
    for words, says in (
        (("--from", 2), "give --steps"),
        (("--steps", 4), "--steps 4 is too many"),
        (("--steps", -1), "--steps -1 is negative"),
    ):
        code, out, err = call("diagnose", source, *words)
        assert (code, out) == (2, "")
        assert says in err
    assert call("diagnose", tmp_path / "none")[0] == 2


# --- an engine that goes back, and breakpoints


def test_an_engine_that_goes_back_finds_the_same_again(gpu: Gpu) -> None:
    params = [Param(n, shape) for n, shape in SHAPES.items()]
    steps = []
    for step in range(1, STEPS + 1):
        given = gradients(step)
        faulty(step, given)
        steps.append({n: v.reshape(-1) for n, v in given.items()})
    w = {n: 10 * v.reshape(-1) for n, v in gradients(0).items()}
    engine = make_engine(gpu, params, steps, w=w, stats="full")
    for _ in range(STEPS):
        engine.step_iteration()
    before = engine.all_findings()
    assert {f.rule for f in before} >= {w[0] for w in WANTED}
    for to in (52, 30, 12, 5):
        assert engine.rewind_to(to)
        assert engine.all_findings() == tuple(f for f in before if f.step <= to)
        while engine.stepper.cursor.finished_steps < STEPS:
            # Dispatch by dispatch is the same as whole steps.
            engine.step_dispatch() if to == 52 else engine.step_iteration()
        assert engine.all_findings() == before


@pytest.mark.parametrize("rule", ["dead-gradient", "param-gradient-spike"])
def test_a_breakpoint_on_a_rule_of_params_counts_them(call: Call, tmp_path: Path, rule: str) -> None:
    source = state(tmp_path / "s", faulty)
    report = document(call("run", source, "--steps", STEPS, "--break", f"finding:{rule}", "--json"), 1)
    (wanted,) = [w for w in WANTED if w[0] == rule]
    assert (report["stopped"]["step"], report["stopped"]["param"]) == (wanted[1], wanted[2])
    assert report["stats"] == "full"


# --- own kernels with a slip in one line

SLIPS = {
    "decay forgotten": ("+ hp.w * w[i]", "", "w", "decay"),
    "epsilon inside the root": ("(sqrt(v_hat) + bias.z)", "sqrt(v_hat + bias.z)", "w", "denominator"),
    "m not corrected": ("m1 / max(1.0 - bias.x, 1e-12)", "m1", "w", "m̂"),
    "v not corrected": ("v1 / max(1.0 - bias.y, 1e-12)", "v1", "w", "v̂"),
    "no clipping": ("grad_stats[1] * select", "select", "m", "g'"),
    "m without 1 - beta": ("+ (1.0 - hp.y) * grad;", "+ grad;", "m", "m"),
    "v without the square": ("(grad * grad)", "grad", "v", "v"),
    "w not written": ("if (finite(update)) { w[i] = w[i] - update; }", "", "w", "w"),
    "sign of the update": ("w[i] - update", "w[i] + update", "w", "update"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_an_own_kernel_is_found_in_the_first_step(call: Call, tmp_path: Path, slip: str) -> None:
    old, new, lane, line = SLIPS[slip]
    assert old in own_wgsl.UPDATE
    folder = own_wgsl.write(tmp_path / "own", update=own_wgsl.UPDATE.replace(old, new))

    def plain(step: int, g: dict[str, np.ndarray]) -> None:
        for values in g.values():
            values *= 1e-3 if "epsilon" in slip else 1

    source = state(
        tmp_path / "s", plain, steps=4, max_grad_norm="0.01", eps="1e-6" if "epsilon" in slip else "1e-8",
        weight_decay="0.1",
    )  # fmt: skip
    report = document(call("diagnose", source, "--shaders", folder, "--json"), 1)
    (found, *_) = [f for f in report["findings"] if f["rule"] == "own-kernel-differs"]
    assert (found["step"], found["evidence"]["lane"], found["evidence"]["line"]) == (1, lane, line)
    assert found["dispatch"] is not None
    assert found["param"] in SHAPES


def test_own_kernels_that_are_right_say_nothing(call: Call, tmp_path: Path) -> None:
    folder = own_wgsl.write(tmp_path / "own", update=own_wgsl.UPDATE, norm=own_wgsl.NORM)
    report = document(call("diagnose", state(tmp_path / "s", healthy), "--shaders", folder, "--json"), 0)
    assert report["findings"] == []


def test_gradients_that_an_own_kernel_leaves(call: Call, tmp_path: Path) -> None:
    folder = own_wgsl.write(tmp_path / "own", update=own_wgsl.UPDATE.replace("g[i] = 0.0;", ""))
    report = document(
        call("diagnose", state(tmp_path / "s", healthy, steps=5), "--shaders", folder, "--json"), 1
    )
    (found,) = [f for f in report["findings"] if f["rule"] == "gradients-not-zeroed"]
    assert (found["step"], found["evidence"]["elements"]) == (1, 512 + 16 + 1 + 27)


def test_a_breakpoint_on_what_a_kernel_left_stops_in_the_next_step(call: Call, tmp_path: Path) -> None:
    folder = own_wgsl.write(tmp_path / "own", update=own_wgsl.UPDATE.replace("g[i] = 0.0;", ""))
    source = state(tmp_path / "s", healthy, steps=5)
    words = (
        "run",
        source,
        "--steps",
        5,
        "--shaders",
        folder,
        "--break",
        "finding:gradients-not-zeroed",
        "--json",
    )
    report = document(call(*words), 1)
    assert (report["stopped"]["step"], report["stopped"]["dispatch"]) == (2, 0)
    assert "gradients are not 0 after the step" in report["stopped"]["message"]


def test_an_own_kernel_that_writes_beyond_the_end(call: Call, tmp_path: Path) -> None:
    slip = own_wgsl.UPDATE.replace(
        "    v[i] = v1;", "    v[i] = v1;\n    if (i == size - 1u) { m[i + 1u] = 1.0; }"
    )
    folder = own_wgsl.write(tmp_path / "own", update=slip)
    report = document(
        call("diagnose", state(tmp_path / "s", healthy, steps=2), "--shaders", folder, "--json"), 1
    )
    assert "padding-not-zero" in {f["rule"] for f in report["findings"]}


def test_a_norm_kernel_that_leaves_a_part_out(call: Call, tmp_path: Path) -> None:
    slip = own_wgsl.NORM.replace("i < count &&", "i + 100u < count &&")
    assert slip != own_wgsl.NORM
    folder = own_wgsl.write(tmp_path / "own", norm=slip)
    report = document(
        call("diagnose", state(tmp_path / "s", healthy, steps=2), "--shaders", folder, "--json"), 1
    )
    found = report["findings"][0]
    assert (found["rule"], found["step"], found["dispatch"]) == ("norm-mismatch", 1, 0)


@pytest.mark.parametrize("optimizer", ["sgd", "lion"])
def test_an_own_norm_is_held_against_the_built_in_one_where_there_is_no_m_or_v(
    call: Call, tmp_path: Path, optimizer: str
) -> None:
    """Half a gradient norm is twice the clip scale: w moves twice as far by SGD, m by Lion."""
    slip = own_wgsl.NORM.replace("grads[i] * grads[i]", "0.25 * grads[i] * grads[i]")
    assert slip != own_wgsl.NORM
    source = state(tmp_path / "s", healthy, steps=2, max_grad_norm="0.01")
    words = ("--optimizer", optimizer, "--shaders")
    right = own_wgsl.write(tmp_path / "right", norm=own_wgsl.NORM)
    assert not rules_of(document(call("diagnose", source, *words, right, "--json"), 0))
    wrong = own_wgsl.write(tmp_path / "wrong", norm=slip)
    report = document(call("diagnose", source, *words, wrong, "--json"), 1)
    assert "norm-mismatch" in rules_of(report)


def rules_of(report: dict[str, Any]) -> set[str]:
    return {f["rule"] for f in report["findings"] if f["severity"] != "info"}


@pytest.mark.soak
def test_forms_of_the_step_are_healthy(call: Call, tmp_path: Path) -> None:
    source = state(tmp_path / "s", healthy)
    for words in (
        ("--unfused",), ("--numerics", "precise"), ("--optimizer", "adam-l2"), ("--kernel", "f16"),
        ("--kernel", "8bit", "--small-state", "8bit", "--codec", "dynamic"),
    ):  # fmt: skip
        report = document(call("diagnose", source, *words, "--json"), 0)
        assert report["findings"] == [], words
