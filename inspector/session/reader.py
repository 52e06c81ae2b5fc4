"""A recorded session, read: metrics, statistics, findings and tensors by step; followed while it is written."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.codecs import Moments8bit
from inspector.errors import UsageError
from inspector.findings import Finding
from inspector.floats import F32Array, F64Array
from inspector.layout import Layout
from inspector.param_statistics import ParamTable
from inspector.plan import Variant
from inspector.ranks import Held, Parted, RankPart, RankStep
from inspector.session.bookmarks import Bookmarks
from inspector.session.captured import CapturedTensors
from inspector.session.contents import Contents, attempt
from inspector.session.database import reading
from inspector.session.joined_contents import JoinedContents
from inspector.session.joined_tensors import JoinedTensors
from inspector.session.places import Places, open_places
from inspector.session.records import (
    About,
    CaptureKind,
    Note,
    NoteKind,
    RecordedLayout,
    RecordedStep,
    State,
    StoredFile,
    puts_in_place,
)
from inspector.session.session_info import session_info
from inspector.session.step_rows import SCALARS
from inspector.statistics import BufferStats, buffer_stats
from inspector.stepping import HostState
from inspector.stores import Lane


class Session:
    """A session opened to read: a folder, or a zip file of one. Nothing is written to it.

    That of several processes, whose folder holds a session for each, is read as one run: params in their global shapes,
    statistics of them, steps as far as all ranks have them; `ranks` are the parts.

    Rows are checked against their checksums as they are read, a tensor file when it is first used; UsageError, in one
    sentence that names the session, for what is damaged. For one thread at a time.
    """

    def __init__(self, path: Path, places: Places | None = None) -> None:
        """`places` are those of one of several processes, of which `path` is the name."""
        self.path = path
        self._places = places or open_places(path)
        self._layouts: tuple[RecordedLayout, Layout] | None = None
        self._placed: tuple[tuple[Note, ...], tuple[int, ...]] = ((), ())
        self._contents: Contents | JoinedContents
        self._tensors: CapturedTensors | JoinedTensors
        folders = self._places.ranks() if places is None else None
        if folders is not None:
            self._contents = joined = JoinedContents(path, self._open_ranks(folders))
            self._tensors = JoinedTensors(joined)
            return
        self._contents = own = Contents(self._places)
        self._tensors = CapturedTensors(
            self._places, self.about, lambda step, kind: own.captures().get((step, kind))
        )

    def _open_ranks(self, folders: tuple[str, ...]) -> list[Session]:
        opened: list[Session] = []
        try:
            for name in folders:
                opened.append(Session(self.path / name, self._places.within(name)))
        except BaseException:
            for each in opened:
                each.close()
            raise
        return opened

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Session:
        """The session at `path`, a folder or a zip file; UsageError where there is none."""
        return cls(Path(path))

    def close(self) -> None:
        """Let go of the files. Tensors that were given out stay."""
        self._contents.close()
        self._tensors.forget()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.close()

    # --- what it is of

    @property
    def id(self) -> str:
        """What tells this recording from any other, copies and packs of it aside; "" for one of format 1."""
        return self._contents.id

    @property
    def ranks(self) -> tuple[Session, ...]:
        """The sessions of several processes of which this is the whole, by rank; () for that of one."""
        return self._joined.ranks if self._joined is not None else ()

    @property
    def format(self) -> int:
        """The version of the format on disk."""
        return self._contents.format

    @property
    def about(self) -> About:
        """What was recorded, as it began."""
        return self._contents.about

    @property
    def steps(self) -> range:
        """The steps that were recorded, as of the last `follow`."""
        return range(self._contents.first_step, self._contents.last_step + 1)

    @property
    def state(self) -> State:
        """Whether the recording was completed, goes on, or was interrupted."""
        return self._contents.state

    @property
    def generation(self) -> str | None:
        """Another one where steps that were read before may be others now: the run went back while it was recorded."""
        return self._contents.generation

    @property
    def ended_because(self) -> str | None:
        """Why it ended, where not because it was done: a sentence."""
        return self._contents.ended_because

    def layout(self, step: int | None = None) -> Layout | None:
        """Where the params lay as the recording began, or in `step`; None where that was not recorded (format 1)."""
        laid = self.about.layout if step is None else self.step(step).layout
        if laid is None:
            return None
        with reading(self.path):
            return self._laid(laid)

    def parent_path(self) -> Path | None:
        """The recording that this replay was made of, a folder or the zip file of it; None where it is not there."""
        parent = self.about.parent
        if parent is None:
            return None
        named = Path(os.path.normpath(self.path.absolute().parent / parent.path))
        for path in (named, named.with_name(f"{named.name}.zip")):
            with suppress(UsageError, OSError), Session.open(path) as session:
                if session.id == parent.id:
                    return path
        return None

    def info(self) -> dict[str, Any]:
        """What it holds, in one document."""
        return session_info(self)

    @property
    def nbytes(self) -> int:
        """Bytes of all its files."""
        return self._places.nbytes()

    # --- what it holds

    def captures(self, kind: CaptureKind) -> tuple[int, ...]:
        """The steps of which there are gradients, or after which there is a keyframe, ascending."""
        return tuple(sorted(step for step, each in self._contents.captures() if each == kind))

    def metric_names(self) -> tuple[str, ...]:
        """What `metric` takes: the scalars, and "ms/KERNEL" and "cold/KERNEL" for those that were timed.

        Of several processes also "loss/rank 0", "grad_norm/rank 0" (of its part, where it saw no other) and
        "seconds/rank 0" (from the end of a step to the end of the next), and so on.
        """
        return (*SCALARS, *self._contents.kernel_metrics())

    def metric(self, name: str) -> F64Array:
        """One value a step, float64, read-only; NaN where it is unknown."""
        values = self._contents.scalar(name) if name in SCALARS else self._contents.kernel_ms(name)
        if values is None:
            raise UsageError(f"{self.path} has no metric {name!r}; it has {', '.join(self.metric_names())}.")
        values.flags.writeable = False
        return values

    def known(self, name: str) -> npt.NDArray[np.bool_]:
        """Of one of the scalars, whether it was recorded, a value a step: a loss may be NaN, or not be known."""
        return self._contents.known(name)

    def norms_of_part(self) -> npt.NDArray[np.bool_]:
        """Of each step, whether "grad_norm" is of the part of one of several processes."""
        if self._joined is not None:
            return np.zeros(len(self.steps), np.bool_)
        assert isinstance(self._contents, Contents)
        return self._contents.of_part()

    def rank_parts(self) -> tuple[RankPart, ...]:
        """What each of several processes recorded; () for the session of one."""
        return self._joined.parts() if self._joined is not None else ()

    def rank_steps(self, step: int) -> tuple[RankStep, ...]:
        """The numbers of a step in each of several processes; () for the session of one."""
        self._check_step(step)
        return self._joined.rank_steps(step) if self._joined is not None else ()

    def parted(self, step: int) -> tuple[Parted, ...]:
        """What several processes should have alike in a step and do not."""
        self._check_step(step)
        return self._joined.parted(step) if self._joined is not None else ()

    def held(self) -> dict[str, tuple[Held, ...]]:
        """The part of each param that each of several processes keeps, by name; {} for the session of one."""
        return self._joined.shards.held() if self._joined is not None else {}

    def step(self, step: int) -> RecordedStep:
        """All scalars of one step."""
        self._check_step(step)
        return self._contents.step(step)

    def has_own_settings(self) -> bool:
        """True where in any step params had settings of their own."""
        return self._contents.has_own_settings()

    def forms(self) -> tuple[tuple[int, Variant], ...]:
        """The form in which the first step ran, and each step from which on another held."""
        return self._contents.forms()

    def param_statistics(self, step: int) -> ParamTable | None:
        """Statistics of every param right before the update of `step`; None where they were not counted."""
        self._check_step(step)
        return self._contents.table(step)

    def histogram(self, lane: Lane, step: int, param: str | None = None) -> BufferStats:
        """Counts and the histogram of a lane right before the update of `step`, of a param or of all.

        Of the statistics of that step, or of captured tensors; UsageError where there are neither.
        """
        table = self.param_statistics(step)
        if table is None:
            at = step if lane == "g" else step - 1
            names = [p.name for p in self.about.params] if param is None else [param]
            return buffer_stats(np.concatenate([self.tensor(lane, at, name).reshape(-1) for name in names]))
        if param is None:
            return table.merged("all").lanes[lane].counts
        if param not in table.names:
            raise UsageError(f"{self.path} has no param {param!r}.")
        return table[table.names.index(param)].lanes[lane].counts

    def tensor(self, lane: Lane, step: int, param: str) -> F32Array:
        """A captured tensor in its shape, read-only, memory-mapped: g of the step; w, m or v after it.

        m and v that were kept in 8 bits are decoded. UsageError where it was not captured.
        """
        return self._tensors.tensor(lane, step, param)

    def param_state(self, name: str, step: int, param: str) -> F32Array:
        """A captured state in a shape of its own after `step`, as Adafactor's row_var: in that shape, read-only.

        UsageError where it was not captured, or the param has none of that name.
        """
        return self._tensors.param_state(name, step, param)

    def param_states(self, step: int) -> Mapping[str, Mapping[str, F32Array]]:
        """All captured states in shapes of their own after `step`, by state and param."""
        return self._tensors.param_states(step)

    def window(self, lane: Lane, step: int, param: str, start: int, stop: int) -> F32Array:
        """Elements [start, stop) of what `tensor` gives, flat, a copy; of 8-bit state only these are decoded."""
        return self._tensors.window(lane, step, param, start, stop)

    def holds(self, lane: Lane, step: int, param: str) -> bool:
        """True where the captured tensors of that step have something of a param; what is missing is 0."""
        return self._tensors.holds(lane, step, param)

    def holds_codes(self, step: int, param: str) -> bool:
        """True where m and v of a param were captured in 8 bits after `step`, so that `codes` gives them."""
        return self._tensors.holds_codes(step, param)

    def gradients(self, step: int) -> Mapping[str, F32Array]:
        """The captured gradients of a step by param name, flat; a param that is missing had gradient 0."""
        return self._tensors.gradients(step)

    def keyframe(self, step: int) -> HostState:
        """The captured state after a step, 8-bit codes byte for byte."""
        return self._tensors.state(step)

    def codes(self, step: int, param: str) -> Moments8bit:
        """m and v of a param after `step` as they were kept in 8 bits: codec, codes and a float32 scale a block of 256.

        Read-only; codes are int8 or uint8, flat, of whole blocks. UsageError where they were not captured, or the param
        kept float32 state.
        """
        return self._tensors.codes(step, param)

    def findings(self) -> tuple[Finding, ...]:
        """What the diagnosis found, in the order of the steps."""
        return self._contents.findings()

    def notes(self, kind: NoteKind) -> tuple[Note, ...]:
        """Marks, bookmarks, or gaps: what could not be captured."""
        return tuple(note for note in self._contents.notes() if note.kind == kind)

    def put_in_place(self) -> tuple[int, ...]:
        """The steps before which the run's script wrote w, m or v, as by loading a checkpoint; in order."""
        notes = self._contents.notes()
        if self._placed[0] is not notes:
            self._placed = notes, tuple(sorted({note.step for note in notes if puts_in_place(note)}))
        return self._placed[1]

    def bookmarks(self) -> Bookmarks:
        """The bookmarks that were set in it, to be added to where it is a folder."""
        return Bookmarks.of(self._places, self.notes("bookmark"))

    def captured_files(self) -> dict[tuple[int, str], StoredFile]:
        """The file of each capture, by step and kind."""
        return self._contents.captures()

    def files(self) -> tuple[StoredFile, ...]:
        """The tensor files; those of several processes are files of `ranks`."""
        if self._joined is not None:
            return ()
        return tuple(dict.fromkeys(self._contents.captures().values()))

    # --- keeping up, checking, copying

    def follow(self) -> bool:
        """Take in what was recorded since; True where there is anything new."""
        before = self.steps, self.state
        changed = self._contents.look()
        if changed:
            self._tensors.forget()
            self._tensors.use(self.about)
        return changed or before != (self.steps, self.state)

    def verify(self) -> list[str]:
        """Read and check everything; a sentence for each part that is damaged."""
        problems: list[str] = [problem for rank in self.ranks for problem in rank.verify()]
        if problems:
            return problems
        for part in (self.metric_names, self.findings, self._contents.notes, self.files):
            attempt(problems, part)
        for step in self.steps:
            attempt(problems, self.step, step)
            attempt(problems, self.param_statistics, step)
        with suppress(UsageError):
            for file in self.files():
                attempt(problems, self.check, file)
        return problems

    def check(self, file: StoredFile) -> None:
        """UsageError where a tensor file is missing or not as it was written."""
        self._tensors.check(file)

    def copy_database(self, target: sqlite3.Connection) -> None:
        """Copy the whole database."""
        self._contents.copy(target)

    @property
    def _joined(self) -> JoinedContents | None:
        return self._contents if isinstance(self._contents, JoinedContents) else None

    def _laid(self, laid: RecordedLayout) -> Layout:
        if self._layouts is None or self._layouts[0] != laid:
            self._layouts = laid, laid.layout(self.about.params)
        return self._layouts[1]

    def _check_step(self, step: int) -> None:
        if step not in self.steps:
            span = f"steps {self.steps.start:,} to {self.steps.stop - 1:,}" if self.steps else "no steps"
            raise UsageError(f"{self.path} has no step {step:,}; it holds {span}.")
