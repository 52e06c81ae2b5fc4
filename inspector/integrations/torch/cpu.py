"""Counting on the CPU: a param a stretch after the other that the caches hold, small ones together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
    largest_word,
    ordered,
)
from inspector.integrations.torch.small import count_small
from inspector.param_statistics import F16_INFINITE, F16_ZERO
from inspector.stores import LANES

STRETCH = 3 << 13
"""Elements at a time: four lanes and what is worked out of them stay in the caches. PyTorch does not share fewer than
32,768 out among threads, which take whole params here: where another program uses the cores as well, threads that wait
for each other after every operation took ten times as long."""
SMALL = 1 << 10
"""A param of fewer elements is counted together with others."""
SHARED = 1 << 18
"""A param of fewer elements is not worth another thread: they would wait for the interpreter's lock."""


def count(tasks: Sequence[Task]) -> Counted:
    """The statistics of `tasks`, whose tensors are on the CPU; in the same order."""
    counted = Counted.zeros(len(tasks))
    small = [i for i, task in enumerate(tasks) if task.w.numel() < SMALL]
    if small:
        together = count_small([tasks[i] for i in small])
        counted.records[small], counted.bins[small] = together.records, together.bins
    large = [i for i, task in enumerate(tasks) if task.w.numel() >= SHARED]
    large.sort(key=lambda i: -tasks[i].w.numel())
    left = iter(large)

    def work() -> None:
        scratch = _Scratch()
        # A step of an iterator over a list is one of the interpreter's, so no param is taken twice.
        for i in left:
            _count(tasks[i], counted.records[i], counted.bins[i], scratch)

    scratch = _Scratch()
    for i, task in enumerate(tasks):
        if SMALL <= task.w.numel() < SHARED:
            _count(task, counted.records[i], counted.bins[i], scratch)
    threads = min(torch.get_num_threads(), len(large))
    if threads < 2:
        work()
        return counted
    # They end with the step: a script that is done finds none of them.
    with ThreadPoolExecutor(threads - 1, "inspector-counting") as pool:
        others = [pool.submit(torch.no_grad()(work)) for _ in range(threads - 1)]
        work()
    for other in others:
        other.result()
    return counted


class _Scratch:
    """Memory for one stretch, used again and again."""

    def __init__(self) -> None:
        self.ints = torch.empty(STRETCH, dtype=torch.int32)
        self.exponents = torch.empty(STRETCH, dtype=torch.uint8)
        self.wide = torch.empty(STRETCH, dtype=torch.float64)
        self.a, self.b, self.c = (torch.empty(STRETCH, dtype=torch.float32) for _ in range(3))


def _count(task: Task, record: Array, bins: Array, scratch: _Scratch) -> None:
    lanes = [None if lane is None else in_memory_order(lane) for lane in (*task.lanes, task.v_max)]
    numel = task.w.numel()
    factor = task.sign / (1.0 if task.scale is None else float(task.scale))
    update = _Update(task)
    with np.errstate(all="ignore"):
        for start in range(0, numel, STRETCH):
            stop = min(start + STRETCH, numel)
            parts: list[Tensor | None] = [
                None if lane is None else lane[start:stop].to(torch.float32) for lane in lanes
            ]
            if factor != 1.0 and parts[1] is not None:
                parts[1] = parts[1] * factor
            for number in range(len(LANES)):
                values = parts[number]
                if values is None:
                    _zeros(record["lanes"][number], stop - start)
                else:
                    _count_lane(values, start, record["lanes"][number], bins[number], scratch)
            update.add(parts, start, record, scratch)


def _zeros(record: Array, numel: int) -> None:
    record["zeros"] += np.uint64(numel)
    zero = ordered(np.zeros(1, np.float32))[0]
    # -0 is below 0 in that order, and is what the least of zeros with its sign changed comes to.
    record["low"], record["high"] = max(record["low"], zero), max(record["high"], zero)


def _count_lane(values: Tensor, start: int, record: Array, bins: Array, scratch: _Scratch) -> None:
    size = values.numel()
    ints, exponents = scratch.ints[:size], scratch.exponents[:size]
    torch.bitwise_right_shift(values.view(torch.int32), 23, out=ints)
    ints.bitwise_and_(ALL_BINS - 1)
    exponents.copy_(ints)
    counts = torch.bincount(exponents, minlength=ALL_BINS).numpy()
    bad = int(counts[-1])
    if bad:
        _count_nonfinite(values, start, record)
        values = torch.where(ints == ALL_BINS - 1, torch.zeros((), dtype=torch.float32), values)
    # Zeros and denormals share an exponent.
    zeros = size - bad - int(torch.count_nonzero(values)) if counts[0] else 0
    bins += counts.astype(np.uint32)
    bins[0] -= np.uint32(zeros)
    bins[-1] = 0
    record["zeros"] += np.uint64(zeros)
    record["squares"] += _sum_of_squares(values, scratch)
    if bad == size:
        return
    if bad:
        values = values[ints != ALL_BINS - 1]
    low, high = torch.aminmax(values)
    least, most = ordered(np.array([-float(low), float(high)], np.float32))
    record["low"], record["high"] = max(record["low"], least), max(record["high"], most)


