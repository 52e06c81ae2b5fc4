"""The numbers of a session for other programs: a table of its steps as CSV, and its kernel times as a trace."""

from __future__ import annotations

import csv
from collections.abc import Callable
from io import TextIOBase
from pathlib import Path

import numpy as np

from inspector.errors import UsageError
from inspector.files import replacing, write_text
from inspector.floats import shortest
from inspector.hyper import HYPER_NAMES
from inspector.session.own_settings import group_settings
from inspector.session.plans import recorded_plan, times_in_plan
from inspector.session.reader import Session
from inspector.stepping import KernelTime
from inspector.trace_export import Track, chrome_trace

TRACE_STEPS = 1000
"""The last so many steps go into a trace."""
COLUMNS = ("step", "loss", "grad_norm", "clip_scale", *HYPER_NAMES, "nan", "posinf", "neginf", "ended")


def write_csv(session: Session, out: Path, *, check: Callable[[], None] = lambda: None) -> int:
    """One row a step: `COLUMNS`, settings of groups of params if there are any, then kernels in ms, then the numbers of
    each of several processes; the number of rows.

    A cell is empty where the number is unknown; NaN and infinities are written as in JSON documents.
    """
    kernels = [name for name in session.metric_names() if "/" in name]
    groups = group_settings(session)
    times = [*(values for _, values in groups), *(session.metric(name) for name in kernels)]
    kernels = [*(name for name, _ in groups), *kernels]
    with replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        _write_rows(session, file, kernels, times, check)
    return len(session.steps)


def _write_rows(
    session: Session,
    file: TextIOBase,
    kernels: list[str],
    times: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]],
    check: Callable[[], None],
) -> None:
    rows = csv.writer(file)
    rows.writerow([*COLUMNS, *kernels])
    for i, number in enumerate(session.steps):
        check()
        step = session.step(number)
        counts = step.nonfinite
        rows.writerow(
            [
                number,
                "" if step.loss is None else shortest(step.loss),
                _f32(step.grad_norm),
                _f32(step.clip_scale),
                *(shortest(getattr(step.hyper, name)) for name in HYPER_NAMES),
                counts.nan,
                counts.posinf,
                counts.neginf,
                _known(step.ended),
                *(_known(float(values[i])) for values in times),
            ]
        )


def _f32(value: float | None) -> str:
    """The shortest text that reads back as the same float32."""
    if value is None:
        return ""
    with np.errstate(all="ignore"):
        return shortest(np.float32(value))


def _known(value: float) -> str:
    return "" if value != value else shortest(value)


def write_trace(session: Session, out: Path) -> int:
    """The kernel times of the last steps, as far back as they ran in one form, for ui.perfetto.dev; how many steps."""
    if not session.steps:
        raise UsageError(f"{session.path} holds no steps to export.")
    last = session.step(session.steps[-1])
    dispatches = recorded_plan(session, last).dispatches
    times: list[tuple[KernelTime, ...]] = []
    for number in reversed(session.steps[-TRACE_STEPS:]):
        step = session.step(number)
        kernels = times_in_plan(step.kernels, dispatches)
        if step.variant != last.variant or kernels is None:
            break
        times.append(kernels)
    if not times:
        raise UsageError(
            f"{session.path} cannot be exported as a trace: its steps hold no times of all their dispatches."
        )
    first = session.steps[-1] - len(times) + 1
    track = Track(f"steps {first:,} to {session.steps[-1]:,}", dispatches, times[::-1])
    text = chrome_trace([track], device=session.about.device.name, facts={"session": str(session.path)})
    write_text(out, text)
    return len(times)
