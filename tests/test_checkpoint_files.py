"""Files that are no checkpoint, or a part of one: refused in a sentence, and no code of theirs run; very large ones."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_files import FOLDER, needs_torch, opened
from state_files import file_bytes, header_and_data

from inspector.errors import UsageError
from inspector.files import named_files
from inspector.integrations import torch_files
from inspector.layout import make_layout
from inspector.sources.open import open_source

PROJECT = Path(__file__).parent.parent
SMALL = {"a.weight": np.float32([[1, 2], [3, 4]]), "a.bias": np.float32([5, 6])}


def safetensors(path: Path, tensors: dict[str, Any], **metadata: str) -> Path:
    path.write_bytes(file_bytes(*header_and_data(tensors, metadata)))
    return path


class Trap:
    """A class whose unpickling would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def archive(path: Path, value: Any) -> Path:
    """What torch.save writes, without PyTorch."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(value, protocol=2))
        file.writestr("archive/version", "3\n")
        file.writestr("archive/byteorder", "little")
    return path


# --- no code of a file is run


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_with_a_class_of_its_own_is_refused_and_never_run(tmp_path: Path, zipped: bool) -> None:
    """deepmodeling/deepmd-kit PR#4147."""
    needs_torch()
    made = tmp_path / "made"
    document = {"model": {"w": 1.0}, "trap": Trap(made)}
    path = tmp_path / "model.pt"
    if zipped:
        archive(path, document)
    else:
        path.write_bytes(pickle.dumps(document, protocol=2))
    with pytest.raises(UsageError) as raised:
        opened(path)
    assert "holds pathlib." in str(raised.value)
    assert "would run code" in str(raised.value)
    assert not made.exists()


def test_a_model_that_was_saved_whole_is_refused_by_the_name_of_its_class(tmp_path: Path) -> None:
    needs_torch()
    import torch

    path = tmp_path / "whole.pt"
    torch.save(torch.nn.Linear(3, 3), path)
    with pytest.raises(UsageError) as raised:
        opened(path)
    assert str(raised.value).startswith(f"{path} holds torch.nn.modules.linear.Linear, which is no tensor")
    assert "add_safe" not in str(raised.value), "no advice of PyTorch's loader"


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "my_project.model.Config"])
def test_the_class_is_named(tmp_path: Path, name: str) -> None:
    needs_torch()
    module, _, word = name.rpartition(".")
    code = b"\x80\x02c" + module.encode() + b"\n" + word.encode() + b"\nX\x01\x00\x00\x00x\x85R."
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", code)
        file.writestr("archive/version", "3\n")
    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        opened(path)


def test_a_torchscript_archive_holds_a_program_and_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("model/data.pkl", b"")
        file.writestr("model/constants.pkl", b"")
    with pytest.raises(UsageError, match=r"TorchScript archive, which holds a program.*state_dict"):
        opened(path)


# --- damaged and renamed


