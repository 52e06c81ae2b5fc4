"""What if: the open recording run again under the settings and the form chosen since, as a session of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from inspector.errors import UsageError
from inspector.hyper import HYPER_NAMES
from inspector.plan import Variant
from inspector.progress import EndedError
from inspector.runtime.engine import Engine
from inspector.runtime.parts import OpenRun
from inspector.runtime.replay import Changes, Replay
from inspector.runtime.saved_replay import SavedReplay
from inspector.session.new_place import check_new
from inspector.session.policy import Policy
from inspector.sources.recording import Recording, Stretch

Progress = Callable[[int, int], None]


def changes_of(engine: Engine) -> Changes:
    """What a run of a recording has for settings and form that the recording had not."""
    source = engine.source
    assert isinstance(source, Recording)
    hyper = {
        name: getattr(engine.hyper, name)
        for name in HYPER_NAMES
        if getattr(engine.hyper, name) != getattr(source.hyper, name)
    }
    step = max(engine.stepper.cursor.step, source.first_step)
    recorded = (
        source.recorded_variant(min(step, source.session.steps.stop - 1)) or source.session.about.variant
    )
    now = engine.stepper.plan.variant
    variant = {
        f.name: getattr(now, f.name)
        for f in fields(Variant)
        if getattr(now, f.name) != getattr(recorded, f.name)
    }
    schedule = engine.schedule if engine.schedule != source.recorded_schedule else None
    return Changes(hyper, variant, schedule)


def check_what_if(engine: Engine, path: Path, policy: str | None) -> tuple[Recording, Changes]:
    """The recording and what is changed; UsageError where there is nothing to run, or nowhere to record it."""
    source = engine.source
    if not isinstance(source, Recording):
        raise UsageError("What if runs a recording again under other settings: open a recording first.")
    if problem := source.missing(source.first_step):
        raise UsageError(f"{source.name}: {problem}")
    changes = changes_of(engine)
    if not changes:
        raise UsageError(
            "Settings and form are those of the recording: change what is to be different first, then ask what if."
        )
    check_new(path)
    if policy is not None:
        Policy.from_text(policy)
    return source, changes


def run_what_if(
    opener: OpenRun, source: Recording, changes: Changes, path: Path, policy: str | None, progress: Progress
) -> int:
    """Run the steps of `source` again and record them at `path`; how many ran.

    On a device of its own, as the run beside keeps its memory. `progress` is told between steps how many ran, of how
    many; EndedError from it ends the run, and what was recorded until then stays.
    """
    assert source.last_step is not None
    span = Stretch(source.first_step, source.last_step)
    of = span.last - span.first + 1
    # Its own reader: the run goes on reading the other.
    again = Recording(Path(source.name), first=span.first)
    runner = Replay(again, opener.replay_maker(), changes)
    done = 0
    try:
        progress(0, of)
        state = runner.start(span.first)
        with SavedReplay(path, runner, span, state, capture=policy) as saved:
            counted = again.session.about.stats == "full"
            for ran in runner.run(span.first, span.last, wants_state=saved.wants_state, statistics=counted):
                saved.offer(ran, ran.findings)
                done += 1
                progress(done, of)
    except EndedError:
        # After the last step there is nothing left to end.
        if done < of:
            raise
    finally:
        runner.close()
        again.session.close()
    return done
