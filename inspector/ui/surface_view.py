"""A problem of two parameters: contours, and the paths that the lanes of a race take over them."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLabel, QToolButton, QVBoxLayout, QWidget

from inspector.runtime.commands import StartRace
from inspector.runtime.race_pictures import LanePicture
from inspector.runtime.snapshots import Snapshot
from inspector.surfaces import SURFACES, Surface, surface_of
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.line_sample import line_sample
from inspector.ui.race_model import lane_name, lane_style, latest
from inspector.ui.shortcuts import bind
from inspector.ui.surface_map import Path, SurfaceMap
from inspector.ui.view import LazyView
from inspector.ui.widgets import ElidedLabel

KEYS = (
    ("Ctrl+Return", "race optimizers over the surface, from its start"),
    ("Home", "show the whole surface"),
)
NOTHING = f"Open a surface as the source: {', '.join(f'surface:{name}' for name in SURFACES)}."
LOW = 300
"""Pixels below which there is no height for both."""
NO_RACE = "Start (Ctrl+Return) races optimizers from the ring; F10, F11 and F5 move them."


class SurfaceView(LazyView):
    """The map with a path a lane, and a line of words a lane below or beside it."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.05

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("surface")
        self.map = SurfaceMap()
        self.map.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.map.setAccessibleName("Surface with the paths of the lanes")
        self.map.all_wanted.connect(self.map.show_all)
        self.words = ElidedLabel()
        self.button = QToolButton()
        self.button.setText("Start")
        self.button.setToolTip(f"{KEYS[0][1][0].upper()}{KEYS[0][1][1:]} ({KEYS[0][0]})")
        self.button.clicked.connect(self.start)
        line = QHBoxLayout()
        line.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        line.setSpacing(theme.GRID)
        line.addWidget(self.words, 1)
        line.addWidget(self.button)
        self._legend = QVBoxLayout()
        self._legend.setContentsMargins(theme.GRID, 0, theme.GRID, theme.GRID)
        self._legend.setSpacing(0)
        self._rows: list[tuple[QLabel, ElidedLabel]] = []
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addLayout(line)
        self._body = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._body.setSpacing(0)
        self._body.addWidget(self.map, 3)
        self._body.addLayout(self._legend)
        outer.addLayout(self._body, 1)
        self.setFocusProxy(self.map)
        bind(self, [(KEYS[0][0], self.start)], inside=True)
        theme.changes().changed.connect(self._restyle)
        self._show(None, ())

    def start(self) -> None:
        """Race what is worth racing on this surface."""
        if self.map.surface is not None:
            self.command.emit(StartRace(self.map.surface.lanes))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """What the lanes are called is beside the map where there is no height for both."""
        super().resizeEvent(event)
        beside = self.height() < LOW and self.width() > 2 * self.height()
        towards = QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom
        if towards != self._body.direction():
            self._body.setDirection(towards)
            self._body.setStretch(1, 2 if beside else 0)
            self._legend.setAlignment(Qt.AlignmentFlag.AlignTop)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Home shows all of it."""
        if event.key() == Qt.Key.Key_Home:
            self.map.show_all()
        else:
            super().keyPressEvent(event)

    # --- showing

    def _update(self, snapshot: Snapshot) -> None:
        lanes = snapshot.race.lanes if snapshot.race is not None else ()
        self._show(surface_of(snapshot.source), lanes)

    def _restyle(self) -> None:
        if self._snapshot is not None:
            self._update(self._snapshot)

    def _show(self, surface: Surface | None, lanes: tuple[LanePicture, ...]) -> None:
        self.map.show_surface(surface)
        self.map.set_message(NOTHING if surface is None else "")
        self.button.setEnabled(surface is not None)
        if surface is None:
            self.words.setText("")
            self._fit_rows(0)
            self.map.show_paths(())
            return
        said = f"f = {surface.formula}"
        self.words.setText(said if lanes else f"{said} · {NO_RACE}")
        self.map.show_paths([_path(surface, lane, number) for number, lane in enumerate(lanes)])
        self._fit_rows(len(lanes))
        for number, (lane, (sample, label)) in enumerate(zip(lanes, self._rows, strict=True)):
            sample.setPixmap(line_sample(*lane_style(number)))
            label.setText(_words(lane))

    def _fit_rows(self, count: int) -> None:
        while len(self._rows) > count:
            for widget in self._rows.pop():
                widget.hide()
                widget.deleteLater()
        while len(self._rows) < count:
            row = QHBoxLayout()
            row.setSpacing(theme.GRID)
            sample, label = QLabel(), ElidedLabel()
            row.addWidget(sample)
            row.addWidget(label, 1)
            self._legend.addLayout(row)
            self._rows.append((sample, label))


def _path(surface: Surface, lane: LanePicture, number: int) -> Path:
    x, y = (lane.history.series.get(name) for name in ("x", "y"))
    start = np.array(surface.start, np.float64)
    if x is None or y is None:
        return Path(start[:1], start[1:], *lane_style(number))
    xs, ys = np.concatenate([start[:1], x.last]), np.concatenate([start[1:], y.last])
    return Path(xs, ys, *lane_style(number))


def _words(lane: LanePicture) -> str:
    x, y, loss, moved = (latest(lane.history, name) for name in ("x", "y", "loss", "update_norm"))
    words = [lane_name(lane), f"step {lane.steps:,}"]
    if lane.diverged is not None:
        words.append(f"diverged at step {lane.diverged[0]:,}")
    if x is not None and y is not None:
        words.append(f"x {fmt.number(x)}, y {fmt.number(y)}")
    if loss is not None:
        words.append(f"f {fmt.number(loss)} before it")
    if moved is not None:
        words.append(f"moved {fmt.number(moved)}")
    if lane.diverged is not None:
        words.append(lane.diverged[1])
    if lane.runs_as is not None:
        words.append(str(lane.runs_as))
    return " · ".join(words)
