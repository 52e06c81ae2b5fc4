"""The worker thread: the only one that touches the device. Takes commands, sends snapshots."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from inspector.comparison import Comparison
from inspector.errors import DeviceLostError, InspectorError, OutOfMemoryError, UsageError
from inspector.plan import Variant
from inspector.progress import EndedError, advanced, part, watched
from inspector.runtime import commands as c
from inspector.runtime.beside import WhatIfProgress
from inspector.runtime.breakpoints import Breakpoints, higher
from inspector.runtime.choices import Choices
from inspector.runtime.companions import Companions
from inspector.runtime.engine import Engine
from inspector.runtime.keeping import Keeping
from inspector.runtime.lockstep import Asked
from inspector.runtime.long_work import LongWork
from inspector.runtime.mailbox import Mailbox
from inspector.runtime.memory_picture import RunMemory
from inspector.runtime.parts import OpenRun
from inspector.runtime.race_host import RaceHost, check_lanes
from inspector.runtime.reporting import save_report
from inspector.runtime.run_to import Command as RunToCommand
from inspector.runtime.run_to import RunTo
from inspector.runtime.saved_race import saved_race
from inspector.runtime.shaders import Shaders
from inspector.runtime.snapshots import Comparing, Glance, Mark, Mode, Notice, Snapshot
from inspector.runtime.travel import GivenUpError, Travel, opened
from inspector.runtime.value_finding import Found, Working, find_in_capture, find_on_device, save_values
from inspector.runtime.verifying import Verifying
from inspector.runtime.viewer import Viewer
from inspector.runtime.weighing import Policies
from inspector.runtime.what_if import check_what_if, run_what_if
from inspector.sources.base import AsRecorded, EndOfSourceError, Source, remarks_of
from inspector.sources.open import form_of
from inspector.statistics import StatsLevel
from inspector.stepping import DeviceInfo, Stepper, lost_moments

FRAME_S = 1 / 25
"""While running, at most so often a snapshot is sent."""
PROGRESS_S = 0.2
"""While variants are compared, at most so often a snapshot is sent: what it takes is seen in no time measured."""
YIELD_S = 0.05
"""While running, a step waits at most so long for a busy UI."""
SLOW_STEP_S = 0.1
"""A step that takes longer runs one dispatch at a time, so that a pause or a look need not wait for all of it."""
SLOW_ELEMENTS = 1 << 24
"""On a software device a step over more elements is taken to be slow until it has been timed."""
RATE_WINDOW_S = 1.0
OPENED = 0.4
"""The share of an opening after which the source is there, and what it holds goes to the device."""

JUDGING_S = 0.02
"""So long at a time the rules look at steps of a recording."""

NEEDS_BUFFERS = (
    c.StepDispatch, c.StepIteration, c.Run, c.RunToDispatch, c.UndoDispatch, c.UndoIteration, c.SetHyper,
    c.SetSchedule, c.SetVariant, c.CompareVariants, c.StartLockstep, c.StartRecording,
    c.SaveValues, c.TryShader,
)  # fmt: skip
"""These start from what the device holds, and wait until that is of the step on show."""


BRIEF_SIGNS = 420
"""Of what is told of a source as it opens."""


class Worker:
    """Runs commands on a thread of its own, in the order sent.

    `opener` makes sources and steppers, on the thread. `on_snapshot` is called on the thread. `reread` gives the
    variant to start a source with: own kernels as they are in their files by then.
    """

    def __init__(
        self,
        opener: OpenRun,
        spec: str,
        variant: Variant | None = None,
        *,
        paused: bool = True,
        reread: Callable[[Variant], Variant] = lambda variant: variant,
        stats: StatsLevel = "light",
    ) -> None:
        self._opener = opener
        self._spec = spec
        self._variant = variant or Variant()
        self._reread = reread
        self._stats: StatsLevel = stats
        self._choices = Choices()
        self._breakpoints = Breakpoints()
        self._mail = Mailbox()
        self._thread: threading.Thread | None = None
        self._on_snapshot: Callable[[Snapshot], None] = lambda snapshot: None
        self._yield: Callable[[float], None] = lambda timeout: None
        self._engine: Engine | None = None
        self._travel: Travel | None = None
        self._keeping = Keeping(self._notify)
        self._closing = threading.Event()
        self._viewer = Viewer(stop=self._closing.is_set)
        self._mode: Mode = "starting"
        self._opened = 0
        self._set_aside: tuple[Variant, Variant] | None = None
        """The form that was chosen, while a source runs in one of its own, and that one."""
        self._start_paused = paused
        self._until: int | None = None
        self._serial = 0
        self._notice: Notice | None = None
        self._memory = RunMemory()
        self._last = Snapshot(0, "starting", spec)
        self._sent_at = -float("inf")
        self._stale = False
        self._step_s = 0.0
        self._rate_from: tuple[float, int] = (0.0, 0)
        self._rate: float | None = None
        self._steps_run = 0
        self._copy: tuple[DeviceInfo, float] | None = None
        self._beside = Companions(lambda: self._mail.put(c.LookBeside()), lambda: self._yield(YIELD_S))
        self._comparing: Comparing | None = None
        self._comparison: Comparison | None = None
        self._policies = Policies()
        self._verifying = Verifying()
        self._shaders = Shaders()
        self._to = RunTo(self._breakpoints, self._notify)
        self._long = LongWork(self._mail, self._tell_working, self._closing.is_set)
        self._race = RaceHost()

    # --- called on any thread

    def start(
        self,
        on_snapshot: Callable[[Snapshot], None],
        wait_until_idle: Callable[[float], None] | None = None,
    ) -> None:
        """Start the thread; snapshots go to `on_snapshot` from now on.

        `wait_until_idle(timeout)` is called before each step of a run: whoever shows the snapshots may take its
        time there.
        """
        self._on_snapshot = on_snapshot
        if wait_until_idle is not None:
            self._yield = wait_until_idle
        self._thread = threading.Thread(target=self._run, name="inspector-worker", daemon=True)
        self._thread.start()

    def send(self, command: c.Command) -> None:
        """Queue a command; returns at once."""
        self._mail.put(command)

    def close(self, timeout: float) -> bool:
        """End the thread and the device; False where it did not end within `timeout` seconds."""
        self._closing.set()
        self._mail.put(c.Shutdown())
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def mode(self) -> Mode:
        """The mode of the newest snapshot."""
        return self._last.mode

    @property
    def finished_steps(self) -> int:
        """Steps complete as of the newest snapshot; 0 before there is a run."""
        return self._last.cursor.finished_steps if self._last.cursor else 0

    # --- on the worker's thread

    def _run(self) -> None:
        try:
            self._open(self._spec, self._variant)
            if not self._start_paused and self._mode == "paused":
                self._mode = "running"
            self._publish()
            while not self._closing.is_set():
                self._mail.wait(self._patience())
                asked = self._mail.first is not None
                while self._mail.first is not None:
                    command = self._mail.pop()
                    if isinstance(command, c.Shutdown):
                        return
                    self._guarded(partial(self._handle, command))
                    self._guarded(self._race.observe)
                if self._travel is not None and self._travel.busy and not self._closing.is_set():
                    self._guarded(self._travel_on)
                elif self._mode == "running" and not self._closing.is_set():
                    self._yield(YIELD_S)
                    self._guarded(self._advance)
                elif self._race.behind and self._mode == "paused" and not self._closing.is_set():
                    self._guarded(self._race.catch_up)
                elif self._to.search is not None and not self._closing.is_set():
                    self._guarded(self._search_on)
                elif self._busy:
                    self._guarded(self._look_around)
                self._guarded(self._race.observe)
                if self._travel is not None:
                    self._guarded(self._poll)
                looks = self._judges or self._reads_on or self._to.search is not None
                quiet = self._on_its_way or (looks and not asked)
                asked_to_play = asked and self._is_playing
                self._publish(force=asked_to_play or (self._mode != "running" and not quiet))
        finally:
            self._close_engine()
            self._beside.close()
            self._mode = "closed"

    def _patience(self) -> float | None:
        """How long to wait for a command, in seconds; None for as long as it takes."""
        wait_s = 0.0 if self._busy else None
        if self._travel is not None and self._mode in ("paused", "running"):
            due_s = self._travel.wait_s()
            if wait_s is None or (self._travel.playing is not None and due_s is not None):
                wait_s = due_s
        return wait_s

    @property
    def _on_its_way(self) -> bool:
        """True where the step that is being gone to is on show already."""
        glance = self._travel.glance if self._travel is not None and self._travel.busy else None
        return glance is not None and self._last.glance is not None and glance.step == self._last.glance.step

    @property
    def _traveling(self) -> bool:
        return self._travel is not None and self._travel.busy

    @property
    def _busy(self) -> bool:
        if self._traveling:
            return False
        if self._to.search is not None:
            return True
        return self._mode == "running" or (
            self._mode == "paused"
            and (self._race.behind or self._judges or self._reads_on or not self._choices.complete)
        )

    @property
    def _judges(self) -> bool:
        recorded = self._engine.recorded if self._engine is not None else None
        return recorded is not None and not recorded.judged and self._mode == "paused"

    @property
    def _reads_on(self) -> bool:
        """True while there is more to read of what was captured of an element."""
        return self._viewer.closeups.microscope.reads_on and self._mode == "paused"

    def _look_around(self) -> None:
        """What is found out while nothing else is to do, a little at a time, so that commands need not wait."""
        if not self._choices.complete:
            self._choices.look()
        elif self._reads_on and self._engine is not None and self._engine.recorded is not None:
            self._yield(YIELD_S)
            self._viewer.closeups.microscope.read_on(self._engine.recorded)
        elif self._judges and self._engine is not None and self._engine.recorded is not None:
            self._yield(YIELD_S)
            self._engine.recorded.judge(JUDGING_S)

    def _guarded(self, act: Callable[[], None]) -> None:
        """Run something; what goes wrong becomes one sentence, and the run is paused with its state kept."""
        try:
            act()
        except DeviceLostError as error:
            self._stale = True
            self._mode = "lost"
            kept = (
                self._engine.checkpoint.finished_steps if self._engine and self._engine.checkpoint else None
            )
            where = f"the state after step {kept:,} is kept" if kept is not None else "it can start again"
            self._notify(
                "error", f"{error} What is shown is stale; recover to go on with a new device: {where}."
            )
        except EndOfSourceError as error:
            self._pause()
            self._notify("info", str(error))
        except InspectorError as error:
            self._pause()
            self._notify("error", str(error))
        except MemoryError:
            self._pause()
            self._notify(
                "error", "This computer ran out of memory: choose a smaller model or a smaller view."
            )
        except Exception as error:  # noqa: BLE001 - the last owner of an error on this thread
            # A fault of this program: told in one sentence, the details on the console for the report.
            traceback.print_exc(file=sys.stderr)
            self._pause()
            self._notify(
                "error", f"Something went wrong here ({type(error).__name__}: {error}); the run is paused."
            )

    def _pause(self) -> None:
        if self._mode == "running":
            self._mode = "paused"
        self._until = None
        self._to.stop()
        if self._travel is not None:
            self._travel.pause()

    def _handle(self, command: c.Command) -> None:
        if isinstance(command, c.OpenSource):
            self._open(command.spec, self._variant)
            return
        if isinstance(command, c.StartRace):
            check_lanes(command.lanes, self._variant)
            saved = self._race.saved
            self._open(self._spec if saved is None else saved.file.source, self._variant, command.lanes)
            return
        if isinstance(command, c.StopRace):
            if self._race:
                self._open(self._spec, self._variant)
            return
        if isinstance(command, (c.ViewMap, c.ViewValues, c.ViewHistograms)):
            self._viewer.ask(command)
            return
        if isinstance(command, (c.ViewElement, c.ViewMatrix, c.ViewStates)):
            self._viewer.closeups.ask(command)
            return
        if self._beside.take(command):
            return
        engine = self._engine
        if isinstance(command, (c.SetBreakpoint, c.RemoveBreakpoint)):
            self._set_breakpoint(command)
            return
        if isinstance(command, c.SetStats):
            # It holds for what is opened later as well, and needs no device that works.
            self._stats = command.level
            self._keeping.stats_were_set()
        if isinstance(command, c.StopRecording):
            # Where the device is lost as well.
            self._end_recording()
            return
        if engine is None:
            return
        if isinstance(command, c.ViewEightBit):
            engine.eight_bit.look(command.param, watched=command.watched)
        elif isinstance(command, c.RecoverDevice):
            self._recover(engine)
        elif self._mode == "lost":
            self._notify("warning", "The GPU device is lost: recover it first, or open the source again.")
        else:
            self._drive(engine, command)

    def _drive(self, engine: Engine, command: c.Command) -> None:
        self._to.given(command)
        if isinstance(command, (*NEEDS_BUFFERS, c.Seek, c.Play, c.WeighPolicies, c.RunToFinding, c.RunBack)):
            # Whoever looks elsewhere would be taken away from there by the next step that is written.
            self._travel_or_none().following = False
        if isinstance(command, NEEDS_BUFFERS):
            if self._is_playing and self._travel_or_none().glance is not None:
                # Else what was played would run on, as fast as it can.
                self._pause()
            if self._travel_or_none().hold(command):
                return
        match command:
            case c.StepDispatch():
                self._pause()
                self._timed(engine.step_dispatch)
            case c.StepIteration():
                self._pause()
                step = engine.stepper.cursor.step + engine.stepper.cursor.at_end
                self._at_length(f"Running step {step:,}", "", lambda: self._step_iteration(engine))
            case c.Run(until):
                self._travel_or_none().cancel()
                self._to.stop()
                self._mode, self._until = "running", until
                self._restart_rate()
            case c.RunToDispatch() | c.RunToFinding() | c.RunBack():
                self._run_to(engine, command)
            case c.Pause():
                self._pause()
            case c.UndoDispatch():
                self._back(engine, engine.undo_dispatch)
            case c.UndoIteration():
                self._back(engine, engine.undo_iteration)
            case c.Seek(step, dispatch):
                self._seek(engine, step, dispatch)
            case c.CancelSeek() | c.CancelWork():
                self._travel_or_none().cancel()
            case c.Play():
                self._to.stop()
                self._travel_or_none().play(command)
                self._mode, self._until = "running", None
                self._restart_rate()
            case c.Follow(on):
                self._pause()
                self._travel_or_none().follow(on)
            case c.FrontLane(number):
                if self._race.saved is not None:
                    self._open(self._spec, self._variant, front=number)
                else:
                    self._bring_to_front(number)
            case c.RaceTogether(on):
                self._race.together = on
            case c.SetBookmark(step, text):
                self._keeping.set_bookmark(step, text)
            case c.SetHyper(name, value):
                engine.set_hyper(name, value)
            case c.SetSchedule(text):
                engine.set_schedule(text)
            case c.SetStats(level):
                engine.set_stats(level)
                self._race.set_stats(level)
                self._tell_stats_raised(engine, level)
            case c.MeasureCopy():
                self._at_length(
                    "Measuring a copy", "The bandwidth of a copy was not measured to the end.",
                    lambda: self._measure_copy(engine),
                )  # fmt: skip
            case c.CompareVariants():
                self._compare(engine, command)
            case c.WhatIf():
                self._what_if(engine, command)
            case c.VerifyStep() | c.VerifyAll():
                self._verify(engine, command)
            case c.WeighPolicies():
                self._weigh(engine, command)
            case c.FindValue():
                self._find(engine, command)
            case c.SaveValues():
                self._save_values(engine, command)
            case c.SaveReport(path):
                self._at_length(
                    f"Writing {path}", f"The report was not written: {path} is as it was.",
                    lambda: self._save_report(engine, path),
                )  # fmt: skip
            case c.CancelCompare() | c.CancelWhatIf() | c.CancelPolicies() | c.CancelVerify():
                # It ended what went on by being the next command.
                pass
            case c.StartLockstep(codec, small_state):
                self._at_length(
                    "Starting the second run", "The second run was not started.",
                    lambda: engine.eight_bit.start(engine.stepper, Asked(codec, small_state)),
                )  # fmt: skip
            case c.StopLockstep():
                engine.eight_bit.stop()
            case c.WatchDecay(on):
                self._race.watch_decay(engine, on=on)
            case c.StartRecording():
                if self._mode == "running" and not engine.stepper.cursor.between_steps:
                    self._step_iteration(engine)
                self._at_length(
                    "Starting the recording",
                    "Nothing is recorded.",
                    lambda: self._start_recording(engine, command),
                )
            case c.SetVariant(variant):
                self._at_length(
                    "Changing the form", "The form of the step stays as it was.",
                    lambda: self._set_variant(engine, variant),
                )  # fmt: skip
            case c.CheckShader(entry_point, text):
                self._shaders.check(engine, entry_point, text)
            case c.TryShader(entry_point, new_text):
                self._at_length(
                    f"Running the step again with {entry_point}", f"{entry_point} was not replaced.",
                    lambda: self._try_shader(engine, entry_point, new_text),
                )  # fmt: skip

    def _run_to(self, engine: Engine, command: RunToCommand) -> None:
        self._pause()
        if self._to.start(command, engine, self._travel_or_none()):
            self._mode = "running"
            self._restart_rate()

    def _search_on(self) -> None:
        found = self._to.look_on()
        if found is None:
            return
        if found.target is not None and self._engine is not None:
            self._seek(self._engine, found.target.step, found.target.dispatch)
        self._notify("info", found.sentence)

    def _set_breakpoint(self, command: c.SetBreakpoint | c.RemoveBreakpoint) -> None:
        if isinstance(command, c.RemoveBreakpoint):
            self._breakpoints.remove(command.condition)
        else:
            self._breakpoints.set(command.condition, enabled=command.enabled, stopping=command.stopping)
        engine = self._engine
        if engine is not None and self._mode != "lost":
            before = engine.stats_level
            engine.breakpoints_changed()
            self._tell_stats_raised(engine, before)

    def _tell_stats_raised(self, engine: Engine, level: StatsLevel) -> None:
        """Say so where more is counted than `level`, for a breakpoint."""
        if engine.stats_level != level:
            self._stats = engine.stats_level
            who = self._breakpoints.who_needs(level)
            self._notify(
                "info", f"Statistics are {self._stats} from here on: the breakpoint {who} needs them."
            )

    def _tell_stop(self) -> None:
        """Pause where a breakpoint has stopped the run, and say which."""
        stop = self._breakpoints.stop
        if stop is not None:
            self._pause()
            self._notify("info" if stop.aimed else "warning", stop.sentence)

    def _set_variant(self, engine: Engine, variant: Variant) -> None:
        kept = engine.stepper.undo_info.dispatches
        if engine.stepper.can_take(variant):
            engine.set_variant(variant)
            warning = ""
        elif self._race:
            raise UsageError(
                "Params of a lane stay where they are laid out: end the race for another such form."
            )
        else:
            warning = self._lay_out_anew(engine, variant)
        self._variant = variant
        self._viewer.moved()
        if warning:
            self._notify("warning", warning)
        elif kept:
            self._notify("info", "Another form begins here: what ran before it cannot be taken back.")

    def _try_shader(self, engine: Engine, entry_point: str, text: str | None) -> None:
        """Another kernel in place, and the step again from its start to where it stands."""
        self._pause()
        if engine.recorded is not None and (glance := self._travel_or_none().glance) is not None:
            raise UsageError(glance.missing or "The step on show is not on the device yet: wait until it is.")
        try:
            self._shaders.put(engine, entry_point, text)
        finally:
            self._variant = engine.stepper.plan.variant
            self._viewer.moved()

    def _start_recording(self, engine: Engine, asked: c.StartRecording) -> None:
        self._stats = self._keeping.start_recording(engine, asked, self._race)

    def _end_recording(self) -> None:
        """Whoever closes the window waits for what is captured; a person who ends the writing leaves the rest out."""
        stats = self._long.run(
            "Ending the recording", lambda: self._keeping.end_recording(self._engine), outlasts=True
        )
        self._stats = stats or self._stats

    def _compare(self, engine: Engine, asked: c.CompareVariants) -> None:
        """Measure forms of the step on steppers of their own; the run stays as it is."""
        if self._mode != "paused":
            self._notify("info", "Variants are compared while the run stands still: pause it first.")
            return
        device = engine.stepper.device
        self._comparing = Comparing()
        self._publish()
        try:
            made = self._opener.compare(
                engine.source,
                engine.stepper,
                samples=asked.samples,
                seconds=asked.seconds,
                copy_gbps=self._copy_gbps(device),
                progress=self._compared,
            )
        except EndedError:
            if self._mode == "paused" and not (isinstance(self._mail.first, (c.CancelCompare, c.Shutdown))):
                self._notify("info", "The comparison of variants ended early, for what was asked for next.")
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"The device has no memory for a second copy of the model beside the run: {error} "
                "Start with a smaller --undo-mb, or compare with 'inspector bench --all'."
            ) from error
        else:
            self._comparison = made
            self._copy = (device, made.reports[0].copy_gbps)
        finally:
            self._comparing = None

    def _weigh(self, engine: Engine, asked: c.WeighPolicies) -> None:
        """Work policies out on the step asked for, once the run stands at its start."""
        self._pause()
        travel = self._travel_or_none()
        if travel.recorded is None and asked.step > engine.stepper.cursor.step:
            raise UsageError(f"Step {asked.step:,} has not run yet: there is nothing to set side by side.")
        if not self._policies.stands_at(asked.step, engine, travel.glance):
            self._seek(engine, asked.step, 0)
            if travel.busy:
                travel.after.append(asked)
                return
            if travel.glance is not None and travel.glance.missing:
                raise UsageError(travel.glance.missing)
        try:
            self._policies.weigh(engine, asked, self._look_up)
        except EndedError:
            self._notify("info", f"The policies for step {asked.step:,} were not worked out to the end.")

    def _find(self, engine: Engine, asked: c.FindValue) -> None:
        """Look for a value where the run stands, or in what was captured of the step on show."""
        closeups, glance = self._viewer.closeups, self._travel_or_none().glance
        progress = partial(self._worked, f"Looking for {asked.query.text} in {asked.lane}")
        try:
            if glance is not None and engine.recorded is not None:
                layout = engine.stepper.layout
                closeups.found = find_in_capture(engine.recorded, glance.step, layout, asked, progress)
            else:
                closeups.found = find_on_device(engine.stepper, asked, progress)
        except EndedError:
            closeups.found = Found(asked, engine.stepper.cursor.step, ended=True)
        except UsageError as error:
            closeups.found = None
            self._notify("warning", str(error))
        finally:
            closeups.working = None

    def _save_values(self, engine: Engine, asked: c.SaveValues) -> None:
        try:
            rows = save_values(engine.stepper, asked, partial(self._worked, f"Writing {asked.path}"))
        except EndedError:
            self._notify("info", f"The values were not written to the end, and {asked.path} is as it was.")
        except UsageError as error:
            # The run goes on.
            self._notify("error", str(error))
        else:
            self._notify("info", f"Wrote {rows:,} rows of {asked.param} to {asked.path}.")
        finally:
            self._viewer.closeups.working = None

    def _worked(self, doing: str, done: int, of: int) -> None:
        self._viewer.closeups.working = Working(doing, done, of)
        self._look_up(("paused", "running"))

    def _save_report(self, engine: Engine, path: str) -> None:
        try:
            save_report(engine, Path(path), self._policies.tables)
        except UsageError as error:
            # The run goes on.
            self._notify("error", str(error))
        else:
            self._notify("info", f"Wrote the report {path}.")

    def _what_if(self, engine: Engine, asked: c.WhatIf) -> None:
        """Run the open recording again under the settings of now, then show both under the run, which stays."""
        if self._mode != "paused":
            self._notify("info", "A what-if runs while the run stands still: pause it first.")
            return
        path = Path(asked.path)
        source, changes = check_what_if(engine, path, asked.policy)
        try:
            steps = run_what_if(
                self._opener, source, changes, path, asked.policy, partial(self._what_if_ran, path)
            )
        except EndedError:
            self._notify("info", f"The what-if ended early; {path} holds the steps that had run until then.")
        else:
            self._beside.show_both(Path(source.name), path)
            self._notify("info", f"{steps:,} steps ran again with {changes}, and are recorded as {path}.")
        finally:
            self._beside.what_if = None

    def _what_if_ran(self, path: Path, done: int, of: int) -> None:
        begins = self._beside.what_if is None
        self._beside.what_if = WhatIfProgress(str(path), done, of)
        if begins:
            # However quick it is, that it runs is seen.
            self._publish()
        self._look_up()

    def _verify(self, engine: Engine, asked: c.VerifyStep | c.VerifyAll) -> None:
        """Hold the open recording of another program against the kernels here; the run stays as it is."""
        if self._mode != "paused":
            self._notify(
                "info", "Steps are held against the kernels here while the run stands still: pause it first."
            )
            return
        maker = self._opener.replay_maker()
        try:
            if isinstance(asked, c.VerifyStep):
                self._verifying.one(engine.source, maker, asked.step, self._verified)
            else:
                self._verifying.all(engine.source, maker, self._verified)
        except EndedError:
            # What was asked for next says why.
            pass
        finally:
            self._beside.verify = self._verifying.picture

    def _verified(self) -> None:
        self._beside.verify = self._verifying.picture
        self._look_up()

    def _compared(self, done: int, of: int) -> None:
        self._comparing = Comparing(done, of)
        self._look_up()

    def _at_length(self, doing: str, ended: str, act: Callable[[], None]) -> None:
        """Do what may take longer than a moment; say `ended` where a person ended it."""
        try:
            self._long.run(doing, act)
        except EndedError:
            if ended:
                self._notify("info", ended)

    def _tell_working(self, working: Working) -> None:
        """How far something is, beside what was last seen of the run, which may not be looked at now."""
        if self._closing.is_set():
            # Nobody looks any more.
            return
        self._serial += 1
        self._sent_at = time.perf_counter()
        self._on_snapshot(replace(self._last, serial=self._serial, working=working))
        self._yield(YIELD_S)

    def _measure_copy(self, engine: Engine) -> None:
        try:
            self._copy = (engine.stepper.device, engine.stepper.copy_gbps())
        finally:
            # The pause is no part of the run's speed.
            self._restart_rate()

    def _look_up(self, modes: tuple[Mode, ...] = ("paused",)) -> None:
        """Between two steps of what keeps the thread: tell how far it is, and end it where something else is to do."""
        self._mail.look()
        while isinstance(self._mail.first, c.BESIDE_COMPARISON):
            self._guarded(partial(self._handle, self._mail.pop()))
        if time.perf_counter() - self._sent_at > PROGRESS_S:
            self._publish()
        if self._mail.first is not None or self._closing.is_set() or self._mode not in modes:
            raise EndedError
        self._yield(YIELD_S)

    def _copy_gbps(self, device: DeviceInfo) -> float | None:
        return self._copy[1] if self._copy and self._copy[0] == device else None

    def _step_iteration(self, engine: Engine) -> None:
        """The rest of the step, a slow one by dispatches, so that closing need not wait for all of it."""
        if self._step_s <= SLOW_STEP_S:
            with watched(None):
                self._timed(engine.step_iteration)
            return
        while not self._closing.is_set():
            cursor = engine.stepper.cursor
            # Ended here, it stands between two dispatches; within one, what follows the run would miss part of it.
            advanced(cursor.dispatch % cursor.count, cursor.count)
            with watched(None):
                self._timed(engine.step_dispatch)
            if engine.stepper.cursor.at_end or engine.breakpoints.stop is not None:
                return

    def _timed(self, act: Callable[[], None]) -> None:
        before = self._engine.stepper.cursor.finished_steps if self._engine else 0
        act()
        self._viewer.moved()
        after = self._engine.stepper.cursor.finished_steps if self._engine else 0
        self._steps_run += after - before
        self._tell_stop()

    def _advance(self) -> None:
        """One step of a run, or one dispatch of a slow one."""
        engine = self._engine
        assert engine is not None
        travel = self._travel_or_none()
        if travel.playing is not None:
            if not travel.play_on():
                self._pause()
            return
        cursor = engine.stepper.cursor
        if self._race.behind:
            self._race.catch_up()
            return
        if self._until is not None and cursor.finished_steps >= self._until:
            self._pause()
            return
        if self._to.place is not None:
            if cursor == self._to.place:
                self._pause()
            else:
                self._timed(partial(engine.step_towards, self._to.place))
            return
        started = time.perf_counter()
        if self._step_s > SLOW_STEP_S:
            self._timed(engine.step_dispatch)
            if engine.stepper.cursor.at_end and engine.record is not None:
                times = [t.ms for t in engine.record.kernels]
                self._step_s = sum(ms for ms in times if ms is not None) / 1e3
        else:
            self._race.prepare()
            self._timed(engine.step_iteration)
            took = time.perf_counter() - started
            travel.step_s = took
            self._step_s = took if engine.source.last_step is None else 0.0
        self._count_rate()
        if self._until is not None and engine.stepper.cursor.finished_steps >= self._until:
            self._pause()

    def _restart_rate(self) -> None:
        """Measure the speed from here on."""
        self._rate_from = (time.perf_counter(), self._steps_run)

    def _count_rate(self) -> None:
        now = time.perf_counter()
        since, steps = self._rate_from
        if now - since >= RATE_WINDOW_S:
            self._rate = (self._steps_run - steps) / (now - since)
            self._rate_from = (now, self._steps_run)

    def _back(self, engine: Engine, act: Callable[[], bool]) -> None:
        self._pause()
        cursor = engine.stepper.cursor
        if act():
            self._viewer.moved()
        elif act == engine.undo_dispatch:
            # From the start of a step this takes back its gradients and the last dispatch of the step before.
            if cursor.dispatch:
                self._seek(engine, cursor.step, cursor.dispatch - 1)
            else:
                self._seek(engine, cursor.step - 1, cursor.count - 1)
        else:
            self._seek(engine, cursor.step - (cursor.dispatch == 0), 0)

    def _seek(self, engine: Engine, step: int, dispatch: int | None = None) -> None:
        """Go back, or to where a state leads; a run that only has to go on goes on as by Run."""
        self._pause()
        travel = self._travel_or_none()
        now_at = engine.stepper.cursor.finished_steps
        if dispatch is None and step > now_at and travel.recorded is None:
            self._mode, self._until = "running", step
            self._restart_rate()
            return
        if step < 0:
            raise UsageError("The run stands where it began: nothing lies before.")
        travel.seek(step, dispatch)
        if travel.busy and travel.recorded is None:
            # Nothing but the way there is on show: it runs, and can be paused.
            self._mode, self._until = "running", step
            self._restart_rate()
        self._viewer.moved()

    @property
    def _is_playing(self) -> bool:
        return self._travel is not None and self._travel.playing is not None

    def _travel_or_none(self) -> Travel:
        assert self._travel is not None
        return self._travel

    def _travel_on(self) -> None:
        """A piece of the way to where a person wants to look; what waited for the arrival is carried out then."""
        travel = self._travel_or_none()
        if travel.wait_s():
            return
        try:
            travel.advance()
        except GivenUpError:
            travel.cancel()
        except Exception:
            travel.cancel()
            raise
        self._viewer.moved()
        if not travel.busy:
            if self._mode == "running" and not self._is_playing:
                self._mode, self._until = "paused", None
            self._mail.put_first(travel.after)
            travel.after.clear()

    def _asked_otherwise(self) -> bool:
        """While a state is put on the device: tell how far it is; True where something else is to be done."""
        if time.perf_counter() - self._sent_at > PROGRESS_S:
            self._publish()
        ends = (c.Seek, c.CancelSeek, c.Pause, c.OpenSource, c.Shutdown)
        return self._closing.is_set() or any(isinstance(command, ends) for command in self._mail.look())

    def _poll(self) -> None:
        """See what another process has recorded since."""
        travel = self._travel_or_none()
        if travel.poll():
            self._viewer.moved()

    # --- opening and closing

    def _open(
        self, spec: str, variant: Variant, lanes: tuple[str, ...] = (), front: int | None = None
    ) -> None:
        """Open a source, with `lanes` as a race; of a race that was saved the lane `front`."""

        def open_() -> None:
            shown = self._race.saved
            if front is None or shown is None:
                saved = self._long.run(doing, lambda: saved_race(spec), share=(0, 0.1))
            else:
                saved = shown.with_front(front)
            opened_spec = spec if saved is None else saved.spec
            source = self._long.run(doing, lambda: self._opener.open_source(opened_spec), share=(0.1, OPENED))
            other = front is not None or spec != self._spec
            wanted = self._form_of(source, self._reread(variant), anew=self._opened > 0 and other)
            if self._engine is not None:
                # What cannot run is told while the run that there is still stands; a lost device tells nothing.
                with suppress(DeviceLostError):
                    self._engine.stepper.check_form(source.params, wanted)
            self._variant = wanted
            # The old device goes first: two of them may not fit.
            self._close_engine()
            opened_before = self._spec if self._opened else ""
            self._mode, self._stale, self._spec = "starting", False, spec
            self._opened += 1
            self._comparison = None
            self._policies = Policies()
            self._breakpoints.forget()
            self._to.found = None
            self._viewer.forget()
            self._publish()
            self._race.saved = saved
            if saved is not None and front is None:
                self._beside.sweeping.show(saved.path)
            if lanes:
                engine = self._long.run(
                    doing,
                    lambda: self._race.start(
                        self._opener, source, lanes, self._variant, self._stats, self._breakpoints
                    ),
                    share=(OPENED, 1),
                )
            else:
                engine = self._long.run(
                    doing,
                    lambda: opened(self._opener, source, self._variant, self._stats, self._breakpoints),
                    share=(OPENED, 1),
                )
            self._stats = engine.stats_level
            stepper = engine.stepper
            self._beside.opened(source)
            self._travel = self._move(engine)
            self._verifying.opened(source)
            self._shaders.opened(self._variant, anew=spec != opened_before)
            self._beside.verify = self._verifying.picture
            slow = stepper.device.software and stepper.layout.elements > SLOW_ELEMENTS
            self._step_s = 2 * SLOW_STEP_S if slow else 0.0
            self._rate = None
            self._mode = "paused"
            self._keeping.opened(engine)
            self._travel.start()
            if remarks := remarks_of(source):
                self._notify("warning", _in_brief(remarks))

        def open_or_end() -> None:
            try:
                open_()
            except EndedError:
                left = "What was open stays." if self._mode != "starting" else "Nothing is open now."
                self._notify("info", f"The opening of {spec} was ended. {left}")

        doing = f"Opening {spec}"
        self._guarded(open_or_end)
        if self._engine is None and self._mode == "starting":
            self._mode = "failed"

    def _move(self, engine: Engine) -> Travel:
        """From here on commands are for this engine."""
        if self._engine is not None:
            self._engine.plotting = None
        self._engine = engine
        engine.plotting = self._beside.plotting
        return Travel(engine, partial(self._step_iteration, engine), self._notify, self._asked_otherwise)

    def _bring_to_front(self, number: int) -> None:
        """Another lane of the race is shown and moved."""
        if not self._race:
            return
        self._pause()
        self._travel = self._move(self._race.bring_to_front(number, self._breakpoints))
        self._viewer.forget()
        self._travel.start()

    def _form_of(self, source: Source, variant: Variant, *, anew: bool) -> Variant:
        """The form that a source is opened in: where another one is opened, that in which it was recorded, or as its
        optimizer ran.

        What was chosen before that comes back with the next source that asks for nothing.
        """
        if not anew:
            return variant
        chosen, self._set_aside = self._set_aside, None
        if chosen is not None and chosen[1] == variant:
            variant = chosen[0]
        form = form_of(source)
        if form is None:
            return variant
        if isinstance(source, AsRecorded):
            wanted = replace(form, own=variant.own)
        else:
            parts = ("optimizer", "numerics", "kernel", "codec", "small_state")
            wanted = replace(variant, **{part: getattr(form, part) for part in parts})
        self._set_aside = variant, wanted
        return wanted

    def _recover(self, engine: Engine) -> None:
        if self._race:
            # All lanes were on the device: they start again, alike.
            self._open(self._spec, self._variant, self._race.texts)
            return
        doing = "Opening a new device"

        def make() -> Stepper:
            with part(0, 0.3):
                state = engine.checkpoint or engine.source.initial_state()
            engine.stepper.close()
            with part(0.3, 1):
                return self._opener.make_stepper(engine.source, engine.stepper.plan.variant, state)

        try:
            stepper = self._long.run(doing, make)
        except EndedError:
            self._notify("info", "No new device was opened. What is shown is stale: recover to go on.")
            return
        engine.stats_level = self._stats = higher(self._stats, self._breakpoints.needs)
        # Where it is ended among the steps that run again, the run goes on from there.
        with suppress(EndedError):
            self._long.run(doing, lambda: engine.recover(stepper))
        self._viewer.forget()
        self._stale, self._mode = False, "paused"
        self._notify("info", f"Recovered on a new device, after step {stepper.cursor.finished_steps:,}.")
        engine.begin()

    def _lay_out_anew(self, engine: Engine, variant: Variant) -> str:
        """Another form that needs another layout: the same state on a new stepper; a warning of what comes of it."""
        old = engine.stepper
        cursor, before = old.cursor, old.plan.variant
        if not cursor.between_steps:
            raise UsageError("The form of the step can change only between steps: finish this one first.")
        with part(0, 0.3):
            state = old.state()
        old.close()
        try:
            with part(0.3, 1):
                stepper = self._opener.make_stepper(engine.source, variant, state)
        except (InspectorError, EndedError):
            # What ran before is brought back before the reason is told.
            with watched(None):
                engine.replace_stepper(self._opener.make_stepper(engine.source, before, state), cursor)
            self._viewer.moved()
            raise
        engine.replace_stepper(stepper, cursor, chosen=True)
        engine.mark_variant(before, variant)
        limited = [v.kernel == "8bit" and v.codec == "linear" for v in (before, variant)]
        lost = lost_moments(state) if limited == [True, False] else 0
        if not lost:
            return ""
        return (
            f"{lost:,} v became 0 in linear codes, under an m that is not 0. Nothing limits their update in this form: "
            "each moves by about lr·m̂/ε in the next step. Go back to linear codes, or raise ε before you go on."
        )

    def _close_engine(self) -> None:
        self._end_recording()
        if self._to.search is not None:
            # On a device that is lost there is nothing to give back.
            with suppress(InspectorError):
                self._to.end_search()
        with suppress(InspectorError):
            self._verifying.close()
        if self._engine is not None:
            # It may be lost already, which is what closing is for.
            with suppress(InspectorError):
                if not self._race.close():
                    self._engine.stepper.close()
            self._engine = self._travel = None

    # --- snapshots

    def _notify(self, severity: Literal["info", "warning", "error"], text: str) -> None:
        serial = self._notice.serial + 1 if self._notice else 1
        self._notice = Notice(serial, severity, text)

    def _publish(self, *, force: bool = True) -> None:
        now = time.perf_counter()
        if not force and now - self._sent_at < FRAME_S:
            return
        self._serial += 1
        engine = self._engine
        if self._keeping.has_ended:
            self._guarded(self._end_recording)
        if engine is not None and self._mode in ("paused", "running"):
            running = self._mode == "running"
            glance = self._travel.glance if self._travel is not None else None
            if glance is not None and engine.recorded is not None:
                look = partial(self._viewer.glance, engine.recorded, glance, engine.stepper.layout)
            else:
                look = partial(self._viewer.refresh, engine.stepper, running=running)
            engine.eight_bit.mapped = self._viewer.maps_coding_error
            self._guarded(look)
            self._guarded(partial(self._look_closely, engine, glance, running=running))
            self._guarded(lambda: engine.eight_bit.refresh(running=running))
            self._guarded(lambda: self._race.look_at_decay(engine, running=running))
            if engine.eight_bit.said is not None:
                self._notify("info", engine.eight_bit.said)
                engine.eight_bit.said = None
        on_show = self._travel.cursor if self._travel is not None else None
        self._beside.look(engine, on_show, self._viewer.asked_histograms)
        for severity, text in self._beside.take_news():
            self._notify(severity, text)
        if engine is None or self._mode in ("starting", "failed"):
            snapshot = Snapshot(
                self._serial, self._mode, self._spec, self._opened, stats=self._stats,
                breakpoints=self._breakpoints.picture(None),
                beside=self._beside.picture, notice=self._notice,
            )  # fmt: skip
        elif self._stale:
            snapshot = replace(
                self._last,
                serial=self._serial,
                mode=self._mode,
                stats=self._stats,
                comparing=self._comparing,
                breakpoints=self._breakpoints.picture(self._last.plan),
                stale=True,
                recording=self._keeping.recording_picture(),
                beside=self._beside.picture,
                notice=self._notice,
            )
        else:
            snapshot = self._picture(engine)
        self._last = snapshot
        self._sent_at = time.perf_counter()
        if not self._closing.is_set():
            self._on_snapshot(snapshot)

    def _look_closely(self, engine: Engine, glance: Glance | None, *, running: bool) -> None:
        closeups = self._viewer.closeups
        if glance is not None and engine.recorded is not None:
            closeups.glance(engine, engine.recorded, glance)
        else:
            closeups.refresh(engine, running=running)

    def _picture(self, engine: Engine) -> Snapshot:
        picture = self._device_picture(engine)
        travel = self._travel
        if engine.recorded is not None:
            picture = replace(
                picture, recorded=engine.recorded.picture, last_step=engine.recorded.steps.stop - 1
            )
        if travel is not None:
            picture = travel.pictured(picture)
        if engine.recorded is not None and picture.record is not None:
            step = picture.record.step
            if not engine.course.is_own(step):
                picture = replace(picture, rank_steps=engine.recorded.rank_steps(step))
        return picture

    def _device_picture(self, engine: Engine) -> Snapshot:
        stepper = engine.stepper
        return Snapshot(
            serial=self._serial,
            mode=self._mode,
            source=engine.source.name,
            run=self._opened,
            description=engine.source.description,
            plan=stepper.plan,
            cursor=stepper.cursor,
            hyper=engine.hyper,
            step_hyper=engine.step_hyper if stepper.cursor.step else engine.course.hyper_at(1),
            schedule=str(engine.schedule),
            record=engine.record,
            dispatch_times=tuple(engine.dispatch_times),
            uniforms=engine.uniforms(),
            history=engine.history(),
            plotted=self._beside.plotting.picture(
                None if engine.course.as_recorded else engine.course.own_from, running=self._mode == "running"
            ),
            marks=_kept(engine.all_marks(), self._last.marks),
            map=self._viewer.map,
            values=self._viewer.values,
            histograms=self._viewer.histograms,
            closeup=self._viewer.closeups.picture,
            eight_bit=engine.eight_bit.picture(stepper),
            decay=self._race.decay,
            stats=self._stats,
            counted=engine.counted.with_totals() if engine.counted else None,
            choices=self._choices.of(stepper.plan),
            findings=engine.all_findings(),
            breakpoints=self._breakpoints.picture(stepper.plan),
            stop=self._breakpoints.stop,
            undo=stepper.undo_info,
            device=stepper.device,
            memory_bytes=stepper.memory_bytes,
            memory=self._memory.of(stepper),
            steps_per_second=self._rate if self._mode == "running" and not self._is_playing else None,
            copy_gbps=self._copy_gbps(stepper.device),
            comparing=self._comparing,
            comparison=self._comparison,
            weighing=self._policies.weighing,
            policies=self._policies.latest,
            shaders=self._shaders.picture,
            searching=self._to.picture,
            sought=self._to.found,
            last_times=tuple(engine.last_times),
            last_step=engine.source.last_step,
            recording=self._keeping.recording_picture(),
            beside=self._beside.picture,
            bookmarks=_kept(self._keeping.bookmark_marks(), self._last.bookmarks),
            race=self._race.picture,
            notice=self._notice,
        )


def _kept(now: tuple[Mark, ...], before: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """The object of the last snapshot where it holds the same: views look at what is another one."""
    return before if now == before else now


def _in_brief(sentences: Sequence[str]) -> str:
    """As many sentences as a person reads at a glance, and where the others are."""
    count = 1
    while count < len(sentences) and len(" ".join(sentences[: count + 1])) <= BRIEF_SIGNS:
        count += 1
    left = len(sentences) - count
    more = f" ({left} more: inspector layout lists them)" if left else ""
    return " ".join(sentences[:count]) + more
