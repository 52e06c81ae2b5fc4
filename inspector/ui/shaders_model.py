"""The texts of the kernels of a run: which is edited, which runs, and what became of it. No Qt."""

from __future__ import annotations

import math
from collections.abc import Mapping

from inspector.floats import plain_exponent, significant
from inspector.own_kernels import NO_OWN_KERNELS, OwnKernels
from inspector.plan import Dispatch, Plan
from inspector.runtime.shaders import ShadersPicture
from inspector.shader_edit import ShaderMessage, fixed, is_edited, kernels_of, running_text, starting_text
from inspector.shader_lines import update_code
from inspector.shader_trial import LaneChange, ShaderTrial
from inspector.ui import format as fmt
from inspector.wgsl import parse

OTHER_FORM = "built-in, runs in another form; an edit starts from this one, as published"
MOST_DRAFTS = 50


class ShaderTexts:
    """One text a kernel: as it runs, or as it was edited. Edited ones that are not saved are `drafts`."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self._opened_with: OwnKernels = NO_OWN_KERNELS
        self._dispatches: dict[str, Dispatch] = {}
        self._texts: dict[str, str] = {}
        self._saved: dict[str, str] = {}
        self._origins: dict[str, str] = {}

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels of the plan by entry point, in the order in which they run."""
        return tuple(self._dispatches)

    def show_plan(self, plan: Plan | None, opened_with: OwnKernels) -> bool:
        """Take over a plan; True where it is another one."""
        if plan is self.plan and opened_with is self._opened_with:
            return False
        self.plan, self._opened_with = plan, opened_with
        self._dispatches = {d.entry_point: d for d in kernels_of(plan)} if plan is not None else {}
        for entry, dispatch in self._dispatches.items():
            own = opened_with.get(entry)
            if own is not None:
                self._origins[entry] = own.source
            elif dispatch.own is None or not is_edited(dispatch.own):
                self._origins[entry] = starting_text(dispatch)
            if entry not in self._texts and is_edited(dispatch.own):
                self._texts[entry] = running_text(dispatch)
        return True

    def dispatch(self, entry: str) -> Dispatch | None:
        """The first dispatch of a kernel; None where the plan has none."""
        return self._dispatches.get(entry)

    def fixed(self, entry: str) -> str:
        """Why a kernel cannot be edited, "" where it can."""
        dispatch = self._dispatches.get(entry)
        return "" if dispatch is None else fixed(dispatch)

    def origin(self, entry: str) -> str:
        """The text that an edit began with, and goes back to."""
        return self._origins.get(entry, "")

    def text(self, entry: str) -> str:
        """The text to show of a kernel."""
        return self._texts.get(entry, self.origin(entry))

    def first_line(self, entry: str) -> int:
        """The line of a text, from 1, at which reading begins: the first of the update, else the entry point."""
        dispatch, text = self._dispatches.get(entry), self.text(entry)
        if self.plan is not None and dispatch is not None and dispatch.updates and self.runs(entry):
            lit = update_code(self.plan, dispatch).of("g'")[1]
            if lit:
                return min(lit)
        return next((each.line for each in parse(text).entry_points if each.name == entry), 1)

    def edit(self, entry: str, text: str) -> None:
        """A person has changed a text."""
        self._texts[entry] = text

    def revert(self, entry: str) -> None:
        """Go back to the text of the file, or of the built-in kernel."""
        self._texts.pop(entry, None)

    def saved(self, entry: str, text: str) -> None:
        """A text lies in a file now."""
        self._saved[entry] = text

    def is_draft(self, entry: str) -> bool:
        """True of a text that would be lost, were it not kept."""
        text = self._texts.get(entry)
        return text is not None and text not in (self._origins.get(entry), self._saved.get(entry))

    @property
    def drafts(self) -> dict[str, str]:
        """The texts that were edited and are in no file, by entry point."""
        return {entry: text for entry, text in self._texts.items() if self.is_draft(entry)}

    def take_drafts(self, drafts: Mapping[str, str]) -> None:
        """Texts that were edited before the window was opened."""
        self._texts |= dict(list(drafts.items())[:MOST_DRAFTS])

    def runs(self, entry: str) -> bool:
        """True where the text on show is what the run executes."""
        dispatch = self._dispatches.get(entry)
        return dispatch is not None and running_text(dispatch) == self.text(entry)

    def can_revert(self, entry: str) -> bool:
        """True where a kernel or its text is another one than the run was opened with."""
        dispatch = self._dispatches.get(entry)
        return self.text(entry) != self.origin(entry) or (dispatch is not None and is_edited(dispatch.own))

    def messages(self, entry: str, picture: ShadersPicture) -> tuple[ShaderMessage, ...] | None:
        """What is wrong with the text on show; None while that is not known."""
        check = picture.check
        if check is None or (check.entry_point, check.text) != (entry, self.text(entry)):
            return None
        return check.messages

    def state(self, entry: str, picture: ShadersPicture) -> str:
        """In words: what the text on show is to the run."""
        dispatch = self._dispatches.get(entry)
        if dispatch is None:
            return ""
        if why := fixed(dispatch):
            return why
        saved = ", not saved" if self.is_draft(entry) else ""
        if self.runs(entry):
            if dispatch.own is None:
                return "built-in, runs"
            return f"edited, runs{saved}" if is_edited(dispatch.own) else f"{dispatch.own.file}, runs"
        if dispatch.own is None and self.text(entry) == self.origin(entry):
            return OTHER_FORM
        messages = self.messages(entry, picture)
        before = "the one before it" if dispatch.own is not None else "the built-in kernel"
        if messages:
            problems = fmt.plural(len(messages), "problem")
            return f"⚠ {problems}: {before} stays in place{saved}"
        ready = "compiles; Ctrl+Enter" if messages is not None else "Ctrl+Enter"
        return f"edited, {ready} runs the step again with it{saved}"