def _count_nonfinite(values: Tensor, start: int, record: Array) -> None:
    where = torch.isfinite(values).logical_not_()
    kinds = values[where]
    record["nan"] += np.uint64(int(torch.isnan(kinds).sum()))
    record["posinf"] += np.uint64(int(torch.isposinf(kinds).sum()))
    record["neginf"] += np.uint64(int(torch.isneginf(kinds).sum()))
    first = start + int(where.to(torch.uint8).argmax())
    record["first"] = max(record["first"], ~np.uint64(first))


class _Update:
    """The update to come of one param, in float32 as PyTorch computes it."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._lr = task.lr if task.lr_tensor is None else float(task.lr_tensor)
        t = task.t if task.step_tensor is None else float(task.step_tensor) + 1.0
        self._first = correction(task.beta1, t)
        self._second = correction(task.beta2, t)

    def add(self, parts: Sequence[Tensor | None], start: int, record: Array, scratch: _Scratch) -> None:
        """What it does to a stretch of w, g, m, v and the largest v."""
        task, (w, g, m, v, v_max) = self._task, parts
        if not task.adam or w is None:
            return
        if task.idle:
            _half(w, record, scratch)
            return
        size = w.numel()
        a, b, c = scratch.a[:size], scratch.b[:size], scratch.c[:size]
        zero: Any = torch.zeros((), dtype=torch.float32)
        grad = zero.expand(size) if g is None else g
        if task.l2 and task.decay:
            grad = torch.add(grad, w, alpha=task.decay, out=c)
        # a = √v̂, b = m̂/(√v̂ + ε)
        torch.mul(grad, grad, out=a).mul_(1 - task.beta2)
        if v is not None:
            a.add_(v, alpha=task.beta2)
        if v_max is not None:
            torch.maximum(a, v_max, out=a)
        a.mul_(self._second)
        root = a.numpy()
        np.sqrt(root, out=root)
        torch.mul(grad, 1 - task.beta1, out=b)
        if m is not None:
            b.add_(m, alpha=task.beta1)
        record["below_eps"] += np.uint64(int((a < task.eps).sum()))
        b.mul_(self._first).div_(a.add_(task.eps))
        if task.decay and not task.l2:
            b.add_(w, alpha=task.decay)
        change = torch.mul(b, self._lr, out=a)
        total = _sum_of_squares(change, scratch)
        if not math.isfinite(total):
            fine = torch.isfinite(change)
            record["skipped"] += np.uint64(size - int(fine.sum()))
            b = torch.where(fine & torch.isfinite(b), b, zero)
            change = torch.where(fine, change, zero)
            total = _sum_of_squares(change, scratch)
        record["moved"] += total
        b.abs_()
        largest = float(b.max())
        if largest > 0:
            # Of equals the first; only the best stretch is looked through.
            word = largest_word(largest, start)
            if word > record["largest"]:
                word = largest_word(largest, start + int(b.argmax()))
                record["largest"] = max(record["largest"], word)
        after = torch.sub(w, change, out=b)
        kind = task.w.dtype
        if kind != torch.float32:
            after = after.to(kind).to(torch.float32)
        same = after == w
        if bool(same.any()):
            record["lost"] += np.uint64(int(same.logical_and_(change != 0).sum()))
        _half(after, record, scratch)


def correction(beta: float, t: float) -> float:
    """1/(1 - βᵗ); infinite before the first step."""
    rest = 1.0 - beta**t
    return 1.0 / rest if rest else math.inf


def _sum_of_squares(values: Tensor, scratch: _Scratch) -> float:
    wide = scratch.wide[: values.numel()]
    wide.copy_(values)
    # By numpy alone: MKL and OpenBLAS share even a few thousand out among threads.
    squares = wide.numpy()
    return float(np.einsum("i,i->", squares, squares))


def _half(after: Tensor, record: Array, scratch: _Scratch) -> None:
    """Weights that half precision cannot hold."""
    size = torch.abs(after, out=scratch.c[: after.numel()])
    largest = float(size.max())
    if not largest < float(F16_INFINITE):
        record["f16_overflows"] += np.uint64(
            int(((size >= float(F16_INFINITE)) & torch.isfinite(size)).sum())
        )
    tiny = size <= float(F16_ZERO)
    if bool(tiny.any()):
        record["f16_underflows"] += np.uint64(int(tiny.logical_and_(size > 0).sum()))
