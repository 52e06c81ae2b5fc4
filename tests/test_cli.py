"""The command line: one JSON document on standard output, exit codes, and one sentence for every bad input."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_helpers import normal_state
from safetensors.numpy import load_file, save_file
from state_files import write

from inspector import __version__
from inspector.cli import with_default_command
from inspector.gpu import device
from inspector.hyper import Hyper
from inspector.layout import Param, make_layout
from inspector.optimizers.adamw.oracle import oracle_step
from inspector.runtime.engine import Engine
from inspector.session.tensorfile import TensorFile

pytestmark = pytest.mark.gpu

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Three gradients, one matrix and one vector, in the middle of a run."""
    return write(
        tmp_path / "state.safetensors",
        {
            "w/h.weight": [[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]],
            "g/h.weight": [[3.0, 0.0, 0.0], [0.0, 0.0, 4.0]],
            "m/h.weight": [[0.1, 0.1, 0.1], [0.0, 0.0, 0.0]],
            "v/h.weight": [[0.01, 0.01, 0.01], [0.0, 0.0, 0.0]],
            "w/norm": [1.0, 1.0],
            "g/norm": [0.0, 12.0],
            "g@12/norm": [1.0, 1.0],
            "g@13/norm": [2.0, 2.0],
        },
        t="10",
        lr="0.01",
        weight_decay="0.1",
    )


def document(result: tuple[int, str, str], code: int = 0) -> Any:
    """The one JSON document of a command's output."""
    got, out, err = result
    assert got == code, err
    assert err == ""
    assert out.endswith("\n")
    assert out.count("\n") == 1

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(out, parse_constant=refuse)


# --- doctor, layout


