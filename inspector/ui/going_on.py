"""What takes longer than a moment, as a snapshot tells of it: in words, how far it is, and what ends it. No Qt."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.runtime import commands as c
from inspector.runtime.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class GoingOn:
    """Something that goes on: `done` of `of` in any unit, `of` 0 where that is not known; `end` None where it has to
    come to its end."""

    words: str
    done: int = 0
    of: int = 0
    end: c.Command | None = None

    @property
    def share(self) -> str:
        """How far it is in percent, "" where that is not known."""
        return f"{min(100 * self.done // self.of, 100)} %" if self.of else ""


def going_on(snapshot: Snapshot) -> GoingOn | None:
    """What keeps the worker, or goes on beside the run; None where nothing does."""
    beside, glance = snapshot.beside, snapshot.glance
    working = snapshot.working or snapshot.closeup.working
    if working is not None:
        return GoingOn(working.doing, working.done, working.of, c.CancelWork() if working.ends else None)
    if (comparing := snapshot.comparing) is not None:
        return GoingOn("Comparing variants", comparing.done, comparing.of, c.CancelCompare())
    if (what_if := beside.what_if) is not None:
        return GoingOn("Running the what-if", what_if.done, what_if.of, c.CancelWhatIf())
    if beside.verify.of:
        return GoingOn(
            "Comparing with the kernels here", beside.verify.done, beside.verify.of, c.CancelVerify()
        )
    if (weighing := snapshot.weighing) is not None:
        return GoingOn("Working out policies", weighing.done, weighing.of, c.CancelPolicies())
    if (searching := snapshot.searching) is not None:
        way = abs(searching.end - searching.start)
        return GoingOn("Looking for a step", abs(searching.at - searching.start), way, c.CancelSeek())
    if glance is not None and glance.of and not glance.missing:
        return GoingOn(f"Rebuilding step {glance.step:,}", glance.done, glance.of, c.CancelSeek())
    if (
        (heading := snapshot.heading) is not None
        and snapshot.mode == "running"
        and snapshot.cursor is not None
    ):
        done = max(snapshot.cursor.finished_steps - heading.start, 0)
        return GoingOn(f"Going to step {heading.to:,}", done, max(heading.to - heading.start, 0), c.Pause())
    if beside.diff is not None and beside.diff.share is not None:
        return GoingOn("Comparing recordings", round(1000 * beside.diff.share), 1000, c.CancelDiff())
    if beside.sweep is not None and beside.sweep.running:
        return GoingOn("Sweeping", beside.sweep.done, beside.sweep.runs, c.CancelSweep())
    if snapshot.looking:
        return GoingOn("Drawing the map")
    return None
