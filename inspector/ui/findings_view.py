"""What the diagnosis found: a list, newest last, and the evidence and advice of the one selected."""

from __future__ import annotations

from html import escape
from typing import Any

from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtGui import QColor, QShowEvent
from PySide6.QtWidgets import QLabel, QScrollArea, QSplitter, QVBoxLayout, QWidget

from inspector.diagnosis.findings import Finding, Severity
from inspector.runtime.commands import Seek
from inspector.runtime.snapshots import Snapshot
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.tables import LEAST_ROWS, AnyIndex, ColumnsModel, dense_table, row_height, set_widths
from inspector.ui.view import View

COLUMNS = ("step", "severity", "param", "message")
STEP, SEVERITY, PARAM, MESSAGE = range(4)
ICONS: dict[Severity, str] = {"error": "✖", "warning": "▲", "info": "●"}
EMPTY = "Nothing found so far. What a step's numbers show to be wrong is listed here."
KEYS = (("Enter", "go to the step of the finding"),)
HELP = "Select a finding to see its evidence. Enter or a double click goes to its step."


class FindingsModel(ColumnsModel):
    """One row a finding."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS = frozenset({STEP})

    def __init__(self) -> None:
        super().__init__()
        self.findings: tuple[Finding, ...] = ()

    def show_findings(self, findings: tuple[Finding, ...]) -> None:
        """Take over the list; where it only grew, rows are added and the selection stays."""
        old = len(self.findings)
        if old and findings[:old] == self.findings:
            if len(findings) > old:
                self.beginInsertRows(QModelIndex(), old, len(findings) - 1)
                self.findings = findings
                self.endInsertRows()
            return
        self.beginResetModel()
        self.findings = findings
        self.endResetModel()

    def row_total(self) -> int:
        """The findings."""
        return len(self.findings)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell; the severity as glyph, word and colour."""
        finding, column = self.findings[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            severity = f"{ICONS[finding.severity]} {finding.severity}"
            return (f"{finding.step:,}", severity, finding.param or "", finding.message)[column]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.ForegroundRole and column == SEVERITY:
            return severity_colour(finding.severity)
        if role == Qt.ItemDataRole.ToolTipRole:
            return finding.message if column == MESSAGE else finding.param
        return None


class FindingsView(View):
    """The list over the detail. Selecting a finding selects its param everywhere."""

    PERIOD_S = 0.1

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("findings")
        self._snapshot: Snapshot | None = None
        self._shown: tuple[Finding, ...] | None = None
        self._shown_detail: Finding | None = None
        self.model = FindingsModel()
        self.table = dense_table(self.model, "findings-list")
        set_widths(self.table, ("100,000", "▲ warning", "h.11.attn.qkv.weight", ""))
        self.table.horizontalHeader().setStretchLastSection(True)
        self.table.selectionModel().currentRowChanged.connect(self._on_row_changed)
        self.table.clicked.connect(self._on_clicked)
        self.table.activated.connect(self._on_activated)
        self.setFocusProxy(self.table)
        self.detail = QLabel(HELP)
        self.detail.setTextFormat(Qt.TextFormat.RichText)
        self.detail.setWordWrap(True)
        self.detail.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        self.detail.setContentsMargins(8, theme.GRID, 8, theme.GRID)
        self.detail.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        scroll = QScrollArea()
        scroll.setFrameShape(QScrollArea.Shape.NoFrame)
        scroll.setWidgetResizable(True)
        scroll.setWidget(self.detail)
        scroll.setMinimumHeight(LEAST_ROWS * row_height())
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._splitter.addWidget(self.table)
        self._splitter.addWidget(scroll)
        self._splitter.setChildrenCollapsible(False)
        self._splitter.hide()
        self.empty = QLabel(EMPTY)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setWordWrap(True)
        self.empty.setContentsMargins(8, 8, 8, 8)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(self._splitter, 1)
        outer.addWidget(self.empty, 1)
        theme.changes().changed.connect(self._show_detail)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """List what has been found up to this moment."""
        self._snapshot = snapshot
        if self.isVisible():
            self._update()

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came while nobody looked."""
        super().showEvent(event)
        self._update()

    def _update(self) -> None:
        findings = self._snapshot.findings if self._snapshot else ()
        if findings is self._shown:
            return
        bar = self.table.verticalScrollBar()
        at_end = bar.value() == bar.maximum()
        self._shown = findings
        self.model.show_findings(findings)
        self._splitter.setVisible(bool(findings))
        self.empty.setVisible(not findings)
        # The newest comes last: keep it in sight for whoever looks at the end.
        if at_end:
            self.table.scrollToBottom()
        if self._current() != self._shown_detail:
            self._show_detail()

    def _current(self) -> Finding | None:
        row = self.table.currentIndex().row()
        return self.model.findings[row] if 0 <= row < len(self.model.findings) else None

    def _on_row_changed(self) -> None:
        self._show_detail()

    def _on_clicked(self) -> None:
        finding = self._current()
        if finding is not None and finding.param:
            self.param_selected.emit(finding.param)

    def _on_activated(self) -> None:
        finding = self._current()
        if finding is not None:
            self._on_clicked()
            self.command.emit(Seek(finding.step))

    def _show_detail(self) -> None:
        finding = self._shown_detail = self._current()
        self.detail.setText(detail_html(finding) if finding else HELP)


def severity_colour(severity: Severity) -> QColor:
    """The colour of a severity; glyph and word say it as well."""
    colours = theme.colours()
    return {"error": colours.error, "warning": colours.warning, "info": colours.info}[severity]


def detail_html(finding: Finding) -> str:
    """A finding in full: message, where, evidence, advice."""
    place = [f"step {finding.step:,}"]
    if finding.dispatch is not None:
        place.append("gradients" if finding.dispatch == 0 else f"dispatch {finding.dispatch}")
    if finding.param is not None:
        place.append(finding.param + (f"[{finding.index:,}]" if finding.index is not None else ""))
    colour = severity_colour(finding.severity).name()
    evidence = ", ".join(f"{escape(str(k))} = {escape(_evidence(v))}" for k, v in finding.evidence.items())
    parts = [
        f'<b><span style="color:{colour}">{ICONS[finding.severity]}</span> {escape(finding.message)}</b>',
        escape(" · ".join(place) + f" · rule {finding.rule}"),
    ]
    if evidence:
        parts.append(f"Evidence: {evidence}")
    if finding.advice:
        parts.append(f"Advice: {escape(finding.advice)}")
    return "".join(f'<p style="margin:2px 0">{part}</p>' for part in parts)


def _evidence(value: float | int | str) -> str:
    if isinstance(value, str):
        return value
    return fmt.count(value) if isinstance(value, int) else fmt.number(value)
