"""Folders of torch.distributed.checkpoint: weights and moments as PyTorch has them, and no code of theirs run."""

from __future__ import annotations

import os
import pickle
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.errors import UsageError
from inspector.integrations.torch_files import load_pickled
from inspector.progress import watched
from inspector.sources.open import open_source

torch = pytest.importorskip("torch")

import torch_runs as runs  # noqa: E402

dcp = pytest.importorskip("torch.distributed.checkpoint")


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Any, Any]:
    """A model and its AdamW after three steps, saved as people do in one process."""
    from torch.distributed.checkpoint.state_dict import get_state_dict

    torch.manual_seed(0)
    model = runs.Net()
    optimizer = torch.optim.AdamW(runs.split(model), lr=3e-3, betas=(0.8, 0.95))
    runs.train(model, optimizer, range(1, 4))
    weights, state = get_state_dict(model, optimizer)
    path = tmp_path / "checkpoint"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"model": weights, "optimizer": state, "step": 3}, checkpoint_id=path)
    return path, model, optimizer


def opened(path: Path) -> Any:
    return open_source(str(path), load_pickled=load_pickled)


def test_the_opening_says_how_far_it_is(saved: tuple[Path, Any, Any]) -> None:
    told: list[float] = []
    with watched(lambda done, of: told.append(done / of)):
        opened(saved[0])
    assert len(told) > 4
    assert told == sorted(told)


def test_weights_moments_and_settings_are_those_of_the_run(saved: tuple[Path, Any, Any]) -> None:
    path, model, optimizer = saved
    source = opened(path)
    assert source.finished_steps == 3
    assert (source.hyper.lr, source.hyper.beta1, source.hyper.beta2) == (3e-3, 0.8, 0.95)
    state = source.initial_state()
    named = dict(model.named_parameters())
    # The format knows no ties: the embedding is in it under both of its names.
    shapes = {"head.weight": tuple(model.head.weight.shape)} | {n: tuple(p.shape) for n, p in named.items()}
    assert {param.name: param.shape for param in source.params} == shapes
    assert any("head.weight had no place in the optimizer" in remark for remark in source.remarks)
    for name, param in named.items():
        kept = optimizer.state[param]
        for lane, tensor in (("w", param), ("m", kept["exp_avg"]), ("v", kept["exp_avg_sq"])):
            found = np.asarray(getattr(state, lane)[name]).reshape(-1)
            np.testing.assert_array_equal(found, tensor.detach().numpy().reshape(-1), f"{lane} of {name}")
    decays = {param.name: param.block for param in source.params}
    assert decays["mix.weight"] == "wd"
    assert decays["mix.bias"] == "no_wd"


def test_a_file_of_it_stands_for_the_whole(saved: tuple[Path, Any, Any]) -> None:
    path, *_ = saved
    part = next(each for each in path.iterdir() if each.suffix == ".distcp")
    assert {param.name for param in opened(part).params} == {param.name for param in opened(path).params}