def test_a_pytorch_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    needs_torch()
    whole = (FOLDER / "legacy.pt").read_bytes(), (FOLDER / "sgd.pt").read_bytes()
    path = tmp_path / "cut.pt"
    for content in whole:
        for cut in (*range(1, len(content), len(content) // 37), len(content) - 1):
            path.write_bytes(content[:cut])
            with pytest.raises(UsageError, match=r"cut\.pt"):
                opened(path)


def test_a_pytorch_file_with_a_flipped_byte_is_refused_or_read_and_nothing_else(tmp_path: Path) -> None:
    needs_torch()
    content = (FOLDER / "sgd.pt").read_bytes()
    path = tmp_path / "flipped.pt"
    for at in range(0, len(content), 61):
        damaged = bytearray(content)
        damaged[at] ^= 0x55
        path.write_bytes(damaged)
        try:
            source = opened(path)
            source.initial_state()
            source.gradients(source.finished_steps + 1, dict)
        except UsageError:
            pass


@pytest.mark.parametrize("suffix", [".pt", ".bin", ".safetensors"])
def test_an_empty_file_is_said_to_be(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.touch()
    with pytest.raises(UsageError, match=r"is empty: it has 0 bytes|has 0 bytes"):
        opened(path)


def test_a_pytorch_archive_under_another_name_is_said_to_be_one(tmp_path: Path) -> None:
    """huggingface/safetensors#414: how to open it as well."""
    path = tmp_path / "model.safetensors"
    path.write_bytes((FOLDER / "sgd.pt").read_bytes())
    with pytest.raises(UsageError, match=r"PyTorch archive.*ends in \.pt"):
        opened(path)


def test_safetensors_under_another_name_open(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "model.pt", SMALL)
    assert opened(path).initial_state().w["a.weight"].tolist() == [1, 2, 3, 4]


def test_a_header_that_begins_like_a_pickle_is_none(tmp_path: Path) -> None:
    """640 bytes of header: 0x80 0x02."""
    header, data = header_and_data(SMALL)
    text = json.dumps(header).encode()
    text += b" " * (640 - len(text))
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_bytes(None, data, raw=text))
    assert path.read_bytes()[:2] == b"\x80\x02"
    assert [p.name for p in opened(path).params] == ["a.weight", "a.bias"]


@pytest.mark.parametrize(("cut", "words"), [(5, "5 bytes are missing"), (-4, "4 bytes too many")])
def test_a_damaged_safetensors_file_says_by_how_much(tmp_path: Path, cut: int, words: str) -> None:
    """osaurus-ai/vmlx-swift PR#217, huggingface/safetensors#414."""
    path = safetensors(tmp_path / "model.safetensors", SMALL)
    content = path.read_bytes()
    path.write_bytes(content[:-cut] if cut > 0 else content + bytes(-cut))
    with pytest.raises(UsageError, match=words):
        opened(path)


def test_bfloat16_and_8_bit_floats_are_widened(tmp_path: Path) -> None:
    """huggingface/safetensors#598; E4M3 and E5M2 by hand: 1.75, -448, 2⁻⁹, NaN, 0, -1.5 and 1.25."""
    header: dict[str, Any] = {
        "b": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]},
        "e4": {"dtype": "F8_E4M3", "shape": [5], "data_offsets": [6, 11]},
        "e5": {"dtype": "F8_E5M2", "shape": [2], "data_offsets": [11, 13]},
    }
    data = np.uint16([0x3F80, 0x4049, 0xC2F7]).tobytes() + bytes([0x3E, 0xFE, 0x01, 0x7F, 0x80, 0xBE, 0x3D])
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_bytes(header, data))
    w = opened(path).initial_state().w
    assert w["b"].tolist() == [1.0, 3.140625, -123.5]
    np.testing.assert_array_equal(w["e4"], np.float32([1.75, -448, 2.0**-9, np.nan, 0]))
    assert w["e5"].tolist() == [-1.5, 1.25]


# --- shards, folders and several files


def index(folder: Path, places: Any) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return path


def test_a_missing_shard_is_named_with_what_it_holds(tmp_path: Path) -> None:
    safetensors(tmp_path / "model-00001-of-00002.safetensors", {"a": np.float32([1])})
    places = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    path = index(tmp_path, places)
    for named in (path, tmp_path):
        with pytest.raises(
            UsageError, match=r"shard model-00002-of-00002.safetensors, which is missing; it holds 'b'"
        ):
            opened(named)
    path.unlink()
    with pytest.raises(UsageError, match=r"one of 2 shards, and model-00002-of-00002.safetensors is missing"):
        opened(tmp_path / "model-00001-of-00002.safetensors")


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "sub/x.safetensors", "", ".."])
def test_an_index_cannot_name_files_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="does not lie beside it"):
        opened(index(tmp_path, {"a": name}))


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "[" * 9999]
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"no index of shards|not valid JSON"):
        opened(path)


