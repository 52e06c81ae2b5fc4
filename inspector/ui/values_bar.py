"""The line above the values: how they are written, where to go, which columns, and as a table or an image."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAction, QResizeEvent
from PySide6.QtWidgets import QCheckBox, QComboBox, QHBoxLayout, QLineEdit, QMenu, QToolButton, QWidget

from inspector.looking import Moment
from inspector.stores import LANES, Lane
from inspector.ui import theme
from inspector.ui.value_forms import FORM_HELP, FORMS, Form
from inspector.ui.values_model import MOMENT_HELP
from inspector.ui.widgets import CheckedLook

MOMENTS: tuple[Moment, ...] = ("before", "after", "difference")


class ValuesBar(QWidget):
    """Says what a person chose; knows no values."""

    form_chosen = Signal(str)
    index_entered = Signal(str)
    columns_chosen = Signal()
    image_wanted = Signal(bool)
    find_wanted = Signal()
    save_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        row = QHBoxLayout(self)
        row.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        row.setSpacing(theme.GRID)
        self.form_combo = QComboBox()
        self.form_combo.addItems(FORMS)
        self.form_combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.form_combo.setMinimumContentsLength(4)
        for i, form in enumerate(FORMS):
            self.form_combo.setItemData(i, FORM_HELP[form], Qt.ItemDataRole.ToolTipRole)
        self.form_combo.setAccessibleName("how values are written")
        self.form_combo.currentTextChanged.connect(self._on_form)
        self.index_field = QLineEdit()
        self.index_field.setPlaceholderText("go to: 1234 or 12, 3")
        self.index_field.setToolTip("A flat index, or one index a dimension. Enter goes there.")
        self.index_field.setAccessibleName("go to index")
        self.index_field.setMinimumWidth(40)
        self.index_field.returnPressed.connect(lambda: self.index_entered.emit(self.index_field.text()))
        row.addWidget(self.form_combo)
        row.addWidget(self.index_field, 1)
        self.lane_boxes: dict[Lane, QCheckBox] = {}
        for lane in LANES:
            box = QCheckBox(lane)
            box.setChecked(True)
            box.setToolTip(f"Show the columns of {lane}.")
            box.toggled.connect(self.columns_chosen)
            self.lane_boxes[lane] = box
            row.addWidget(box)
        self.moment_actions: dict[Moment, QAction] = {}
        menu = QMenu(self)
        menu.setToolTipsVisible(True)
        for moment in MOMENTS:
            action = menu.addAction({"difference": "Difference"}.get(moment, moment.capitalize()))
            action.setCheckable(True)
            action.setChecked(moment != "difference")
            action.setToolTip(f"Each lane {MOMENT_HELP[moment]}")
            action.toggled.connect(self.columns_chosen)
            self.moment_actions[moment] = action
        self.columns = self._button("Columns", "Before, after or difference of each lane")
        self.columns.setMenu(menu)
        self.columns.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.image = self._button("Image", "The param as an image, one row a row of the matrix (M)")
        CheckedLook(self.image)
        self.image.toggled.connect(self.image_wanted)
        self.find_button = self._button("Find", "Look for a value (Ctrl+F)")
        self.find_button.clicked.connect(self.find_wanted)
        self.save = self._button("CSV…", "Write the selected rows, or all of the param, to a CSV file (E)")
        self.save.clicked.connect(self.save_wanted)
        for button in (self.columns, self.image, self.find_button, self.save):
            row.addWidget(button)
        self._on_form(self.form_combo.currentText())
        # What does not fit has its key, and is the first to go.
        self._may_hide = (self.save, self.find_button, self.columns)
        self._needed = [
            row.minimumSize().width() - sum(b.sizeHint().width() + theme.GRID for b in self._may_hide[:i])
            for i in range(len(self._may_hide))
        ]
        self.setMinimumWidth(self._needed[-1] - self._may_hide[-1].sizeHint().width() - theme.GRID)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave out what there is no room for."""
        super().resizeEvent(event)
        for button, needed in zip(self._may_hide, self._needed, strict=True):
            button.setVisible(self.width() >= needed)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes that are ticked, of those that are kept."""
        return tuple(lane for lane, box in self.lane_boxes.items() if box.isChecked() and box.isEnabled())

    @property
    def moments(self) -> tuple[Moment, ...]:
        """The columns of each that are ticked."""
        return tuple(m for m in MOMENTS if self.moment_actions[m].isChecked())

    def _on_form(self, text: str) -> None:
        form: Form = next(f for f in FORMS if f == text)
        self.form_combo.setToolTip(f"How values are written: {FORM_HELP[form]}.")
        self.form_chosen.emit(form)

    def _button(self, text: str, tip: str) -> QToolButton:
        button = QToolButton()
        button.setText(text)
        button.setToolTip(tip)
        button.setAccessibleName(tip)
        button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        return button
