"""Kernels that were edited and not saved, in the settings of the user, so that no text is lost with the window."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtCore import QObject, QSettings

from inspector.ui.deferred import when_made
from inspector.ui.shaders_model import MOST_DRAFTS
from inspector.ui.view import View

KEY = "shaders"


def keep(settings: QSettings, drafts: Mapping[str, str]) -> None:
    """Write these in place of those kept before."""
    settings.remove(KEY)
    settings.beginWriteArray(KEY)
    for i, (entry_point, text) in enumerate(drafts.items()):
        settings.setArrayIndex(i)
        settings.setValue("kernel", entry_point)
        # A list of lines: a text of one line that looks like a list, or like bytes, would come back as one.
        settings.setValue("text", ["", *text.split("\n")])
    settings.endArray()
    settings.sync()


def kept(settings: QSettings) -> dict[str, str]:
    """What was kept, by entry point; what cannot be read is left out."""
    found: dict[str, str] = {}
    for i in range(min(settings.beginReadArray(KEY), MOST_DRAFTS)):
        settings.setArrayIndex(i)
        entry_point, lines = settings.value("kernel"), settings.value("text")
        if (
            isinstance(entry_point, str)
            and isinstance(lines, list)
            and all(isinstance(x, str) for x in lines)
        ):
            found[entry_point] = "\n".join(lines[1:])
    settings.endArray()
    return found


class KeptDrafts(QObject):
    """Joins the view of kernels with the file that settings are kept in; without one, texts last until the end."""

    def __init__(self, window: QObject, settings: Callable[[], QSettings | None], view: View | None) -> None:
        super().__init__(window)
        self._settings = settings
        when_made(view, self._join)

    def _join(self, view: View) -> None:
        from inspector.ui.shaders_view import ShadersView

        if isinstance(view, ShadersView):
            if (given := self._settings()) is not None:
                view.take_drafts(kept(given))
            view.drafts_changed.connect(self._keep)

    def _keep(self, drafts: Mapping[str, str]) -> None:
        if (settings := self._settings()) is not None and settings.status() == QSettings.Status.NoError:
            keep(settings, drafts)
