"""`inspector diagnose`: what is wrong with a run or a recording, the most important first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from inspector.cli.options import as_dict, interruptible, make_console, print_json
from inspector.cli.shaders import form_of, shaders_of
from inspector.diagnosis.diagnosis import SEVERITIES
from inspector.errors import UsageError
from inspector.findings import Finding, Severity
from inspector.gpu.opener import StepperMaker
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.param_hyper import placing
from inspector.plan import Variant
from inspector.runtime.diagnosing import diagnose_session
from inspector.runtime.engine import Engine
from inspector.session.reader import Session
from inspector.sources.base import EndOfSourceError, Source
from inspector.sources.recording import is_recording

DEFAULT_STEPS = 100
SHOWN_STEPS = 6
"""Steps of one rule that are named before the rest is counted."""
Shapes = Mapping[str, tuple[int, ...]]
WORDS: dict[Severity, str] = {"error": "Error", "warning": "Warning", "info": "Note"}


def is_recorded(source: str) -> bool:
    """True where `source` is a recording, which is read and not run."""
    return is_recording(Path(source))


def diagnose_recording(path: Path, first: int | None, last: int | None, *, json: bool) -> int:
    """Diagnose steps of a recording; the exit code."""
    with interruptible() as check, Session.open(path) as session, _progress() as tell:
        steps = session.steps
        if not steps:
            raise UsageError(f"{path} holds no steps yet.")
        low, high = steps.start if first is None else first, steps.stop - 1 if last is None else last
        for option, step in (("--from", low), ("--to", high)):
            if step not in steps:
                raise UsageError(
                    f"{option} {step} is not in {path}, which holds steps {steps.start:,} to {steps.stop - 1:,}."
                )
        if high < low:
            raise UsageError(f"--to {high} lies before --from {low}.")

        def progress(done: int, of: int) -> None:
            check()
            tell(done, of)

        found = diagnose_session(session, low, high, progress)
        shapes = shapes_of(session.about.params)
        document = {
            "source": str(path),
            "recording": True,
            "variant": form_of(session.step(low).variant),
            "stats": session.about.stats,
            "steps": {"first": low, "last": high, "count": high + 1 - low},
        }
    return _print(document, found, shapes, json=json)


def diagnose_run(
    source: Source, hyper: Hyper, variant: Variant, steps: int | None, adapter: str | None, *, json: bool
) -> int:
    """Run steps of a source with all statistics and diagnose them; the exit code."""
    state = source.initial_state()
    begins = state.finished_steps + 1
    count = steps
    if count is None:
        count = DEFAULT_STEPS if source.last_step is None else max(source.last_step + 1 - begins, 0)
    found: list[Finding] = []
    stepper = StepperMaker(adapter, undo_bytes=0).make(source.params, variant, state, None, **placing(hyper))
    try:
        engine = Engine(source, stepper, hyper=hyper, keep_checkpoint=False, stats="full")
        # Errors of coding 8-bit state are among what is looked at.
        engine.eight_bit.watched = True
        with interruptible() as check, _progress() as tell:
            for done in range(count):
                check()
                tell(done, count)
                try:
                    engine.step_iteration()
                except EndOfSourceError as error:
                    raise UsageError(f"--steps {steps} is too many: {error}") from None
                found += engine.take_findings()
        device = stepper.device
        document = {
            "source": source.name,
            "recording": False,
            "device": {"name": device.name, "backend": device.backend, "software": device.software},
            "variant": form_of(variant),
            "shaders": shaders_of(variant),
            "stats": "full",
            "steps": {"first": begins, "last": begins + count - 1, "count": count},
        }
    finally:
        stepper.close()
    return _print(document, found, shapes_of(source.params), json=json)


def shapes_of(params: Iterable[Param]) -> Shapes:
    """Shapes by the params' names."""
    return {param.name: param.shape for param in params}


def finding_document(finding: Finding, shapes: Shapes) -> dict[str, Any]:
    """A finding as JSON: `index` is flat in the param, `multi_index` one number a dimension."""
    return {**as_dict(finding), "multi_index": _multi_index(finding, shapes)}


def _multi_index(finding: Finding, shapes: Shapes) -> list[int] | None:
    shape = shapes.get(finding.param or "")
    if finding.index is None or shape is None:
        return None
    return [int(i) for i in np.unravel_index(finding.index, shape)]


def _print(document: dict[str, Any], found: Sequence[Finding], shapes: Shapes, *, json: bool) -> int:
    counts = {severity: sum(f.severity == severity for f in found) for severity in SEVERITIES}
    if json:
        print_json(
            {**document, "counts": counts, "findings": [finding_document(each, shapes) for each in found]}
        )
    else:
        console = make_console()
        for line in report(document, found, shapes):
            console.print(line, soft_wrap=True)
    return int(counts["error"] > 0)


def report(document: dict[str, Any], found: Sequence[Finding], shapes: Shapes) -> Iterator[str]:
    """What was found in lines of text, by rule: errors first, and of one severity what began first."""
    steps = document["steps"]
    span = f"steps {steps['first']:,} to {steps['last']:,}" if steps["count"] else "no steps"
    if not found:
        yield f"{document['source']}, {span}: nothing found."
    else:
        yield f"{document['source']}, {span}:"
    rules: dict[str, list[Finding]] = {}
    for finding in found:
        rules.setdefault(finding.rule, []).append(finding)
    groups = sorted(rules.values(), key=lambda g: (min(SEVERITIES.index(f.severity) for f in g), g[0].step))
    for group in groups:
        # The first of the worst stands for all.
        worst = min(group, key=lambda f: (SEVERITIES.index(f.severity), f.step))
        yield ""
        yield f"{WORDS[worst.severity]}, {worst.rule}, {_place(worst, shapes)}"
        yield f"  {worst.message}"
        others = [f for f in group if f is not worst]
        if others:
            named = ", ".join(f"{f.step:,}{f' ({f.param})' if f.param else ''}" for f in others[:SHOWN_STEPS])
            more = f" and {len(others) - SHOWN_STEPS:,} more" if len(others) > SHOWN_STEPS else ""
            yield f"  Again in step {named}{more}."
        yield f"  {worst.advice}"
    if document["stats"] != "full" and document["recording"]:
        yield ""
        yield (
            f"It was recorded with --stats {document['stats']}: rules about single params and their updates "
            "need --stats "
            "full."
        )


def _place(finding: Finding, shapes: Shapes) -> str:
    at = [f"step {finding.step:,}"]
    if finding.dispatch is not None:
        at.append(f"dispatch {finding.dispatch}")
    if finding.param is not None:
        index = _multi_index(finding, shapes)
        at.append(finding.param + ("" if index is None else str(index)))
    return ", ".join(at)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("steps", total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)
