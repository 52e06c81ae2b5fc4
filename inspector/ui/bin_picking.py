"""From a bin of a histogram to its elements, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal

from inspector.runtime.commands import FindValue
from inspector.runtime.value_finding import Found
from inspector.stores import Lane
from inspector.value_search import exponent_query


class BinPicker(QObject):
    """Sends what to look for; `found` carries param and index of the element that was found for it."""

    command = Signal(object)
    found = Signal(str, int)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._sought: FindValue | None = None
        self._last: Found | None = None

    def pick(self, exponent: int, lanes: Sequence[Lane], param: str | None) -> None:
        """Look for an element whose magnitude lies in a power of two, in one of `lanes`; again for the next one."""
        if not lanes or self._sought is not None:
            return
        query, last = exponent_query(exponent), self._last
        same = (
            last is not None
            and (last.asked.query, last.asked.param) == (query, param)
            and last.asked.lane in lanes
        )
        if last is None or not same:
            self._sought = FindValue(query, lanes[0], param, asker="histogram")
        else:
            at = None if last.param is None else (last.param, last.index)
            self._sought = FindValue(query, last.asked.lane, param, at, asker="histogram")
        self.command.emit(self._sought)

    def take(self, found: Found | None) -> None:
        """Take the answer, where this is one."""
        if self._sought is None or found is None or found.asked != self._sought:
            return
        self._sought, self._last = None, found
        if found.param is not None:
            self.found.emit(found.param, found.index)
