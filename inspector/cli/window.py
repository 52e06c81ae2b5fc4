"""The window and pictures of it: where the worker, the device and Qt are put together."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from inspector.adamw_settings import AdamwSettings
from inspector.byte_sizes import MB
from inspector.cli.breakpoints import make_conditions
from inspector.cli.display import display_problem
from inspector.cli.options import make_source
from inspector.cli.step_options import make_hyper
from inspector.codecs import Codec
from inspector.comparison import Comparison
from inspector.errors import UsageError
from inspector.hyper import Hyper
from inspector.layout import Layout
from inspector.own_shaders import load_own_kernels
from inspector.param_hyper import placing
from inspector.plan import Variant
from inspector.runtime.beside import BesidePicture
from inspector.runtime.commands import (
    Command,
    DiffSessions,
    Run,
    Seek,
    SetBreakpoint,
    ShowOverlay,
    StartLockstep,
    StartRecording,
    StepDispatch,
)
from inspector.runtime.snapshots import Notice, Snapshot
from inspector.session.policy import Policy
from inspector.session.race_file import is_race, lane_folder
from inspector.sources.base import Source
from inspector.sources.recording import Recording
from inspector.statistics import StatsLevel
from inspector.stepping import Cursor, State, Stepper

if TYPE_CHECKING:
    from inspector.cli.recording import Save
    from inspector.gpu.opener import StepperMaker
    from inspector.gpu.stepper import GpuStepper
    from inspector.runtime.worker import Worker
    from inspector.ui.main_window import MainWindow

MAX_PICTURE = 16_384


@dataclass
class Chosen:
    """What a person chose in the settings of the window, asked for whenever a device is opened.

    `found` are the names of the adapters that can be used, once they have been looked for.
    """

    adapter: Callable[[], str] = str
    undo_mb: Callable[[], int | None] = lambda: None
    found: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunOpener:
    """Opens sources and steppers as the command line asked for. Called on the worker's thread."""

    adapter: str | None
    undo_mb: int | None
    schedule: str | None
    seed: int | None
    given: Mapping[str, float | None]
    shaders: Path | None = None
    adamw: AdamwSettings | None = None
    """Settings of what Muon leaves to AdamW."""
    chosen: Chosen = field(default_factory=Chosen)
    """What holds where nothing is given."""

    def check(self, spec: str) -> Source:
        """The source, or UsageError for what cannot be meant, before a window appears."""
        source = self.open_source(spec)
        self.hyper(source)
        return source

    def open_source(self, spec: str) -> Source:
        """The source, with the options in place of its own settings; of a saved race its first lane."""
        if is_race(Path(spec)):
            spec = str(Path(spec) / lane_folder(0))
        return make_source(spec, self.schedule, self.seed)

    def hyper(self, source: Source) -> Hyper:
        """The source's hyper-parameters with the given ones in their place."""
        hyper = make_hyper(source, **dict(self.given))
        return hyper if self.adamw is None else self.adamw.of(hyper, source.params)

    def reread(self, variant: Variant) -> Variant:
        """`variant` with its own kernels as they are in their files now: what a start of the source runs."""
        return variant if self.shaders is None else replace(variant, own=load_own_kernels(self.shaders))

    def make_stepper(
        self, source: Source, variant: Variant, state: State, layout: Layout | None = None
    ) -> GpuStepper:
        """A stepper on a new device, the params as in `layout` where that can bind them there."""
        # wgpu takes a while to import: here it does so on the worker's thread, beside the first paint.
        from inspector.gpu.opener import StepperMaker

        undo_mb = self.chosen.undo_mb() if self.undo_mb is None else self.undo_mb
        undo = None if undo_mb is None else undo_mb * MB
        return StepperMaker(self._adapter(), undo).make(
            source.params, variant, state, layout, **placing(source.hyper)
        )

    def replay_maker(self) -> StepperMaker:
        """Steppers on the same adapter, with no memory for going back."""
        from inspector.gpu.opener import StepperMaker

        return StepperMaker(self._adapter(), undo_bytes=0)

    def _adapter(self) -> str | None:
        """The adapter that was asked for: one chosen in the settings may be gone, which stops nothing."""
        from inspector.gpu.device import list_adapters

        if self.adapter is not None:
            return self.adapter
        if not self.chosen.found:
            # Once: what there is does not change while the window is open.
            self.chosen.found = tuple(report.name for _, report in list_adapters() if report.usable)
        wanted = self.chosen.adapter()
        return (
            wanted if any(wanted.lower() in name.lower() for name in self.chosen.found) and wanted else None
        )

    def compare(
        self,
        source: Source,
        stepper: Stepper,
        *,
        samples: int,
        seconds: float,
        copy_gbps: float | None,
        progress: Callable[[int, int], None],
    ) -> Comparison:
        """Variants over the source's params, on the stepper's device."""
        from inspector.gpu.bench import compare
        from inspector.gpu.stepper import GpuStepper

        if not isinstance(stepper, GpuStepper):
            raise UsageError("Variants are compared on a GPU: this run has none.")
        return compare(
            stepper.gpu, source.params, stepper.plan.variant,
            samples=samples, seconds=seconds, copy=copy_gbps, progress=progress,
        )  # fmt: skip


