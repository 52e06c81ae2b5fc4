"""A recording that goes on: takes what a run offers without making it wait, and writes it on threads of its own.

The queue is bounded by bytes. Where the disk is too slow for it, the tensors of a step are left out and a note in the
session says so; scalars are always kept, and statistics as long as they fit. Tensors that take a disk long are written
beside the rows, which do not wait for them: a killed process has lost those that were under way, and no number. Tensors
are taken as they are, without a copy: who offers them must not change them afterwards.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from inspector.byte_sizes import size_text
from inspector.errors import UsageError
from inspector.findings import Finding
from inspector.floats import F32Array
from inspector.layout import Param
from inspector.param_statistics import ParamTable
from inspector.session.flight import MAX_WRITTEN, FlightRing
from inspector.session.policy import Policy, Wanted
from inspector.session.records import About, Note, RecordedStep, Shard
from inspector.session.tensor_store import DTYPES, Capture
from inspector.session.writer import AddParams, DropState, Rewind, SessionWriter, StepItem
from inspector.session.writing_threads import FreeBytes, WritingThreads, is_large
from inspector.stepping import HostState

QUEUE_BYTES = 1 << 30
RESERVE_BYTES = 64 << 20
"""Left free on the disk, so that the recording can be ended in order and others still find room."""
_TOO_SLOW = "{} not captured, the disk was too slow"


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
        self._writer = writer
        self._numel = {p.name: p.numel for p in writer.about.params}
        self._ring = FlightRing(self.policy.flight) if self.policy.flight else None
        self._threads = WritingThreads(
            writer, queue_bytes=queue_bytes, reserve_bytes=reserve_bytes, free=free, on_problem=on_problem
        )

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
    def problem(self) -> str | None:
        """Why it has ended before `close`, a sentence."""
        return self._threads.problem

    @property
    def cut_short(self) -> bool:
        """True where it was ended before all tensors that had been offered were written."""
        return self._threads.cut_short

    def call_when_written(self, told: Callable[[], None]) -> None:
        """Have `told` called on the writing thread whenever more is durable, and when the recording has ended."""
        self._threads.on_written = told

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
        return self._threads.waiting_bytes

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
            self._threads.put_tensors([capture])

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
        if size and not self._threads.has_room(size):
            item, size = self._without_statistics(item), 0
        wanted = tuple(
            capture
            for capture, stored in ((taken, stores.gradients), (state, stores.keyframe))
            if capture is not None and stored
        )
        more = sum(capture.nbytes for capture in wanted)
        large = is_large(wanted)
        if not self._threads.has_room(more if large else size + more, large=large):
            kinds = " and ".join(capture.kind for capture in wanted)
            gap = Note("gap", step.step, _TOO_SLOW.format(kinds))
            item, wanted, more = replace(item, notes=(*item.notes, gap)), (), 0
        if large:
            self._threads.put(item, size)
            self._threads.put_tensors(wanted)
        else:
            self._threads.put(replace(item, captures=wanted), size + more)
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
        self._threads.put(more)
        capture = self._checked(Capture.of_state(state))
        if self._ring:
            self._ring.add(None, capture)
        if self.policy.captures:
            self._threads.put_tensors([capture])

    def put_in_place(self, state: HostState) -> None:
        """The script loaded another state after the last step: `state`, from which the next step goes on."""
        self._check_step(state.finished_steps, self.last_step)
        capture = self._checked(Capture.of_state(state))
        if self._ring:
            self._ring.add(None, capture)
        if self.policy.captures:
            self._threads.put(DropState(state.finished_steps))
            self._threads.put_tensors([capture])

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
            self._threads.put_tensors([self._checked(Capture.of_state(state))])

    def mark(self, step: int, text: str) -> None:
        """A person changed something that holds from `step` on."""
        self._threads.put(Note("mark", step, text))

    def gap(self, step: int, text: str) -> None:
        """Something of `step` could not be captured."""
        self._threads.put(Note("gap", step, text))

    def bookmark(self, step: int, text: str) -> None:
        """A place that a person wants to find again."""
        self._threads.put(Note("bookmark", step, text))

    def rewind(self, step: int) -> None:
        """The run went back to the end of step `step`: what was recorded after it is dropped."""
        self.last_step = min(self.last_step, max(step, self.about.finished_steps))
        if self._ring:
            self._ring.rewind(step)
        self._threads.put(Rewind(step))

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all that was offered is durable; False where that takes longer than `timeout_s`."""
        return self._threads.flush(timeout_s)

    def close(self, reason: str | None = None) -> None:
        """End the recording once all that was offered is written; `reason` says why, if not because it was done.

        It says how far it is. Where it is ended, the tensors that still wait are left out, as notes in the session say.
        """
        if self._ring:
            self._write_ring(ending=True)
        self._threads.close(reason)

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
        # In memory already, so none is left out.
        self._threads.put_tensors(captures)
        if captures and self._ring.exhausted:
            text = f"flight recorder stopped, it has been written {MAX_WRITTEN} times"
            self._threads.put(Note("mark", self.last_step, text))


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
