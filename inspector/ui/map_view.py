"""The mega-buffer map: four lanes side by side, their params, and what the current dispatch binds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QHideEvent, QShowEvent, QStandardItemModel
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QToolButton, QVBoxLayout, QWidget

from inspector.floats import bits
from inspector.mapping import QUANTITIES, Quantity
from inspector.plan import Plan
from inspector.runtime.commands import FindValue, ViewMap
from inspector.runtime.map_picture import MapImage
from inspector.runtime.snapshots import Snapshot
from inspector.stepping import Cursor
from inspector.stores import Lane
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.map_canvas import KEYS, MapCanvas
from inspector.ui.map_geometry import brackets
from inspector.ui.map_legend import QUANTITY_HELP, QUANTITY_TEXT
from inspector.ui.moment import absent_text
from inspector.ui.view import View
from inspector.ui.widgets import ElidedLabel, SteadyLabel
from inspector.value_search import Query

FRAME_MS = 16


class MapView(View):
    """Asks the worker for the pixels on screen, at most once a frame, and draws the last it got."""

    LOCAL_KEYS = KEYS

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.canvas = MapCanvas(self)
        self.setFocusProxy(self.canvas)
        self.quantity = QComboBox(self)
        self.quantity.setObjectName("map_quantity")
        for quantity in QUANTITIES:
            self.quantity.addItem(QUANTITY_TEXT[quantity], quantity)
            self.quantity.setItemData(
                self.quantity.count() - 1, QUANTITY_HELP[quantity], Qt.ItemDataRole.ToolTipRole
            )
        self.note = ElidedLabel(self)
        self.note.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.scale = SteadyLabel(parent=self)
        self._plan: Plan | None = None
        self._cursor: Cursor | None = None
        self._asked = ViewMap(None)
        self._reasons: Mapping[Quantity, str] = MappingProxyType({})
        self._sought: FindValue | None = None
        """The element of the pixel that was clicked, of those under it."""
        self._frame = QTimer(self, singleShot=True, interval=FRAME_MS)
        self._frame.timeout.connect(self._ask)
        self.quantity.currentIndexChanged.connect(self._on_quantity)
        self.quantity.setToolTip(QUANTITY_HELP[self.shown_quantity()])
        self.canvas.viewport_changed.connect(self._on_viewport)
        self.canvas.param_picked.connect(self._on_picked)
        self.canvas.element_picked.connect(self._on_element_picked)
        theme.changes().changed.connect(self.canvas.update)
        self._lay_out()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        if snapshot.plan is not self._plan or snapshot.cursor != self._cursor:
            self._plan, self._cursor = snapshot.plan, snapshot.cursor
            self.canvas.set_layout(snapshot.plan.layout if snapshot.plan else None)
            self._show_dispatch()
        absent = absent_text(snapshot, snapshot.map)
        if not absent and snapshot.map is not None:
            self._grey_out(snapshot.map.reasons)
            if snapshot.map.request.quantity == self.shown_quantity():
                absent = snapshot.map.reason
        self.canvas.set_absent(absent)
        if absent:
            self.canvas.set_image(None)
        elif snapshot.map is not None and self._plan is not None:
            self.canvas.set_image(snapshot.map)
        found = snapshot.closeup.found
        if self._sought is not None and found is not None and found.asked == self._sought:
            self._sought = None
            if found.param is not None:
                self.element_selected.emit(found.param, found.index)

    def is_waiting(self) -> bool:
        image, asked = self.canvas.image, self._asked.request
        if not self.isVisible() or self._plan is None or self.canvas.absent.text():
            return False
        return self._frame.isActive() or (asked is not None and (image is None or image.request != asked))

    def select_param(self, name: str) -> None:
        self.canvas.set_selected(name)
        self.canvas.reveal(name)

    def show_param(self, name: str) -> None:
        """Bring a param into the middle, close enough to be seen."""
        self.canvas.show_param(name)

    def show_spot(self, element: int) -> None:
        """Bring an element of the mega-buffers into the middle, close enough to tell it from its neighbours."""
        self.canvas.show_element(element)

    def shown_quantity(self) -> Quantity:
        """What is asked for."""
        quantity: Quantity = self.quantity.currentData()
        return quantity

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._frame.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._frame.stop()
        if self._asked.request is not None:
            self._asked = ViewMap(None)
            self.command.emit(self._asked)

    def _lay_out(self) -> None:
        bar = QHBoxLayout()
        bar.setContentsMargins(8, 4, 8, 0)
        bar.setSpacing(8)
        label = QLabel("&Show", self)
        label.setBuddy(self.quantity)
        bar.addWidget(label)
        bar.addWidget(self.quantity)
        for text, tip, act in (
            ("−", "Zoom out (−)", lambda: self.canvas.zoom(1 / 1.5)),
            ("+", "Zoom in (+)", lambda: self.canvas.zoom(1.5)),
            ("All", "Show everything (Home)", self.canvas.show_all),
        ):
            button = QToolButton(self)
            button.setText(text)
            button.setToolTip(tip)
            button.setAccessibleName(tip)
            button.setAutoRaise(True)
            button.clicked.connect(act)
            bar.addWidget(button)
        bar.addWidget(self.scale)
        bar.addWidget(self.note, 1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(4)
        outer.addLayout(bar)
        outer.addWidget(self.canvas, 1)

    def _on_quantity(self) -> None:
        self._on_quantity_help()
        self._frame.start()

    def _on_quantity_help(self) -> None:
        quantity = self.shown_quantity()
        self.quantity.setToolTip(_help(quantity, self._reasons.get(quantity, "")))

    def _on_viewport(self) -> None:
        view = self.canvas.view
        self.scale.setText(_zoom_text(view.per_pixel) if view else "")
        if self.isVisible() and not self._frame.isActive():
            self._frame.start()

    def _on_picked(self, name: str) -> None:
        self.canvas.set_selected(name)
        self.param_selected.emit(name)

    def _on_element_picked(self, name: str, index: int, lane: Lane | None) -> None:
        """The element that the pixel shows, where it covers several; the first of them where that is not known."""
        self._sought = None
        image, pixel = self.canvas.image, lane and self.canvas.pixel_at(self.canvas.clicked_at, lane)
        query = None
        if image is not None and pixel and lane and image.request.elements_per_pixel > 1:
            query = shown_under(image, lane, *pixel)
        if query is None:
            self.element_selected.emit(name, index)
            return
        self._sought = FindValue(query[0], lane or "w", within=query[1], asker="map")
        self.command.emit(self._sought)

    def _ask(self) -> None:
        asked, quantity = ViewMap(None), self.shown_quantity()
        if self.isVisible():
            asked = ViewMap(self.canvas.request(quantity), self.canvas.overview_request(quantity))
        if asked != self._asked:
            self._asked = asked
            self.command.emit(asked)

    def _grey_out(self, reasons: Mapping[Quantity, str]) -> None:
        """Quantities that need what the run does not keep cannot be chosen, and say why."""
        if reasons == self._reasons:
            return
        self._reasons = reasons
        model = self.quantity.model()
        for i, quantity in enumerate(QUANTITIES):
            reason = reasons.get(quantity, "")
            # What is chosen stays: it may be known again at the next moment.
            flags = Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEnabled
            if reason:
                flags = Qt.ItemFlag.NoItemFlags
            if isinstance(model, QStandardItemModel):
                model.item(i).setFlags(flags)
            self.quantity.setItemData(i, _help(quantity, reason), Qt.ItemDataRole.ToolTipRole)
        self._on_quantity_help()

    def _show_dispatch(self) -> None:
        plan, cursor = self._plan, self._cursor
        if plan is None or cursor is None or not plan.dispatches:
            self.canvas.set_brackets(())
            self.note.setText("")
            return
        at = min(cursor.dispatch, len(plan.dispatches) - 1)
        dispatch = plan.dispatches[at]
        self.canvas.set_brackets(brackets(plan, at))
        lanes = {b.slot for b in brackets(plan, at)}
        others = [
            f"{b.name} ({b.slot})" for b in dispatch.bindings if b.slot not in lanes and b.access != "uniform"
        ]
        binds = f"; off the map: {', '.join(others)}" if others else ""
        self.note.setText(f"{'last' if cursor.at_end else 'next'}: {dispatch.label}{binds}")


def shown_under(image: MapImage, lane: Lane, row: int, column: int) -> tuple[Query, tuple[int, int]] | None:
    """What finds the element that a pixel shows, and the elements under it; None where no value is shown."""
    if lane not in image.values:
        # An optimizer without that moment.
        return None
    request = image.request
    value = np.float32(image.values[lane][row, column])
    within = request.under(row, column, image.pixels[lane].cell, image.pixels[lane].end)
    if image.nonfinite[lane][row, column] > 0:
        return Query("nonfinite", "nonfinite"), within
    if request.quantity not in ("value", "magnitude") or not np.isfinite(value):
        return None
    key = int(bits(np.array([abs(value)], np.float32))[0])
    return Query("magnitudes", f"|x| = {fmt.exact(abs(value))}", key, key), within


def _help(quantity: Quantity, reason: str) -> str:
    """What a quantity is, and why it cannot be shown now."""
    return f"{reason}\n{QUANTITY_HELP[quantity]}" if reason else QUANTITY_HELP[quantity]


def _zoom_text(per_pixel: float) -> str:
    if per_pixel >= 1:
        return f"1 px = {fmt.short_count(per_pixel)} elements"
    return f"1 element = {fmt.short_count(1 / per_pixel)} px"
