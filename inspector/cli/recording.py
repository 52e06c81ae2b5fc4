"""`--save`: what the commands check and say of a recording, and how one is continued."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from inspector.byte_sizes import size_text
from inspector.errors import InspectorError, UsageError
from inspector.files import anything_at
from inspector.floats import shortest
from inspector.hyper import HYPER_NAMES, Hyper, scheduled
from inspector.plan import Variant
from inspector.runtime.engine import Engine
from inspector.runtime.recording import Recording, described
from inspector.schedule import Schedule
from inspector.session.database import DATABASE_NAME
from inspector.session.new_place import check_new
from inspector.session.policy import Policy
from inspector.session.race_file import is_race, kind_of
from inspector.session.reader import Session
from inspector.session.recorder import Recorder, check_room, free_bytes
from inspector.sources.base import Source
from inspector.statistics import StatsLevel
from inspector.stepping import HostState


@dataclass(frozen=True, slots=True)
class Save:
    """Where to record, and what of tensors; `policy` None takes that of the session which is continued."""

    path: Path
    policy: Policy | None
    resume: bool = False


@dataclass(frozen=True, slots=True)
class TakenUp:
    """A session to go on with from the state after `state.finished_steps`."""

    state: HostState
    steps: int
    """To run until all that were asked for are there."""


def make_save(path: Path | None, capture: str | None, resume: bool = False) -> Save | None:
    """What the options say together; UsageError before any work is done where they cannot be carried out."""
    if path is None:
        if capture is not None or resume:
            check_saved("--resume" if resume else "--capture", path)
        return None
    policy = None if capture is None else Policy.from_text(capture)
    if not resume:
        if anything_at(path) and (path / DATABASE_NAME).exists():
            raise UsageError(
                f"{path} exists: name another session, or continue it with inspector run … --save … --resume."
            )
        check_new(path)
        policy = policy or Policy()
    elif not anything_at(path):
        raise UsageError(f"{path} does not exist, so nothing is continued: leave --resume out.")
    elif is_race(folder := path.absolute().parent):
        raise UsageError(
            f"{path} is a lane of the saved {kind_of(folder)} {folder}, which tells what it ran: save to another "
            "session."
        )
    return Save(path, policy, resume)


def check_saved(option: str, path: Path | None) -> None:
    """UsageError where `option`, which is of a recording, was given and no place for one."""
    if path is None:
        raise UsageError(f"{option} needs a session to record to: name it with --save NAME.session.")


def level_of(stats: StatsLevel | None, save: Save | None) -> StatsLevel:
    """How much is counted: of a recording all, unless said otherwise."""
    return stats or ("light" if save is None else "full")


def take_up(save: Save, source: Source, variant: Variant, hyper: Hyper, steps: int) -> TakenUp:
    """The state that a session goes on from; UsageError where it is none of this run, or there is nothing to do."""
    with Session.open(save.path) as session:
        about = session.about
        if not save.path.is_dir():
            raise UsageError(
                f"{save.path} is a packed session, which is not written to: unpack it and continue its folder."
            )
        if session.ranks:
            raise UsageError(
                f"{save.path} is of {len(session.ranks):,} processes, each with a session of its own: it is gone on "
                "with by the program that recorded it."
            )
        if session.state == "recording":
            raise UsageError(f"{save.path} is still being recorded: wait until that has ended.")
        _check_same(session, source)
        if save.policy is not None and str(save.policy) != about.policy:
            raise UsageError(
                f"{save.path} is recorded with --capture {about.policy}: leave --capture out to continue it."
            )
        last, target = session.steps.stop - 1, about.finished_steps + steps
        if target <= last:
            raise UsageError(
                f"{save.path} holds {len(session.steps):,} steps already: give --steps more than that."
            )
        keyframes = [step for step in session.captures("keyframe") if step <= last]
        if not keyframes:
            raise UsageError(
                f"{save.path} holds no keyframe to go on from: only what is recorded with --capture can be continued."
            )
        at = keyframes[-1]
        _check_settings(session, at, source, variant, hyper)
        return TakenUp(session.keyframe(at), target - at)


def _check_same(session: Session, source: Source) -> None:
    about = session.about
    same = (about.source, about.description) == (source.name, described(source))
    if not same or about.params != tuple(source.params):
        raise UsageError(
            f"{session.path} is a recording of {about.source} ({about.description}), not of {source.name} "
            f"({described(source)}): name another session."
        )


def _check_settings(session: Session, at: int, source: Source, variant: Variant, hyper: Hyper) -> None:
    """UsageError where the run would go on with other settings than it had by then."""
    about = session.about
    if at > about.finished_steps:
        step = session.step(at)
        was, form = step.hyper, step.variant
        now = scheduled(hyper, source.schedule.factor(at))
    else:
        was, form, now = about.hyper, about.variant, hyper
    pairs = [(name, getattr(was, name), getattr(now, name)) for name in HYPER_NAMES]
    pairs += [(name, getattr(form, name), getattr(variant, name)) for name in Variant.__dataclass_fields__]
    if source.schedule != Schedule.from_text(about.schedule):
        pairs.insert(0, ("schedule", about.schedule, str(source.schedule)))
    if was.per_param != now.per_param:
        raise UsageError(
            f"{session.path} was recorded with other settings of its groups of params than the run would go on with: "
            "give the same source and options."
        )
    for name, old, new in pairs:
        if old != new:
            then, then_on = (shortest(each) if isinstance(each, float) else each for each in (old, new))
            raise UsageError(
                f"{session.path} was recorded with {name} {then} and would go on with {then_on}: give the same options."
            )


@contextmanager
def recorded(save: Save | None, engine: Engine, steps: int) -> Iterator[Recording | None]:
    """Within the block the run is recorded; what to expect is told before, what there is after it."""
    if save is None:
        yield None
        return
    recording = _resume(save, engine, steps) if save.resume else _start(save, engine, steps)
    try:
        yield recording
    except KeyboardInterrupt:
        recording.end("The run was stopped.")
        raise
    except BaseException as error:
        told = isinstance(error, InspectorError)
        recording.end(str(error) if told else f"The run ended with {type(error).__name__}.")
        raise
    finally:
        recording.end()
        _tell(recorded_words(recording))


def _start(save: Save, engine: Engine, steps: int) -> Recording:
    assert save.policy is not None
    _tell(expected_words(save.path, save.policy, engine, steps))
    return Recording.start(engine, save.path, save.policy, planned_steps=steps)


def _resume(save: Save, engine: Engine, steps: int) -> Recording:
    at = engine.stepper.cursor.finished_steps
    with Session.open(save.path) as session:
        policy = Policy.from_text(session.about.policy)
    _tell(f"Going on after step {at:,}. {expected_words(save.path, policy, engine, steps)}")
    expected = policy.expected_bytes(engine.stepper.layout, steps, stats=engine.stats_level, start=at)
    check_room(save.path, expected)
    recorder = Recorder.resume(save.path)
    recorder.rewind(at)
    return Recording(engine, recorder)


def expected_words(path: Path, policy: Policy, engine: Engine, steps: int) -> str:
    """The size to expect of so many steps, in a sentence."""
    layout = engine.stepper.layout
    start = engine.stepper.cursor.finished_steps
    expected = policy.expected_bytes(layout, steps, stats=engine.stats_level, start=start)
    memory = policy.memory_bytes(layout)
    ring = f", and up to {size_text(memory)} of memory" if memory else ""
    return (
        f"Recording {steps:,} steps ({policy}) to {path}: about {size_text(expected)}{ring}; the disk has "
        f"{size_text(free_bytes(path.parent))} left."
    )


def recorded_words(recording: Recording) -> str:
    """Where the recording is and how large, in a sentence."""
    return f"Recorded {recording.words()}, {size_text(recording.size())}."


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
