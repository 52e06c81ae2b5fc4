"""`inspector import`, and checkpoints and dumps through the commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import own_wgsl
import pytest
from checkpoint_files import FOLDER, expected, needs_torch
from safetensors.numpy import load_file, save_file

from inspector.codecs import encode
from inspector.floats import ulp_distance
from inspector.session.reader import Session
from inspector.stores import MOMENTS

Call = Callable[..., tuple[int, str, str]]


def told(result: tuple[int, str, str], code: int = 0) -> tuple[Any, str]:
    """The document of a command, and what it said beside it."""
    got, out, err = result
    assert got == code, err
    return json.loads(out), err


def adamw64(w: Any, g: Any, m: Any, v: Any, t: int, decay: float, lr: float = 1e-3, b2: float = 0.999) -> Any:
    """Decoupled AdamW in float64, as Loshchilov and Hutter (2019) have it, without clipping."""
    w, g, m, v = (np.asarray(each, np.float64).ravel() for each in (w, g, m, v))
    m, v = 0.9 * m + 0.1 * g, b2 * v + (1 - b2) * g * g
    return w - lr * (m / (1 - 0.9**t) / (np.sqrt(v / (1 - b2**t)) + 1e-8) + decay * w)


# --- stepping


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["conv-adam", "adapters"])
def test_the_next_step_is_that_of_pytorch(call: Call, tmp_path: Path, name: str) -> None:
    """Adam with its decay in the gradient over convolutions; AdamW over adapters of a frozen model."""
    needs_torch()
    wanted = expected(name)
    out = tmp_path / "after.safetensors"
    document, _ = told(call("run", FOLDER / f"{name}.pt", "--steps", 1, "--out", out, "--json"))
    assert document["variant"]["numerics"] == "precise"
    after = load_file(out)
    for param, each in wanted["after"].items():
        assert ulp_distance(after[f"w/{param}"].ravel(), each.ravel()).max() <= 2, param
    frozen = wanted["w"].keys() - wanted["after"].keys()
    for param in frozen:
        assert after[f"w/{param}"].tobytes() == wanted["w"][param].tobytes()


@pytest.mark.gpu
def test_8_bit_state_is_stepped_in_the_codes_of_the_file(call: Call, tmp_path: Path) -> None:
    needs_torch()
    wanted = expected("bitsandbytes")
    out = tmp_path / "after.safetensors"
    command = ("run", FOLDER / "bitsandbytes.pt", "--steps")
    document, _ = told(call(*command, 0, "--out", out, "--json"))
    assert (document["variant"]["kernel"], document["variant"]["codec"]) == ("8bit", "dynamic")
    before = load_file(out)
    for lane in "mv":
        codes = wanted[f"{lane}.codes"]["table.weight"].ravel()
        assert before[f"{lane}.codes/table.weight"][: codes.size].tobytes() == codes.tobytes()
    told(call(*command, 1, "--out", out, "--json", "--seed", 5))
    after = load_file(out)
    # m after the step says which gradients were drawn: it is coded, so to half a step of its map.
    assert not np.array_equal(after["m.codes/table.weight"], before["m.codes/table.weight"])
    assert np.isfinite(after["w/table.weight"]).all()
    moved = np.abs(after["w/table.weight"] - before["w/table.weight"])
    assert 0 < moved.max() < 20e-3


@pytest.mark.gpu
def test_the_state_of_optax_is_stepped_as_the_formula_says(call: Call, tmp_path: Path) -> None:
    """Settings as typed; gradients of 0.5 beside the state, in a file of their own."""
    stored = expected("optax")
    stored.pop("count")
    gradients = {f"g/params/{name}": np.full(w.shape, 0.5, np.float32) for name, w in stored["w"].items()}
    save_file(gradients, tmp_path / "g.safetensors")
    out = tmp_path / "after.safetensors"
    spec = f"{FOLDER / 'optax-slashes.safetensors'}+{tmp_path / 'g.safetensors'}"
    told(call("run", spec, "--steps", 1, "--lr", 1e-3, "--weight-decay", 0.1, "--out", out, "--json"))
    after = load_file(out)
    for name, w in stored["w"].items():
        decay = 0.1 if w.ndim >= 2 else 0.0
        exact = adamw64(w, np.full(w.size, 0.5), stored["m"][name], stored["v"][name], 5, decay)
        np.testing.assert_allclose(after[f"w/params/{name}"].ravel(), exact, rtol=3e-7, atol=1e-9)


# --- layout


def test_the_layout_names_the_types_in_the_file_and_what_was_left_out(call: Call) -> None:
    """bitsandbytes-foundation/bitsandbytes#1269."""
    needs_torch()
    document, err = told(call("layout", FOLDER / "bitsandbytes.pt", "--json"))
    by_name = {p["name"]: p for p in document["params"]}
    assert by_name["table.weight"]["stored"] == {"w": "F32", "m": "8bit dynamic", "v": "8bit dynamic"}
    assert (by_name["table.weight"]["state"], by_name["out.bias"]["state"]) == ("8bit", "f32")
    code, out, err = call("layout", FOLDER / "tied-gpt.pt")
    assert code == 0
    assert "in the file" in out
    assert "w F32, m F32, v F32" in out
    assert "shares its memory" in err


