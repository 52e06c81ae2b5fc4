"""A thread for work beside a run: one thing after the other, the newest of a kind instead of older ones."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable

from inspector.errors import InspectorError
from inspector.progress import EndedError

Act = Callable[[], None]


class Background:
    """Does what it is given on a thread of its own, which starts with the first of it.

    `told` is called on the thread with a sentence for whatever goes wrong, `rest` at each `check`: a moment in which
    others may have the interpreter. Of what waits under one name only the newest is done.
    """

    def __init__(
        self, name: str, told: Callable[[str], None], rest: Callable[[], None] = lambda: None
    ) -> None:
        self._name = name
        self._told = told
        self._rest = rest
        self._changed = threading.Condition()
        self._waiting: dict[str, Act] = {}
        self._doing = ""
        self._stopped = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._idle: tuple[float, Act] | None = None

    # --- called on any thread

    def do(self, name: str, act: Act) -> None:
        """Do this once all before it is done, in place of what waits under the same name."""
        with self._changed:
            if self._closed:
                return
            self._waiting.pop(name, None)
            self._waiting[name] = act
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"inspector-{self._name}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def stop(self, name: str) -> None:
        """End what goes on or waits under this name: its next `check` raises."""
        with self._changed:
            self._waiting.pop(name, None)
            self._stopped = self._stopped or self._doing == name

    def close(self, timeout: float) -> bool:
        """End the thread; False where it did not end within `timeout` seconds."""
        with self._changed:
            self._closed = self._stopped = True
            self._waiting.clear()
            self._changed.notify_all()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # --- called from what it does

    def check(self) -> None:
        """EndedError where what goes on is no longer wanted."""
        self._rest()
        if self._stopped:
            raise EndedError

    def while_idle(self, seconds: float, act: Act | None) -> None:
        """Do this whenever nothing was asked for in so long, from now on; None for nothing."""
        self._idle = None if act is None else (seconds, act)

    # --- on the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting and not self._closed:
                    self._changed.wait(self._idle[0] if self._idle else None)
                if self._closed:
                    return
                name = next(iter(self._waiting), "")
                act = self._waiting.pop(name, None) or (self._idle[1] if self._idle else None)
                self._doing, self._stopped = name, False
            if act is not None:
                self._guarded(act)
            with self._changed:
                self._doing = ""

    def _guarded(self, act: Act) -> None:
        try:
            act()
        except EndedError:
            pass
        except InspectorError as error:
            self._told(str(error))
        except MemoryError:
            self._told("This computer ran out of memory for what was asked for beside the run.")
        except Exception as error:  # noqa: BLE001 - the last owner of an error on this thread
            traceback.print_exc(file=sys.stderr)
            self._told(f"Something went wrong beside the run ({type(error).__name__}: {error}).")
