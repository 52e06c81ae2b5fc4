"""The decay that each element receives, watched beside a run, or beside every lane of a race that can be."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from inspector.decay import COARSE, DecayBins, DecayMeter, grid_for
from inspector.errors import DeviceLostError, InspectorError
from inspector.hyper import Hyper
from inspector.runtime.breakpoints import before_updates
from inspector.stepping import Stepper

RUNNING_SHARE = 10
"""While running, bins are read again once so many times what that took has passed, or"""
RUNNING_PERIOD_S = 0.25

NOT_MEASURED = "a step ran without being measured"


@dataclass(frozen=True, slots=True, eq=False)
class DecayPicture:
    """What is known of one run. `bins` are of the steps from `since` + 1 to `step`; None before the first of them.

    `reason` says why the run is not watched, or no longer; `again` that it was begun again because the run went back.
    """

    name: str
    optimizer: str
    since: int | None = None
    step: int = 0
    bins: DecayBins | None = None
    elements: int = 0
    nbytes: int = 0
    reason: str = ""
    again: bool = False


class DecayWatch:
    """Follows a run: each method is called at the moment of it that its name says.

    The sums cannot be taken back: where the run goes back before a step that is in them, they begin again from there.
    """

    def __init__(self) -> None:
        self._asked = False
        self._meter: DecayMeter | None = None
        self._waiting = False
        self._since: int | None = None
        self._hyper: Hyper | None = None
        self._measured = 0
        """The last step whose update is in the sums."""
        self._reason = ""
        self._again = False
        self._optimizer = ""
        self.stale = True
        """True where bins that were read are no longer of the latest sums."""
        self._bins: DecayBins | None = None
        self._bins_step = 0

    @property
    def asked(self) -> bool:
        """True where somebody wants it watched, be it in vain."""
        return self._asked

    @property
    def on(self) -> bool:
        """True while updates are added up."""
        return self._meter is not None

    @property
    def meter(self) -> DecayMeter | None:
        """The sums, where anything is in them."""
        return self._meter if self._since is not None and self._measured > self._since else None

    def start(self, stepper: Stepper) -> None:
        """Watch from here, or from the end of the step within one; from 0 where it was watched before."""
        self.stop()
        self._asked = True
        self._begin(stepper)

    def stop(self, reason: str = "", *, release: bool = True) -> None:
        """Give the sums and their memory up; with a reason it stays asked. `release` False where the device is gone."""
        if self._meter is not None and release:
            self._meter.close()
        self._meter, self._waiting, self._since, self._measured = None, False, None, 0
        self._bins, self._again = None, False
        self._asked = self._asked and bool(reason)
        self._reason, self.stale = reason, True

    def _begin(self, stepper: Stepper) -> None:
        self._waiting = not stepper.cursor.between_steps
        if self._waiting:
            return
        try:
            if self._meter is None:
                self._meter = stepper.decay_meter()
            self._meter.clear()
        except DeviceLostError:
            raise
        except InspectorError as error:
            self.stop(str(error))
            return
        self._optimizer = stepper.plan.variant.optimizer
        self._since = self._measured = stepper.cursor.finished_steps
        self._bins, self.stale = None, True

    def before_update(self, stepper: Stepper, hyper: Hyper) -> None:
        """The run stands between finalize_grad_stats and its update."""
        step = stepper.cursor.step
        if self._meter is None or self._waiting or self._measured >= step:
            return
        if self._measured < step - 1:
            self.stop(f"Watching ended: {NOT_MEASURED}.")
            return
        try:
            self._meter.add(hyper)
        except DeviceLostError:
            raise
        except InspectorError as error:
            self.stop(f"Watching ended: {error}")
            return
        self._measured, self._hyper, self.stale = step, hyper, True

    def finished(self, stepper: Stepper, hyper: Hyper) -> None:
        """The run has completed a step, its update with these settings."""
        if self._meter is None and not self._waiting:
            return
        if self._waiting or (self._measured == stepper.cursor.step and self._hyper != hyper):
            # They were changed after the step was measured.
            self._begin(stepper)
        elif self._measured < stepper.cursor.step:
            self.stop(f"Watching ended: {NOT_MEASURED}.")

    def moved_back(self, stepper: Stepper) -> None:
        """The run has gone elsewhere: begin again where a step is undone, or left out, that the sums have or lack."""
        if self._meter is None:
            return
        cursor = stepper.cursor
        updated = cursor.step if not before_updates(stepper.plan, cursor) else cursor.step - 1
        measured_ahead = self._measured == cursor.step and updated < cursor.step
        if not self._waiting and updated == self._measured and not measured_ahead:
            return
        self._since, self._bins, self._again, self.stale = None, None, True, True
        self._begin(stepper)

    def reformed(self, stepper: Stepper) -> None:
        """The run goes on in another form."""
        if self._meter is not None and stepper.plan.variant.optimizer != self._optimizer:
            self.start(stepper)

    def replaced(self, *, lost: bool) -> None:
        """The run goes on with another stepper: the old one was `lost`, or left for another form."""
        if self._asked:
            why = "the device was lost" if lost else "the params are laid out anew"
            self.stop(f"Watching ended: {why}. Start it again.", release=False)

    # --- what is shown

    def keep(self, bins: DecayBins) -> None:
        """These are the bins of the latest sums."""
        self._bins, self._bins_step, self.stale = bins, self._measured, False

    def picture(self, name: str, stepper: Stepper) -> DecayPicture:
        """This moment."""
        meter = self._meter
        return DecayPicture(
            name, stepper.plan.variant.optimizer, self._since, self._bins_step, self._bins,
            meter.elements if meter is not None else 0, meter.nbytes if meter is not None else 0, self._reason,
            self._again,
        )  # fmt: skip


class DecayLook:
    """Reads bins of several runs, with the same bins for all, and no more often than is cheap."""

    def __init__(self) -> None:
        self._at = -math.inf
        self._cost = 0.0
        self._pictures: tuple[DecayPicture, ...] = ()

    def pictures(
        self, runs: Sequence[tuple[str, DecayWatch, Stepper]], *, running: bool
    ) -> tuple[DecayPicture, ...]:
        """One a run, () where nobody wants it watched; the same object while nothing has changed."""
        if not any(watch.asked for _, watch, _ in runs):
            self._pictures = ()
            return ()
        now = time.perf_counter()
        wait = max(RUNNING_PERIOD_S, RUNNING_SHARE * self._cost) if running else 0.0
        if now - self._at >= wait:
            read_bins([watch for _, watch, _ in runs])
            self._at = time.perf_counter()
            self._cost = self._at - now
        pictures = tuple(watch.picture(name, stepper) for name, watch, stepper in runs)
        before = self._pictures
        if len(before) != len(pictures) or any(
            _shown(a) != _shown(b) for a, b in zip(before, pictures, strict=True)
        ):
            self._pictures = pictures
        return self._pictures


def read_bins(watches: Sequence[DecayWatch]) -> None:
    """Read the bins of all that have changed since, the same bins for all."""
    meters = [(watch, watch.meter) for watch in watches]
    there = [(watch, meter) for watch, meter in meters if meter is not None]
    if any(watch.stale for watch, _ in there):
        grid = grid_for([meter.bins(COARSE) for _, meter in there])
        for watch, meter in there:
            watch.keep(meter.bins(grid))


def _shown(picture: DecayPicture) -> tuple[object, ...]:
    return (
        picture.name, picture.optimizer, picture.since, picture.step, id(picture.bins), picture.nbytes,
        picture.reason, picture.again,
    )  # fmt: skip
