"""A race recorded as one session: a folder with a session a lane, and the file that says what each ran."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from inspector import __version__
from inspector.errors import InspectorError, UsageError
from inspector.files import path_from
from inspector.hyper import HYPER_NAMES, Hyper
from inspector.progress import EndedError, part, watched
from inspector.race import LaneSpec
from inspector.runtime.racing import Lane
from inspector.runtime.recording import Recording
from inspector.runtime.snapshots import RecordingPicture
from inspector.session.new_place import check_new
from inspector.session.policy import Policy
from inspector.session.race_file import LaneResult, RacedLane, RaceFile, is_race, lane_folder
from inspector.sources.base import is_closed_loop, seed_of
from inspector.sources.open import files_of


class RaceRecording:
    """Recordings of lanes that stand between steps, all after the same one; `numbers` are those of the lanes.

    Has what `Recording` has for whoever keeps one.
    """

    def __init__(
        self,
        path: Path,
        policy: Policy,
        lanes: Sequence[Lane],
        recordings: Sequence[Recording],
        numbers: Sequence[int],
    ) -> None:
        self.path = path
        self.policy = policy
        self.first_step = recordings[0].first_step
        self.ended: str | None = None
        """Why it ended by itself, in a sentence."""
        self.cut_short = False
        """True where it was ended before all tensors of every lane were written."""
        self._numbers = tuple(numbers)
        self._lanes = tuple(lanes)
        self._recordings = tuple(recordings)
        self._closed = False

    @classmethod
    def start(
        cls,
        path: Path,
        file: RaceFile,
        lanes: Sequence[Lane],
        policy: Policy,
        *,
        numbers: Sequence[int] | None = None,
        planned_steps: int | None = None,
        patience_s: float | None = None,
    ) -> RaceRecording:
        """Record `lanes` into the folder `path`, which is made unless it is one that `file` stands in already.

        `numbers` are those of the lanes in `file`, of a new one all where left out. It says how far it is; where it is
        ended, nothing of it is left.
        """
        if len({lane.steps for lane in lanes}) > 1:
            raise UsageError(
                "The lanes stand after different steps: let them catch up before they are recorded."
            )
        fresh = numbers is None or not is_race(path)
        numbers = range(len(lanes)) if numbers is None else numbers
        if fresh:
            check_new(path)
            path.mkdir()
            named = tuple(path_from(path.parent, each) for each in files_of(file.source))
            file = replace(file, files=named)
        file.write(path)
        recordings: list[Recording] = []
        try:
            for i, (number, lane) in enumerate(zip(numbers, lanes, strict=True)):
                with part(i / len(lanes), (i + 1) / len(lanes)):
                    recordings.append(
                        Recording.start(
                            lane.engine, path / lane_folder(number), policy,
                            planned_steps=planned_steps, patience_s=patience_s, lane_of=path,
                        )
                    )  # fmt: skip
        except InspectorError:
            for recording in recordings:
                recording.end("Another lane could not be recorded.")
            raise
        except EndedError:
            with watched(None):
                for recording in recordings:
                    recording.end("It was ended before it began.")
                    shutil.rmtree(recording.path)
            if fresh:
                shutil.rmtree(path)
            raise
        return cls(path, policy, lanes, recordings, numbers)

    @property
    def open(self) -> bool:
        """False once any lane's has ended."""
        return not self._closed and all(recording.open for recording in self._recordings)

    @property
    def last_step(self) -> int:
        """The last step that every lane has."""
        return min(recording.last_step for recording in self._recordings)

    def picture(self) -> RecordingPicture:
        """What to show of it."""
        pictures = [recording.picture() for recording in self._recordings]
        steps, nbytes = min(p.steps for p in pictures), sum(p.nbytes for p in pictures)
        return RecordingPicture(str(self.path), str(self.policy), steps, nbytes)

    def words(self) -> str:
        """What it holds and where, for a sentence."""
        count, first, last = len(self._lanes), self.first_step, self.last_step
        held = f"steps {first:,} to {last:,}" if last >= first else "no step"
        return f"{held} of {count} lanes: {self.path}"

    def end(self, reason: str | None = None) -> None:
        """End it once everything is written, and write what came of the lanes. Again does nothing."""
        if self._closed:
            return
        self._closed = True
        for i, recording in enumerate(self._recordings):
            with part(i / len(self._recordings), (i + 1) / len(self._recordings)):
                recording.end(reason)
            self.ended = self.ended or recording.ended
            self.cut_short = self.cut_short or recording.cut_short
        try:
            file = RaceFile.read(self.path)
            for number, lane in zip(self._numbers, self._lanes, strict=True):
                file = file.with_result(number, result_of(lane))
            if not file.steps:
                file = replace(file, steps=min(lane.ran for lane in self._lanes) - file.began_at)
            file.write(self.path)
        except InspectorError as error:
            self.ended = self.ended or str(error)


def race_file(lanes: Sequence[Lane], base: Hyper, *, source: str, schedule: str) -> RaceFile:
    """What lanes run as they are set now, where `base` is what the run itself is set to.

    How many steps there will be nobody has said: the end of the recording says how many there were.
    """
    settings = {name: getattr(base, name) for name in HYPER_NAMES}
    engine = lanes[0].engine
    form = engine.stepper.plan.variant
    return RaceFile(
        "race", source, is_closed_loop(engine.source), 0, settings,
        {"numerics": form.numerics, "reduce": form.reduce, "dispatch": form.dispatch}, schedule,
        seed_of(engine.source), engine.stepper.device.name, f"inspector {__version__}",
        tuple(RacedLane(str(_as_set(lane, base))) for lane in lanes), lanes[0].ran,
    )  # fmt: skip


def result_of(lane: Lane) -> LaneResult:
    """What came of a lane so far."""
    loss = lane.final_loss()
    known = lane.engine.record is not None and lane.engine.record.loss is not None
    step, why = lane.diverged or (None, "")
    return LaneResult(
        lane.ran,
        loss if known else None,
        lane.digest(),
        step,
        why or lane.ended or "",
        lane.ended is not None,
    )


def _as_set(lane: Lane, base: Hyper) -> LaneSpec:
    """What it runs, with settings that were changed since it began."""
    hyper = lane.engine.hyper
    changed = {n: getattr(hyper, n) for n in HYPER_NAMES if getattr(hyper, n) != getattr(base, n)}
    return replace(lane.spec, hyper=MappingProxyType(changed))
