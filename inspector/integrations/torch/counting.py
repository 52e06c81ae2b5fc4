"""Statistics of every param right before its update, counted where the tensors are: what is asked for and what comes.

Three ways give the same figures: a kernel of its own in one pass (`kernel.py`, CUDA and ROCm), whole params one after
the other (`cpu.py`, small ones together in `small.py`), and rows of many params at once (`rows.py`: other devices).
All elements are counted, none sampled; a histogram is of every finite element that is not 0, by its exponent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from inspector.layout import BlockName
from inspector.param_statistics import LaneColumns, ParamTable, UpdateColumns
from inspector.statistics import BINS
from inspector.stores import LANES

Tensor = Any
Array = npt.NDArray[Any]

LANE = np.dtype(
    [(name, "<u8") for name in ("nan", "posinf", "neginf", "zeros", "first", "low", "high")]
    + [("squares", "<f8")]
)
"""What is counted of a lane: `first` is ~index of the first element that is not finite, 0 where all are; `low` and
`high` the least and greatest finite element as `ordered` puts it, the least with its sign changed, 0 where there is
none; `squares` the sum of the squares of the finite ones."""
RECORD = np.dtype(
    [
        ("lanes", LANE, (len(LANES),)),
        ("moved", "<f8"),
        ("largest", "<u8"),
        *((name, "<u8") for name in ("below_eps", "lost", "skipped", "f16_overflows", "f16_underflows")),
    ]
)
"""What is counted of a param, and of the update to come: the sum of its squares, the largest |Δw|/lr (its float32 in
the upper half, ~index in the lower), and elements as in `UpdateStats`. 0 is "none" everywhere."""
WORDS = RECORD.itemsize // 8
ALL_BINS = 256
"""Of the exponents; the last is of what is not finite, and stays empty."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A param to be counted: tensors of one shape that lie alike in memory, all dense; None is zeros.

    `t` is the step count that this step is to the param. `lr` is what `lr_tensor` holds, where that is None; so is `t`
    of `step_tensor`, which holds the count of the steps before. The gradients are multiplied by `sign`, and divided by
    what `scale` holds. Where `unless_finite` is on a GPU and holds a finite number, its counts may be left at 0. `adam`
    says that the update is known to be Adam's, `l2` that its decay is part of the gradient, `v_max` is there with
    amsgrad. An `idle` param is not updated.
    """

    w: Tensor
    g: Tensor | None
    m: Tensor | None = None
    v: Tensor | None = None
    v_max: Tensor | None = None
    lr: float = 0.0
    beta1: float = 0.0
    beta2: float = 0.0
    eps: float = 0.0
    decay: float = 0.0
    t: float = 1.0
    lr_tensor: Tensor | None = None
    step_tensor: Tensor | None = None
    scale: Tensor | None = None
    unless_finite: Tensor | None = None
    sign: float = 1.0
    adam: bool = True
    l2: bool = False
    idle: bool = False

    @property
    def lanes(self) -> tuple[Tensor | None, ...]:
        """w, g, m and v."""
        return self.w, self.g, self.m, self.v


def gradient_alone(task: Task) -> Task:
    """Of the gradient alone: what it is counted beside costs nothing more."""
    lane = task.w if task.g is None else task.g
    return replace(task, w=lane, m=None, v=None, v_max=None, adam=False)


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Counts of many params: RECORD[params], and uint32[params, 4, 256] by exponent."""

    records: Array
    bins: Array

    @classmethod
    def zeros(cls, count: int) -> Counted:
        """Nothing counted yet."""
        return cls(np.zeros(count, RECORD), np.zeros((count, len(LANES), ALL_BINS), np.uint32))


