"""One step of an optimizer as it happens: its params as tasks to be counted, and what has to be copied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from inspector.errors import InspectorError
from inspector.integrations.torch import cpu
from inspector.integrations.torch.counting import Array, Counted, Task, is_dense
from inspector.integrations.torch.kernel import KernelCounter, can_count, decode
from inspector.integrations.torch.params import Kind, Known
from inspector.integrations.torch.rows import Rows, count_rows
from inspector.integrations.torch.transfer import Transfer

Tensor = Any
Strides = tuple[tuple[int, ...], tuple[int, ...]] | None
_STATE_M = ("exp_avg", "momentum_buffer", "state1")
_STATE_V = ("exp_avg_sq", "square_avg", "sum", "state2")
"""Where optimizers of PyTorch and bitsandbytes keep what is nearest to m and v."""


@dataclass(slots=True, eq=False)
class Lanes:
    """w, g, m, v and the largest v of every param, as this process keeps them; None where there is none."""

    w: list[Tensor]
    g: list[Tensor | None]
    m: list[Tensor | None]
    v: list[Tensor | None]
    v_max: list[Tensor | None]
    steps: list[Tensor | None]
    """Step counts that are kept on the device."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A tensor of an optimizer's state: whose `key` it is, and the `part` of it that this process keeps."""

    owner: dict[str, Any]
    key: str
    whole: Tensor
    part: Tensor


def state_of(
    each: Known, w: Tensor, states: Any, kind: Kind
) -> tuple[Found | None, Found | None, Found | None, Found | None]:
    """m, v, the largest v, and a step count that is kept on the device, of a param that is `w` here."""
    state = states.get(each.param) or {}
    step = None
    if kind.adam:
        count = state.get("step")
        if isinstance(count, torch.Tensor) and count.device.type != "cpu":
            step = Found(state, "step", count, each.local(count))
    return (
        _like(each, w, state, _STATE_M),
        _like(each, w, state, _STATE_V),
        _like(each, w, state, ("max_exp_avg_sq",)) if kind.amsgrad else None,
        step,
    )


def without_moments(optimizer: Any, known: Sequence[Known], kind: Kind) -> str:
    """Of an optimizer that has run and keeps nothing that is like m or v: a sentence on what it does keep; else ""."""
    if kind.adam:
        return ""
    kept: set[str] = set()
    for each in known:
        m, v, *_ = state_of(each, each.local(each.param), optimizer.state, kind)
        if m is not None or v is not None:
            return ""
        state = optimizer.state.get(each.param) or {}
        kept |= {str(key) for key, value in state.items() if isinstance(value, torch.Tensor) and value.ndim}
    what = f"it keeps {', '.join(sorted(kept)[:8])}" if kept else "it keeps no tensors"
    return (
        f"{kind.name} keeps no m and v in floats of the shape of the params ({what}): both are recorded as 0"
    )


def lanes_of(optimizer: Any, known: Sequence[Known], kind: Kind, *, gradients: bool = True) -> Lanes:
    """The tensors of every param as they are now; nothing is copied."""
    lanes = Lanes([], [], [], [], [], [])
    for each in known:
        w = each.local(each.param)
        lanes.w.append(w)
        lanes.g.append(each.local(each.param.grad) if gradients else None)
        found = state_of(each, w, optimizer.state, kind)
        for lane, mine in zip((lanes.m, lanes.v, lanes.v_max, lanes.steps), found, strict=True):
            lane.append(None if mine is None else mine.part)
    return lanes


def _like(each: Known, w: Any, state: Any, names: Sequence[str]) -> Found | None:
    for name in names:
        whole = state.get(name)
        # Codes of 8 bits are no numbers.
        if isinstance(whole, torch.Tensor) and whole.is_floating_point():
            part = each.local(whole)
            if part is not None and part.shape == w.shape:
                return Found(state, name, whole, part)
    return None


