"""Pictures of the window in each layout, theme and size, over an example recording on the device at hand.

`python tests/layout_pictures.py FOLDER` writes them in full, to be looked at; with --store the small ones in
tests/pictures/ that tests compare with.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from PySide6.QtCore import QEventLoop, QSize, Qt, QTimer
from PySide6.QtGui import QFontInfo, QImage

from inspector.cli.window import RunOpener
from inspector.runtime.commands import DiffSessions, Seek, ShowOverlay
from inspector.runtime.snapshots import Snapshot
from inspector.runtime.worker import Worker
from inspector.ui import theme
from inspector.ui.app import application, make_views
from inspector.ui.arrangements import BUILT_IN
from inspector.ui.bus import Bus
from inspector.ui.main_window import MainWindow
from inspector.ui.screenshot import drawn
from inspector.ui.values_model import FIRST_LANE, PENDING
from inspector.ui.values_view import ValuesView

ROOT = Path(__file__).parent.parent
STORED = ROOT / "tests" / "pictures"
SOURCE = ROOT / "sessions" / "diverges.session.zip"
OTHER = ROOT / "sessions" / "healthy.session.zip"
SIZES = {
    "900x600": (900, 600, 1.0),
    "1280x800": (1280, 800, 1.0),
    "1920x1080": (1920, 1080, 1.0),
    "1280x800@2": (1280, 800, 2.0),
}
SMALL_WIDTH = 256
QUIET_MS = 60
STEP, DISPATCH = 24, 2
LIMIT_S = 60.0


class Pictures:
    """A window that nobody sees, with a worker on the example, in the middle of a step."""

    def __init__(self) -> None:
        self.app = application()
        theme.apply(self.app, "light", 1.0)
        opener = RunOpener(adapter=None, undo_mb=64, schedule=None, seed=None, given={})
        self.worker = Worker(opener, str(SOURCE))
        self.bus = Bus(self.worker.send)
        self.window = MainWindow(self.bus, make_views())
        self.window.setAttribute(Qt.WidgetAttribute.WA_DontShowOnScreen)
        self.window.show()
        self.worker.start(self.bus.post_from_worker)
        self.until(lambda s: s.mode == "paused" and s.plan is not None)
        for command in (ShowOverlay(str(OTHER)), DiffSessions("", str(OTHER)), Seek(STEP, DISPATCH)):
            self.window.send(command)
        self.window.select_element("h.0.ffn.down.weight", 100)
        self.until(self._is_there)

    @staticmethod
    def _is_there(snapshot: Snapshot) -> bool:
        beside = snapshot.beside
        compared = beside.diff is not None and beside.diff.share is None
        loaded = bool(beside.overlays) and not any(o.loading for o in beside.overlays)
        there = snapshot.cursor is not None and (snapshot.cursor.step, snapshot.cursor.dispatch) == (
            STEP,
            DISPATCH,
        )
        return compared and loaded and there and bool(snapshot.findings) and snapshot.glance is None

    def _values_wait(self) -> bool:
        """True while values that are in sight have not come."""
        values = self.window.views["values"]
        assert isinstance(values, ValuesView)
        table, model = values.table, values.table.model()
        top = table.rowAt(0)
        index = model.index(max(top, 0), FIRST_LANE)
        return table.isVisible() and model.rowCount() > 0 and model.data(index) == PENDING

    def until(self, holds: Callable[[Snapshot], bool]) -> None:
        """Wait for a moment, and until nothing more comes."""
        deadline = time.monotonic() + LIMIT_S
        while self.window.snapshot is None or not (holds(self.window.snapshot) and self.window.at_rest):
            if time.monotonic() > deadline:
                raise TimeoutError("the example did not come to rest")
            self.rest(20)
        self.rest()

    def rest(self, ms: int = QUIET_MS) -> None:
        """Let the window do what it has to."""
        loop = QEventLoop()
        QTimer.singleShot(ms, loop.quit)
        loop.exec()

    def take(self) -> Iterator[tuple[str, QImage]]:
        """Each picture with its name, in full size."""
        for scheme in ("light", "dark"):
            theme.apply(self.app, scheme)  # type: ignore[arg-type]
            for arrangement in BUILT_IN:
                for size, (width, height, scale) in SIZES.items():
                    self.window.resize(QSize(width, height))
                    self.window.ways.layouts.apply(arrangement)
                    self.rest()
                    # What views ask for at this size has come.
                    before = None
                    while before is not self.window.snapshot:
                        before = self.window.snapshot
                        self.rest()
                    self.until(lambda _snapshot: not self._values_wait())
                    yield f"{arrangement.name}-{scheme}-{size}", drawn(self.window, scale)

    def close(self) -> None:
        """End the worker and the window."""
        self.bus.blockSignals(True)
        self.worker.close(30.0)
        self.window.close()
        self.window.deleteLater()
        self.rest(0)


def small(image: QImage) -> QImage:
    """A picture as it is stored: so small that single letters do not count, what is where and how bright does."""
    scaled = image.scaledToWidth(SMALL_WIDTH, Qt.TransformationMode.SmoothTransformation)
    scaled.setDevicePixelRatio(1.0)
    # Sixteen steps a colour are enough to compare, and take a third of the room.
    return scaled.convertToFormat(QImage.Format.Format_RGB444).convertToFormat(QImage.Format.Format_RGB888)


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--store", action="store_true")
    asked = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    pictures = Pictures()
    for name, image in pictures.take():
        if asked.folder is not None:
            asked.folder.mkdir(parents=True, exist_ok=True)
            image.save(str(asked.folder / f"{name}.png"))
        if asked.store:
            STORED.mkdir(exist_ok=True)
            picture = small(image)
            picture.setText("font", font())
            picture.save(str(STORED / f"{name}.png"))
    pictures.close()


def font() -> str:
    """The font that the window is written in, which decides how wide everything is."""
    info = QFontInfo(application().font())
    return f"{info.family()} {info.pointSizeF():g}"


if __name__ == "__main__":
    main()
