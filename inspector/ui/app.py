"""Starting and ending the window: first the picture, then the worker; closing ends the worker."""

from __future__ import annotations

import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any, Protocol

from PySide6.QtCore import QCoreApplication, QObject, QSocketNotifier, QTimer
from PySide6.QtWidgets import QApplication

from inspector.errors import InspectorError
from inspector.runtime.commands import Command
from inspector.runtime.snapshots import Snapshot
from inspector.ui import docks
from inspector.ui.bus import Bus
from inspector.ui.deferred import DeferredView, Gate, Readying
from inspector.ui.garbage import GarbageCollector, collect_here
from inspector.ui.main_window import MainWindow
from inspector.ui.options import read_options
from inspector.ui.preferences import dress
from inspector.ui.view import View

CLOSE_TIMEOUT_S = 10.0
"""A step on a large model may have to end first."""
SWITCH_INTERVAL_S = 0.001
PAINT_TIMEOUT_MS = 1000
"""The worker starts after so long even where nothing paints, as in a window started minimised."""


class WorkerLike(Protocol):
    """What the window needs of a worker."""

    def start(
        self, on_snapshot: Callable[[Snapshot], None], wait_until_idle: Callable[[float], None] | None = None
    ) -> None: ...
    def send(self, command: Command) -> None: ...
    def close(self, timeout: float) -> bool:
        """End the thread; False where it did not end in time."""
        ...


class WorkerLink:
    """Commands to a worker that is made only after the window has been painted; those before it wait."""

    def __init__(self, make_worker: Callable[[], WorkerLike]) -> None:
        self._make = make_worker
        self._waiting: list[Command] = []
        self._worker: WorkerLike | None = None
        self._closed = False

    def send(self, command: Command) -> None:
        """Pass a command on, or keep it until there is a worker."""
        if self._worker is not None:
            self._worker.send(command)
        elif not self._closed:
            self._waiting.append(command)

    def start(
        self, on_snapshot: Callable[[Snapshot], None], wait_until_idle: Callable[[float], None] | None = None
    ) -> None:
        """Make the worker and start it, once."""
        if self._worker is None and not self._closed:
            self._worker = self._make()
            self._worker.start(on_snapshot, wait_until_idle)
            for command in self._waiting:
                self._worker.send(command)
            self._waiting.clear()

    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> bool:
        """End the worker."""
        self._closed = True
        worker, self._worker = self._worker, None
        return worker is None or worker.close(timeout)


KINDS = {
    "map": "map_view.MapView",
    "pipeline": "pipeline_view.PipelineView",
    "plots": "plots_view.PlotsView",
    "board": "board_view.BoardView",
    "histograms": "histogram_view.HistogramView",
    "microscope": "microscope_view.MicroscopeView",
    "shaders": "shaders_view.ShadersView",
    "lockstep": "lockstep_view.LockstepView",
    "timing": "timing_view.TimingView",
    "profile": "profile_view.ProfileView",
    "memory": "memory_view.MemoryView",
    "values": "values_view.ValuesView",
    "hyper": "hyper_view.HyperView",
    "findings": "findings_view.FindingsView",
    "policies": "policies_view.PoliciesView",
    "breakpoints": "breakpoints_view.BreakpointsView",
    "bookmarks": "bookmarks_view.BookmarksView",
    "timeline": "timeline_view.TimelineView",
    "params": "params_view.ParamsView",
    "states": "states_view.StatesView",
    "ranks": "ranks_view.RanksView",
    "race": "race_view.RaceView",
    "decay": "decay_view.DecayView",
    "surface": "surface_view.SurfaceView",
    "sweep": "sweep_view.SweepView",
    "compare": "compare_view.CompareView",
    "verify": "verify_view.VerifyView",
    "start": "start_view.StartView",
    "settings": "settings_view.SettingsView",
}
"""The class of each view and its module; imported only where the view is made."""
AT_ONCE = ("profile",)
"""Of the views that share a panel those that are not deferred: it takes up samples unseen."""
NEEDED: Mapping[str, Callable[[Snapshot], bool]] = {
    "states": lambda snapshot: snapshot.plan is not None and bool(snapshot.plan.states),
    "ranks": lambda snapshot: snapshot.recorded is not None and bool(snapshot.recorded.ranks),
}
"""Of views that are shown on demand: the moments that they are for."""


def kind_of(name: str) -> type[View]:
    """The class of a view."""
    module, _, kind = KINDS[name].partition(".")
    found: type[View] = getattr(import_module(f"inspector.ui.{module}"), kind)
    return found


def make_view(name: str) -> View:
    """One view."""
    return kind_of(name)()


def make_views() -> dict[str, View]:
    """Every view there is, by name."""
    return {name: make_view(name) for panel in docks.PANELS for name in panel.views}


def deferred_views(gate: Gate | None = None) -> dict[str, View]:
    """The same, those that share a panel each made when it is first seen, and not before the gate is open."""
    made: dict[str, View] = {}
    for panel in docks.PANELS:
        for name in panel.views:
            if len(panel.views) > 1 and name not in AT_ONCE:
                made[name] = DeferredView(partial(kind_of, name), gate, NEEDED.get(name))
            else:
                made[name] = make_view(name)
    return made


