"""`inspector replay`: a recording run again, held against what was recorded, or under other settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from inspector.cli.breakpoints import make_conditions, stop_document, tell_never_judged
from inspector.cli.diagnose import finding_document, shapes_of
from inspector.cli.options import interruptible, make_console, make_table, print_json
from inspector.cli.reexecute import reexecute
from inspector.cli.reexecute import show as show_reexecuted
from inspector.cli.shaders import form_of, shaders_of
from inspector.cli.step_options import tell_idle, tell_runs_as
from inspector.errors import UsageError
from inspector.floats import shortest, significant
from inspector.gpu.opener import StepperMaker
from inspector.optimizers import optimizer
from inspector.plan import Variant
from inspector.runtime.breakpoints import Breakpoints
from inspector.runtime.replay import Changes, Replay, ReplayedStep
from inspector.runtime.saved_replay import SavedReplay
from inspector.session.compare import Difference, first_of, float_ulp
from inspector.session.new_place import check_new
from inspector.session.reader import Session
from inspector.session.records import RecordedStep
from inspector.sources.recording import Recording, Stretch
from inspector.statistics import StatsLevel

SHOWN_ROWS = 20


@dataclass(frozen=True, slots=True)
class Request:
    """What to run again, and against what."""

    session: Path
    first: int | None
    last: int | None
    changes: Changes
    adapter: str | None
    verify: bool
    save: Path | None
    capture: str | None
    stats: StatsLevel | None
    json: bool
    breaks: tuple[str, ...] = ()


def replay(request: Request) -> int:
    """Run, compare, print; 1 where --verify fails or a breakpoint stops it, else 0."""
    if request.verify and request.changes:
        raise UsageError(
            f"--verify compares with what was recorded, and other settings were given ({request.changes}): leave out "
            "one or the other."
        )
    if request.save is not None:
        check_new(request.save)
    with interruptible() as check, Session.open(request.session) as session:
        # What another program computed is held against it step by step, not bit for bit over all of them.
        foreign = request.verify and bool(session.about.origin)
        document = _reexecute(request, session, check) if foreign else _replay(request, session, check)
    if request.json:
        print_json(document)
    elif foreign:
        show_reexecuted(document)
    else:
        _show(document, request)
    return int(document["stopped"] is not None or (request.verify and not document["as_expected"]))


def spans(source: Recording, first: int | None, last: int | None) -> tuple[list[Stretch], list[str]]:
    """The stretches to run, and for each hole between them a sentence; UsageError where nothing can be."""
    for step in (first, last):
        if step is not None and (problem := source.missing(step)):
            raise UsageError(f"{source.name}: {problem}")
    if first is not None and last is not None and last < first:
        raise UsageError(f"--to {last} lies before --from {first}.")
    low = source.session.steps.start if first is None else first
    high = source.session.steps.stop - 1 if last is None else last
    found = [
        Stretch(max(s.first, low), min(s.last, high))
        for s in source.stretches
        if s.last >= low and s.first <= high
    ]
    if not found:
        raise UsageError(
            f"{source.name}: {source.missing(low)} Nothing can be run again; inspector info --check holds all of it "
            "against its checksums."
        )
    left_out: list[str] = []
    at = low
    for start, stop in [*((s.first, s.last) for s in found), (high + 1, high)]:
        if at < start:
            more = f" So it is up to step {start - 1:,}." if start - 1 > at else ""
            left_out.append(f"{source.missing(at)}{more}")
        at = stop + 1
    return found, left_out


def _reexecute(request: Request, session: Session, check: Callable[[], None]) -> dict[str, Any]:
    for given, option in ((request.save, "--save"), (request.breaks, "--break")):
        if given:
            raise UsageError(
                f"{request.session} was made by {session.about.origin}: --verify holds its captured steps one by one "
                f"against the kernels here, without {option}. Leave out one or the other."
            )
    if session.about.unreplayable:
        raise UsageError(f"{request.session}: {session.about.unreplayable}")
    source = Recording(request.session, session=session)
    found, left_out = spans(source, request.first, request.last)
    maker = StepperMaker(request.adapter, undo_bytes=0)
    return reexecute(request.session, source, found, left_out, maker, check)


def _replay(request: Request, session: Session, check: Callable[[], None]) -> dict[str, Any]:
    source = Recording(request.session, session=session)
    found, left_out = spans(source, request.first, request.last)
    if request.save is not None and len(found) > 1:
        texts = " or ".join(f"--from {s.first} --to {s.last}" for s in found[:3])
        raise UsageError(f"--save takes steps that follow each other: give {texts}.")
    maker = StepperMaker(request.adapter, undo_bytes=0)
    form = request.changes.variant_of(session.step(found[0].first).variant)
    tell_idle(form, request.changes.hyper, request.changes.variant)
    tell_runs_as(form.optimizer, form, source)
    breakpoints = Breakpoints(make_conditions(request.breaks, source.params, form))
    runner = Replay(source, maker, request.changes, breakpoints)
    steps: list[dict[str, Any]] = []
    differences: list[Difference] = []
    worst: Difference | None = None
    findings: list[dict[str, Any]] = []
    shapes = shapes_of(source.params)
    compared = {"steps": 0, "statistics": 0, "keyframes": 0}
    total = sum(s.last - s.first + 1 for s in found)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    try:
        with ExitStack() as stack:
            progress = stack.enter_context(
                Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())
            )
            task = progress.add_task("steps", total=total)
            for span in found:
                check()
                state = runner.start(span.first)
                recorder = None
                if request.save is not None:
                    recorder = stack.enter_context(
                        SavedReplay(
                            request.save, runner, span, state, capture=request.capture, stats=request.stats
                        )
                    )
                statistics = (request.stats or (session.about.stats if recorder else "light")) == "full"
                for ran in runner.run(
                    span.first,
                    span.last,
                    wants_state=recorder.wants_state if recorder else lambda step: False,
                    statistics=statistics,
                    check=check,
                ):
                    first = first_of(ran.differences)
                    differences += [] if first is None or differences else [first]
                    worst = _worse(worst, ran.differences)
                    steps.append(_step(ran))
                    compared["steps"] += 1
                    compared["statistics"] += ran.table is not None and not request.changes
                    compared["keyframes"] += ran.lanes is not None
                    findings += [finding_document(f, shapes) for f in ran.findings]
                    if recorder is not None:
                        recorder.offer(ran, ran.findings)
                    progress.advance(task)
                if breakpoints.stop is not None:
                    if recorder is not None:
                        for hit in (breakpoints.stop, *breakpoints.stop.also):
                            recorder.stopped(hit.step, hit.mark)
                    break
        tell_never_judged(breakpoints, len(steps))
        exact = not differences
        why = _why_not_exact(runner, request.changes)
        device, was = runner.device, session.about.device
        assert device is not None
        return {
            "session": str(request.session),
            "device": {"name": device.name, "backend": device.backend, "software": device.software},
            "recorded_device": {"name": was.name, "backend": was.backend, "software": was.software},
            "variant": form_of(runner.variants[-1]),
            "shaders": shaders_of(runner.variants[-1]),
            "changes": {
                **request.changes.hyper,
                **{k: str(v) for k, v in request.changes.variant.items()},
                **({} if request.changes.schedule is None else {"schedule": str(request.changes.schedule)}),
            },
            "steps": steps,
            "compared": compared,
            "left_out": left_out,
            "bit_exact": exact,
            "max_ulp": max((s["max_ulp"] for s in steps), default=0),
            "max_ulp_at": None if worst is None else _place(worst, largest=True),
            "first_difference": _document(differences[0]) if differences else None,
            "expected": "bit-exact" if why is None else why,
            "as_expected": exact or why is not None,
            "findings": findings,
            "stopped": stop_document(breakpoints.stop),
            "saved": None if request.save is None else str(request.save),
        }
    finally:
        runner.close()


def _why_not_exact(runner: Replay, changes: Changes) -> str | None:
    """Why other bits than the recorded ones are no fault, as a sentence; None where they are."""
    if changes:
        return f"It ran under other settings: {changes}."
    if not runner.same_device:
        was = runner.source.session.about.device
        return f"It was recorded on another adapter, {was.name} ({was.backend})."
    if any(v.reduce == "atomic" or v.own.get("reduce_norm_sq") for v in runner.variants):
        return "The norm is added up with atomics, in another order each time."
    did = _other_kernels(runner.source.session.about.kernels, runner.variants)
    return did and f"It was recorded by kernels {did}. What is recorded from now on is the same bits again."


def _other_kernels(revision: int, variants: Iterable[Variant]) -> str | None:
    """What kernels of that `KERNELS_REVISION` did otherwise in one of these forms; None where they gave these bits."""
    if revision < 2 and any(v.numerics == "precise" and optimizer(v.optimizer).adam for v in variants):
        return "whose precise numerics rounded in another order; these round as PyTorch does"
    if revision < 3 and any(v.optimizer == "shampoo" for v in variants):
        return "whose ridge of Shampoo's roots was 1e-4 of the largest eigenvalue; here it is 1e-3"
    if revision < 4 and any(v.optimizer in {"muon", "shampoo"} for v in variants):
        return (
            "in which sums of matrices were rounded once more, and all of Muon's iterations were in float32"
        )
    return None


# --- documents


def _step(ran: ReplayedStep) -> dict[str, Any]:
    step, was = ran.step, ran.recorded
    keyframe = None
    if ran.lanes is not None:
        keyframe = {
            lane: {"differing": d.differing, "max_ulp": d.max_ulp, "relative": d.relative}
            for lane, d in ran.lanes.items()
        }
    ulps = [d.max_ulp for d in ran.differences if d.max_ulp is not None]
    return {
        **_numbers(step),
        "nonfinite": {kind: getattr(step.nonfinite, kind) for kind in ("nan", "posinf", "neginf")},
        "kernels": [{"name": k.name, "block": k.block, "ms": k.ms, "clock": k.clock} for k in step.kernels],
        "recorded": _numbers(was),
        "clipped_before": ran.clipped_by is not None,
        "grad_norm_ulp": None if ran.clipped_by else float_ulp(was.grad_norm, step.grad_norm),
        "clip_scale_ulp": None if ran.clipped_by else float_ulp(was.clip_scale, step.clip_scale),
        "keyframe": keyframe,
        "differences": len(ran.differences),
        "bit_exact": not ran.differences,
        "max_ulp": max(ulps, default=0),
    }


def _numbers(step: RecordedStep) -> dict[str, Any]:
    return {
        "step": step.step,
        "loss": step.loss,
        "lr": step.hyper.lr,
        "grad_norm": step.grad_norm,
        "clip_scale": step.clip_scale,
    }


def _worse(worst: Difference | None, differences: Sequence[Difference]) -> Difference | None:
    for each in differences:
        if each.max_ulp is not None and (worst is None or each.max_ulp > (worst.max_ulp or 0)):
            worst = each
    return worst


def _place(difference: Difference, *, largest: bool = False) -> dict[str, Any]:
    return {
        "step": difference.step,
        "dispatch": difference.dispatch,
        "buffer": difference.buffer,
        "param": difference.param,
        "index": difference.max_index if largest else difference.index,
    }


def _document(difference: Difference) -> dict[str, Any]:
    return {
        **_place(difference),
        "what": difference.what,
        "recorded": difference.a,
        "replayed": difference.b,
        "ulp": difference.ulp,
        "differing": difference.differing,
        "max_ulp": difference.max_ulp,
    }


# --- for people


def _show(document: dict[str, Any], request: Request) -> None:
    console = make_console()
    device = document["device"]
    console.print(f"{document['session']} again on {device['name']} ({device['backend']})", soft_wrap=True)
    for sentence in document["left_out"]:
        console.print(sentence, soft_wrap=True)
    steps = [s for s in document["steps"] if request.changes or not s["bit_exact"]]
    shown = steps[:SHOWN_ROWS]
    if shown:
        which = "Steps" if len(shown) == len(steps) else f"{len(shown)} of {len(steps):,} steps"
        table = make_table(
            "step",
            right=(
                "gradNorm",
                "recorded",
                "ULP",
                "clipScale",
                "recorded",
                "ULP",
                "‖Δw‖/‖w‖",
                "w differ",
                "max ULP",
            ),
            title=which if request.changes else f"{which} that differ",
        )
        for s in shown:
            was, keyframe = s["recorded"], s["keyframe"]
            table.add_row(
                str(s["step"]),
                *(
                    text
                    for name in ("grad_norm", "clip_scale")
                    for text in (_f32(s[name]), _f32(was[name]), _text(s[f"{name}_ulp"]))
                ),
                significant(keyframe["w"]["relative"], 3) if keyframe else "n/a",
                f"{keyframe['w']['differing']:,}" if keyframe else "n/a",
                f"{s['max_ulp']:,}",
            )
        console.print(table)
    console.print("\n".join(summary(document)), soft_wrap=True)
    if document["stopped"] is not None:
        console.print(document["stopped"]["message"], soft_wrap=True)


def summary(document: dict[str, Any]) -> Iterator[str]:
    """What came out of it, in sentences."""
    compared = document["compared"]
    if not compared["steps"]:
        yield "No step ran to its end, so nothing was compared with the recording."
        return
    what = (
        f"{compared['steps']:,} steps, statistics of {compared['statistics']:,} and {compared['keyframes']:,} "
        "captured states were compared"
    )
    if document["bit_exact"]:
        yield f"{what}: every bit is as recorded."
    else:
        first = document["first_difference"]
        yield f"{what}; the first difference is {difference_words(first)}."
        at = document["max_ulp_at"]
        if at is not None:
            yield f"The largest is {document['max_ulp']:,} ULP, in {_where(at)} of step {at['step']:,}."
        if document["expected"] != "bit-exact":
            yield document["expected"]
    if document["saved"] is not None:
        yield f"Recorded as {document['saved']}."


def difference_words(first: dict[str, Any]) -> str:
    """A difference in words, without an end."""
    values = ""
    if first["recorded"] is not None and first["replayed"] is not None:
        values = f": {_text(first['recorded'])} recorded, {_text(first['replayed'])} now"
    more = f", {first['differing']:,} elements differ" if first["differing"] > 1 else ""
    at = "" if first["dispatch"] is None else f", dispatch {first['dispatch']}"
    return f"in step {first['step']:,}{at}, {first['what']} of {_where(first)}{values}{more}"


def _where(place: dict[str, Any]) -> str:
    if place["param"] is None:
        return str(place["buffer"])
    index = "" if place["index"] is None else f"[{place['index']}]"
    return f"{place['buffer']} {place['param']}{index}"


def _text(value: Any) -> str:
    if value is None:
        return "n/a"
    return f"{value:,}" if isinstance(value, int) else shortest(value)


def _f32(value: float | None) -> str:
    if value is None:
        return "n/a"
    with np.errstate(all="ignore"):
        return shortest(np.float32(value))
