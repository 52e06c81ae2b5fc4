"""What a person has set, put into effect and kept: options, and what was done last in the palette."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, QSettings, Signal
from PySide6.QtWidgets import QApplication

from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.actions import Actions
from inspector.ui.deferred import when_made
from inspector.ui.docks import names
from inspector.ui.navigator import Navigator
from inspector.ui.options import (
    THEMES,
    Options,
    larger,
    read_options,
    smaller,
    write_options,
)
from inspector.ui.palette_entries import MOST_RECENT
from inspector.ui.settings_view import SettingsView
from inspector.ui.view import View

RECENT_KEY = "palette/recent"


class Preferences(QObject):
    """Joins the page of settings with the file they are kept in. Where there is no file, changes hold until the end.

    `told` carries a sentence about a change that is not seen at once.
    """

    told = Signal(str)

    def __init__(
        self,
        window: QObject,
        settings: Callable[[], QSettings | None],
        actions: Actions,
        navigator: Navigator,
        page: View | None,
    ) -> None:
        super().__init__(window)
        self._settings = settings
        kept = settings()
        self.options = read_options(kept)
        if kept is not None:
            navigator.recent = names(kept.value(RECENT_KEY))[:MOST_RECENT]
        navigator.recent_changed.connect(self._keep_recent)
        self._themes = {name: actions[f"theme_{name}"] for name in THEMES}
        for name, action in self._themes.items():
            action.setChecked(name == self.options.theme)
            action.triggered.connect(
                lambda _checked=False, name=name: self._take(replace(self.options, theme=name))
            )
        self._actions = actions
        for size, change in (
            ("text_larger", larger),
            ("text_smaller", smaller),
            ("text_reset", lambda _now: Options().font_scale),
        ):
            actions[size].triggered.connect(lambda _checked=False, change=change: self._resize_text(change))
        self._allow_text_sizes()
        self._page: SettingsView | None = None
        self._adapters: Callable[[], tuple[str, ...]] = tuple
        when_made(page, self._join)

    def _join(self, page: View) -> None:
        if isinstance(page, SettingsView):
            self._page = page
            kept = self._settings()
            page.adapters = self._adapters
            page.show_options(self.options, kept.fileName() if kept is not None else "")
            page.changed.connect(self._take)

    def offer(self, adapters: Callable[[], tuple[str, ...]]) -> None:
        """Where the page gets the names of adapters from."""
        self._adapters = adapters
        if self._page is not None:
            self._page.adapters = adapters

    def _take(self, options: Options) -> None:
        self.options = options
        self._themes[options.theme].setChecked(True)
        self._allow_text_sizes()
        if self._page is not None:
            self._page.show_options(options)
        if (settings := self._settings()) is not None:
            write_options(settings, options)
        app = QApplication.instance()
        if isinstance(app, QApplication):
            dress(app, options)

    def _resize_text(self, change: Callable[[float], float | None]) -> None:
        scale = change(self.options.font_scale)
        if scale is None:
            return
        self._take(replace(self.options, font_scale=scale))
        # It holds for what is made: widgets keep the sizes they were laid out with.
        when = "as it is now" if scale == theme.font_scale() else "from the next start of the window"
        self.told.emit(f"Text size {fmt.percent(scale, 0)}, {when}.")

    def _allow_text_sizes(self) -> None:
        scale = self.options.font_scale
        at = f"the text size is {fmt.percent(scale, 0)}"
        self._actions.disable(
            {
                "text_larger": "" if larger(scale) else f"{at}, the largest",
                "text_smaller": "" if smaller(scale) else f"{at}, the smallest",
                "text_reset": f"{at} already" if scale == Options().font_scale else "",
            }
        )

    def _keep_recent(self, recent: tuple[str, ...]) -> None:
        if (settings := self._settings()) is not None:
            settings.setValue(RECENT_KEY, list(recent))


def dress(app: QApplication, options: Options, font_scale: float | None = None) -> None:
    """Give the application the colours that were chosen; and, at its start, the size of its text."""
    theme.apply(app, None if options.theme == "system" else options.theme, font_scale)