def run_window(
    make_worker: Callable[[], WorkerLike],
    *,
    settings_path: str | None = None,
    views: Callable[[], dict[str, View]] | None = None,
    on_ready: Callable[[MainWindow], None] | None = None,
    on_made: Callable[[MainWindow], None] | None = None,
) -> int:
    """Show the window until it is closed; returns the exit code.

    `make_worker` is called on the UI thread once the window has been painted, and views that share a panel are made
    from then on, unless `views` makes others. `on_made` is told the window before it is shown, `on_ready` once it is
    painted.
    """
    app = application()
    # Not while starting: there is no garbage yet, and looking for it takes a quarter of a second.
    garbage = collect_here(app)
    garbage.pause()
    # The worker gives the interpreter up sooner when the window asks for it; see Bus.wait_until_idle.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    settings = docks.open_settings(settings_path)
    options = read_options(settings)
    dress(app, options, options.font_scale)
    link = WorkerLink(make_worker)
    bus = Bus(link.send)
    gate = Gate()
    window = MainWindow(bus, deferred_views(gate) if views is None else views(), settings=settings)
    if on_made is not None:
        on_made(window)

    readying = Readying(window.views.values(), window)

    def start() -> None:
        try:
            link.start(bus.post_from_worker, bus.wait_until_idle)
        except InspectorError as error:
            window.tell_problem(str(error))
        gate.open()
        readying.start()
        if on_ready is not None:
            on_ready(window)

    _once(window.painted_first.connect, start, window)
    bus.snapshot_arrived.connect(_SettleGarbage(garbage, window))
    with _interrupts(window.close, window), _problems_told(window.tell_problem):
        window.show()
        code = app.exec()
        # Nothing is delivered any more: the worker's last snapshots go nowhere.
        bus.blockSignals(True)
        if not link.close():
            sys.stderr.write("The worker did not end in time; its last step is not complete.\n")
    garbage.resume()
    window.deleteLater()
    QCoreApplication.sendPostedEvents(None, 0)
    app.processEvents()
    return int(code)


class _SettleGarbage(QObject):
    """Once the first run is open, everything that starting made is set aside from garbage collection.

    A full collection stops every thread; with the hundred thousand objects of the imported libraries it takes
    50 ms, which is seen as a stutter.
    """

    def __init__(self, garbage: GarbageCollector, parent: QObject) -> None:
        super().__init__(parent)
        self._garbage = garbage
        self._done = False

    def __call__(self, snapshot: Snapshot) -> None:
        if not self._done and snapshot.mode != "starting":
            self._done = True
            gc.freeze()
            self._garbage.resume()


def application() -> QApplication:
    """The application, made if there is none; from then on garbage is looked for on its thread alone."""
    app = QApplication.instance()
    if not isinstance(app, QApplication):
        app = QApplication(sys.argv[:1])
        app.setApplicationName("inspector")
        app.setApplicationDisplayName("Optimizer inspector")
        app.setOrganizationName("inspector")
    collect_here(app)
    return app


def _once(connect: Callable[..., Any], act: Callable[[], None], parent: QObject) -> None:
    """Call `act` once after the signal, from the event loop; or after a while without it."""
    timer = QTimer(parent, singleShot=True, interval=PAINT_TIMEOUT_MS)
    timer.timeout.connect(act)
    # Not from inside the paint event: the picture has to reach the screen first.
    connect(lambda: timer.start(0))
    timer.start()


@contextmanager
def _interrupts(close: Callable[[], object], parent: QObject) -> Iterator[None]:
    """Ctrl-C in the terminal and a polite kill close the window.

    Python runs its handlers only between bytecodes, of which an idle event loop runs none: the signal's byte
    in a socket wakes it.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    reader.setblocking(False)
    notifier = QSocketNotifier(reader.fileno(), QSocketNotifier.Type.Read, parent)
    notifier.activated.connect(lambda: _drain(reader))

    def handle(_number: int, _frame: FrameType | None) -> None:
        close()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handle) for number in numbers}
    old = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(old)
        for number, handler in before.items():
            signal.signal(number, handler)
        notifier.setEnabled(False)
        notifier.deleteLater()
        reader.close()
        writer.close()


def _drain(reader: socket.socket) -> None:
    try:
        reader.recv(64)
    except BlockingIOError:
        return


@contextmanager
def _problems_told(tell: Callable[[str], None]) -> Iterator[None]:
    """An exception in a slot is told in one sentence; its traceback goes to the terminal for a report."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, InspectorError):
            tell(str(error))
            return
        before(kind, error, trace)
        text = str(error).strip().splitlines()
        detail = f"{kind.__name__}: {text[0]}" if text else kind.__name__
        tell(f"Part of the window failed ({detail}); the run itself goes on. Details are in the terminal.")

    sys.excepthook = hook
    try:
        yield
    finally:
        sys.excepthook = before
