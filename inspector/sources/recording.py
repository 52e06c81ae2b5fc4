"""A recorded session as a source: its gradients and settings step by step, from the nearest state it captured."""

from __future__ import annotations

import math
import zipfile
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inspector.errors import UsageError
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Variant, required_placement
from inspector.schedule import Schedule
from inspector.session.places import TOP_NAMES
from inspector.session.reader import Session
from inspector.sources.base import EndOfSourceError, ReadWeights
from inspector.sources.checkpoint.files import PICKLED_SUFFIXES
from inspector.stepping import HostGradients, HostState

SUFFIXES = (".session", ".zip")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps `first` to `last`, which can be rebuilt: their gradients were captured, and the state before the first."""

    first: int
    last: int


class Recording:
    """Steps of a session in order, from the state before `first`; without it from the first state that leads on.

    `hyper` and `schedule` are those that the recording began with. What a step really ran with, changes in between
    included, `recorded_hyper` and `recorded_variant` say.
    """

    def __init__(
        self, path: Path, *, schedule: Schedule | None = None, first: int | None = None, session: Session | None = None
    ) -> None:  # fmt: skip
        self.session = session or Session.open(path)
        about = self.session.about
        self.name = str(path)
        self.params: tuple[Param, ...] = about.params
        self.hyper: Hyper = about.hyper
        self.recorded_schedule = Schedule.from_text(about.schedule)
        self.schedule = schedule or self.recorded_schedule
        self._first: int | None = None
        self.look_again()
        if first is None:
            first = self._starts[0] if self._starts else self.session.steps.start
        self.first_step = self._first = first
        stretch = self._stretch(first)
        self.last_step: int | None = stretch.last if stretch else first - 1
        elements = sum(p.numel for p in self.params)
        steps = f"steps {first:,} to {self.last_step:,}" if stretch else "no step that can be rebuilt,"
        self.description = (
            f"{elements:,} elements in {len(self.params):,} params, {steps} as recorded from {about.source}"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """That its steps take another course here than they did, where they do."""
        return (self.session.about.unreplayable,) if self.session.about.unreplayable else ()

    def look_again(self) -> None:
        """Take in what the session was found to hold beyond what it did."""
        self.stretches = stretches(self.session)
        self._starts = [stretch.first for stretch in self.stretches]
        self._captured = _runs(self.session.captures("gradients"))
        if self._first is not None:
            stretch = self._stretch(self._first)
            self.last_step = stretch.last if stretch else self._first - 1

    def captured_through(self, first: int, last: int) -> bool:
        """True where the gradients of all steps from `first` to `last` were captured."""
        at = bisect_right(self._captured, (first, math.inf)) - 1
        return at >= 0 and last <= self._captured[at][1]

    def starting_for(self, step: int) -> Recording:
        """The same recording from the state nearest before `step`; UsageError where that cannot be rebuilt."""
        if problem := self.missing(step):
            raise UsageError(f"{self.name}: {problem}")
        keyframes = self.session.captures("keyframe")
        nearest = keyframes[bisect_right(keyframes, step - 1) - 1]
        return Recording(Path(self.name), schedule=self.schedule, first=nearest + 1)

    def initial_state(self) -> HostState:
        """The captured state before the first step, 8-bit codes byte for byte; UsageError where no step has one."""
        if problem := self.missing(self.first_step):
            raise UsageError(f"{self.name}: {problem}")
        return self.session.keyframe(self.first_step - 1)

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        """The captured gradients, whatever the weights are now; EndOfSourceError where there are none."""
        if problem := self.missing(step):
            raise EndOfSourceError(problem)
        return HostGradients(self.session.gradients(step), self.session.step(step).loss)

    def recorded_hyper(self, step: int) -> Hyper | None:
        """What `step` ran with, the schedule applied to its lr; None for a step that was not recorded."""
        return self.session.step(step).hyper if step in self.session.steps else None

    def recorded_variant(self, step: int) -> Variant | None:
        """The form that `step` ran in; None for a step that was not recorded."""
        return self.session.step(step).variant if step in self.session.steps else None

    def laid_out_for(self, step: int) -> Variant:
        """The form for which the params were laid out at `step`: a form that suits the places in use keeps them."""
        laid = self.session.about.variant
        for since, form in self.session.forms():
            if since > step:
                break
            kept = required_placement(laid).covers(required_placement(form))
            if not kept or (form.kernel == "8bit" and form.codec != laid.codec):
                laid = form
        return laid

    def missing(self, step: int) -> str | None:
        """Why `step` cannot be rebuilt, as a sentence; None where it can."""
        steps = self.session.steps
        if step not in steps:
            span = f"steps {steps.start:,} to {steps.stop - 1:,}" if steps else "no steps"
            return f"Step {step:,} cannot be rebuilt: it was not recorded, the recording holds {span}."
        if self._stretch(step) is not None:
            return None
        policy = self.session.about.policy
        gradients = self.session.captures("gradients")
        found = bisect_right(gradients, step)
        if not found or gradients[found - 1] != step:
            gap = next((n for n in self.session.notes("gap") if n.step <= step <= (n.last or n.step)), None)
            why = f": {gap.text}" if gap else f" (policy {policy})"
            return f"Step {step:,} cannot be rebuilt: its gradients were not captured{why}."
        return (
            f"Step {step:,} cannot be rebuilt: no state was captured from which captured gradients lead up to it "
            f"(policy {policy})."
        )

    def _stretch(self, step: int) -> Stretch | None:
        at = bisect_right(self._starts, step) - 1
        return self.stretches[at] if at >= 0 and step <= self.stretches[at].last else None


def stretches(session: Session) -> tuple[Stretch, ...]:
    """The steps that can be rebuilt, in order, each stretch as long as it goes."""
    states = session.captures("keyframe")
    # A state from before params were added does not lead on to where they take part, nor one in whose place another
    # was put.
    cuts = sorted({*(each.step for each in session.about.added), *session.put_in_place()})
    found = []
    for whole_first, whole_last in _runs(session.captures("gradients")):
        edges = [whole_first, *(cut for cut in cuts if whole_first < cut <= whole_last), whole_last + 1]
        for first, last in zip(edges, (edge - 1 for edge in edges[1:]), strict=False):
            first, last = max(first, session.steps.start), min(last, session.steps.stop - 1)
            at = bisect_left(states, first - 1)
            if at < len(states) and states[at] < last:
                found.append(Stretch(states[at] + 1, last))
    return tuple(found)


def _runs(steps: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive steps, of ascending ones."""
    if not steps:
        return []
    numbers = np.array(steps, np.int64)
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    firsts, lasts = numbers[[0, *(breaks + 1)]], numbers[[*breaks, -1]]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def is_recording(path: Path) -> bool:
    """True where `path` looks like a session: a folder or a zip file of one."""
    if path.is_dir():
        return any((path / name).exists() for name in TOP_NAMES) or path.suffix == SUFFIXES[0]
    if path.suffix == ".zip":
        return True
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PK\x03\x04":
                return False
        with zipfile.ZipFile(path) as archive:
            return any(Path(name).name in TOP_NAMES for name in archive.namelist())
    except FileNotFoundError:
        return False
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        # PyTorch's files are zip archives as well: one that is cut off is told by its name.
        return path.suffix not in (".safetensors", *PICKLED_SUFFIXES)
