"""The open recording of another program held against the kernels here: the step on show, or all that were captured."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from inspector.errors import UsageError
from inspector.history import History, Series
from inspector.runtime.beside import VerifyPicture
from inspector.sources.base import Source
from inspector.sources.recording import Recording
from inspector.stores import Lane

if TYPE_CHECKING:
    # A start of the window needs none of what reads sessions.
    from inspector.runtime.reexecution import Reexecution
    from inspector.runtime.replay import MakeStepper
    from inspector.session.verdicts import StepVerdict

LANES: tuple[Lane, ...] = ("w", "m", "v")
NO_ORIGIN = (
    "Only what another program computed is held against the kernels here: a recording of PyTorch, or dumps."
)


class Verifying:
    """Held by whoever owns the device, and called on its thread. It has a device of its own while it is of use."""

    def __init__(self) -> None:
        self.picture = VerifyPicture()
        self._runner: Reexecution | None = None
        self._worst: dict[int, tuple[float, ...]] = {}
        self._unexplained: set[int] = set()

    def opened(self, source: Source) -> None:
        """Another source is open: what was found of the one before is dropped."""
        self.close()
        self._worst.clear()
        self._unexplained.clear()
        origin = source.session.about.origin if isinstance(source, Recording) else ""
        self.picture = VerifyPicture(origin, problem="" if origin else NO_ORIGIN)

    def close(self) -> None:
        """Give the device back."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def one(self, source: Source, make: MakeStepper, step: int, told: Callable[[], None]) -> None:
        """Compare a step; what `told` raises between parts of it ends it."""
        try:
            runner = self._runner_for(source, make)
            self._show(step, None, done=0, of=1)
            told()
            verdict = runner.one(step, check=told)
        except UsageError as error:
            self._show(step, None, problem=str(error))
            return
        except BaseException:
            self._show(step, None, problem=f"Step {step:,} was not compared to the end.")
            raise
        self._take(verdict)
        self._show(step, verdict)

    def all(self, source: Source, make: MakeStepper, told: Callable[[], None]) -> None:
        """Compare all steps that can be; what was found until `told` raises stays."""
        shown, verdict = self.picture.step, self.picture.verdict
        try:
            runner = self._runner_for(source, make)
            assert isinstance(source, Recording)
            spans = [(s.first, runner.steps(s.first, s.last)) for s in source.stretches]
            of = sum(steps[-1] - first + 1 for first, steps in spans if steps)
            if not of:
                raise UsageError(
                    "No step was captured with its gradients and the states before and after it."
                )
            done = 0
            for first, steps in spans:
                for found in runner.run(first, steps[-1], check=told) if steps else ():
                    done += 1
                    if not isinstance(found, int):
                        self._take(found)
                        verdict = found if found.step == shown else verdict
                    self._show(shown, verdict, done=done, of=of)
                    told()
        except UsageError as error:
            self._show(shown, verdict, problem=str(error))
        else:
            self._show(shown, verdict)
        finally:
            if self.picture.of:
                self._show(shown, verdict)

    # --- inner parts

    def _runner_for(self, source: Source, make: MakeStepper) -> Reexecution:
        from inspector.runtime.reexecution import Reexecution

        if not isinstance(source, Recording) or not source.session.about.origin:
            raise UsageError(NO_ORIGIN)
        if self._runner is not None and self._runner.source is not source:
            self.close()
        if self._runner is None:
            self._runner = Reexecution(source, make)
        return self._runner

    def _take(self, verdict: StepVerdict) -> None:
        worst = ((lane, verdict.worst(lane)) for lane in LANES)
        self._worst[verdict.step] = tuple(
            math.nan if found is None else found.lanes[lane].max_ulp for lane, found in worst
        )
        (self._unexplained.discard if verdict.agrees else self._unexplained.add)(verdict.step)

    def _show(
        self, step: int | None, verdict: StepVerdict | None, *, problem: str = "", done: int = 0, of: int = 0
    ) -> None:
        self.picture = VerifyPicture(
            self.picture.origin,
            step,
            verdict,
            problem,
            done,
            of,
            self._history(),
            tuple(sorted(self._unexplained)),
        )

    def _history(self) -> History:
        if len(self._worst) == len(self.picture.worst):
            return self.picture.worst
        steps = sorted(self._worst)
        table = np.array([self._worst[step] for step in steps])
        series: dict[str, Series] = {}
        for i, lane in enumerate(LANES):
            values = table[:, i]
            series[lane] = Series(values, values, values, np.isnan(values).astype(np.uint32))
        return History(1, np.array(steps, np.int64), MappingProxyType(series), len(steps))