def test_doctor_names_adapters_limits_and_what_is_missing(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = document(call("doctor", "--json"))
    assert set(report) == {"adapters", "selected", "timestamp_period_ns", "copy_gbps", "problems"}
    chosen = next(a for a in report["adapters"] if a["name"] == report["selected"]["name"])
    assert chosen["usable"] is True
    assert chosen["limits"]["max_storage_buffer_binding_size"] >= 128 << 20
    assert report["copy_gbps"] > 0
    assert report["timestamp_period_ns"] > 0
    monkeypatch.setattr("inspector.cli.doctor.copy_gbps", lambda gpu: 12.34)
    code, out, _ = call("doctor")
    assert code == 0
    assert chosen["name"] in out
    assert "12.3 GB/s" in out


def test_doctor_without_any_adapter_says_what_to_install_and_exits_with_2(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "list_adapters", list)
    monkeypatch.setattr("inspector.cli.doctor.list_adapters", list)
    report = document(call("doctor", "--json"), code=2)
    assert report["adapters"] == []
    assert report["selected"] is None
    assert len(report["problems"]) == 1
    assert "Vulkan driver" in report["problems"][0]


def test_layout_gives_bytes_for_every_param_page_and_binding(call: Call, state: Path) -> None:
    report = document(call("layout", state, "--json"))
    assert [(p["name"], p["shape"], p["block"], p["offset"], p["nbytes"]) for p in report["params"]] == [
        ("h.weight", [2, 3], "wd", 0, 24),
        ("norm", [2], "no_wd", 256, 8),
    ]
    assert (report["elements"], report["padded_elements"]) == (8, 128)
    assert [d["kernel"] for d in report["dispatches"]] == [
        "reduce_norm_sq", "finalize_grad_stats", "adamw_update", "adamw_update",
    ]  # fmt: skip
    w = report["dispatches"][-1]["bindings"][0]
    assert (w["slot"], w["name"], w["buffer"], w["offset"], w["size"]) == (0, "w", "w", 256, 8)
    assert call("layout", state)[0] == 0


def test_layout_of_the_reference_model_against_small_limits(call: Call) -> None:
    report = document(call("layout", "gpt-116m", "--json", "--max-buffer", 1 << 28, "--align", 512))
    assert report["elements"] == 116_017_920
    assert len(report["params"]) == 74
    assert len(report["pages"]) == 2
    assert all(p["offset"] % 512 == 0 for p in report["params"])
    sizes = [b["size"] for d in report["dispatches"] for b in d["bindings"]]
    assert max(sizes) <= 128 << 20


def test_layout_needs_no_adapter(call: Call, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "list_adapters", lambda: pytest.fail("looked for adapters"))
    document(call("layout", state, "--json"))


# --- run


def test_run_prints_every_step_as_the_oracle_has_it(call: Call, state: Path) -> None:
    report = document(call("run", state, "--steps", 3, "--json"))
    assert report["variant"]["reduce"] == "two-pass"
    assert [s["step"] for s in report["steps"]] == [11, 12, 13]
    first = report["steps"][0]
    assert first["grad_norm"] == 13.0
    assert first["clip_scale"] == pytest.approx(1 / 13, rel=1e-6)
    assert (first["loss"], first["lr"]) == (None, 0.01)
    assert first["nonfinite"] == {"nan": 0, "posinf": 0, "neginf": 0}
    assert [(k["name"], k["block"]) for k in first["kernels"]] == [
        ("reduce_norm_sq", None), ("finalize_grad_stats", None), ("adamw_update", "wd"), ("adamw_update", "no_wd"),
    ]  # fmt: skip
    assert {k["clock"] for k in first["kernels"]} <= {"gpu", "cpu"}
    assert {type(k["cold"]) for k in first["kernels"]} == {bool}
    assert report["steps"][1]["grad_norm"] == pytest.approx(math.sqrt(2), rel=1e-6)
    assert report["findings"] == []


def test_steps_at_low_clocks_are_marked(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def some_cold(engine: Engine) -> None:
        step_iteration(engine)
        assert engine.record is not None
        cold = (engine.record.step == 2, *(False for _ in engine.record.kernels[1:]))
        kernels = tuple(replace(k, cold=c) for k, c in zip(engine.record.kernels, cold, strict=True))
        engine.log.record = replace(engine.log.record, kernels=kernels)

    step_iteration = Engine.step_iteration
    monkeypatch.setattr(Engine, "step_iteration", some_cold)
    words = ("run", "synthetic:100", "--steps", 3)
    found = [[k["cold"] for k in s["kernels"]] for s in document(call(*words, "--json"))["steps"]]
    assert [any(cold) for cold in found] == [False, True, False]
    assert not all(found[1])
    out = call(*words)[1].splitlines()
    rows = [line.rstrip() for line in out if line.split() and line.split()[0] in ("1", "2", "3")]
    assert [row.endswith(" cold") for row in rows] == [False, True, False]
    ends = [len(row.removesuffix("cold").rstrip()) for row in rows]
    assert len(set(ends)) == 1, "figures end in one column"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--codec", "sqrt"], "--codec sqrt"),
        (["--small-state", "8bit"], "--small-state 8bit"),
        (["--codec", "dynamic", "--small-state", "8bit"], "--codec dynamic and --small-state 8bit"),
        (["--kernel", "8bit", "--codec", "sqrt"], ""),
        ([], ""),
    ],
)
def test_an_option_that_this_kernel_has_no_use_for_is_noted(
    call: Call, words: Sequence[str], said: str
) -> None:
    code, out, err = call("run", "synthetic:100", "--steps", 1, "--json", *words)
    assert code == 0
    assert json.loads(out)
    verb = "do" if " and " in said else "does"
    assert err == (f"inspector: {said} {verb} nothing without --kernel 8bit.\n" if said else "")


