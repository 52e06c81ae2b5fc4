"""What the diagnosis found, by cause, newest last; and the evidence and advice of the one selected."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtGui import QGuiApplication, QKeySequence, QShowEvent
from PySide6.QtWidgets import (
    QLabel,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from inspector.finding_words import as_text
from inspector.findings import Finding
from inspector.runtime.commands import WeighPolicies
from inspector.runtime.searching import AT_GRADIENTS, place_of
from inspector.runtime.snapshots import Snapshot
from inspector.ui import theme
from inspector.ui.finding_detail import detail_html
from inspector.ui.findings_bar import FindingsBar
from inspector.ui.findings_model import FindingsModel
from inspector.ui.findings_tree import FindingsTree, TreeAndDetail
from inspector.ui.shortcuts import Keys, bind
from inspector.ui.tables import LEAST_ROWS, row_height
from inspector.ui.view import View

EMPTY = "Nothing found so far. What a step's numbers show to be wrong is listed here."
FILTERED = "None of the findings passes the filter."
KEYS = (
    ("Enter", "go to the step, dispatch and element of the finding"),
    ("→ / ←", "show and hide the findings of a cause"),
    ("/", "filter by words"),
    ("S", "show all, warnings and errors, or errors alone"),
    ("Ctrl+C", "copy it as text; of a cause all findings"),
    ("Y", "policies side by side for its step"),
)
HELP = "Select a finding to see its evidence. A click goes to it where that loses nothing, Enter always."
OPEN_UP_TO = 30
"""While there are no more findings than this, causes show theirs from the start."""
AROUND = 16.0
"""Steps that the plots show before and after the one of a finding."""


class FindingsView(View):
    """A tree of causes over the detail of the row selected, with a filter above."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.1
    policies_wanted = Signal()
    """Policies are being worked out for the step of a finding: whoever shows them comes to the front."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("findings")
        self._snapshot: Snapshot | None = None
        self._shown: tuple[Finding, ...] | None = None
        self._sought: Finding | None = None
        self._opened: set[str] = set()
        self._moved = False
        """True once a person has moved what parts list and detail."""
        self.model = FindingsModel(self)
        self._make_tree()
        self._make_bar()
        self._make_detail()
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(self.bar)
        outer.addWidget(self._splitter, 1)
        outer.addWidget(self.empty, 1)
        theme.changes().changed.connect(self._show_detail)
        keys: Keys = [
            ("/", self.bar.words.setFocus),
            ("S", self.bar.next_severity),
            ("Y", self.weigh),
            (QKeySequence.StandardKey.Copy, self.copy),
        ]
        bind(self, keys, inside=True)
        self._show_emptiness()

    def _make_tree(self) -> None:
        tree = self.tree = FindingsTree(self.model)
        tree.selectionModel().currentRowChanged.connect(self._show_detail)
        tree.clicked.connect(self._on_clicked)
        tree.activated.connect(self._on_activated)
        self.setFocusProxy(tree)

    def _make_bar(self) -> None:
        self.bar = FindingsBar()
        self.bar.filtered.connect(self._on_filter)
        self.bar.left.connect(self.tree.setFocus)
        self.bar.copy.clicked.connect(self.copy)
        self.bar.policies.clicked.connect(self.weigh)

    def _make_detail(self) -> None:
        self.detail = QLabel(HELP)
        self.detail.setTextFormat(Qt.TextFormat.RichText)
        self.detail.setWordWrap(True)
        self.detail.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        self.detail.setContentsMargins(8, theme.GRID, 8, theme.GRID)
        self.detail.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        scroll = QScrollArea()
        scroll.setAccessibleName("The finding in full")
        scroll.setFrameShape(QScrollArea.Shape.NoFrame)
        scroll.setWidgetResizable(True)
        scroll.setWidget(self.detail)
        scroll.setMinimumHeight(LEAST_ROWS * row_height())
        self._splitter = TreeAndDetail(self.tree, scroll)
        self.empty = QLabel(EMPTY)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setWordWrap(True)
        self.empty.setContentsMargins(8, 8, 8, 8)

    # --- from outside

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """List what has been found up to this moment."""
        self._snapshot = snapshot
        if self.isVisible():
            self._update()
        stop = snapshot.stop
        sought = stop.finding if stop is not None and stop.aimed else snapshot.sought
        before, self._sought = self._sought, sought
        if sought is not None and sought is not before:
            self._land(sought)

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came while nobody looked."""
        super().showEvent(event)
        self._update()

    def current(self) -> Finding | None:
        """The finding of the row selected; of a cause its first."""
        return self.model.finding_at(self.tree.currentIndex())

    def copy(self) -> None:
        """The finding selected as text on the clipboard; of a cause all its findings."""
        index = self.tree.currentIndex()
        finding, group = self.model.finding_at(index), self.model.group_at(index)
        if finding is not None and group is not None:
            text = as_text(finding) if index.internalId() else group.as_text()
            QGuiApplication.clipboard().setText(text)

    def weigh(self) -> None:
        """Have policies set side by side for the step of the finding, where it is about non-finite gradients."""
        finding = self.current()
        if finding is None or finding.rule not in AT_GRADIENTS:
            return
        self._select(finding)
        self.policies_wanted.emit()
        self.command.emit(WeighPolicies(finding.step, finding.param, finding.index))

    # --- keeping up

    def _update(self) -> None:
        findings = self._snapshot.findings if self._snapshot else ()
        if findings is self._shown:
            return
        bar = self.tree.verticalScrollBar()
        at_end, value, before = bar.value() == bar.maximum(), bar.value(), self.current()
        whole_cause = self.tree.currentIndex().isValid() and not self.tree.currentIndex().internalId()
        self._shown = findings
        grew = self.model.show_findings(findings)
        if not grew:
            self._look_again(before, whole_cause=whole_cause)
        self._open_new_causes()
        self._show_emptiness()
        # The newest comes last: keep it in sight for whoever looks at the end.
        if at_end:
            self.tree.scrollToBottom()
        elif not grew:
            bar.setValue(value)
        if self.current() is not before:
            self._show_detail()

    def _look_again(self, before: Finding | None, *, whole_cause: bool = False) -> None:
        """After the rows began anew: what was open and selected is so again, a cause as a whole if it was that."""
        for row, group in enumerate(self.model.tree.groups):
            if group.rule in self._opened:
                self.tree.setExpanded(self.model.index(row, 0), True)
        if before is not None:
            index = self.model.index_of(before)
            if index.isValid():
                self.tree.setCurrentIndex(index.parent() if whole_cause else index)
        self._show_detail()

    def _open_new_causes(self) -> None:
        if self.model.shown > OPEN_UP_TO:
            return
        for row, group in enumerate(self.model.tree.groups):
            if group.rule not in self._opened:
                self._opened.add(group.rule)
                self.tree.setExpanded(self.model.index(row, 0), True)

    def _show_emptiness(self) -> None:
        self._splitter.setVisible(self.model.shown > 0)
        self.empty.setVisible(not self.model.shown)
        self.empty.setText(FILTERED if self.model.findings else EMPTY)
        self.bar.setVisible(bool(self.model.findings))
        self._splitter.share_room()

    def _show_detail(self) -> None:
        index, finding = self.tree.currentIndex(), self.current()
        group = None if index.internalId() else self.model.group_at(index)
        self.detail.setText(HELP if finding is None else detail_html(finding, group))
        self.bar.allow(
            copy=finding is not None, policies=finding is not None and finding.rule in AT_GRADIENTS
        )

    # --- what a person does

    def _on_filter(self) -> None:
        before = self.current()
        self._opened = {
            group.rule
            for row, group in enumerate(self.model.tree.groups)
            if self.tree.isExpanded(self.model.index(row, 0))
        } | (self._opened - {group.rule for group in self.model.tree.groups})
        self.model.show_filter(self.bar.filter())
        self._look_again(before)
        self._show_emptiness()

    def _on_clicked(self, index: QModelIndex) -> None:
        finding = self.model.finding_at(index)
        if finding is None:
            return
        self._select(finding)
        if self._loses_nothing(finding):
            self.command.emit(place_of(finding))

    def _on_activated(self, index: QModelIndex) -> None:
        finding = self.model.finding_at(index)
        if finding is not None:
            self._select(finding)
            self.command.emit(place_of(finding))

    def _land(self, finding: Finding) -> None:
        """The run was sent to this one."""
        self._update()
        index = self.model.index_of(finding)
        if index.isValid():
            self.tree.setCurrentIndex(index)
        self._select(finding)

    def _select(self, finding: Finding) -> None:
        # No run has a step before 0: half of the plots would be empty.
        start = max(finding.step - AROUND, 0.0)
        self.range_wanted.emit(start, start + 2 * AROUND)
        if finding.param is None:
            return
        if finding.index is None:
            self.param_selected.emit(finding.param)
        else:
            self.element_selected.emit(finding.param, finding.index)

    def _loses_nothing(self, finding: Finding) -> bool:
        """False of a live run that has gone on since: what lies behind the step would have to run again."""
        snapshot = self._snapshot
        if snapshot is None or snapshot.mode == "running":
            return False
        here = snapshot.cursor is not None and snapshot.cursor.step == finding.step
        return here or snapshot.recorded is not None
