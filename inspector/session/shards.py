"""Which process keeps which part of each param: the params of all of them as whole ones, held against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inspector.errors import UsageError
from inspector.layout import Param
from inspector.ranks import Held
from inspector.session.records import About, Added

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Offset and shape."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What process `rank` keeps of a param, which is number `number` in its session: a box of the whole."""

    rank: int
    number: int
    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Elements of it."""
        return math.prod(self.shape)

    @property
    def box(self) -> Box:
        """Where it lies."""
        return self.offset, self.shape

    def is_all_of(self, param: Param) -> bool:
        """True where nothing of the param lies elsewhere."""
        return self.shape == param.shape

    def is_run_of(self, param: Param) -> bool:
        """True where its elements follow each other in the whole."""
        return self.shape[1:] == param.shape[1:]


@dataclass(frozen=True, slots=True)
class Whole:
    """A param in its global shape, and its pieces: `kept` tile it, in the order of their places, none of them empty.

    `copies` are further ones of the same elements, each with the one of `kept` that it should equal. `listed` are all,
    empty ones too, by rank.
    """

    param: Param
    kept: tuple[Piece, ...]
    copies: tuple[tuple[Piece, Piece], ...]
    listed: tuple[Piece, ...]

    @property
    def first(self) -> Piece:
        """The one that speaks for the param in what all of them have alike."""
        return self.kept[0] if self.kept else self.listed[0]

    @property
    def counted(self) -> tuple[Piece, ...]:
        """Those whose statistics add up to those of the param."""
        return self.kept or self.listed[:1]


class ShardMap:
    """The params of a run of several processes, in the order in which they joined it."""

    def __init__(
        self, wholes: Sequence[Whole], dtypes: tuple[str, ...], added: tuple[Added, ...], ranks: int
    ) -> None:
        self.wholes = tuple(wholes)
        self.params = tuple(each.param for each in wholes)
        self.dtypes = dtypes
        self.added = added
        self.ranks = ranks
        self.by_name = {each.param.name: each for each in wholes}
        self.numbers = {each.param.name: i for i, each in enumerate(wholes)}
        self.is_counted = np.zeros((ranks, len(wholes)), np.bool_)
        """Whether the statistics of a param's piece in a rank count: not those of a copy."""
        for number, each in enumerate(wholes):
            for piece in each.counted:
                self.is_counted[piece.rank, number] = True
        self.holders = tuple(np.flatnonzero(self.is_counted.any(1)).tolist())
        """The ranks without whose tensors some param is not whole."""
        self.numbered_alike = all(
            len(each.listed) == ranks and all(piece.number == number for piece in each.listed)
            for number, each in enumerate(self.wholes)
        )
        """True where every rank has all params, in one order."""

    @classmethod
    def of(cls, path: Path, abouts: Sequence[About], counts: Sequence[int]) -> ShardMap:
        """Of the first `counts` params of each process; UsageError, naming the param, where they make no whole ones."""
        listed: dict[str, list[tuple[Piece, Param, str, int]]] = {}
        for rank, (about, count) in enumerate(zip(abouts, counts, strict=True)):
            for number, param in enumerate(about.params[:count]):
                shard = about.shards[number] if about.shards else None
                shape = param.shape if shard is None else shard.global_shape
                offset = (0,) * len(shape) if shard is None else shard.offset
                piece = Piece(rank, number, offset, param.shape)
                joined = max((a.step for a in about.added if a.params <= number), default=0)
                dtype = about.dtypes[number] if about.dtypes else "f32"
                listed.setdefault(param.name, []).append((piece, replace(param, shape=shape), dtype, joined))
        order = sorted(listed.values(), key=lambda found: found[0][3])
        wholes = [_whole(path, found) for found in order]
        dtypes = tuple(found[0][2] for found in order)
        steps = [found[0][3] for found in order]
        added = tuple(Added(step, steps.index(step)) for step in dict.fromkeys(steps) if step)
        return cls(wholes, () if set(dtypes) <= {"f32"} else dtypes, added, len(abouts))

    @property
    def copied(self) -> tuple[Whole, ...]:
        """Params of which several processes keep the same elements."""
        return tuple(each for each in self.wholes if each.copies)

    def whole_ranks(self) -> tuple[int, ...] | None:
        """The ranks whose sums over all their params add up to those of the run; None where no choice of ranks does."""
        held = np.zeros_like(self.is_counted)
        for number, each in enumerate(self.wholes):
            for piece in each.listed:
                held[piece.rank, number] = piece.numel > 0
        counted = self.is_counted & held
        chosen = counted.any(1)
        if (held[chosen] & ~counted[chosen]).any():
            return None
        return tuple(np.flatnonzero(chosen).tolist())

    def held(self) -> dict[str, tuple[Held, ...]]:
        """The boxes of each param by rank, for people; none for one that is whole wherever it is."""
        return {
            each.param.name: tuple(Held(p.rank, p.offset, p.shape) for p in each.listed)
            for each in self.wholes
        }

    def elements(self, rank: int) -> int:
        """How many a process keeps."""
        return sum(piece.numel for each in self.wholes for piece in each.listed if piece.rank == rank)


