"""The worker thread: the only one that touches the device. Takes commands, sends snapshots."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from inspector.plan import Variant
from inspector.progress import EndedError
from inspector.runtime import commands as c
from inspector.runtime.companions import Companions
from inspector.runtime.current_run import CurrentRun
from inspector.runtime.engine import Engine
from inspector.runtime.guarding import guarded
from inspector.runtime.lockstep import Asked
from inspector.runtime.long_work import LongWork
from inspector.runtime.mailbox import Mailbox
from inspector.runtime.moving import Moving
from inspector.runtime.opening import Opening
from inspector.runtime.parts import OpenRun
from inspector.runtime.publishing import Publisher
from inspector.runtime.reforming import set_variant, try_shader
from inspector.runtime.side_work import SideWork
from inspector.runtime.snapshots import Mode, Snapshot
from inspector.runtime.value_finding import Working
from inspector.statistics import StatsLevel

YIELD_S = 0.05
"""While running, a step waits at most so long for a busy UI."""
JUDGING_S = 0.02
"""So long at a time the rules look at steps of a recording."""

NEEDS_BUFFERS = (
    c.StepDispatch, c.StepIteration, c.Run, c.RunToDispatch, c.UndoDispatch, c.UndoIteration, c.SetHyper,
    c.SetSchedule, c.SetVariant, c.CompareVariants, c.StartLockstep, c.StartRecording,
    c.SaveValues, c.TryShader,
)  # fmt: skip
"""These start from what the device holds, and wait until that is of the step on show."""


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
        self._start_paused = paused
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._yield: Callable[[float], None] = lambda timeout: None
        self._mail = Mailbox()
        self._run = CurrentRun(spec, variant or Variant(), stats, self._closing.is_set)
        self._beside = Companions(lambda: self._mail.put(c.LookBeside()), lambda: self._yield(YIELD_S))
        self._publisher = Publisher(self._run, self._beside)
        self._long = LongWork(self._mail, self._tell_working, self._closing.is_set)
        self._moving = Moving(self._run, self._mail)
        self._work = SideWork(
            opener, self._run, self._moving, self._beside, self._mail, self._publisher, self._look_up
        )
        self._opening = Opening(
            opener, self._run, self._moving, self._work, self._beside, self._long, self._mail,
            self._publisher, reread,
        )  # fmt: skip

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
        self._publisher.send = on_snapshot
        if wait_until_idle is not None:
            self._yield = wait_until_idle
        self._thread = threading.Thread(target=self._work_on, name="inspector-worker", daemon=True)
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
        return self._publisher.last.mode

    @property
    def finished_steps(self) -> int:
        """Steps complete as of the newest snapshot; 0 before there is a run."""
        cursor = self._publisher.last.cursor
        return cursor.finished_steps if cursor else 0

    # --- on the worker's thread

    def _work_on(self) -> None:
        run = self._run
        try:
            self._opening.open(run.spec)
            if not self._start_paused and run.mode == "paused":
                run.mode = "running"
            self._publisher.publish()
            while not self._closing.is_set():
                self._mail.wait(self._patience())
                asked = self._mail.first is not None
                while self._mail.first is not None:
                    command = self._mail.pop()
                    if isinstance(command, c.Shutdown):
                        return
                    guarded(run, partial(self._handle, command))
                    guarded(run, run.race.observe)
                    if isinstance(command, c.MOVES):
                        self._publisher.moves += 1
                        if self._mail.first is not None:
                            # A key that is held down: each answer is seen.
                            self._publisher.publish(force=False)
                if not self._closing.is_set():
                    self._turn()
                guarded(run, run.race.observe)
                if run.travel is not None:
                    guarded(run, self._moving.poll)
                looks = run.judges or run.reads_on or run.to.search is not None
                quiet = self._publisher.shows_way or (looks and not asked)
                asked_to_play = asked and run.playing
                owing = self._publisher.owes
                self._publisher.publish(force=owing or asked_to_play or (run.mode != "running" and not quiet))
                if self._publisher.owes:
                    # The answer is painted before the rest is looked at.
                    self._yield(YIELD_S)
        finally:
            self._opening.close()
            self._beside.close()
            run.mode = "closed"

    def _turn(self) -> None:
        """Between two looks into the queue: a piece of whatever is to be done."""
        run = self._run
        if run.traveling:
            guarded(run, self._moving.travel_on)
        elif run.mode == "running":
            self._yield(YIELD_S)
            guarded(run, self._moving.advance)
        elif run.race.behind and run.mode == "paused":
            guarded(run, run.race.catch_up)
        elif run.to.search is not None:
            guarded(run, self._moving.search_on)
        elif self._busy:
            guarded(run, self._look_around)

    def _patience(self) -> float | None:
        """How long to wait for a command, in seconds; None for as long as it takes."""
        wait_s = 0.0 if self._busy or self._publisher.owes else None
        travel = self._run.travel
        if travel is not None and self._run.mode in ("paused", "running"):
            due_s = travel.wait_s()
            if wait_s is None or (travel.playing is not None and due_s is not None):
                wait_s = due_s
        return wait_s

    @property
    def _busy(self) -> bool:
        run = self._run
        if run.traveling:
            return False
        if run.to.search is not None:
            return True
        return run.mode == "running" or (
            run.mode == "paused"
            and (run.race.behind or run.judges or run.reads_on or not run.choices.complete)
        )

    def _look_around(self) -> None:
        """What is found out while nothing else is to do, a little at a time, so that commands need not wait."""
        run = self._run
        recorded = run.engine.recorded if run.engine is not None else None
        if not run.choices.complete:
            run.choices.look()
        elif run.reads_on and recorded is not None:
            self._yield(YIELD_S)
            run.viewer.closeups.microscope.read_on(recorded)
        elif run.judges and recorded is not None:
            self._yield(YIELD_S)
            recorded.judge(JUDGING_S)

    def _look_up(self, modes: tuple[Mode, ...] = ("paused",)) -> None:
        """Between two steps of what keeps the thread: tell how far it is, and end it where something else is to do."""
        self._mail.look()
        while isinstance(self._mail.first, c.BESIDE_COMPARISON):
            guarded(self._run, partial(self._handle, self._mail.pop()))
        self._publisher.progressed()
        if self._mail.first is not None or self._closing.is_set() or self._run.mode not in modes:
            raise EndedError
        self._yield(YIELD_S)

    def _at_length(self, doing: str, ended: str, act: Callable[[], None]) -> None:
        """Do what may take longer than a moment; say `ended` where a person ended it."""
        try:
            self._long.run(doing, act)
        except EndedError:
            if ended:
                self._run.say("info", ended)

    def _tell_working(self, working: Working) -> None:
        self._publisher.tell_working(working)
        self._yield(YIELD_S)

    # --- commands

    def _handle(self, command: c.Command) -> None:
        """Carry out a command, whether or not there is a run or a device that works."""
        run = self._run
        match command:
            case c.OpenSource(spec):
                self._opening.open(spec)
                return
            case c.StartRace(lanes):
                self._opening.start_race(lanes)
                return
            case c.StopRace():
                if run.race:
                    self._opening.open(run.spec)
                return
            case c.ViewMap() | c.ViewValues() | c.ViewHistograms():
                run.viewer.ask(command)
                return
            case c.ViewElement() | c.ViewMatrix() | c.ViewStates():
                run.viewer.closeups.ask(command)
                return
            case c.SetBreakpoint() | c.RemoveBreakpoint():
                run.set_breakpoint(command)
                return
            case c.StopRecording():
                # Where the device is lost as well.
                self._opening.end_recording()
                return
            case c.SetStats(level):
                # It holds for what is opened later as well, and needs no device that works.
                run.stats = level
                run.keeping.stats_were_set()
        if self._beside.take(command) or run.engine is None:
            return
        if isinstance(command, c.ViewEightBit):
            run.engine.eight_bit.look(command.param, watched=command.watched)
        elif isinstance(command, c.RecoverDevice):
            self._opening.recover(run.engine)
        elif run.mode == "lost":
            run.say("warning", "The GPU device is lost: recover it first, or open the source again.")
        else:
            self._drive(run.engine, command)

    def _drive(self, engine: Engine, command: c.Command) -> None:
        """Carry out a command on a run whose device works."""
        run = self._run
        travel = run.on_the_way
        run.to.given(command)
        if isinstance(command, (*NEEDS_BUFFERS, c.Seek, c.Play, c.WeighPolicies, c.RunToFinding, c.RunBack)):
            # Whoever looks elsewhere would be taken away from there by the next step that is written.
            travel.following = False
        if isinstance(command, NEEDS_BUFFERS):
            if run.playing and travel.glance is not None:
                # Else what was played would run on, as fast as it can.
                run.pause()
            if travel.hold(command):
                return
        match command:
            case c.StepDispatch():
                self._moving.step_dispatch(engine)
            case c.StepIteration():
                run.pause()
                step = engine.stepper.cursor.step + engine.stepper.cursor.at_end
                self._at_length(f"Running step {step:,}", "", lambda: self._moving.step_iteration(engine))
            case c.Run(until):
                travel.cancel()
                run.to.stop()
                run.go_on(until)
            case c.RunToDispatch() | c.RunToFinding() | c.RunBack():
                self._moving.run_to(engine, command)
            case c.Pause():
                run.pause()
            case c.UndoDispatch():
                self._moving.undo_dispatch(engine)
            case c.UndoIteration():
                self._moving.undo_iteration(engine)
            case c.Seek(step, dispatch):
                self._moving.seek(engine, step, dispatch)
            case c.CancelSeek() | c.CancelWork():
                travel.cancel()
            case c.Play():
                run.to.stop()
                travel.play(command)
                run.go_on()
            case c.Follow(on):
                run.pause()
                travel.follow(on)
            case c.FrontLane(number):
                self._opening.front_lane(number)
            case c.RaceTogether(on):
                run.race.together = on
            case c.SetBookmark(step, text):
                run.keeping.set_bookmark(step, text)
            case c.SetHyper(name, value):
                engine.set_hyper(name, value)
            case c.SetSchedule(text):
                engine.set_schedule(text)
            case c.SetStats(level):
                run.set_stats(engine, level)
            case c.StartLockstep(codec, small_state):
                self._at_length(
                    "Starting the second run", "The second run was not started.",
                    lambda: engine.eight_bit.start(engine.stepper, Asked(codec, small_state)),
                )  # fmt: skip
            case c.StopLockstep():
                engine.eight_bit.stop()
            case c.WatchDecay(on):
                run.race.watch_decay(engine, on=on)
            case c.StartRecording():
                if run.mode == "running" and not engine.stepper.cursor.between_steps:
                    self._moving.step_iteration(engine)
                self._at_length(
                    "Starting the recording",
                    "Nothing is recorded.",
                    lambda: run.start_recording(engine, command),
                )
            case c.SetVariant(variant):
                self._at_length(
                    "Changing the form", "The form of the step stays as it was.",
                    lambda: set_variant(run, engine, variant),
                )  # fmt: skip
            case c.CheckShader(entry_point, text):
                run.shaders.check(engine, entry_point, text)
            case c.TryShader(entry_point, new_text):
                self._at_length(
                    f"Running the step again with {entry_point}", f"{entry_point} was not replaced.",
                    lambda: try_shader(run, engine, entry_point, new_text),
                )  # fmt: skip
            case _:
                self._work_beside(engine, command)

    def _work_beside(self, engine: Engine, command: c.Command) -> None:
        """Carry out a command that leaves the run as it is. Those that end such work did so by being the next."""
        match command:
            case c.MeasureCopy():
                self._at_length(
                    "Measuring a copy", "The bandwidth of a copy was not measured to the end.",
                    lambda: self._work.measure_copy(engine),
                )  # fmt: skip
            case c.CompareVariants():
                self._work.compare(engine, command)
            case c.WhatIf():
                self._work.what_if(engine, command)
            case c.VerifyStep() | c.VerifyAll():
                self._work.verify(engine, command)
            case c.WeighPolicies():
                self._work.weigh(engine, command)
            case c.FindValue():
                self._work.find(engine, command)
            case c.SaveValues():
                self._work.save_values(engine, command)
            case c.SaveReport(path):
                self._at_length(
                    f"Writing {path}", f"The report was not written: {path} is as it was.",
                    lambda: self._work.save_report(engine, path),
                )  # fmt: skip
