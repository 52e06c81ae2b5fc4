"""One element over steps: what memory holds of it, and what a recording captured, read a little at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.looking import TrailPart
from inspector.stores import LANES, Lane

if TYPE_CHECKING:
    from inspector.runtime.recorded import RecordedRun

MAX_KEPT = 8192
"""Steps from memory that are kept at most, the latest."""
MAX_CAPTURED = 2048
"""Captured steps of a kind that are read at most; of more, as many evenly spread."""

_NO_STEPS: npt.NDArray[np.int64] = np.zeros(0, np.int64)
_NO_VALUES: F32Array = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class ElementTrail:
    """An element by lane: steps, int64 ascending, and float32 values there, read-only.

    w, m and v are as they are after a step, g as the step was given it; a step that is not among them is not known.
    `read` of `captured` tensors that a recording has of it were read so far; of `all_captured` as many are to be.
    """

    lanes: Mapping[Lane, tuple[npt.NDArray[np.int64], F32Array]] = field(
        default_factory=lambda: MappingProxyType(dict.fromkeys(LANES, (_NO_STEPS, _NO_VALUES)))
    )
    from_memory: int = 0
    read: int = 0
    captured: int = 0
    all_captured: int = 0
    problem: str = ""
    """Why no more of the recording is read."""

    @property
    def span(self) -> tuple[int, int] | None:
        """The first and the last step of which anything is known."""
        ends = [(int(s[0]), int(s[-1])) for s, _ in self.lanes.values() if len(s)]
        return (min(a for a, _ in ends), max(b for _, b in ends)) if ends else None


NO_TRAIL = ElementTrail()


class Trail:
    """Gathers what becomes known of one element of `param`."""

    def __init__(self, param: str, index: int) -> None:
        self.param, self.index = param, index
        self._memory: dict[Lane, dict[int, np.float32]] = {lane: {} for lane in LANES}
        self._captured: dict[Lane, dict[int, np.float32]] = {lane: {} for lane in LANES}
        self._wanted: list[tuple[Lane, int]] = []
        self._listed_for: tuple[int, int | None] = (0, None)
        self._captured_count = self._all_captured = 0
        self._problem = ""
        self._picture: ElementTrail | None = ElementTrail()

    # --- from memory

    def remember(self, part: TrailPart) -> None:
        """Take over what memory has."""
        for step, (w, m, v) in part.states.items():
            self._memory["w"][step], self._memory["m"][step], self._memory["v"][step] = w, m, v
        self._memory["g"].update(part.gradients)
        for known in self._memory.values():
            for step in sorted(known)[: max(len(known) - MAX_KEPT, 0)]:
                del known[step]
        self._picture = None

    def forget_after(self, finished: int, *, began: int) -> None:
        """The run stands at the end of step `finished`, or within the one after where that is `began`."""
        for lane, known in self._memory.items():
            last = began if lane == "g" else finished
            gone = [step for step in known if step > last]
            for step in gone:
                del known[step]
            if gone:
                self._picture = None

    # --- from a recording

    def list_captured(self, recorded: RecordedRun, near: int, before: int | None) -> None:
        """Read what `recorded` has captured, the steps nearest to `near` first; of those from `before` on nothing."""
        if self._listed_for == (id(recorded.picture), before):
            return
        if self._listed_for[1] != before:
            self._captured = {lane: {} for lane in LANES}
        self._listed_for = id(recorded.picture), before
        states = [int(s) for s in recorded.picture.keyframes if before is None or s < before]
        gradients = [s for s in recorded.session.captures("gradients") if before is None or s < before]
        lanes: tuple[Lane, ...] = ("w", "m", "v")
        wanted: list[tuple[Lane, int]] = [(lane, s) for lane in lanes for s in _spread(states)]
        wanted += [("g", s) for s in _spread(gradients)]
        self._all_captured = 3 * len(states) + len(gradients)
        self._captured_count = len(wanted)
        open_ = [(lane, s) for lane, s in wanted if s not in self._captured[lane]]
        # Taken from the end.
        self._wanted = sorted(open_, key=lambda each: -abs(each[1] - near))
        self._picture = None

    @property
    def reads_on(self) -> bool:
        """True while there is more to read."""
        return bool(self._wanted)

    def read_on(self, recorded: RecordedRun, seconds: float) -> None:
        """Read more of what was captured, for so long; damage ends it and is said."""
        until = time.perf_counter() + seconds
        while self._wanted and time.perf_counter() < until:
            lane, step = self._wanted.pop()
            try:
                value = recorded.session.window(lane, step, self.param, self.index, self.index + 1)
            except UsageError as error:
                self._problem, self._wanted = str(error), []
                break
            self._captured[lane][step] = np.float32(value[0])
        self._picture = None

    # --- all of it

    def picture(self) -> ElementTrail:
        """All that is known; the same object until there is more."""
        if self._picture is None:
            lanes = {}
            for lane in LANES:
                known = self._memory[lane] | self._captured[lane]
                steps = np.array(sorted(known), np.int64)
                values = np.array([known[int(s)] for s in steps], np.float32)
                steps.flags.writeable = values.flags.writeable = False
                lanes[lane] = steps, values
            self._picture = ElementTrail(
                MappingProxyType(lanes), len(self._memory["w"]), self._captured_count - len(self._wanted),
                self._captured_count, self._all_captured, self._problem,
            )  # fmt: skip
        return self._picture


def _spread(steps: Sequence[int]) -> list[int]:
    """At most MAX_CAPTURED of them, evenly spread, the first and the last among them."""
    if len(steps) <= MAX_CAPTURED:
        return list(steps)
    at = np.linspace(0, len(steps) - 1, MAX_CAPTURED).round().astype(int)
    return [steps[int(i)] for i in at]
