"""What takes back a change that a person made: the command that sets what was before. No Qt."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.floats import shortest
from inspector.number_words import true_minus
from inspector.runtime import commands as c
from inspector.runtime.snapshots import Snapshot
from inspector.shader_edit import is_edited
from inspector.variants import changes


@dataclass(frozen=True, slots=True)
class Change:
    """Something that can be undone, in words, and the commands that undo it and do it again."""

    text: str
    undo: tuple[c.Command, ...]
    redo: tuple[c.Command, ...]


def change_of(command: c.Command, before: Snapshot) -> Change | None:
    """The change that `command` makes of a run as it is `before`; None where it changes nothing, or cannot be undone.

    Steps have keys of their own to go back by.
    """
    made = _setting(command, before) or _breakpoint(command, before) or _beside(command, before)
    if made is None:
        return None
    text, undo = made
    return None if undo == command else Change(text, (undo,), (command,))


def _setting(command: c.Command, before: Snapshot) -> tuple[str, c.Command] | None:
    match command:
        case c.SetHyper(name, value):
            old = getattr(before.hyper, name, None)
            if not isinstance(old, int | float):
                return None
            return f"{name} {true_minus(shortest(old))} → {true_minus(shortest(value))}", c.SetHyper(
                name, float(old)
            )
        case c.SetSchedule(text):
            return f"schedule {before.schedule} → {text}", c.SetSchedule(before.schedule)
        case c.SetStats(level):
            return f"statistics {before.stats} → {level}", c.SetStats(before.stats)
        case c.SetVariant(variant):
            if before.plan is None:
                return None
            old_form = before.plan.variant
            return f"form: {changes(old_form, variant)}", c.SetVariant(old_form)
        case c.TryShader(entry_point, _):
            check = before.shaders.check
            if before.plan is None or (check is not None and check.text == command.text and check.messages):
                return None
            own = before.plan.variant.own.get(entry_point)
            old_text = own.source if own is not None and is_edited(own) else None
            return f"the kernel {entry_point}", c.TryShader(entry_point, old_text)
    return None


def _breakpoint(command: c.Command, before: Snapshot) -> tuple[str, c.Command] | None:
    if not isinstance(command, c.SetBreakpoint | c.RemoveBreakpoint):
        return None
    old = next((each for each in before.breakpoints if each.condition == command.condition), None)
    if old is None:
        if isinstance(command, c.RemoveBreakpoint):
            return None
        return f"add breakpoint {command.condition}", c.RemoveBreakpoint(command.condition)
    undo = c.SetBreakpoint(old.condition, old.enabled, old.stopping)
    if isinstance(command, c.RemoveBreakpoint):
        return f"remove breakpoint {old.text}", undo
    if (command.enabled, command.stopping or old.stopping) == (old.enabled, old.stopping):
        return None
    return f"change breakpoint {old.text}", undo


def _beside(command: c.Command, before: Snapshot) -> tuple[str, c.Command] | None:
    match command:
        case c.SetBookmark(step, text):
            old = next((mark.text for mark in before.bookmarks if mark.step == step), "")
            if old == text:
                return None
            what = "change" if old and text else "put" if text else "remove"
            return f"{what} bookmark at step {step:,}", c.SetBookmark(step, old)
        case c.DropOverlay(str(path)):
            return "remove an overlay", c.ShowOverlay(path)
        case c.ShowOverlay(path):
            return "lay a recording under the run", c.DropOverlay(path)
    return None
