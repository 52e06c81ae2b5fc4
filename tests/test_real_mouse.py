"""Panels are dragged with the mouse of a real display: onto another, out of the window, and back.

Qt drags panels by what the display says of the pointer, which no event made by hand brings about. Where there is no
virtual display (Xvfb) or nothing that moves its pointer (xdotool), this is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NEEDED = ("Xvfb", "xdotool")

SCRIPT = """
import json, sys
from PySide6.QtCore import QEventLoop, QPoint, QProcess, QTimer
from PySide6.QtGui import QGuiApplication
from ui_helpers import FakeWorker, make_snapshot
from inspector.ui import theme
from inspector.ui.app import application, make_view
from inspector.ui.arrangements import STEP
from inspector.ui.bus import Bus
from inspector.ui.docks import PANELS
from inspector.ui.main_window import MainWindow

def rest(ms):
    loop = QEventLoop()
    QTimer.singleShot(ms, loop.quit)
    loop.exec()

def xdotool(*words):
    process = QProcess()
    loop = QEventLoop()
    process.finished.connect(loop.quit)
    process.start("xdotool", [str(word) for word in words])
    loop.exec()
    assert process.exitCode() == 0, process.readAllStandardError()

def drag(dock, to):
    # Between the words of a title, or what the timeline has there, and its buttons.
    start = dock.mapToGlobal(QPoint(dock.width() - 60, 9))
    xdotool("mousemove", start.x(), start.y())
    xdotool("mousedown", 1)
    for i in range(1, 11):
        at = start + (to - start) * i / 10
        xdotool("mousemove", at.x(), at.y())
        rest(40)
    rest(300)
    xdotool("mouseup", 1)
    rest(500)

app = application()
theme.apply(app, "light")
worker = FakeWorker(make_snapshot())
bus = Bus(worker.send)
names = ("map", "pipeline", "plots", "values", "hyper", "findings", "breakpoints", "timeline")
window = MainWindow(bus, {name: make_view(name) for name in names})
window.resize(1400, 900)
window.show()
worker.start(bus.post_from_worker)
rest(800)
found = {}
for name in ("findings", "timeline", "plots"):
    window.ways.layouts.apply(STEP)
    rest(400)
    dock, onto = window.docks[name], window.docks["values"]
    drag(dock, onto.mapToGlobal(onto.rect().center()))
    # Where the panel was, others take its room, and the pointer may be over an edge by then: beside will do.
    beside = (dock.x(), dock.width()) == (onto.x(), onto.width())
    landed = onto in window.tabifiedDockWidgets(dock) or beside
    seen, untouched = not dock.visibleRegion().isEmpty(), window.ways.layouts.untouched()
    drag(dock, QPoint(1650, 500))
    floats = dock.isFloating()
    window.restore_default_layout()
    rest(300)
    found[name] = {
        "landed": landed, "seen": seen, "untouched": untouched, "floats": floats,
        "restored": not dock.isFloating() and not window.tabifiedDockWidgets(dock),
    }
print(json.dumps(found))
bus.blockSignals(True)
window.close()
"""


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        pytest.skip(f"{' and '.join(missing)} cannot be found")
    reading, writing = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1920x1080x24"],
        pass_fds=(writing,),
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    with os.fdopen(reading) as told:
        number = told.readline().strip()
    try:
        if not number:
            pytest.skip("Xvfb does not start here")
        yield f":{number}"
    finally:
        server.terminate()
        server.wait()


def test_panels_are_dragged_with_a_real_mouse(display: str) -> None:
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    env = {**os.environ, "DISPLAY": display, "QT_QPA_PLATFORM": "xcb", "PYTHONPATH": paths}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=180, check=False
    )
    assert ran.returncode == 0, ran.stderr
    wanted = {"landed": True, "seen": True, "untouched": "", "floats": True, "restored": True}
    assert json.loads(ran.stdout) == dict.fromkeys(("findings", "timeline", "plots"), wanted)