def test_parts_that_are_missing_or_cut_off_are_named(saved: tuple[Path, Any, Any]) -> None:
    path, *_ = saved
    part = next(each for each in path.iterdir() if each.suffix == ".distcp")
    content = part.read_bytes()
    part.write_bytes(content[: len(content) // 2])
    with pytest.raises(UsageError, match=r"distcp is cut off: '[\w.]+' ends at byte"):
        opened(path)
    part.unlink()
    (path / "other.distcp").touch()
    with pytest.raises(UsageError, match=r"lacks the file .*distcp, which holds '"):
        opened(path)
    (path / ".metadata").unlink()
    with pytest.raises(UsageError, match=r"its index \.metadata is missing"):
        opened(path)


def test_a_folder_whose_parts_are_all_missing_is_a_checkpoint_that_lacks_them(
    saved: tuple[Path, Any, Any],
) -> None:
    path, _, _ = saved
    for part in path.glob("*.distcp"):
        part.unlink()
    with pytest.raises(UsageError, match=r"__0_0\.distcp"):
        opened(path).initial_state()


def test_a_state_dict_that_was_saved_as_it_is_keeps_positions_as_text(tmp_path: Path) -> None:
    """Without get_state_dict(), which names params: PyTorch flattens {"state": {0: …}} to the key "0"."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(3):
        model(torch.ones(5, 3)).square().sum().backward()
        optimizer.step()
    path = tmp_path / "checkpoint"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint_id=path)
    source = opened(path)
    assert source.finished_steps == 3
    state = source.initial_state()
    for name, param in model.named_parameters():
        np.testing.assert_array_equal(state.m[name], optimizer.state[param]["exp_avg"].numpy().ravel())


@pytest.mark.parametrize("keep", [0, 1, 40, 300])
def test_a_damaged_index_is_refused(saved: tuple[Path, Any, Any], keep: int) -> None:
    path, *_ = saved
    index = path / ".metadata"
    index.write_bytes(index.read_bytes()[:keep])
    with pytest.raises(UsageError, match=r"empty|damaged"):
        opened(path)


def test_values_that_are_damaged_are_refused_as_they_are_read(saved: tuple[Path, Any, Any]) -> None:
    path, *_ = saved
    part = next(each for each in path.iterdir() if each.suffix == ".distcp")
    part.write_bytes(bytes(part.stat().st_size))
    with pytest.raises(UsageError, match="damaged"):
        opened(path).initial_state()


class _Harmful:
    """Makes a folder as it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def test_no_code_of_an_index_is_run(saved: tuple[Path, Any, Any], tmp_path: Path) -> None:
    path, *_ = saved
    harm = tmp_path / "harm"
    (path / ".metadata").write_bytes(pickle.dumps(_Harmful(harm)))
    with pytest.raises(UsageError, match=r"holds posix\.mkdir, which is no part of an index|holds nt\.mkdir"):
        opened(path)
    assert not harm.exists()


def test_no_code_of_a_value_is_run(tmp_path: Path) -> None:
    """A value that is no tensor may be any object: it is left aside."""
    path, harm = tmp_path / "checkpoint", tmp_path / "harm"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"model": {"a.weight": torch.ones(3, 4)}, "extra": _Harmful(harm)}, checkpoint_id=path)
    assert [param.name for param in opened(path).params] == ["a.weight"]
    assert not harm.exists()


def test_an_index_that_points_elsewhere_is_refused(saved: tuple[Path, Any, Any]) -> None:
    path, *_ = saved
    index = path / ".metadata"
    content = index.read_bytes()
    assert b"\x0c__0_0.distcp" in content
    index.write_bytes(content.replace(b"\x0c__0_0.distcp", b"\x0c../../passwd"))
    with pytest.raises(UsageError, match="does not lie beside it"):
        opened(path)


def test_low_precision_weights_are_widened(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    value = torch.randn(5, 7).to(torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"model": {"a.weight": value}}, checkpoint_id=path)
    found = opened(path).initial_state().w["a.weight"]
    np.testing.assert_array_equal(np.asarray(found).reshape(5, 7), value.float().numpy())


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        ("torchao.optim.subclass_8bit", "OptimState8bit", "low-bit optimizer of torchao.*dequantize"),
        (
            "deepspeed.runtime.fp16.loss_scaler",
            "LossScaler",
            "DeepSpeed checkpoint.*safe_get_full_optimizer_state",
        ),
    ],
)
def test_states_of_other_makers_are_named_with_a_way_to_save_them(
    module: str, name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = types.ModuleType(module)
    kind = type(name, (), {"__module__": module})
    setattr(made, name, kind)
    with monkeypatch.context() as patch:
        for depth in range(module.count(".")):
            package = ".".join(module.split(".")[: depth + 1])
            patch.setitem(sys.modules, package, types.ModuleType(package))
        patch.setitem(sys.modules, module, made)
        torch.save({"model": {"a": torch.ones(2)}, "state": kind()}, tmp_path / "state.pt")
    with pytest.raises(UsageError, match=rf"holds {module}.{name}, .*{words}"):
        opened(tmp_path / "state.pt")
