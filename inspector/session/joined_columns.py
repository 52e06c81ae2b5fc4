"""The scalars of a run of several processes over its steps: of all together, and of each rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from inspector.floats import F64Array
from inspector.param_statistics import ParamTable
from inspector.session.records import RecordedStep
from inspector.session.shards import ShardMap

if TYPE_CHECKING:
    from inspector.session.reader import Session

Scalar = TypeVar("Scalar", bound=np.generic)
RANK_METRICS = ("loss", "grad_norm", "seconds")
BoolArray = npt.NDArray[np.bool_]
_NONFINITE = ("nan", "posinf", "neginf")


def rank_metrics(count: int) -> tuple[str, ...]:
    """The names of the metrics that each of so many processes has of its own: "loss/rank 0"."""
    return tuple(f"{kind}/rank {number}" for kind in RANK_METRICS for number in range(count))


class JoinedColumns:
    """Metrics of the first `count` steps that all `ranks` have; `table` gives the statistics of the whole params.

    The ranks whose figures add up to those of the run are told by the shards; where some keep copies of params beside
    parts of others none do, and a figure that is summed is taken from the statistics by param.
    """

    def __init__(
        self, ranks: Sequence[Session], shards: ShardMap, table: Callable[[int], ParamTable | None]
    ) -> None:
        self.count = 0
        self._ranks = tuple(ranks)
        self._table = table
        self._summed = shards.whole_ranks()
        self._first_step = ranks[0].steps.start
        self._norms = np.empty(0), np.empty(0, np.bool_)

    def scalar(self, name: str) -> F64Array:
        """One of `SCALARS`, a value a step."""
        if name == "loss":
            return self._mean_loss()
        if name == "grad_norm":
            return self._grad_norms()[0].copy()
        if name in ("nonfinite", *_NONFINITE):
            return self._nonfinite(name)
        if name == "ended":
            return np.asarray(np.fmax.reduce([self._cut(rank.metric("ended")) for rank in self._ranks]))
        return self._cut(self._ranks[0].metric(name)).copy()

    def known(self, name: str) -> BoolArray:
        """Whether one of `SCALARS` is known, a value a step."""
        if name == "grad_norm":
            return self._grad_norms()[1].copy()
        known = [self._cut(rank.known(name)) for rank in self._ranks]
        return np.asarray(np.any(known, axis=0) if name == "loss" else known[0], np.bool_)

    def names(self) -> tuple[str, ...]:
        """What `of_rank` takes."""
        return rank_metrics(len(self._ranks))

    def of_rank(self, name: str) -> F64Array | None:
        """A metric of one rank, a value a step, NaN where it is unknown; None for a name that is none."""
        kind, _, number = name.partition("/rank ")
        if name not in self.names():
            return None
        rank = self._ranks[int(number)]
        if kind == "loss":
            return self._cut(rank.metric("loss")).copy()
        if kind == "grad_norm":
            part = self._cut(rank.norms_of_part())
            return np.where(part, self._cut(rank.metric("grad_norm")), math.nan)
        return np.diff(self._cut(rank.metric("ended")), prepend=math.nan)

    def norm_of(self, ran: Sequence[RecordedStep]) -> float | None:
        """The norm over all params in one step: as ranks were told of it, else of their parts; None where unknown."""
        told = next((each.grad_norm for each in ran if not each.of_part and each.grad_norm is not None), None)
        parts = [each.grad_norm for each in ran if each.of_part]
        if told is not None or len(parts) < len(ran) or None in parts:
            return told
        if self._summed is not None:
            with np.errstate(over="ignore"):
                norms = np.array([parts[number] for number in self._summed], np.float64)
                return float(np.float32(np.sqrt(np.square(norms).sum())))
        return self._counted_norm(ran[0].step, ran[0].clip_scale)

    def nonfinite_of(self, name: str, ran: Sequence[RecordedStep]) -> int:
        """Gradients of one kind, "nan" and so on, in one step."""
        if self._summed is not None:
            return sum(int(getattr(ran[number].nonfinite, name)) for number in self._summed)
        table = self._table(ran[0].step)
        if table is not None:
            return int(getattr(table.lanes["g"], name).sum())
        return sum(int(getattr(each.nonfinite, name)) for each in ran)

    # --- inner parts

    def _cut(self, values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        return values[: self.count]

    def _mean_loss(self) -> F64Array:
        total, there = np.zeros(self.count), np.zeros(self.count)
        for rank in self._ranks:
            known = self._cut(rank.known("loss"))
            total += np.where(known, self._cut(rank.metric("loss")), 0.0)
            there += known
        mean = np.full(self.count, math.nan)
        np.divide(total, there, out=mean, where=there > 0)
        return mean

    def _grad_norms(self) -> tuple[F64Array, BoolArray]:
        """As `norm_of`, a value a step, and where it is known; what was worked out before is kept."""
        values, known = self._norms
        if len(values) > self.count:
            return values[: self.count], known[: self.count]
        new = slice(len(values), self.count)
        length = self.count - len(values)
        found, there = np.full(length, math.nan), np.zeros(length, np.bool_)
        norms = [rank.metric("grad_norm")[new] for rank in self._ranks]
        parts = [rank.norms_of_part()[new] for rank in self._ranks]
        # Back to front: of those that were told of one over all the first rank counts.
        for number in reversed(range(len(self._ranks))):
            told = self._ranks[number].known("grad_norm")[new] & ~parts[number]
            found, there = np.where(told, norms[number], found), there | told
        wanted = ~there & np.logical_and.reduce(parts)
        if self._summed is not None:
            with np.errstate(over="ignore"):
                squares = np.sum([np.square(norms[number]) for number in self._summed], axis=0)
                summed = np.sqrt(squares).astype(np.float32).astype(np.float64)
            found, there = np.where(wanted, summed, found), there | wanted
        else:
            scales = self._ranks[0].metric("clip_scale")[new]
            for at in np.flatnonzero(wanted):
                norm = self._counted_norm(self._first_step + new.start + int(at), float(scales[at]))
                found[at], there[at] = (math.nan, False) if norm is None else (norm, True)
        self._norms = np.concatenate((values, found)), np.concatenate((known, there))
        return self._norms

    def _counted_norm(self, step: int, scale: float | None) -> float | None:
        """Of the gradients as they were counted, those of each param once."""
        table = self._table(step)
        if table is None or scale is None:
            return None
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            norm = np.sqrt(np.square(table.lanes["g"].norm).sum()) / np.float64(scale)
            return float(np.float32(norm))

    def _nonfinite(self, name: str) -> F64Array:
        columns = [self._cut(rank.metric(name)) for rank in self._ranks]
        if self._summed is not None:
            columns = [columns[number] for number in self._summed]
            return np.asarray(np.sum(columns, axis=0), np.float64)
        found = np.asarray(np.sum(columns, axis=0), np.float64)
        for at in np.flatnonzero(found > 0):
            table = self._table(self._first_step + int(at))
            if table is not None:
                found[at] = float(getattr(table.lanes["g"], name).sum())
        return found
