"""What the rest of a step will make of w, found by running it and putting everything back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from inspector.gpu.device import Gpu
from inspector.gpu.memory import LaneMemory
from inspector.gpu.pieces import Piece
from inspector.stores import Lane

APPLIED = ("common", "applied")
"""The rule by which w before and after stand for an update."""


class UpdateAhead:
    """Copies of buffers that the rest of a step writes, kept from one look to the next."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._kept: dict[str, Any] = {}
        self._names: tuple[str, ...] = ()

    def keep(self, encoder: Any, names: Iterable[str], buffers: Mapping[str, Any]) -> None:
        """Record copies of these buffers as they are."""
        self._names = tuple(names)
        for name in self._names:
            size = buffers[name].size
            if name not in self._kept or self._kept[name].size != size:
                if name in self._kept:
                    self._gpu.drop(self._kept.pop(name))
                self._kept[name] = self._gpu.storage(f"{name} before", size)
            encoder.copy_buffer_to_buffer(buffers[name], 0, self._kept[name], 0, size)

    def put_back(self, encoder: Any, buffers: Mapping[str, Any]) -> None:
        """Record the way back to what `keep` found."""
        for name in self._names:
            encoder.copy_buffer_to_buffer(self._kept[name], 0, buffers[name], 0, buffers[name].size)

    def views(self, memory: LaneMemory, lane: Lane, start: int, stop: int) -> Iterator[Piece]:
        """What the rule binds in place of a lane: w before, and w after in place of v."""
        before = {id(memory.buffers[name]): self._kept[name] for name in self._names}
        for piece in memory.views("g" if lane == "g" else "w", start, stop):
            buffer = piece.buffer if lane in ("g", "v") else before.get(id(piece.buffer), piece.buffer)
            yield Piece(buffer, piece.offset, piece.count, piece.first)

    def close(self) -> None:
        """Release the copies."""
        for buffer in self._kept.values():
            self._gpu.release(buffer)
        self._kept.clear()
