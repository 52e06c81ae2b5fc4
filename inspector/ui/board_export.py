"""Plots as files: pictures as PNG at twice the size or as SVG, numbers as CSV."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QPoint, QRect, QSize
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QWidget

from inspector.history import EMPTY_HISTORY
from inspector.runtime.snapshots import Snapshot
from inspector.ui.board_model import Plot, lines_csv, waterfall_csv
from inspector.ui.board_plot import BoardPlot

SCALE = 2


def save_plot(cell: BoardPlot, snapshot: Snapshot | None, path: str) -> str:
    """Write a plot as the ending of `path` says: CSV, SVG, else PNG. A sentence where that was not possible, or ""."""
    try:
        if Path(path).suffix.lower() == ".csv":
            Path(path).write_text(_csv(cell.plot, snapshot), encoding="utf-8")
        else:
            with cell.as_picture():
                written = save_picture(cell, path, cell.plot.title)
            if not written:
                return f"{path} could not be written: choose another place, or PNG, SVG or CSV as its ending."
    except OSError as error:
        return f"{path} could not be written ({error.strerror or error}): choose another place."
    return ""


def _csv(plot: Plot, snapshot: Snapshot | None) -> str:
    if snapshot is None:
        return lines_csv({})
    if plot.fall is not None:
        fall = snapshot.plotted.falls.get(plot.fall)
        return waterfall_csv(plot.fall, fall) if fall is not None else ""
    of_run, lines = snapshot.history, snapshot.plotted.lines
    return lines_csv({n: of_run if n.in_history else lines.get(n, EMPTY_HISTORY) for n in plot.lines})


def save_picture(widget: QWidget, path: str, title: str) -> bool:
    """Write what a widget shows: SVG where `path` ends so, else PNG. False where nothing could be written."""
    if Path(path).suffix.lower() == ".svg":
        return _save_svg(widget, path, title)
    image = QImage(widget.size() * SCALE, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(SCALE)
    image.setText("Title", title)
    painter = QPainter(image)
    widget.render(painter, QPoint())
    painter.end()
    return image.save(path)


def _save_svg(widget: QWidget, path: str, title: str) -> bool:
    generator = QSvgGenerator()
    generator.setFileName(path)
    generator.setSize(QSize(widget.width(), widget.height()))
    generator.setViewBox(QRect(QPoint(), widget.size()))
    generator.setResolution(widget.logicalDpiX())
    generator.setTitle(title)
    painter = QPainter()
    if not painter.begin(generator):
        return False
    widget.render(painter, QPoint())
    return painter.end()
