"""A sweep in the background: a process of its own, whose results are read as it writes them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inspector.errors import UsageError
from inspector.hyper import HYPER_NAMES, Hyper
from inspector.plan import Variant
from inspector.race import LaneSpec, log_grid, sweep_lanes
from inspector.runtime.commands import StartSweep
from inspector.session.new_place import check_new
from inspector.session.race_file import RaceFile, is_race
from inspector.sources.base import Source
from inspector.sweep import Point, points

POLL_S = 0.3


@dataclass(frozen=True, slots=True)
class SweepPicture:
    """A sweep that goes on or has ended: its folder, what it runs, `points` by lane and learning rate.

    `done` of `runs` are complete; `problem` says why it ended before all were.
    """

    path: str
    source: str
    steps: int
    points: tuple[Point, ...]
    done: int
    runs: int
    running: bool
    problem: str = ""

    @property
    def left(self) -> int:
        """Runs that are to be gone on with, where nobody runs them."""
        return 0 if self.running else self.runs - self.done


class Sweeping:
    """One sweep at a time. `wake` is called on any thread when there is news."""

    def __init__(
        self, wake: Callable[[], None], *, command: tuple[str, ...] = (sys.executable, "-m", "inspector")
    ) -> None:
        self._wake = wake
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._cancelled = False
        self.picture: SweepPicture | None = None

    def start(self, asked: StartSweep, source: str, adapter: str = "", options: Sequence[str] = ()) -> None:
        """Begin one on the adapter of that name, `options` for all runs; UsageError for what cannot be swept, or where
        one goes on."""
        self._check_free()
        bases = [LaneSpec.from_text(text) for text in asked.lanes]
        lanes = sweep_lanes(bases, log_grid(asked.lr), range(asked.seeds))
        path = Path(asked.path)
        check_new(path)
        words = [source, "--lr", asked.lr, "--seeds", str(asked.seeds)]
        words += ["--steps", str(asked.steps), "--save", str(path), *options]
        for lane in asked.lanes:
            words += ["--lane", lane]
        waiting = points([(lane, None, False) for lane in lanes])
        self.picture = SweepPicture(str(path), source, asked.steps, waiting, 0, len(lanes), running=True)
        self._begin(words, adapter)

    def resume(self, path: Path, adapter: str = "") -> None:
        """Run what is left of one that was ended; UsageError where that cannot be."""
        self._check_free()
        self.picture = _picture(path, RaceFile.read(path), running=True)
        self._begin([str(path), "--resume"], adapter)

    def _check_free(self) -> None:
        if self._process is not None and self._process.poll() is None:
            raise UsageError("A sweep goes on: end it before another is started.")

    def _begin(self, words: list[str], adapter: str) -> None:
        words = [*self._command, "sweep", *words, "--json", *(["--adapter", adapter] if adapter else [])]
        self._cancelled = False
        self._process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        self._thread = threading.Thread(target=self._watch, name="inspector-sweep", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """End the sweep that goes on; what is done of it stays."""
        if self._process is not None and self._process.poll() is None:
            self._cancelled = True
            self._process.terminate()

    def show(self, path: Path) -> None:
        """Show a sweep that was saved."""
        file = RaceFile.read(path)
        if file.kind == "sweep" and (self.picture is None or not self.picture.running):
            self.picture = _picture(path, file, running=False)

    def close(self, timeout: float) -> None:
        """End the process and the thread."""
        self.cancel()
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if self._thread is not None:
            self._thread.join(timeout)

    # --- on a thread of its own

    def _watch(self) -> None:
        process, picture = self._process, self.picture
        assert process is not None
        assert picture is not None
        path = Path(picture.path)
        while process.poll() is None:
            time.sleep(POLL_S)
            self._look(path, running=True)
        assert process.stderr is not None
        said = process.stderr.read().strip().splitlines()
        process.stderr.close()
        self._look(path, running=False)
        if process.returncode and self.picture is not None:
            why = (
                "It was ended."
                if self._cancelled
                else (said[-1] if said else f"It ended with {process.returncode}.")
            )
            self.picture = replace(self.picture, problem=why.removeprefix("inspector: "), running=False)
        elif self.picture is not None:
            self.picture = replace(self.picture, running=False)
        self._wake()

    def _look(self, path: Path, *, running: bool) -> None:
        if not is_race(path):
            return
        try:
            made = _picture(path, RaceFile.read(path), running=running)
        except UsageError:
            # It is read again.
            return
        if made != self.picture:
            self.picture = made
            self._wake()


def options_of(source: Source, hyper: Hyper, variant: Variant) -> tuple[str, ...]:
    """Those with which runs go as `source` does with `hyper` in the form `variant`, where a lane says nothing."""
    given = [name for name in HYPER_NAMES if getattr(hyper, name) != getattr(source.hyper, name)]
    words = ["--schedule", str(source.schedule), "--numerics", variant.numerics]
    for name in given:
        if name != "lr":
            words += ["--" + name.replace("_", "-"), repr(float(getattr(hyper, name)))]
    return tuple(words)


def _picture(path: Path, file: RaceFile, *, running: bool) -> SweepPicture:
    done = sum(file.is_done(number) for number in range(len(file.lanes)))
    return SweepPicture(str(path), file.source, file.steps, points(file.runs), done, len(file.lanes), running)
