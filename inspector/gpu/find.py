"""Where elements match a query, found on the GPU; only a count and places are read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from inspector.gpu.device import Gpu
from inspector.gpu.pieces import Piece
from inspector.gpu.pipelines import Pipelines
from inspector.looking import Hits
from inspector.plan import Access
from inspector.value_search import KIND_NUMBER, Query

_SLOTS: tuple[tuple[int, Access], ...] = ((0, "read"), (1, "read"), (2, "read_write"), (3, "uniform"))
_WORDS = 8
_NONE = 0xFFFF_FFFF
_ASK_BYTES = 32
_ELEMENTS_PER_GROUP = 4096
_MAX_GROUPS = 512
AT_ONCE = 1 << 24
"""Elements looked at in one submission, after which somebody may end the search."""


class FindKernel:
    """Runs find_values over pieces of a lane."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._result: Any = None
        self._asks: Any = None

    def close(self) -> None:
        """Release the buffers."""
        for buffer in (self._result, self._asks):
            if buffer is not None:
                self._gpu.release(buffer)
        self._result = self._asks = None

    def run(
        self,
        query: Query,
        pairs: Iterable[tuple[Piece, Piece]],
        start: int,
        stop: int,
        at: int | None,
        progress: Callable[[int, int], None],
    ) -> Hits:
        """The matches among elements [start, stop) in pieces as they are and as they were before, of the same elements.

        Without `at`, next and previous are counted from before the first.
        """
        gpu = self._gpu
        if self._result is None:
            self._result = gpu.storage("found values", 4 * _WORDS)
        pipeline = self._pipelines.get(
            "find_values", "find_values", _SLOTS, (("KIND", float(KIND_NUMBER[query.kind])),)
        )
        whole = np.zeros(_WORDS, np.uint32)
        whole[[1, 3]] = _NONE
        gpu.write(self._result, 0, whole)
        # One before `start` is -1 of it where that is 0: a place nothing lies before.
        place = (start - 1 if at is None else at) & _NONE
        of, done = stop - start, 0
        for now, before in pairs:
            low, high = max(start, now.first), min(stop, now.first + now.count)
            for first in range(low, high, AT_ONCE):
                last = min(first + AT_ONCE, high)
                if done:
                    progress(done, of)
                ask = (now.first, first - now.first, last - now.first, query.low, query.high, place)
                self._submit(pipeline, now, before, np.array(ask, np.uint32), last - first)
                done += last - first
        words = [int(word) for word in gpu.read(self._result, 0, 4 * _WORDS).view(np.uint32)]

        def element(word: int) -> int | None:
            return None if word in (0, _NONE) else word - 1

        return Hits(words[0], *(element(word) for word in words[1:5]))

    def _submit(self, pipeline: Any, now: Piece, before: Piece, ask: Any, count: int) -> None:
        gpu = self._gpu
        if self._asks is None:
            self._asks = gpu.uniform("what to find", _ASK_BYTES)
        gpu.write(self._asks, 0, ask)
        encoder = gpu.encoder()
        compute = encoder.begin_compute_pass()
        for piece in {id(p): p for p in (now, before)}.values():
            if piece.prepare is not None:
                piece.prepare(compute)
        # What was kept of before ends where it ends, in the middle of a vec4.
        nbytes = -(-now.count // 4) * 16
        group = self._pipelines.bind(
            _SLOTS,
            [
                (now.buffer, now.offset, nbytes),
                (before.buffer, before.offset, 4 * before.count),
                (self._result, 0, 4 * _WORDS),
                (self._asks, 0, _ASK_BYTES),
            ],
        )
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(min(-(-count // _ELEMENTS_PER_GROUP), _MAX_GROUPS))
        compute.end()
        gpu.submit(encoder)
        if count == AT_ONCE:
            # Else all of it would be under way before anybody could end it.
            gpu.wait()
