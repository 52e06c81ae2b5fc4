"""Cases that went wrong in other projects, run by the commands on 8-bit state, the mirror, and at limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_helpers import make_stepper, normal_state
from state_files import file_bytes, write

from inspector.codecs import CODECS, Codec, decode
from inspector.gpu import device
from inspector.gpu.device import Gpu
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import STATE_TYPES, DispatchForm, Kernel, Variant
from inspector.session.tensorfile import TensorFile
from inspector.stepping import HostGradients

pytestmark = pytest.mark.gpu

Call = Callable[..., tuple[int, str, str]]

EIGHT_BIT = [("--kernel", "8bit", "--codec", codec, "--small-state", "8bit") for codec in CODECS]
FORMS: list[tuple[str, ...]] = [(), ("--kernel", "f16"), *EIGHT_BIT]
each_form = pytest.mark.parametrize("form", FORMS, ids=" ".join)
each_8bit = pytest.mark.parametrize("form", EIGHT_BIT, ids=" ".join)


def run(call: Call, file: Path, *options: object, steps: int = 1) -> tuple[dict[str, Any], TensorFile]:
    """`inspector run`: its document, and the state after it."""
    after = file.with_name("after.safetensors")
    code, out, err = call("run", file, "--steps", steps, "--json", "--out", after, *options)
    assert code == 0, err
    return json.loads(out), TensorFile(after)


def floats(file: TensorFile, lane: str, name: str = "p") -> Any:
    return file.floats(f"{lane}/{name}").ravel()


def ones(n: int) -> Any:
    return np.ones(n, np.float32)


def huge(path: Path, shapes: Mapping[str, Iterable[int]]) -> Path:
    """A state file of zeros that takes no room on the disk."""
    header, end = {}, 0
    for key in (f"{lane}/{name}" for name in shapes for lane in "wg"):
        shape = [int(n) for n in shapes[key[2:]]]
        size = 4 * int(np.prod(shape))
        header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    start = file_bytes(header)
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + end)
    return path


# --- 8-bit state


@each_8bit
def test_a_block_of_zeros_stays_one(call: Call, tmp_path: Path, form: tuple[str, ...]) -> None:
    """pytorch/ao#4713: an all-zero block gives 0/0."""
    w = np.full(256, 0.5, np.float32)
    steps = {f"g@{t}/p": np.zeros(256, np.float32) for t in (1, 2, 3)}
    document, after = run(call, write(tmp_path / "zero", {"w/p": w, **steps}), *form, steps=3)
    assert floats(after, "w").tobytes() == w.tobytes()
    for lane in "mv":
        assert floats(after, lane).tobytes() == bytes(1024)
    assert [(s["grad_norm"], s["clip_scale"], sum(s["nonfinite"].values())) for s in document["steps"]] == [
        (0.0, 1.0, 0)
    ] * 3
    assert document["findings"] == []


@each_8bit
def test_an_idle_coordinate_beside_busy_ones_does_not_move(
    call: Call, tmp_path: Path, form: tuple[str, ...]
) -> None:
    """unslothai/unsloth-zoo PR#962: 255 gradients of 1 and one of 0 for 500 steps."""
    g = ones(256)
    g[100] = 0
    file = write(
        tmp_path / "idle",
        {"w/p": np.zeros(256, np.float32), **{f"g@{t}/p": g for t in range(1, 501)}},
        max_grad_norm="inf",
    )
    _, after = run(call, file, *form, "--stats", "off", steps=500)
    w = floats(after, "w")
    assert w[100:101].tobytes() == bytes(4)
    assert np.delete(w, 100) == pytest.approx(-0.5, rel=0.02)
    assert (floats(after, "m")[100], floats(after, "v")[100]) == (0.0, 0.0)


