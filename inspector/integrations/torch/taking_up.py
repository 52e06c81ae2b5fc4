"""A session that is there already, gone on with where a script resumes its training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inspector.errors import UsageError
from inspector.integrations.torch.params import Kind
from inspector.layout import Param
from inspector.session.reader import Session
from inspector.session.recorder import Recorder


def check_same(
    session: Session, path: Path, params: Sequence[Param], kind: Kind, policy: str | None = None
) -> None:
    """UsageError unless it is a folder and a recording of these params from PyTorch, captured by `policy`.

    The optimizer has to be of the same `kind`: the steps of another do not follow from those before.
    """
    about = session.about
    if not path.is_dir():
        raise UsageError(
            f"{path} is a packed session, which is not written to: name another one, or unpack it and go on with that."
        )
    if session.ranks:
        raise UsageError(
            f"{path} is of {len(session.ranks):,} processes that each kept a part, and this run is not sharded: name "
            "another session."
        )
    if session.state == "recording":
        raise UsageError(f"{path} is being recorded by another process: name another session.")
    if not about.origin.startswith("PyTorch"):
        raise UsageError(f"{path} is a recording of {about.source}, not of PyTorch: name another session.")
    was, now = (
        _computed(about.foreign, about.variant.optimizer == "adam-l2"),
        _computed("" if kind.adam else kind.name, kind.l2),
    )
    if was != now:
        raise UsageError(
            f"{path} is a recording of {was}, and this optimizer is {now}: what it does next does not follow from the "
            "steps recorded there. Name another session."
        )
    theirs = {param.name: param.shape for param in about.params}
    mine = {param.name: param.shape for param in params}
    for name, shape in mine.items():
        if name not in theirs:
            raise UsageError(
                f"{path} is a recording of other params, it has none called {name!r}: name another session."
            )
        if theirs[name] != shape:
            raise UsageError(
                f"{path} is a recording of other params: {name!r} has the shape {list(theirs[name])} there and "
                f"{list(shape)} here: name another session."
            )
    missing = next((name for name in theirs if name not in mine), None)
    if missing is not None:
        raise UsageError(
            f"{path} is a recording of other params, of {missing!r} among them, which this optimizer lacks: name "
            "another session."
        )
    if [param.name for param in params] != [param.name for param in about.params]:
        raise UsageError(f"{path} is a recording of the same params in another order: name another session.")
    if policy is not None and policy != about.policy:
        raise UsageError(
            f"{path} is recorded with capture={about.policy!r}: give the same to go on with it, or name another "
            "session."
        )


def _computed(foreign: str, l2: bool) -> str:
    """What an optimizer computes, in words."""
    return foreign or ("Adam with the decay in its gradient" if l2 else "AdamW")


def start_step(session: Session, path: Path, t: Any) -> int:
    """The step of the session after which an optimizer with these step counts goes on; UsageError without one."""
    stands = int(t.max(initial=0))
    steps = session.steps
    last = steps.stop - 1
    if not steps:
        if stands != last:
            raise UsageError(
                f"{path} begins after step {last:,} and the optimizer stands at step {stands:,}: name another session."
            )
        return last
    step = last
    while step >= steps.start:
        at = _count(session, step)
        if at < stands:
            raise UsageError(
                f"{path} ends at step {at:,} and the optimizer stands at step {stands:,}: load the checkpoint of a "
                "step that was recorded, or name another session."
            )
        if at == stands:
            return step
        step -= 1
    if stands == 0 or stands < steps.start - 1:
        raise UsageError(
            f"{path} holds steps {steps.start:,} to {last:,}, and the optimizer stands at step {stands:,}: load the "
            "checkpoint before record() to go on with it, or name another session."
        )
    return step


def _count(session: Session, step: int) -> int:
    """The step count of the optimizer after a step of the session."""
    own = session.step(step).hyper.per_param
    if own is None or not own.classes:
        return step
    used = {own.classes[number] for number in own.of}
    return max((each.t(step) for each in used), default=step)


def take_up(path: Path, params: Sequence[Param], kind: Kind, t: Any) -> tuple[Recorder, Session]:
    """The session at `path` to go on with, and the same to read the steps before from."""
    with Session.open(path) as session:
        check_same(session, path, params, kind)
        step = start_step(session, path, t)
        last = session.steps.stop - 1
    recorder = Recorder.resume(path)
    if step < last:
        recorder.rewind(step)
        dropped = f"steps {step + 1:,} to {last:,}, which had run before, were dropped"
        recorder.mark(step + 1, f"gone on after step {step:,}: {dropped}")
    recorder.flush()
    return recorder, Session.open(path)
