"""`inspector run`: steps without a window."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from inspector.cli.breakpoints import raised, stop_document, tell_never_judged
from inspector.cli.diagnose import finding_document, shapes_of
from inspector.cli.lockstep import add_coding, lockstep_document, lockstep_words
from inspector.cli.options import as_dict, interruptible, make_console, make_table, print_json
from inspector.cli.recording import Save, recorded, take_up
from inspector.cli.shaders import form_of, own_kernel_lines, shaders_of
from inspector.codecs import Codec
from inspector.diagnosis.findings import Finding
from inspector.diagnosis.stopping import Stopping
from inspector.diagnosis.watchpoints import Condition
from inspector.errors import InspectorError, UsageError
from inspector.floats import F32Array, shortest, significant
from inspector.gpu.opener import StepperMaker
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Layout
from inspector.param_hyper import placing
from inspector.param_statistics import LaneStats, ParamStats
from inspector.plan import Variant
from inspector.runtime.breakpoints import Breakpoints
from inspector.runtime.engine import Engine
from inspector.runtime.lockstep import Asked
from inspector.runtime.snapshots import StepRecord
from inspector.settings import SETTING_NAMES, Settings
from inspector.sources.base import AsRecorded, EndOfSourceError, Source
from inspector.sources.statefile import StateFile, write_state
from inspector.statistics import EXPONENT_BIAS, StatsLevel

SHOWN_ROWS = 20


@dataclass(frozen=True, slots=True)
class Request:
    """What to run."""

    source: Source
    steps: int
    hyper: Hyper
    variant: Variant
    adapter: str | None
    out: Path | None
    json: bool
    stats: StatsLevel = "light"
    lockstep: Codec | None = None
    save: Save | None = None
    every_param: bool = True
    """The document lists the params of every step; of the last alone where they are counted for something else."""
    conditions: tuple[tuple[Condition, Stopping], ...] = ()
    """Where it stops, and at which hits."""


def run_steps(request: Request) -> int:
    """Run, print, write the state; 1 where a finding is an error, a breakpoint stopped it or the recording had to end,
    else 0."""
    with interruptible() as check:
        document, problem = _run(request, check)
    print_json(document) if request.json else _show(document, request)
    if problem is not None:
        raise InspectorError(problem)
    stopped = document["stopped"] is not None
    return int(stopped or any(finding["severity"] == "error" for finding in document["findings"]))


def _run(request: Request, check_interrupt: Callable[[], None]) -> tuple[dict[str, Any], str | None]:
    """The document, and the sentence with which its recording ended before the run was done."""
    state, steps = request.source.initial_state(), request.steps
    breakpoints = Breakpoints(request.conditions)
    level = raised(request.stats, breakpoints)
    if request.save is not None and request.save.resume:
        taken = take_up(request.save, request.source, request.variant, request.hyper, steps)
        state, steps = taken.state, taken.steps
    stepper = StepperMaker(request.adapter, undo_bytes=0).make(
        request.source.params, request.variant, state, None, **placing(request.hyper)
    )
    try:
        engine = Engine(
            request.source,
            stepper,
            hyper=request.hyper,
            keep_checkpoint=False,
            stats=level,
            breakpoints=breakpoints,
        )
        engine.eight_bit.watched = request.stats == "full"
        if request.lockstep is not None:
            engine.eight_bit.start(stepper, Asked(request.lockstep))
        records: list[StepRecord] = []
        counted: list[dict[str, Any]] = []
        findings: list[Finding] = []
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with (
            recorded(request.save, engine, steps) as recording,
            Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress,
        ):
            task = progress.add_task("steps", total=steps)
            for left in reversed(range(steps)):
                check_interrupt()
                try:
                    engine.step_iteration()
                except EndOfSourceError as error:
                    raise UsageError(f"--steps {request.steps} is too many: {error}") from None
                findings += engine.take_findings()
                stop = breakpoints.stop
                if stop is not None and stop.after:
                    # It is what the step did: what is left of it belongs to it.
                    engine.finish_step()
                if engine.record is not None and engine.stepper.cursor.at_end:
                    records.append(engine.record)
                    ending = not left or (recording is not None and not recording.open)
                    listed = ending or (request.json and request.every_param and level == request.stats)
                    counted.append(_counted(engine, stepper.layout) if listed else {})
                    picture = engine.eight_bit.picture(stepper)
                    add_coding(counted[-1].get("params", ()), picture)
                    counted[-1] |= _classes(engine)
                    counted[-1] |= lockstep_document(picture)
                progress.advance(task)
                if stop is not None:
                    if recording is not None:
                        recording.end(stop.sentence)
                    break
                if recording is not None and not recording.open:
                    break
        check_interrupt()
        if request.out is not None:
            _write(request, engine, stepper)
        shapes = shapes_of(request.source.params)
        document = {
            "source": request.source.name,
            "device": {
                "name": stepper.device.name,
                "backend": stepper.device.backend,
                "software": stepper.device.software,
            },
            "variant": form_of(request.variant),
            "shaders": shaders_of(request.variant),
            "stats": level,
            "steps": [{**_step(record), **more} for record, more in zip(records, counted, strict=True)],
            "findings": [finding_document(each, shapes) for each in findings],
            "stopped": stop_document(breakpoints.stop),
        }
        tell_never_judged(breakpoints, len(records))
        if recording is not None:
            document["session"] = {
                "path": str(recording.path),
                "bytes": recording.size(),
                "policy": str(recording.policy),
            }
        return document, recording.ended if recording else None
    finally:
        stepper.close()


def _write(request: Request, engine: Engine, stepper: GpuStepper) -> None:
    assert request.out is not None
    state = stepper.state()
    gradients: Mapping[str, F32Array] = stepper.gradients()
    later: dict[str, F32Array] = {}
    if isinstance(request.source, StateFile):
        # Those of the step that a breakpoint stopped are in place: they are g.
        later = request.source.later_gradients(stepper.cursor.step)
        if not request.steps:
            gradients = {**gradients, **request.source.waiting_gradients()}
    lanes = {"w": state.w, "g": gradients, "m": state.m, "v": state.v}
    known = engine.record is not None and engine.record.grad_norm is not None
    stats = stepper.grad_stats() if known else None
    write_state(
        request.out,
        stepper.layout.params,
        lanes,
        finished_steps=state.finished_steps,
        hyper=engine.hyper,
        stats=stats,
        later=later,
        coded=state.coded,
        states=state.states,
        own=_own_settings(engine, state.finished_steps),
    )


def _own_settings(engine: Engine, finished: int) -> dict[str, Settings] | None:
    """What params with settings of their own take the next step with, by name; None where all share theirs."""
    if engine.hyper.per_param is None:
        return None
    recorded = isinstance(engine.source, AsRecorded)
    used = engine.course.hyper_at(finished + 1) if recorded else engine.hyper
    layout, more = engine.stepper.layout, 0 if recorded else finished - engine.began_at
    found = {s.name: used.of_param(layout.number_of(s.name), decays=s.block == "wd") for s in layout}
    # An idle one falls behind with every step of the run.
    return {name: replace(own, behind=own.behind + more * own.idle) for name, own in found.items()}


def _step(record: StepRecord) -> dict[str, Any]:
    return {
        "step": record.step,
        "loss": record.loss,
        "lr": record.lr,
        "grad_norm": record.grad_norm,
        "clip_scale": record.clip_scale,
        "nonfinite": {
            "nan": record.nonfinite.nan,
            "posinf": record.nonfinite.posinf,
            "neginf": record.nonfinite.neginf,
        },
        "kernels": [
            {"name": k.name, "block": k.block, "ms": k.ms, "clock": k.clock, "cold": k.cold}
            for k in record.kernels
        ],
    }


def _classes(engine: Engine) -> dict[str, Any]:
    """The classes of params in the step at the cursor, where they have settings of their own."""
    own = engine.step_hyper.per_param
    if own is None:
        return {}
    step, counts = engine.stepper.cursor.step, Counter(own.of)
    return {
        "classes": [
            {
                **{name: getattr(each, name) for name in SETTING_NAMES},
                "t": each.t(step),
                "idle": each.idle,
                "params": counts[i],
            }
            for i, each in enumerate(own.classes)
        ]
    }


def _counted(engine: Engine, layout: Layout) -> dict[str, Any]:
    """What was counted of each param and of each block, and the GPU time it took."""
    if not engine.param_stats:
        return {}
    assert engine.counted is not None
    _, *blocks = engine.counted.totals
    return {
        "params": [_param(stats, layout) for stats in engine.param_stats],
        "blocks": [_param(stats, layout, several=True) for stats in blocks],
        "stats_ms": engine.counted.ms,
    }


def _param(stats: ParamStats, layout: Layout, *, several: bool = False) -> dict[str, Any]:
    """Elements are named by their flat index in the param; of several params, with the name of that param."""
    update = as_dict(stats.update)
    largest = _element("largest", update.pop("largest_at"), layout, several)
    return {
        "name": stats.name,
        "block": stats.block,
        "numel": stats.numel,
        **({} if several else {"state": layout[stats.name].state}),
        "lanes": {name: _lane(lane, layout, several) for name, lane in stats.lanes.items()},
        "update": {**update, **largest},
    }


def _element(name: str, element: int | None, layout: Layout, several: bool) -> dict[str, Any]:
    segment = None if element is None else layout.at(element)
    place: dict[str, Any] = {f"{name}_param": segment.name if segment else None} if several else {}
    place[f"{name}_index"] = element - segment.offset if segment and element is not None else None
    return place


def _lane(lane: LaneStats, layout: Layout, several: bool) -> dict[str, Any]:
    kinds, powers = lane.counts.nonfinite, lane.counts.log2_range()
    first = _element("first_nonfinite", kinds.first, layout, several)
    return {
        "nan": kinds.nan,
        "posinf": kinds.posinf,
        "neginf": kinds.neginf,
        "first_nonfinite": first.pop("first_nonfinite_index"),
        **first,
        "zeros": lane.counts.zeros,
        "min": lane.low,
        "max": lane.high,
        "max_abs": lane.counts.max_abs,
        "norm": lane.norm,
        "histogram": _histogram(lane, *powers) if powers else None,
    }


def _histogram(lane: LaneStats, low: int, high: int) -> dict[str, Any]:
    """Counts of magnitudes from 2**log2 on, one for each power of two."""
    return {
        "log2": low,
        "counts": lane.counts.exponents[low + EXPONENT_BIAS : high + EXPONENT_BIAS + 1].tolist(),
    }


def _show(document: dict[str, Any], request: Request) -> None:
    console = make_console()
    console.print(f"{document['source']} on {document['device']['name']} ({document['device']['backend']})")
    for line in own_kernel_lines(request.variant):
        console.print(line, soft_wrap=True)
    clock = (
        "GPU ms"
        if not document["steps"] or document["steps"][0]["kernels"][0]["clock"] == "gpu"
        else "CPU ms"
    )
    table = make_table(right=("step", "loss", "lr", "gradNorm", "clipScale", "non-finite", clock))
    # In a column of its own, so that the figures stay flush.
    table.add_column("")
    steps = document["steps"]
    every = max(len(steps) // SHOWN_ROWS, 1)
    shown = [s for i, s in enumerate(steps) if i % every == 0 or i == len(steps) - 1]
    for s in shown:
        times = [k["ms"] for k in s["kernels"]]
        known = [ms for ms in times if ms is not None]
        table.add_row(
            f"{s['step']:,}",
            "–" if s["loss"] is None else f"{s['loss']:.4f}",
            significant(s["lr"], 3),
            significant(s["grad_norm"], 6),
            significant(s["clip_scale"], 6),
            str(sum(s["nonfinite"].values())),
            f"{sum(known):.3f}" if len(known) == len(times) else "n/a",
            "cold" if any(k["cold"] for k in s["kernels"]) else "",
        )
    console.print(table)
    if steps and "params" in steps[-1]:
        console.print(_params_table(steps[-1]))
    for f in document["findings"]:
        console.print(
            f"{f['severity']} · step {f['step']} · {f['rule']}: {f['message']} {f['advice']}",
            soft_wrap=True,
            markup=False,
        )
    stopped = document["stopped"]
    if request.out is not None:
        when = "after the last step" if stopped is None else f"before the update of step {stopped['step']:,}"
        console.print(f"State {when}: {request.out}", soft_wrap=True)
    if request.steps and document["steps"]:
        last = document["steps"][-1]
        for line in lockstep_words(last.get("lockstep")):
            console.print(line, soft_wrap=True)
        console.print(
            f"gradNorm {shortest(last['grad_norm'])}, clipScale {shortest(last['clip_scale'])} in step {last['step']}."
        )
    if stopped is not None:
        console.print(stopped["message"], soft_wrap=True)


def _params_table(step: dict[str, Any]) -> Table:
    """The params that the update changes most beside their size, then each block."""
    params = sorted(step["params"], key=_ratio, reverse=True)
    shown = params[:SHOWN_ROWS]
    which = f"{len(shown)} of {len(params)} params" if len(shown) < len(params) else "Params"
    ms = step["stats_ms"]
    table = make_table(
        "param", "block",
        right=("elements", "‖w‖", "‖g‖", "‖Δw‖", "‖Δw‖/‖w‖", "max |Δw|/lr", "g non-finite", "√v̂ < ε", "lost",
               "f16 over", "f16 under"),
        title=f"{which} before the update of step {step['step']}, by ‖Δw‖/‖w‖; counted in "
        + ("n/a" if ms is None else f"{ms:.3f} ms of GPU time"),
    )  # fmt: skip
    for i, p in enumerate((*shown, *step["blocks"])):
        lanes, update = p["lanes"], p["update"]
        table.add_row(
            f"block {p['name'].replace('_', '-')}" if i >= len(shown) else p["name"],
            p["block"].replace("_", "-"),
            f"{p['numel']:,}",
            significant(lanes["w"]["norm"], 4),
            significant(lanes["g"]["norm"], 4),
            significant(update["norm"], 4),
            significant(_ratio(p), 4) if lanes["w"]["norm"] else "n/a",
            significant(update["largest"], 4),
            f"{sum(lanes['g'][kind] for kind in ('nan', 'posinf', 'neginf')):,}",
            *(f"{update[name]:,}" for name in ("below_eps", "lost", "f16_overflows", "f16_underflows")),
            end_section=i == len(shown) - 1,
        )
    return table


def _ratio(param: dict[str, Any]) -> float:
    """How far the update moves a param beside its size; weights that are all 0 come last."""
    weights = float(param["lanes"]["w"]["norm"])
    return float(param["update"]["norm"]) / weights if weights else -1.0
