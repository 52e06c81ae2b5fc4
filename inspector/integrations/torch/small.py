"""Counting small params on the CPU, all of them laid end to end, with numpy: on one thread, a few passes in all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from inspector.integrations.torch.counting import (
    ALL_BINS,
    Array,
    Counted,
    Task,
    Tensor,
    in_memory_order,
    ordered,
)
from inspector.param_statistics import F16_INFINITE, F16_ZERO
from inspector.stores import LANES

F32 = np.float32


def count_small(tasks: Sequence[Task]) -> Counted:
    """The statistics of `tasks`, whose tensors are on the CPU; in the same order."""
    counted = Counted.zeros(len(tasks))
    filled = [i for i, task in enumerate(tasks) if task.w.numel()]
    if filled:
        with np.errstate(all="ignore"):
            laid = _Laid([tasks[i] for i in filled])
            records, bins = laid.counted()
        counted.records[filled], counted.bins[filled] = records, bins
    return counted


class _Laid:
    """Params end to end, none of them empty."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = tasks
        sizes = np.array([task.w.numel() for task in tasks])
        self.starts = np.cumsum(sizes) - sizes
        self.owner = np.repeat(np.arange(len(tasks)), sizes)
        self.index = np.arange(len(self.owner)) - self.starts[self.owner]

    def counted(self) -> tuple[Array, Array]:
        found = Counted.zeros(len(self.tasks))
        lanes = [self._laid([task.lanes[lane] for task in self.tasks]) for lane in range(len(LANES))]
        factor = [task.sign / (1.0 if task.scale is None else float(task.scale)) for task in self.tasks]
        if any(each != 1.0 for each in factor):
            lanes[1] = lanes[1] * self._each(factor)
        for number, values in enumerate(lanes):
            self._lane(values, found.records["lanes"][:, number], found.bins[:, number])
        self._update(lanes, found.records)
        return found.records, found.bins

    # --- inner parts

    def _laid(self, tensors: Sequence[Tensor | None]) -> Array:
        """float32[elements] of all params; zeros where there is no tensor."""
        return np.concatenate(
            [
                np.zeros(task.w.numel(), F32)
                if tensor is None
                else in_memory_order(tensor).to(torch.float32).numpy()
                for task, tensor in zip(self.tasks, tensors, strict=True)
            ]
        )

    def _each(self, values: Sequence[float] | Array) -> Array:
        """A number a param as float32[elements]."""
        return np.array(values, np.float64).astype(F32)[self.owner]

    def _sum(self, values: Array) -> Array:
        """What the elements of each param come to."""
        wide = np.float64 if values.dtype.kind == "f" else np.uint64
        return np.add.reduceat(values, self.starts, dtype=wide)

    def _lane(self, values: Array, record: Array, bins: Array) -> None:
        exponent = (values.view(np.uint32) >> np.uint32(23)) & np.uint32(ALL_BINS - 1)
        finite = exponent != ALL_BINS - 1
        zero = values == 0
        record["zeros"] = self._sum(zero)
        only = values
        if not finite.all():
            record["nan"] = self._sum(np.isnan(values))
            record["posinf"] = self._sum(values == np.inf)
            record["neginf"] = self._sum(values == -np.inf)
            word = np.where(finite, np.uint64(0), ~self.index.astype(np.uint64))
            record["first"] = np.maximum.reduceat(word, self.starts)
            only = np.where(finite, values, F32(0))
        for name, signed in (("low", -values), ("high", values)):
            record[name] = np.maximum.reduceat(np.where(finite, ordered(signed), np.uint64(0)), self.starts)
        record["squares"] = self._sum(np.square(only.astype(np.float64)))
        key = self.owner[~zero] * ALL_BINS + exponent[~zero]
        bins[:] = np.bincount(key, minlength=bins.size).reshape(bins.shape)
        bins[:, -1] = 0

    def _update(self, lanes: Sequence[Array], records: Array) -> None:
        """In float32, as PyTorch computes it."""
        tasks, (w, g, m, v) = self.tasks, lanes
        t = [task.t if task.step_tensor is None else float(task.step_tensor) + 1.0 for task in tasks]
        lr = self._each([task.lr if task.lr_tensor is None else float(task.lr_tensor) for task in tasks])
        beta1, beta2 = np.array([task.beta1 for task in tasks]), np.array([task.beta2 for task in tasks])
        first, second = (self._each(1 / (1 - beta ** np.array(t))) for beta in (beta1, beta2))
        decay = self._each([task.decay for task in tasks])
        eps = self._each([task.eps for task in tasks])
        l2 = self._each([task.l2 for task in tasks]) != 0
        adam = np.array([task.adam for task in tasks])[self.owner]
        moves = np.array([task.adam and not task.idle for task in tasks])[self.owner]
        pull = decay * w
        grad = g + np.where(l2, pull, F32(0))
        v = self._each(beta2) * v + self._each(1 - beta2) * grad * grad
        if any(task.v_max is not None for task in tasks):
            v = np.fmax(v, self._laid([task.v_max for task in tasks]))
        root = np.sqrt(v * second)
        ratio = (self._each(1 - beta1) * grad + self._each(beta1) * m) * first / (root + eps)
        each = ratio + np.where(l2, F32(0), pull)
        change = lr * each
        fine = np.isfinite(change) & moves
        moved = np.where(fine, change, F32(0))
        after = self._stored(w - moved)
        records["moved"] = self._sum(np.square(moved.astype(np.float64)))
        records["below_eps"] = self._sum((root < eps) & moves)
        records["lost"] = self._sum((after == w) & (moved != 0) & np.isfinite(w))
        records["skipped"] = self._sum(moves & ~fine)
        size = np.where(fine & np.isfinite(each), np.abs(each), F32(0))
        word = (size.view(np.uint32).astype(np.uint64) << np.uint64(32)) | (
            np.uint64(0xFFFF_FFFF) - self.index.astype(np.uint64)
        )
        records["largest"] = np.maximum.reduceat(np.where(size > 0, word, np.uint64(0)), self.starts)
        there = adam & np.isfinite(after) & ~(moves & ~fine)
        magnitude = np.where(there, np.abs(after), F32(0))
        records["f16_overflows"] = self._sum(magnitude >= F16_INFINITE)
        records["f16_underflows"] = self._sum((magnitude > 0) & (magnitude <= F16_ZERO))

    def _stored(self, values: Array) -> Array:
        """What they become in the type of their param."""
        for kind, rounded in ((torch.bfloat16, _as_bfloat16), (torch.float16, _as_float16)):
            mine = [task.w.dtype == kind for task in self.tasks]
            if any(mine):
                values = np.where(np.array(mine)[self.owner], rounded(values), values)
        return values


def _as_bfloat16(values: Array) -> Array:
    """To the nearest, ties to even; what is not finite stays."""
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF_0000)
    return np.asarray(np.where(np.isfinite(values), rounded.view(F32), values))


def _as_float16(values: Array) -> Array:
    return np.asarray(values.astype(np.float16), F32)
