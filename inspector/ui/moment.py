"""What is known of a moment, in words: a step that is shown as recorded, how one comes to be rebuilt, who writes."""

from __future__ import annotations

from pathlib import PurePath

import numpy as np

from inspector.runtime.snapshots import Recorded, Snapshot
from inspector.ui import format as fmt


def search_text(snapshot: Snapshot) -> str:
    """Which step is looked for, and how far that has come; "" where none is."""
    searching = snapshot.searching
    if searching is None:
        return ""
    way = f"step {searching.at:,}, from {searching.start:,} towards {searching.end:,}"
    return f"Looking for {searching.what}: {way} (Esc ends it)."


def glance_text(snapshot: Snapshot) -> str:
    """What of the step on show is there: "" where all of it is."""
    glance = snapshot.glance
    if glance is None:
        return ""
    where = f"Step {glance.step:,} as recorded"
    if glance.missing:
        return f"{glance.missing} Its numbers are as recorded."
    if glance.of:
        return (
            f"{where}; its buffers are being rebuilt: {glance.done:,} of {fmt.plural(glance.of, 'step')} "
            "(Esc stays)."
        )
    if snapshot.playing is not None:
        return f"{where}; its buffers are rebuilt at a pause."
    if snapshot.following:
        return f"{where}; its buffers are rebuilt once it is followed no longer."
    return f"{where}; its buffers have not been rebuilt: go to the step again to rebuild them."


def absent_text(snapshot: Snapshot | None, shown: object) -> str:
    """Why a view of the buffers has nothing to show (`shown` is None); "" where it has, or only waits for it."""
    if snapshot is None or shown is not None:
        return ""
    return glance_text(snapshot).replace(" (Esc stays)", "")


def keyframe_before(recorded: Recorded, step: int) -> int | None:
    """The latest step up to `step` after which a state was captured."""
    at = int(np.searchsorted(recorded.keyframes, step, side="right")) - 1
    return int(recorded.keyframes[at]) if at >= 0 else None


def stretch_end(recorded: Recorded, step: int) -> int | None:
    """The last step of the stretch that leads through `step`, None where none does."""
    at = int(np.searchsorted(recorded.rebuildable[:, 0], step, side="right")) - 1
    if at < 0 or recorded.rebuildable[at, 1] < step:
        return None
    return int(recorded.rebuildable[at, 1])


def rebuild_text(recorded: Recorded, step: int) -> str:
    """How the tensors at the end of `step` come to be shown, or why they cannot be."""
    keyframe = keyframe_before(recorded, step)
    if keyframe is None:
        return f"cannot be rebuilt: no state up to it was captured (policy {recorded.policy})"
    if keyframe == step:
        return "captured: its tensors are shown at once"
    if stretch_end(recorded, step) is not None:
        return (
            f"rebuilt from the state after step {keyframe:,} by running {fmt.plural(step - keyframe, 'step')}"
        )
    end = stretch_end(recorded, keyframe + 1)
    lacking = keyframe + 1 if end is None else end + 1
    return (
        f"cannot be rebuilt: the gradients of step {lacking:,} were not captured (policy {recorded.policy})"
    )


def memory_reaches(snapshot: Snapshot) -> int:
    """The earliest step whose end memory can go back to."""
    cursor = snapshot.cursor
    if cursor is None:
        return 0
    # Memory counts the starts of steps: that of the step in progress is one once a dispatch has run.
    newest = cursor.step if cursor.dispatch else cursor.step - 1
    return min(max(newest - snapshot.undo.steps, 0), cursor.finished_steps)


def position_text(snapshot: Snapshot, known: int) -> str:
    """Where the run stands among `known` steps, as a sentence; "" where there is none."""
    if snapshot.cursor is None:
        return ""
    steps = f"{fmt.plural(snapshot.cursor.finished_steps, 'step')} finished of {known:,} seen; "
    if snapshot.glance is not None:
        return f"{steps}this one is shown as recorded."
    return f"{steps}memory reaches back to step {memory_reaches(snapshot):,}."


def step_text(snapshot: Snapshot, step: int) -> str:
    """What going to the end of `step` takes."""
    recorded, finished = snapshot.recorded, snapshot.cursor.finished_steps if snapshot.cursor else 0
    earliest = memory_reaches(snapshot)
    if snapshot.glance is None and earliest <= step <= finished:
        return f"Step {step:,}: in memory, click to go back to its end"
    if recorded is not None and step <= recorded.last:
        return f"Step {step:,}: {rebuild_text(recorded, step)}"
    if step > finished:
        return f"Step {step:,}: click to run on to its end"
    return f"Step {step:,}: before what memory reaches (step {earliest:,}), rebuilt by running up to it again"


def session_text(snapshot: Snapshot) -> str:
    """Which recording is open, whether it is followed, and what became of it; "" where the source is none."""
    recorded = snapshot.recorded
    if recorded is None:
        return ""
    steps = fmt.plural(max(recorded.last - recorded.first + 1, 0), "step")
    follows = "following " if snapshot.following else ""
    return f"{follows}{session_name(snapshot)} · {recorded.state} · {steps}"


def session_name(snapshot: Snapshot) -> str:
    """The recording's own name, without its folder."""
    return PurePath(snapshot.source.replace("\\", "/")).name
