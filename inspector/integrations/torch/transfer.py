"""Tensors on their way to the host, which nobody waits for but the thread that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import torch

Tensor = Any
Array = npt.NDArray[Any]

_ALIGN = 64
GATHERED_BYTES = 512 << 20
"""Tensors are gathered in runs of at most so much, where none is larger: PyTorch rounds pinned memory up to a power of
two, and memory of one size serves gradients and states alike."""


@dataclass(slots=True, eq=False)
class Transfer:
    """Small tensors that are copied behind what their device has to do already; `arrays` waits for them."""

    _hosts: list[Tensor] = field(default_factory=list)
    _kept: list[Tensor] = field(default_factory=list)
    _events: list[Any] = field(default_factory=list)
    _devices: set[Any] = field(default_factory=set)

    def add(self, tensor: Tensor) -> int:
        """Copy a tensor as it is now; returns its number."""
        tensor = tensor.detach()
        if tensor.device.type == "cuda":
            host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            with torch.cuda.device(tensor.device):
                host.copy_(tensor, non_blocking=True)
            # Kept until it is copied: its memory is then given back on the stream that it was made on.
            self._kept.append(tensor)
            self._devices.add(tensor.device)
            self._hosts.append(host)
        else:
            # So that what the script writes later does not show; other devices are fetched from by who reads.
            self._hosts.append(tensor.clone())
        return len(self._hosts) - 1

    def seal(self) -> None:
        """Nothing more comes: what was enqueued until now is what is waited for."""
        for device in self._devices:
            with torch.cuda.device(device):
                event = torch.cuda.Event(blocking=True)
                event.record()
                self._events.append(event)

    def arrays(self) -> list[Array]:
        """All of them on the host, in order. Waits, without holding the interpreter's lock."""
        for event in self._events:
            event.synchronize()
        self._events.clear()
        self._kept.clear()
        return [host.cpu().numpy() for host in self._hosts]


@dataclass(slots=True, eq=False)
class Copies:
    """Large tensors on their way to the host, by key: gradients or a state of one step."""

    _views: list[tuple[Any, Tensor]]
    _events: list[Any]

    @property
    def on_the_way(self) -> bool:
        """True until somebody has waited for them."""
        return bool(self._views)

    @property
    def nbytes(self) -> int:
        """Bytes of host memory that they take until then."""
        return sum(view.numel() * view.element_size() for _, view in self._views)

    def with_those_of(self, other: Copies) -> Copies:
        """Both as one."""
        return Copies([*self._views, *other._views], [*self._events, *other._events])

    def arrays(self) -> dict[Any, Array]:
        """All of them as flat float32, once: they are let go of. Waits."""
        for event in self._events:
            event.synchronize()
        self._events.clear()
        views, self._views = self._views, []
        return {key: view.to(torch.float32).numpy() for key, view in views}