def test_the_state_of_an_embedding_takes_the_bytes_of_its_type_and_says_which(
    call: Call, tmp_path: Path
) -> None:
    """bitsandbytes-foundation/bitsandbytes#1269: not in the type one asked for, silently."""
    file = huge(tmp_path / "embedding", {"embed": (50_257, 768), "norm": (768,)})
    for options, state, nbytes in (
        ((), "f32", 308_779_008),
        (("--kernel", "8bit"), "8bit", 78_400_920),
        (("--kernel", "8bit", "--dispatch", "per-tensor", "--codec", "dynamic"), "8bit", 78_400_920),
    ):
        code, out, _ = call("layout", file, "--json", *options)
        assert code == 0
        document = json.loads(out)
        shown = {p["name"]: (p["state"], p["state_bytes"]) for p in document["params"]}
        assert shown == {"embed": (state, nbytes), "norm": ("f32", 8 * 768)}
        # And it is what the step binds, all of its dispatches together.
        bound = [
            b["size"]
            for d in document["dispatches"]
            for b in d["bindings"]
            if b["name"].startswith(("m", "v")) and b["access"] == "read_write"
        ]
        assert sum(bound) == nbytes + 8 * 768
        code, out, _ = call("layout", file, *options)
        row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["embed"])
        assert (row[-5], row[-1]) == (state, f"{nbytes:,}")


@pytest.mark.parametrize("small", STATE_TYPES)
def test_a_run_says_the_type_of_each_params_state(call: Call, tmp_path: Path, small: str) -> None:
    file = write(
        tmp_path / "two",
        {"w/large": ones(4096), "g/large": ones(4096), "w/small": ones(9), "g/small": ones(9)},
    )
    document, _ = run(call, file, "--kernel", "8bit", "--small-state", small, "--stats", "full")
    states = {p["name"]: p["state"] for p in document["steps"][0]["params"]}
    assert states == {"large": "8bit", "small": small}
    document, _ = run(call, file, "--stats", "full")
    assert {p["state"] for p in document["steps"][0]["params"]} == {"f32"}


# --- the mirror


@pytest.mark.parametrize("passes", [(), ("--unfused",)], ids=["fused", "passes"])
def test_nothing_times_nothing_over_an_epsilon_that_halves_do_not_have_leaves_w(
    call: Call, tmp_path: Path, passes: tuple[str, ...]
) -> None:
    """google-deepmind/optax#1754: an epsilon of 1e-8 is 0 in float16."""
    names = {f"{lane}/p": ones(3) * (lane == "w") for lane in "wgmv"}
    document, after = run(call, write(tmp_path / "idle", names), "--kernel", "f16", *passes)
    assert floats(after, "w").tobytes() == ones(3).tobytes()
    assert not floats(after, "m").any()
    assert document["findings"] == []
    stepper = make_stepper(
        Gpu(), [Param("p", (3,))], Variant(kernel="f16", fused=not passes), w={"p": ones(3)}
    )
    try:
        stepper.begin_step(HostGradients({}))
        stepper.run_to_end(Hyper())
        assert stepper.half_weights()["p"].tolist() == [1.0] * 3
    finally:
        stepper.close()


