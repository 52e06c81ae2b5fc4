"""Pictures of the window, or of one view, drawn off screen."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from PySide6.QtCore import (
    QEventLoop,
    QMessageLogContext,
    QPoint,
    QSize,
    Qt,
    QTimer,
    QtMsgType,
    qInstallMessageHandler,
)
from PySide6.QtGui import QImage, QImageWriter, QPainter
from PySide6.QtWidgets import QApplication, QWidget

from inspector.errors import InspectorError, UsageError
from inspector.files import replacing
from inspector.runtime.commands import Command
from inspector.runtime.snapshots import Snapshot
from inspector.ui import theme
from inspector.ui.app import WorkerLike, WorkerLink, application, make_views
from inspector.ui.bus import Bus
from inspector.ui.main_window import MainWindow
from inspector.ui.view import View

SETTLED_MS = 250
"""So long without a new snapshot, and what was asked for is drawn."""
LONGEST_WAIT_S = 10.0
"""For what views have asked to be drawn, after that: a worker may not have it."""
DEFAULT_SIZE = (1600, 1000)


def settled(snapshot: Snapshot) -> bool:
    """True where a picture would show the end of what was asked for."""
    return snapshot.mode in ("failed", "lost") or (
        snapshot.mode == "paused" and snapshot.plan is not None and not snapshot.looking
    )


def grab_window(
    make_worker: Callable[[], WorkerLike],
    *,
    size: tuple[int, int] = DEFAULT_SIZE,
    view: str | None = None,
    path: str | None = None,
    scheme: theme.Scheme = "light",
    scale: float = 1.0,
    commands: Sequence[Command] = (),
    front: str | None = None,
    until: Callable[[Snapshot], bool] = settled,
    timeout_s: float = 120.0,
    views: Callable[[], Mapping[str, View]] = make_views,
) -> QImage:
    """Run a worker until `until` holds, then draw the window (or `view`) at `size` logical pixels.

    `commands` are sent first; the view `front` is brought to the front of its panel. Written to `path` where given;
    raises InspectorError where the picture could not be made.
    """
    app = _off_screen_application(scale)
    theme.apply(app, scheme)
    link = WorkerLink(make_worker)
    bus = Bus(link.send)
    made = dict(views())
    if view is not None and view not in made:
        link.close()
        raise UsageError(f"There is no view {view!r}: choose one of {', '.join(made)}.")
    window = MainWindow(bus, made)
    try:
        window.setAttribute(Qt.WidgetAttribute.WA_DontShowOnScreen)
        window.resize(QSize(*size))
        window.show()
        if front is not None:
            window.show_view(front)
        target: QWidget = window
        if view is not None:
            target = _alone(made[view], QSize(*size))
        for command in commands:
            link.send(command)
        _wait(bus, link, until, lambda: any(each.is_waiting() for each in made.values()), timeout_s)
        image = drawn(target, scale)
    finally:
        bus.blockSignals(True)
        link.close()
        for view_widget in made.values():
            view_widget.hide()
        window.close()
        window.deleteLater()
    if path is not None:
        save_picture(image, Path(path))
    return image


def save_picture(image: QImage, path: Path) -> None:
    """Write a picture as PNG; UsageError where that cannot be done."""
    with replacing(path) as temporary:
        writer = QImageWriter(str(temporary), b"png")
        if not writer.write(image):
            raise UsageError(f"{path} cannot be written: {writer.errorString()}.")


def _off_screen_application(scale: float) -> QApplication:
    if QApplication.instance() is None:
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
        os.environ["QT_SCALE_FACTOR"] = str(scale)
        qInstallMessageHandler(_on_qt_message)
    return application()


def _on_qt_message(kind: QtMsgType, context: QMessageLogContext, text: str) -> None:
    # The off-screen platform says so for every window, and nothing follows from it.
    if not text.startswith("This plugin does not support"):
        sys.stderr.write(f"{text}\n")


def _alone(view: View, size: QSize) -> QWidget:
    """The view taken out of the window, at a size of its own."""
    view.setParent(None)
    view.setAttribute(Qt.WidgetAttribute.WA_DontShowOnScreen)
    view.resize(size)
    view.show()
    return view


def _wait(
    bus: Bus,
    link: WorkerLink,
    until: Callable[[Snapshot], bool],
    waiting: Callable[[], bool],
    timeout_s: float,
) -> None:
    loop = QEventLoop()
    quiet = QTimer(singleShot=True, interval=SETTLED_MS)
    began: list[float] = []

    def is_quiet() -> None:
        began[:] = began or [time.monotonic()]
        if waiting() and time.monotonic() - began[0] < LONGEST_WAIT_S:
            quiet.start()
        else:
            loop.quit()

    quiet.timeout.connect(is_quiet)
    limit = QTimer(singleShot=True, interval=int(timeout_s * 1000))
    limit.timeout.connect(lambda: loop.exit(1))

    def arrived(snapshot: Snapshot) -> None:
        quiet.start() if until(snapshot) else quiet.stop()

    bus.snapshot_arrived.connect(arrived)
    limit.start()
    link.start(bus.post_from_worker)
    code = loop.exec()
    bus.snapshot_arrived.disconnect(arrived)
    if code:
        raise InspectorError(f"Nothing to draw after {timeout_s:g} s: the run did not come to rest.")


def drawn(widget: QWidget, scale: float) -> QImage:
    """The widget as it looks now, `scale` pixels a logical one."""
    ratio = max(scale, widget.devicePixelRatioF())
    image = QImage(widget.size() * ratio, QImage.Format.Format_ARGB32_Premultiplied)
    image.setDevicePixelRatio(ratio)
    image.fill(theme.colours().window)
    painter = QPainter(image)
    widget.render(painter, QPoint())
    painter.end()
    return image
