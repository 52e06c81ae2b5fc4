"""What a plot is made of: a view box, an axis to its left and one below it.

pyqtgraph's own plot widget brings menus and forms of some sixty widgets with it, which nothing here shows: most of the
time that a plot takes to make goes there.
"""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtWidgets import QGraphicsGridLayout, QGraphicsView, QSizePolicy, QWidget

BORDER = 1
"""Pixels around all of it."""


class PlotFrame(pg.GraphicsView):  # type: ignore[misc]
    """A view box between two axes that show its range, with `right` pixels left free beside it."""

    def __init__(
        self, *, left: pg.AxisItem, bottom: pg.AxisItem, right: int = 0, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.left, self.bottom = left, bottom
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.box = pg.ViewBox(enableMenu=False)
        self._grid = QGraphicsGridLayout()
        self._grid.setContentsMargins(BORDER, BORDER, BORDER + right, BORDER)
        self._grid.setSpacing(0)
        self._grid.addItem(self.box, 0, 1)
        for axis, row, column in ((left, 0, 0), (bottom, 1, 1)):
            axis.linkToView(self.box)
            # Above pictures, which lie at 0, and below all that is to be drawn over the axes.
            axis.setZValue(0.5)
            self._grid.addItem(axis, row, column)
        self._grid.setRowStretchFactor(0, 1)
        self._grid.setColumnStretchFactor(1, 1)
        self._frame = pg.GraphicsWidget()
        self._frame.setLayout(self._grid)
        self.setCentralItem(self._frame)

    def close(self) -> bool:
        """Close it as any widget: what is in it goes when the widget does."""
        return QGraphicsView.close(self)
