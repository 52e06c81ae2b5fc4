"""`inspector race`: several optimizers or settings from one start, over the same batches; what a sweep runs by, too."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inspector import __version__
from inspector.cli.decay import decay_document, show_decay
from inspector.cli.lane_progress import lane_steps
from inspector.cli.options import (
    interruptible,
    make_console,
    make_source,
    make_table,
    open_told,
    print_json,
)
from inspector.cli.step_options import make_hyper, tell_runs_as, tell_seeds
from inspector.cli.sweep_table import loss_text
from inspector.errors import InspectorError, UsageError
from inspector.floats import shortest, significant
from inspector.gpu.opener import StepperMaker
from inspector.hyper import Hyper
from inspector.optimizers import optimizer
from inspector.plan import Variant
from inspector.race import MAX_LANES, LaneSpec, check_forms, lane_names
from inspector.runtime.decay_watch import DecayPicture, read_bins
from inspector.runtime.race_recording import RaceRecording, result_of
from inspector.runtime.racing import Lane, Race, norms_level
from inspector.session.new_place import check_new
from inspector.session.policy import Policy
from inspector.session.race_file import Kind, LaneResult, RacedLane, RaceFile, lane_folder, lanes_at_once
from inspector.sources.base import EndOfSourceError, Source, is_closed_loop
from inspector.statistics import StatsLevel
from inspector.sweep import base_of

OPEN_LOOP = (
    "Open loop: the gradients are the same whatever the weights, so the lanes differ in their updates and not in what "
    "they learn."
)


DEFAULT_STEPS = 300


@dataclass(frozen=True, slots=True)
class Setup:
    """What holds for all lanes; `settings` are the hyper-parameters that were typed, `form` the parts of the form."""

    source: str
    steps: int
    settings: dict[str, float]
    form: dict[str, Any]
    schedule: str | None
    seed: int | None
    adapter: str | None
    stats: StatsLevel | None = None
    """How much is counted; None for what there is to be known."""
    capture: str = "stats"
    decay: bool = False
    """Watch the decay that each element receives."""

    def open(self, lane: LaneSpec) -> Source:
        """The source of a lane, at its seed where it has one."""
        return make_source(self.source, self.schedule, self.seed if lane.seed is None else lane.seed)


@dataclass(frozen=True, slots=True)
class Raced:
    """One lane that is done, and its numbers of each step."""

    spec: LaneSpec
    result: LaneResult
    steps: tuple[dict[str, Any], ...]
    hyper: Hyper
    decay: DecayPicture | None = None


def run_race(setup: Setup, lanes: Sequence[LaneSpec], save: Path | None, *, json: bool) -> int:
    """Race, print, save; 1 where a lane ended before the others."""
    if not 2 <= len(lanes) <= MAX_LANES:
        raise UsageError(f"A race has 2 to {MAX_LANES} lanes, not {len(lanes)}: give --lane as often.")
    tell_lanes(setup, lanes, "race", setup.open(LaneSpec()))
    outcome = run_lanes(setup, lanes, "race", save)
    document = race_document(outcome)
    print_json(document) if json else show_race(document)
    return int(any(each.result.steps < setup.steps for each in outcome.raced))


@dataclass(frozen=True, slots=True)
class Outcome:
    """All lanes, in the order in which they were asked for."""

    setup: Setup
    kind: Kind
    closed_loop: bool
    device: str
    raced: tuple[Raced, ...]
    lane_steps_per_second: float | None
    path: Path | None


def run_lanes(
    setup: Setup, lanes: Sequence[LaneSpec], kind: Kind, save: Path | None, begun: RaceFile | None = None
) -> Outcome:
    """Run every lane, some at a time, and record them; of one that was `begun` in the folder `save` those left."""
    source = open_told(setup.source, setup.schedule, setup.seed)
    # What cannot run is told before anything does.
    _check_steps(source, setup.steps)
    check_forms(lanes, Variant(**setup.form), source.params)
    if save is not None and begun is None:
        check_new(save)
    policy = Policy.from_text(setup.capture)
    closed_loop = is_closed_loop(source)
    if setup.stats is None:
        # A saved race shows what it showed while it ran; of a sweep that is the loss.
        recorded = save is not None and kind == "race"
        setup = replace(setup, stats="full" if recorded else norms_level("light", closed_loop=closed_loop))
    file = begun or RaceFile(
        kind, setup.source, closed_loop, setup.steps, setup.settings, setup.form, setup.schedule,
        setup.seed, "", f"inspector {__version__}", tuple(RacedLane(str(lane)) for lane in lanes),
    )  # fmt: skip
    base = make_hyper(source, **setup.settings)
    raced = {} if begun is None else _done_before(lanes, begun, base)
    left = [number for number in range(len(lanes)) if number not in raced]
    device, began = file.device, time.perf_counter()
    at_once = lanes_at_once(kind)
    with interruptible() as check, lane_steps(setup.steps * len(lanes)) as advance:
        advance(setup.steps * len(raced))
        for first in range(0, len(left), at_once):
            batch = left[first : first + at_once]

            def tick(count: int = len(batch)) -> None:
                check()
                advance(count)

            race = _start(setup, [lanes[number] for number in batch])
            recording: RaceRecording | None = None
            try:
                name = race.lanes[0].engine.stepper.device.name
                if device not in ("", name):
                    raise UsageError(
                        f"{save} was begun on {device}, and this is {name}, which rounds otherwise: go on there, or "
                        "start another sweep."
                    )
                device = name
                if save is not None:
                    for number in batch if begun is not None else ():
                        # What there is of a run that was not done is run again from its start.
                        shutil.rmtree(save / lane_folder(number), ignore_errors=True)
                    file = replace(RaceFile.read(save) if first or begun else file, device=device)
                    recording = RaceRecording.start(
                        save, file, race.lanes, policy, numbers=batch, planned_steps=setup.steps
                    )
                raced |= zip(batch, _steps(race, setup, tick), strict=True)
            finally:
                if recording is not None:
                    recording.end()
                race.close()
            if recording is not None and recording.ended is not None:
                raise InspectorError(recording.ended)
    ran = sum(raced[number].result.steps for number in left)
    seconds = time.perf_counter() - began
    in_order = tuple(raced[number] for number in range(len(lanes)))
    return Outcome(setup, kind, file.closed_loop, device, in_order, ran / seconds if ran else None, save)


def steps_of(source: Source) -> int | None:
    """How many steps it has gradients for, None where there is no end."""
    if source.last_step is None:
        return None
    return source.last_step - source.initial_state().finished_steps


def _check_steps(source: Source, steps: int) -> None:
    there = steps_of(source)
    if there is not None and steps > there:
        raise UsageError(
            f"--steps {steps} is too many: {source.name} has gradients of {there:,}, up to step {source.last_step:,}."
        )


def _done_before(lanes: Sequence[LaneSpec], begun: RaceFile, base: Hyper) -> dict[int, Raced]:
    """What came of the lanes that are done, by number; the numbers of their steps are in their recordings."""
    found: dict[int, Raced] = {}
    for number, (spec, lane) in enumerate(zip(lanes, begun.lanes, strict=True)):
        if begun.is_done(number) and lane.result is not None:
            found[number] = Raced(spec, lane.result, (), spec.hyper_of(base))
    return found


def tell_lanes(setup: Setup, lanes: Sequence[LaneSpec], kind: Kind, source: Source) -> None:
    """On standard error what of the lanes is not as it was asked for."""
    tell_seeds(_seeds(setup, lanes, kind), source)
    called = {base_of(lane) if kind == "sweep" else str(lane): lane for lane in lanes}
    for text, lane in called.items():
        tell_runs_as(f"the lane {text}", lane.variant_of(Variant(**setup.form)), source)


def _seeds(setup: Setup, lanes: Sequence[LaneSpec], kind: Kind) -> list[str]:
    """What was asked of seeds, each as what it comes to where nothing is drawn."""
    if kind == "sweep":
        count = len({lane.seed for lane in lanes})
        return [f"--seeds {count} runs each alike"] if count > 1 else []
    of_all = ["--seed does nothing"] if setup.seed is not None else []
    own = [f"seed does nothing in the lane {lane}" for lane in lanes if lane.seed is not None]
    return of_all + own


def _start(setup: Setup, lanes: Sequence[LaneSpec]) -> Race:
    found: dict[int | None, Source] = {}
    for lane in lanes:
        if lane.seed not in found:
            found[lane.seed] = setup.open(lane)
    sources = [found[lane.seed] for lane in lanes]
    maker = StepperMaker(setup.adapter, undo_bytes=0)
    return Race.start(
        sources,
        lanes,
        lambda source, variant, state: maker.make(source.params, variant, state),
        variant=Variant(**setup.form),
        hypers=[make_hyper(source, **setup.settings) for source in sources],
        stats=setup.stats or "light",
    )


def _steps(race: Race, setup: Setup, tick: Callable[[], None]) -> list[Raced]:
    rows: list[list[dict[str, Any]]] = [[] for _ in race.lanes]
    if setup.decay:
        race.watch_decay()
    for _ in range(setup.steps):
        tick()
        before = [lane.steps for lane in race.lanes]
        try:
            race.step()
        except EndOfSourceError as error:
            raise UsageError(f"--steps {setup.steps} is too many: {error}") from None
        for lane, row, was in zip(race.lanes, rows, before, strict=True):
            if lane.steps > was:
                row.append(_row(lane))
        if not race.running:
            break
    if setup.decay:
        read_bins([lane.engine.decay for lane in race.lanes])
    pairs = zip(race.lanes, rows, strict=True)
    return [
        Raced(
            lane.spec,
            result_of(lane),
            tuple(row),
            lane.engine.hyper,
            _decay_of(lane) if setup.decay else None,
        )
        for lane, row in pairs
    ]


def _decay_of(lane: Lane) -> DecayPicture:
    return lane.engine.decay.picture(lane.name, lane.engine.stepper)


def _row(lane: Lane) -> dict[str, Any]:
    latest = lane.latest
    assert latest is not None
    record = latest.record
    return {
        "step": record.step, "loss": record.loss, "lr": record.lr, "grad_norm": record.grad_norm,
        "clip_scale": record.clip_scale, "weight_norm": latest.weight_norm, "update_norm": latest.update_norm,
    }  # fmt: skip


# --- what is printed


def race_document(outcome: Outcome) -> dict[str, Any]:
    """The document of --json of a race."""
    names = lane_names([each.spec for each in outcome.raced])
    return head(outcome) | {
        "lanes": [
            lane_row(name, each, outcome.setup)
            | ({"decay": decay_document(each.decay)} if each.decay is not None else {})
            | {"history": list(each.steps)}
            for name, each in zip(names, outcome.raced, strict=True)
        ],
    }


def head(outcome: Outcome) -> dict[str, Any]:
    """What is said of a race or a sweep as a whole."""
    setup = outcome.setup
    return {
        "source": setup.source,
        "closed_loop": outcome.closed_loop,
        "device": outcome.device,
        "steps": setup.steps,
        "schedule": setup.schedule,
        "seed": setup.seed,
        "lane_steps_per_second": outcome.lane_steps_per_second,
        "session": None if outcome.path is None else str(outcome.path),
    }


def lane_row(name: str, each: Raced, setup: Setup) -> dict[str, Any]:
    """What each lane ran and what came of it."""
    used = optimizer(each.spec.optimizer).settings
    return {
        "name": name,
        "optimizer": each.spec.optimizer,
        "hyper": {key: getattr(each.hyper, key) for key in used},
        "form": dict(each.spec.form),
        "seed": each.spec.seed if each.spec.seed is not None else setup.seed,
        "steps": each.result.steps,
        "final_loss": each.result.final_loss,
        "diverged": each.result.diverged,
        "why": each.result.why,
        "weights_sha256": each.result.weights_sha256,
    }


def show_race(document: dict[str, Any]) -> None:
    """A table of the lanes for people."""
    console = make_console()
    table = make_table(
        "lane", right=("lr", "steps", "loss at first", "final loss", "‖g‖ last", "‖Δw‖ last", "‖w‖ last"),
        title=f"{document['source']}, {document['steps']:,} steps, {document['device']}",
    )  # fmt: skip
    for lane in document["lanes"]:
        first, last = (lane["history"][i] if lane["history"] else {} for i in (0, -1))
        table.add_row(
            lane["name"], shortest(lane["hyper"]["lr"]), f"{lane['steps']:,}", loss_text(first.get("loss")),
            loss_text(lane["final_loss"]), *(_figure(last.get(k)) for k in ("grad_norm", "update_norm", "weight_norm")),
        )  # fmt: skip
    console.print(table)
    show_decay(console, document["lanes"])
    show_ends(document)


def show_ends(document: dict[str, Any]) -> None:
    """What became of single lanes, and where all of it is."""
    console = make_console()
    for lane in document["lanes"]:
        if lane["diverged"] is not None:
            console.print(f"{lane['name']} diverged at step {lane['diverged']:,}: {lane['why']}.")
        elif lane["why"]:
            console.print(f"{lane['name']} ended after step {lane['steps']:,}: {lane['why']}")
    if not document["closed_loop"]:
        console.print(OPEN_LOOP)
    if document["lane_steps_per_second"]:
        console.print(f"{document['lane_steps_per_second']:,.1f} steps of lanes a second.")
    if document["session"]:
        console.print(f"Saved to {document['session']}.")


def _figure(value: float | None) -> str:
    return "–" if value is None else significant(value, 4)