@pytest.mark.parametrize("numerics", ["published", "precise"])
def test_run_writes_the_state_after_the_step_with_norm_and_scale(
    call: Call, state: Path, tmp_path: Path, numerics: str
) -> None:
    after = tmp_path / "after.safetensors"
    report = document(call("run", state, "--steps", 1, "--out", after, "--json", "--numerics", numerics))
    tensors = load_file(after)
    keys = {f"{lane}/{name}" for lane in "wgmv" for name in ("h.weight", "norm")}
    assert set(tensors) == keys | {"g@12/norm", "g@13/norm"}
    metadata = TensorFile(after).metadata
    assert metadata["t"] == "11"
    assert metadata["lr"] == "0.01"
    assert metadata["gradNorm"] == "13.0"
    assert np.float32(metadata["clipScale"]) == np.float32(report["steps"][0]["clip_scale"])
    assert metadata["clipScale"] == str(np.float32(1 / 13))
    before = load_file(state)
    layout = make_layout([Param("h.weight", (2, 3)), Param("norm", (2,))])
    start = tuple(
        {n: before.get(f"{lane}/{n}", np.zeros(layout[n].numel)).ravel() for n in ("h.weight", "norm")}
        for lane in "wmv"
    )
    expected = oracle_step(
        layout, start, {n: before[f"g/{n}"].ravel() for n in ("h.weight", "norm")},
        hyper=Hyper(lr=0.01, weight_decay=0.1), step=11, numerics=numerics,
    )  # fmt: skip
    for lane, values in (("w", expected.w), ("m", expected.m), ("v", expected.v)):
        for name, value in values.items():
            assert tensors[f"{lane}/{name}"].shape == before[f"w/{name}"].shape
            # float32 roundings of w, and of each line before it.
            np.testing.assert_allclose(tensors[f"{lane}/{name}"].ravel(), value, rtol=1e-6, atol=1e-9)
    assert not any(tensors[f"g/{name}"].any() for name in ("h.weight", "norm"))


def test_no_step_writes_what_was_read(call: Call, state: Path, tmp_path: Path) -> None:
    after = tmp_path / "after.safetensors"
    document(call("run", state, "--steps", 0, "--out", after, "--json"))
    before, tensors = load_file(state), load_file(after)
    assert TensorFile(after).metadata["t"] == "10"
    for key, value in before.items():
        assert np.array_equal(tensors[key], value), key


def test_steps_in_two_runs_give_the_bits_of_one(call: Call, tmp_path: Path) -> None:
    params = [Param("a", (30, 20)), Param("b", (7,)), Param("scale", ())]
    w, _, _, _ = normal_state(params)
    tensors = {f"w/{p.name}": w[p.name].reshape(p.shape) for p in params}
    for step in (1, 2):
        g = normal_state(params, seed=step)[1]
        tensors |= {f"g@{step}/{p.name}": g[p.name].reshape(p.shape) for p in params}
    start, half, rest, end, straight = (tmp_path / f"{n}.safetensors" for n in "abcde")
    save_file(tensors, start)
    assert call("run", start, "--steps", 1, "--out", half)[0] == 0
    again = {k: v for k, v in load_file(half).items() if not k.startswith("g/")}
    again |= {k: v for k, v in tensors.items() if k.startswith("g@2/")}
    save_file(again, rest, dict(TensorFile(half).metadata))
    assert call("run", rest, "--steps", 1, "--out", end)[0] == 0
    assert call("run", start, "--steps", 2, "--out", straight)[0] == 0
    one, two = load_file(straight), load_file(end)
    assert set(one) == set(two)
    assert {k: v.tobytes() for k, v in one.items()} == {k: v.tobytes() for k, v in two.items()}
    assert one["w/scale"].shape == ()


def test_run_exits_with_1_where_a_finding_is_an_error_and_prints_nan_as_text(
    call: Call, tmp_path: Path
) -> None:
    path = write(
        tmp_path / "s", {"w/a": [1.0, 1.0, 1.0], "g/a": [math.nan, math.inf, 2.0]}, max_grad_norm="nan"
    )
    report = document(call("run", path, "--steps", 1, "--json"), code=1)
    assert [f["rule"] for f in report["findings"]] == ["nonfinite-gradient", "invalid-max-grad-norm"]
    found = report["findings"][0]
    assert (found["param"], found["index"], found["step"], found["severity"]) == ("a", 0, 1, "error")
    assert report["findings"][1]["evidence"]["max_grad_norm"] == "NaN"
    code, out, err = call("run", path, "--steps", 1)
    assert (code, err) == (1, "")
    assert "nonfinite-gradient" in out


