"""All keys at a glance."""

from __future__ import annotations

from html import escape

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QLabel, QScrollArea, QVBoxLayout, QWidget

from inspector.ui import (
    bookmarks_view,
    breakpoints_view,
    compare_view,
    findings_view,
    lockstep_view,
    map_canvas,
    memory_view,
    params_view,
    pipeline_view,
    plots_view,
    policies_view,
    profile_view,
    start_view,
    timeline_view,
    values_view,
    verify_view,
)
from inspector.ui.actions import SPECS
from inspector.ui.docks import PANELS, TAB_KEYS, TAB_TITLES


class KeysDialog(QDialog):
    """Stays open beside the window while a person tries the keys."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("keys_dialog")
        self.setWindowTitle("Keys")
        self.setModal(False)
        self.label = QLabel(_text(), self)
        self.label.setTextFormat(Qt.TextFormat.RichText)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close, self)
        buttons.rejected.connect(self.reject)
        scroll = QScrollArea(self)
        scroll.setFrameShape(QScrollArea.Shape.NoFrame)
        scroll.setWidget(self.label)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 12, 16, 12)
        column.addWidget(scroll)
        column.addWidget(buttons)
        # All of them where the screen is large enough.
        margins, room = QSize(56, 80), self.screen().availableSize() * 0.95
        self.resize((self.label.sizeHint() + margins).boundedTo(room))


def _text() -> str:
    window = tuple((" or ".join(spec.keys), spec.text.rstrip("…")) for spec in SPECS if spec.keys)
    panels = tuple((panel.key, f"go to {panel.title.lower()}") for panel in PANELS)
    panels += tuple((key, f"go to {TAB_TITLES[view].lower()}") for view, key in TAB_KEYS.items())
    groups = (
        (("Anywhere", window),),
        (
            ("Panels", panels),
            ("On the map", map_canvas.KEYS),
            ("On the timeline", timeline_view.KEYS),
            ("In the pipeline", pipeline_view.KEYS),
        ),
        (
            ("On the plots", plots_view.KEYS),
            ("On 8-bit", lockstep_view.KEYS),
            ("In the profile", profile_view.KEYS),
            ("In the memory bill", memory_view.KEYS),
            ("In the params", params_view.KEYS),
            ("In the comparison", compare_view.KEYS),
            ("In recorded vs here", verify_view.KEYS),
            ("In the values", values_view.KEYS),
            ("In the findings", findings_view.KEYS),
            ("In the policies", policies_view.KEYS),
            ("In the breakpoints", breakpoints_view.KEYS),
            ("In the bookmarks", bookmarks_view.KEYS),
            ("On the start page", start_view.KEYS),
        ),
    )
    columns = "".join(f"<td valign='top'>{''.join(_group(*g) for g in column)}</td>" for column in groups)
    return f"<table cellpadding='0' cellspacing='12'><tr>{columns}</tr></table>"


def _group(title: str, rows: tuple[tuple[str, str], ...]) -> str:
    lines = "".join(
        f"<tr><td><b>{escape(key)}</b>&nbsp;&nbsp;</td><td>{escape(what)}</td></tr>" for key, what in rows
    )
    return f"<p><i>{title}</i></p><table cellpadding='2'>{lines}</table>"