def ordered(values: Array) -> Array:
    """float32 as uint64 in the order of the numbers, above 0 for every finite one."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits | np.uint32(0x8000_0000)).astype(np.uint64)


def from_ordered(values: Array) -> Array:
    """The float32 that `ordered` made `values` of, as float64; NaN for 0."""
    small = values.astype(np.uint32)
    bits = np.where(small >> 31, small & np.uint32(0x7FFF_FFFF), ~small)
    with np.errstate(invalid="ignore"):
        return np.where(small == 0, np.nan, bits.view(np.float32).astype(np.float64))


def largest_word(size: float, index: int) -> np.uint64:
    """The word of the largest update, `size` being a float32; 0 where that is 0."""
    if not size > 0:
        return np.uint64(0)
    return np.uint64(int(np.float32(size).view(np.uint32)) << 32 | (0xFFFF_FFFF - index))


def table_of(
    counted: Counted,
    names: tuple[str, ...],
    blocks: tuple[BlockName, ...],
    numel: Sequence[int] | Array,
    offsets: Sequence[int] | Array,
    strides: Sequence[tuple[tuple[int, ...], tuple[int, ...]] | None],
) -> ParamTable:
    """The table of all that was counted; `offsets` is where each param lies in the mega-buffers.

    `strides` has shape and strides of params that do not lie in memory as their elements are numbered.
    """
    at = np.asarray(offsets, np.int64)
    low, high = (from_ordered(counted.records["lanes"][name]) for name in ("low", "high"))
    lanes = {}
    for number, lane in enumerate(LANES):
        records = counted.records["lanes"][:, number]
        exponents = np.ascontiguousarray(counted.bins[:, number, :BINS])
        first = np.where(records["first"] != 0, ~records["first"], np.uint64(0)).astype(np.int64)
        lanes[lane] = LaneColumns(
            nan=records["nan"].astype(np.int64),
            posinf=records["posinf"].astype(np.int64),
            neginf=records["neginf"].astype(np.int64),
            first=np.where(records["first"] != 0, _numbered(first, strides) + at, -1),
            zeros=records["zeros"].astype(np.int64),
            low=-low[:, number] + 0.0,
            high=high[:, number].copy(),
            norm=np.sqrt(records["squares"]),
            exponents=exponents,
        )
    largest = counted.records["largest"]
    size = (largest >> np.uint64(32)).astype(np.uint32).view(np.float32).astype(np.float64)
    index = (np.uint64(0xFFFF_FFFF) - (largest & np.uint64(0xFFFF_FFFF))).astype(np.int64)
    whole = {
        name: counted.records[name].astype(np.int64)
        for name in ("below_eps", "lost", "skipped", "f16_overflows", "f16_underflows")
    }
    update = UpdateColumns(
        norm=np.sqrt(counted.records["moved"]),
        largest=size,
        largest_at=np.where(largest != 0, _numbered(index, strides) + at, -1),
        **whole,
    )
    return ParamTable(names, blocks, np.asarray(numel, np.int64), MappingProxyType(lanes), update)


def _numbered(places: Array, strides: Sequence[tuple[tuple[int, ...], tuple[int, ...]] | None]) -> Array:
    """Places in memory as the numbers of the elements there."""
    found = places.copy()
    if not any(strides):
        return found
    for row, each in enumerate(strides):
        if each is not None:
            found[row] = numbered(int(places[row]), *each)
    return found


def numbered(place: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """The number of the element that lies `place` elements after the first, in a dense tensor of those strides."""
    index = [0] * len(shape)
    for axis in sorted(range(len(shape)), key=lambda a: -strides[a]):
        if shape[axis] > 1:
            index[axis], place = divmod(place, strides[axis])
    number = 0
    for axis, extent in enumerate(shape):
        number = number * extent + index[axis]
    return number


def is_dense(tensor: Tensor) -> bool:
    """True where its elements fill a range of memory, in whatever order."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def in_memory_order(tensor: Tensor) -> Tensor:
    """A dense tensor as a flat view of the memory that it fills."""
    return torch.as_strided(tensor, (tensor.numel(),), (1,), tensor.storage_offset())
