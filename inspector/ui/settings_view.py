"""The settings of the window on one page: what is changed holds at once, or from when the page says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFormLayout,
    QFrame,
    QLabel,
    QLineEdit,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from inspector.runtime.snapshots import Snapshot
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.options import FONT_SCALES, THEMES, UNDO_MB, Options, parse_undo
from inspector.ui.view import View

THEME_TEXT = {"system": "as the system", "light": "light", "dark": "dark"}
BEST = "the best there is"
NEXT_SOURCE = "from the next source that is opened (Ctrl+R opens this one again)"
NEXT_START = "from the next start of the window"
FIELD_WIDTH = 260


class SettingsView(View):
    """`changed` carries the Options after each change."""

    changed = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("settings")
        self.options = Options()
        self.adapters: Callable[[], tuple[str, ...]] = tuple
        """The names of the adapters that were found so far."""
        self._offered: tuple[str, ...] = ()
        self._page = QWidget()
        self._form = QFormLayout(self._page)
        self._form.setContentsMargins(4 * theme.GRID, 3 * theme.GRID, 4 * theme.GRID, 3 * theme.GRID)
        self._form.setVerticalSpacing(2 * theme.GRID)
        self._form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapLongRows)
        self._form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.FieldsStayAtSizeHint)
        self._make_fields()
        scroll = QScrollArea()
        scroll.setObjectName("settings_scroll")
        scroll.setWidget(self._page)
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll)
        self.setFocusProxy(self.theme)
        self.show_options(self.options)

    def _make_fields(self) -> None:
        self.theme = self._combo("theme", THEMES, [THEME_TEXT[t] for t in THEMES])
        self.theme.setToolTip("The colours of the window")
        self._add("&Theme", self.theme)
        self.font_scale = self._combo("font_scale", FONT_SCALES, [fmt.percent(s, 0) for s in FONT_SCALES])
        self.font_scale.setToolTip("The size of all text beside that of the system")
        self._add("Te&xt size", self.font_scale, NEXT_START)
        self.adapter = QComboBox()
        self.adapter.setObjectName("adapter_option")
        self.adapter.setEditable(True)
        self.adapter.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.adapter.setToolTip(
            "The GPU to run on, by a part of its name; `inspector doctor` lists them. --adapter goes before it."
        )
        line = self.adapter.lineEdit()
        assert line is not None
        line.setPlaceholderText(BEST)
        line.setObjectName("adapter_field")
        line.setAccessibleName("GPU adapter")
        line.editingFinished.connect(self._on_edited)
        self.adapter.activated.connect(self._on_edited)
        self._add("GPU &adapter", self.adapter, NEXT_SOURCE)
        self.undo_mb = QLineEdit()
        self.undo_mb.setObjectName("undo_option")
        self.undo_mb.setPlaceholderText("as much as there is room for")
        self.undo_mb.setToolTip(
            "MB (10⁶ bytes) on the device for going back without running again. --undo-mb goes before it."
        )
        self.undo_mb.editingFinished.connect(self._on_edited)
        self._add("Memory for &going back, MB", self.undo_mb, NEXT_SOURCE)
        self.start_page = QCheckBox("Begin with the start page where no source is named")
        self.start_page.setObjectName("start_page_option")
        self.start_page.setToolTip(
            "Otherwise the window begins with the live model, paused before its first dispatch"
        )
        self.start_page.toggled.connect(self._on_edited)
        self._form.addRow("", self.start_page)
        self.defaults = QPushButton("All as &delivered")
        self.defaults.setObjectName("defaults_button")
        self.defaults.setToolTip("Set everything on this page back to what it is at first")
        self.defaults.clicked.connect(lambda: self._take(Options()))
        self._form.addRow("", self.defaults)
        self.note = QLabel()
        self.note.setWordWrap(True)
        self._form.addRow(self.note)

    def show_options(self, options: Options, kept_in: str = "") -> None:
        """Show these; `kept_in` is the file they are in."""
        self.options = options
        blocked = [QSignalBlocker(w) for w in (self.theme, self.font_scale, self.start_page)]
        self.theme.setCurrentIndex(self.theme.findData(options.theme))
        if (at := self.font_scale.findData(options.font_scale)) < 0:
            self.font_scale.addItem(fmt.percent(options.font_scale, 0), options.font_scale)
            at = self.font_scale.count() - 1
        self.font_scale.setCurrentIndex(at)
        self.adapter.setEditText(options.adapter)
        self.undo_mb.setText("" if options.undo_mb is None else str(options.undo_mb))
        self.start_page.setChecked(options.start_page)
        for each in blocked:
            each.unblock()
        if kept_in:
            self.note.setText(f"Kept in {kept_in}.")

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Offer the adapters that were found."""
        adapters = self.adapters()
        if adapters != self._offered and not self.adapter.view().isVisible():
            self._offered = adapters
            typed = self.adapter.currentText()
            self.adapter.clear()
            self.adapter.addItems(["", *dict.fromkeys(adapters)])
            self.adapter.setItemData(0, BEST, Qt.ItemDataRole.ToolTipRole)
            self.adapter.setEditText(typed)

    def _combo(self, name: str, values: tuple[object, ...], texts: list[str]) -> QComboBox:
        combo = QComboBox()
        combo.setObjectName(f"{name}_option")
        for text, value in zip(texts, values, strict=True):
            combo.addItem(text, value)
        combo.activated.connect(self._on_edited)
        return combo

    def _add(self, label: str, field: QWidget, when: str = "") -> None:
        name = QLabel(label)
        name.setBuddy(field)
        field.setAccessibleName(label.replace("&", ""))
        field.setFixedWidth(FIELD_WIDTH)
        if when:
            field.setToolTip(f"{field.toolTip()}\nHolds {when}.")
            beside = QWidget()
            column = QVBoxLayout(beside)
            column.setContentsMargins(0, 0, 0, 0)
            column.setSpacing(2)
            column.addWidget(field)
            remark = QLabel(when)
            remark.setEnabled(True)
            remark.setObjectName("remark")
            column.addWidget(remark)
            self._form.addRow(name, beside)
        else:
            self._form.addRow(name, field)

    def _on_edited(self) -> None:
        try:
            undo_mb = parse_undo(self.undo_mb.text())
        except ValueError:
            low, high = UNDO_MB
            self.note.setText(
                f"⚠ Memory for going back is a whole number of MB, {low} to {high:,}, or nothing."
            )
            return
        self._take(
            replace(
                self.options,
                theme=self.theme.currentData(),
                font_scale=self.font_scale.currentData(),
                adapter=self.adapter.currentText().strip(),
                undo_mb=undo_mb,
                start_page=self.start_page.isChecked(),
            )
        )

    def _take(self, options: Options) -> None:
        if options != self.options:
            self.show_options(options)
            self.changed.emit(options)
