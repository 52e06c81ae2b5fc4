"""Findings by cause as a tree: its columns, of which those that the detail tells go where there is no room."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QSplitter, QTreeView, QWidget

from inspector.ui import theme
from inspector.ui.findings_model import CAUSE, COUNT, MESSAGE, PARAM, SEVERITY, STEP, FindingsModel
from inspector.ui.tables import LEAST_ROWS, row_height

SAMPLES = ("Non-finite gradients", "▲ warning", "10,000", "findings", "h.11.attn.qkv.weight", "")
TOLD_BELOW = (COUNT, MESSAGE)
LEAST_MESSAGE = 100
"""Pixels beside the other columns from which on a count and the beginning of a message are worth showing."""

LIST_AND_DETAIL = (1200, 800)
"""Their parts of the room where the list has more rows than fit."""
BESIDE_FROM = 800
"""Pixels of width from which on the detail is beside the list."""


class FindingsTree(QTreeView):
    """A row a cause, below it a row a finding. No scroll bar along its columns, which would take the room of a row."""

    def __init__(self, model: FindingsModel) -> None:
        super().__init__()
        self.setObjectName("findings-tree")
        self.setAccessibleName("Findings by cause")
        self.setModel(model)
        self.setUniformRowHeights(True)
        self.setAlternatingRowColors(True)
        self.setFrameShape(QTreeView.Shape.NoFrame)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setExpandsOnDoubleClick(False)
        self.setMinimumHeight(LEAST_ROWS * row_height())
        self.setIndentation(4 * theme.GRID)
        metrics = self.fontMetrics()
        self._widths = [
            metrics.horizontalAdvance(sample) + (4 if column else 8) * theme.GRID
            for column, sample in enumerate(SAMPLES)
        ]
        self._narrow: bool | None = None
        self.header().setStretchLastSection(True)

    @property
    def wanted_height(self) -> int:
        """Pixels in which all its rows can be seen at once."""
        model, rows = self.model(), 0
        for row in range(model.rowCount()):
            index = model.index(row, 0)
            rows += 1 + (model.rowCount(index) if self.isExpanded(index) else 0)
        each = self.rowHeight(self.model().index(0, 0)) if rows else row_height()
        return self.header().sizeHint().height() + rows * each + 2 * self.frameWidth() + theme.GRID

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give the columns their widths anew where another set of them fits."""
        super().resizeEvent(event)
        kept = sum(self._widths[column] for column in (CAUSE, SEVERITY, STEP, PARAM))
        narrow = self.width() < kept + theme.scaled(LEAST_MESSAGE)
        if narrow == self._narrow:
            return
        self._narrow = narrow
        header = self.header()
        # The last one shown takes what is left; once it did, it does not give any of that back.
        header.setStretchLastSection(False)
        for column in TOLD_BELOW:
            header.setSectionHidden(column, narrow)
        last = PARAM if narrow else MESSAGE
        for column, width in enumerate(self._widths):
            header.resizeSection(column, header.minimumSectionSize() if column == last else width)
        header.setStretchLastSection(True)


class TreeAndDetail(QSplitter):
    """The tree with the detail beside it where there is room, else below it.

    Below, the tree has the height that its rows need, at most its part, until a person moves what parts them.
    """

    def __init__(self, tree: FindingsTree, detail: QWidget) -> None:
        super().__init__(Qt.Orientation.Vertical)
        self._tree = tree
        self._moved = False
        self.addWidget(tree)
        self.addWidget(detail)
        self.setChildrenCollapsible(False)
        self.splitterMoved.connect(self._on_moved)
        tree.expanded.connect(self.share_room)
        tree.collapsed.connect(self.share_room)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Turn it where there is room or no longer any, and share the room anew."""
        wide = self.width() >= theme.scaled(BESIDE_FROM)
        along = Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical
        if self.orientation() != along:
            self.setOrientation(along)
            self._moved = False
        super().resizeEvent(event)
        self.share_room()

    def share_room(self) -> None:
        """Give each its part, unless a person chose."""
        if self._moved:
            return
        of_tree, of_detail = LIST_AND_DETAIL
        if self.orientation() == Qt.Orientation.Vertical:
            of_tree = min(self._tree.wanted_height, self.height() * of_tree // (of_tree + of_detail))
            of_detail = self.height() - of_tree
        self.setSizes([of_tree, of_detail])

    def _on_moved(self) -> None:
        self._moved = True
