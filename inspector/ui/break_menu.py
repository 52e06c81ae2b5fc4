"""Breakpoints made of a value that is seen: conditions offered in a menu, to be changed before they are added."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QMenu, QWidget

from inspector.diagnosis.metrics import METRICS, Scalar
from inspector.diagnosis.watchpoints import Condition

LOW_IS_BAD = ("clip_scale",)
"""Of these a small value is what one waits for."""
NOT_FINITE = {"loss": "finding:nonfinite-loss", "grad_norm": "finding:norm-overflow"}
"""No number is beyond such a value, but a rule looks for it."""
DIGITS = 6
"""Of a value that is not float32."""

Offer = tuple[str, str]
"""A condition, and what its number is, "" where that is plain."""


def conditions_of(metric: str, value: float, param: str | None = None) -> list[str]:
    """Conditions that hold beyond this value of a metric, above or below, what one waits for first."""
    if not math.isfinite(value):
        return [NOT_FINITE[metric]] if metric in NOT_FINITE and param is None else []
    origin = METRICS[metric].whole
    single = param is None and isinstance(origin, Scalar) and origin.single
    # The shortest text that is the same float32, where the kernels wrote one.
    text = str(np.float32(value)) if single else f"{value:.{DIGITS}g}"
    ops = ("<", ">") if metric in LOW_IS_BAD else (">", "<")
    return [str(Condition(metric, op, float(text), param)) for op in ops]


def show_break_menu(
    parent: QWidget, at: QPoint, offers: Sequence[Offer], wanted: Callable[[str], None]
) -> QMenu | None:
    """A menu at a point of the screen; `wanted` is told the condition that is chosen. None where nothing is offered."""
    if not offers:
        return None
    menu = QMenu(parent)
    menu.setObjectName("break_menu")
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    for condition, what in offers:
        action = menu.addAction(f"Break when {condition}" + (f"   ({what})" if what else ""))
        action.setData(condition)
        action.triggered.connect(lambda _checked=False, condition=condition: wanted(condition))
    menu.popup(at)
    menu.setActiveAction(menu.actions()[0])
    return menu
