"""Dumps of other engines: raw buffers and a layout file, as a source and as a session."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.codecs import encode
from inspector.errors import UsageError
from inspector.hyper import Hyper
from inspector.sources.base import EndOfSourceError
from inspector.sources.dump import Dump
from inspector.sources.open import open_source

PAGE = Path(__file__).parent.parent / "docs" / "formats.md"
PARAMS = [
    {"name": "wte", "shape": [4, 64], "offset": 0, "block": "wd"},
    {"name": "norm", "shape": [64], "offset": 256},
    {"name": "scale", "shape": [], "offset": 512, "block": "no_wd"},
]
END = 513


def values(seed: int, n: int = END) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def put(folder: Path, name: str, array: np.ndarray) -> str:
    (folder / name).write_bytes(array.tobytes())
    return name


def lay(folder: Path, document: dict[str, Any], **changes: Any) -> Path:
    path = folder / "dump.json"
    path.write_text(
        json.dumps({"format": "optimizer-dump", "version": 1, "params": PARAMS, **document, **changes})
    )
    return path


def one(folder: Path, **changes: Any) -> Path:
    buffers = {lane: put(folder, f"{lane}.bin", values(i)) for i, lane in enumerate("wgmv")}
    return lay(
        folder, {"t": 11, "hyper": {"lr": 0.002, "max_grad_norm": None}, "buffers": buffers}, **changes
    )


def one_of(folder: Path, **changes: Any) -> Path:
    """The same over files that are there."""
    return lay(folder, {"t": 11, "buffers": {lane: f"{lane}.bin" for lane in "wgmv"}}, **changes)


def test_a_step_is_read_from_raw_buffers(tmp_path: Path) -> None:
    source = open_source(str(one(tmp_path)))
    assert isinstance(source, Dump)
    assert [(p.name, p.shape, p.block) for p in source.params] == [
        ("wte", (4, 64), "wd"), ("norm", (64,), "no_wd"), ("scale", (), "no_wd"),
    ]  # fmt: skip
    assert source.hyper == Hyper(lr=0.002, max_grad_norm=math.inf)
    state, gradients = source.initial_state(), source.gradients(12, dict)
    assert state.finished_steps == 11
    for i, given in enumerate((state.w, gradients.values, state.m, state.v)):
        whole = values(i)
        assert given["wte"].tobytes() == whole[:256].tobytes()
        assert given["norm"].tobytes() == whole[256:320].tobytes()
        assert given["scale"].tobytes() == whole[512:513].tobytes()
    with pytest.raises(EndOfSourceError, match="no gradients of step 13"):
        source.gradients(13, dict)


def test_pages_parts_of_files_and_halves_are_put_together(tmp_path: Path) -> None:
    w, half = values(1), values(2).astype(np.float16)
    (tmp_path / "w0").write_bytes(bytes(8) + w[:300].tobytes())
    put(tmp_path, "w1", w[300:])
    put(tmp_path, "g16", half)
    buffers = {"w": [{"file": "w0", "offset": 8}, "w1"], "g": {"file": "g16", "dtype": "f16"}}
    source = Dump(lay(tmp_path, {"buffers": buffers}))
    assert source.initial_state().w["norm"].tobytes() == w[256:320].tobytes()
    assert source.gradients(1, dict).values["norm"].tolist() == half[256:320].astype(np.float32).tolist()
    assert any("no m and v" in remark for remark in source.remarks)


def test_8_bit_state_goes_on_by_its_codes(tmp_path: Path) -> None:
    """Blocks of 256 over the buffer; a param that ends within its block leaves the rest aside."""
    m, v = values(3, 768), np.abs(values(4, 768))
    m[320:512] = v[320:512] = m[513:] = v[513:] = 0
    buffers = {"w": put(tmp_path, "w", values(1)), "g": put(tmp_path, "g", values(2))}
    coded = {"m": encode("sqrt", "m", m), "v": encode("sqrt", "v", v)}
    for lane, each in coded.items():
        buffers[f"{lane}_packed"] = put(tmp_path, f"{lane}p", each.codes)
        buffers[f"{lane}_scale"] = put(tmp_path, f"{lane}s", each.scales)
    source = Dump(lay(tmp_path, {"buffers": buffers, "codec": "sqrt"}))
    state = source.initial_state()
    assert state.coded.keys() == {"wte", "norm", "scale"}
    norm = state.coded["norm"]
    assert norm.m.codes[:64].tobytes() == coded["m"].codes[256:320].tobytes()
    assert not norm.m.codes[64:].any()
    assert norm.v.scales.tobytes() == coded["v"].scales[1:2].tobytes()
    # By hand: code · scale, and for v its square.
    wanted = coded["m"].codes[256:320].astype(np.float32) * coded["m"].scales[1]
    np.testing.assert_array_equal(state.m["norm"], wanted)
    root = coded["v"].codes[:256].astype(np.float64) * float(coded["v"].scales[0])
    np.testing.assert_allclose(state.v["wte"], root * root, rtol=3e-7)
    assert source.form is not None
    assert (source.form.kernel, source.form.codec, source.form.small_state) == ("8bit", "sqrt", "8bit")


def test_a_mirror_out_of_step_is_said(tmp_path: Path) -> None:
    w = values(1)
    half = w.astype(np.float16)
    buffers = {
        "w": put(tmp_path, "w", w),
        "w_f16": put(tmp_path, "h", half),
        "g": put(tmp_path, "g", values(2)),
    }
    path = lay(tmp_path, {"buffers": buffers})
    assert not any("w_f16" in remark for remark in Dump(path).remarks)
    half[300:303] += np.float16(1)
    put(tmp_path, "h", half)
    source = Dump(path)
    assert any("3 elements of w_f16" in remark and "norm" in remark for remark in source.remarks)
    assert source.form is not None
    assert source.form.kernel == "f16"
    put(tmp_path, "g", values(2))
    alone = Dump(lay(tmp_path, {"buffers": {"w_f16": "h", "g": "g"}}))
    assert alone.initial_state().w["norm"].tolist() == half[256:320].astype(np.float32).tolist()


def test_a_buffer_longer_than_its_layout_is_named_with_both_sizes(tmp_path: Path) -> None:
    path = one(tmp_path)
    put(tmp_path, "w.bin", np.append(values(0), np.zeros(16_384, np.float32)))
    assert open_source(str(path)).remarks == ()
    put(tmp_path, "m.bin", values(2, 20_000))
    (remark,) = open_source(str(path)).remarks
    sizes = "m before step 12 has 20,000 elements, and the last param, 'scale', ends at 513."
    assert remark.startswith(f"m.bin is longer than the layout: {sizes}")
    put(tmp_path, "m.bin", values(2, END + 1))
    (remark,) = open_source(str(path)).remarks
    assert "has 514 elements" in remark


def test_floats_may_be_big_endian(tmp_path: Path) -> None:
    path = one(tmp_path)
    for i, lane in enumerate("wgmv"):
        put(tmp_path, f"{lane}.bin", values(i).astype(">f4"))
    (remark,) = open_source(str(path)).remarks
    assert remark.startswith("The bytes of w.bin seem to be in the other order")
    assert '"endian": "big"' in remark
    source = open_source(str(one_of(tmp_path, endian="big")))
    assert source.remarks == ()
    state = source.initial_state()
    np.testing.assert_array_equal(state.w["norm"], values(0)[256:320])
    np.testing.assert_array_equal(state.v["scale"], values(3)[512:513])
    np.testing.assert_array_equal(source.gradients(12, dict).values["wte"], values(1)[:256])
    for i, lane in enumerate("wgmv"):
        put(tmp_path, f"{lane}.bin", values(i))
    assert '"endian": "little"' in open_source(str(one_of(tmp_path, endian="big"))).remarks[0]


def test_weights_of_zero_have_no_order_of_bytes(tmp_path: Path) -> None:
    path = one(tmp_path)
    put(tmp_path, "w.bin", np.zeros(END, np.float32))
    assert open_source(str(path)).remarks == ()


def test_steps_have_settings_and_states_of_their_own(tmp_path: Path) -> None:
    files = {
        name: put(tmp_path, name, values(i))
        for i, name in enumerate(("w0", "g1", "w1", "m1", "v1", "g2", "w2"))
    }
    steps = [
        {"t": 5, "before": {"w": files["w0"], "g": files["g1"]}, "loss": 2.5, "grad_norm": "Infinity"},
        {"t": 6, "before": {"w": files["w1"], "m": files["m1"], "v": files["v1"], "g": files["g2"]},
         "after": {"w": files["w2"]}, "hyper": {"lr": 0.5}},
    ]  # fmt: skip
    source = Dump(lay(tmp_path, {"steps": steps, "hyper": {"lr": 0.25, "beta2": 0.95}}))
    assert source.last_step == 6
    assert source.recorded_hyper(5) == Hyper(lr=0.25, beta2=0.95)
    assert source.recorded_hyper(6) == Hyper(lr=0.5, beta2=0.95)
    assert source.gradients(5, dict).loss == 2.5
    after = source.state_after(5)
    assert after is not None
    assert after.finished_steps == 5
    assert after.m["norm"].tobytes() == values(3)[256:320].tobytes()
    last = source.state_after(6)
    assert last is not None
    assert last.w["norm"].tobytes() == values(6)[256:320].tobytes()


# --- what is refused


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "other"}, "no layout of a dump"),
        ({"version": 2}, "version 2; this program reads version 1"),
        ({"params": []}, "lists no params"),
        ({"params": [{"shape": [1], "offset": 0}]}, "param 0 has no name"),
        ({"params": [{"name": "a", "shape": [-1], "offset": 0}]}, r"shape of 'a' is \[-1\]"),
        ({"params": [{"name": "a", "shape": [1], "offset": -4}]}, "offset of 'a' is -4"),
        ({"params": [{"name": "a", "shape": [1], "offset": 0, "block": "x"}]}, "block of 'a' is 'x'"),
        ({"params": [{"name": "a", "shape": [9], "offset": n} for n in (0, 9)]}, "two params are named 'a'"),
        (
            {"params": [{"name": "a", "shape": [9], "offset": 0}, {"name": "b", "shape": [9], "offset": 8}]},
            "'b' begins at element 8, before 'a' ends at 9",
        ),
        ({"params": [{"name": "a", "shape": [999], "offset": 0}]}, r"cut off: .* 513 elements, and 'a' ends at 999"),
        ({"hyper": {"lr": "fast"}}, "lr is 'fast', which is not a number"),
        ({"hyper": {"momentum": 1}}, "hyper has 'momentum'; settings are lr"),
        ({"codec": "linears"}, "codec is 'linears'"),
        ({"numerics": "exact"}, "numerics are 'exact'; it has to be published or precise"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd'"),
        ({"endian": "middle"}, "endian is 'middle'; it has to be little, as GPUs are, or big"),
        ({"t": -1}, "t is -1"),
        ({"buffers": {"w": "gone.bin"}}, r"gone.bin for w before step 12.*cannot be read"),
        ({"buffers": {"w": "."}}, "names . for w before step 12.*no file"),
        ({"buffers": {"w": "../w.bin"}}, "give one beside the layout"),
        ({"buffers": {"w": "/etc/passwd"}}, "give one beside the layout"),
        ({"buffers": {"g": "g.bin"}}, "has no weights before it"),
        ({"buffers": {"w": "w.bin", "q": "w.bin"}}, "has the buffer 'q'"),
        ({"buffers": {"w": {"file": "w.bin", "dtype": "f64"}}}, "dtype of w is 'f64'; it may be f32 or f16"),
        ({"buffers": {"w": {"file": "w.bin", "offset": 2}}}, "from byte 2 on are no whole f32"),
        ({"buffers": {"w": "w.bin", "m_packed": "m.bin"}}, "has m_packed alone"),
        ({"steps": [{"t": 0}]}, "t of its step 0 is 0"),
        ({"steps": [{"t": 1, "before": {"w": "w.bin"}}, {"t": 3}]}, "step 3 comes after step 1"),
        ({"steps": []}, "has no steps"),
    ],
)  # fmt: skip
def test_a_layout_that_cannot_be_is_refused_in_a_sentence(tmp_path: Path, changes: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Dump(one(tmp_path, **changes))


@pytest.mark.parametrize("content", ["", "[]", "{", '"dump"', "[" * 9999, "{}"])
def test_what_is_no_layout_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "dump.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"no layout of a dump|not valid JSON"):
        open_source(str(path))


def test_a_block_of_codes_holds_one_param_alone(tmp_path: Path) -> None:
    buffers = {"w": put(tmp_path, "w", values(1)), "m_packed": put(tmp_path, "m", np.zeros(END, np.int8)),
               "m_scale": put(tmp_path, "s", np.zeros(3, np.float32))}  # fmt: skip
    params = [{"name": "a", "shape": [64], "offset": 0}, {"name": "b", "shape": [64], "offset": 64}]
    with pytest.raises(UsageError, match="'b' begins at element 64, within a block of 256"):
        Dump(lay(tmp_path, {"buffers": buffers}, params=params))


# --- the example of the documents

DEVICE = """
const fs = require("fs"), path = require("path"), folder = process.argv[2];
globalThis.GPUBufferUsage = { MAP_READ: 1, COPY_SRC: 4, COPY_DST: 8 };
globalThis.GPUMapMode = { READ: 1 };
const made = [];
const device = {
  createBuffer({ size, usage }) {
    if (usage !== 9) throw new Error("usage");
    const buffer = { size, data: new ArrayBuffer(size), mapped: false, destroyed: false,
      async mapAsync(mode) { if (mode !== 1) throw new Error("mode"); this.mapped = true; },
      getMappedRange() { if (!this.mapped) throw new Error("not mapped"); return this.data; },
      destroy() { this.data = null; this.destroyed = true; } };
    made.push(buffer);
    return buffer;
  },
  createCommandEncoder() {
    const copies = [];
    return { copyBufferToBuffer(...copy) { copies.push(copy); }, finish: () => copies };
  },
  queue: { submit(lists) {
    for (const [from, at, to, into, size] of lists.flat())
      new Uint8Array(to.data).set(new Uint8Array(from.data, at, size), into);
  } },
};
const filled = (n, f) => ({ size: 4 * n, data: Float32Array.from({ length: n }, (_, i) => f(i)).buffer });
const buffers = { w: filled(80, i => i), g: filled(80, i => i / 4), m: filled(80, i => -i), v: filled(80, i => i * i) };
const about = { t: 11, hyper: { lr: 0.5, max_grad_norm: Infinity }, params: [
  { name: "a", shape: [4, 16], offset: 0 }, { name: "b", shape: [16], offset: 64 } ] };
