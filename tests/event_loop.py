"""Waiting as a window waits: in its event loop, with the interpreter's lock free for whoever works beside it."""

from __future__ import annotations

from PySide6.QtCore import QEventLoop, QTimer


def let_run(ms: int) -> None:
    """Let the event loop run for so many ms. QTest.qWait keeps the lock meanwhile, so that the worker stands still."""
    loop = QEventLoop()
    QTimer.singleShot(ms, loop.quit)
    loop.exec()
