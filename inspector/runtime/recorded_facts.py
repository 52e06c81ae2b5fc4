"""What a recording knows of a step, for the diagnosis: its row, its statistics, and the plan it ran."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.errors import UsageError
from inspector.findings import Finding
from inspector.floats import F32Array
from inspector.layout import Layout
from inspector.param_statistics import ParamTable, counts_of
from inspector.plan import Plan, Variant
from inspector.session.plans import default_layout, part_of_another, recorded_plan
from inspector.session.reader import Session
from inspector.session.records import RecordedLayout, RecordedStep
from inspector.settings import ParamSettings
from inspector.statistics import BINS, BufferStats, NonFinite, added_up, buffer_stats
from inspector.stores import Lane

_LANES: tuple[Lane, ...] = ("w", "m", "v")
_NO_EXPONENTS = np.zeros(BINS, np.uint32)
_NO_EXPONENTS.flags.writeable = False


class RecordedFacts:
    """The facts of each step of `session`; plans and layouts are made once a form."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._plan: tuple[Variant, RecordedLayout | None, Plan | None] | None = None
        self._cut: ParamSettings | None = None
        """The settings of params by which it is cut."""
        self._layouts: dict[Variant, Layout] = {}
        self._initial: tuple[Mapping[str, BufferStats], bool] | None = None
        self._parts: dict[int, int | None] = {}
        """Of steps with findings that are taken as recorded, `part_of_another`."""

    def at(self, step: int) -> StepFacts | None:
        """What is known of a step; None where it was not recorded."""
        session = self._session
        if step not in session.steps:
            return None
        ran = session.step(step)
        # Of a run that another program made no dispatch ran, so that nothing is wrong with one.
        plan = self._plan_of(ran) if not session.about.origin else None
        layout = plan.layout if plan is not None else self._layout_of(ran)
        table = session.param_statistics(step)
        initial, moments = self.initial_state()
        return StepFacts(
            step=step,
            layout=layout,
            hyper=ran.hyper,
            gradients=None if session.about.stats == "off" and table is None else _counts(ran, layout, table),
            grad_norm=ran.grad_norm,
            clip_scale=ran.clip_scale,
            loss=ran.loss,
            initial_moments=moments,
            initial_state=initial,
            variant=ran.variant,
            plan=plan,
            table=table,
            origin=session.about.origin,
            adam=not session.about.foreign,
            ranks=len(session.ranks),
            parted=session.parted(step),
            put_in_place=step in session.put_in_place(),
        )

    def counted_gradients(self, facts: StepFacts) -> BufferStats:
        """Counts over the captured gradients of a step; a param without any counts as zeros."""
        given = self._session.gradients(facts.step)
        return _counted(given, facts.layout)

    def in_plan(self, finding: Finding) -> Finding:
        """A finding that was recorded, its dispatch numbered as in the plan of its step."""
        if not finding.dispatch:
            return finding
        if finding.step not in self._parts:
            ran = self._session.step(finding.step)
            plan = self._plan_of(ran)
            self._parts[finding.step] = part_of_another(ran.kernels, plan.dispatches) if plan else None
        part = self._parts[finding.step]
        behind = part is not None and finding.dispatch > part
        return replace(finding, dispatch=finding.dispatch - 1) if behind else finding

    def _plan_of(self, ran: RecordedStep) -> Plan | None:
        if self._plan is None or self._plan[:2] != (ran.variant, ran.layout) or not self._cut_alike(ran):
            try:
                plan = recorded_plan(self._session, ran, self._layout_of(ran))
            except UsageError:
                plan = None
            self._plan, self._cut = (ran.variant, ran.layout, plan), ran.hyper.per_param
        return self._plan[2]

    def _cut_alike(self, ran: RecordedStep) -> bool:
        """True where the same params share settings as when the plan was made."""
        own = ran.hyper.per_param
        return self._cut is own or (self._cut is not None and own is not None and own.cuts_like(self._cut))

    def _layout_of(self, ran: RecordedStep) -> Layout:
        known = self._session.layout(ran.step)
        if known is None:
            known = self._layouts.get(ran.variant)
        if known is None:
            known = self._layouts[ran.variant] = default_layout(self._session, ran)
        return known

    def initial_state(self) -> tuple[Mapping[str, BufferStats], bool]:
        """Counts over the state before the first step, and whether it had moments before step 1, where captured."""
        if self._initial is None:
            session, first = self._session, self._session.steps.start
            self._initial = {}, False
            if first - 1 in session.captures("keyframe"):
                layout = self._layout_of(session.step(first)) if session.steps else None
                self._initial = _counted_state(session, first - 1, layout) if layout else ({}, False)
        return self._initial


def _counts(ran: RecordedStep, layout: Layout, table: ParamTable | None) -> BufferStats:
    """Over all gradients: of the statistics of the params, or else only those that are not finite."""
    if table is not None:
        return counts_of(table, "g")
    return BufferStats(layout.elements, 0, ran.nonfinite, math.nan, _NO_EXPONENTS)


def _counted_state(session: Session, step: int, layout: Layout) -> tuple[Mapping[str, BufferStats], bool]:
    state = session.keyframe(step)
    lanes = {"w": state.w, "m": state.m, "v": state.v}
    counts: dict[str, BufferStats] = {lane: _counted(lanes[lane], layout) for lane in _LANES}
    moments = step == 0 and any(counts[lane].zeros != layout.elements for lane in ("m", "v"))
    return counts, moments


def _counted(values: Mapping[str, F32Array], layout: Layout) -> BufferStats:
    return added_up(
        buffer_stats(np.asarray(values[s.name], np.float32).reshape(-1), start=s.offset)
        if s.name in values
        else BufferStats(s.numel, s.numel, NonFinite(), 0.0, _NO_EXPONENTS)
        for s in layout
    )
