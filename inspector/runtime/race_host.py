"""A race in the window: one lane stands in front, where every command goes, and the others keep up with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from inspector.errors import InspectorError, UsageError
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Variant
from inspector.race import MAX_LANES, LaneSpec, check_forms
from inspector.runtime.breakpoints import Breakpoints
from inspector.runtime.decay_watch import DecayLook, DecayPicture
from inspector.runtime.engine import Engine
from inspector.runtime.parts import OpenRun
from inspector.runtime.race_pictures import LanePicture, RacePicture
from inspector.runtime.race_recording import RaceRecording, race_file
from inspector.runtime.racing import Lane, Race, norms_level
from inspector.runtime.saved_race import SavedRace
from inspector.session.policy import Policy
from inspector.sources.base import Source, is_closed_loop
from inspector.statistics import StatsLevel

LANE_UNDO_BYTES = 256 << 20
"""What going back may take in each lane but the first."""


class RaceHost:
    """Held by whoever runs the engine of the lane in front, and called on its thread."""

    def __init__(self) -> None:
        self._race: Race | None = None
        self._front = 0
        self._closed_loop = False
        self._base = Hyper()
        self.together = True
        """The others keep up with the lane in front."""
        self.saved: SavedRace | None = None
        """The race whose lane in front is the recording that is open."""
        self.decay: tuple[DecayPicture, ...] = ()
        """As last looked at."""
        self._decay_look = DecayLook()

    # --- what it is

    def __bool__(self) -> bool:
        return self._race is not None

    @property
    def engine(self) -> Engine | None:
        """That of the lane in front."""
        return self._race.lanes[self._front].engine if self._race is not None else None

    @property
    def texts(self) -> tuple[str, ...]:
        """What the lanes run, as a person writes it."""
        return tuple(str(lane.spec) for lane in self._race.lanes) if self._race is not None else ()

    @property
    def picture(self) -> RacePicture | None:
        """What is to be shown."""
        if self._race is None:
            return self.saved.picture if self.saved is not None else None
        lanes = tuple(
            LanePicture(
                lane.name,
                str(lane.spec),
                lane.steps,
                lane.history,
                lane.diverged,
                lane.ended,
                lane.runs_as,
            )
            for lane in self._race.lanes
        )
        return RacePicture(lanes, self._front, self.together, self._closed_loop)

    # --- beginning and ending

    def start(
        self,
        opener: OpenRun,
        source: Source,
        texts: tuple[str, ...],
        variant: Variant,
        stats: StatsLevel,
        breakpoints: Breakpoints,
    ) -> Engine:
        """Put the lanes at the start of `source`; gives the engine of the first. UsageError for what cannot race."""
        specs = check_lanes(texts, variant, source.params)
        hyper = opener.hyper(source)
        closed_loop = is_closed_loop(source)
        self._race = Race.start(
            [source] * len(specs), specs, opener.make_stepper, variant=variant, hypers=[hyper] * len(specs),
            stats=norms_level(stats, closed_loop=closed_loop), undo_bytes=LANE_UNDO_BYTES,
        )  # fmt: skip
        self._front, self._closed_loop, self._base = 0, closed_loop, hyper
        return self._bring(breakpoints)

    def close(self) -> bool:
        """End the race and with it the device; False where there is none."""
        race, self._race = self._race, None
        if race is None:
            return False
        # It may be lost already, which is what closing is for.
        with suppress(InspectorError):
            race.close()
        return True

    # --- moving

    def bring_to_front(self, number: int, breakpoints: Breakpoints) -> Engine:
        """Another lane takes the commands; its engine. IndexError where there is no such lane."""
        assert self._race is not None
        if not 0 <= number < len(self._race.lanes):
            raise IndexError(number)
        # Breakpoints are of what is in front.
        self._race.lanes[self._front].engine.breakpoints = Breakpoints()
        self._front = number
        return self._bring(breakpoints)

    def _bring(self, breakpoints: Breakpoints) -> Engine:
        engine = self.engine
        assert engine is not None
        engine.breakpoints = breakpoints
        engine.breakpoints_changed()
        return engine

    @property
    def behind(self) -> bool:
        """True where lanes have to catch up with the one in front."""
        return self._race is not None and self.together and self._race.is_behind(self._leader)

    def prepare(self) -> None:
        """Before the lane in front takes a whole step: work the gradients of all lanes out at once."""
        if self._race is not None and self.together:
            self._race.ask_ahead()

    def observe(self) -> None:
        """The lane in front may have moved: take its numbers over, and take the others back with it."""
        if self._race is None:
            return
        front = self._leader
        went_back = front.observe()
        if went_back and self.together:
            for lane in self._race.lanes:
                if lane is not front and lane.steps > front.steps and lane.engine.rewind_to(front.steps):
                    lane.observe()

    def catch_up(self) -> None:
        """One step of each lane that is behind."""
        if self._race is not None:
            self._race.round(self._leader.steps, without=self._leader)

    def start_recording(
        self, path: Path, policy: Policy, *, patience_s: float | None = None
    ) -> RaceRecording:
        """Record every lane from here on, as one session; UsageError where that cannot be."""
        assert self._race is not None
        lanes = self._race.lanes
        engine = lanes[0].engine
        file = race_file(lanes, self._base, source=engine.source.name, schedule=str(engine.schedule))
        return RaceRecording.start(path, file, lanes, policy, patience_s=patience_s)

    def set_stats(self, level: StatsLevel) -> None:
        """Count so much in every lane."""
        if self._race is not None:
            for lane in self._race.lanes:
                lane.engine.set_stats(level)

    # --- the decay that elements receive

    def watch_decay(self, engine: Engine, *, on: bool) -> None:
        """Watch it, or end that, in every lane, or in the run of `engine` where there is no race."""
        for _, each in self._runs(engine):
            if on:
                each.decay.start(each.stepper)
            else:
                each.decay.stop()

    def look_at_decay(self, engine: Engine, *, running: bool) -> None:
        """Read what is to be shown of it."""
        runs = [(name, each.decay, each.stepper) for name, each in self._runs(engine)]
        self.decay = self._decay_look.pictures(runs, running=running)

    def _runs(self, engine: Engine) -> list[tuple[str, Engine]]:
        if self._race is None:
            return [(engine.stepper.plan.variant.optimizer, engine)]
        return [(lane.name, lane.engine) for lane in self._race.lanes]

    @property
    def _leader(self) -> Lane:
        assert self._race is not None
        return self._race.lanes[self._front]


def check_lanes(texts: tuple[str, ...], variant: Variant, params: Sequence[Param]) -> tuple[LaneSpec, ...]:
    """The lanes that texts say, over a source with `params`; UsageError for one that is none or cannot run, or too few
    or too many."""
    specs = tuple(LaneSpec.from_text(text) for text in texts)
    if not 2 <= len(specs) <= MAX_LANES:
        raise UsageError(f"A race has 2 to {MAX_LANES} lanes, not {len(specs)}.")
    if any(spec.seed is not None for spec in specs):
        raise UsageError("The lanes of a race in the window start alike: leave seed out of them.")
    check_forms(specs, variant, params)
    return specs
