"""The rows of a run of several processes, joined from those of each: what `Contents` is for one of them."""

from __future__ import annotations

import hashlib
import math
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from inspector.errors import UsageError
from inspector.findings import Finding
from inspector.floats import F64Array
from inspector.layout import Layout
from inspector.param_statistics import ParamTable
from inspector.plan import Limits, Variant, layout_for
from inspector.ranks import Parted, RankPart, RankStep, odd_one
from inspector.session.joined_columns import JoinedColumns
from inspector.session.joined_events import joined_findings, joined_notes
from inspector.session.rank_checks import check_same_run
from inspector.session.rank_settings import joined_hyper, parted_settings
from inspector.session.rank_tables import NOWHERE, Places, merged_tables, parted_copies
from inspector.session.records import (
    About,
    Ending,
    Note,
    NoteKind,
    RecordedLayout,
    RecordedStep,
    State,
    StoredFile,
)
from inspector.session.shards import ShardMap
from inspector.statistics import NonFinite

if TYPE_CHECKING:
    from inspector.session.reader import Session

TABLES_KEPT = 8
NOTE_KINDS: tuple[NoteKind, ...] = ("mark", "bookmark", "gap")
NORMS_AGREE = 1e-5
"""What all ranks were told of one sum over all of them is as close as this, relative."""
BoolArray = npt.NDArray[np.bool_]


