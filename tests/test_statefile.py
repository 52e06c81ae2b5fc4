"""State files: round trips bit for bit, widening, several steps, settings, and files nobody should trust."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from state_files import file_bytes, header_and_data, write

from inspector.errors import UsageError
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.session.tensorfile import TensorFile, write_tensors
from inspector.sources.base import EndOfSourceError
from inspector.sources.statefile import StateFile, write_state
from inspector.stepping import GradStats


def nothing() -> dict[str, np.ndarray]:
    return {}


def entry(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


SMALL = {"w/a": [[1.0, 2.0]], "g/a": [[3.0, 4.0]]}


# --- what is read


def test_a_file_written_by_the_library_gives_its_params_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    tensors = {
        "w/h.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "g/h.0.weight": np.ones((2, 3), np.float32),
        "m/h.0.weight": np.full((2, 3), 0.5, np.float32),
        "w/h.0.bias": np.zeros(3, np.float32),
        "g/h.0.bias": np.float32([1, 2, 3]),
        "w/scale": np.array(2.0, np.float32),
    }
    save_file(tensors, path, {"t": "41", "lr": "2e-4", "beta2": "0.95", "max_grad_norm": "Infinity"})
    state = StateFile(path)
    assert sorted((p.name, p.shape, p.block) for p in state.params) == [
        ("h.0.bias", (3,), "no_wd"),
        ("h.0.weight", (2, 3), "wd"),
        ("scale", (), "no_wd"),
    ]
    assert state.hyper == Hyper(lr=2e-4, beta2=0.95, max_grad_norm=float("inf"))
    start = state.initial_state()
    assert start.finished_steps == 41
    assert start.w["h.0.weight"].tolist() == [0, 1, 2, 3, 4, 5]
    assert start.w["scale"].tolist() == [2]
    assert set(start.m) == {"h.0.weight"}
    assert set(start.v) == set()
    assert state.last_step == 42
    assert state.gradients(42, nothing).values["h.0.bias"].tolist() == [1, 2, 3]
    with pytest.raises(EndOfSourceError, match="step 43; it has those of step 42"):
        state.gradients(43, nothing)


def test_gradients_of_several_steps_are_told_apart(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.safetensors",
        {"w/a": [1.0, 2.0], "g@12/a": [5.0, 6.0], "g@11/a": [3.0, 4.0], "w/b": [0.0]},
        t="10",
    )
    state = StateFile(path)
    assert state.last_step == 12
    assert (state.has_step(11), state.has_step(13)) == (True, False)
    assert state.gradients(11, nothing).values["a"].tolist() == [3, 4]
    assert state.gradients(12, nothing).values["a"].tolist() == [5, 6]
    # What has no gradient in a step has gradient 0 in it.
    assert set(state.gradients(11, nothing).values) == {"a"}
    assert "gradients of 2 steps" in state.description


def test_every_half_and_bfloat16_is_widened_exactly(tmp_path: Path) -> None:
    """huggingface/safetensors#598: all 65,536 patterns of both; numpy knows no bfloat16."""
    every = np.arange(65_536, dtype=np.uint16)
    half = every.view(np.float16)
    path = write(tmp_path / "s.safetensors", {"w/half": half, "w/brain": every, "g/half": half})
    w = StateFile(path).initial_state().w
    exponent, mantissa = (every >> 10) & 31, every & 1023
    sign = np.where(every >> 15, -1.0, 1.0)
    normal = np.ldexp(1 + mantissa / 1024, exponent.astype(int) - 15)
    by_hand = sign * np.where(exponent == 0, np.ldexp(mantissa / 1024, -14), normal)
    finite = exponent < 31
    assert np.array_equal(w["half"][finite].astype(np.float64), by_hand[finite])
    assert np.array_equal(np.isnan(w["half"]), np.isnan(half))
    assert np.array_equal(np.isinf(w["half"]), (exponent == 31) & (mantissa == 0))
    assert np.array_equal(np.signbit(w["half"]), (every >> 15) == 1)
    assert np.array_equal(w["brain"].view(np.uint32), every.astype(np.uint32) << 16)


def test_bfloat16_of_three_known_values(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0x4049, 0xC2F7], np.uint16)
    path = write(tmp_path / "s.safetensors", {"w/a": bits, "g/a": [0.0, 0.0, 0.0]})
    assert StateFile(path).initial_state().w["a"].tolist() == [1.0, 3.140625, -123.5]


