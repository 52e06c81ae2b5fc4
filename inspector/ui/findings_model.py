"""Findings as a tree: a row a cause, below it a row a finding, the cause that began last at the end."""

from __future__ import annotations

from html import escape
from typing import Any

from PySide6.QtCore import QAbstractItemModel, QModelIndex, QObject, QSize, Qt
from PySide6.QtGui import QColor

from inspector.finding_words import ICONS, Filter, FindingGroups, Group, cause
from inspector.findings import Finding, Severity
from inspector.ui import theme
from inspector.ui.tables import FIGURES, WORDS, AnyIndex, row_height

COLUMNS = ("cause", "severity", "step", "findings", "param", "message")
MEANS = (
    "What the findings below it have in common; of a finding the dispatch that it was found at, if it was at one.",
    "error: the step is wrong. warning: it probably is not what was meant. info: worth knowing.",
    "The step in which it was found; of a cause the first.",
    "How many findings a cause has.",
    "The param that it was found in, where it is one.",
    "What was found, in words with its figures.",
)
CAUSE, SEVERITY, STEP, COUNT, PARAM, MESSAGE = range(len(COLUMNS))
AT_ONCE = 200
"""More new findings than this are taken in by a reset, which costs less than a row at a time."""
TOP = QModelIndex()


class FindingsModel(QAbstractItemModel):
    """What passes the filter, by cause. An index of a cause has the id 0, one of a finding its cause's row + 1."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.findings: tuple[Finding, ...] = ()
        """All there are, shown or not."""
        self.filter = Filter()
        self.tree = FindingGroups()
        self.shown = 0

    # --- what it holds

    def show_findings(self, findings: tuple[Finding, ...]) -> bool:
        """Take over the findings; where they only grew, rows are added. False where it had to begin anew."""
        old = len(self.findings)
        if len(findings) >= old and findings[:old] == self.findings:
            new = self.filter.of(findings[old:])
            self.findings = findings
            if len(new) > AT_ONCE:
                self._begin_anew()
                return False
            for finding in new:
                self._add(finding)
            return True
        self.findings = findings
        self._begin_anew()
        return False

    def show_filter(self, wanted: Filter) -> None:
        """Show what passes another filter."""
        if wanted != self.filter:
            self.filter = wanted
            self._begin_anew()

    def group_at(self, index: AnyIndex) -> Group | None:
        """The cause of a row, of its own or above it."""
        if not index.isValid():
            return None
        at = index.internalId()
        return self.tree.groups[at - 1 if at else index.row()]

    def finding_at(self, index: AnyIndex) -> Finding | None:
        """The finding of a row; of a cause its first."""
        group = self.group_at(index)
        if group is None:
            return None
        return group.findings[index.row() if index.internalId() else 0]

    def index_of(self, finding: Finding) -> QModelIndex:
        """The row of a finding, or of the same one told anew; invalid where it is not shown."""
        at = self.tree.group_of(finding.rule)
        if at is None:
            return QModelIndex()
        there = self.tree.groups[at].findings
        place = finding.step, finding.param, finding.index
        told = [i for i, each in enumerate(there) if (each.step, each.param, each.index) == place]
        if not told:
            return QModelIndex()
        # A recording may have told less of it, and one with NaN in its evidence does not equal its copy.
        row = next((i for i in told if there[i] == finding), told[0])
        return self.index(row, 0, self.index(at, 0))

    def _begin_anew(self) -> None:
        self.beginResetModel()
        shown = self.filter.of(self.findings)
        self.tree, self.shown = FindingGroups(shown), len(shown)
        self.endResetModel()

    def _add(self, finding: Finding) -> None:
        at = self.tree.group_of(finding.rule)
        self.shown += 1
        if at is None:
            row = len(self.tree.groups)
            self.beginInsertRows(TOP, row, row)
            self.tree.add(finding)
            self.endInsertRows()
            return
        above, row = self.index(at, 0), len(self.tree.groups[at].findings)
        self.beginInsertRows(above, row, row)
        self.tree.add(finding)
        self.endInsertRows()
        self.dataChanged.emit(above, self.index(at, MESSAGE))

    # --- Qt's model

    def index(self, row: int, column: int, parent: AnyIndex = TOP) -> QModelIndex:
        """See Qt."""
        if not self.hasIndex(row, column, parent):
            return QModelIndex()
        return self.createIndex(row, column, parent.row() + 1 if parent.isValid() else 0)

    def parent(self, child: AnyIndex | None = None) -> Any:
        """The cause of a finding; see Qt."""
        if child is None:
            return super().parent()
        at = child.internalId() if child.isValid() else 0
        return self.createIndex(at - 1, 0, 0) if at else QModelIndex()

    def rowCount(self, parent: AnyIndex = TOP) -> int:
        """Causes at the top, findings below each."""
        if not parent.isValid():
            return len(self.tree.groups)
        if parent.internalId() or parent.column():
            return 0
        return len(self.tree.groups[parent.row()].findings)

    def columnCount(self, parent: AnyIndex = TOP) -> int:
        """See COLUMNS."""
        return len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> Any:
        """The column's name, and what it means."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[section]
        if role in (Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleDescriptionRole):
            return MEANS[section]
        return _side(section) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell; the severity as glyph, word and colour."""
        finding, group, column = self.finding_at(index), self.group_at(index), index.column()
        if finding is None or group is None:
            return None
        is_group = not index.internalId()
        if role == Qt.ItemDataRole.DisplayRole:
            return _group_cell(group, column) if is_group else _finding_cell(finding, column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _side(column)
        if role == Qt.ItemDataRole.SizeHintRole and column == CAUSE:
            # Rows of one height, as in the tables.
            return QSize(0, row_height())
        if role == Qt.ItemDataRole.ForegroundRole and column == SEVERITY:
            return severity_colour(group.severity if is_group else finding.severity)
        if role == Qt.ItemDataRole.ToolTipRole:
            names = ", ".join(group.params[:20]) if column == PARAM and is_group else ""
            text = finding.message if column == MESSAGE else names or _finding_cell(finding, column)
            # Qt takes a tooltip with tags in it for rich text, and names come from files.
            return f"<span>{escape(text)}</span>" if text else None
        return None


def severity_colour(severity: Severity) -> QColor:
    """The colour of a severity; glyph and word say it as well."""
    colours = theme.colours()
    return {"error": colours.error, "warning": colours.warning, "info": colours.info}[severity]


def _side(column: int) -> Qt.AlignmentFlag:
    return FIGURES if column in (STEP, COUNT) else WORDS


def _group_cell(group: Group, column: int) -> str:
    first = group.findings[0]
    return (
        cause(group.rule),
        f"{ICONS[group.severity]} {group.severity}",
        f"{group.first_step:,}",
        f"{len(group.findings):,}",
        group.params_text,
        first.message,
    )[column]


def _finding_cell(finding: Finding, column: int) -> str:
    where = "whole step" if finding.dispatch is None else f"dispatch {finding.dispatch}"
    return (
        "gradients" if finding.dispatch == 0 else where,
        f"{ICONS[finding.severity]} {finding.severity}",
        f"{finding.step:,}",
        "",
        (finding.param or "") + (f"[{finding.index}]" if finding.index is not None else ""),
        finding.message,
    )[column]
