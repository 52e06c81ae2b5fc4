"""A recording that another process may still write: looked at now and then, and what becomes of it told."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from inspector.runtime.recorded import RecordedRun
from inspector.session.session_info import how_to_go_on

POLL_S = 0.25
"""So often a recording that is still written is looked at, and less often where that takes long."""
IDLE_POLL_S = 1.0
"""So often one that was interrupted."""
POLL_SHARE = 10

Say = Callable[[Literal["info", "warning", "error"], str], None]


class Watching:
    """Looks at a recording no more often than that is worth."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._looked_at = -float("inf")
        self._cost = 0.0

    def wait_s(self, recorded: RecordedRun) -> float | None:
        """How long it need not be looked at; None for ever."""
        if not _changes(recorded):
            return None
        return max(self._looked_at + self._patience_s(recorded) - time.perf_counter(), 0.0)

    def look(self, recorded: RecordedRun) -> bool:
        """Take in what was written since; True where there is anything new."""
        if self.wait_s(recorded) != 0.0:
            return False
        started = time.perf_counter()
        before = recorded.session.state
        changed = recorded.follow()
        self._looked_at = time.perf_counter()
        self._cost = self._looked_at - started
        if changed:
            self._tell(recorded, before)
        return changed

    def _tell(self, recorded: RecordedRun, before: str) -> None:
        """What became of it."""
        state, last = recorded.session.state, recorded.steps.stop - 1
        path = recorded.session.path
        if state == "interrupted" and before != state:
            self._say(
                "warning",
                f"The recording {path} was interrupted after step {last:,}: what wrote it is gone. "
                + (
                    f"{recorded.session.ended_because} All up to there can be looked at."
                    if recorded.session.ranks
                    else "All up to there can be looked at; "
                    f"{how_to_go_on(recorded.session.about.source, path)}."
                ),
            )
        elif state == "recording" and before != state:
            self._say("info", f"The recording {path} goes on again: F follows it.")
        elif state == "complete":
            why = recorded.session.ended_because
            self._say("info", f"The recording {path} is complete: {last:,} steps. {why or ''}".rstrip())

    def _patience_s(self, recorded: RecordedRun) -> float:
        patience = POLL_S if recorded.session.state == "recording" else IDLE_POLL_S
        return max(patience, POLL_SHARE * self._cost)


def _changes(recorded: RecordedRun) -> bool:
    # One that was interrupted may be gone on with.
    return recorded.session.state != "complete"