def test_signalling_nans_keep_their_bits_through_reading_and_writing(tmp_path: Path) -> None:
    raw = np.array([0x7F800001, 0xFF800001, 0x7FC00000, 0xFFFFFFFF, 0x80000000, 1], np.uint32)
    path = write(tmp_path / "s.safetensors", {"w/a": raw.view(np.float32), "g/a": raw.view(np.float32)})
    state = StateFile(path)
    w = state.initial_state().w["a"]
    assert w.view(np.uint32).tolist() == raw.tolist()
    out = tmp_path / "out.safetensors"
    write_state(out, state.params, {"w": {"a": w}}, finished_steps=1, hyper=Hyper(), stats=None)
    assert load_file(out)["w/a"].view(np.uint32).tolist() == raw.tolist()


@given(
    shapes=st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=5),
    decays=st.lists(st.booleans(), min_size=5, max_size=5),
    steps=st.integers(0, 10**6),
    hyper=st.builds(Hyper, *[st.floats(width=32)] * 6),
)
@settings(deadline=None, max_examples=60)
def test_what_is_written_reads_back_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    shapes: list[tuple[int, ...]],
    decays: list[bool],
    steps: int,
    hyper: Hyper,
) -> None:
    path = tmp_path_factory.mktemp("s") / "s.safetensors"
    params = tuple(Param(f"p{i}", s, d) for i, (s, d) in enumerate(zip(shapes, decays, strict=False)))
    rng = np.random.default_rng(steps)
    lanes = {
        lane: {p.name: rng.integers(0, 2**32, p.numel, dtype=np.uint32).view(np.float32) for p in params}
        for lane in "wgmv"
    }
    write_state(
        path, params, lanes, finished_steps=steps, hyper=hyper, stats=GradStats(float(np.float32(0.1)), 1.0)
    )
    state = StateFile(path)
    assert {(p.name, p.shape, p.block) for p in state.params} == {(p.name, p.shape, p.block) for p in params}
    np.testing.assert_equal(asdict(state.hyper), asdict(hyper))
    start = state.initial_state()
    assert start.finished_steps == steps
    for lane, values in (("w", start.w), ("m", start.m), ("v", start.v)):
        for p in params:
            assert values[p.name].tobytes() == lanes[lane][p.name].tobytes()
    for p in params:
        assert state.gradients(steps + 1, nothing).values[p.name].tobytes() == lanes["g"][p.name].tobytes()
    metadata = TensorFile(path).metadata
    assert (metadata["gradNorm"], metadata["clipScale"]) == ("0.1", "1.0")


def test_no_decay_overrides_the_usual_split_and_names_what_is_there(tmp_path: Path) -> None:
    tensors = {"w/a": [[1.0]], "g/a": [[1.0]], "w/b": [1.0], "w/c": [[1.0]]}
    state = StateFile(write(tmp_path / "s", tensors, no_decay="a, c"))
    assert {p.name: p.block for p in state.params} == {"a": "no_wd", "b": "wd", "c": "no_wd"}
    assert {p.block for p in StateFile(write(tmp_path / "t", tensors, no_decay="")).params} == {"wd"}
    with pytest.raises(UsageError, match="no_decay names 'x'"):
        StateFile(write(tmp_path / "u", tensors, no_decay="a,x"))


@pytest.mark.parametrize("name", ["a,b", " padded ", ",", "naïve/✓", "a\nb"])
def test_any_name_survives_writing(tmp_path: Path, name: str) -> None:
    path = tmp_path / "s.safetensors"
    params = (Param(name, (2,)), Param("w", (1, 2)))
    lanes = {"w": {p.name: np.ones(2, np.float32) for p in params}}
    lanes["g"] = lanes["w"]
    write_state(path, params, lanes, finished_steps=0, hyper=Hyper(), stats=None)
    assert {(p.name, p.block) for p in StateFile(path).params} == {(name, "no_wd"), ("w", "wd")}


@pytest.mark.parametrize(
    ("metadata", "hyper"),
    [
        ({"lr": "-1"}, Hyper(lr=-1.0)),
        ({"beta2": "2"}, Hyper(beta2=2.0)),
        ({"eps": "0"}, Hyper(eps=0.0)),
        ({"max_grad_norm": "-Infinity"}, Hyper(max_grad_norm=-np.inf)),
    ],
)
def test_odd_settings_are_taken_as_they_stand(tmp_path: Path, metadata: Any, hyper: Hyper) -> None:
    assert StateFile(write(tmp_path / "s", SMALL, **metadata)).hyper == hyper


# --- what is refused


