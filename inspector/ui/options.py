"""What a person has set for the window: read from a file that may hold anything, and written back."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

from PySide6.QtCore import QSettings

ThemeName = Literal["system", "light", "dark"]
THEMES: tuple[ThemeName, ...] = get_args(ThemeName)
FONT_SCALES = (0.8, 0.9, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0)
UNDO_MB = (0, 1_000_000)
"""The least and the most memory for going back, in MB of 10⁶ bytes."""
MOST_LETTERS = 200
GROUP = "options"


@dataclass(frozen=True, slots=True)
class Options:
    """Where nothing usable was kept, what stands here holds.

    `adapter` is a part of a name, "" for the best; `undo_mb` MB of memory for going back, None for what the device
    has room for.
    """

    theme: ThemeName = "system"
    font_scale: float = 1.0
    adapter: str = ""
    undo_mb: int | None = None
    start_page: bool = True
    """Whether a start without a source begins with the start page."""


def read_options(settings: QSettings | None) -> Options:
    """What was kept; each value that cannot be meant is as if it was not there."""
    if settings is None or settings.status() == QSettings.Status.FormatError:
        return Options()
    found = Options()
    for field in fields(Options):
        text = settings.value(f"{GROUP}/{field.name}")
        if isinstance(text, str | int | float | bool):
            found = _with(found, field.name, str(text))
    return found


def write_options(settings: QSettings, options: Options) -> None:
    """Keep them; what is as it would be anyway is not written."""
    for field in fields(Options):
        value, key = getattr(options, field.name), f"{GROUP}/{field.name}"
        if value == field.default:
            settings.remove(key)
        else:
            settings.setValue(key, str(value).lower() if isinstance(value, bool) else str(value))
    settings.sync()


def larger(scale: float) -> float | None:
    """The next larger size of text beside `scale`; None where there is none."""
    return next((each for each in FONT_SCALES if each > scale), None)


def smaller(scale: float) -> float | None:
    """The next smaller one."""
    return next((each for each in reversed(FONT_SCALES) if each < scale), None)


def parse_undo(text: str) -> int | None:
    """MB as typed; None for "" or what is no such number. Raises ValueError for one out of range."""
    if not text.strip():
        return None
    value = int(text.strip())
    if not UNDO_MB[0] <= value <= UNDO_MB[1]:
        raise ValueError(f"{UNDO_MB[0]} to {UNDO_MB[1]:,} MB")
    return value


def _with(options: Options, name: str, text: str) -> Options:
    match name:
        case "theme":
            return replace(options, theme=next((t for t in THEMES if t == text), options.theme))
        case "font_scale":
            return replace(options, font_scale=_scale(text))
        case "adapter":
            usable = len(text) <= MOST_LETTERS and text.isprintable()
            return replace(options, adapter=text.strip() if usable else "")
        case "undo_mb":
            try:
                return replace(options, undo_mb=parse_undo(text))
            except ValueError:
                return options
        case _:
            return replace(options, start_page=text.lower() != "false")


def _scale(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 1.0
    return min(max(value, FONT_SCALES[0]), FONT_SCALES[-1]) if math.isfinite(value) else 1.0
