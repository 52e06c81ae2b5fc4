"""When the map is worked out anew, and from what: at rest, while a run goes on, when it is moved, when nobody looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from gpu_helpers import make_stepper, normal_state, params_of
from ui_helpers import map_pixels_of

from inspector.gpu.device import Gpu
from inspector.hyper import Hyper
from inspector.mapping import MapPictures, MapRequest, Quantity
from inspector.plan import Variant
from inspector.runtime.commands import ViewMap
from inspector.runtime.lockstep import EightBit
from inspector.runtime.viewer import Viewer
from inspector.stepping import HostGradients, Stepper

REQUEST = MapRequest(0.0, 8.0, 4, 2, "value")


class Mapper:
    """Gives empty lanes, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[MapRequest, ...]] = []
        self.stale: list[bool] = []
        self.rested = 0
        self.nbytes = 0

    def reasons(self) -> dict[Quantity, str]:
        return {"update": "no"}

    def pixels(
        self, requests: Sequence[MapRequest], stop: Callable[[], bool], *, stale: bool
    ) -> MapPictures | None:
        self.asked.append(tuple(requests))
        self.stale.append(stale)
        if stop():
            return None
        zeros = [np.zeros((r.height, r.width), np.float32) for r in requests]
        return MapPictures(
            tuple({"w": map_pixels_of(z, z, r)} for r, z in zip(requests, zeros, strict=True)), since=3
        )

    def rest(self) -> None:
        self.rested += 1


class Looked:
    """A viewer over a stepper of which there is the mapper alone."""

    def __init__(self, stop: Callable[[], bool] = lambda: False) -> None:
        self.mapper = Mapper()
        self.viewer = Viewer(stop)
        self.stepper = cast(Stepper, SimpleNamespace(mapper=self.mapper, layout=()))

    def refresh(self, *, running: bool) -> None:
        self.viewer.values = self.viewer.histograms = None
        self.viewer.refresh(self.stepper, running=running)


def test_a_moved_map_follows_at_once_while_a_run_goes_on() -> None:
    seen = Looked()
    seen.viewer.ask(ViewMap(REQUEST))
    seen.refresh(running=True)
    assert seen.mapper.stale == [False], "nothing was worked out before"
    seen.viewer.moved()
    seen.refresh(running=True)
    assert len(seen.mapper.asked) == 1, "the run has gone on: not due yet"
    moved = replace(REQUEST, start=16.0)
    seen.viewer.ask(ViewMap(moved))
    seen.viewer._moving_cost = 0.0
    seen.refresh(running=True)
    assert seen.mapper.stale == [False, True], "the map has moved: from what there is"
    assert seen.viewer.map is not None
    assert seen.viewer.map.request == moved
    seen.refresh(running=False)
    assert seen.mapper.stale == [False, True, False], "at rest from what is"


def test_the_whole_lanes_come_with_the_picture_and_with_what_cannot_be_shown() -> None:
    seen = Looked()
    over = MapRequest(0.0, 64.0, 8, 1, "value")
    seen.viewer.ask(ViewMap(REQUEST, over))
    seen.refresh(running=False)
    image = seen.viewer.map
    assert seen.mapper.asked == [(REQUEST, over)]
    assert image is not None
    assert image.overview is not None
    assert image.overview.request == over
    assert dict(image.reasons) == {"update": "no"}
    assert image.since == 3


def test_nobody_looking_gives_the_memory_back_once() -> None:
    seen = Looked()
    seen.viewer.ask(ViewMap(REQUEST))
    seen.refresh(running=False)
    seen.viewer.ask(ViewMap(None))
    seen.refresh(running=True)
    seen.viewer._done_at["map"] = -np.inf
    seen.refresh(running=True)
    seen.refresh(running=True)
    assert seen.viewer.map is None
    assert seen.mapper.rested == 1


def test_what_was_shown_stays_where_it_is_stopped() -> None:
    stopped = [False]
    seen = Looked(lambda: stopped[0])
    seen.viewer.ask(ViewMap(REQUEST))
    seen.refresh(running=False)
    before = seen.viewer.map
    stopped[0] = True
    seen.viewer.ask(ViewMap(replace(REQUEST, start=4.0)))
    seen.refresh(running=False)
    assert seen.viewer.map is before


def test_errors_of_coding_are_measured_while_the_map_shows_them() -> None:
    viewer, eight_bit = Viewer(), EightBit()
    coded = cast(Any, SimpleNamespace(plan=SimpleNamespace(variant=Variant(kernel="8bit"))))
    assert not viewer.maps_coding_error
    assert not eight_bit.measures(coded)
    viewer.ask(ViewMap(replace(REQUEST, quantity="coding_error")))
    eight_bit.mapped = viewer.maps_coding_error
    assert eight_bit.measures(coded)


@pytest.mark.gpu
def test_stale_pixels_are_of_what_was_worked_out_and_fresh_ones_of_what_is(gpu: Gpu) -> None:
    params = params_of(5000, decay=True)
    w, g, m, v = normal_state(params)
    stepper = make_stepper(gpu, params, w=w, m=m, v=v)
    whole = MapRequest(0.0, 5000.0, 1, 1, "value")

    def largest(*, stale: bool) -> float:
        found = stepper.mapper.pixels([whole], stale=stale)
        assert found is not None
        return float(found.pixels[0]["g"].high[0, 0])

    assert largest(stale=True) == 0.0, "nothing was worked out: it is now"
    stepper.begin_step(HostGradients(g), Hyper())
    assert largest(stale=True) == 0.0
    assert largest(stale=False) == g["p0"].max()
