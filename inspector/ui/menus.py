"""The menus of the window: which action stands where, in groups."""

from __future__ import annotations

from PySide6.QtWidgets import QMenu, QMenuBar

from inspector.ui.actions import STATS_HELP, Actions

Groups = tuple[tuple[str, ...], ...]

FILE: Groups = (
    ("open", "open_recording", "restart", "record", "follow"),
    ("overlay", "drop_overlays", "what_if"),
    ("save_report",),
    ("quit",),
)
RUN: Groups = (
    ("step_dispatch", "step_iteration", "run", "pause"),
    ("run_to_dispatch", "run_to_finding", "run_back"),
    ("undo_dispatch", "undo_iteration", "go_to_step"),
    ("breakpoint", "break_nonfinite"),
    tuple(f"stats_{level}" for level in STATS_HELP),
    ("recover",),
)
TIME: Groups = (
    ("play", "slower", "faster"),
    ("loop", "loop_start", "loop_end", "loop_clear"),
    ("stay", "bookmark"),
)
HELP: Groups = (("keys",),)


def add_menu(bar: QMenuBar, title: str, groups: Groups, actions: Actions) -> QMenu:
    """A menu with these actions, a line between groups."""
    menu = bar.addMenu(title)
    menu.setToolTipsVisible(True)
    for i, group in enumerate(groups):
        if i:
            menu.addSeparator()
        menu.addActions([actions[name] for name in group])
    return menu