@pytest.mark.parametrize(
    ("tensors", "metadata", "words"),
    [
        ({"g/a": [1.0]}, {}, "holds no weights"),
        ({"w/a": [1.0]}, {}, "holds no gradients"),
        ({"w/a": [1.0], "g/b": [1.0]}, {}, "'g/b' but no 'w/b'"),
        ({"w/a": [1.0], "g/a": [1.0], "m/b": [1.0]}, {}, "'m/b' but no 'w/b'"),
        ({"w/a": [1.0, 2.0], "g/a": [1.0]}, {}, r"'g/a' has the shape \[1\]"),
        ({"w/a": [[1.0]], "g/a": [1.0]}, {}, r"'g/a' has the shape \[1\]"),
        ({"w/a": [1.0], "g@0/a": [1.0]}, {}, "count from 1"),
        ({"w/a": [1.0], "g@2147483648/a": [1.0]}, {}, "step 2147483648"),
        ({"w/a": [1.0], "g@x/a": [1.0]}, {}, "no place in a state file"),
        ({"w/a": [1.0], "g/a": [1.0], "m@3/a": [1.0]}, {}, "no place in a state file"),
        ({"w/a": [1.0], "g/a": [1.0], "weight": [1.0]}, {}, "no place in a state file"),
        ({"w/a": [1.0], "g/a": [1.0], "w/": [1.0]}, {}, "no place in a state file"),
        (SMALL, {"t": "-1"}, "t is '-1'"),
        (SMALL, {"t": "1.5"}, "t is '1.5'"),
        (SMALL, {"t": "9" * 5000}, "number of finished steps"),
        (SMALL, {"lr": "fast"}, "lr is 'fast', which is not a number"),
        (SMALL, {"beta1": ""}, "beta1 is '', which is not a number"),
    ],
)
def test_a_file_that_makes_no_state_is_refused_by_name(
    tmp_path: Path, tensors: Any, metadata: Any, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        StateFile(write(tmp_path / "s", tensors, **metadata))


def test_moments_that_would_fit_another_param_are_said_to(tmp_path: Path) -> None:
    """pytorch/pytorch#1489: state keyed by position."""
    z = np.zeros
    path = write(
        tmp_path / "s",
        {
            "w/a": z((3, 2), np.float32), "w/b": z((4, 3), np.float32), "g/a": z((3, 2), np.float32),
            "m/a": z((4, 3), np.float32), "m/b": z((3, 2), np.float32),
        },
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"'m/a' has the shape \[4, 3\].*\[3, 2\].*would fit 'w/b'"):
        StateFile(path)


@pytest.mark.parametrize("dtype", ["F64", "I32", "F8_E4M3"])
def test_a_type_that_is_no_float_of_16_or_32_bits_is_named(tmp_path: Path, dtype: str) -> None:
    size = {"F64": 8, "I32": 4, "F8_E4M3": 1}[dtype]
    header = {"w/a": entry(dtype, [1], 0, size), "g/a": entry("F32", [1], size, size + 4)}
    path = tmp_path / "s"
    path.write_bytes(file_bytes(header, bytes(size + 4)))
    state = StateFile(path)
    with pytest.raises(UsageError, match=f"'w/a' is {dtype}; give float32"):
        state.initial_state()


GOOD = file_bytes(*header_and_data({"w/a": np.float32([1, 2, 3]), "g/a": np.float32([1, 2, 3])}))


@pytest.mark.parametrize("cut", range(1, len(GOOD) + 1))
def test_a_file_cut_off_at_any_byte_is_refused(tmp_path: Path, cut: int) -> None:
    """osaurus-ai/vmlx-swift PR#217: a truncated file maps as zeros."""
    path = tmp_path / "s"
    path.write_bytes(GOOD[: len(GOOD) - cut])
    words = f"{cut:,} bytes are missing" if cut <= 24 else "cut off|its header alone takes 8"
    with pytest.raises(UsageError, match=words):
        StateFile(path)


@pytest.mark.parametrize("extra", [1, 4, 8, 1000])
def test_a_file_with_bytes_too_many_is_refused(tmp_path: Path, extra: int) -> None:
    """huggingface/safetensors#414."""
    path = tmp_path / "s"
    path.write_bytes(GOOD + bytes(extra))
    with pytest.raises(UsageError, match=f"{extra:,} bytes too many"):
        StateFile(path)


def f32(shape: list[int], start: int = 0, stop: int = 4) -> dict[str, Any]:
    return entry("F32", shape, start, stop)


def both(w: dict[str, Any], g: dict[str, Any], nbytes: int, name: str = "a", step: str = "") -> bytes:
    return file_bytes({f"w/{name}": w, f"g{step}/{name}": g}, bytes(nbytes))


def one(item: Any, nbytes: int = 4) -> bytes:
    return file_bytes({"w/a": item}, bytes(nbytes))


HUGE = [0, 2**62, 2**62]
HOSTILE: list[tuple[str, bytes, str]] = [
    ("header longer than the file", (1 << 40).to_bytes(8, "little") + b"{}", "header would take"),
    ("no JSON", file_bytes(None, raw=b"hello"), "not valid JSON"),
    ("not UTF-8", file_bytes(None, raw=b'{"\xff": 1}'), "not valid JSON"),
    ("a list", file_bytes([]), "no JSON object"),
    ("nested too deep", file_bytes(None, raw=b"[" * 200_000), "too deep|not valid JSON"),
    ("a name twice", file_bytes(None, raw=b'{"a": 1, "a": 2}'), "twice"),
    ("metadata no strings", file_bytes({"__metadata__": {"t": 1}}), "map names to strings"),
    ("metadata a list", file_bytes({"__metadata__": []}), "map names to strings"),
    ("entry a number", one(3), "entry of tensor 'w/a' is not valid"),
    ("no dtype", one({"shape": [1], "data_offsets": [0, 4]}), "not valid"),
    ("dtype a list", one({"dtype": [], "shape": [1], "data_offsets": [0, 4]}), "not valid"),
    ("three offsets", one({"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}), "not valid"),
    ("unknown dtype", one(entry("Q4", [1], 0, 4)), "not valid"),
    ("negative extent", one(f32([-1, -1])), "not valid"),
    ("extent true", one(f32([True])), "not valid"),
    ("extent a float", one(f32([1.0])), "not valid"),  # type: ignore[list-item]
    ("offsets backwards", one(f32([0], 4, 0)), "damaged"),
    ("size and shape apart", one(f32([3])), "needs 12 bytes"),
    ("shape beyond memory", one(f32([2**40, 2**40])), "not valid"),
    ("an integer nobody can read", file_bytes(None, raw=b'{"w/a": ' + b"9" * 5000 + b"}"), "not valid JSON"),
    ("extents of thousands of digits", one(f32([10**4000] * 3)), "not valid"),
    ("70 dimensions", both(f32([1] * 70), f32([1] * 70, 4, 8), 8), "not valid"),
    ("nothing, but huge", both(f32(HUGE, 0, 0), f32(HUGE, 0, 0), 0), "not valid"),
    ("overlap", both(f32([1]), f32([1], 2, 6), 6), "does not start"),
    ("hole", both(f32([1]), f32([1], 8, 12), 12), "does not start"),
    ("half a character", both(f32([1]), f32([1], 4, 8), 8, name="\ud800"), "not valid"),
    ("a step of 5000 digits", both(f32([1]), f32([1], 4, 8), 8, step="@" + "9" * 5000), "no place"),
]


@pytest.mark.parametrize(("content", "words"), [h[1:] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
def test_a_hostile_header_is_refused_in_a_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "s.safetensors"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        StateFile(path).initial_state()


@given(data=st.binary(max_size=60), at=st.integers(0, 200), flip=st.integers(1, 255))
@settings(deadline=None, max_examples=300)
def test_any_bytes_are_refused_or_read_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int, flip: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    damaged = bytearray(GOOD)
    damaged[at % len(GOOD)] ^= flip
    for content in (data, len(data).to_bytes(8, "little") + data, bytes(damaged)):
        path.write_bytes(content)
        try:
            state = StateFile(path)
            state.initial_state()
            state.gradients(state.last_step or 0, nothing)
        except UsageError:
            pass


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"PK\x03\x04", r"PyTorch archive \(.pt\).*torch.load.*save_file"),
        (b"\x93NUMPY\x01\x00", "numpy array file"),
        (b"GGUF\x03\x00\x00\x00", "GGUF model"),
        (b"SQLite format 3\x00", "SQLite database"),
    ],
)
def test_another_programs_file_is_told_by_its_first_bytes(tmp_path: Path, start: bytes, words: str) -> None:
    """deepmodeling/deepmd-kit PR#4147: a checkpoint is never unpickled."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(start + bytes(40))
    with pytest.raises(UsageError, match=words):
        StateFile(path)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("value", [None, {"w": [1.0, 2.0]}], ids=["short", "long"])
def test_a_pickle_is_told_apart_from_a_header_that_begins_like_one(
    tmp_path: Path, protocol: int, value: Any
) -> None:
    r"""\x80\x03 begins a pickle, and the length of a header of 896 bytes as well."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(value, protocol))
    with pytest.raises(UsageError, match=r"Python pickle.*can run code"):
        StateFile(path)
    header, data = header_and_data({"w/a": np.float32([1]), "g/a": np.float32([2])})
    raw = json.dumps(header).encode().ljust(256 * protocol + 128)
    path.write_bytes(file_bytes(None, data, raw=raw))
    assert path.read_bytes()[:2] == bytes([0x80, protocol])
    assert StateFile(path).initial_state().w["a"].tolist() == [1]


def test_a_folder_and_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        StateFile(tmp_path)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        StateFile(tmp_path / "absent")


# --- writing


def test_a_file_that_cannot_be_written_is_said_so_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write_tensors(tmp_path / "no" / "s", {"a": np.ones(1, np.float32)}, {})
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        write_tensors(target, {"a": np.ones(1, np.float32)}, {})
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_a_new_file_has_the_rights_the_umask_gives(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_tensors(tmp_path / "s", {"a": np.ones(1, np.float32)}, {})
    finally:
        os.umask(old)
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
def test_a_kill_in_the_middle_of_writing_leaves_the_old_file(tmp_path: Path) -> None:
    """The new content is written beside the old file and takes its place at once."""
    path = tmp_path / "s.safetensors"
    write_tensors(path, {"w/a": np.float32([1, 2])}, {"t": "1"})
    before = path.read_bytes()
    script = textwrap.dedent(
        """
        import os, signal, sys
        from pathlib import Path
        import numpy as np
        from inspector.session import tensorfile

        def killed(tensors, name, metadata):
            Path(name).write_bytes(b"half a file")
            assert Path(sys.argv[1]).read_bytes()
            os.kill(os.getpid(), signal.SIGKILL)

        tensorfile.save_file = killed
        tensorfile.write_tensors(Path(sys.argv[1]), {"w/a": np.zeros(9, np.float32)}, {})
        """
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    write_tensors(path, {"w/a": np.float32([3])}, {"t": "2"})
    assert load_file(path)["w/a"].tolist() == [3]


@pytest.mark.skipif(sys.platform == "win32", reason="a mapped file cannot be replaced there")
def test_a_file_that_is_being_read_can_be_written_over(tmp_path: Path) -> None:
    """As `run STATE --out STATE` does: what was mapped stays as it was."""
    path = write(tmp_path / "s.safetensors", SMALL)
    w = StateFile(path).initial_state().w["a"]
    write_tensors(path, {"w/a": np.float32([[7, 8]]), "g/a": np.float32([[9, 9]])}, {})
    assert w.tolist() == [1, 2]
    assert StateFile(path).initial_state().w["a"].tolist() == [7, 8]


def test_a_gradient_given_by_number_goes_before_the_buffer(tmp_path: Path) -> None:
    path = write(tmp_path / "s", {"w/a": [1.0], "g@3/a": [5.0], "g@4/a": [6.0], "g/a": [0.0]}, t="2")
    source = StateFile(path)
    assert [float(source.gradients(t, dict).values["a"][0]) for t in (3, 4)] == [5.0, 6.0]  # type: ignore[arg-type]
    assert sorted(source.later_gradients(3)) == ["g@4/a"]
    assert source.waiting_gradients()["a"] == [0.0]


def test_params_without_gradients_are_said(tmp_path: Path) -> None:
    path = write(tmp_path / "s", {"w/a": [1.0], "w/b": [1.0], "g/a": [1.0]})
    assert "none for 1 params" in StateFile(path).description


@pytest.mark.parametrize("t", ["1_000", "٣", "-1", "2147483647", "1.0", "9" * 40, " "])
def test_a_counter_that_is_no_plain_number_is_refused(tmp_path: Path, t: str) -> None:
    path = write(tmp_path / "s", {"w/a": [1.0], "g/a": [1.0]}, t=t)
    with pytest.raises(UsageError, match="from 0 to 2147483646"):
        StateFile(path)


@pytest.mark.parametrize("lr", ["1_0", "١", "0x1p3"])
def test_a_setting_that_is_no_plain_number_is_refused(tmp_path: Path, lr: str) -> None:
    path = write(tmp_path / "s", {"w/a": [1.0], "g/a": [1.0]}, lr=lr)
    with pytest.raises(UsageError, match="not a number"):
        StateFile(path)
