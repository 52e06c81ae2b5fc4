"""The memory bill: what training this model, or one of any size, takes by optimizer, precision and devices."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from inspector.byte_sizes import size_text
from inspector.errors import UsageError
from inspector.memory_bill import (
    LEFT_OUT,
    MAX_DEVICES,
    PRECISIONS,
    STAGES,
    Bill,
    bills_of,
    parse_count,
    shapes_of_count,
)
from inspector.runtime.memory_picture import MemoryPicture
from inspector.runtime.snapshots import Snapshot
from inspector.state_memory import MIRROR, BufferUse
from inspector.ui import theme
from inspector.ui.memory_bars import BarDelegate, Legend
from inspector.ui.memory_model import BAR, SAMPLES, BillRows
from inspector.ui.shortcuts import bind
from inspector.ui.tables import dense_table, set_widths
from inspector.ui.view import LazyView
from inspector.ui.widgets import ElidedLabel, WrappedLabel

KEYS = (
    ("M", "another number of elements"),
    ("D", "the number of devices"),
    ("Z", "the next ZeRO stage"),
    ("R", "the next precision"),
)
EVERY = "all precisions"
STAGE_TEXTS = ("0: nothing sharded", "1: state", "2: + gradients", "3: + weights")
NO_SOURCE = "Give a number of elements, as in 70B, or open a source."
LEAST_WIDTH = 88
"""Pixels of a list of choices in a narrow panel."""
BAR_WIDTH = 160
"""Pixels that a bar has at least."""


class MemoryView(LazyView):
    """A bar to choose by over the table of bills; below it what the run itself has allocated."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.5

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("memory")
        self._picture: MemoryPicture | None = None
        self._bills: tuple[Bill, ...] = ()
        self._count: int | None = None
        """The number of elements that was typed; None for the params of the source."""
        self.model = BillRows()
        self.table = dense_table(self.model, "memory-bills")
        self.table.setAccessibleName("memory by optimizer and precision")
        set_widths(self.table, SAMPLES, stretch=BAR)
        self.table.horizontalHeader().setMinimumSectionSize(3 * theme.GRID)
        self.table.setColumnWidth(BAR, BAR_WIDTH)
        self.table.setItemDelegateForColumn(BAR, BarDelegate(self.table))
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setFocusProxy(self.table)
        self.elements = QLineEdit()
        self.devices = QSpinBox()
        self.stage = QComboBox()
        self.precision = QComboBox()
        self.said = WrappedLabel()
        self.said.setContentsMargins(theme.GRID, 0, theme.GRID, theme.GRID)
        self.legend = Legend()
        self.run = ElidedLabel()
        self.run.setObjectName("memory-of-run")
        self.run.setContentsMargins(theme.GRID, 0, theme.GRID, theme.GRID)
        self._make_bar()
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addLayout(self._bar)
        outer.addWidget(self.said)
        outer.addWidget(self.table, 1)
        outer.addWidget(self.legend)
        outer.addWidget(self.run)
        self._show_bills()
        self._show_use()

    def _make_bar(self) -> None:
        self.elements.setPlaceholderText("as open")
        self.elements.setFixedWidth(self.fontMetrics().horizontalAdvance("116,017,920 W"))
        self.elements.setClearButtonEnabled(True)
        self.elements.setToolTip(
            "A number of elements instead of the model that is open, as in 70B or 1.3e9 (M)"
        )
        self.elements.editingFinished.connect(self._on_elements)
        self.devices.setRange(1, MAX_DEVICES)
        self.devices.setGroupSeparatorShown(True)
        self.devices.setToolTip("Devices that it is spread over (D)")
        self.devices.valueChanged.connect(self._show_bills)
        for box in (self.stage, self.precision):
            # As wide as there is room for: in a narrow panel the text is cut, and the list has it whole.
            box.setMinimumWidth(LEAST_WIDTH)
        self.stage.addItems(STAGE_TEXTS)
        self.stage.setCurrentIndex(STAGES[-1])
        self.stage.setToolTip("What ZeRO shards over the devices; the rest lies on each of them whole (Z)")
        self.stage.currentIndexChanged.connect(self._show_bills)
        self.precision.addItems([EVERY, *(p.name for p in PRECISIONS)])
        self.precision.setToolTip("Which precisions are shown (R)")
        self.precision.currentIndexChanged.connect(self._show_bills)
        self._bar = QHBoxLayout()
        self._bar.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, theme.GRID)
        self._bar.setSpacing(2 * theme.GRID)
        named = (
            ("Elements", self.elements), ("Devices", self.devices), ("ZeRO", self.stage), ("", self.precision),
        )  # fmt: skip
        for name, widget in named:
            if name:
                label = QLabel(name)
                label.setBuddy(widget)
                self._bar.addWidget(label)
            widget.setAccessibleName(name or "precision")
            self._bar.addWidget(widget)
        self._bar.addStretch(1)
        acts: tuple[Callable[[], None], ...] = (
            self._edit_elements, self._edit_devices, lambda: _next(self.stage), lambda: _next(self.precision),
        )  # fmt: skip
        bind(self.table, [(key, act) for (key, _), act in zip(KEYS, acts, strict=True)])

    def _edit_elements(self) -> None:
        self.elements.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.elements.selectAll()

    def _edit_devices(self) -> None:
        self.devices.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.devices.selectAll()

    def _update(self, snapshot: Snapshot) -> None:
        if snapshot.memory is self._picture:
            return
        before, self._picture = self._picture, snapshot.memory
        self._show_use()
        billed = before is not None and snapshot.memory is not None and before.bills is snapshot.memory.bills
        if self._count is None and not billed:
            self._work_out()

    def _on_elements(self) -> None:
        try:
            text = self.elements.text().strip()
            count = parse_count(text) if text else None
            if text and count is None:
                raise UsageError(
                    f"{text!r} is no number of elements: write it as in 70B, 1.3e9 or 116,017,920."
                )
        except UsageError as error:
            self.said.setText(str(error))
            return
        if self.elements.hasFocus():
            self.table.setFocus(Qt.FocusReason.OtherFocusReason)
        if count != self._count or self.said.text() == "":
            self._count = count
            self._work_out()
        else:
            self._show_bills()

    def _work_out(self) -> None:
        if self._count is not None:
            self._bills = bills_of(shapes_of_count(self._count))
        else:
            self._bills = self._picture.bills if self._picture else ()
        self._show_bills()

    def _show_bills(self) -> None:
        wanted = self.precision.currentText()
        shown = tuple(b for b in self._bills if wanted in (EVERY, b.precision.name))
        self.model.show(shown, self.devices.value(), self.stage.currentIndex())
        self.said.setText(self._words())

    def _words(self) -> str:
        if not self._bills:
            return NO_SOURCE
        where = "the model that is open" if self._count is None else "taken as square matrices"
        return f"{self._bills[0].elements:,} elements, {where}. Left out: {LEFT_OUT}."

    def _show_use(self) -> None:
        use = self._picture.use if self._picture else ()
        if not use:
            self.run.setText("What the run itself has allocated stands here once a source is on a device.")
            self.run.setToolTip("")
            return
        lanes = " · ".join(f"{_name(u)} {size_text(u.computed)}" for u in use)
        for lane, what, nbytes in self._picture.in_place if self._picture else ():
            lanes += f" ({size_text(nbytes)} of {lane}: {what})"
        scratch = self._picture.scratch_bytes if self._picture else 0
        looking = (self._picture.map_bytes, self._picture.undo_bytes) if self._picture else (0, 0)
        computed, allocated = sum(u.computed for u in use), sum(u.allocated for u in use)
        self.run.setText(
            f"This run: {lanes} = {size_text(computed)} computed; {size_text(allocated)} allocated on the device, "
            f"of which {size_text(allocated - computed)} are gaps between params. Beside it "
            f"{size_text(looking[0])} for the map, {size_text(looking[1])} for going back"
            + (f", {size_text(scratch)} of scratch buffers." if scratch else ".")
        )
        rows = "".join(
            f"<tr><td>{_name(u)}</td><td align='right'>{u.computed:,}</td><td align='right'>{u.allocated:,}</td></tr>"
            for u in use
        )
        for name, nbytes in zip(("map", "going back"), looking, strict=True):
            rows += f"<tr><td>{name}</td><td></td><td align='right'>{nbytes:,}</td></tr>"
        self.run.setToolTip(
            f"<table cellpadding='2'><tr><td>bytes</td><td>computed</td><td>allocated</td></tr>{rows}</table>"
        )


def _name(use: BufferUse) -> str:
    return "f16 mirror" if use.name == MIRROR else use.name


def _next(box: QComboBox) -> None:
    box.setCurrentIndex((box.currentIndex() + 1) % box.count())
