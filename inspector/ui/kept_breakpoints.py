"""Breakpoints in the settings of the user, so that they are there again when the window is opened next."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from PySide6.QtCore import QSettings

from inspector.diagnosis.watchpoints import parse_condition
from inspector.errors import UsageError
from inspector.runtime.breakpoints import Breakpoint

KEY = "breakpoints"


def keep(settings: QSettings, breakpoints: Iterable[Breakpoint]) -> None:
    """Write conditions and whether each is enabled in place of those kept before."""
    settings.remove(KEY)
    settings.beginWriteArray(KEY)
    for i, each in enumerate(breakpoints):
        settings.setArrayIndex(i)
        settings.setValue("condition", str(each.condition))
        settings.setValue("enabled", each.enabled)
    settings.endArray()


def kept(settings: QSettings) -> tuple[Breakpoint, ...]:
    """What was kept; what this version cannot read is left out."""
    found: list[Breakpoint] = []
    for i in range(settings.beginReadArray(KEY)):
        settings.setArrayIndex(i)
        with suppress(UsageError):
            condition = parse_condition(str(settings.value("condition", "")))
            found.append(Breakpoint(condition, str(settings.value("enabled", "true")).lower() != "false"))
    settings.endArray()
    return tuple(found)
