"""A race that was saved, as it is shown: a history a lane, read from their sessions, one of which is open."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from inspector.errors import UsageError
from inspector.floats import F64Array
from inspector.history import EMPTY_HISTORY, History, HistoryRecorder
from inspector.optimizers import runs_as
from inspector.progress import counting
from inspector.race import lane_names
from inspector.runtime.race_pictures import LanePicture, RacePicture
from inspector.runtime.racing import norm_of
from inspector.session.race_file import RacedLane, RaceFile, is_race, lane_folder
from inspector.session.reader import Session
from inspector.session.records import State

METRICS = ("loss", "grad_norm", "clip_scale", "lr")
"""What the row of a step tells of it."""


_UNFINISHED: Mapping[State, str] = MappingProxyType(
    {
        "complete": "Stopped before this lane was done.",
        "interrupted": "Interrupted before this lane was done.",
        "recording": "It was still recorded when the race was opened.",
    }
)


class SavedRace:
    """The race in the folder `path`; the lane in `front` is the recording that is open."""

    def __init__(self, path: Path, front: int = 0) -> None:
        """UsageError where `path` holds no race. A lane that cannot be read says so, and hides no other."""
        self.path = path
        self.file = RaceFile.read(path)
        names = lane_names(self.file.specs)
        begun = counting(len(names))
        lanes: list[LanePicture] = []
        for number, (name, lane) in enumerate(zip(names, self.file.lanes, strict=True)):
            begun(1)
            lanes.append(_picture(path / lane_folder(number), name, lane, done=self.file.is_done(number)))
        self.picture = RacePicture(
            tuple(lanes), 0, together=False, closed_loop=self.file.closed_loop, live=False
        )
        self.picture = self._with(front)

    @property
    def spec(self) -> str:
        """The session of the lane in front."""
        return str(self.path / lane_folder(self.picture.front))

    def with_front(self, number: int) -> SavedRace:
        """The same, nothing read again, where another lane is the recording that is open."""
        made = copy(self)
        made.picture = self._with(number)
        return made

    def _with(self, front: int) -> RacePicture:
        return replace(self.picture, front=min(max(front, 0), len(self.file.lanes) - 1))


def saved_race(spec: str, front: int = 0) -> SavedRace | None:
    """The race that a source's name stands for; None for any other source."""
    path = Path(spec)
    return SavedRace(path, front) if is_race(path) else None


def _picture(path: Path, name: str, lane: RacedLane, *, done: bool) -> LanePicture:
    try:
        with Session.open(path) as session:
            history, steps, state = _history(session), session.steps.stop - 1, session.state
            stepped = runs_as(session.about.variant, session.about.params)
    except UsageError as error:
        return LanePicture(name, lane.spec, 0, EMPTY_HISTORY, None, str(error))
    result = lane.result
    if result is None or not done:
        return LanePicture(name, lane.spec, steps, history, None, _UNFINISHED[state], stepped)
    if result.diverged is not None:
        return LanePicture(name, lane.spec, steps, history, (result.diverged, result.why), None, stepped)
    return LanePicture(name, lane.spec, steps, history, None, result.why or None, stepped)


def _norms(session: Session) -> dict[str, F64Array]:
    """‖w‖ of the weights that each step began with and ‖Δw‖, float64[steps], NaN where params were not counted."""
    found = {name: np.full(len(session.steps), np.nan) for name in ("weight_norm", "update_norm")}
    for i, step in enumerate(session.steps):
        table = session.param_statistics(step)
        if table is not None:
            found["weight_norm"][i] = norm_of([table.lanes["w"].norm])
            found["update_norm"][i] = norm_of([table.update.norm])
    return found


def _history(session: Session) -> History:
    recorder = HistoryRecorder()
    columns = {name: session.metric(name) for name in METRICS if name in session.metric_names()}
    if session.about.stats == "full":
        columns |= _norms(session)
    columns = {name: values for name, values in columns.items() if not np.isnan(values).all()}
    if len(session.steps):
        known = {name: ~np.isnan(values) for name, values in columns.items()}
        recorder.extend(session.steps.start, columns, known)
    return recorder.freeze()