def test_without_shader_f16_the_mirror_is_packed_and_nothing_is_said(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """elicwhite/spotify-clonehero#27."""
    rng = np.random.default_rng(1)
    tensors = {f"{lane}/p": rng.standard_normal((9, 31)).astype(np.float32) for lane in "wg"}
    file = write(tmp_path / "state", tensors)
    wanted = {form: floats(run(call, file, "--kernel", form)[1], "w").tobytes() for form in ("f32", "f16")}
    monkeypatch.setattr(device, "USED_FEATURES", tuple(f for f in device.USED_FEATURES if f != "shader-f16"))
    asked = Gpu()
    assert "shader-f16" not in asked.device.features
    for form, w in wanted.items():
        assert floats(run(call, file, "--kernel", form)[1], "w").tobytes() == w
        code, _, err = call("run", file, "--steps", 1, "--kernel", form)
        assert (code, err) == (0, "")
    stepper = make_stepper(asked, [Param("p", (9, 31))], Variant(kernel="f16"), w={"p": tensors["w/p"]})
    try:
        half = stepper.half_weights()["p"]
        assert half.tobytes() == tensors["w/p"].ravel().astype(np.float16).tobytes()
    finally:
        stepper.close()


# --- limits


def with_limits(monkeypatch: pytest.MonkeyPatch, **limits: int) -> list[Gpu]:
    """Devices that are opened from here on have these limits; gives those that are open."""
    opened: list[Gpu] = []

    class Poor(Gpu):
        def __init__(self, name: str | None = None) -> None:
            super().__init__(name)
            self.limits = replace(self.limits, **limits)
            opened.append(self)

        def close(self) -> None:
            super().close()
            opened.remove(self)

    monkeypatch.setattr("inspector.gpu.opener.Gpu", Poor)
    return opened


@pytest.mark.parametrize(
    ("kernel", "name", "needs"),
    [("f32", "adamw_update", 5), ("f16", "adamw_update_f16", 6), ("8bit", "adamw_8bit_update", 7)],
)
def test_more_storage_buffers_than_the_adapter_allows_are_told_in_one_sentence(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str, name: str, needs: int
) -> None:
    """jsgrad-org/jsgrad#66."""
    file = write(tmp_path / "state", {"w/p": ones(5000), "g/p": ones(5000)})
    opened = with_limits(monkeypatch, max_storage_buffers_per_shader_stage=needs - 1)
    code, out, err = call("run", file, "--steps", 1, "--kernel", kernel)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"inspector: Kernel {name} binds {needs} storage buffers, over this device's limit of {needs - 1} a stage: "
        "use another adapter."
    ]
    # A device that nothing runs on is not kept.
    assert not opened


@each_form
def test_params_of_any_size_add_up_to_one_norm(call: Call, tmp_path: Path, form: tuple[str, ...]) -> None:
    """gfx-rs/wgpu#6221: gaps hold nothing, √263 of 10, 250 and 3 ones; so too with blocks that are not full."""
    sizes = {"a": 10, "b": 250, "c": 3}
    tensors = {f"{lane}/{name}": ones(n) for name, n in sizes.items() for lane in "wg"}
    document, after = run(call, write(tmp_path / "state", tensors), *form, "--weight-decay", 0)
    (step,) = document["steps"]
    assert step["grad_norm"] == pytest.approx(16.217274740226856, rel=1e-6)
    for name in sizes:
        # One learning rate; √v̂ is that of g', of which linear codes add an ε of 1e-6 at least.
        assert floats(after, "w", name) == pytest.approx(0.999, abs=1e-6)
    code, out, _ = call("layout", tmp_path / "state", "--json", *form)
    assert code == 0
    unit = {"f16": 512, "8bit": 1024}.get(form[1] if form else "", 256)
    assert [p["offset"] for p in json.loads(out)["params"]] == [
        0, unit, -(-1000 // unit) * unit + unit,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        ("f32", {name: [134_217_728, 4] for name in "wgmv"}),
        ("f16", {"w": [134_217_728, 4], "w_f16": [67_108_864, 2]}),
        ("8bit", {"w": [134_217_728, 4], "m_packed": [33_554_432, 256], "v_scale": [524_288, 4]}),
    ],
)
def test_a_buffer_one_element_over_a_binding_takes_a_second_one(
    call: Call, tmp_path: Path, kernel: Kernel, wanted: dict[str, list[int]]
) -> None:
    """gfx-rs/wgpu#6221, microsoft/onnxruntime PR#27853: 33,554,433 elements against 128 MiB."""
    file = huge(tmp_path / "long", {"p": (33_554_433,)})
    code, out, _ = call("layout", file, "--json", "--kernel", kernel, "--max-binding", 134_217_728)
    assert code == 0
    updates = [d for d in json.loads(out)["dispatches"] if d["kernel"].startswith("adamw")]
    for name, sizes in wanted.items():
        bound = [b for d in updates for b in d["bindings"] if b["name"] == name]
        assert [b["size"] for b in bound] == sizes
        assert [b["offset"] for b in bound] == [0, sizes[0]]


