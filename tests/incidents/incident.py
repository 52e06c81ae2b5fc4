"""What an incident is, and a run of it: through the engine, on the GPU, with full statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from gpu_helpers import make_stepper

from inspector.findings import Finding
from inspector.gpu.device import Gpu
from inspector.own_shaders import load_own_kernels
from inspector.plan import Variant
from inspector.runtime.engine import Engine
from inspector.sources.base import Source
from inspector.stepping import HostState

ALARMING = ("warning", "error")
ANY: Literal["any"] = "any"
Act = Callable[[Engine, Gpu], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The finding that names the fault. `step` is the first at which the numbers allow it, for the reason in `why`.

    `params` are the params of which one has to be named, none where the fault is of the step itself, and `ANY` where
    all are hit alike; `index` is flat, likewise. `dispatch` is how the label of the dispatch begins that has to be
    named, "" where there is none. `evidence` are parts of what has to be shown.
    """

    rule: str
    step: int
    why: str
    params: Sequence[str] | Literal["any"] = ()
    index: int | Literal["any"] | None = None
    dispatch: str = ""
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Incident:
    """A run with one fault that acts from step `planted` on.

    `before` is done before a step begins, by step; `shaders` are WGSL files by name, in place of the built-in kernels.
    `follows` are the rules that may be told beside the one wanted, since the fault brings about what they look at.
    `steps` is how many are run, as far as what is wanted where left out.
    """

    name: str
    fault: str
    planted: int
    wanted: Wanted
    source: Callable[[], Source]
    variant: Variant = field(default_factory=Variant)
    shaders: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[int, Act] = field(default_factory=dict)
    follows: frozenset[str] = frozenset()
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class Healthy:
    """A run in which nothing is wrong."""

    name: str
    what: str
    source: Callable[[], Source]
    steps: int = 40
    variant: Variant = field(default_factory=Variant)
    shaders: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of an incident came to. `told` are the findings of the rule that is wanted, the first one first."""

    incident: Incident
    findings: tuple[Finding, ...]
    labels: tuple[str, ...]
    """Of the dispatch that each finding names, in the same order; "" where it names none."""

    @property
    def told(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.rule == self.incident.wanted.rule)

    @property
    def label(self) -> str:
        """Of the dispatch that the first finding of the rule names."""
        return self.labels[self.findings.index(self.told[0])]

    @property
    def wrong(self) -> str:
        """What the first finding of the rule has otherwise than wanted, "" where it is right."""
        wanted = self.incident.wanted
        if not self.told:
            return "not found"
        first, label = self.told[0], self.label
        wrong = [] if first.step == wanted.step else [f"step {first.step}, not {wanted.step}"]
        if wanted.params != ANY and first.param not in (wanted.params or (None,)):
            wrong.append(f"param {first.param}, not {' or '.join(wanted.params) or None}")
        if wanted.index not in (ANY, first.index):
            wrong.append(f"index {first.index}, not {wanted.index}")
        if not label.startswith(wanted.dispatch) or (label and not wanted.dispatch):
            wrong.append(f"dispatch {label!r}, not {wanted.dispatch!r}")
        for key, value in wanted.evidence.items():
            if first.evidence.get(key) != value:
                wrong.append(f"{key} {first.evidence.get(key)!r}, not {value!r}")
        return "; ".join(wrong)

    @property
    def false_alarms(self) -> tuple[Finding, ...]:
        """Warnings and errors that the fault does not bring about."""
        allowed = self.incident.follows | {self.incident.wanted.rule}
        return tuple(f for f in self.findings if f.severity in ALARMING and f.rule not in allowed)

    @property
    def steps_until_named(self) -> int | None:
        """Steps from the one in which the fault first acts to the one in which it was named; None where it was not."""
        return self.told[0].step - self.incident.planted if self.told else None


def engine_of(gpu: Gpu, source: Source, variant: Variant) -> Engine:
    """An engine as `inspector diagnose` runs one."""
    state = source.initial_state()
    if isinstance(state, HostState):
        stepper = make_stepper(
            gpu, source.params, variant, w=state.w, m=state.m, v=state.v, finished_steps=state.finished_steps,
            undo_bytes=0,
        )  # fmt: skip
    else:
        stepper = make_stepper(gpu, source.params, variant, w={}, undo_bytes=0)
        stepper.restore(state)
    engine = Engine(source, stepper, stats="full", keep_checkpoint=False)
    engine.eight_bit.watched = True
    return engine


def run_incident(gpu: Gpu, incident: Incident, folder: Path) -> Outcome:
    """Run it to where the fault has to be named, or a little beyond; `folder` is for its shaders."""
    engine = engine_of(gpu, incident.source(), _form(incident, folder))
    first = engine.stepper.cursor.finished_steps + 1
    last = incident.wanted.step if incident.steps is None else first + incident.steps - 1
    found = list(_run(gpu, engine, range(first, last + 1), incident.before))
    return Outcome(incident, tuple(f for f, _ in found), tuple(label for _, label in found))


def run_healthy(gpu: Gpu, healthy: Healthy, folder: Path) -> list[Finding]:
    """Run it; what was found."""
    engine = engine_of(gpu, healthy.source(), _form(healthy, folder))
    first = engine.stepper.cursor.finished_steps + 1
    return [f for f, _ in _run(gpu, engine, range(first, first + healthy.steps), {})]


def _form(planted: Incident | Healthy, folder: Path) -> Variant:
    """Its form of the step, with its own kernels."""
    if not planted.shaders:
        return planted.variant
    for name, text in planted.shaders.items():
        (folder / f"{name}.wgsl").write_text(text, encoding="utf-8")
    return replace(planted.variant, own=load_own_kernels(folder))


def _run(gpu: Gpu, engine: Engine, steps: range, before: Mapping[int, Act]) -> Iterator[tuple[Finding, str]]:
    """What is found, with the label of the dispatch in the plan as it is then."""
    for step in steps:
        if step in before:
            before[step](engine, gpu)
        engine.step_iteration()
        for finding in engine.take_findings():
            at = finding.dispatch
            yield finding, "" if at is None else engine.stepper.plan.dispatches[at].label
    engine.stepper.release()
