"""The small checkpoints of tests/checkpoints, and files made on the spot in which programs keep weights and states."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.integrations.torch_files import load_pickled
from inspector.sources.checkpoint.source import Checkpoint
from inspector.sources.open import open_source
from inspector.tensor_tree import StoredTensor, TensorDocument

FOLDER = Path(__file__).parent / "checkpoints"
Expected = dict[str, dict[str, Any]]


def needs_torch() -> Any:
    """PyTorch, or the test is skipped."""
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def opened(*files: Path | str, seed: int = 0) -> Checkpoint:
    """The checkpoint that the files are together."""
    source = open_source("+".join(map(str, files)), seed=seed, load_pickled=load_pickled)
    assert isinstance(source, Checkpoint)
    return source


def expected(name: str) -> Expected:
    """What the program that saved the file says that it holds, by lane and name."""
    found: Expected = {}
    with np.load(FOLDER / f"{name}.expected.npz") as stored:
        for key in stored.files:
            lane, _, param = key.partition(" ")
            found.setdefault(lane, {})[param] = stored[key]
    return found


def stored(value: Any, dtype: str | None = None) -> StoredTensor:
    """A tensor as a loader gives it."""
    array = np.asarray(value, None if isinstance(value, np.ndarray) else np.float32)
    kinds = {"float32": "F32", "float64": "F64", "uint8": "U8", "int64": "I64", "bool": "BOOL"}
    return StoredTensor(array.shape, dtype or kinds[array.dtype.name], lambda: array)


def adam(shapes: Sequence[tuple[int, ...]], *, step: Any = 3, **settings: Any) -> dict[str, Any]:
    """A state_dict() of Adam over params of these shapes; m is 1 + the number of the param, v its square."""
    return {
        "state": {
            i: {
                "step": step,
                "exp_avg": stored(np.full(shape, i + 1.0, np.float32)),
                "exp_avg_sq": stored(np.full(shape, (i + 1.0) ** 2, np.float32)),
            }
            for i, shape in enumerate(shapes)
        },
        "param_groups": [{"lr": 1e-3, "params": list(range(len(shapes))), **settings}],
    }


def weights(**shapes: tuple[int, ...]) -> dict[str, StoredTensor]:
    """Weights of 1 in these shapes."""
    return {name.replace("__", "."): stored(np.ones(shape, np.float32)) for name, shape in shapes.items()}


def loaded(tmp_path: Path, *trees: Any, seed: int = 0, ordered: bool = True) -> Checkpoint:
    """What files with these trees are together, as though PyTorch had loaded them."""
    paths = [tmp_path / f"{'abcdef'[i]}.pt" for i in range(len(trees))]
    by_path = dict(zip(paths, trees, strict=True))
    for path in paths:
        path.write_bytes(b"PK\x05\x06" + bytes(18))
    return Checkpoint(
        "made", paths, lambda path: TensorDocument(path, "PyTorch", by_path[path], ordered), seed=seed
    )
