"""What is kept of a run on disk while it goes on: its recording, and the bookmarks of a person."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from inspector.errors import InspectorError, UsageError
from inspector.progress import EndedError
from inspector.runtime.commands import StartRecording
from inspector.runtime.engine import Engine
from inspector.runtime.race_host import RaceHost
from inspector.runtime.race_recording import RaceRecording
from inspector.runtime.recording import Recording
from inspector.runtime.snapshots import Mark, RecordingPicture
from inspector.session.bookmarks import Bookmarks
from inspector.session.policy import Policy
from inspector.statistics import StatsLevel

RECORDING_PATIENCE_S = 0.25
"""So long a step waits at most for the one before it to be on disk."""

Say = Callable[[Literal["info", "warning", "error"], str], None]


class Keeping:
    """One recording at a time, and the bookmarks of the run that is open. `say` tells a person a sentence."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._recording: Recording | RaceRecording | None = None
        self._bookmarks = Bookmarks()
        self._not_kept = ""
        """Why bookmarks are not kept on disk, and what to do about it."""
        self._stats_before: StatsLevel | None = None

    # --- a recording

    @property
    def has_ended(self) -> bool:
        """True where a recording ended by itself, which is to be told."""
        return self._recording is not None and not self._recording.open

    def recording_picture(self) -> RecordingPicture | None:
        """What to show of the recording that goes on."""
        return self._recording.picture() if self._recording is not None else None

    def start_recording(self, engine: Engine, asked: StartRecording, race: RaceHost) -> StatsLevel:
        """Record from here on, all lanes of a race; gives what is counted from now on. UsageError where it cannot."""
        policy = Policy.from_text(asked.policy)
        if self._recording is not None:
            raise UsageError(f"{self._recording.path} is being recorded: stop that first.")
        before = engine.stats_level
        if asked.stats is not None:
            engine.set_stats(asked.stats)
            race.set_stats(asked.stats)
        try:
            start = race.start_recording if race else partial(Recording.start, engine)
            self._recording = start(Path(asked.path), policy, patience_s=RECORDING_PATIENCE_S)
        except (InspectorError, EndedError):
            engine.set_stats(before)
            race.set_stats(before)
            raise
        self._stats_before = before
        if not race:
            self._bookmarks.keep_in(Path(asked.path))
        self._say("info", f"Recording from step {self._recording.first_step:,} on ({policy}): {asked.path}.")
        return engine.stats_level

    def stats_were_set(self) -> None:
        """A person chose what is counted: the end of the recording leaves that."""
        self._stats_before = None

    def end_recording(self, engine: Engine | None) -> StatsLevel | None:
        """End the recording, if one goes on; gives what is counted from now on, None where that stays.

        It says how far it is; where it is ended, tensors that are not written yet are left out.
        """
        recording, self._recording = self._recording, None
        if recording is None:
            return None
        recording.end()
        if recording.ended is not None:
            self._say("warning", f"{recording.ended} Recorded {recording.words()}.")
        elif recording.cut_short:
            self._say(
                "warning",
                f"Recorded {recording.words()}. Tensors that were still to be written are left out, as its notes say.",
            )
        else:
            self._say("info", f"Recorded {recording.words()}.")
        before, self._stats_before = self._stats_before, None
        if engine is None or before is None:
            return None
        engine.set_stats(before)
        return engine.stats_level

    # --- bookmarks

    def opened(self, engine: Engine) -> None:
        """Another run is open: its bookmarks, where it is a recording."""
        self._bookmarks = Bookmarks()
        self._not_kept = "Bookmarks of this run are kept until it is closed: record it to keep them."
        if engine.recorded is None:
            return
        self._not_kept = (
            "Bookmarks in a packed recording are kept until it is closed: unpack it to keep them."
        )
        try:
            self._bookmarks = engine.recorded.session.bookmarks()
        except UsageError as error:
            self._not_kept = str(error)
            self._say("warning", str(error))

    def bookmark_marks(self) -> tuple[Mark, ...]:
        """By step."""
        return tuple(Mark(each.step, each.text) for each in self._bookmarks.all)

    def set_bookmark(self, step: int, text: str) -> None:
        """Put one there, or take it away where the text is empty."""
        if not self._bookmarks.all and self._bookmarks.folder is None:
            self._say("info", self._not_kept)
        try:
            self._bookmarks.set(step, text)
        except UsageError as error:
            # The run goes on.
            self._say("warning", str(error))
