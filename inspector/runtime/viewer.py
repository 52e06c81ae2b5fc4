"""What the UI looks at besides the numbers: map, values and histograms, refreshed as often as they are cheap."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from inspector.floats import F32Array
from inspector.layout import Layout
from inspector.runtime.closeups import CloseUps
from inspector.runtime.commands import ViewHistograms, ViewMap, ViewValues
from inspector.runtime.map_picture import MapImage, map_image
from inspector.runtime.recorded import RecordedRun
from inspector.runtime.snapshots import Glance, Histograms, ValuesWindow
from inspector.stepping import Cursor, Stepper
from inspector.stores import MOMENTS, Lane

MAX_VALUES = 65_536
"""Rows of one window of values; a table shows fewer than a hundred at a time."""
RUNNING_SHARE = 5
"""While a run goes on, a view is refreshed when at least so many times its cost has passed since the last."""
RUNNING_PERIOD_S = 0.1
LONG_LOOK_S = 0.01
"""Where a look took longer the last time, where the run stands is told before it: a tenth of what the answer to a key
may take."""

T = TypeVar("T")


class Viewer:
    """Holds what is asked for and what was last shown of it."""

    def __init__(self, stop: Callable[[], bool] = lambda: False) -> None:
        """`stop` is asked between parts of what takes long; once it says so, what was shown stays."""
        self._stop = stop
        self.map: MapImage | None = None
        self.values: ValuesWindow | None = None
        self.histograms: Histograms | None = None
        self.closeups = CloseUps()
        self._asked_map = self._shown_map = ViewMap(None)
        """What the map shows, and what it showed last."""
        self._asked_values = ViewValues(None)
        self._asked_histograms = ViewHistograms(None, ())
        self._stale = {"map": True, "values": True, "histograms": True}
        self._done_at = dict.fromkeys(self._stale, -float("inf"))
        self._cost = dict.fromkeys(self._stale, 0.0)
        self._has_moved = True
        """Since anything was last looked at."""
        self._moving_cost = 0.0
        """Seconds that the picture of a moved map took the last time."""
        self._glanced: tuple[int, ViewValues, ViewHistograms] | None = None

    def ask(self, command: ViewMap | ViewValues | ViewHistograms) -> None:
        """Remember what is wanted from now on; nothing is computed yet."""
        if isinstance(command, ViewMap):
            self._asked_map = command
            self._stale["map"] = True
        elif isinstance(command, ViewValues):
            self._asked_values = command
            self._stale["values"] = True
        else:
            self._asked_histograms = command
            self._stale["histograms"] = True

    @property
    def maps_coding_error(self) -> bool:
        """True while the map shows errors of coding, which have to be measured for it."""
        request = self._asked_map.request
        return request is not None and request.quantity == "coding_error"

    @property
    def asked_histograms(self) -> ViewHistograms:
        """Which histograms are in sight."""
        return self._asked_histograms

    def moved(self) -> None:
        """The run has moved: everything shown is out of date."""
        self._stale = dict.fromkeys(self._stale, True)
        self._has_moved = True
        self._glanced = None
        self.closeups.moved()

    def forget(self) -> None:
        """Another run: nothing of the old one may be shown."""
        self.map = self.values = self.histograms = None
        self._shown_map = ViewMap(None)
        self.closeups.forget()
        self.moved()

    @property
    def is_behind(self) -> bool:
        """True where the run has moved, and to see all of that again would take long."""
        asked = {
            "map": self._asked_map.request is not None,
            "histograms": bool(self._asked_histograms.lanes),
        }
        return self._has_moved and any(
            on and self._stale[name] and self._cost[name] > LONG_LOOK_S for name, on in asked.items()
        )

    def refresh(self, stepper: Stepper, *, running: bool, quick: bool = False) -> None:
        """Bring what is asked for up to date; while running, only what is due.

        `quick` leaves a map or histograms that took long the last time as they are; values are never those of before.
        """
        self._has_moved = False
        if self._asked_map.request is None:
            self._rest_map(stepper)
        elif running and self._asked_map != self._shown_map and self._shown_map.request is not None:
            self.map = self._moved_map(stepper)
        else:
            self.map = self._refreshed("map", running, quick, self.map, lambda: self._map(stepper))
        self.values = self._refreshed("values", running, False, self.values, lambda: self._values(stepper))
        self.histograms = self._refreshed(
            "histograms", running, quick, self.histograms, lambda: self._histograms(stepper)
        )

    def glance(self, recorded: RecordedRun, glance: Glance, layout: Layout) -> None:
        """Show what was captured of a step that the device does not stand at: no map, values where it was a keyframe,
        histograms of right before its update."""
        self.map = None
        # What the device holds is shown again once it stands where it is looked at.
        self._stale = dict.fromkeys(self._stale, True)
        values, histograms = self._asked_values, self._asked_histograms
        wanted = (glance.step, values, histograms)
        if self._glanced == wanted:
            return
        self._glanced = wanted
        self.values = self._captured_values(recorded, glance.step, values, layout)
        self.histograms = None
        counted = recorded.counted(glance.step)
        if counted is not None and histograms.lanes:
            at = Cursor(glance.step, 0, 1)
            found = (
                counted.params[counted.params.names.index(histograms.param)]
                if histograms.param in counted.params.names
                else counted.totals[0]
                if histograms.param is None
                else None
            )
            if found is not None:
                stats = {lane: found.lanes[lane].counts for lane in histograms.lanes}
                self.histograms = Histograms(histograms.param, at, MappingProxyType(stats))

    def _captured_values(
        self, recorded: RecordedRun, step: int, asked: ViewValues, layout: Layout
    ) -> ValuesWindow | None:
        if asked.param is None or asked.param not in layout or not recorded.has_state(step):
            return None
        numel = layout[asked.param].numel
        start = min(max(asked.start, 0), numel)
        stop = start + min(asked.count, numel - start, MAX_VALUES)
        lanes: tuple[Lane, ...] = ("w", "m", "v")
        after: dict[Lane, F32Array] = {
            lane: recorded.session.window(lane, step, asked.param, start, stop) for lane in lanes
        }
        # The update leaves gradients at 0.
        after["g"] = np.zeros(stop - start, np.float32)
        for array in after.values():
            array.flags.writeable = False
        codes: dict[Lane, npt.NDArray[np.int16]] = {}
        if asked.raw == "codes" and layout[asked.param].state == "8bit":
            kept = recorded.session.codes(step, asked.param)
            codes["m"], codes["v"] = (each.codes[start:stop].astype(np.int16) for each in (kept.m, kept.v))
        nothing: MappingProxyType[Lane, F32Array] = MappingProxyType({})
        return ValuesWindow(asked.param, start, MappingProxyType(after), nothing, MappingProxyType(codes))

    def _refreshed(
        self, name: str, running: bool, quick: bool, old: T | None, make: Callable[[], T | None]
    ) -> T | None:
        if not self._stale[name] or (quick and self._cost[name] > LONG_LOOK_S):
            return old
        started = time.perf_counter()
        wait = max(RUNNING_PERIOD_S, RUNNING_SHARE * self._cost[name]) if running else 0.0
        if started - self._done_at[name] < wait:
            return old
        new = make()
        self._stale[name] = False
        self._done_at[name] = time.perf_counter()
        self._cost[name] = self._done_at[name] - started
        return new

    def _rest_map(self, stepper: Stepper) -> None:
        if self._shown_map.request is not None:
            stepper.mapper.rest()
        self.map, self._shown_map = None, self._asked_map

    def _moved_map(self, stepper: Stepper) -> MapImage | None:
        """The map moved while a run goes on: at once, if from lanes as they were when they were last worked out."""
        started = time.perf_counter()
        if started - self._done_at["map"] < self._moving_cost:
            return self.map
        new = self._map(stepper, stale=True)
        self._done_at["map"] = time.perf_counter()
        self._moving_cost = self._done_at["map"] - started
        return new

    def _map(self, stepper: Stepper, *, stale: bool = False) -> MapImage | None:
        asked, mapper = self._asked_map, stepper.mapper
        assert asked.request is not None
        requests = [asked.request] if asked.overview is None else [asked.request, asked.overview]
        found = mapper.pixels(requests, self._stop, stale=stale)
        if found is None:
            return self.map
        self._shown_map = asked
        overview = map_image(requests[1], found.pixels[1]) if len(requests) > 1 else None
        return map_image(
            asked.request,
            found.pixels[0],
            reason=found.reason,
            since=found.since,
            reasons=mapper.reasons(),
            overview=overview,
        )

    def _values(self, stepper: Stepper) -> ValuesWindow | None:
        asked = self._asked_values
        if asked.param is None or asked.param not in stepper.layout:
            return None
        segment = stepper.layout[asked.param]
        start = min(max(asked.start, 0), segment.numel)
        count = min(asked.count, segment.numel - start, MAX_VALUES)
        first = segment.offset + start
        after = {lane: stepper.read(lane, first, count) for lane in stepper.plan.lanes}
        before = {lane: stepper.read(lane, first, count, before=True) for lane in stepper.changed_lanes()}
        for array in (*after.values(), *before.values()):
            array.flags.writeable = False
        looker = stepper.looker
        codes: dict[bool, dict[Lane, npt.NDArray[np.int16]]] = {False: {}, True: {}}
        if asked.raw == "codes":
            for lane in MOMENTS:
                for was in (False, True) if lane in before else (False,):
                    found = looker.codes(lane, first, count, before=was)
                    if found is not None:
                        found.flags.writeable = False
                        codes[was][lane] = found
        half = looker.half(first, count) if asked.raw == "half" else None
        return ValuesWindow(
            asked.param, start, MappingProxyType(after), MappingProxyType(before),
            MappingProxyType(codes[False]), MappingProxyType(codes[True]), half,
        )  # fmt: skip

    def _histograms(self, stepper: Stepper) -> Histograms | None:
        asked = self._asked_histograms
        if not asked.lanes or (asked.param is not None and asked.param not in stepper.layout):
            return None
        lanes = tuple(lane for lane in asked.lanes if lane in stepper.plan.lanes)
        with np.errstate(all="ignore"):
            stats = {lane: stepper.stats(lane, asked.param) for lane in lanes if not self._stop()}
        if len(stats) < len(lanes):
            return self.histograms
        return Histograms(asked.param, stepper.cursor, MappingProxyType(stats))
