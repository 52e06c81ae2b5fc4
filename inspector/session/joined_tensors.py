"""Captured tensors of several processes as those of the whole params: pieces are read only when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from inspector.codecs import Moments8bit
from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.session.records import About, StoredFile
from inspector.session.shards import Piece, ShardMap, Whole
from inspector.stepping import HostState
from inspector.stores import Lane

if TYPE_CHECKING:
    from inspector.session.joined_contents import JoinedContents
    from inspector.session.reader import Session


class Assembled(Mapping[str, F32Array]):
    """Flat tensors by param name, each put together when it is looked up, and not kept."""

    def __init__(self, names: Sequence[str], make: Callable[[str], F32Array]) -> None:
        self._names = dict.fromkeys(names)
        self._make = make

    def __getitem__(self, name: str) -> F32Array:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class JoinedTensors:
    """What `CapturedTensors` is for one process. What one rank has whole stays mapped from its file."""

    def __init__(self, contents: JoinedContents) -> None:
        self._contents = contents

    @property
    def _shards(self) -> ShardMap:
        return self._contents.shards

    def use(self, about: About) -> None:
        """The params are those of the contents."""

    def param_states(self, step: int) -> dict[str, dict[str, F32Array]]:
        """None."""
        return {}

    def param_state(self, name: str, step: int, param: str) -> F32Array:
        """Ranks hand in w, m and v alone: UsageError."""
        raise UsageError(
            f"Of a run of several processes there is no {name!r} of {param!r}: ranks hand in w, m and v."
        )

    def forget(self) -> None:
        """Each rank forgets its own as it is followed."""

    def tensor(self, lane: Lane, step: int, param: str) -> F32Array:
        """In its global shape, read-only; mapped where one rank has all of it, put together of pieces otherwise."""
        whole = self._whole(param)
        if len(whole.kept) <= 1:
            piece = whole.first
            return self._rank(piece).tensor(lane, step, param).reshape(whole.param.shape)
        values = np.empty(whole.param.shape, np.float32)
        for piece in whole.kept:
            place = tuple(slice(at, at + size) for at, size in zip(piece.offset, piece.shape, strict=True))
            values[place] = self._rank(piece).tensor(lane, step, param)
        values.flags.writeable = False
        return values

    def window(self, lane: Lane, step: int, param: str, start: int, stop: int) -> F32Array:
        """A copy of elements [start, stop) of a tensor, flat: only what rows they lie in is read of each piece."""
        whole = self._whole(param)
        numel = whole.param.numel
        start, stop = min(start, numel), min(stop, numel)
        if len(whole.kept) <= 1:
            return self._rank(whole.first).window(lane, step, param, start, stop)
        if start >= stop:
            return np.empty(0, np.float32)
        shape = whole.param.shape
        width = int(np.prod(shape[1:], dtype=np.int64))
        first, last = start // width, -(-stop // width)
        values = np.empty((last - first, *shape[1:]), np.float32)
        for piece in whole.kept:
            low, high = max(first, piece.offset[0]), min(last, piece.offset[0] + piece.shape[0])
            if low >= high:
                continue
            mine = int(np.prod(piece.shape[1:], dtype=np.int64))
            begin, end = (low - piece.offset[0]) * mine, (high - piece.offset[0]) * mine
            part = self._rank(piece).window(lane, step, param, begin, end)
            rest = zip(piece.offset[1:], piece.shape[1:], strict=True)
            place = (slice(low - first, high - first), *(slice(at, at + size) for at, size in rest))
            values[place] = part.reshape(high - low, *piece.shape[1:])
        return np.array(values.reshape(-1)[start - first * width : stop - first * width])

    def gradients(self, step: int) -> Mapping[str, F32Array]:
        """The gradients of a step by param name, flat, as far as any rank offered them."""
        self._check(step, "gradients")
        return self._assembled("g", step)

    def state(self, step: int) -> HostState:
        """The state after a step; codes of params that one rank has whole, values of the others."""
        self._check(step, "keyframe")
        coded: dict[str, Moments8bit] = {}
        for name, whole in self._shards.by_name.items():
            if len(whole.kept) == 1:
                rank = self._rank(whole.first)
                if rank.holds_codes(step, name):
                    coded[name] = rank.codes(step, name)
        w = Assembled([p.name for p in self._shards.params], lambda name: self._weights(step, name))
        return HostState(w, self._assembled("m", step), self._assembled("v", step), step, coded)

    def codes(self, step: int, param: str) -> Moments8bit:
        """m and v of a param as their codes; UsageError where they are in parts, each coded in blocks of its own."""
        whole = self._whole(param)
        if len(whole.kept) > 1:
            raise UsageError(
                f"{self._contents.path} holds {param!r} in parts, each with blocks of its own: open the session of one "
                "rank to see its codes."
            )
        return self._rank(whole.first).codes(step, param)

    def holds(self, lane: Lane, step: int, param: str) -> bool:
        """True where any rank captured something of it."""
        return any(self._rank(piece).holds(lane, step, param) for piece in self._whole(param).counted)

    def holds_codes(self, step: int, param: str) -> bool:
        """True where one rank has it whole, with its m and v in 8 bits."""
        whole = self._whole(param)
        return len(whole.kept) == 1 and self._rank(whole.first).holds_codes(step, param)

    def check(self, file: StoredFile) -> None:
        """Files are checked by the rank whose they are."""
        raise UsageError(f"{self._contents.path} is of several processes: {file.name} is of one of them.")

    # --- inner parts

    def _assembled(self, lane: Lane, step: int) -> Assembled:
        names = [p.name for p in self._shards.params if self.holds(lane, step, p.name)]
        return Assembled(names, lambda name: self.tensor(lane, step, name).reshape(-1))

    def _weights(self, step: int, name: str) -> F32Array:
        whole = self._whole(name)
        joined = next(
            (a.step for a in reversed(self._shards.added) if self._shards.numbers[name] >= a.params), 0
        )
        if step < joined and not self.holds("w", step, name):
            # Not there yet: it is idle until it is.
            return np.zeros(whole.param.numel, np.float32)
        return self.tensor("w", step, name).reshape(-1)

    def _whole(self, param: str) -> Whole:
        found = self._shards.by_name.get(param)
        if found is None:
            raise UsageError(f"{self._contents.path} has no param {param!r}.")
        return found

    def _rank(self, piece: Piece) -> Session:
        return self._contents.ranks[piece.rank]

    def _check(self, step: int, kind: str) -> None:
        if (step, kind) not in self._contents.captures():
            what = "gradients of step" if kind == "gradients" else "state after step"
            raise UsageError(f"{self._contents.path} holds no {what} {step:,}: not all ranks captured them.")
