"""A run of another program executed again here, step by step from the states that were captured of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.optimizers.adamw.mistakes import NORM_RTOL
from inspector.optimizers.adamw.peers import Lanes
from inspector.param_hyper import placing
from inspector.runtime.replay import MakeStepper
from inspector.session.compare import update_dispatches
from inspector.session.peer_run import PeerRun
from inspector.session.records import RecordedStep
from inspector.session.verdicts import ParamVerdict, StepVerdict, given_of, judge, peer_of
from inspector.sources.recording import Recording
from inspector.stepping import DeviceInfo, HostGradients, HostState, Stepper


class Reexecution:
    """Runs steps of a recording of another program on a device, each from the captured state nearest before it.

    A step whose state before was captured starts from that state, so that differences of one step do not reach the
    next. Its stepper is closed with it.
    """

    def __init__(self, source: Recording, make: MakeStepper) -> None:
        """UsageError, in the recording's own sentence, where the kernels here cannot compute the same."""
        about = source.session.about
        if about.unreplayable:
            raise UsageError(f"{source.name}: {about.unreplayable}")
        self.source = source
        self._make = make
        self._stepper: Stepper | None = None
        self._at: tuple[int, int] | None = None
        self._beside: PeerRun | None = None
        self._after: HostState | None = None
        self._peer = peer_of(about)
        self._in_place: set[int] = set()
        self._named: set[int] = set()
        """Params whose roundings have been given a name, which is done once while they stay within 2 ULP."""

    @property
    def device(self) -> DeviceInfo | None:
        """The adapter in use, None before the first step."""
        return self._stepper.device if self._stepper else None

    def close(self) -> None:
        """Destroy the device."""
        if self._stepper is not None:
            self._stepper.close()
            self._stepper = None
        self._at = self._after = None

    def steps(self, first: int, last: int) -> list[int]:
        """The steps between these whose state was captured after them and can be worked out from one before them."""
        replaced = self._replaced()
        return [
            step
            for step in self.source.session.captures("keyframe")
            if first <= step <= last and step not in replaced and self.source.missing(step) is None
        ]

    def run(
        self, first: int, last: int, *, check: Callable[[], None] = lambda: None
    ) -> Iterator[StepVerdict | int]:
        """Steps `first` to `last`, which follow each other: a verdict where the state after one was captured, else its
        number. `check` is called between steps and params."""
        states = set(self.source.session.captures("keyframe"))
        self._in_place = self._replaced()
        # The recording may have been continued from an earlier step since.
        self._after = None
        for step in range(first, last + 1):
            check()
            yield self._step(step, states, check)

    def one(self, step: int, *, check: Callable[[], None] = lambda: None) -> StepVerdict:
        """The verdict on one step; UsageError where the state after it was not captured, or nothing leads to it."""
        session = self.source.session
        if problem := self.source.missing(step):
            raise UsageError(f"{self.source.name}: {problem}")
        if step in self._replaced():
            raise UsageError(
                f"What {self._origin()} made of step {step:,} was not kept: the script put another state in its place, "
                f"from which step {step + 1:,} goes on."
            )
        if step not in session.captures("keyframe"):
            raise UsageError(
                f"What {self._origin()} made of step {step:,} was not captured (policy {session.about.policy}): there "
                "is nothing to hold against."
            )
        states = session.captures("keyframe")
        start = states[bisect_right(states, step - 1) - 1] + 1
        *_, verdict = self.run(start, step, check=check)
        assert isinstance(verdict, StepVerdict)
        return verdict

    # --- inner parts

    def _replaced(self) -> set[int]:
        """Steps after which the captured state is one that the script put in place."""
        return {step - 1 for step in self.source.session.put_in_place()}

    def _origin(self) -> str:
        return self.source.session.about.origin or "the recorded run"

    def _step(self, step: int, states: set[int], check: Callable[[], None]) -> StepVerdict | int:
        session = self.source.session
        recorded = session.step(step)
        before: HostState | None = None
        if step - 1 in states:
            kept = self._after
            before = (
                kept if kept is not None and kept.finished_steps == step - 1 else session.keyframe(step - 1)
            )
            self._begin(recorded, before)
        if self._at is None or self._at[0] != step - 1:
            raise UsageError(
                f"{self.source.name}: {self.source.missing(step) or 'no state leads to that step.'}"
            )
        stepper = self._stepper
        assert stepper is not None
        start = self._at[1]
        if stepper.plan.variant != recorded.variant:
            stepper = self._in_form(recorded)
        given = session.gradients(step)
        stepper.begin_step(HostGradients(given), recorded.hyper)
        stepper.run_to_end(recorded.hyper)
        self._at = step, start
        if before is None or step not in states or step in self._in_place:
            if self._beside is None or self._beside.step != step - 1:
                self._beside = PeerRun(session, before or session.keyframe(start), self._peer)
            self._beside.run(recorded, given, self._scale(recorded, stepper))
        if step not in states or step in self._in_place:
            return step
        # What was read to be compared is what the next step begins from.
        self._after = session.keyframe(step)
        return self._judge(recorded, start, before, given, self._after, stepper, check)

    @staticmethod
    def _scale(recorded: RecordedStep, stepper: Stepper) -> float:
        """The clip scale that the step applies to the gradients that were recorded.

        That of the other program where it told it, and where it differs no more than norms do that were added up in
        other orders; else the one worked out here.
        """
        if not np.isfinite(recorded.hyper.max_grad_norm):
            return 1.0
        here, theirs = stepper.grad_stats().clip_scale, recorded.clip_scale
        alike = theirs is not None and abs(theirs - here) <= NORM_RTOL * here
        return theirs if theirs is not None and alike else here

    def _begin(self, recorded: RecordedStep, state: HostState) -> None:
        if self._stepper is not None and self._stepper.plan.variant == recorded.variant:
            self._stepper.restore(state)
        else:
            self.close()
            self._stepper = self._make.make(
                self.source.params,
                recorded.variant,
                state,
                self.source.session.layout(recorded.step),
                **placing(self.source.hyper),
            )
        self._at = state.finished_steps, state.finished_steps

    def _in_form(self, recorded: RecordedStep) -> Stepper:
        stepper = self._stepper
        assert stepper is not None
        if stepper.can_take(recorded.variant):
            stepper.set_variant(recorded.variant)
            return stepper
        state, at = stepper.state(), self._at
        self.close()
        self._stepper = self._make.make(
            self.source.params, recorded.variant, state, None, **placing(self.source.hyper)
        )
        self._at = at
        return self._stepper

    def _judge(
        self, recorded: RecordedStep, start: int, before: HostState | None, gradients: Mapping[str, F32Array],
        after: HostState, stepper: Stepper, check: Callable[[], None],
    ) -> StepVerdict:  # fmt: skip
        session, beside = self.source.session, self._beside
        here, scale = stepper.state(), self._scale(recorded, stepper)
        places = {s.name: s.offset for s in stepper.layout}
        updates = update_dispatches(stepper.plan.dispatches, places)
        found: list[ParamVerdict] = []
        for number in range(session.about.params_in(recorded.step)):
            param = self.source.params[number]
            if not param.numel:
                continue
            check()
            name = param.name
            state = before
            if state is None:
                assert beside is not None
                peak = beside.peaks[name]
                state = HostState({name: peak.w}, {name: peak.m}, {name: peak.v})
            given, settings = given_of(session, recorded, number, state, gradients.get(name), scale)
            verdict = judge(
                given, settings, param, number, _lanes(after, name, param.numel), _lanes(here, name, param.numel),
                step=recorded.step, start=start, dispatch=updates.get(name), peer=self._peer,
                explain=lambda verdict: verdict.number not in self._named,
                ran_on=None if before is not None or beside is None else (beside.peer, beside.lanes[name]),
            )  # fmt: skip
            if verdict.explanation is not None and verdict.explanation.peers:
                self._named.add(number)
            found.append(verdict)
        return StepVerdict(recorded.step, start, tuple(found))


def _lanes(state: HostState, name: str, count: int) -> Lanes:
    lanes = (getattr(state, lane).get(name) for lane in ("w", "m", "v"))
    return Lanes(*(np.zeros(count, np.float32) if lane is None else np.ravel(lane) for lane in lanes))
