"""The guide: one task at a time, step by step, in a window beside the run; the keys still go to the run."""

from __future__ import annotations

import re
from html import escape

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QDialog, QDialogButtonBox, QTextBrowser, QVBoxLayout, QWidget

from inspector.ui import theme
from inspector.ui.tasks import TASKS, Task

WIDTH, HEIGHT = 420, 620
_KEY = re.compile(r"`([^`]*)`")
_EMPHASIS = re.compile(r"\*([^*]*)\*")


class GuideWindow(QDialog):
    """A choice of tasks above the steps of one. Nothing is done from here: it is read while a person does it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("guide_window")
        self.setWindowTitle("Guide")
        # Of a tool window the keys of the window behind it go on working.
        self.setWindowFlag(Qt.WindowType.Tool)
        self.setModal(False)
        self.tasks = QComboBox(self)
        self.tasks.setObjectName("guide_tasks")
        self.tasks.setAccessibleName("Task")
        self.tasks.addItems([f"{i}  {task.title}" for i, task in enumerate(TASKS, 1)])
        self.text = QTextBrowser(self)
        self.text.setAccessibleName("Steps")
        self.text.setFrameShape(QTextBrowser.Shape.NoFrame)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close, self)
        buttons.rejected.connect(self.reject)
        column = QVBoxLayout(self)
        column.addWidget(self.tasks)
        column.addWidget(self.text, 1)
        column.addWidget(buttons)
        self.tasks.currentIndexChanged.connect(self._show)
        theme.changes().changed.connect(self._show)
        self._show()

    def place(self, window: QWidget) -> None:
        """To the right of the window where the screen has room there, else over its right edge."""
        around, screen = window.frameGeometry(), window.screen().availableGeometry()
        height = min(HEIGHT, around.height())
        left = min(around.right() + 1, screen.right() + 1 - WIDTH)
        self.setGeometry(left, around.bottom() + 1 - height, WIDTH, height)

    def _show(self) -> None:
        self.text.setHtml(steps_text(TASKS[self.tasks.currentIndex()], theme.colours().muted.name()))


def steps_text(task: Task, muted: str) -> str:
    """The steps of a task as rich text, what is seen in a colour of its own."""
    steps = "".join(
        f"<li style='margin-bottom: 8px'>{_rich(step.do)}"
        f"<br><span style='color: {muted}'>{_rich(step.see)}</span></li>"
        for step in task.steps
    )
    code = f"<pre style='white-space: pre-wrap'>{escape(task.code)}</pre>" if task.code else ""
    return f"{code}<ol style='margin-left: 0; -qt-list-indent: 1'>{steps}</ol>"


def _rich(text: str) -> str:
    return _EMPHASIS.sub(r"<i>\1</i>", _KEY.sub(r"<b>\1</b>", escape(text)))
