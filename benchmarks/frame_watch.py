"""Which turns of the UI thread's event loop take longer than a frame, whose time that is, and in which function.

A timer of the UI thread should fire every millisecond. How late it does is told apart three ways by the clocks of the
threads themselves, so that a machine that others use as well does not count:

- `cpu`: what the UI thread computed meanwhile;
- `core`: it could have run, and another process or a driver's thread had the core (Linux says so, others do not);
- `lock`: of what is left, as much as our other Python threads computed meanwhile, one of which may have had the
  interpreter lock: an upper bound of what it waited for them;
- the rest: it waited for the display.

A frame is judged by `cpu` + `lock`. While the timer is late another thread looks at the Python stacks, so that a long
frame has the names of what it was spent in, and of what the worker was at where that took longer.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from types import FrameType

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtWidgets import QApplication

FRAME_MS = 16.0
LOOK_AFTER_S = 0.005
"""So late the stack is looked at first, and as often again."""
PERIOD_S = 0.001
EVENT_S = 0.001
OURS = "inspector"
WORKER = "inspector-worker"


@dataclass(frozen=True, slots=True)
class Frame:
    """A turn of the event loop: milliseconds in all, of the UI thread's processor, of waiting for a core, and for
    the interpreter lock."""

    doing: str
    wall_ms: float
    cpu_ms: float
    core_ms: float
    lock_ms: float
    where: str

    @property
    def own_ms(self) -> float:
        """What it is judged by."""
        return self.cpu_ms + self.lock_ms


@dataclass
class Watched:
    """The frames of one activity: all of them by length, the long ones with what they were spent in."""

    own_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    core_ms: list[float] = field(default_factory=list)
    long: list[Frame] = field(default_factory=list)


class NamingApplication(QApplication):
    """An application that keeps which events took long: made before the window where their names are wanted.

    Each event costs some microseconds more, which is why this is not on where figures are taken.
    """

    def __init__(self, arguments: list[str]) -> None:
        super().__init__(arguments)
        self.slow: list[tuple[str, float]] = []
        self._inner = [0.0]

    def notify(self, receiver: QObject, event: QEvent) -> bool:
        """Deliver an event, and note it where it took more than a millisecond without those inside it."""
        if not isinstance(receiver, QObject):
            # A graphics item, which PySide hands over as something else.
            return False
        started = time.perf_counter()
        kind = event.type()
        self._inner.append(0.0)
        taken = bool(super().notify(receiver, event))
        took = time.perf_counter() - started
        own = took - self._inner.pop()
        self._inner[-1] += took
        if own > EVENT_S:
            try:
                name = receiver.objectName() or type(receiver.parent()).__name__ + "/"
                label = f"{QEvent.Type(kind).name} of {type(receiver).__name__} {name}"
            except RuntimeError:
                label = f"{QEvent.Type(kind).name} of what is gone"
            self.slow.append((label, own * 1e3))
        return taken


class _Queue:
    """How long the thread that it is made on could have run and did not, for want of a core."""

    def __init__(self) -> None:
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._file = -1

    def waited_s(self) -> float:
        """Seconds since the thread began; 0 where the system does not say."""
        # Run, waited, and how often, in nanoseconds: Documentation/scheduler/sched-stats.rst of Linux.
        return int(os.pread(self._file, 96, 0).split()[1]) / 1e9 if self._file >= 0 else 0.0


class FrameWatch(QObject):
    """Watches the thread that it is made on from `start` to `stop`; `doing` names what goes on meanwhile."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.doing = ""
        self.by_doing: dict[str, Watched] = {}
        self._me = threading.get_ident()
        self._clocks: dict[int, int] = {}
        self._timer = QTimer(self, interval=1, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._tick)
        self._last = (0.0, 0.0, 0.0, 0.0)
        self._queue = _Queue()
        self._turn = 0
        self._stopped = threading.Event()
        self._seen: list[tuple[int, str, str]] = []
        self.collections_ms: list[float] = []
        """What each garbage collection took of the processor, on whichever thread: meanwhile no other one runs."""
        self._collecting = 0.0
        self._sampler = threading.Thread(target=self._sample, name="frame-sampler", daemon=True)

    def start(self) -> None:
        """Begin; once."""
        self._last = (time.perf_counter(), time.thread_time(), self._queue.waited_s(), self._others())
        self._timer.start()
        self._sampler.start()
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """End; what was seen stays."""
        gc.callbacks.remove(self._on_collection)
        self._timer.stop()
        self._stopped.set()
        self._sampler.join()

    def _on_collection(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self.collections_ms.append((time.thread_time() - self._collecting) * 1e3)

    def _tick(self) -> None:
        wall, cpu, queued, others = (
            time.perf_counter(), time.thread_time(), self._queue.waited_s(), self._others(),
        )  # fmt: skip
        wall0, cpu0, queued0, others0 = self._last
        self._last = (wall, cpu, queued, others)
        self._turn += 1
        late = max(wall - wall0 - PERIOD_S, 0.0)
        used = min(cpu - cpu0, wall - wall0)
        core = min(queued - queued0, max(late - used, 0.0))
        lock = min(max(late - used - core, 0.0), max(others - others0, 0.0))
        watched = self.by_doing.setdefault(self.doing, Watched())
        watched.late_ms.append(late * 1e3)
        watched.own_ms.append((used + lock) * 1e3)
        watched.core_ms.append(core * 1e3)
        if (used + lock) * 1e3 > FRAME_MS:
            seen = Counter((own, beside) for turn, own, beside in self._seen if turn == self._turn - 1)
            where, beside = seen.most_common(1)[0][0] if seen else ("not seen", "")
            if beside and lock > used:
                where += f" beside {beside}"
            where += self._events()
            watched.long.append(Frame(self.doing, late * 1e3, used * 1e3, core * 1e3, lock * 1e3, where))
        self._seen.clear()
        app = QApplication.instance()
        if isinstance(app, NamingApplication):
            app.slow.clear()

    def _events(self) -> str:
        """The slowest events since the last turn, where they are named."""
        app = QApplication.instance()
        if not isinstance(app, NamingApplication):
            return ""
        slowest = sorted(app.slow, key=lambda each: -each[1])[:3]
        return " | " + ", ".join(label for label, ms in slowest)

    def _others(self) -> float:
        """Seconds of processor that the other Python threads have taken, but for the one that looks."""
        total = 0.0
        for thread in threading.enumerate():
            ident = thread.ident
            if ident is None or ident == self._me or thread is self._sampler:
                continue
            clock = self._clocks.get(ident)
            if clock is None:
                clock = self._clocks[ident] = time.pthread_getcpuclockid(ident)
            try:
                total += time.clock_gettime(clock)
            except OSError:
                # It has just ended.
                self._clocks.pop(ident, None)
        return total

    # --- on the thread that looks

    def _sample(self) -> None:
        while not self._stopped.wait(LOOK_AFTER_S):
            turn = self._turn
            if time.perf_counter() - self._last[0] > LOOK_AFTER_S + PERIOD_S:
                frames = sys._current_frames()
                names = {thread.ident: thread.name for thread in threading.enumerate()}
                worker = next((f for ident, f in frames.items() if names.get(ident) == WORKER), None)
                frame = frames.get(self._me)
                if frame is not None:
                    self._seen.append((turn, _where(frame), _where(worker) if worker is not None else ""))


def _where(frame: FrameType) -> str:
    """The slot or event handler that Qt called, and the innermost function of ours in it."""
    ours: list[str] = []
    at: FrameType | None = frame
    while at is not None:
        name = at.f_globals.get("__name__", "")
        if name.startswith(OURS) and not name.startswith(("inspector.ui.app", "inspector.cli")):
            ours.append(f"{name.removeprefix('inspector.')}.{at.f_code.co_qualname}")
        at = at.f_back
    if not ours:
        return "Qt, with no function of ours in it"
    entry, leaf = ours[-1], ours[0]
    return entry if entry == leaf else f"{entry} … {leaf}"


def quantile(values: list[float], q: float) -> float:
    """The value that a share `q` of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def table(watch: FrameWatch) -> list[str]:
    """What was seen, a line an activity, then what made the long frames."""
    lines = [
        f"  {'while':<24}{'turns':>8}{'p50':>7}{'p99':>7}{'worst':>7}{'> 16 ms':>9}"
        "   late: p99  worst   of that for a core: p99  worst"
    ]
    for doing, watched in watch.by_doing.items():
        own, late, core = watched.own_ms, watched.late_ms, watched.core_ms
        lines.append(
            f"  {doing:<24}{len(own):>8,}{quantile(own, 0.5):>7.1f}{quantile(own, 0.99):>7.1f}{max(own):>7.1f}"
            f"{len(watched.long):>9}   {quantile(late, 0.99):>9.1f}{max(late):>7.1f}"
            f"{quantile(core, 0.99):>23.1f}{max(core):>7.1f}"
        )
    causes: dict[tuple[str, str], list[Frame]] = {}
    for watched in watch.by_doing.values():
        for frame in watched.long:
            causes.setdefault((frame.doing, frame.where), []).append(frame)
    if causes:
        lines.append("  what the long frames were spent in (processor + lock of the longest, in ms):")
    for (doing, where), frames in sorted(causes.items(), key=lambda item: -len(item[1])):
        worst = max(frames, key=lambda frame: frame.own_ms)
        lines.append(f"  {len(frames):>4} × {doing}: {where} ({worst.cpu_ms:.1f} + {worst.lock_ms:.1f})")
    took = watch.collections_ms
    lines.append(f"  garbage collections: {len(took):,}, the longest {max(took, default=0.0):.1f} ms")
    return lines
