"""`inspector race --verify`: a saved race or sweep again as each lane ran, its bits held against those saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspector.cli.lane_progress import lane_steps
from inspector.cli.options import interruptible, make_console, make_source, make_table, print_json
from inspector.cli.sweep_table import loss_text
from inspector.errors import UsageError
from inspector.gpu.opener import StepperMaker
from inspector.hyper import KERNELS_REVISION
from inspector.race import LaneSpec
from inspector.runtime.race_recording import result_of
from inspector.runtime.racing import Lane, Race
from inspector.schedule import Schedule
from inspector.session.race_file import RACE_NAME, LaneResult, RacedLane, RaceFile, lane_folder, lanes_at_once
from inspector.session.reader import Session
from inspector.sources.base import EndOfSourceError, Source


@dataclass(frozen=True, slots=True)
class _Saved:
    """A lane as it was saved: what it ran, what came of it, and its recording."""

    spec: LaneSpec
    text: str
    result: LaneResult
    session: Session
    told: bool = True
    """What came of it was written; else its recording alone tells, as of one that was killed."""


def run_again(path: Path, adapter: str | None, *, json: bool) -> int:
    """Run a saved race or sweep again from what it says, and hold the bits against it; 1 where any differ."""
    file = RaceFile.read(path)
    if file.began_at:
        raise UsageError(
            f"{path} was recorded from step {file.began_at + 1:,} on: only a race that was recorded from its start is "
            "run again."
        )
    with ExitStack() as stack:
        saved = []
        for number, (spec, lane) in enumerate(zip(file.specs, file.lanes, strict=True)):
            folder = path / lane_folder(number)
            if not file.is_done(number) and not folder.exists():
                # Nothing of it had run when the race was interrupted.
                continue
            session = stack.enter_context(Session.open(folder))
            saved.append(_saved(spec, lane, session))
        if not any(lane.result.steps for lane in saved):
            raise UsageError(
                f"{path} was interrupted before any step of it was recorded: there is nothing to run again."
            )
        document = _document(path, file, saved, adapter)
    print_json(document) if json else _show(document)
    return int(not document["bit_exact"])


def _saved(spec: LaneSpec, lane: RacedLane, session: Session) -> _Saved:
    """What was saved of a lane; UsageError where it does not agree with itself. One that was killed has its steps."""
    if session.state == "recording":
        raise UsageError(f"{session.path} is still being recorded: wait until that has ended.")
    result = lane.result or LaneResult(len(session.steps), None, "")
    if len(session.steps) < result.steps:
        raise UsageError(
            f"{session.path} holds {len(session.steps):,} of {result.steps:,} steps: only all of them are run again."
        )
    if spec.variant_of(session.about.variant) != session.about.variant:
        raise UsageError(f"{session.path} ran something else than {RACE_NAME} says, {lane.spec}.")
    return _Saved(spec, lane.spec, result, session, lane.result is not None)


def _document(path: Path, file: RaceFile, saved: Sequence[_Saved], adapter: str | None) -> dict[str, Any]:
    where = file.source_from(path)
    sources: dict[int | None, Source] = {}
    for lane in saved:
        if lane.spec.seed not in sources:
            seed = file.seed if lane.spec.seed is None else lane.spec.seed
            sources[lane.spec.seed] = make_source(where, file.schedule, seed)
    rows: list[dict[str, Any]] = []
    device = ""
    with interruptible() as check, lane_steps(sum(lane.result.steps for lane in saved)) as advance:

        def tick(count: int) -> None:
            check()
            advance(count)

        at_once = lanes_at_once(file.kind)
        for first in range(0, len(saved), at_once):
            batch = saved[first : first + at_once]
            race = _start(batch, [sources[lane.spec.seed] for lane in batch], adapter)
            try:
                device = race.lanes[0].engine.stepper.device.name
                parted = _steps(race, batch, tick)
                rows += [_row(*each) for each in zip(batch, race.lanes, parted, strict=True)]
            finally:
                race.close()
    revisions = {lane.session.about.kernels for lane in saved}
    return {
        "session": str(path), "source": where, "saved_on": file.device, "device": device, "lanes": rows,
        "bit_exact": all(row["bit_exact"] for row in rows),
        "complete": all(file.is_done(number) for number in range(len(file.lanes))),
        "same_kernels": revisions == {KERNELS_REVISION},
    }  # fmt: skip


def _start(batch: Sequence[_Saved], sources: Sequence[Source], adapter: str | None) -> Race:
    maker = StepperMaker(adapter, undo_bytes=0)
    abouts = [lane.session.about for lane in batch]
    return Race.start(
        sources,
        [lane.spec for lane in batch],
        lambda source, variant, state: maker.make(source.params, variant, state),
        variant=abouts[0].variant,
        forms=[about.variant for about in abouts],
        hypers=[about.hyper for about in abouts],
    )


def _steps(race: Race, batch: Sequence[_Saved], tick: Callable[[int], None]) -> list[int | None]:
    """All steps of each lane; of each the first whose numbers are others than those recorded, None where none is."""
    parted: list[int | None] = [None] * len(batch)
    for ran in range(max((lane.result.steps for lane in batch), default=0)):
        moving = [i for i, saved in enumerate(batch) if saved.result.steps > ran]
        tick(len(moving))
        for i in moving:
            _set_as_it_ran(race.lanes[i], batch[i].session)
        try:
            race.step_lanes([race.lanes[i] for i in moving])
        except EndOfSourceError as error:
            raise UsageError(f"The source has other steps than the race ran: {error}") from None
        for i in moving:
            if parted[i] is None and not _as_recorded(race.lanes[i], batch[i].session):
                parted[i] = race.lanes[i].steps
    return parted


def _set_as_it_ran(lane: Lane, session: Session) -> None:
    """Settings and form of the next step as it was recorded: a person may have changed them between any two."""
    step = lane.steps + 1
    if step not in session.steps or lane.ended is not None:
        return
    ran, engine = session.step(step), lane.engine
    if engine.course.hyper_at(step) != ran.hyper:
        engine.course.set(step, ran.hyper, Schedule())
    if engine.stepper.plan.variant != ran.variant:
        engine.set_variant(ran.variant)


def _as_recorded(lane: Lane, session: Session) -> bool:
    step = lane.steps
    if step not in session.steps or lane.latest is None or lane.latest.record.step != step:
        return False
    was, now = session.step(step), lane.latest.record
    pairs = (was.loss, now.loss), (was.grad_norm, now.grad_norm), (was.clip_scale, now.clip_scale)
    return all(repr(a) == repr(b) for a, b in pairs if a is not None)


def _row(saved: _Saved, lane: Lane, parted: int | None) -> dict[str, Any]:
    again = result_of(lane)
    was = saved.result
    # The weights in the middle of a step were not taken down: then its steps alone tell.
    same = not was.weights_sha256 or was.weights_sha256 == again.weights_sha256
    alike = not saved.told or repr(was.final_loss) == repr(again.final_loss)
    return {
        "lane": saved.text, "bit_exact": same and alike and parted is None, "first_difference": parted,
        "steps": again.steps, "final_loss": was.final_loss, "final_loss_again": again.final_loss,
    }  # fmt: skip


def _show(document: dict[str, Any]) -> None:
    console = make_console()
    table = make_table("lane", "bits", right=("steps", "final loss", "again"))
    for row in document["lanes"]:
        since = row["first_difference"]
        others = "others" if since is None else f"others from step {since:,} on"
        table.add_row(
            row["lane"], "the same" if row["bit_exact"] else others, f"{row['steps']:,}",
            loss_text(row["final_loss"]), loss_text(row["final_loss_again"]),
        )  # fmt: skip
    console.print(table)
    if not document["complete"]:
        console.print("It was interrupted: the steps that were recorded were run again.")
    if document["bit_exact"]:
        return
    if document["saved_on"] != document["device"]:
        console.print(
            f"It was saved on {document['saved_on']}, and this is {document['device']}: other devices round otherwise."
        )
    elif not document["same_kernels"]:
        console.print("It was saved by another version of the kernels, which rounds otherwise.")
