"""A program of the soak test: `write PATH SECONDS` records as fast as the disk takes it, `read PATH` follows it.

A reader prints one JSON document once the recording is complete: the steps it saw, in order and each once, how often it
looked, and what was wrong.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import recordings

from inspector.errors import UsageError
from inspector.session.reader import Session
from inspector.session.recorder import Recorder

POLICY = "grads:1+keyframes:25"
TABLES_EVERY = 20
REOPENED_EVERY = 40
PARAM = recordings.NAMES[0]
WAIT_S = 60.0


def write(path: Path, seconds: float) -> None:
    """Each step is on the disk before the next is offered, as in a run."""
    until = time.monotonic() + seconds
    with Recorder.create(path, recordings.about(POLICY)) as recorder:
        recorder.offer_start(recordings.state(0))
        step = 0
        while time.monotonic() < until and recorder.problem is None:
            step += 1
            recordings.record_on(recorder, step, statistics=step % TABLES_EVERY == 0)
            recorder.flush()
    print(json.dumps({"last": step, "problem": recorder.problem}))


def read(path: Path) -> None:
    """Follow until it is complete, looking at every step as soon as it is there."""
    rng = random.Random(path.name)
    report: dict[str, Any] = {"seen": 0, "looks": 0, "live_looks": 0, "most_at_once": 0, "wrong": []}
    session = _opened(path)
    seen = 0
    while True:
        report["looks"] += 1
        try:
            session.follow()
            state, steps = session.state, session.steps
            report["live_looks"] += state == "recording"
            if steps.start != 1 or steps.stop - 1 < seen:
                report["wrong"].append(f"after step {seen} it holds {steps}")
                break
            report["most_at_once"] = max(report["most_at_once"], steps.stop - 1 - seen)
            for step in range(seen + 1, steps.stop):
                report["wrong"] += _problems(session, step)
                seen = step
            if state != "recording":
                report["state"] = state
                break
            if report["looks"] % REOPENED_EVERY == 0:
                session.close()
                session = _opened(path)
        except UsageError as error:
            report["wrong"].append(str(error))
            break
        time.sleep(rng.uniform(0, 0.02))
    report["seen"] = seen
    if not report["wrong"]:
        metric = session.metric("loss")
        right = np.array([recordings.recorded(step).loss for step in session.steps])
        report["wrong"] += (
            [] if np.array_equal(metric, right) else ["the loss over all steps is not as recorded"]
        )
        report["wrong"] += [str(note) for note in session.notes("gap")]
    print(json.dumps(report))


def _opened(path: Path) -> Session:
    until = time.monotonic() + WAIT_S
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    return Session.open(path)


def _problems(session: Session, step: int) -> list[str]:
    """What of a step is not as it was recorded: its row, its gradients, its keyframe and its statistics."""
    found = []
    if session.step(step) != recordings.recorded(step):
        found.append(f"the row of step {step}")
    if not np.array_equal(session.gradients(step)[PARAM], recordings.values(step, "g")[PARAM]):
        found.append(f"the gradients of step {step}")
    if step % 25 == 0 and not np.array_equal(
        session.keyframe(step).w[PARAM], recordings.values(step, "w")[PARAM]
    ):
        found.append(f"the keyframe of step {step}")
    if step % TABLES_EVERY == 0:
        table, right = session.param_statistics(step), recordings.table(step)
        if table is None or not np.array_equal(table.lanes["g"].exponents, right.lanes["g"].exponents):
            found.append(f"the statistics of step {step}")
    return found


if __name__ == "__main__":
    what, where, *more = sys.argv[1:]
    write(Path(where), float(more[0])) if what == "write" else read(Path(where))
