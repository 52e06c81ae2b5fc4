"""`inspector report`: the story of a run as one HTML file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from inspector.byte_sizes import size_text
from inspector.cli.options import interruptible, make_console
from inspector.cli.policies import weigh_step
from inspector.errors import InspectorError, UsageError
from inspector.files import check_writable, write_text
from inspector.findings import Finding
from inspector.gpu.opener import StepperMaker
from inspector.hyper import Hyper
from inspector.param_hyper import placing
from inspector.plan import Variant
from inspector.policies import PolicyTable
from inspector.report import Report, render
from inspector.runtime.diagnosing import diagnose_session
from inspector.runtime.engine import Engine
from inspector.runtime.recording import Recording as Recorder
from inspector.runtime.reporting import report_of_session
from inspector.session.policy import Policy
from inspector.session.reader import Session
from inspector.sources.base import EndOfSourceError, Source
from inspector.sources.recording import Recording
from inspector.stepping import HostState

RUN_STEPS = 50
MAX_TABLES = 3
"""Steps with non-finite gradients whose policies are set side by side: the first ones."""
CAPTURED = "flight:4"
"""Enough to go back to a step with non-finite gradients."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to report on, and where to write it."""

    source: Source
    hyper: Hyper
    variant: Variant
    out: Path
    steps: int | None
    adapter: str | None


def write_report(request: Request) -> dict[str, Any]:
    """Write the page; the document of --json. UsageError for a place where no file can be, before anything runs."""
    check_writable(request.out)
    source = request.source
    if isinstance(source, Recording):
        report = _of_recording(source, request, last_steps=request.steps)
    else:
        with _recorded(request) as made:
            report = _of_recording(made, request, last_steps=None, kept=False)
    text = render(report)
    write_text(request.out, text)
    return {
        "source": source.name,
        "out": str(request.out),
        "bytes": len(text.encode()),
        "findings": len(report.findings),
        "policies": [table.step for table in report.policies],
        "notes": list(report.notes),
    }


def show(document: dict[str, Any]) -> None:
    """Say what was written."""
    console = make_console()
    for note in document["notes"]:
        console.print(note, soft_wrap=True)
    found = f"{document['findings']:,} finding{'' if document['findings'] == 1 else 's'}"
    console.print(
        f"Wrote a report on {document['source']} with {found} to {document['out']}, {size_text(document['bytes'])}.",
        soft_wrap=True,
    )


def _of_recording(
    source: Recording, request: Request, *, last_steps: int | None, kept: bool = True
) -> Report:
    session = source.session
    steps = session.steps if last_steps is None else session.steps[-last_steps:]
    # Those of a run that has just been made are as the present rules see them.
    found = _diagnosed(session, steps) if kept and steps else session.findings()
    tables, notes = _policies(source, request, steps, found)
    return report_of_session(
        session, findings=found, policies=tables, notes=notes, last_steps=last_steps, kept=kept
    )


def _diagnosed(session: Session, steps: range) -> tuple[Finding, ...]:
    """What the present rules find in a recording, as inspector diagnose prints it."""
    with interruptible() as check, _progress(len(steps)) as tell:

        def progress(done: int, of: int) -> None:
            check()
            tell(done)

        return diagnose_session(session, steps.start, steps.stop - 1, progress)


@contextmanager
def _progress(of: int) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("steps", total=of)
        yield lambda done: progress.update(task, completed=done)


def _policies(
    source: Recording, request: Request, steps: range, found: Sequence[Finding]
) -> tuple[list[PolicyTable], list[str]]:
    """The tables of the first steps with non-finite gradients, and why one could not be made."""
    session = source.session
    if not steps:
        return [], []
    hit = session.metric("nonfinite")[steps.start - session.steps.start :] > 0
    tables: list[PolicyTable] = []
    notes: list[str] = []
    named = {f.step: f for f in reversed(found) if f.rule == "nonfinite-gradient"}
    for step in [s for s, bad in zip(steps, hit, strict=True) if bad][:MAX_TABLES]:
        finding = named.get(step)
        element = None
        if finding is not None and finding.param is not None and finding.index is not None:
            element = finding.param, finding.index
        try:
            tables.append(
                weigh_step(
                    source, source.hyper, session.step(step).variant, given={}, adapter=request.adapter, step=step,
                    element=element,
                )
            )  # fmt: skip
        except InspectorError as error:
            notes.append(
                f"Policies could not be set side by side for step {step:,}: "
                f"{str(error).removeprefix(f'--step {step} cannot be looked at: ')}"
            )
    return tables, notes


@contextmanager
def _recorded(request: Request) -> Iterator[Recording]:
    """The source run for some steps and recorded in a folder that goes when the report is done."""
    source = request.source
    wanted = RUN_STEPS if request.steps is None else request.steps
    state = source.initial_state()
    policy = CAPTURED if isinstance(state, HostState) else "stats"
    with TemporaryDirectory(prefix="inspector-report-") as folder:
        path = Path(folder) / "run.session"
        stepper = StepperMaker(request.adapter, undo_bytes=0).make(
            source.params, request.variant, state, None, **placing(request.hyper)
        )
        try:
            engine = Engine(source, stepper, hyper=request.hyper, keep_checkpoint=False, stats="full")
            recording = Recorder.start(engine, path, Policy.from_text(policy), planned_steps=wanted)
            try:
                _run(engine, wanted, exactly=request.steps is not None)
            finally:
                recording.end()
            if recording.ended is not None:
                raise InspectorError(recording.ended)
        finally:
            stepper.close()
        made = Recording(path)
        try:
            yield made
        finally:
            made.session.close()


def _run(engine: Engine, steps: int, *, exactly: bool) -> None:
    with interruptible() as check, _progress(steps) as tell:
        for done in range(steps):
            check()
            try:
                engine.step_iteration()
            except EndOfSourceError as error:
                if exactly or not done:
                    raise UsageError(f"--steps {steps} is too many: {error}") from None
                return
            tell(done + 1)
