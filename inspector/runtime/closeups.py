"""What is looked at closely: an element, a matrix as an image, states of a param, a value that was looked for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from inspector.colormap import colour, colour_range
from inspector.looking import MatrixRequest
from inspector.mapping import Quantity
from inspector.runtime.commands import ViewElement, ViewMatrix, ViewStates
from inspector.runtime.microscope import Microscope
from inspector.runtime.snapshots import CloseUp, MatrixImage
from inspector.runtime.states_look import StatesLook
from inspector.runtime.value_finding import Found, Working

if TYPE_CHECKING:
    from inspector.runtime.engine import Engine
    from inspector.runtime.recorded import RecordedRun
    from inspector.runtime.snapshots import Glance
    from inspector.stepping import Stepper

RUNNING_SHARE = 5
RUNNING_PERIOD_S = 0.1


class CloseUps:
    """Holds what is asked for and what was last shown of it."""

    def __init__(self) -> None:
        self.microscope = Microscope()
        self.states = StatesLook()
        self.matrix: MatrixImage | None = None
        self.found: Found | None = None
        self.working: Working | None = None
        self._asked: MatrixRequest | None = None
        self._stale = True
        self._done_at = -float("inf")
        self._cost = 0.0
        self._picture = CloseUp()

    def ask(self, command: ViewElement | ViewMatrix | ViewStates) -> None:
        """Remember what is wanted from now on."""
        if isinstance(command, ViewStates):
            self.states.ask(command.param)
        elif isinstance(command, ViewElement):
            self.microscope.ask(command.param, command.index)
        else:
            self._asked, self._stale = command.request, True
            if command.request is None:
                self.matrix = None

    def moved(self) -> None:
        """The run has moved: everything shown is out of date."""
        self._stale = True
        self.microscope.moved()
        self.states.moved()

    def forget(self) -> None:
        """Another run."""
        self.matrix = self.found = self.working = None
        self._stale = True
        self.microscope.forget()
        self.states.forget()

    @property
    def picture(self) -> CloseUp:
        """All of it; the same object until any of it is another one."""
        parts = (self.microscope.picture, self.matrix, self.found, self.working, self.states.picture)
        old = self._picture
        shown = (old.element, old.matrix, old.found, old.working, old.states)
        if any(a is not b for a, b in zip(parts, shown, strict=True)):
            self._picture = CloseUp(*parts)
        return self._picture

    def refresh(self, engine: Engine, *, running: bool) -> None:
        """Bring what is asked for up to date where the device stands; while running, only what is due."""
        self.microscope.refresh(engine, running=running)
        self.states.refresh(engine.stepper, running=running)
        if not self._stale:
            return
        started = time.perf_counter()
        wait = max(RUNNING_PERIOD_S, RUNNING_SHARE * self._cost) if running else 0.0
        if started - self._done_at < wait:
            return
        self.matrix = self._image(engine.stepper)
        self._stale = False
        self._done_at = time.perf_counter()
        self._cost = self._done_at - started

    def glance(self, engine: Engine, recorded: RecordedRun, glance: Glance) -> None:
        """Show what was captured of a step that the device does not stand at: no image."""
        self.microscope.glance(engine, recorded, glance)
        self.states.glance()
        self.matrix, self._stale = None, True

    def _image(self, stepper: Stepper) -> MatrixImage | None:
        request = self._asked
        if request is None or request.param not in stepper.layout or not stepper.layout[request.param].numel:
            return None
        pixels = stepper.looker.matrix_pixels(request)
        quantity: Quantity = "value"
        values = pixels.values
        if request.logarithmic:
            quantity, values = "magnitude", np.abs(values)
        low, high = colour_range(values, quantity)
        rgba = colour(values, pixels.nonfinite, quantity, low, high)
        rgba.flags.writeable = False
        return MatrixImage(request, rgba, pixels.values, pixels.nonfinite, low, high)