@pytest.mark.parametrize("codec", CODECS)
def test_the_last_element_of_a_grid_of_several_rows_is_reached(gpu: Gpu, codec: Codec) -> None:
    """mrdoob/three.js PR#28846: a grid cut off at its limit loses the tail; here at 4 groups, 8 rows of them."""
    n = 32 * 1024 + 1
    g = np.zeros(n, np.float32)
    g[-1] = 3
    stepper = make_stepper(
        gpu,
        [Param("p", (n,))],
        Variant(kernel="8bit", codec=codec),
        w={"p": np.zeros(n, np.float32)},
        groups=8,
    )
    update = next(d for d in stepper.plan.dispatches if d.updates)
    assert update.groups == (7, 5, 1)
    stepper.begin_step(HostGradients({"p": g}))
    stepper.run_to_end(Hyper())
    assert stepper.grad_stats().grad_norm == 3.0
    state = stepper.state()
    assert np.flatnonzero(state.m["p"]).tolist() == [n - 1]
    assert np.flatnonzero(state.w["p"]).tolist() == [n - 1]
    assert state.w["p"][-1] == pytest.approx(-1e-3, rel=2e-5)


@pytest.mark.parametrize("reduce", ["two-pass", "atomic"])
@pytest.mark.parametrize("kernel", ["f16", "8bit"])
def test_a_million_adds_end_and_are_exact(call: Call, tmp_path: Path, kernel: str, reduce: str) -> None:
    """ProjectPhysX/FluidX3D#217."""
    file = write(tmp_path / "many", {"w/p": np.zeros(1_000_000, np.float32), "g/p": ones(1_000_000)})
    code, out, _ = call("run", file, "--steps", 1, "--json", "--kernel", kernel, "--reduce", reduce)
    assert code == 0
    assert json.loads(out)["steps"][0]["grad_norm"] == 1000.0


# --- what is written


@pytest.mark.parametrize("dispatch", ["two-block", "per-tensor"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_state_is_written_as_what_its_codes_stand_for(
    call: Call, tmp_path: Path, gpu: Gpu, codec: Codec, dispatch: DispatchForm
) -> None:
    params = [Param("a", (70, 64)), Param("gain", (300,)), Param("b", (5000,))]
    w, g, m, v = normal_state(params)
    tensors = {
        f"{lane}/{p.name}": values[p.name].reshape(p.shape)
        for lane, values in zip("wgmv", (w, g, m, v), strict=True)
        for p in params
    }
    file = write(tmp_path / "state", tensors, t="7")
    _, after = run(call, file, "--kernel", "8bit", "--codec", codec, "--dispatch", dispatch)
    variant = Variant(kernel="8bit", codec=codec, dispatch=dispatch)
    stepper = make_stepper(gpu, params, variant, w=w, m=m, v=v, finished_steps=7)
    stepper.begin_step(HostGradients(g))
    stepper.run_to_end(Hyper())
    state = stepper.state()
    assert set(state.coded) == {"a", "b"}
    for p in params:
        assert floats(after, "w", p.name).tobytes() == state.w[p.name].tobytes()
        assert not floats(after, "g", p.name).any()
        written = floats(after, "m", p.name), floats(after, "v", p.name)
        coded = state.coded.get(p.name)
        if coded is None:
            wanted: Any = (state.m[p.name], state.v[p.name])
        else:
            wanted = (
                decode(codec, "m", coded.m.codes, coded.m.scales)[: p.numel],
                decode(codec, "v", coded.v.codes, coded.v.scales)[: p.numel],
            )
        for got, value in zip(written, wanted, strict=True):
            assert got.tobytes() == np.asarray(value, np.float32).tobytes()
    assert after.metadata["t"] == "8"