def tasks_of(
    lanes: Lanes,
    known: Sequence[Known],
    groups: Sequence[dict[str, Any]],
    kind: Kind,
    t: npt.NDArray[np.int64],
    scale: Tensor | None,
    *,
    skipped: bool,
) -> tuple[list[Task], list[Strides]]:
    """What there is to count of each param; and shape and strides of those that do not lie in order."""
    settings = [settings_of(group) for group in groups]
    tasks: list[Task] = []
    strides: list[Strides] = []
    for number, each in enumerate(known):
        gradient = lanes.g[number]
        if gradient is not None and gradient.numel() != lanes.w[number].numel():
            raise InspectorError(
                f"The gradient of {each.name} has the shape {list(gradient.shape)} where this process keeps "
                f"{list(lanes.w[number].shape)} of the param: such a step cannot be recorded."
            )
        given = (lanes.w[number], gradient, lanes.m[number], lanes.v[number], lanes.v_max[number])
        tensors, stride = alike(given)
        w, g, m, v, v_max = tensors
        group = groups[each.group]
        tasks.append(
            Task(
                w, g, m, v, v_max,
                **settings[each.group],
                t=float(t[number]),
                step_tensor=lanes.steps[number],
                scale=scale if g is not None else None,
                sign=sign_of(group),
                adam=kind.adam,
                l2=kind.l2,
                idle=skipped or g is None,
            )
        )  # fmt: skip
        strides.append(stride)
    return tasks, strides


def gradients_of(
    known: Sequence[Known], groups: Sequence[dict[str, Any]], numbers: Sequence[int], norm: Tensor | None
) -> tuple[list[int], list[Task], list[Strides]]:
    """Those of `numbers` whose params have gradients; these as tasks, alone; shape and strides as in `tasks_of`.

    They need not be counted where `norm`, a number on a device, is finite.
    """
    unless = None if norm is None or hasattr(norm, "full_tensor") else norm.detach().to(torch.float32)
    found: list[int] = []
    tasks: list[Task] = []
    strides: list[Strides] = []
    for number in numbers:
        each = known[number]
        gradient = each.local(each.param.grad)
        if gradient is None or gradient.layout != torch.strided:
            continue
        device = gradient.device
        (gradient,), stride = alike((gradient,))
        found.append(number)
        near = unless if unless is not None and unless.device == device else None
        tasks.append(
            Task(
                gradient,
                gradient,
                unless_finite=near,
                sign=sign_of(groups[each.group]),
                adam=False,
                idle=True,
            )
        )
        strides.append(stride)
    return found, tasks, strides


def settings_of(group: dict[str, Any]) -> dict[str, Any]:
    """The settings of a group in one step, as a `Task` has them."""
    lr = group.get("lr", 0.0)
    on_device = isinstance(lr, torch.Tensor) and lr.device.type != "cpu"
    beta1, beta2 = betas_of(group)
    return {
        "lr": 0.0 if on_device else float(lr),
        "lr_tensor": lr if on_device else None,
        "beta1": beta1,
        "beta2": beta2,
        "eps": float(group.get("eps", 0.0)),
        "decay": float(group.get("weight_decay", 0.0)),
    }


def sign_of(group: dict[str, Any]) -> float:
    """What the gradients of a group are multiplied by."""
    return -1.0 if group.get("maximize") else 1.0


def betas_of(group: dict[str, Any]) -> tuple[float, float]:
    """β₁ and β₂ of a group, or what comes nearest to β₁; 0 where it has none."""
    betas = group.get("betas")
    if betas is None:
        return float(group.get("momentum", 0.0)), 0.0
    return float(betas[0]), float(betas[1])


