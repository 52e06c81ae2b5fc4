"""The decay that each element received against the size of its gradient: a plot a lane, and medians in words."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QToolButton, QVBoxLayout, QWidget

from inspector.byte_sizes import size_text
from inspector.decay import deciles
from inspector.runtime.commands import StartRace, WatchDecay
from inspector.runtime.decay_watch import DecayPicture
from inspector.runtime.snapshots import Snapshot
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.decay_chart import DecayChart, area_of
from inspector.ui.shortcuts import bind
from inspector.ui.view import LazyView
from inspector.ui.widgets import ElidedLabel, WrappedLabel

LANES = ("adamw", "adam-l2")
KEYS = (
    ("Ctrl+Return", "race AdamW and Adam with L2 from the start, and watch the decay of both"),
    ("W", "watch the decay from here on, or end that"),
    ("Home", "show all of it"),
    ("Ctrl+C", "copy the medians by decile of the gradient"),
)
NOTHING = (
    "How much of its weight decay each element received, against the size of its gradient. Start (Ctrl+Return) races "
    "AdamW and Adam with L2 from the start and watches both; Watch (W) watches the run as it is from here on. F10, F11 "
    "and F5 move it."
)
LATE = "decay in m from before is not counted"
NARROW = 300
"""Pixels that a plot takes at least beside another one."""


class DecayView(LazyView):
    """The plots have the same bins and the same axes, so that they can be read against each other."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.1

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("decay")
        self._pictures: tuple[DecayPicture, ...] = ()
        self._fitted: object = None
        self.charts: list[DecayChart] = []
        self.labels: list[ElidedLabel] = []
        self.words = ElidedLabel()
        self.start_button = _button("Start", KEYS[0], self.start)
        self.watch_button = _button("Watch", KEYS[1], self.toggle)
        line = QHBoxLayout()
        line.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        line.setSpacing(theme.GRID)
        line.addWidget(self.start_button)
        line.addWidget(self.watch_button)
        line.addWidget(self.words, 1)
        self.nothing = WrappedLabel()
        self.nothing.setText(NOTHING)
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.nothing.setContentsMargins(2 * theme.GRID, 0, 2 * theme.GRID, 0)
        self._grid = QGridLayout()
        self._grid.setContentsMargins(0, 0, 0, theme.GRID)
        self._grid.setSpacing(0)
        self._columns = 0
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addLayout(line)
        outer.addWidget(self.nothing, 1)
        outer.addLayout(self._grid, 1)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        keys = [("Ctrl+Return", self.start), ("W", self.toggle), ("Ctrl+C", self._copy)]
        bind(self, keys, inside=True)
        self._show(())

    def start(self) -> None:
        """Race the two, and watch both from the start."""
        self.command.emit(StartRace(LANES))
        self.command.emit(WatchDecay())

    def toggle(self) -> None:
        """Watch from here on, or end that."""
        self.command.emit(WatchDecay(on=not self._pictures))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Home shows all of it."""
        if event.key() == Qt.Key.Key_Home:
            self.show_all()
        else:
            super().keyPressEvent(event)

    def show_all(self) -> None:
        """Bring everything into view."""
        area = area_of([p.bins for p in self._pictures if p.bins is not None])
        for chart in self.charts:
            chart.fit(area)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Beside each other where there is room."""
        super().resizeEvent(event)
        self._arrange()

    # --- showing

    def _update(self, snapshot: Snapshot) -> None:
        if snapshot.decay is not self._pictures:
            self._show(snapshot.decay)

    def _show(self, pictures: tuple[DecayPicture, ...]) -> None:
        self._pictures = pictures
        self.nothing.setVisible(not pictures)
        self.watch_button.setText("End" if pictures else "Watch")
        self.words.setText(_summary(pictures))
        self._fit_charts(len(pictures))
        for picture, chart, label in zip(pictures, self.charts, self.labels, strict=True):
            chart.show_bins(picture.name, picture.bins)
            chart.setEnabled(not (picture.reason and picture.bins is None))
            chart.set_message(_why_empty(picture))
            label.setText(words_of(picture))
        # What was moved by hand stays, until the bins are others.
        grids = tuple(p.bins.grid for p in pictures if p.bins is not None)
        if grids != self._fitted:
            self._fitted = grids
            self.show_all()

    def _fit_charts(self, count: int) -> None:
        if count == len(self.charts):
            return
        while len(self.charts) > count:
            for widget in (self.charts.pop(), self.labels.pop()):
                self._grid.removeWidget(widget)
                widget.hide()
                widget.deleteLater()
        while len(self.charts) < count:
            chart, label = DecayChart(), ElidedLabel()
            chart.all_wanted.connect(self.show_all)
            if self.charts:
                # The axes are the same for all, wherever they are moved to.
                chart.box.setXLink(self.charts[0].box)
                chart.box.setYLink(self.charts[0].box)
            label.setContentsMargins(2 * theme.GRID, 0, theme.GRID, theme.GRID)
            self.charts.append(chart)
            self.labels.append(label)
        self._columns = 0
        self._arrange()

    def _arrange(self) -> None:
        count = len(self.charts)
        columns = max(min(count, self.width() // NARROW), 1)
        if columns == self._columns or not count:
            return
        self._columns = columns
        for row in range(self._grid.rowCount()):
            self._grid.setRowStretch(row, 0)
        for at, (chart, label) in enumerate(zip(self.charts, self.labels, strict=True)):
            row, column = divmod(at, columns)
            self._grid.addWidget(chart, 2 * row, column)
            self._grid.addWidget(label, 2 * row + 1, column)
            self._grid.setRowStretch(2 * row, 1)
        for column in range(self._grid.columnCount()):
            self._grid.setColumnStretch(column, int(column < columns))

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(as_text(self._pictures))


def _button(text: str, key: tuple[str, str], act: object) -> QToolButton:
    button = QToolButton()
    button.setText(text)
    button.setToolTip(f"{key[1][0].upper()}{key[1][1:]} ({key[0]})")
    button.clicked.connect(act)
    return button


def _summary(pictures: tuple[DecayPicture, ...]) -> str:
    known = [p for p in pictures if p.since is not None]
    if not known:
        return ""
    first = known[0]
    words = [
        f"steps {first.since + 1:,} to {first.step:,}"
        if first.bins is not None and first.since is not None
        else ""
    ]
    if any(p.again for p in known):
        words.append("begun again where the run went back")
    elif any(p.since and p.optimizer == "adam-l2" for p in known):
        words.append(LATE)
    words.append(f"{size_text(sum(p.nbytes for p in known))} of GPU memory")
    return " · ".join(word for word in words if word)


def _why_empty(picture: DecayPicture) -> str:
    if picture.reason and picture.bins is None:
        return picture.reason
    if picture.bins is None:
        return (
            "Begins once this step is complete."
            if picture.since is None
            else "No step has run since watching began."
        )
    if not picture.bins.total:
        return "No element was decayed: λ or the learning rate is 0, or no gradient arrived."
    return ""


def words_of(picture: DecayPicture) -> str:
    """What is in the plot, for those who read it: the medians of the smallest and largest gradients, and the rest."""
    bins = picture.bins
    rows = deciles(bins) if bins is not None else ()
    if bins is None or not rows:
        return ""
    low, high = (fmt.number(rows[k].share, 3) for k in (0, -1))
    words = [f"median share {low} in the smallest tenth of g′, {high} in the largest"]
    left = (
        (bins.silent, "without a gradient"), (bins.undecayed, "without decay"),
        (bins.reversed, "whose decay arrived with the opposite sign"), (bins.outside, "outside the bins"),
    )  # fmt: skip
    rest = [f"{count:,} {what}" for count, what in left if count]
    if rest:
        words.append(f"not drawn of {fmt.plural(picture.elements, 'element')}: {', '.join(rest)}")
    return " · ".join(words)


def as_text(pictures: tuple[DecayPicture, ...]) -> str:
    """The medians by decile of every run, with tabs between columns."""
    tables = [(p.name, deciles(p.bins)) for p in pictures if p.bins is not None]
    shown = [(name, rows) for name, rows in tables if rows]
    head = ["decile", *(f"{name} {what}" for name, _ in shown for what in ("RMS g′", "share"))]
    lines = [head]
    for k in range(len(shown[0][1]) if shown else 0):
        cells = [f"{x!r}" for _, rows in shown for x in (rows[k].gradient, rows[k].share)]
        lines.append([str(k + 1), *cells])
    return "\n".join("\t".join(line) for line in lines)