def open_window(
    opener: RunOpener,
    spec: str,
    variant: Variant,
    stats: StatsLevel = "light",
    *,
    lockstep: Codec | None = None,
    save: Save | None = None,
    save_stats: StatsLevel | None = None,
    breaks: Sequence[str] | None = None,
    start_page: bool = False,
) -> int:
    """Show the window until it is closed; its exit code. With `save` it records from the start."""
    source = opener.check(spec)
    conditions = make_conditions(breaks, source.params, variant)
    if problem := display_problem():
        raise UsageError(problem)
    from inspector.ui.app import run_window

    def make_worker() -> Worker:
        # Imported once the window is painted: it brings the readers and writers of recordings with it.
        from inspector.runtime.worker import Worker

        return Worker(opener, spec, variant, reread=opener.reread, stats=stats)

    def join(window: MainWindow) -> None:
        chosen, options = opener.chosen, window.preferences
        chosen.adapter = lambda: options.options.adapter
        chosen.undo_mb = lambda: options.options.undo_mb
        options.offer(lambda: chosen.found)
        if start_page and options.options.start_page:
            window.begin_with("start")

    def begin(window: MainWindow) -> None:
        for condition, stopping in conditions:
            window.send(SetBreakpoint(condition, stopping=stopping))
        if save is not None:
            window.send(StartRecording(str(save.path.absolute()), str(save.policy or Policy()), save_stats))
        if lockstep is not None:
            window.send(StartLockstep(lockstep))
            window.show_view("lockstep")

    return run_window(
        make_worker,
        on_made=join,
        on_ready=begin,
    )


def take_picture(
    opener: RunOpener,
    spec: str,
    out: Path,
    *,
    variant: Variant,
    steps: int,
    dispatches: int,
    lockstep: Codec | None = None,
    beside: Path | None = None,
    size: str,
    view: str | None,
    theme: str,
    scale: float,
    stats: StatsLevel | None = None,
) -> None:
    """Run `steps`, then `dispatches` more, and draw the window or one view to a PNG.

    A recording from which no step can be rebuilt is shown as recorded after `steps`, or at its end.
    Without `stats` as much is counted as the view needs. The recording `beside` is laid under the run, and in the view
    `compare` the one drawn is held against it.
    """
    if out.suffix.lower() != ".png":
        raise UsageError(f"--out {out} does not end in .png, which is what is written.")
    if theme not in ("light", "dark"):
        raise UsageError(f"There is no theme {theme!r}: choose light or dark.")
    width, height = _size(size)
    source = opener.check(spec)
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    from inspector.runtime.worker import Worker
    from inspector.ui.screenshot import grab_window, save_picture, settled

    level: StatsLevel = stats or ("full" if view == "params" else "light")
    worker = Worker(opener, spec, variant, reread=opener.reread, stats=level)
    only_shown = isinstance(source, Recording) and not source.stretches
    if isinstance(source, Recording) and only_shown:
        first = source.session.steps.start - 1
        if dispatches:
            raise UsageError(f"{spec}: {source.missing(first + max(steps, 1))} Leave --dispatches out.")
    else:
        first = source.initial_state().finished_steps
    commands: list[Command] = [StartLockstep(lockstep)] if lockstep is not None else []
    if beside is not None:
        commands.append(ShowOverlay(str(beside)))
        commands += [DiffSessions("", str(beside))] if view == "compare" else []
    going: Command = Seek(first + steps) if only_shown else Run(until=first + steps)
    plan: list[Command] = [*([going] if steps else []), *[StepDispatch()] * dispatches]

    told: list[str] = []
    at_opening: list[Notice | None] = []

    def there(snapshot: Snapshot) -> bool:
        notice = snapshot.notice
        if not at_opening and settled(snapshot):
            at_opening.append(notice)
        # What is told of a source as it opens stops nothing, unless it is an error.
        idle = notice is None or (notice in at_opening and notice.severity != "error")
        if not idle and notice is not None and snapshot.mode != "running":
            # Whatever stops the run short of what was asked for: the end of the source, no device, …
            told[:] = [notice.text]
            return True
        if not settled(snapshot) or snapshot.cursor is None or not is_read(snapshot.beside):
            return False
        if only_shown:
            # Without --steps the last one is on show.
            wanted = min(first + steps, snapshot.last_step or first)
            if not steps or snapshot.cursor.finished_steps == wanted:
                return True
            while plan:
                worker.send(plan.pop(0))
            return False
        # One after the other: a dispatch asked for while the run goes on would pause it.
        stepping = snapshot.cursor.finished_steps >= first + steps
        while plan and (stepping or isinstance(plan[0], Run)):
            worker.send(plan.pop(0))
        return (
            not plan
            and _dispatches_run(snapshot.cursor) >= _dispatches_in(first + steps, snapshot) + dispatches
        )

    image = grab_window(
        lambda: worker,
        size=(width, height),
        view=view,
        scheme="dark" if theme == "dark" else "light",
        scale=scale,
        commands=commands,
        front="lockstep" if lockstep is not None else None,
        until=there,
        timeout_s=3600.0,
    )
    if told:
        raise UsageError(f"No picture was made: {told[0]}")
    save_picture(image, out)


def is_read(beside: BesidePicture) -> bool:
    """False while anything beside the run is still being read or compared."""
    comparing = beside.diff is not None and beside.diff.share is not None
    return not comparing and not any(o.loading for o in beside.overlays)


def _dispatches_run(cursor: Cursor) -> int:
    """Dispatches since step 1; the end of a step and the start of the next count alike."""
    return (cursor.step - 1) * cursor.count + cursor.dispatch


def _dispatches_in(steps: int, snapshot: Snapshot) -> int:
    return steps * (snapshot.cursor.count if snapshot.cursor else 0)


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)[x×](\d+)", text.strip().lower())
    if match is None:
        raise UsageError(f"--size {text!r} is no size: write it as 1600x1000.")
    width, height = int(match[1]), int(match[2])
    if not (200 <= width <= MAX_PICTURE and 150 <= height <= MAX_PICTURE):
        raise UsageError(f"--size {text} cannot be drawn: give 200x150 to {MAX_PICTURE}x{MAX_PICTURE}.")
    return width, height
