"""Reports of a recording, or of the run that is open, as data for `report.render`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inspector import __version__
from inspector.errors import UsageError
from inspector.files import check_writable, write_text
from inspector.finding_words import SEVERITIES, FindingGroups
from inspector.findings import Finding
from inspector.floats import BoolArray, F64Array, shortest
from inspector.history import History
from inspector.hyper import HYPER_NAMES, Hyper
from inspector.plan import Variant
from inspector.policies import PolicyTable
from inspector.progress import advanced
from inspector.report import Plot, Report, Section, render
from inspector.runtime.engine import Engine
from inspector.session.reader import Session
from inspector.stepping import DeviceInfo
from inspector.svg_plot import Line

METRICS = (
    ("loss", "loss", "nats, as the source gives it", False),
    ("grad_norm", "gradient norm", "before clipping", True),
    ("clip_scale", "clip scale", "", False),
    ("lr", "learning rate", "as used", False),
)
"""Name in a recording, title, note, and whether the axis is of powers of ten."""
MAX_PARAMS = 6
"""Params whose norms are drawn: the first that findings name."""
MAX_COUNTED = 400
"""Steps whose statistics are read for that; each is a look into the recording."""

Steps = npt.NDArray[np.int64]


def report_of_session(
    session: Session,
    *,
    findings: Sequence[Finding] | None = None,
    policies: Sequence[PolicyTable] = (),
    notes: Sequence[str] = (),
    last_steps: int | None = None,
    kept: bool = True,
) -> Report:
    """What a recording holds, of its last `last_steps` steps where that is given.

    `findings` are told in place of those that were recorded. `kept` is False for one made only for the report, of which
    neither name nor time are told. UsageError where it holds no steps.
    """
    steps = session.steps
    if not steps:
        raise UsageError(f"{session.path} holds no steps to report on.")
    if last_steps is not None:
        steps = steps[-last_steps:]
    about = session.about
    findings = tuple(f for f in (session.findings() if findings is None else findings) if f.step in steps)
    part = slice(steps.start - session.steps.start, None)
    numbers = np.arange(steps.start, steps.stop, dtype=np.int64)
    values = {name: session.metric(name)[part] for name, *_ in METRICS}
    known = {name: session.known(name)[part] for name in ("loss", "grad_norm", "clip_scale")}
    run = [
        ("source", about.source),
        ("what it is", about.description),
        ("params", f"{len(about.params):,}, {sum(p.numel for p in about.params):,} elements"),
        ("steps", f"{steps.start:,} to {steps[-1]:,}"),
        ("device", device_words(about.device)),
    ]
    if kept:
        began = datetime.fromtimestamp(about.began, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        run[:0] = [("recording", session.path.name)]
        run += [("state", session.state), ("captured", about.policy), ("began", began)]
    changes = tuple((f"step {n.step:,}", n.text) for n in session.notes("mark") if n.step in steps)
    return Report(
        title=session.path.name if kept else about.source,
        summary=summary(findings, steps),
        findings=findings,
        plots=metric_plots(numbers, values, known),
        param_plots=_param_plots(session, findings, steps),
        policies=tuple(policies),
        sections=(
            Section("Run", tuple((name, value) for name, value in run if value)),
            Section(
                "Settings", (*settings(about.hyper, about.schedule), ("form", form_words(about.variant)))
            ),
            *((Section("Changes while it ran", changes),) if changes else ()),
            Section(
                "Versions", (("recorded by", about.software), ("reported by", f"inspector {__version__}"))
            ),
        ),
        notes=(*notes, *(str(note) for note in session.notes("gap"))),
    )


def report_of_run(
    source: str,
    description: str,
    history: History,
    findings: Sequence[Finding],
    *,
    hyper: Hyper,
    schedule: str,
    variant: Variant,
    device: DeviceInfo,
    marks: Iterable[tuple[int, str]] = (),
    policies: Sequence[PolicyTable] = (),
) -> Report:
    """A run that is open and not a recording: its metrics as far as memory holds them, and what was found."""
    if not len(history):
        raise UsageError("No step has finished yet: run some before a report is written.")
    numbers = history.first
    values, known = {}, {}
    for name, *_ in METRICS:
        series = history.series.get(name)
        if series is None:
            continue
        # The last step of each bucket; a gap anywhere in it is one.
        values[name] = np.where(series.gaps > 0, np.nan, series.last)
        known[name] = (series.gaps > 0) | ~np.isnan(series.last)
    steps = range(int(numbers[0]), int(numbers[-1]) + history.stride)
    changes = tuple((f"step {step:,}", text) for step, text in marks)
    note = (f"Of each {history.stride:,} steps the last is drawn.",) if history.stride > 1 else ()
    return Report(
        title=source,
        summary=summary(findings, steps),
        findings=tuple(findings),
        plots=metric_plots(numbers, values, known),
        policies=tuple(policies),
        sections=(
            Section(
                "Run", (("source", source), ("what it is", description), ("device", device_words(device)))
            ),
            Section("Settings", (*settings(hyper, schedule), ("form", form_words(variant)))),
            *((Section("Changes while it ran", changes),) if changes else ()),
            Section("Versions", (("reported by", f"inspector {__version__}"),)),
        ),
        notes=note,
    )


def save_report(engine: Engine, path: Path, policies: Sequence[PolicyTable]) -> None:
    """Write the report of what is open: of the recording while its steps run as recorded, else of the run."""
    check_writable(path)
    if engine.recorded is not None and engine.course.as_recorded:
        report = report_of_session(engine.recorded.session, policies=policies)
    else:
        stepper = engine.stepper
        report = report_of_run(
            engine.source.name, engine.source.description, engine.history(), engine.all_findings(),
            hyper=engine.hyper, schedule=str(engine.schedule), variant=stepper.plan.variant, device=stepper.device,
            marks=[(mark.step, mark.text) for mark in engine.all_marks()], policies=policies,
        )  # fmt: skip
    write_text(path, render(report))


def summary(findings: Sequence[Finding], steps: range) -> str:
    """One line: how many steps, and what was found in them."""
    span = f"{len(steps):,} steps, {steps.start:,} to {steps.stop - 1:,}"
    if not findings:
        return f"{span}. Nothing was found to be wrong."
    worst = max(findings, key=lambda f: (SEVERITIES.index(f.severity), -f.step))
    found = {s: sum(f.severity == s for f in findings) for s in reversed(SEVERITIES)}
    counts = ", ".join(f"{n:,} {s}{'' if n == 1 or s == 'info' else 's'}" for s, n in found.items() if n)
    return f"{span}. Found: {counts}. First of the worst, at step {worst.step:,}: {worst.message}"


def metric_plots(
    numbers: Steps, values: Mapping[str, F64Array], known: Mapping[str, BoolArray]
) -> tuple[Plot, ...]:
    """Plots of METRICS; what is not known of a step is left out, what is NaN stays a gap."""
    plots = []
    for name, title, note, log in METRICS:
        if name not in values:
            continue
        there = known.get(name, np.ones(len(numbers), np.bool_))
        line = Line(title, numbers[there], values[name][there])
        if there.any():
            plots.append(Plot(title, (line,), log, note))
    return tuple(plots)


def settings(hyper: Hyper, schedule: str) -> tuple[tuple[str, str], ...]:
    """Hyper-parameters by name, and the schedule."""
    return (*((name, shortest(getattr(hyper, name))) for name in HYPER_NAMES), ("schedule", schedule))


def form_words(variant: Variant) -> str:
    """The form of the step: every factor by name."""
    own = f", own kernels {variant.own}" if variant.own else ""
    names = [f.name for f in fields(Variant) if f.name != "own" and getattr(variant, f.name) != ""]
    return ", ".join(f"{name} {getattr(variant, name)}" for name in names) + own


def device_words(device: DeviceInfo) -> str:
    """The adapter."""
    return f"{device.name} ({device.backend}{', on the CPU' if device.software else ''})"


def _param_plots(session: Session, findings: Sequence[Finding], steps: range) -> tuple[Plot, ...]:
    """Norms of the first params that findings name, where they were counted; groups take turns."""
    groups = FindingGroups(findings).groups
    names: dict[str, None] = {}
    for depth in range(max((len(g.params) for g in groups), default=0)):
        names |= {g.params[depth]: None for g in groups if depth < len(g.params)}
        if len(names) >= MAX_PARAMS:
            break
    wanted = list(names)[:MAX_PARAMS]
    if not wanted:
        return ()
    looked = _spread(steps, [f.step for f in findings if f.param in wanted])
    counted: list[int] = []
    columns: dict[str, list[tuple[float, ...]]] = {name: [] for name in wanted}
    for read, step in enumerate(looked):
        advanced(read, len(looked))
        table = session.param_statistics(step)
        if table is None:
            continue
        counted.append(step)
        at = {name: i for i, name in enumerate(table.names)}
        for name in wanted:
            i = at.get(name)
            row = (
                (np.nan,) * 5
                if i is None
                else (
                    *(float(table.lanes[lane].norm[i]) for lane in ("w", "g", "m", "v")),
                    float(table.update.norm[i]),
                )
            )
            columns[name].append(row)
    if not counted:
        return ()
    numbers = np.array(counted, np.int64)
    lines = (("‖w‖", "w"), ("‖g‖", "g"), ("‖m‖", "m"), ("‖v‖", "v"), ("‖Δw‖", "update"))
    plots = []
    for name in wanted:
        figures = np.array(columns[name], np.float64)
        plots.append(
            Plot(
                name,
                tuple(Line(title, numbers, figures[:, i], kind) for i, (title, kind) in enumerate(lines)),
                log=True,
                note="norms right before the update, of finite elements",
            )
        )
    return tuple(plots)


def _spread(steps: range, near: Sequence[int]) -> list[int]:
    """At most about MAX_COUNTED of the steps: evenly spread, and those around the first findings."""
    if len(steps) <= MAX_COUNTED:
        return list(steps)
    even = np.linspace(steps.start, steps.stop - 1, MAX_COUNTED // 2).round().astype(int).tolist()
    around = {s for at in near[: MAX_COUNTED // 20] for s in range(at - 5, at + 5) if s in steps}
    return sorted({*even, *around})