class Copier:
    """Copies large tensors to host memory while the device goes on; pinned memory and a stream of its own on CUDA.

    Where the device has room, a copy is made there first, and the script's stream waits for nothing. Else the stream
    waits for the copy, so that nothing is overwritten under way.
    """

    def __init__(self) -> None:
        self._streams: dict[Any, Any] = {}

    def copy(
        self, tensors: Sequence[tuple[Any, Tensor]], divide: Tensor | None = None, sign: float = 1.0
    ) -> Copies:
        """Start copying; `tensors` by key. They are divided by `divide` and multiplied by `sign` on the way."""
        by_device: dict[Any, list[tuple[Any, Tensor]]] = {}
        for key, tensor in tensors:
            by_device.setdefault(tensor.device, []).append((key, tensor))
        views: list[tuple[Any, Tensor]] = []
        events: list[Any] = []
        for device, items in by_device.items():
            if divide is not None or sign != 1.0:
                factor = sign if divide is None else sign / divide.to(device=device, dtype=torch.float32)
                # Wider than half precision, which the quotient may not fit in.
                items = [(key, tensor.to(torch.float32) * factor) for key, tensor in items]
            if device.type == "cuda":
                made, event = self._aside(device, items)
                views += made
                events.append(event)
            else:
                views += [
                    (key, tensor.detach().to("cpu", copy=True).contiguous().view(-1)) for key, tensor in items
                ]
        return Copies(views, events)

    def _aside(
        self, device: Any, items: Sequence[tuple[Any, Tensor]]
    ) -> tuple[list[tuple[Any, Tensor]], Any]:
        with torch.cuda.device(device):
            side = self._streams.get(device)
            if side is None:
                side = self._streams[device] = torch.cuda.Stream(device)
            main = torch.cuda.current_stream(device)
            nbytes = sum(tensor.numel() * tensor.element_size() for _, tensor in items)
            if self._has_room(device, nbytes):
                views, event = self._staged(device, side, main, items)
            else:
                views, event = self._straight(side, main, items)
        return views, event

    @staticmethod
    def _staged(
        device: Any, side: Any, main: Any, items: Sequence[tuple[Any, Tensor]]
    ) -> tuple[list[tuple[Any, Tensor]], Any]:
        """Gathered in one tensor of each type on the device, in few launches, and copied from there in one go."""
        views: list[tuple[Any, Tensor]] = []
        moved: list[tuple[Tensor, Tensor]] = []
        for mine in _runs(items):
            kind = mine[0][1].dtype
            sizes = [tensor.numel() for _, tensor in mine]
            flat = torch.empty(sum(sizes), dtype=kind, device=device)
            torch._foreach_copy_(list(flat.split(sizes)), [tensor.detach().reshape(-1) for _, tensor in mine])
            host = torch.empty(sum(sizes), dtype=kind, pin_memory=True)
            moved.append((flat, host))
            views += [(key, view) for (key, _), view in zip(mine, host.split(sizes), strict=True)]
        side.wait_stream(main)
        with torch.cuda.stream(side):
            for flat, host in moved:
                host.copy_(flat, non_blocking=True)
                flat.record_stream(side)
            event = torch.cuda.Event(blocking=True)
            event.record(side)
        return views, event

    @staticmethod
    def _straight(
        side: Any, main: Any, items: Sequence[tuple[Any, Tensor]]
    ) -> tuple[list[tuple[Any, Tensor]], Any]:
        """Copied from where they are, which the script's stream waits for."""
        items = [(key, tensor.contiguous()) for key, tensor in items]
        views, targets = pinned_views(items)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            for (_, tensor), target in zip(items, targets, strict=True):
                target.copy_(tensor.view(-1), non_blocking=True)
                tensor.record_stream(side)
            event = torch.cuda.Event(blocking=True)
            event.record(side)
        main.wait_event(event)
        return views, event

    @staticmethod
    def _has_room(device: Any, nbytes: int) -> bool:
        """True where a second copy leaves the script as much again, and a gigabyte."""
        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return bool(free + unused > 2 * nbytes + (1 << 30))


def _runs(items: Sequence[tuple[Any, Tensor]]) -> list[list[tuple[Any, Tensor]]]:
    """The items in runs of one type, of at most GATHERED_BYTES but for single tensors that are larger."""
    runs: dict[Any, list[list[tuple[Any, Tensor]]]] = {}
    taken: dict[Any, int] = {}
    for item in items:
        kind, nbytes = item[1].dtype, item[1].numel() * item[1].element_size()
        mine = runs.setdefault(kind, [])
        if not mine or taken[kind] + nbytes > GATHERED_BYTES:
            mine.append([])
            taken[kind] = 0
        mine[-1].append(item)
        taken[kind] += nbytes
    return [run for each in runs.values() for run in each]


def pinned_views(items: Sequence[tuple[Any, Tensor]]) -> tuple[list[tuple[Any, Tensor]], list[Tensor]]:
    """Host tensors for `items` in one range of pinned memory, which PyTorch uses again once all of them are gone."""
    places: list[int] = []
    end = 0
    for _, tensor in items:
        places.append(end)
        end += -(-tensor.numel() * tensor.element_size() // _ALIGN) * _ALIGN
    whole = torch.empty(end, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    views = []
    for (key, tensor), start in zip(items, places, strict=True):
        nbytes = tensor.numel() * tensor.element_size()
        views.append((key, whole[start : start + nbytes].view(tensor.dtype)))
    return views, [view for _, view in views]
