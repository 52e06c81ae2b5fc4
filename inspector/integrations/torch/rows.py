"""Counting many params at once with the operations of PyTorch alone: as rows of one length, filled up with NaN.

Nothing here waits for the device: what is worked out stays there until `Rows.host` is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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

LENGTHS = (32, 128, 1024, 8192)
"""Of rows: a param takes one of the least length that holds it, or several of the longest."""
BATCH = 1 << 24
"""Elements at a time."""
_SUMS = ("nan", "posinf", "neginf", "zeros", "squares")
_UPDATE = ("moved", "below_eps", "lost", "skipped", "f16_overflows", "f16_underflows")


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What was counted of some params, on their device: a column for each figure, a row for each param.

    `real` has sums, least and greatest, `places` first non-finite elements and the word of the largest update, `bins`
    the histograms.
    """

    numbers: tuple[Array, ...]
    real: tuple[Tensor, ...]
    places: tuple[Tensor, ...]
    bins: tuple[Tensor, ...]

    def host(self, fetch: Any = None) -> Counted:
        """All of it on the host, in the order of the tasks; `fetch` copies a tensor, waiting for it."""
        fetch = fetch or (lambda tensor: tensor.cpu().numpy())
        counted = Counted.zeros(sum(len(each) for each in self.numbers))
        for numbers, real, places, bins in zip(self.numbers, self.real, self.places, self.bins, strict=True):
            _decode(counted, numbers, fetch(real), fetch(places), fetch(bins))
        return counted

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything that has to be copied."""
        return (*self.real, *self.places, *self.bins)


def _decode(counted: Counted, numbers: Array, real: Array, places: Array, bins: Array) -> None:
    records = np.zeros(len(numbers), counted.records.dtype)
    width = len(_SUMS) + 2
    for lane in range(len(LANES)):
        columns = real[:, lane * width : (lane + 1) * width]
        target = records["lanes"][:, lane]
        for at, name in enumerate(_SUMS):
            target[name] = columns[:, at]
        low, high = columns[:, -2], columns[:, -1]
        some = low <= high
        with np.errstate(over="ignore", invalid="ignore"):
            target["low"] = np.where(some, ordered(-np.where(some, low, 0).astype(np.float32)), 0)
            target["high"] = np.where(some, ordered(np.where(some, high, 0).astype(np.float32)), 0)
        first = places[:, lane]
        target["first"] = np.where(first != _NOWHERE, ~first.astype(np.uint64), np.uint64(0))
    for at, name in enumerate(_UPDATE):
        records[name] = real[:, len(LANES) * width + at]
    records["largest"] = places[:, len(LANES)].astype(np.uint64)
    counted.records[numbers] = records
    counted.bins[numbers] = bins.reshape(len(numbers), len(LANES), ALL_BINS)


_NOWHERE = np.iinfo(np.int64).max


def count_rows(tasks: Sequence[Task], device: Any) -> Rows:
    """The statistics of `tasks`, whose tensors are on `device`."""
    parts: list[list[Any]] = [[], [], [], []]
    for numbers in _batches([task.w.numel() for task in tasks], BATCH):
        batch = _Batch([tasks[i] for i in numbers], device)
        for target, made in zip(parts, (np.array(numbers), *batch.counted()), strict=True):
            target.append(made)
    return Rows(*(tuple(part) for part in parts))


def _length(numel: int) -> int:
    return next((length for length in LENGTHS if numel <= length), LENGTHS[-1])


def _batches(sizes: Sequence[int], most: int) -> Iterator[list[int]]:
    """Numbers of params whose rows have one length; a param is never cut."""
    for length in LENGTHS:
        batch: list[int] = []
        filled = 0
        for number, size in enumerate(sizes):
            if _length(size) != length:
                continue
            padded = max(-(-size // length), 1) * length
            if batch and filled + padded > most:
                yield batch
                batch, filled = [], 0
            batch.append(number)
            filled += padded
        if batch:
            yield batch


class _Batch:
    """Some params as rows."""

    def __init__(self, tasks: Sequence[Task], device: Any) -> None:
        self.tasks = tasks
        self.device = device
        sizes = [task.w.numel() for task in tasks]
        self.length = _length(max(sizes))
        counts = np.array([max(-(-size // self.length), 1) for size in sizes])
        self.pads = [int(count) * self.length - size for count, size in zip(counts, sizes, strict=True)]
        owner = np.repeat(np.arange(len(tasks)), counts)
        first_row = np.cumsum(counts) - counts
        starts = (np.arange(len(owner)) - first_row[owner]) * self.length
        filled = np.minimum(np.array(sizes)[owner] - starts, self.length)
        self.alone = len(owner) == len(tasks)
        """True where every param is one row."""
        self.wide = torch.float32 if device.type == "mps" else torch.float64
        self._numbers = torch.from_numpy(np.stack((owner, starts, filled))).to(device, non_blocking=True)
        self.owner, self.starts, self.filled = self._numbers.unbind(0)
        self.nan = torch.full((max(self.pads, default=0) or 1,), float("nan"), device=device)
        self.index = torch.arange(self.length, device=device)
        self.zero = torch.zeros((), device=device)

    def counted(self) -> tuple[Tensor, Tensor, Tensor]:
        lanes = [self._matrix([task.lanes[lane] for task in self.tasks]) for lane in range(len(LANES))]
        lanes[1] = lanes[1] * self._settings()[:, 0:1]
        real: list[Tensor] = []
        places: list[Tensor] = []
        bins: list[Tensor] = []
        for values in lanes:
            sums, low, high, first, counts = self._lane(values)
            real += [*(self._sum(each) for each in sums), self._least(low), -self._least(-high)]
            places.append(self._least(first))
            bins.append(self._sum(counts))
        sums, word = self._update(lanes)
        real += [self._sum(each) for each in sums]
        places.append(-self._least(-word))
        return torch.stack(real, 1), torch.stack(places, 1), torch.stack(bins, 1)

    # --- inner parts

    def _matrix(self, tensors: Sequence[Tensor | None]) -> Tensor:
        """float32[rows, length], NaN beyond each param."""
        longest = max((t.w.numel() for t, g in zip(self.tasks, tensors, strict=True) if g is None), default=0)
        zeros = torch.zeros(longest, device=self.device)
        parts: list[Tensor] = []
        for task, tensor, pad in zip(self.tasks, tensors, self.pads, strict=True):
            parts.append(zeros[: task.w.numel()] if tensor is None else in_memory_order(tensor))
            if pad:
                parts.append(self.nan[:pad])
        return torch.cat(parts).to(torch.float32).view(-1, self.length)

    def _settings(self) -> Tensor:
        """float32[rows, 9]: what the gradient is multiplied by, lr, 1-β₁, β₁, β₂, ε, λ, the two bias corrections."""
        host = np.array(
            [(t.sign, t.lr, t.beta1, t.beta2, t.eps, t.decay, t.t) for t in self.tasks], np.float64
        ).reshape(-1, 7)
        wide = torch.from_numpy(host).to(self.wide).to(self.device, non_blocking=True)
        sign, lr, beta1, beta2, eps, decay, t = wide.unbind(1)
        lr = self._given(lr, [task.lr_tensor for task in self.tasks])
        t = self._given(t, [task.step_tensor for task in self.tasks], plus=1.0)
        scale = self._given(torch.ones_like(sign), [task.scale for task in self.tasks])
        columns = (
            sign / scale, lr, 1 - beta1, beta1, beta2, eps, decay,
            1 / (1 - beta1**t), 1 / (1 - beta2**t),
        )  # fmt: skip
        return torch.stack(columns, 1).to(torch.float32)[self.owner]

    def _given(self, values: Tensor, tensors: Sequence[Tensor | None], *, plus: float = 0.0) -> Tensor:
        """`values`, with what is held in a tensor in its place."""
        known = [i for i, tensor in enumerate(tensors) if tensor is not None]
        if not known:
            return values
        held = torch.cat([t.reshape(1).to(self.device, self.wide) for t in tensors if t is not None]) + plus
        return values.index_put((torch.tensor(known, device=self.device),), held)

    def _lane(self, values: Tensor) -> tuple[list[Tensor], Tensor, Tensor, Tensor, Tensor]:
        exponents = (values.view(torch.int32) >> 23) & (ALL_BINS - 1)
        finite = exponents != ALL_BINS - 1
        none = values == 0
        infinite = float("inf")
        only = torch.where(finite, values, self.zero)
        sums = [
            torch.isnan(values).sum(1) - (self.length - self.filled),
            (values == infinite).sum(1),
            (values == -infinite).sum(1),
            none.sum(1),
            only.to(self.wide).square_().sum(1),
        ]
        low = torch.where(finite, values, infinite).amin(1)
        high = torch.where(finite, values, -infinite).amax(1)
        at = torch.where(finite, self.length, self.index).amin(1)
        first = torch.where(at < self.filled, at + self.starts, _NOWHERE)
        chosen = torch.where(finite & ~none, exponents, ALL_BINS - 1).to(torch.int64)
        counts = torch.zeros(len(values), ALL_BINS, dtype=torch.int32, device=self.device)
        one = torch.ones((), dtype=torch.int32, device=self.device)
        counts.scatter_add_(1, chosen, one.expand(chosen.shape))
        counts[:, -1] = 0
        return [each.to(self.wide) for each in sums], low.to(self.wide), high.to(self.wide), first, counts

    def _update(self, lanes: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        w, g, m, v = lanes
        _, lr, rest1, beta1, beta2, eps, decay, first, second = self._settings().unbind(1)
        lr, rest1, beta1, beta2, eps, decay, first, second = (
            each.unsqueeze(1) for each in (lr, rest1, beta1, beta2, eps, decay, first, second)
        )
        l2 = self._flags([task.l2 for task in self.tasks])
        moves = self._flags([task.adam and not task.idle for task in self.tasks])
        adam = self._flags([task.adam for task in self.tasks])
        inside = self.index < self.filled.unsqueeze(1)
        grad = g + torch.where(l2, decay * w, self.zero)
        v = beta2 * v + (1 - beta2) * grad * grad
        if any(task.v_max is not None for task in self.tasks):
            v = torch.fmax(v, self._matrix([task.v_max for task in self.tasks]))
        root = (v * second).sqrt_()
        each = (rest1 * grad + beta1 * m) * first / (root + eps) + torch.where(l2, self.zero, decay * w)
        change = lr * each
        here = inside & moves
        fine = torch.isfinite(change) & here
        moved = torch.where(fine, change, self.zero)
        size = torch.where(fine & torch.isfinite(each), each.abs(), self.zero)
        after = w - moved
        kinds = [task.w.dtype for task in self.tasks]
        for kind in set(kinds) - {torch.float32}:
            after = torch.where(
                self._flags([k == kind for k in kinds]), after.to(kind).to(after.dtype), after
            )
        magnitude = torch.where(
            torch.isfinite(after) & inside & adam & ~(here & ~fine), after.abs(), self.zero
        )
        sums = [
            moved.to(self.wide).square_().sum(1),
            ((root < eps) & here).sum(1),
            ((after == w) & (moved != 0) & torch.isfinite(w)).sum(1),
            (here & ~fine).sum(1),
            (magnitude >= float(F16_INFINITE)).sum(1),
            ((magnitude > 0) & (magnitude <= float(F16_ZERO))).sum(1),
        ]
        most, at = size.max(1)
        bits = most.view(torch.int32).to(torch.int64)
        word = (bits << 32) | (0xFFFF_FFFF - (at + self.starts))
        word = torch.where(most > 0, word, 0)
        return [each.to(self.wide) for each in sums], word

    def _flags(self, values: Sequence[bool]) -> Tensor:
        return torch.tensor(values, device=self.device)[self.owner].unsqueeze(1)

    def _sum(self, rows: Tensor) -> Tensor:
        """What rows come to, added up by param."""
        if self.alone:
            return rows
        shape = (len(self.tasks), *rows.shape[1:])
        return torch.zeros(shape, dtype=rows.dtype, device=self.device).index_add_(0, self.owner, rows)

    def _least(self, rows: Tensor) -> Tensor:
        if self.alone:
            return rows
        start = torch.full((len(self.tasks),), _NOWHERE, dtype=torch.int64, device=self.device)
        if rows.dtype != torch.int64:
            start = torch.full((len(self.tasks),), float("inf"), dtype=rows.dtype, device=self.device)
        return start.scatter_reduce_(0, self.owner, rows, "amin")
