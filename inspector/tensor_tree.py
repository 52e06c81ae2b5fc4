"""What a file of tensors holds, whatever program wrote it: names and nesting at once, values once they are used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.floats import F32Array

FLOAT_TYPES = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"})
MAX_DEPTH = 32
"""Deeper nesting is left aside."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A tensor in a file. `dtype` as safetensors names it, or as its program does where safetensors has no name.

    `read` gives the values in their shape, read-only: float32 for all float types but F64, which stays float64; whole
    numbers as they are. `memory` is equal for tensors that share their elements (ties).
    """

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], npt.NDArray[Any]]
    memory: object = None

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        """True for types that weights, gradients and moments have."""
        return self.dtype in FLOAT_TYPES

    def flat(self) -> F32Array:
        """The values as float32, flat, read-only; what float64 holds beyond it is rounded."""
        with np.errstate(all="ignore"):
            values: F32Array = np.asarray(self.read()).reshape(-1).astype(np.float32, copy=False)
        values.flags.writeable = False
        return values

    def number(self) -> float | None:
        """The value of a tensor whose elements are all one finite number, None for any other."""
        if not 1 <= self.numel <= 1 << 20:
            return None
        values = np.asarray(self.read()).reshape(-1)
        if values.dtype.kind not in "fiu" or not np.isfinite(values).all() or (values != values[0]).any():
            return None
        return float(values[0])


Tree = Any
"""A mapping or a sequence of trees, a `StoredTensor`, or a plain value: None, bool, int, float, str."""


@dataclass(frozen=True, slots=True)
class TensorDocument:
    """A file as a tree. `format` is for people; `ordered` says whether names stand in the order of the model."""

    path: Path
    format: str
    tree: Tree
    ordered: bool


def leaves(tree: Tree, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], StoredTensor]]:
    """Every tensor with the keys that lead to it, in order."""
    if isinstance(tree, StoredTensor):
        yield prefix, tree
    elif len(prefix) < MAX_DEPTH:
        for key, child in children(tree):
            yield from leaves(child, (*prefix, key))


def children(tree: Tree) -> Iterator[tuple[str, Tree]]:
    """What is directly in a mapping or a sequence, by key or position as text; nothing of anything else."""
    if isinstance(tree, Mapping):
        for key, child in tree.items():
            yield str(key), child
    elif isinstance(tree, Sequence) and not isinstance(tree, (str, bytes)):
        for i, child in enumerate(tree):
            yield str(i), child


def number_of(value: Tree) -> float | None:
    """A number that may be kept as a plain one or as a tensor; None where it is neither."""
    if isinstance(value, StoredTensor):
        return value.number()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return None
