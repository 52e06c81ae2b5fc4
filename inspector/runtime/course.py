"""What each step of a run goes with: as a person set it, as it was recorded, or as it ran before."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import fields, replace
from typing import Any

from inspector.hyper import Hyper, scheduled, with_settings_of, with_value
from inspector.layout import Layout
from inspector.plan import Variant
from inspector.runtime.recorded import RecordedRun
from inspector.schedule import Schedule
from inspector.sources.base import AsRecorded, Source, hyper_at


class Course:
    """`hyper` and `schedule` are what a person set, `recorded` the recording where `source` is one whose steps are at
    hand. From `changed_from` on steps go otherwise than they were recorded; None while all go as recorded."""

    def __init__(
        self,
        source: Source,
        hyper: Hyper,
        schedule: Schedule,
        first: int,
        recorded: RecordedRun | None = None,
    ) -> None:
        self.source = source
        self.recorded = recorded
        self.hyper = hyper
        self._base = source.hyper if source.hyper.per_param is not None else hyper
        """What changes are made to, so that one that is taken back leaves what was."""
        self.schedule = schedule
        self.changed_from: int | None = None
        self.rerun_to = 0
        """Steps up to this one of a run that was not recorded have run before, and go again with what they had."""
        self._settings = Settings(hyper, schedule, first)
        self._chosen: dict[str, Any] = {}
        """Of the form, what a person chose in place of what was recorded."""

    @property
    def as_recorded(self) -> bool:
        """True while all steps of a recording go as they went."""
        return self.recorded is not None and self.changed_from is None

    @property
    def own_from(self) -> int:
        """The first step that a recording does not tell; 0 of a run that was not recorded."""
        return self.changed_from or 0

    def is_own(self, step: int) -> bool:
        """True where the numbers of `step` are this run's own, and not those of the recording."""
        return self.recorded is None or (self.changed_from is not None and step >= self.changed_from)

    # --- what holds

    def hyper_at(self, step: int) -> Hyper:
        """What `step` runs with, the schedule applied to its lr."""
        if step <= self.rerun_to and self.recorded is None:
            return self._settings.at(step)
        if not self.is_own(step) and isinstance(self.source, AsRecorded):
            recorded = self.source.recorded_hyper(step)
            if recorded is not None:
                return recorded
        return hyper_at(self.source, self.hyper, self.schedule, step)

    def ran_with(self, step: int) -> Hyper:
        """What a step that is over ran with."""
        return self.hyper_at(step) if self.recorded is not None else self._settings.at(step)

    def form_at(self, step: int, running: Variant) -> Variant:
        """The form for `step` of a run that runs in the form `running`: a recording that changed its form there
        changes it again, except for what a person chose."""
        if not isinstance(self.source, AsRecorded):
            return running
        now = self.source.recorded_variant(step)
        if now is None:
            return running
        if self.recorded is not None:
            return replace(now, **self._chosen) if self.is_own(step) else now
        was = self.source.recorded_variant(step - 1)
        if was is None or was == now:
            return running
        changed = [f.name for f in fields(Variant) if getattr(was, f.name) != getattr(now, f.name)]
        kept = [name for name in changed if getattr(running, name) == getattr(was, name)]
        return replace(running, **{name: getattr(now, name) for name in kept})

    def layout_at(self, step: int) -> Layout | None:
        """Where the params lay in `step` as it was recorded; None where that is not known or no longer holds."""
        recorded = self.recorded
        if recorded is None or self.is_own(step) or step not in recorded.steps:
            return None
        return recorded.session.layout(step)

    # --- changing it

    def begun(self, step: int) -> None:
        """A step begins: where it is new, it goes with what is set now, whatever went there before."""
        if step > self.rerun_to:
            self._settings.set(step, self.hyper, self.schedule)

    def set(self, step: int, hyper: Hyper, schedule: Schedule) -> None:
        """These hold from `step` on."""
        self.hyper, self.schedule = hyper, schedule
        self._settings.set(step, hyper, schedule)
        self.rerun_to = min(self.rerun_to, step - 1)

    def changed(self, name: str, value: float) -> Hyper:
        """The settings with one of them changed."""
        return with_settings_of(self._base, with_value(self.hyper, name, value))

    def choose(self, step: int, form: Variant) -> None:
        """A person wants `form` from `step` on."""
        if self.recorded is None or not isinstance(self.source, AsRecorded) or not self.recorded.steps:
            return
        steps = self.recorded.steps
        recorded = self.source.recorded_variant(min(max(step, steps.start), steps.stop - 1))
        pairs = [(f.name, getattr(recorded, f.name), getattr(form, f.name)) for f in fields(Variant)]
        self._chosen = {name: mine for name, theirs, mine in pairs if mine != theirs}

    def parts(self, step: int, finished: int) -> bool:
        """See whether steps go otherwise than recorded from `step` on, `finished` being complete; True where they part
        from the recording earlier than they did. They never parted where nothing ran otherwise and all is put back."""
        if self.recorded is None or not isinstance(self.source, AsRecorded):
            return False
        kept = self.hyper == self.source.hyper and self.schedule == self.source.recorded_schedule
        if kept and not self._chosen and (self.changed_from is None or finished < self.changed_from):
            self.changed_from = None
            return False
        if self.changed_from is not None and step >= self.changed_from:
            return False
        self.changed_from = step
        return True


class Settings:
    """What held from which step on, so that a step that runs again runs with what it ran with."""

    def __init__(self, hyper: Hyper, schedule: Schedule, since: int) -> None:
        self._starts = [since]
        self._held: list[tuple[Hyper, Schedule]] = [(hyper, schedule)]

    def set(self, since: int, hyper: Hyper, schedule: Schedule) -> None:
        """From step `since` on these hold, whatever held later."""
        keep = bisect_right(self._starts, since - 1)
        if keep and self._held[keep - 1] == (hyper, schedule):
            del self._starts[keep:], self._held[keep:]
            return
        self._starts[keep:] = [since]
        self._held[keep:] = [(hyper, schedule)]

    def at(self, step: int) -> Hyper:
        """What `step` ran with, the schedule applied to its lr."""
        hyper, schedule = self._held[max(bisect_right(self._starts, step) - 1, 0)]
        return scheduled(hyper, schedule.factor(step))
