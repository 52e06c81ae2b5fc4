"""A recording that goes on: takes what a run offers without making it wait, and writes it on a thread of its own.

The queue is bounded by bytes. Where the disk is too slow for it, the tensors of a step are left out and a note in the
session says so; scalars are always kept, and statistics as long as they fit. Tensors are taken as they are, without a
copy: who offers them must not change them afterwards.
"""

from __future__ import annotations

import errno
import shutil
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from inspector.byte_sizes import size_text
from inspector.errors import UsageError
from inspector.findings import Finding
from inspector.floats import F32Array
from inspector.layout import Param
from inspector.param_statistics import ParamTable
from inspector.progress import EndedError, advanced
from inspector.session.flight import MAX_WRITTEN, FlightRing
from inspector.session.policy import Policy, Wanted
from inspector.session.records import About, Note, RecordedStep, Shard
from inspector.session.tensor_store import DTYPES, Capture
from inspector.session.write_queue import WriteQueue
from inspector.session.writer import AddParams, DropState, Item, Rewind, SessionWriter, StepItem
from inspector.stepping import HostState

QUEUE_BYTES = 1 << 30
RESERVE_BYTES = 64 << 20
"""Left free on the disk, so that the recording can be ended in order and others still find room."""
FULL_BYTES = 1 << 20
"""A disk with less left than this is full: SQLite asks for so little at a time."""
_TOO_SLOW = "{} not captured, the disk was too slow"
_DISK_FULL = "the disk was full"
_CUT_SHORT = "the recording was ended before it was written"
TELL_S = 0.05
"""So often it is told how far the writing is at the end."""

FreeBytes = Callable[[Path], int]


def free_bytes(folder: Path) -> int:
    """What the disk of `folder` has left."""
    return shutil.disk_usage(folder).free