def _whole(path: Path, found: Sequence[tuple[Piece, Param, str, int]]) -> Whole:
    first, param, dtype, _ = found[0]
    for piece, other, kind, _ in found:
        if (other, kind) != (param, dtype):
            raise UsageError(
                f"{path} is no run of one model: {param.name!r} is {_words(param, dtype)} in rank {first.rank} and "
                f"{_words(other, kind)} in rank {piece.rank}."
            )
        _check_inside(path, piece, param)
    pieces = [piece for piece, _, _, _ in found]
    kept: dict[Box, Piece] = {}
    copies: list[tuple[Piece, Piece]] = []
    for piece in pieces:
        if not piece.numel:
            continue
        if piece.box in kept:
            copies.append((piece, kept[piece.box]))
        else:
            kept[piece.box] = piece
    tiles = sorted(kept.values(), key=lambda piece: piece.offset)
    _check_tiling(path, param, tiles)
    return Whole(param, tuple(tiles), tuple(copies), tuple(pieces))


def _words(param: Param, dtype: str) -> str:
    decayed = "" if param.decay is None else ", decayed" if param.decay else ", not decayed"
    return f"{list(param.shape)} in {dtype}{decayed}, group {param.group}"


def _check_inside(path: Path, piece: Piece, param: Param) -> None:
    axes = len(param.shape)
    inside = len(piece.offset) == len(piece.shape) == axes
    if inside and piece.numel:
        ends = zip(piece.offset, piece.shape, param.shape, strict=True)
        inside = all(at >= 0 and at + size <= extent for at, size, extent in ends)
    if not inside:
        raise UsageError(
            f"{path} is damaged: rank {piece.rank} has a part {list(piece.shape)} of {param.name!r} at "
            f"{list(piece.offset)}, which lies outside of its shape {list(param.shape)}."
        )


def _check_tiling(path: Path, param: Param, tiles: Sequence[Piece]) -> None:
    """UsageError unless the boxes, ordered by their offsets, cover every element once."""
    pair = _overlapping(tiles)
    if pair is not None:
        raise UsageError(
            f"{path} is no run of one model: ranks {tiles[pair[0]].rank} and {tiles[pair[1]].rank} keep parts of "
            f"{param.name!r} that overlap."
        )
    there = sum(piece.numel for piece in tiles)
    if there != param.numel:
        raise UsageError(
            f"{path} lacks a part of {param.name!r}: its ranks keep {there:,} of {param.numel:,} elements."
        )


def _overlapping(tiles: Sequence[Piece]) -> tuple[int, int] | None:
    """Two that share elements, None without."""
    if len(tiles) < 2:
        return None
    low = np.array([piece.offset for piece in tiles], np.int64)
    high = low + np.array([piece.shape for piece in tiles], np.int64)
    split = np.flatnonzero((low != low[0]).any(0) | (high != high[0]).any(0))
    if len(split) == 1:
        # Along one axis: each ends before the next begins.
        at = np.flatnonzero(high[:-1, split[0]] > low[1:, split[0]])
        return (int(at[0]), int(at[0]) + 1) if len(at) else None
    for i in range(len(tiles) - 1):
        shared = ((low[i + 1 :] < high[i]) & (low[i] < high[i + 1 :])).all(1)
        if shared.any():
            return i, i + 1 + int(shared.argmax())
    return None


def global_index(piece: Piece, shape: tuple[int, ...], index: int) -> int:
    """The flat index in the whole of a flat index in the piece."""
    if not shape:
        return index
    at = np.unravel_index(index, piece.shape)
    places = tuple(int(i) + start for i, start in zip(at, piece.offset, strict=True))
    return int(np.ravel_multi_index(places, shape))


def global_indices(
    piece: Piece, shape: tuple[int, ...], indices: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The same of many."""
    at = np.unravel_index(indices, piece.shape)
    places = tuple(i + start for i, start in zip(at, piece.offset, strict=True))
    return np.asarray(np.ravel_multi_index(places, shape), np.int64)
