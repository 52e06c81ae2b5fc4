"""Choosing what to plot: a metric and the params it is of, by typing a few letters of either."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractItemView, QFrame, QGridLayout, QLabel, QLineEdit, QPushButton

from inspector.runtime.plotted import Fall
from inspector.ui import theme
from inspector.ui.board_model import MOST_IN_ONE, Choice, Plot
from inspector.ui.fuzzy import Texts
from inspector.ui.text_list import TextList

ALL = "all params together"
MOST_LISTED = 300
"""Of tens of thousands; a few letters more find the others."""


class LineChooser(QFrame):
    """Lies over the plots while it is open. `chosen` carries the Plot made and whether it is to be one of its own."""

    chosen = Signal(object, bool)
    left = Signal()

    def __init__(self, parent: object = None) -> None:
        super().__init__(parent)  # type: ignore[arg-type]
        self.setObjectName("line_chooser")
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.setAutoFillBackground(True)
        self._choices: tuple[Choice, ...] = ()
        self._texts = Texts(())
        self._params: tuple[str, ...] = ()
        self._param_texts = Texts(())
        self.metric_edit, self.param_edit = QLineEdit(), QLineEdit()
        self._found: tuple[Choice, ...] = ()
        """The metrics that are listed."""
        self.metrics, self.params = TextList(), TextList()
        self.params.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        for edit, name in ((self.metric_edit, "metric"), (self.param_edit, "param")):
            edit.setPlaceholderText(f"{name}: type a few letters")
            edit.setAccessibleName(f"Find a {name}")
            edit.setToolTip(f"A few letters of the {name}, in their order; Down goes to the list")
            edit.setClearButtonEnabled(True)
            edit.installEventFilter(self)
        for listed, name in ((self.metrics, "Metrics"), (self.params, "Params")):
            listed.setAccessibleName(name)
            listed.activated.connect(lambda _index: self._take(new=False))
        self.params.setToolTip("Ctrl or Shift and a click choose several, each a line.")
        self.words = QLabel(" ")
        self.words.setWordWrap(True)
        self.add_button = QPushButton("Add to the plot (Enter)")
        self.new_button = QPushButton("New plot (Ctrl+Enter)")
        self.add_button.setToolTip("Draw the metric of the params chosen in the plot that is selected")
        self.new_button.setToolTip("Draw it in a plot of its own, below the others")
        self.add_button.clicked.connect(lambda: self._take(new=False))
        self.new_button.clicked.connect(lambda: self._take(new=True))
        grid = QGridLayout(self)
        grid.setContentsMargins(*(2 * theme.GRID,) * 4)
        grid.setSpacing(theme.GRID)
        for column, widgets in enumerate(
            (
                (self.metric_edit, self.metrics, self.add_button),
                (self.param_edit, self.params, self.new_button),
            )
        ):
            for row, widget in zip((0, 1, 3), widgets, strict=True):
                grid.addWidget(widget, row, column)
            grid.setColumnStretch(column, 1)
        grid.addWidget(self.words, 2, 0, 1, 2)
        self.metric_edit.textChanged.connect(self._list_metrics)
        self.param_edit.textChanged.connect(self._list_params)
        self.metrics.selectionModel().currentRowChanged.connect(self._tell)
        self.params.selectionModel().selectionChanged.connect(self._tell)
        self.hide()

    # --- what there is

    def offer(self, choices: Sequence[Choice], params: Sequence[str]) -> None:
        """What may be chosen; nothing changes where it is the same."""
        if tuple(choices) != self._choices:
            self._choices = tuple(choices)
            self._texts = Texts(choice.text for choice in self._choices)
            self._list_metrics()
        if tuple(params) != self._params:
            self._params = tuple(params)
            self._param_texts = Texts(self._params)
            self._list_params()

    def open(self, *, can_add: bool, param: str = "") -> None:
        """Show it; `can_add` where there is a plot to add to, `param` is the one selected in the window."""
        self.add_button.setEnabled(can_add)
        if param and not self.param_edit.text():
            self._list_params()
            self._select_param(param)
        self.show()
        self.raise_()
        self.metric_edit.setFocus(Qt.FocusReason.PopupFocusReason)
        self.metric_edit.selectAll()
        self._tell()

    def _list_metrics(self) -> None:
        places = self._texts.find(self.metric_edit.text(), len(self._choices))
        self._found = tuple(self._choices[i] for i in places)
        self.metrics.rows.show([each.text for each in self._found], [each.meaning for each in self._found])
        self.metrics.set_row(0)
        self._tell()

    def _list_params(self) -> None:
        query = self.param_edit.text()
        names = [self._params[i] for i in self._param_texts.find(query, MOST_LISTED)]
        self.params.rows.show([*([] if query else [ALL]), *names])
        self.params.set_row(0)
        self._tell()

    def _select_param(self, name: str) -> None:
        listed = self.params.rows.texts
        if name not in listed and name in self._params:
            # Of tens of thousands not all are listed.
            self.params.rows.show((*listed[:1], name, *listed[1:]))
        if name in self.params.rows.texts:
            self.params.set_row(self.params.rows.texts.index(name))

    # --- what is chosen

    @property
    def choice(self) -> Choice | None:
        """The metric that is marked."""
        row = self.metrics.row
        return self._found[row] if 0 <= row < len(self._found) else None

    def made(self) -> Plot | None:
        """The plot of what is marked; None where that is nothing."""
        choice = self.choice
        names = ["" if text == ALL else text for text in self.params.selected]
        if choice is None or (not names and not choice.of_run):
            return None
        if choice.fall_of is not None:
            return Plot(fall=Fall(choice.fall_of, names[0]))
        lines = choice.lines(names)
        return Plot(log=_is_log(choice)).with_lines(lines)

    def _tell(self, *_changed: object) -> None:
        choice, made = self.choice, self.made()
        words = "Nothing matches." if choice is None else f"{choice.text}: {choice.meaning}"
        if choice is not None and made is None:
            words += " · Choose a param."
        elif made is not None and len(made.lines) == MOST_IN_ONE:
            words += f" · A plot takes {MOST_IN_ONE} lines at most."
        self.words.setText(words)
        self.new_button.setEnabled(made is not None)

    def _take(self, *, new: bool) -> None:
        made = self.made()
        if made is not None:
            self.chosen.emit(made, new or not self.add_button.isEnabled() or made.fall is not None)

    # --- keys

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The arrows walk through the list below the line that is typed in."""
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            listed = self.metrics if watched is self.metric_edit else self.params
            step = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1}.get(Qt.Key(event.key()), 0)
            if step:
                listed.set_row(listed.row + step)
                return True
        return super().eventFilter(watched, event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter adds, with Ctrl to a plot of its own; Escape leaves."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._take(new=bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier))
        elif event.key() == Qt.Key.Key_Escape:
            self.hide()
            self.left.emit()
        else:
            super().keyPressEvent(event)


def _is_log(choice: Choice) -> bool:
    """What spans decades begins on a logarithmic axis."""
    name = choice.metric
    return choice.percentiles_of is not None or name.endswith(("_norm", "_max", "_ratio")) or "_p" in name