def test_folders_without_a_checkpoint_say_what_they_lack(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no model\.safetensors"):
        opened(tmp_path)
    (tmp_path / "__0_0.distcp").touch()
    with pytest.raises(
        UsageError, match=r"distributed checkpoint that is incomplete: its index \.metadata is missing"
    ):
        opened(tmp_path)


@pytest.mark.parametrize("name", ["mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"])
def test_a_deepspeed_checkpoint_is_named_with_a_way_out(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(
        UsageError, match=r"DeepSpeed checkpoint.*zero_to_fp32\.py.*safe_get_full_optimizer_state"
    ):
        opened(tmp_path)


def test_names_with_a_plus_sign_and_files_joined_by_one_are_told_apart(tmp_path: Path) -> None:
    one, other = tmp_path / "a+b.safetensors", tmp_path / "c.safetensors"
    for path in (one, other):
        path.touch()
    assert named_files(str(one)) == (one,)
    assert named_files(f"{one}+{other}") == (one, other)
    assert named_files(f"{other}+{one}") == (other, one)
    assert named_files(f"{one}+nothing") == ()
    with pytest.raises(UsageError, match=r"names '.*nothing', which does not exist"):
        opened(other, tmp_path / "nothing")


def test_a_list_of_names_that_are_not_there_is_refused(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("a.bias\n\ngone\n")
    with pytest.raises(UsageError, match="list of names has 'gone'"):
        opened(safetensors(tmp_path / "m.safetensors", SMALL), names)
    names.write_text("a.bias\n")
    assert [p.name for p in opened(tmp_path / "m.safetensors", names).params] == ["a.bias", "a.weight"]


def test_a_state_file_stays_one(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "s.safetensors", {"w/a": np.float32([1]), "g/a": np.float32([2])})
    assert type(open_source(str(path))).__name__ == "StateFile"


# --- large


def test_the_layout_of_weights_that_no_memory_holds_is_there_at_once(tmp_path: Path) -> None:
    """A sparse file of 2 TB, one tensor of it 1 TB: reading any of it would take what there is not."""
    header = {
        "wte": {"dtype": "F32", "shape": [1 << 19, 1 << 19], "data_offsets": [0, 1 << 40]},
        "head": {"dtype": "BF16", "shape": [1 << 19, 1 << 20], "data_offsets": [1 << 40, 1 << 41]},
    }
    start = file_bytes(header)
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(start)
        try:
            file.truncate(len(start) + (1 << 41))
        except OSError:
            pytest.skip("this file system keeps no sparse file of 2 TB")
    layout = make_layout(opened(path).params)
    assert layout.elements == (1 << 38) + (1 << 39)
    assert [s.offset for s in layout] == [0, 1 << 38]


def test_5000_tensors_are_one_checkpoint(tmp_path: Path) -> None:
    torch = needs_torch()
    params = [torch.full((1 + i % 3,), float(i)) for i in range(5000)]
    for param in params:
        param.requires_grad_(True)
    adamw = torch.optim.AdamW(params)
    for param in params:
        param.grad = param.detach() + 1
    adamw.step()
    weights = {f"layer.{i}.p": param.detach() for i, param in enumerate(params)}
    path = tmp_path / "many.pt"
    torch.save({"model": weights, "optimizer": adamw.state_dict()}, path)
    source = opened(path)
    state = source.initial_state()
    assert len(source.params) == 5000
    # m = 0.1·g after the first step.
    for i in (0, 1, 1234, 4999):
        np.testing.assert_allclose(state.m[f"layer.{i}.p"], np.full(1 + i % 3, 0.1 * (i + 1)), rtol=1e-6)


# --- without PyTorch


def test_without_pytorch_the_extra_to_install_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"needed to read it and is not installed: pip install .*\[torch\]"):
        torch_files.load_pickled(FOLDER / "sgd.pt")


def test_pytorch_is_not_imported_for_what_needs_none(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "model.safetensors", SMALL)
    code = (
        "import sys; from inspector.cli import run; status = run(['layout', sys.argv[1], '--json']); "
        "assert 'torch' not in sys.modules, 'torch was imported'; sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["elements"] == 6