class Recorder:
    """All methods but those that say otherwise return at once, and are called on one thread: the one that runs steps.

    `problem` is a sentence once the recording has ended before `close`: the disk is full, or a write failed. What is
    offered from then on is not kept; what was written until then can be opened.
    """

    def __init__(
        self,
        writer: SessionWriter,
        *,
        queue_bytes: int = QUEUE_BYTES,
        reserve_bytes: int = RESERVE_BYTES,
        free: FreeBytes = free_bytes,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        """`on_problem` is called on the writing thread."""
        self.path = writer.path
        self.about = writer.about
        self.policy = Policy.from_text(writer.about.policy)
        self.last_step = writer.last_step
        self.problem: str | None = None
        self.cut_short = False
        """True where it was ended before all tensors that had been offered were written."""
        self._writer = writer
        self._numel = {p.name: p.numel for p in writer.about.params}
        self._reserve = reserve_bytes
        self._free = free
        self._on_problem = on_problem
        self.on_written: Callable[[], None] | None = None
        """Called on the writing thread whenever more is durable, and when the recording has ended."""
        self._ring = FlightRing(self.policy.flight) if self.policy.flight else None
        self._queue: WriteQueue[Item] = WriteQueue(queue_bytes)
        self._reason: str | None = None
        self._thread = threading.Thread(target=self._run, name="session-writer", daemon=True)
        self._thread.start()

    @classmethod
    def create(cls, path: Path, about: About, **settings: object) -> Recorder:
        """Start a recording at `path`, which must not exist; `settings` as for the constructor. Waits for the disk."""
        Policy.from_text(about.policy)
        return cls(SessionWriter.create(path, about), **settings)  # type: ignore[arg-type]

    @classmethod
    def resume(cls, path: Path, **settings: object) -> Recorder:
        """Go on with a recording after its last sound step, `last_step`. Waits for the disk."""
        return cls(SessionWriter.resume(path), **settings)  # type: ignore[arg-type]

    @property
    def durable_step(self) -> int:
        """The last step that would survive if the process were killed now."""
        return self._writer.last_step

    @property
    def bytes_written(self) -> int:
        """Bytes of tensor files written since this began."""
        return self._writer.bytes_written

    @property
    def waiting_bytes(self) -> int:
        """Bytes of tensors and statistics that wait to be written."""
        return self._queue.nbytes

    def wants(self, step: int) -> Wanted:
        """The tensors of `step` that have to be read back and offered; of the start its state alone."""
        if self.problem is not None:
            return Wanted()
        return self.policy.wants(step, self.about.finished_steps)

    def offer_start(self, state: HostState) -> None:
        """The state that the recording starts from."""
        self._check_step(state.finished_steps, self.about.finished_steps)
        capture = self._checked(Capture.of_state(state))
        if self._ring:
            self._ring.add(None, capture)
        if self.policy.stores(state.finished_steps, self.about.finished_steps).keyframe:
            self._queue.put(capture, capture.nbytes)

    def offer(
        self,
        step: RecordedStep,
        *,
        statistics: ParamTable | None = None,
        findings: Sequence[Finding] = (),
        gradients: Mapping[str, F32Array] | None = None,
        keyframe: HostState | None = None,
    ) -> None:
        """A complete step; one that was recorded before takes the place of that and of all after it.

        `gradients` are those of the step, `keyframe` the state after it, as far as it is wanted.
        """
        if self.problem is not None:
            return
        if step.step <= self.last_step:
            self.rewind(step.step - 1)
        self._check_step(step.step, self.last_step + 1)
        taken = self._checked(Capture.of_gradients(step.step, gradients)) if gradients is not None else None
        state = self._checked(Capture.of_state(keyframe)) if keyframe is not None else None
        if keyframe is not None:
            self._check_step(keyframe.finished_steps, step.step)
        stores = self.policy.stores(step.step, self.about.finished_steps)
        item = StepItem(step, statistics, tuple(findings))
        size = 0 if statistics is None else _statistics_bytes(statistics)
        if size and not self._queue.has_room(size):
            item, size = self._without_statistics(item), 0
        wanted = tuple(
            capture
            for capture, stored in ((taken, stores.gradients), (state, stores.keyframe))
            if capture is not None and stored
        )
        more = sum(capture.nbytes for capture in wanted)
        if self._queue.has_room(size + more):
            item, size = replace(item, captures=wanted), size + more
        else:
            kinds = " and ".join(capture.kind for capture in wanted)
            gap = Note("gap", step.step, _TOO_SLOW.format(kinds))
            item = replace(item, notes=(*item.notes, gap))
        self._queue.put(item, size)
        self.last_step = step.step
        if self._ring:
            self._ring.add(taken, state)
            if any(finding.severity != "info" for finding in findings):
                self._ring.fire()
            self._write_ring(ending=False)

    def add_params(
        self,
        step: int,
        params: Sequence[Param],
        state: HostState,
        *,
        dtypes: Sequence[str] = (),
        shards: Sequence[Shard | None] = (),
    ) -> None:
        """Params that joined the run and take part from `step` on, the next one; UsageError for a name there is.

        `state` is that of all params before `step`: what was captured of those there were does not lead on.
        """
        self._check_step(step, self.last_step + 1)
        self._check_step(state.finished_steps, step - 1)
        taken = next((p.name for p in params if p.name in self._numel), None)
        if taken is not None:
            raise UsageError(f"{self.path} has a param {taken!r} already: names have to differ.")
        more = AddParams(step, tuple(params), tuple(dtypes), tuple(shards))
        self.about = self.about.with_params(step, more.params, more.dtypes, more.shards)
        self._numel |= {p.name: p.numel for p in params}
        self._queue.put(more, 0)
        capture = self._checked(Capture.of_state(state))
        if self._ring:
            self._ring.add(None, capture)
        if self.policy.captures:
            self._queue.put(capture, capture.nbytes)

    def put_in_place(self, state: HostState) -> None:
        """The script loaded another state after the last step: `state`, from which the next step goes on."""
        self._check_step(state.finished_steps, self.last_step)
        capture = self._checked(Capture.of_state(state))
        if self._ring:
            self._ring.add(None, capture)
        if self.policy.captures:
            self._queue.put(DropState(state.finished_steps), 0)
            self._queue.put(capture, capture.nbytes)

    @property
    def has_ring(self) -> bool:
        """True where the policy has a flight recorder."""
        return bool(self._ring)

    def fire(self, state: HostState | None = None) -> None:
        """A breakpoint was hit: write what the flight recorder holds.

        `state` is the one after the last step, from which the recording can be gone on with and loses nothing of that.
        """
        if not self._ring or self._ring.exhausted:
            return
        self._ring.fire()
        self._write_ring(ending=False)
        if state is not None and state.finished_steps == self.last_step:
            capture = self._checked(Capture.of_state(state))
            self._queue.put(capture, capture.nbytes)

    def mark(self, step: int, text: str) -> None:
        """A person changed something that holds from `step` on."""
        self._queue.put(Note("mark", step, text), 0)

    def gap(self, step: int, text: str) -> None:
        """Something of `step` could not be captured."""
        self._queue.put(Note("gap", step, text), 0)

    def bookmark(self, step: int, text: str) -> None:
        """A place that a person wants to find again."""
        self._queue.put(Note("bookmark", step, text), 0)

    def rewind(self, step: int) -> None:
        """The run went back to the end of step `step`: what was recorded after it is dropped."""
        self.last_step = min(self.last_step, max(step, self.about.finished_steps))
        if self._ring:
            self._ring.rewind(step)
        self._queue.put(Rewind(step), 0)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all that was offered is durable; False where that takes longer than `timeout_s`."""
        return self._queue.wait_until_written(timeout_s)

    def close(self, reason: str | None = None) -> None:
        """End the recording once all that was offered is written; `reason` says why, if not because it was done.

        It says how far it is. Where it is ended, the tensors that still wait are left out, as notes in the session say.
        """
        if self._ring:
            self._write_ring(ending=True)
        self._reason = reason
        self._queue.close()
        waiting = self._queue.nbytes
        try:
            while self._thread.is_alive():
                self._thread.join(TELL_S)
                advanced(waiting - self._queue.nbytes, waiting)
        except EndedError:
            self._queue.lighten(self._cut)
            self._thread.join()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: object) -> None:
        self.close(None if kind is None else f"The run ended with {kind.__name__}.")

    # --- inner parts

    @staticmethod
    def _check_step(step: int, expected: int) -> None:
        if step != expected:
            raise ValueError(f"step {step} was offered where step {expected} comes next")

    def _checked(self, capture: Capture) -> Capture:
        """Found here rather than on the writing thread, which could tell nobody."""
        for (lane, name), values in capture.tensors.items():
            numel = self._numel.get(name)
            sized = numel is not None and (len(lane) > 1 or values.size == numel)
            if not sized or values.dtype.name not in DTYPES:
                raise ValueError(
                    f"{lane} of {name!r} is {values.dtype} with {values.size} elements, not {numel}"
                )
        return capture

    @staticmethod
    def _without_statistics(item: StepItem) -> StepItem:
        gap = Note("gap", item.step.step, _TOO_SLOW.format("statistics"))
        return replace(item, statistics=None, notes=(*item.notes, gap))

    def _write_ring(self, *, ending: bool) -> None:
        assert self._ring is not None
        captures = self._ring.take(self.last_step, ending=ending)
        for capture in captures:
            # In memory already, so it is never left out.
            self._queue.put(capture, capture.nbytes)
        if captures and self._ring.exhausted:
            text = f"flight recorder stopped, it has been written {MAX_WRITTEN} times"
            self._queue.put(Note("mark", self.last_step, text), 0)

    def _cut(self, items: Sequence[Item]) -> list[Item]:
        self.cut_short = any(
            isinstance(i, Capture) or (isinstance(i, StepItem) and i.captures) for i in items
        )
        return _without_captures(items, _CUT_SHORT)

    def _run(self) -> None:
        """The writing thread."""
        # What is not foreseen here leaves a traceback, and must not pass for an end in order.
        reason: str | None = f"The recording {self.path} has ended by a fault of the inspector."
        try:
            while items := self._queue.take():
                self._write(items)
                self._queue.written()
                if self.on_written is not None:
                    self.on_written()
            reason = self._reason
        except _FullError as end:
            reason = str(end)
        except (OSError, sqlite3.Error) as error:
            reason = self._sentence(error)
        finally:
            if reason != self._reason:
                self.problem = reason
            try:
                self._writer.finish(reason)
            except (OSError, sqlite3.Error) as error:
                self.problem = self.problem or self._sentence(error)
            self._queue.abandon()
            if self.problem is not None and self._on_problem is not None:
                self._on_problem(self.problem)
            if self.on_written is not None:
                self.on_written()

    def _write(self, items: Sequence[Item]) -> None:
        """Rewinds, params added and states dropped are carried out between what came before and after them."""
        batch: list[Item] = []
        for item in items:
            if isinstance(item, (Rewind, AddParams, DropState)):
                self._write_batch(batch)
                batch = []
                if isinstance(item, Rewind):
                    self._writer.rewind(item.step)
                elif isinstance(item, DropState):
                    self._writer.drop_state(item.step)
                else:
                    self._writer.add_params(item)
            else:
                batch.append(item)
        self._write_batch(batch)

    def _write_batch(self, items: Sequence[Item]) -> None:
        if not items:
            return
        left = self._free(self.path)
        needed = sum(item.nbytes for item in items if isinstance(item, Capture)) + sum(
            capture.nbytes for item in items if isinstance(item, StepItem) for capture in item.captures
        )
        full = self._full(left)
        if left - needed < self._reserve:
            self._writer.write(_without_captures(items, _DISK_FULL))
            raise _FullError(full)
        try:
            self._writer.write(items)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._writer.write(_without_captures(items, _DISK_FULL))
            raise _FullError(full) from None

    def _full(self, left: int) -> str:
        return f"The recording {self.path} has ended, the disk is full: {size_text(left)} were left."

    def _sentence(self, error: Exception) -> str:
        try:
            left = self._free(self.path)
        except OSError:  # Gone, folder and all: then there is room, and the error says what is the matter.
            left = FULL_BYTES
        # SQLite calls it an I/O error where its log or the index of that cannot grow.
        if (
            getattr(error, "sqlite_errorname", "").startswith(("SQLITE_FULL", "SQLITE_IOERR"))
            and left < FULL_BYTES
        ):
            return self._full(left)
        text = getattr(error, "strerror", None) or str(error)
        return f"The recording {self.path} has ended, it cannot be written: {text}."


class _FullError(Exception):
    """The recording has to end, there is no room for more; the text says so."""


def _without_captures(items: Sequence[Item], why: str) -> list[Item]:
    kept: list[Item] = []
    for item in items:
        if isinstance(item, Capture):
            kept.append(Note("gap", item.step, f"{item.kind} not captured, {why}"))
        elif isinstance(item, StepItem) and item.captures:
            gaps = tuple(Note("gap", c.step, f"{c.kind} not captured, {why}") for c in item.captures)
            kept.append(replace(item, captures=(), notes=(*item.notes, *gaps)))
        else:
            kept.append(item)
    return kept


def _statistics_bytes(table: ParamTable) -> int:
    return sum(columns.exponents.nbytes for columns in table.lanes.values())


def check_room(path: Path, expected: int, free: FreeBytes = free_bytes) -> None:
    """UsageError where the disk has no room for a recording of `expected` bytes at `path`."""
    left = free(path.parent)
    if expected + RESERVE_BYTES > left:
        raise UsageError(
            f"{path} would take {size_text(expected)}, and the disk has {size_text(left)} left, of which "
            f"{size_text(RESERVE_BYTES)} stay free: record fewer steps, or capture less."
        )
