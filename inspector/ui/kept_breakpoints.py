"""Breakpoints in the settings of the user, so that they are there again when the window is opened next."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from PySide6.QtCore import QSettings

from inspector.diagnosis.stopping import parse_breakpoint
from inspector.errors import UsageError
from inspector.runtime.hits import Breakpoint

KEY = "breakpoints"
MOST_KEPT = 1000


def keep(settings: QSettings, breakpoints: Iterable[Breakpoint]) -> None:
    """Write conditions and whether each is enabled in place of those kept before."""
    settings.remove(KEY)
    settings.beginWriteArray(KEY)
    for i, each in enumerate(breakpoints):
        settings.setArrayIndex(i)
        settings.setValue("condition", each.text)
        settings.setValue("enabled", each.enabled)
    settings.endArray()


def kept(settings: QSettings) -> tuple[Breakpoint, ...]:
    """What was kept; what this version cannot read is left out."""
    found: list[Breakpoint] = []
    # What a file says of its length may be anything.
    for i in range(min(settings.beginReadArray(KEY), MOST_KEPT)):
        settings.setArrayIndex(i)
        with suppress(UsageError):
            condition, stopping = parse_breakpoint(str(settings.value("condition", "")))
            enabled = str(settings.value("enabled", "true")).lower() != "false"
            found.append(Breakpoint(condition, enabled, stopping=stopping))
    settings.endArray()
    return tuple(found)