def test_no_steps_are_steps_too(call: Call, state: Path, tmp_path: Path) -> None:
    out = tmp_path / "same.safetensors"
    report = document(call("run", state, "--steps", 0, "--json", "--out", out))
    assert report["steps"] == []
    assert np.array_equal(load_file(out)["w/h.weight"], load_file(state)["w/h.weight"])
    assert TensorFile(out).metadata["t"] == "10"
    assert "gradNorm" not in TensorFile(out).metadata
    assert call("run", state, "--steps", 0)[0] == 0


def test_settings_given_replace_those_of_the_file(call: Call, state: Path, tmp_path: Path) -> None:
    out = tmp_path / "after.safetensors"
    report = document(
        call("run", state, "--steps", 1, "--json", "--lr", 0.5, "--max-grad-norm", "inf", "--schedule", "warmup:22",
             "--beta1", 0.5, "--beta2", 0.75, "--eps", 1e-3, "--weight-decay", 0, "--out", out)
    )  # fmt: skip
    assert report["steps"][0]["lr"] == 0.25
    assert report["steps"][0]["clip_scale"] == 1.0
    metadata = TensorFile(out).metadata
    assert {k: metadata[k] for k in ("lr", "beta1", "beta2", "eps", "weight_decay", "max_grad_norm")} == {
        "lr": "0.5", "beta1": "0.5", "beta2": "0.75", "eps": "0.001", "weight_decay": "0.0",
        "max_grad_norm": "Infinity",
    }  # fmt: skip