def alike(tensors: Sequence[Tensor | None]) -> tuple[list[Tensor | None], Strides]:
    """Tensors that lie alike and densely, copied only where they do not."""
    w = tensors[0]
    if all(tensor is None or tensor.is_contiguous() for tensor in tensors):
        return list(tensors), None
    stride = w.stride()  # type: ignore[union-attr]
    if is_dense(w) and all(tensor is None or tensor.stride() == stride for tensor in tensors):
        return list(tensors), (tuple(w.shape), tuple(stride))  # type: ignore[union-attr]
    return [None if tensor is None else tensor.contiguous() for tensor in tensors], None


@dataclass(slots=True, eq=False)
class Counts:
    """What was counted, some of it on its way: by device, the numbers of the params and where their counts are."""

    total: int
    parts: list[tuple[Any, Any]] = field(default_factory=list)

    def host(self, arrays: Sequence[Any]) -> Counted:
        """All of it, from the arrays of the transfer."""
        if len(self.parts) == 1 and isinstance(self.parts[0][1], Counted):
            return self.parts[0][1]
        if len(self.parts) == 1 and isinstance(self.parts[0][1], int):
            return decode(arrays[self.parts[0][1]], self.total)
        counted = Counted.zeros(self.total)
        for numbers, part in self.parts:
            if isinstance(part, Counted):
                found = part
            elif isinstance(part, int):
                found = decode(arrays[part], len(numbers))
            else:
                rows, first = part
                held = iter(arrays[first:])
                found = rows.host(lambda _, held=held: next(held))
            counted.records[numbers], counted.bins[numbers] = found.records, found.bins
        return counted


class Counter:
    """Counts tasks where their tensors are, by the quickest way that works there."""

    def __init__(self) -> None:
        self._kernels: dict[Any, KernelCounter | None] = {}
        self.fallback: str | None = None
        """Why a GPU is not counted on by the kernel, if so."""

    def count(self, tasks: Sequence[Task], transfer: Transfer) -> Counts:
        """Start counting; what comes of it goes with `transfer`."""
        counts = Counts(len(tasks))
        by_device: dict[Any, list[int]] = {}
        for number, task in enumerate(tasks):
            by_device.setdefault(task.w.device, []).append(number)
        for device, numbers in by_device.items():
            mine = [tasks[number] for number in numbers]
            if device.type == "cpu":
                counts.parts.append((numbers, cpu.count(mine)))
                continue
            kernel = self._kernel(device) if all(map(can_count, mine)) else None
            if kernel is not None:
                counts.parts.append((numbers, transfer.add(kernel.count(mine))))
            else:
                counts.parts.append((numbers, _enqueued(count_rows(mine, device), transfer)))
        return counts

    def has_kernels(self, devices: Iterable[Any]) -> bool:
        """True where the kernel counts on all of `devices`."""
        return all(self._kernel(device) is not None for device in devices)

    def launch(
        self,
        device: Any,
        numbers: Any,
        jobs: Array,
        sizes: tuple[int, ...],
        counts: Counts,
        transfer: Transfer,
    ) -> None:
        """Start the kernel for `jobs` of params on `device`, of which it has one: `numbers` in `counts`."""
        kernel = self._kernel(device)
        assert kernel is not None
        counts.parts.append((numbers, transfer.add(kernel.launch(jobs, sizes))))

    def _kernel(self, device: Any) -> KernelCounter | None:
        if device.type != "cuda":
            return None
        if device not in self._kernels:
            try:
                self._kernels[device] = KernelCounter(device)
            except Exception as error:  # noqa: BLE001 - whatever the compiler, the driver or an older PyTorch says
                self._kernels[device] = None
                self.fallback = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return self._kernels[device]


def _enqueued(rows: Rows, transfer: Transfer) -> tuple[Rows, int]:
    numbers = [transfer.add(tensor) for tensor in _in_turn(rows)]
    return rows, numbers[0] if numbers else 0


def _in_turn(rows: Rows) -> list[Tensor]:
    """In the order in which `Rows.host` fetches them."""
    return [tensor for three in zip(rows.real, rows.places, rows.bins, strict=True) for tensor in three]
