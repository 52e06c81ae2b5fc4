"""Runs a plan on the host, exactly, to see which elements its dispatches touch and what its norm adds up.

Written from the contract of the kernels (KERNEL lines below), not from the code that makes plans. Values are
small whole numbers in float64, so every sum is exact and an element counted twice or never shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from inspector.plan import Binding, Dispatch, Plan

GROUP = 256
F32 = 4


@dataclass
class Run:
    """Buffers by name, in elements, as the plan left them; `updates` counts the updates of each page's element."""

    buffers: dict[str, npt.NDArray[np.float64]]
    updates: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    decayed: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)


def interpret(plan: Plan, gradients: npt.NDArray[np.float64]) -> Run:
    """Run every dispatch in order on `gradients` (one value an element of the mega-buffer, gaps zero)."""
    run = Run({b.name: np.zeros(-(-b.size // F32)) for b in plan.buffers})
    pages = plan.layout.pages
    for page in pages:
        name = "g" if len(pages) == 1 else f"g[{page.index}]"
        run.buffers[name][:] = gradients[page.start : page.stop]
    # What an earlier step left behind: what a dispatch does not clear or overwrite, it must not count.
    run.buffers["norm_sq"][:] = 1e9
    for dispatch in plan.dispatches:
        for clear in dispatch.clears:
            _at(run, clear)[:] = 0
        if dispatch.kernel.endswith("adamw_update"):
            _update(run, plan, dispatch)
        elif dispatch.kernel == "reduce_norm_sq_final":
            _by_slot(run, dispatch)[1][0] = _by_slot(run, dispatch)[0][: _constant(plan, dispatch, 2)].sum()
        elif dispatch.entry_point == "reduce_norm_sq":
            _reduce(run, plan, dispatch)
    return run


def _reduce(run: Run, plan: Plan, dispatch: Dispatch) -> None:
    data, result = (_by_slot(run, dispatch)[slot] for slot in (0, 1))
    n = _constant(plan, dispatch, 2)
    groups = math.prod(dispatch.groups)
    squares = data[:n] ** 2
    if dispatch.kernel.startswith("published/"):
        # KERNEL: one thread an element, no loop.
        result[0] += squares[: groups * GROUP].sum()
        return
    # KERNEL: threads stride over vec4s; a group owns those whose number, by threads, falls on it.
    owner = (np.arange(n) // 4) % (groups * GROUP) // GROUP
    shares = np.bincount(owner, weights=squares, minlength=groups)
    if dispatch.kernel == "reduce_norm_sq_atomic":
        result[0] += shares.sum()
    else:
        result[:groups] = shares


def _update(run: Run, plan: Plan, dispatch: Dispatch) -> None:
    binding = next(b for b in dispatch.bindings if b.slot == 0)
    n = _constant(plan, dispatch, 5)
    threads = math.prod(dispatch.groups) * GROUP
    reached = threads if dispatch.kernel.startswith("published/") else 4 * threads
    first = binding.offset // F32
    touched = slice(first, first + min(n, reached))
    size = len(run.buffers[binding.buffer])
    counts = run.updates.setdefault(binding.buffer, np.zeros(size, np.int64))
    counts[touched] += 1
    decayed = run.decayed.setdefault(binding.buffer, np.zeros(size, np.int64))
    hp = next(b for b in dispatch.bindings if b.slot == 6)
    decayed[touched] += plan.uniform_at[hp.offset].key == "hp:wd"


def _at(run: Run, binding: Binding) -> npt.NDArray[np.float64]:
    return run.buffers[binding.buffer][binding.offset // F32 : binding.stop // F32]


def _by_slot(run: Run, dispatch: Dispatch) -> dict[int, npt.NDArray[np.float64]]:
    return {b.slot: _at(run, b) for b in dispatch.bindings if b.access != "uniform"}


def _constant(plan: Plan, dispatch: Dispatch, slot: int) -> int:
    binding = next(b for b in dispatch.bindings if b.slot == slot)
    value = plan.uniform_at[binding.offset].constant
    assert value is not None
    return value


def whole_lane(plan: Plan, by_page: dict[str, npt.NDArray[np.int64]], lane: str) -> npt.NDArray[np.int64]:
    """A lane's pages joined to one array over the mega-buffer; zeros for a page nothing was done to."""
    pages = plan.layout.pages
    names = [lane if len(pages) == 1 else f"{lane}[{page.index}]" for page in pages]
    parts = [
        by_page.get(name, np.zeros(page.stop - page.start, np.int64))
        for name, page in zip(names, pages, strict=True)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
