"""What holds for the steps of a run, changed: settings, what is counted, the form of the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial

from inspector.errors import UsageError
from inspector.floats import shortest
from inspector.hyper import Hyper, check_value
from inspector.layout import Layout
from inspector.number_words import true_minus
from inspector.plan import Variant
from inspector.progress import part
from inspector.runtime.breakpoints import higher
from inspector.runtime.placing import Placing
from inspector.runtime.run_diagnosis import RunDiagnosis
from inspector.runtime.run_state import RunState
from inspector.schedule import Schedule
from inspector.statistics import NOT_COUNTED, StatsLevel
from inspector.stepping import HostState, State, Stepper


class Changing:
    """Changes `run` from a step on, where it parts from its recording if it has one."""

    def __init__(self, run: RunState, placing: Placing, diagnosis: RunDiagnosis) -> None:
        self._run = run
        self._placing = placing
        self._diagnosis = diagnosis
        self._recoded = 0
        """Twice the changes of form so far that made the state anew."""

    # --- settings

    def set_hyper(self, name: str, value: float) -> int:
        """Change one setting; returns the first step it holds for. UsageError for a value nobody can mean."""
        check_value(name, value)
        run = self._run
        old = getattr(run.hyper, name)
        step = self._takes_setting(run.course.changed(name, value), run.schedule)
        run.marks.change(step, name, float(old), float(value), partial(_setting_words, name))
        return step

    def set_schedule(self, text: str) -> int:
        """Change the schedule; returns the first step it holds for. UsageError for text that is none."""
        old, schedule = self._run.schedule, Schedule.from_text(text)
        step = self._takes_setting(self._run.hyper, schedule)
        self._run.marks.change(step, "schedule", old, schedule, lambda a, b: f"schedule {a} → {b}")
        return step

    def set_stats(self, level: StatsLevel) -> None:
        """Count so much from the next step on, or from the one at the cursor if none of it has run.

        More where breakpoints need it.
        """
        run = self._run
        level = higher(level, run.breakpoints.needs)
        run.stats_level = level
        cursor = run.stepper.cursor
        if cursor.dispatch == 0 and run.log.given is not None:
            run.log.recounted(cursor.step, NOT_COUNTED if level == "off" else run.stepper.counts("g"))

    def _takes_setting(self, hyper: Hyper, schedule: Schedule) -> int:
        """Set them; returns the first step that takes them."""
        run, step = self._run, self._applies_from()
        run.course.set(step, hyper, schedule)
        self.part(step)
        if run.stepper.cursor.dispatch == 0:
            run.log.set_hyper(run.stepper.cursor.step, run.course.hyper_at(step))
        return step

    def _applies_from(self) -> int:
        """The first step that takes what is changed: the one at the cursor if none of it has run."""
        cursor = self._run.stepper.cursor
        return cursor.step if cursor.dispatch == 0 else cursor.step + 1

    def part(self, step: int) -> None:
        """From `step` on something else holds: a recording tells nothing from there on."""
        run, recorded = self._run, self._run.recorded
        if not run.course.parts(step, run.stepper.cursor.finished_steps) or recorded is None:
            return
        run.own_history = recorded.history_to(step - 1)
        if run.plotting is not None:
            run.plotting.truncate(step - 1)
        run.checkpoints.kept.forget_after(step - 1)
        self._diagnosis.part(step)

    # --- the form, where the params lie as it asks

    def set_variant(self, variant: Variant) -> None:
        """Run in another form from here on; UsageError in the middle of a step."""
        old = self._run.stepper.plan.variant
        self._run.stepper.set_variant(variant)
        self._reformed()
        self._mark_variant(old, variant)

    def follow_form(self, step: int) -> None:
        """Where a recording that runs again changed its form, change with it, as far as that is possible."""
        run = self._run
        wanted = run.course.form_at(step, run.stepper.plan.variant)
        if not self.take_form(wanted, run.course.layout_at(step)):
            run.note(
                step, "the recording goes on in another form, for which the params are laid out otherwise"
            )

    def take_form(self, wanted: Variant, layout: Layout | None) -> bool:
        """Run in a form that was recorded, on another stepper where the params have to be laid out otherwise; False
        where none can be made."""
        stepper = self._run.stepper
        if wanted == stepper.plan.variant:
            return True
        if stepper.can_take(wanted):
            stepper.set_variant(wanted)
            self._reformed()
        elif self._placing.make is not None:
            self.place(wanted, stepper.state(), layout)
        else:
            return False
        return True

    def _reformed(self) -> None:
        run = self._run
        run.eight_bit.reformed(run.stepper)
        run.decay.reformed(run.stepper)
        self._diagnosis.reformed()
        run.log.reformed(run.stepper.cursor.count)

    def _mark_variant(self, old: Variant, new: Variant) -> None:
        """Put a mark where another form begins, with what changed."""
        run = self._run
        if old != new:
            run.form_since = self._applies_from()
            run.course.choose(run.form_since, new)
            self.part(run.form_since)
            run.checkpoints.hurry()
            # Another form that keeps the state otherwise is not undone by going back to the first.
            recoded = _kept_as(old) != _kept_as(new)
            self._recoded += recoded
            run.marks.change(run.form_since, f"form {self._recoded}", old, new, _form_words)
            self._recoded += recoded

    # --- the form, with the params laid out anew

    def lay_out_anew(self, variant: Variant, begin: Callable[[], None]) -> HostState:
        """Run in a form that needs another layout from here on; gives the state that it goes on from.

        `begin` takes the gradients of the next step, again where it had begun. UsageError in the middle of a step.
        Where that form cannot run, or a person ends the making of it, the run stands as it stood before the reason is
        raised.
        """
        run = self._run
        stood, before = run.stepper.cursor, run.stepper.plan.variant
        if not stood.between_steps:
            raise UsageError("The form of the step can change only between steps: finish this one first.")

        def took_over(stepper: Stepper, as_wanted: bool) -> None:
            self._go_on_with(stepper)
            if as_wanted:
                step = stood.step + (stood.dispatch > 0)
                run.course.choose(step, variant)
                self.part(step)
            if stood.dispatch == 0 and stood.step > stepper.cursor.step:
                hyper = run.step_hyper
                begin()
                run.log.set_hyper(run.stepper.cursor.step, hyper)

        with part(0, 0.3):
            state = run.stepper.state()
        with part(0.3, 1):
            self._placing.exchange(run.stepper, variant, state, None, took_over)
        self._mark_variant(before, variant)
        return state

    def place(self, variant: Variant, state: State, layout: Layout | None) -> None:
        """Go on with `state` on another stepper, laid out as in `layout`, else for `variant`."""
        self._placing.exchange(
            self._run.stepper, variant, state, layout, lambda stepper, _: self._go_on_with(stepper)
        )

    def _go_on_with(self, stepper: Stepper) -> None:
        """Another stepper has the state."""
        run = self._run
        run.stepper = stepper
        run.eight_bit.replaced(lost=False)
        run.decay.replaced(lost=False)
        self._diagnosis.replaced()
        # Its elements are those of the old layout.
        run.log.counted = None
        run.log.reformed(stepper.cursor.count)


def _setting_words(name: str, old: float, new: float) -> str:
    return f"{name} {true_minus(shortest(old))} → {true_minus(shortest(new))}"


def _kept_as(variant: Variant) -> tuple[object, ...]:
    """What the state of a form hangs on: another one rounds it, or begins it anew."""
    coded = (variant.codec, variant.small_state) if variant.kernel == "8bit" else None
    return variant.optimizer, coded, variant.root_block, variant.factors, variant.no_muon


def _form_words(old: Variant, new: Variant) -> str:
    pairs = [(f.name, getattr(old, f.name), getattr(new, f.name)) for f in fields(Variant)]
    return ", ".join(
        # Of a kernel that was edited once more the name stays.
        f"{name} {was} → {now}" if str(was) != str(now) else f"{now} edited"
        for name, was, now in pairs
        if was != now
    )
