"""Which elements of a param are asked for: those in sight once scrolling rests, or those that are copied."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QGuiApplication

from inspector.runtime.commands import ViewValues
from inspector.ui import format as fmt
from inspector.ui.paged_table import PagedTable
from inspector.ui.values_model import PENDING

FETCH_AFTER_MS = 30
MARGIN_ROWS = 64
"""Fetched beyond either edge, so that a turn of the wheel shows values at once."""
MOST_COPIED = 100_000


class ValuesFetch(QObject):
    """Asks for elements of `param` while `seen`; of its rows only those to copy while they are not `shown`.

    `said` carries what became of copying.
    """

    command = Signal(object)
    said = Signal(str)

    def __init__(self, paged: PagedTable, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._paged, self._model = paged, paged.model
        self.param = ""
        self.seen = False
        self.shown = True
        self._requested: ViewValues | None = None
        self._copy: tuple[int, int] | None = None
        self._timer = QTimer(self, singleShot=True, interval=FETCH_AFTER_MS)
        self._timer.timeout.connect(self._fetch)
        paged.moved.connect(self.soon)
        paged.copy_wanted.connect(self.copy_selection)

    def soon(self) -> None:
        """Ask for what is in sight, once scrolling rests."""
        self._timer.start()

    def forget(self) -> None:
        """What was asked of another source says nothing about this one."""
        self._requested = None

    def show_param(self, name: str) -> None:
        """Ask for elements of another param from now on."""
        if name != self.param:
            self.param, self._copy = name, None

    def stop(self) -> None:
        """Nobody looks: no values have to be read back."""
        self.seen = False
        self._timer.stop()
        self._requested = None
        self.command.emit(ViewValues(None))

    def arrived(self) -> None:
        """Values came: those that were to be copied may be among them."""
        if self._copy and self._model.has(*self._copy):
            self._put_on_clipboard(*self._copy)

    def copy_selection(self) -> None:
        """Put the selected rows on the clipboard as tab-separated text, fetching what is not at hand."""
        rows = self._paged.selected_rows()
        if rows is None:
            return
        start, stop = rows
        if stop - start > MOST_COPIED:
            self.said.emit(f"⚠ At most {MOST_COPIED:,} rows can be copied: select fewer.")
        elif self._model.has(start, stop):
            self._put_on_clipboard(start, stop)
        else:
            self._copy = rows
            self.said.emit(f"Fetching {stop - start:,} rows to copy {PENDING}")
            self._fetch()

    def _put_on_clipboard(self, start: int, stop: int) -> None:
        self._copy = self._requested = None  # back to what is in sight
        QGuiApplication.clipboard().setText(self._model.as_text(start, stop))
        self.said.emit(f"Copied {fmt.plural(stop - start, 'row')}.")
        self.soon()

    def _fetch(self) -> None:
        if not self.seen:
            return
        numel, raw = self._paged.numel, self._model.raw
        if not numel or not (self.shown or self._copy):
            wanted = ViewValues(None)
        elif self._copy:
            wanted = ViewValues(self.param, self._copy[0], self._copy[1] - self._copy[0], raw)
        else:
            start = self._paged.top
            stop = min(start + self._paged.visible_rows + 1, numel)
            if self._covers(start, stop):
                return
            start, stop = max(start - MARGIN_ROWS, 0), min(stop + MARGIN_ROWS, numel)
            wanted = ViewValues(self.param, start, stop - start, raw)
        if wanted != self._requested:
            self._requested = wanted
            self.command.emit(wanted)

    def _covers(self, start: int, stop: int) -> bool:
        """True where the newest request takes in elements [start, stop)."""
        asked = self._requested
        if asked is None or (asked.param, asked.raw) != (self.param, self._model.raw):
            return False
        return asked.start <= start and stop <= asked.start + asked.count