@pytest.mark.parametrize(
    "metadata",
    [
        {"lr": "-1"}, {"lr": "NaN"}, {"lr": "1e39"}, {"beta1": "1"}, {"beta2": "2"}, {"beta2": "-3"}, {"eps": "0"},
        {"eps": "-1"}, {"weight_decay": "Infinity"}, {"max_grad_norm": "NaN"}, {"max_grad_norm": "-1"},
        {"max_grad_norm": "0"}, {"t": "2147483646"},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("numerics", ["published", "precise"])
def test_odd_settings_inside_a_file_run_as_a_kernel_would_run_them(
    call: Call, tmp_path: Path, metadata: dict[str, str], numerics: str
) -> None:
    path = write(tmp_path / "s", {"w/a": [[1.0, 2.0]], "g/a": [[3.0, 4.0]], "w/b": [1.0]}, **metadata)
    code, out, err = call("run", path, "--steps", 1, "--json", "--numerics", numerics)
    assert err == ""
    report = json.loads(out)
    assert report["steps"][0]["grad_norm"] == 5.0
    assert code == int(metadata.get("max_grad_norm", "1") in ("NaN", "-1", "0"))
    assert call("explain", path, "--param", "a", "--index", 0, "--numerics", numerics)[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("run", "x" * 300, "--steps", 1),
        ("layout", "x" * 300),
        ("run", "synthetic:20", "--steps", 1, "--save", "x" * 300),
        ("run", "synthetic:20", "--steps", 1, "--save", "x" * 300, "--resume"),
    ],
)
def test_a_name_too_long_for_any_file_is_one_sentence(call: Call, words: tuple[object, ...]) -> None:
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert "cannot be used: File name too long." in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("source", ["synthetic:1", "synthetic:5000", "synthetic:1_000", "charlm"])
def test_sources_without_a_file_run(call: Call, source: str) -> None:
    report = document(call("run", source, "--steps", 2, "--seed", 3, "--json"))
    assert len(report["steps"]) == 2
    assert all(s["grad_norm"] > 0 for s in report["steps"])
    again = document(call("run", source, "--steps", 2, "--seed", 3, "--json"))
    assert [s["grad_norm"] for s in again["steps"]] == [s["grad_norm"] for s in report["steps"]]
    other = document(call("run", source, "--steps", 2, "--seed", 4, "--json"))
    assert [s["grad_norm"] for s in other["steps"]] != [s["grad_norm"] for s in report["steps"]]


@pytest.mark.parametrize(
    "options",
    [["--reduce", "atomic"], ["--dispatch", "per-tensor"], ["--numerics", "precise", "--reduce", "atomic"]],
    ids=" ".join,
)
def test_every_form_of_the_step_runs(call: Call, state: Path, options: list[str]) -> None:
    report = document(call("run", state, "--steps", 1, "--json", *options))
    assert report["steps"][0]["grad_norm"] == 13.0
    assert set(options[1::2]) <= set(report["variant"].values())


def test_bench_times_every_kernel(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    # doctor measures it in another test; that takes seconds.
    monkeypatch.setattr("inspector.gpu.bench.copy_gbps", lambda gpu, **_: 10.0)
    report = document(call("bench", "--elements", 50_000, "--samples", 3, "--seconds", 1, "--json"))
    assert report["elements"] == 50_000
    names = [k["name"] for k in report["kernels"]]
    assert "adamw_update wd" in names
    update = report["kernels"][names.index("adamw_update wd")]
    assert update["bytes_per_element"] == pytest.approx(32, rel=0.01)
    assert update["samples"] >= 1
    assert 0 < update["min_ms"] <= update["median_ms"] <= update["p95_ms"]
    assert report["copy_gbps"] == 10.0
    assert update["gbps"] == pytest.approx(32 * update["elements"] / update["median_ms"] / 1e6, rel=1e-3)
    assert update["share"] == pytest.approx(update["gbps"] / 10)
    code, out, _ = call("bench", "--elements", 5000, "--samples", 1, "--grid", "published")
    assert code == 0
    assert "adamw_update" in out


# --- what cannot be meant


BAD: list[Sequence[str]] = [
    ["run", "STATE"],
    ["run", "STATE", "--steps", "-1"],
    ["run", "STATE", "--steps", "many"],
    ["run", "STATE", "--steps", "1.5"],
    ["run", "STATE", "--steps", "4"],
    ["run", "--steps", "1"],
    ["run", "nowhere", "--steps", "1"],
    ["run", "FOLDER", "--steps", "1"],
    ["run", "TEXT", "--steps", "1"],
    ["run", "EMPTY", "--steps", "1"],
    ["run", "PICKLE", "--steps", "1"],
    ["run", "DOUBLE", "--steps", "1"],
    ["run", "NOTHING", "--steps", "1"],
    ["run", "synthetic:", "--steps", "1"],
    ["run", "synthetic:0", "--steps", "1"],
    ["run", "synthetic:-5", "--steps", "1"],
    ["run", "synthetic:x", "--steps", "1"],
    ["run", "synthetic:99999999999", "--steps", "1"],
    ["run", "charlm:nonsense", "--steps", "1"],
    ["run", "STATE", "--steps", "1", "--lr", "-1"],
    ["run", "STATE", "--steps", "1", "--lr", "nan"],
    ["run", "STATE", "--steps", "1", "--lr", "1e99"],
    ["run", "STATE", "--steps", "1", "--lr", "fast"],
    ["run", "STATE", "--steps", "1", "--beta1", "1"],
    ["run", "STATE", "--steps", "1", "--beta2", "-0.1"],
    ["run", "STATE", "--steps", "1", "--eps", "-1e-8"],
    ["run", "STATE", "--steps", "1", "--weight-decay", "inf"],
    ["run", "STATE", "--steps", "1", "--max-grad-norm", "-1"],
    ["run", "STATE", "--steps", "1", "--max-grad-norm", "nan"],
    ["run", "STATE", "--steps", "1", "--seed", "-1"],
    ["run", "STATE", "--steps", "1", "--schedule", "linear"],
    ["run", "STATE", "--steps", "1", "--schedule", "cosine:5:warmup=9"],
    ["run", "STATE", "--steps", "1", "--numerics", "exact"],
    ["run", "STATE", "--steps", "1", "--reduce", "three-pass"],
    ["run", "STATE", "--steps", "1", "--dispatch", "triple"],
    ["run", "STATE", "--steps", "1", "--kernel", "f64"],
    ["run", "STATE", "--steps", "1", "--optimizer", "nadam"],
    ["run", "STATE", "--steps", "1", "--adapter", "no such adapter"],
    ["run", "STATE", "--steps", "1", "--out", "FOLDER"],
    ["run", "STATE", "--steps", "1", "--out", "FOLDER/none/after.safetensors"],
    ["run", "STATE", "--steps", "1", "--wrong-option"],
    ["run", "STATE", "STATE", "--steps", "1"],
    ["layout"],
    ["layout", "STATE", "--align", "100"],
    ["layout", "STATE", "--align", "0"],
    ["layout", "STATE", "--align", "-256"],
    ["layout", "STATE", "--align", "4294967296"],
    ["layout", "STATE", "--max-binding", "0"],
    ["layout", "STATE", "--max-binding", "100"],
    ["layout", "STATE", "--max-buffer", "-1"],
    ["layout", "STATE", "--max-buffer", "100"],
    ["layout", "gpt-116m", "--max-binding", "256"],
    ["explain", "STATE", "--index", "0"],
    ["explain", "STATE", "--param", "norm"],
    ["explain", "STATE", "--param", "nothing", "--index", "0"],
    ["explain", "STATE", "--param", "h", "--index", "0"],
    ["explain", "STATE", "--param", "norm", "--index", "2"],
    ["explain", "STATE", "--param", "norm", "--index", "-1"],
    ["explain", "STATE", "--param", "norm", "--index", "x"],
    ["explain", "STATE", "--param", "h.weight", "--index", "0,0,0"],
    ["explain", "STATE", "--param", "h.weight", "--index", "0,3"],
    ["explain", "STATE", "--param", "norm", "--index", "0", "--step", "10"],
    ["explain", "STATE", "--param", "norm", "--index", "0", "--step", "14"],
    ["explain", "STATE", "--param", "norm", "--index", "0", "--step", "0"],
    ["bench", "--preset", "gpt-4"],
    ["bench", "--preset", "gpt-116m", "--elements", "5"],
    ["bench", "--elements", "0"],
    ["bench", "--elements", "-5"],
    ["bench", "--samples", "0", "--elements", "100"],
    ["bench", "--seconds", "-1", "--elements", "100"],
    ["doctor", "--adapter"],
    ["screenshot", "STATE"],
    ["screenshot", "STATE", "--out", "FOLDER/picture.jpg"],
    ["screenshot", "STATE", "--out", "FOLDER/p.png", "--size", "huge"],
    ["screenshot", "STATE", "--out", "FOLDER/p.png", "--size", "1x1"],
    ["screenshot", "STATE", "--out", "FOLDER/p.png", "--theme", "pink"],
    ["screenshot", "STATE", "--out", "FOLDER/p.png", "--steps", "-1"],
    ["screenshot", "nowhere", "--out", "FOLDER/p.png"],
    ["nowhere"],
    ["--wrong-option"],
    ["window", "STATE", "--undo-mb", "-1"],
    ["window", "STATE", "--lr", "-1"],
]


@pytest.mark.parametrize("words", BAD, ids=" ".join)
def test_bad_input_is_told_in_one_sentence_and_exits_with_2(
    call: Call, state: Path, tmp_path: Path, words: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing of these may get as far as a window.
    monkeypatch.delenv("DISPLAY", raising=False)
    folder = tmp_path / "folder"
    folder.mkdir()
    files = {"STATE": state, "FOLDER": folder}
    contents = {"TEXT": b"hello world, no tensors", "EMPTY": b"", "PICKLE": pickle.dumps([1.0] * 9)}
    for name, content in contents.items():
        files[name] = tmp_path / name
        files[name].write_bytes(content)
    files["DOUBLE"] = write(tmp_path / "double", {"w/a": np.ones(1), "g/a": np.ones(1)})
    files["NOTHING"] = write(tmp_path / "nothing", {"w/a": [], "g/a": []})
    filled = []
    for word in words:
        first, _, rest = word.partition("/")
        filled.append(str(files[first]) + ("/" + rest if rest else "") if first in files else word)
    code, out, err = call(*filled)
    assert code == 2, (out, err)
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("inspector: ")
    assert lines[0].endswith((".", "?"))
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "name", ["a[/b]", "[red]x", ":smile:", "a\nb", "x" * 300, "ünï ✓", "[link=file:///x]y[/link]"]
)
def test_a_name_of_any_characters_is_shown_as_it_is(call: Call, tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "s", {f"w/{name}": [1.0, 2.0], f"g/{name}": [3.0, math.nan]})
    for words in (
        ["layout", path, "--dispatch", "per-tensor"],
        ["run", path, "--steps", 1],
        ["explain", path, "--param", name, "--index", 0],
    ):
        code, out, err = call(*words)
        assert code == int(words[0] == "run"), err
        # Tables fold what is long and break lines where the name does.
        for part in name.split("\n"):
            assert part[:20] in out
    assert document(call("layout", path, "--json"))["params"][0]["name"] == name
    code, out, err = call("explain", path, "--param", name[:-1], "--index", 0)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_name_cannot_steer_the_terminal(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "steering.safetensors"
    save_file({"\x1b[31mred\x07\u202e": np.ones(4, np.float32)}, file)
    code, out, err = call("layout", file)
    assert code == 0, err
    assert "\\x1b[31mred\\x07\\u202e" in out
    assert not any(sign in out for sign in "\x1b\x07\u202e")


def test_a_folder_with_brackets_in_its_name_is_shown_as_it_is(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "run[best]"
    folder.mkdir()
    path = write(folder / "s", {"w/a": [1.0], "g/a": [1.0]})
    code, out, _ = call("run", path, "--steps", 1, "--out", folder / "after")
    assert code == 0
    assert out.replace("\n", "").count("run[best]") == 2


def test_a_fault_within_a_run_exits_with_1(call: Call, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inspector.errors import DeviceLostError
    from inspector.gpu.stepper import GpuStepper

    def lose(self: GpuStepper, hyper: Hyper) -> None:
        raise DeviceLostError("The GPU device was lost while running on the device.")

    monkeypatch.setattr(GpuStepper, "run_to_end", lose)
    code, out, err = call("run", state, "--steps", 1, "--json")
    assert (code, out) == (1, "")
    assert err == "inspector: The GPU device was lost while running on the device.\n"


# --- the rest


def test_the_version_and_help_are_printed(call: Call) -> None:
    assert call("--version") == (0, f"{__version__}\n", "")
    code, out, err = call("--help")
    assert (code, err) == (0, "")
    for command in ("doctor", "layout", "run", "explain", "bench", "screenshot"):
        assert command in out
        assert call(command, "--help")[0] == 0


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ([], ["window"]),
        (["charlm"], ["window", "charlm"]),
        (["--lr", "1"], ["window", "--lr", "1"]),
        (["run", "x"], ["run", "x"]),
        (["--help"], ["--help"]),
    ],
)
def test_without_a_command_the_window_opens(words: list[str], completed: list[str]) -> None:
    assert with_default_command(words) == completed


def test_the_module_runs_as_a_program(state: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "inspector", "layout", str(state), "--json"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["elements"] == 8
    done = subprocess.run(
        [sys.executable, "-m", "inspector", "run", "nowhere", "--steps", "1"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    "words", [["--steps", "9"], ["--dispatches", "60"], ["--steps", "1", "--dispatches", "99"]]
)
def test_a_picture_past_the_end_of_the_source_is_refused_in_a_sentence(
    state: Path, tmp_path: Path, words: list[str]
) -> None:
    out = tmp_path / "x.png"
    done = subprocess.run(
        [sys.executable, "-m", "inspector", "screenshot", str(state), "--out", str(out), *words],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "holds no gradients of step" in done.stderr
    assert not out.exists()


def test_a_model_larger_than_this_computer_is_refused_before_it_is_made(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inspector.gpu.device.available_memory", lambda: 64 << 20)
    code, out, err = call("run", "synthetic:50000000", "--steps", 1, "--adapter", "CPU")
    assert (code, out) == (1, "")
    assert "Not enough memory" in err
    assert err.count("\n") == 1