def test_the_layout_of_shards_needs_no_pytorch(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    index = FOLDER / "sharded" / "model.safetensors.index.json"
    document, err = told(call("layout", index, "--json"))
    assert err == ""
    assert len(document["params"]) == 168
    assert document["params"][0]["stored"] == {"w": "F32"}
    # The folder has an optimizer as well, which does.
    code, out, err = call("layout", FOLDER / "sharded", "--json")
    assert (code, out) == (2, "")
    assert "optimizer.pt was saved by PyTorch" in err
    assert "[torch]" in err


# --- import


@pytest.mark.gpu
def test_a_checkpoint_becomes_a_session(call: Call, tmp_path: Path) -> None:
    needs_torch()
    path = tmp_path / "c.session"
    document, err = told(call("import", FOLDER / "conv-adam.pt", "--save", path, "--json"))
    assert document["steps"] == {"first": 5, "last": 5, "count": 1}
    assert document["captures"] == {"gradients": 1, "keyframe": 1}
    assert document["state"] == "complete"
    assert "running_mean" in err
    wanted = expected("conv-adam")
    with Session.open(path) as session:
        assert session.about.origin == "PyTorch Adam"
        assert session.about.variant.optimizer == "adam-l2"
        state = session.keyframe(4)
        for lane in "wmv":
            for name, each in wanted[lane].items():
                assert getattr(state, lane)[name].tobytes() == each.tobytes()
        assert session.verify() == []
    out = tmp_path / "after.safetensors"
    told(call("run", path, "--steps", 1, "--out", out, "--json"))
    for param, each in wanted["after"].items():
        assert ulp_distance(load_file(out)[f"w/{param}"].ravel(), each.ravel()).max() <= 2


def test_a_checkpoint_without_gradients_is_a_state_alone(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "o.session"
    command = ("import", FOLDER / "optax-dots-params.safetensors", FOLDER / "optax-dots-state.safetensors")
    document, _ = told(call(*command, "--save", path, "--json"))
    assert document["steps"]["count"] == 0
    assert document["captures"] == {"gradients": 0, "keyframe": 1}
    with Session.open(path) as session:
        assert session.about.finished_steps == 4
        assert session.keyframe(4).m.keys() == {name.replace("/", ".") for name in expected("optax")["m"]}
    # What cannot be run again is said, with what can.
    code, _, err = call("run", path, "--steps", 1)
    assert code == 2
    assert "Step 5 cannot be rebuilt" in err


@pytest.mark.gpu
def test_a_dump_of_several_steps_is_verified_against_the_kernels(call: Call, tmp_path: Path) -> None:
    """An engine that computes in float64: every step within 2 ULP, one that forgets the decay not."""
    rng = np.random.default_rng(7)
    shapes = {"a": (6, 8), "b": (8,)}
    params, offset = [], 0
    for name, shape in shapes.items():
        params.append({"name": name, "shape": shape, "offset": offset})
        offset += 64
    for decay, good in ((0.1, True), (0.0, False)):
        folder = tmp_path / f"dump-{decay}"
        folder.mkdir()
        lanes = {"w": rng.standard_normal(128), "m": np.zeros(128), "v": np.zeros(128)}
        steps = []
        for t in range(1, 4):
            g = rng.standard_normal(128).astype(np.float32)
            step: dict[str, Any] = {"t": t, "before": {}, "after": {}}
            for when in ("before", "after"):
                if when == "after":
                    w, m, v = (lanes[lane].astype(np.float64) for lane in "wmv")
                    lanes["m"], lanes["v"] = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g.astype(np.float64) ** 2
                    update = lanes["m"] / (1 - 0.9**t) / (np.sqrt(lanes["v"] / (1 - 0.999**t)) + 1e-8)
                    update[:48] += decay * w[:48]
                    lanes["w"] = w - 1e-3 * update
                for lane in "wmv":
                    lanes[lane] = lanes[lane].astype(np.float32)
                    name = f"{lane}{t}{when}.bin"
                    (folder / name).write_bytes(lanes[lane].tobytes())
                    step[when][lane] = name
            (folder / f"g{t}.bin").write_bytes(g.tobytes())
            step["before"]["g"] = f"g{t}.bin"
            steps.append(step)
        hyper = {"lr": 1e-3, "weight_decay": 0.1, "max_grad_norm": None}
        layout = {"format": "optimizer-dump", "params": params, "steps": steps, "hyper": hyper, "engine": "mine",
                  "numerics": "precise"}  # fmt: skip
        (folder / "dump.json").write_text(json.dumps(layout))
        session = tmp_path / f"{decay}.session"
        document, _ = told(call("import", folder / "dump.json", "--save", session, "--json"))
        assert document["captures"] == {"gradients": 3, "keyframe": 4}
        code, out, err = call("replay", session, "--verify", "--json")
        verified = json.loads(out)
        assert verified["compared"]["steps"] == 3, err
        assert (code == 0) == good, out[:2000]
        assert (verified["kinds"][0]["kind"] == "decay-off") != good


def test_a_state_file_becomes_a_session(call: Call, tmp_path: Path) -> None:
    """Gradients of steps 4 and 5, and of 7, which follows none."""
    tensors = {"w/a": [1.0, 2.0], "m/a": [0.5, 0.5], "v/a": [1.0, 1.0], "g/a": [3.0, np.nan]}
    tensors |= {"g@5/a": [1.0, 1.0], "g@7/a": [1.0, 1.0]}
    file = tmp_path / "s.safetensors"
    save_file({name: np.float32(each) for name, each in tensors.items()}, file, {"t": "3", "lr": "0.5"})
    path = tmp_path / "s.session"
    document, err = told(call("import", file, "--save", path, "--json"))
    assert document["steps"] == {"first": 4, "last": 5, "count": 2}
    assert "no gradients of step 6: later ones are left out" in err
    with Session.open(path) as session:
        assert session.keyframe(3).m["a"].tolist() == [0.5, 0.5]
        assert session.step(4).hyper.lr == 0.5
        assert (session.step(4).nonfinite.nan, session.step(4).nonfinite.first) == (1, 1)
        assert session.gradients(5)["a"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("import", "charlm", "--save", "x.session"), "import takes checkpoints, dumps and state files"),
        (("import", "nothing.pt", "--save", "x.session"), "is no source"),
        (("import", FOLDER / "optax-slashes.safetensors"), "Missing option '--save'"),
        (("import", "--save", "x.session"), "Missing argument 'FILE…'"),
    ],
)
def test_what_cannot_be_imported_is_told_in_one_sentence(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Any, error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert error in err
    assert "Traceback" not in err
    assert not (tmp_path / "x.session").exists()


def test_an_import_never_writes_over_what_is_there(call: Call, tmp_path: Path) -> None:
    (tmp_path / "x.session").mkdir()
    code, _, err = call("import", FOLDER / "optax-slashes.safetensors", "--save", tmp_path / "x.session")
    assert code == 2
    assert "exists" in err


def dumped(folder: Path, **changes: Any) -> tuple[Path, dict[str, Any]]:
    """One step of one matrix of 320 elements, and what it holds."""
    rng = np.random.default_rng(3)
    lanes = {lane: rng.standard_normal(320).astype(np.float32) for lane in "wgmv"}
    lanes["v"] = np.abs(lanes["v"])
    for lane, values in lanes.items():
        (folder / f"{lane}.bin").write_bytes(values.tobytes())
    layout = {
        "format": "optimizer-dump",
        "t": 4,
        "hyper": {"lr": 1e-3, "weight_decay": 0.1, "max_grad_norm": None},
        "params": [{"name": "a", "shape": [5, 64], "offset": 0}],
        "buffers": {lane: f"{lane}.bin" for lane in lanes},
    }
    path = folder / "dump.json"
    path.write_text(json.dumps(layout | changes))
    return path, lanes


@pytest.mark.gpu
def test_codes_of_a_dump_go_to_the_device_and_back_byte_for_byte(call: Call, tmp_path: Path) -> None:
    _, lanes = dumped(tmp_path)
    coded = {lane: encode("linear", lane, lanes[lane]) for lane in MOMENTS}
    buffers = {"w": "w.bin", "g": "g.bin"}
    for lane, each in coded.items():
        for part, values in (("packed", each.codes), ("scale", each.scales)):
            (tmp_path / f"{lane}.{part}").write_bytes(values.tobytes())
            buffers[f"{lane}_{part}"] = f"{lane}.{part}"
    path, _ = dumped(tmp_path, buffers=buffers)
    out = tmp_path / "out.safetensors"
    document, _ = told(call("run", path, "--steps", 0, "--out", out, "--json"))
    assert (document["variant"]["kernel"], document["variant"]["small_state"]) == ("8bit", "8bit")
    state = load_file(out)
    for lane, each in coded.items():
        assert state[f"{lane}.codes/a"].tobytes() == each.codes.tobytes()
        assert state[f"{lane}.scales/a"].tobytes() == each.scales.tobytes()


@pytest.mark.gpu
def test_own_kernels_run_on_a_dump(call: Call, tmp_path: Path) -> None:
    """The engine's own update, held against the formula in float64."""
    path, lanes = dumped(tmp_path)
    shaders = own_wgsl.write(tmp_path / "wgsl", update=own_wgsl.UPDATE)
    out = tmp_path / "out.safetensors"
    document, _ = told(call("run", path, "--steps", 1, "--shaders", shaders, "--out", out, "--json"))
    assert set(document["shaders"]) == {"adamw_update"}
    exact = adamw64(lanes["w"], lanes["g"], lanes["m"], lanes["v"], 5, 0.1)
    # The published bias terms, in float32 from float32 β, are 1.3e-5 off.
    np.testing.assert_allclose(load_file(out)["w/a"].ravel(), exact, rtol=0, atol=1e-3 * 1e-3)
