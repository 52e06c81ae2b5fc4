"""A replay recorded as a session of its own, which says what recording it comes from and what was changed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from inspector import __version__
from inspector.errors import InspectorError
from inspector.files import path_from
from inspector.findings import Finding
from inspector.hyper import KERNELS_REVISION, with_values
from inspector.plan import Limits, layout_for
from inspector.progress import EndedError
from inspector.runtime.replay import Replay, ReplayedStep
from inspector.session.policy import Policy
from inspector.session.recorder import Recorder, check_room
from inspector.session.records import About, Parent
from inspector.sources.recording import Stretch
from inspector.statistics import StatsLevel
from inspector.stepping import HostState

WAITING_BYTES = 64 << 20


class SavedReplay:
    """Records the steps of `runner` from `span.first` on, which stands before them in `state`; ends with its block.

    `capture` is a policy as text, that of the parent where None. UsageError where there is no room for it.
    """

    def __init__(
        self,
        path: Path,
        runner: Replay,
        span: Stretch,
        state: HostState,
        *,
        capture: str | None = None,
        stats: StatsLevel | None = None,
    ) -> None:
        about = saved_about(path, runner, span, capture, stats)
        policy = Policy.from_text(about.policy)
        count = span.last - span.first + 1
        layout = layout_for(about.params, Limits(), about.variant)
        check_room(path, policy.expected_bytes(layout, count, stats=about.stats, start=about.finished_steps))
        self._recorder = Recorder.create(path, about)
        if policy.captures:
            self._recorder.offer_start(state)
        text = f"replay of {runner.source.name}"
        self._recorder.mark(span.first, f"{text} with {runner.changes}" if runner.changes else text)

    def __enter__(self) -> SavedReplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, EndedError):
            self._recorder.close("The replay was ended before all of its steps had run.")
        else:
            self._recorder.__exit__(kind, value, trace)
        if self._recorder.problem is not None and kind is None:
            raise InspectorError(self._recorder.problem)

    def wants_state(self, step: int) -> bool:
        """True where the state after `step` is captured."""
        return self._recorder.wants(step).keyframe

    def offer(self, ran: ReplayedStep, findings: Sequence[Finding]) -> None:
        """Record a step, and what was found in it."""
        wanted = self._recorder.wants(ran.step.step)
        self._recorder.offer(
            replace(ran.step, ended=time.time()),
            statistics=ran.table,
            findings=findings,
            gradients=ran.gradients if wanted.gradients else None,
            keyframe=ran.state if wanted.keyframe else None,
        )
        if self._recorder.waiting_bytes > WAITING_BYTES:
            # Nothing hurries a replay: rather than leave tensors out it waits for the disk.
            self._recorder.flush()

    def stopped(self, step: int, text: str) -> None:
        """A breakpoint stopped it in `step`: the flight recorder writes what it holds, and a mark says so."""
        self._recorder.fire()
        self._recorder.mark(step, text)


def saved_about(
    path: Path, runner: Replay, span: Stretch, capture: str | None, stats: StatsLevel | None
) -> About:
    """What the recording of a replay says it is: of its parent, `source`, with what was changed."""
    parent, changes, name = runner.source.session.about, runner.changes, runner.source.name
    device = runner.device
    assert device is not None
    how = f" with {changes}" if changes else ""
    return replace(
        parent,
        source=name,
        description=f"steps {span.first:,} to {span.last:,} of {name} again{how}",
        variant=changes.variant_of(runner.source.session.step(span.first).variant),
        hyper=with_values(parent.hyper, changes.hyper),
        schedule=parent.schedule if changes.schedule is None else str(changes.schedule),
        device=device,
        # The kernels here made it, in float32, whatever made its parent.
        origin="",
        dtypes=(),
        unreplayable="",
        finished_steps=span.first - 1,
        policy=capture or _lasting(parent.policy),
        software=f"inspector {__version__}",
        kernels=KERNELS_REVISION,
        began=time.time(),
        stats=stats or parent.stats,
        planned_steps=span.last - span.first + 1,
        layout=runner.layout,
        parent=Parent(
            path_from(path.parent, Path(name)),
            runner.source.session.id,
            span.first,
            span.last,
            changes.named(),
        ),
    )


def _lasting(policy: str) -> str:
    """A policy that captures as much without waiting for something to be found."""
    parsed = Policy.from_text(policy)
    if not parsed.flight:
        return policy
    every = parsed.gradients_every or 1, parsed.keyframes_every or parsed.flight
    return str(Policy(*every))
