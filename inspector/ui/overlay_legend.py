"""The legend of the recordings under a run: what each line looks like, whose it is, and how to take it away."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QToolButton, QWidget

from inspector.runtime.beside import Overlay
from inspector.runtime.commands import DropOverlay
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.line_sample import Symbol, line_sample
from inspector.ui.overlay_style import DASHES, SIGNS, SYMBOLS, colour_of
from inspector.ui.widgets import ElidedLabel

NAME_WIDTH = 220
"""Pixels at most of a name; the whole path is its tooltip."""


class OverlayLegend(QWidget):
    """One line of the run and of each recording under it; hidden where there is none.

    `command` carries what takes one away. Samples differ by dash and colour, or by one alone where the other says what
    a line is of.
    """

    command = Signal(object)

    def __init__(self, *, coloured: bool = True, dashed: bool = True, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("overlay_legend")
        self._coloured, self._dashed = coloured, dashed
        self._overlays: tuple[Overlay, ...] = ()
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(theme.GRID, 0, theme.GRID, 0)
        self._row.setSpacing(theme.GRID)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.hide()
        theme.changes().changed.connect(self._rebuild)

    def show_overlays(self, overlays: tuple[Overlay, ...]) -> None:
        """Name these recordings."""
        before, self._overlays = self._overlays, overlays
        if [_shown(o) for o in before] != [_shown(o) for o in overlays]:
            self._rebuild()

    @property
    def texts(self) -> list[str]:
        """The names in the legend, with their signs."""
        return [label.text() for label in self.findChildren(ElidedLabel)]

    def _rebuild(self) -> None:
        while (item := self._row.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        self.setVisible(bool(self._overlays))
        if not self._overlays:
            return
        self._add_sample(None)
        self._row.addWidget(QLabel("this run"))
        for overlay in self._overlays:
            self._row.addSpacing(2 * theme.GRID)
            self._add_sample(overlay)
            self._add_name(overlay)
        self._row.addStretch(1)

    def _add_sample(self, overlay: Overlay | None) -> None:
        colour = theme.colours().text
        if overlay is not None and self._coloured:
            colour = colour_of(overlay.slot)
        dash = DASHES[overlay.slot] if overlay is not None and self._dashed else ()
        symbol: Symbol = SYMBOLS[overlay.slot] if overlay is not None and not self._dashed else ""
        sample = QLabel()
        sample.setPixmap(line_sample(colour, dash, symbol))
        self._row.addWidget(sample)

    def _add_name(self, overlay: Overlay) -> None:
        name = ElidedLabel()
        name.setText(f"{SIGNS[overlay.slot]} {_words(overlay)}")
        name.setToolTip(_tooltip(overlay))
        width = QFontMetrics(self.font()).horizontalAdvance(name.text()) + 2 * theme.GRID
        name.setMaximumWidth(min(width, NAME_WIDTH))
        name.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        name.setMinimumWidth(min(width, 40))
        self._row.addWidget(name, width)
        close = QToolButton()
        close.setText("✕")
        close.setAutoRaise(True)
        close.setAccessibleName(f"remove {overlay.name}")
        close.setToolTip(f"Take {overlay.name} away (Ctrl+Shift+U takes all)")
        close.clicked.connect(lambda _checked=False, path=overlay.path: self.command.emit(DropOverlay(path)))
        self._row.addWidget(close)


def _shown(overlay: Overlay) -> tuple[object, ...]:
    return overlay.path, overlay.slot, overlay.loading, overlay.state, overlay.steps


def _words(overlay: Overlay) -> str:
    if overlay.loading:
        return f"{overlay.name}, reading …"
    ending = {"recording": ", being recorded", "interrupted": ", interrupted"}.get(overlay.state, "")
    return f"{overlay.name}{ending}"


def _tooltip(overlay: Overlay) -> str:
    steps = overlay.steps
    span = f"steps {steps.start:,} to {steps.stop - 1:,}" if steps else "no steps"
    return f"{overlay.path}: {fmt.plural(len(steps), 'step')}, {span}"