class JoinedContents:
    """What the sessions of the processes of one run hold together, as of the last `look`.

    The slowest leads: a step counts once every rank has written it. UsageError where they are of no one run.
    """

    about: About
    shards: ShardMap
    ending: Ending | None = None
    first_step: int
    last_step: int
    _columns: JoinedColumns
    _layout: Layout
    _tables: OrderedDict[int, ParamTable]
    _places: dict[tuple[int, object], Places]

    def __init__(self, path: Path, ranks: Sequence[Session]) -> None:
        self.path = path
        self.ranks = tuple(ranks)
        check_same_run(path, [rank.about for rank in ranks])
        self._serial = 0
        self._shape: tuple[object, ...] | None = None
        self._settle()

    # --- what it is of

    @property
    def id(self) -> str:
        """What tells this run from any other: made of the ids of its parts."""
        ids = [rank.id for rank in self.ranks]
        return hashlib.sha256(" ".join(ids).encode()).hexdigest()[:32] if all(ids) else ""

    @property
    def format(self) -> int:
        """The oldest among those of the parts."""
        return min(int(rank.format) for rank in self.ranks)

    @property
    def generation(self) -> str:
        """Changes when rows that were read may be others."""
        return " ".join([str(self._serial), *(str(rank.generation) for rank in self.ranks)])

    @property
    def state(self) -> State:
        """Complete once all ranks are; interrupted where one is gone that had not ended."""
        states = {rank.state for rank in self.ranks}
        if "interrupted" in states:
            return "interrupted"
        return "recording" if "recording" in states else "complete"

    @property
    def ended_because(self) -> str | None:
        """Why ranks ended, and which holds the others back, as sentences."""
        reasons: dict[str, list[int]] = {}
        for number, rank in enumerate(self.ranks):
            if rank.ended_because:
                reasons.setdefault(rank.ended_because, []).append(number)
        found = [
            text if len(numbers) == len(self.ranks) else f"{rank_words(numbers)}: {text}"
            for text, numbers in reasons.items()
        ]
        lasts = [rank.steps.stop - 1 for rank in self.ranks]
        behind = [
            number
            for number, rank in enumerate(self.ranks)
            if lasts[number] < max(lasts) and rank.state != "recording"
        ]
        dead = [number for number, rank in enumerate(self.ranks) if rank.state == "interrupted"]
        if behind:
            slowest = min(behind, key=lambda number: lasts[number])
            how = "was interrupted" if slowest in dead else "ended"
            found.append(
                f"Rank {slowest} {how} after step {lasts[slowest]:,}, rank {int(np.argmax(lasts))} has step "
                f"{max(lasts):,}: the run is shown as far as all ranks have it."
            )
        elif dead and len(dead) < len(self.ranks):
            found.append(f"{rank_words(dead)} {'was' if len(dead) == 1 else 'were'} interrupted.")
        return " ".join(found) or None

    def parts(self) -> tuple[RankPart, ...]:
        """What each rank recorded."""
        return tuple(
            RankPart(
                number,
                rank.steps.stop - 1,
                rank.state,
                self.shards.elements(number),
                rank.ended_because or "",
            )
            for number, rank in enumerate(self.ranks)
        )

    def close(self) -> None:
        """Let go of the files."""
        for rank in self.ranks:
            rank.close()

    def copy(self, target: sqlite3.Connection) -> None:
        """There is no one database."""
        raise UsageError(f"{self.path} is of several processes, each with a database of its own.")

    def look(self) -> bool:
        """See where the recordings stand; True where what was read before may have changed."""
        before = self.generation
        for rank in self.ranks:
            rank.follow()
        self._settle()
        return before != self.generation

    # --- steps

    def scalar(self, name: str) -> F64Array:
        """One of `SCALARS`, a value a step: the loss is the mean over the ranks, what must agree that of rank 0."""
        return self._columns.scalar(name)

    def known(self, name: str) -> BoolArray:
        """Whether one of `SCALARS` is known, a value a step."""
        return self._columns.known(name)

    def kernel_ms(self, name: str) -> F64Array | None:
        """A number of one rank, "loss/rank 3", a value a step; None for any other name. Kernels are not timed."""
        return self._columns.of_rank(name)

    def kernel_metrics(self) -> tuple[str, ...]:
        """What `kernel_ms` takes."""
        return self._columns.names()

    def step(self, step: int) -> RecordedStep:
        """One step, of the whole params."""
        ran = [rank.step(step) for rank in self.ranks]
        losses = [each.loss for each in ran if each.loss is not None]
        return replace(
            ran[0],
            hyper=joined_hyper(self.shards, [each.hyper for each in ran]),
            loss=_mean(losses),
            grad_norm=self._columns.norm_of(ran),
            nonfinite=self._nonfinite_of(step, ran),
            kernels=(),
            ended=max(each.ended for each in ran),
            layout=self.about.layout,
            of_part=False,
        )

    def rank_steps(self, step: int) -> tuple[RankStep, ...]:
        """The numbers of a step in each rank."""
        found = []
        parted = {each.rank: each for each in reversed(self.parted(step))}
        for number, rank in enumerate(self.ranks):
            ran = rank.step(step)
            before = rank.step(step - 1).ended if step - 1 in rank.steps else math.nan
            seconds = ran.ended - before
            table = rank.param_statistics(step)
            norm = ran.grad_norm if ran.of_part else None
            if table is not None:
                norm = float(table.merged("all").lanes["g"].norm)
            each = parted.get(number)
            found.append(
                RankStep(
                    ran.loss,
                    norm,
                    seconds if math.isfinite(seconds) else None,
                    "" if each is None else f"{each.what}{f' of {each.param}' if each.param else ''}",
                )
            )
        return tuple(found)

    def parted(self, step: int) -> tuple[Parted, ...]:
        """What ranks should have alike in a step and do not: settings, step counts, the norm and clip scale that they
        were told of, and statistics of the params that several keep."""
        ran = [rank.step(step) for rank in self.ranks]
        found = list(parted_settings(self.shards, [each.hyper for each in ran], step))
        told = [(number, each) for number, each in enumerate(ran) if not each.of_part]
        for name in ("grad_norm", "clip_scale"):
            values = [(number, value) for number, each in told if (value := getattr(each, name)) is not None]
            odd = odd_one(values, _told_otherwise)
            if odd is not None:
                found.append(Parted(odd[0], name, odd[1], odd[2]))
        if self.shards.copied:
            tables = self._tables_of(step)
            if tables is not None:
                found += parted_copies(self.shards, tables)
        return tuple(found)

    def has_own_settings(self) -> bool:
        """True where any step has settings of params."""
        return any(rank.has_own_settings() for rank in self.ranks)

    def forms(self) -> tuple[tuple[int, Variant], ...]:
        """The form of the first step, and each step from which another holds."""
        return tuple(each for each in self.ranks[0].forms() if each[0] <= self.last_step)

    def table(self, step: int) -> ParamTable | None:
        """The statistics of the whole params in a step, None where a rank did not count them."""
        if step in self._tables:
            self._tables.move_to_end(step)
            return self._tables[step]
        tables = self._tables_of(step)
        if tables is None:
            return None
        places = [self._places_in(number, step) for number in range(len(self.ranks))]
        table = merged_tables(self.shards, tables, places, self._layout)
        self._tables[step] = table
        if len(self._tables) > TABLES_KEPT:
            self._tables.popitem(last=False)
        return table

    # --- beside the steps

    def findings(self) -> tuple[Finding, ...]:
        """What was found in each rank, in the order of the steps; what several found is told once."""
        return joined_findings(self.shards, [rank.findings() for rank in self.ranks], self.last_step)

    def notes(self) -> tuple[Note, ...]:
        """What was noted in each rank; what all noted is told once."""
        notes = [tuple(n for kind in NOTE_KINDS for n in rank.notes(kind)) for rank in self.ranks]
        return joined_notes(notes, self.last_step)

    def captures(self) -> dict[tuple[int, str], StoredFile]:
        """What all ranks captured that keep a part; by step and kind, the file of the first of them."""
        whole: dict[tuple[int, str], StoredFile] | None = None
        for number in self.shards.holders:
            mine = self.ranks[number].captured_files()
            whole = mine if whole is None else {key: file for key, file in whole.items() if key in mine}
        return {key: file for key, file in (whole or {}).items() if key[0] <= self.last_step}

    # --- inner parts

    def _settle(self) -> None:
        """Join what the ranks hold now."""
        abouts = [rank.about for rank in self.ranks]
        self.first_step = abouts[0].finished_steps + 1
        self.last_step = min(rank.steps.stop for rank in self.ranks) - 1
        # Params that one rank has told of and another not yet are in no step that all have.
        counts = [about.params_in(self.last_step) for about in abouts]
        steps = max(self.last_step + 1 - self.first_step, 0)
        shape = (tuple(counts), *(rank.generation for rank in self.ranks))
        if shape == self._shape:
            self._columns.count = steps
            return
        self._shape = shape
        self._serial += 1
        self._tables = OrderedDict()
        self._places = {}
        self.shards = ShardMap.of(self.path, abouts, counts)
        self._columns = JoinedColumns(self.ranks, self.shards, self.table)
        about = abouts[0]
        self._layout = layout_for(self.shards.params, Limits(), about.variant)
        self.about = replace(
            about,
            params=self.shards.params,
            dtypes=self.shards.dtypes,
            added=self.shards.added,
            layout=RecordedLayout.of(self._layout, Limits(), self.shards.params),
            rank=None,
            world_size=len(self.ranks),
            shards=(),
            unreplayable=next((each.unreplayable for each in abouts if each.unreplayable), ""),
        )
        self._columns.count = steps

    def _nonfinite_of(self, step: int, ran: Sequence[RecordedStep]) -> NonFinite:
        if not any(each.nonfinite.total for each in ran):
            return NonFinite()
        firsts = [self._first_of(number, step, each.nonfinite.first) for number, each in enumerate(ran)]
        nan, posinf, neginf = (self._columns.nonfinite_of(name, ran) for name in ("nan", "posinf", "neginf"))
        return NonFinite(nan, posinf, neginf, min((f for f in firsts if f is not None), default=None))

    def _first_of(self, number: int, step: int, element: int | None) -> int | None:
        segment = self._layout_in(number, step).at(element) if element is not None else None
        if segment is None or segment.name not in self.shards.numbers:
            return None
        which = np.array([self.shards.numbers[segment.name]])
        place = int(self._places_in(number, step).mapped(which, np.array([element]))[0])
        return None if place == NOWHERE else place

    def _tables_of(self, step: int) -> list[ParamTable] | None:
        tables = [rank.param_statistics(step) for rank in self.ranks]
        there = [table for table in tables if table is not None]
        return there if len(there) == len(tables) else None

    def _layout_in(self, number: int, step: int) -> Layout:
        """Where the params lay in a rank, to which the elements in its rows refer."""
        rank = self.ranks[number]
        laid = rank.step(step).layout
        about = rank.about
        with_places = len(laid.offsets) if laid is not None else about.params_in(step)
        params = about.params[:with_places]
        return laid.layout(params) if laid is not None else layout_for(params, Limits(), about.variant)

    def _places_in(self, number: int, step: int) -> Places:
        rank = self.ranks[number]
        laid = rank.step(step).layout
        key = (number, laid if laid is not None else rank.about.params_in(step))
        if key not in self._places:
            local = self._layout_in(number, step)
            self._places[key] = Places(self.shards, number, local, self._layout)
        return self._places[key]


def rank_words(numbers: Sequence[int]) -> str:
    """ "Rank 3", "Ranks 0, 2 and 3"."""
    if len(numbers) == 1:
        return f"Rank {numbers[0]}"
    return f"Ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _told_otherwise(a: float, b: float) -> bool:
    return not math.isclose(a, b, rel_tol=NORMS_AGREE) and not (math.isnan(a) and math.isnan(b))


def _mean(values: Sequence[float]) -> float | None:
    return float(np.sum(np.array(values, np.float64)) / len(values)) if values else None