dump(device, buffers, about, async (name, content) => fs.writeFileSync(path.join(folder, name), content))
  .then(() => { if (made.length !== 4 || !made.every(b => b.destroyed)) throw new Error("left over"); });
"""


def test_the_javascript_of_the_readme_writes_a_dump(tmp_path: Path) -> None:
    """Run by Node on a device that copies and maps as WebGPU does."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    example = re.search(r"```js\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    script = tmp_path / "dump.cjs"
    script.write_text(example[1] + DEVICE)
    done = subprocess.run(
        [node, str(script), str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    source = Dump(tmp_path / "dump.json")
    state = source.initial_state()
    assert state.w["b"].tolist() == list(range(64, 80))
    assert state.v["a"].tolist() == [i * i for i in range(64)]
    assert source.gradients(12, dict).values["b"].tolist() == [i / 4 for i in range(64, 80)]
    assert source.hyper == Hyper(lr=0.5, max_grad_norm=math.inf)


def test_the_layout_of_the_readme_is_one(tmp_path: Path) -> None:
    example = re.search(r"```json\n(\{\"format.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    for lane in "wgmv":
        put(tmp_path, f"{lane}.bin", values(1, 16448))
    (tmp_path / "dump.json").write_text(example[1])
    assert [p.numel for p in Dump(tmp_path / "dump.json").params] == [16384, 64]
