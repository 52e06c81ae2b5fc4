"""The run that is open: its engine, what looks at it, and whether it stands, goes on or is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from inspector.plan import Variant
from inspector.runtime import commands as c
from inspector.runtime.breakpoints import Breakpoints
from inspector.runtime.choices import Choices
from inspector.runtime.engine import Engine
from inspector.runtime.keeping import Keeping
from inspector.runtime.pace import Pace
from inspector.runtime.race_host import RaceHost
from inspector.runtime.run_to import RunTo
from inspector.runtime.shaders import Shaders
from inspector.runtime.snapshots import Heading, Mode, Notice
from inspector.runtime.travel import Travel
from inspector.runtime.viewer import Viewer
from inspector.runtime.worked_out import WorkedOut
from inspector.statistics import StatsLevel


class CurrentRun:
    """What all that opens, moves, shows or looks at the run has in common; used on the worker's thread alone.

    `closing` is true once the program ends.
    """

    def __init__(self, spec: str, variant: Variant, stats: StatsLevel, closing: Callable[[], bool]) -> None:
        self.spec = spec
        """The source, as a person wrote it."""
        self.variant = variant
        """The form in which sources are opened."""
        self.stats: StatsLevel = stats
        self.closing = closing
        self.engine: Engine | None = None
        self.travel: Travel | None = None
        self.mode: Mode = "starting"
        self.heading: Heading | None = None
        """Where a run that goes on is to pause."""
        self.opened = 0
        """How many have been opened so far."""
        self.stale = False
        """True where the device is lost, and what is shown is of the time before."""
        self.notice: Notice | None = None
        self.pace = Pace()
        self.breakpoints = Breakpoints()
        self.to = RunTo(self.breakpoints, self.say)
        self.race = RaceHost()
        self.viewer = Viewer(stop=closing)
        self.keeping = Keeping(self.say)
        self.shaders = Shaders()
        self.worked_out = WorkedOut()
        self.choices = Choices()

    # --- what is told

    def say(self, severity: Literal["info", "warning", "error"], text: str) -> None:
        """Tell a person a sentence, with the next snapshot."""
        serial = self.notice.serial + 1 if self.notice else 1
        self.notice = Notice(serial, severity, text)

    def tell_stop(self) -> None:
        """Pause where a breakpoint has stopped the run, and say which."""
        stop = self.breakpoints.stop
        if stop is not None:
            self.pause()
            self.say("info" if stop.aimed else "warning", stop.sentence)

    # --- whether it goes on

    def pause(self) -> None:
        """Stand still, on the way to nothing."""
        if self.mode == "running":
            self.mode = "paused"
        self.heading = None
        self.to.stop()
        if self.travel is not None:
            self.travel.pause()

    def go_on(self, until: int | None = None, since: int | None = None) -> None:
        """Run from here on, to the end of step `until` where one is given.

        The way begins at the end of step `since`, here where none is given.
        """
        here = self.engine.stepper.cursor.finished_steps if self.engine is not None else 0
        self.mode = "running"
        self.heading = None if until is None else Heading(here if since is None else since, until)
        self.pace.restart()

    @property
    def on_the_way(self) -> Travel:
        """What moves a run that is open."""
        assert self.travel is not None
        return self.travel

    @property
    def traveling(self) -> bool:
        """True while it is on its way to a step."""
        return self.travel is not None and self.travel.busy

    @property
    def playing(self) -> bool:
        """True while steps are played."""
        return self.travel is not None and self.travel.playing is not None

    # --- what is left to do while it stands

    @property
    def judges(self) -> bool:
        """True while there are steps of a recording that the rules have not looked at."""
        recorded = self.engine.recorded if self.engine is not None else None
        return recorded is not None and not recorded.judged and self.mode == "paused"

    @property
    def reads_on(self) -> bool:
        """True while there is more to read of what was captured of an element."""
        return self.viewer.closeups.microscope.reads_on and self.mode == "paused"

    # --- what is counted, and where it stops

    def set_stats(self, engine: Engine, level: StatsLevel) -> None:
        """Count so much from here on, in every lane of a race."""
        engine.set_stats(level)
        self.race.set_stats(level)
        self._tell_stats_raised(engine, level)

    def set_breakpoint(self, command: c.SetBreakpoint | c.RemoveBreakpoint) -> None:
        """Set one or take it away, with what it needs to be counted."""
        if isinstance(command, c.RemoveBreakpoint):
            self.breakpoints.remove(command.condition)
        else:
            self.breakpoints.set(command.condition, enabled=command.enabled, stopping=command.stopping)
        engine = self.engine
        if engine is not None and self.mode != "lost":
            before = engine.stats_level
            engine.breakpoints_changed()
            self._tell_stats_raised(engine, before)

    def _tell_stats_raised(self, engine: Engine, level: StatsLevel) -> None:
        """Say so where more is counted than `level`, for a breakpoint."""
        if engine.stats_level != level:
            self.stats = engine.stats_level
            who = self.breakpoints.who_needs(level)
            self.say("info", f"Statistics are {self.stats} from here on: the breakpoint {who} needs them.")

    def start_recording(self, engine: Engine, asked: c.StartRecording) -> None:
        """Record from here on; UsageError where that cannot be."""
        self.stats = self.keeping.start_recording(engine, asked, self.race)

    def end_recording(self) -> None:
        """End the recording, if one goes on."""
        self.stats = self.keeping.end_recording(self.engine) or self.stats