def trial_text(trial: ShaderTrial | None, entry: str) -> str:
    """What a run of an edited kernel came to, in a sentence."""
    if trial is None or trial.entry_point != entry:
        return "Ctrl+Enter runs the step again with the text on show, and compares it lane by lane."
    if trial.note:
        return f"Step {trial.step:,}: {trial.note}."
    of = fmt.count(trial.elements)
    if trial.elements < trial.of:
        of = f"{of} of {fmt.count(trial.of)} elements, from the start of each param"
    else:
        of = f"all {of} elements"
    differ = [row.lane for row in trial.rows if row.changed]
    what = (
        f"{', '.join(differ)} differ"
        if len(differ) > 1
        else f"{differ[0]} differs"
        if differ
        else "no bit differs"
    )
    return f"Step {trial.step:,} again, {trial.now} against {trial.against}: {what} ({of})."


COLUMNS = ("lane", "differ", "most, ULP", "before to f64", "now to f64", "where", "before", "now", "float64")
LANE, CHANGED, APART, ERROR_BEFORE, ERROR_NOW, WHERE, BEFORE, NOW, EXACT = range(len(COLUMNS))
MEANS = (
    "What the kernel writes",
    "Elements whose bits are others than by the kernel before",
    "The furthest that the two kernels are apart, in units of float32 at the larger of the values before and after the "
    "step (ULP)",
    "The furthest that the kernel before is from float64 (the oracle), in ULP; n/a where the lane is coded",
    "The furthest that the kernel of now is from float64 (the oracle), in ULP",
    "The element where the two are furthest apart, else where the kernel is furthest from float64",
    "Its value by the kernel before",
    "Its value by the kernel of now",
    "Its value in float64 from the same state",
)


def ulp_text(value: float) -> str:
    """A distance in ULP."""
    if math.isnan(value):
        return fmt.NA
    if math.isinf(value):
        return "not finite"
    return (
        f"{value:.2f}" if value < 1000 else f"{value:,.0f}" if value < 1e7 else plain_exponent(f"{value:.1e}")
    )


def row_texts(row: LaneChange, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """The cells of a lane."""
    where = f"{row.param}{fmt.multi_index(row.index, shapes.get(row.param, ()))}" if row.param else ""
    exact = fmt.NA if math.isnan(row.exact) else significant(row.exact, 10)
    return (
        row.lane, fmt.count(row.changed), ulp_text(row.apart_ulp), ulp_text(row.error_before), ulp_text(row.error_now),
        where, fmt.exact(row.before), fmt.exact(row.now), exact,
    )  # fmt: skip
