"""Colours, fonts and the grid, light and dark. A colour means one thing wherever it appears."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication

from inspector.stores import Lane

Scheme = Literal["light", "dark"]

GRID = 4
"""All margins and gaps are multiples of it, in pixels."""

LANE_COLOURS: dict[Lane, QColor] = {
    "w": QColor("#0072B2"),
    "g": QColor("#E69F00"),
    "m": QColor("#009E73"),
    "v": QColor("#CC79A7"),
}
"""Okabe-Ito, told apart by colour-blind people too."""

NONFINITE = QColor("#D55E00")
AA_CONTRAST = 4.5
"""What WCAG 2.2 level AA asks of text."""
MARK_CONTRAST = 3.0
"""What it asks of lines and signs that have to be seen."""


@dataclass(frozen=True, slots=True)
class Colours:
    """The colours of one scheme. `muted` can be read as text; `line` and `faint` are for lines only."""

    scheme: Scheme
    window: QColor
    base: QColor
    raised: QColor
    text: QColor
    muted: QColor
    line: QColor
    faint: QColor
    accent: QColor
    """The current dispatch and the selection."""
    on_accent: QColor
    frame: QColor
    """Around what can be typed in, chosen from, ticked or pressed."""
    gap: QColor
    """Where a buffer holds no param."""
    info: QColor
    warning: QColor
    error: QColor
    ok: QColor
    overlays: tuple[QColor, ...]
    """Lines of recordings that lie under a run; each has a dash of its own as well."""


LIGHT = Colours(
    scheme="light",
    window=QColor("#F3F4F6"),
    base=QColor("#FFFFFF"),
    raised=QColor("#E7E9ED"),
    text=QColor("#16181D"),
    muted=QColor("#565C66"),
    line=QColor("#C3C8D0"),
    faint=QColor("#E1E4E9"),
    accent=QColor("#5A3FD0"),
    on_accent=QColor("#FFFFFF"),
    frame=QColor("#767B84"),
    gap=QColor("#D9DCE2"),
    info=QColor("#2B5C9E"),
    warning=QColor("#855800"),
    error=QColor("#AA1828"),
    ok=QColor("#1E6B3C"),
    overlays=(QColor("#1F8FCB"), QColor("#8A6D00"), QColor("#7D828B")),
)
DARK = Colours(
    scheme="dark",
    window=QColor("#1B1D21"),
    base=QColor("#121316"),
    raised=QColor("#2A2D33"),
    text=QColor("#E8EAED"),
    muted=QColor("#A3A9B3"),
    line=QColor("#454A53"),
    faint=QColor("#2C2F36"),
    accent=QColor("#B3A4FF"),
    on_accent=QColor("#16181D"),
    frame=QColor("#757B85"),
    gap=QColor("#2F333A"),
    info=QColor("#8AB8F5"),
    warning=QColor("#F0C04A"),
    error=QColor("#FF8A80"),
    ok=QColor("#7BD49A"),
    overlays=(QColor("#56B4E9"), QColor("#D9C24A"), QColor("#8F96A0")),
)


FRAMED = ("QLineEdit", "QComboBox", "QAbstractSpinBox", "QCheckBox", "QRadioButton", "QPushButton")
"""The classes of widgets whose frames have to be seen, as one aims at them."""
FRAME_SHADE = 140
"""Fusion draws a frame in the window colour of its palette made darker by so much, in percent (qfusionstyle_p_p.h)."""


class _Watcher(QObject):
    changed = Signal()


class _State:
    colours: Colours = LIGHT
    forced: Scheme | None = None
    watcher: _Watcher | None = None
    app: QGuiApplication | None = None
    font_scale: float = 1.0


def colours() -> Colours:
    """The colours in use."""
    return _State.colours


def changes() -> _Watcher:
    """Its signal `changed` fires after the colours have changed; painted widgets redraw on it."""
    if _State.watcher is None:
        _State.watcher = _Watcher()
    return _State.watcher


def apply(app: QApplication, scheme: Scheme | None = None, font_scale: float | None = None) -> None:
    """Dress the application; without `scheme` it follows the system, now and when that changes.

    Another `font_scale` holds for what is made from then on.
    """
    _State.forced = scheme
    if font_scale is not None and font_scale != _State.font_scale:
        _State.font_scale = font_scale
        app.setFont(ui_font())
    if _State.app is not app:
        _State.app = app
        app.setStyle("Fusion")
        app.setFont(ui_font())
        app.styleHints().colorSchemeChanged.connect(lambda _scheme: _refresh(app))
    _refresh(app, always=True)


def font_scale() -> float:
    """The size of text beside that of the system, as a person has set it."""
    return _State.font_scale


def scaled(pixels: int) -> int:
    """Pixels of a place for text, at the size of text that a person has set."""
    return round(pixels * _State.font_scale)


def ui_font(size_change: float = 0) -> QFont:
    """The system's font with figures of equal width."""
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    return _figures(font, size_change)


def mono_font(size_change: float = 0) -> QFont:
    """The system's fixed-width font, for code and columns of numbers."""
    return _figures(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont), size_change)


def contrast(a: QColor, b: QColor) -> float:
    """The contrast of two colours, 1 to 21 (WCAG 2.2)."""
    light, dark = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def ink(colour: QColor, background: QColor | None = None) -> QColor:
    """`colour` moved towards black or white until it can be read as text on `background`."""
    return _until(colour, background, AA_CONTRAST)


def mark(colour: QColor) -> QColor:
    """`colour`, moved as far as a line, a bar or a sign has to stand out from plots and from the window."""
    c = colours()
    # The one that is nearer to it decides, so that it is the same in a plot and in the legend beside it.
    return _until(colour, min((c.base, c.window), key=lambda ground: contrast(colour, ground)), MARK_CONTRAST)


def lane_mark(lane: Lane) -> QColor:
    """Of lines, bars and signs of a lane, wherever they are."""
    return mark(LANE_COLOURS[lane])


def nonfinite_mark() -> QColor:
    """Of signs of what is not finite."""
    return mark(NONFINITE)


def _until(colour: QColor, background: QColor | None, least: float) -> QColor:
    ground = background or colours().base
    towards = 0.0 if _luminance(ground) > 0.18 else 1.0
    result = QColor(colour)
    for part in range(1, 21):
        if contrast(result, ground) >= least:
            break
        share = part / 20
        result = QColor.fromRgbF(
            colour.redF() + (towards - colour.redF()) * share,
            colour.greenF() + (towards - colour.greenF()) * share,
            colour.blueF() + (towards - colour.blueF()) * share,
        )
    return result


def text_on(background: QColor) -> QColor:
    """Black or white, whichever reads better."""
    return max((QColor("#000000"), QColor("#FFFFFF")), key=lambda c: contrast(c, background))


def faded(colour: QColor, alpha: float) -> QColor:
    """The colour with an alpha of 0 to 1."""
    result = QColor(colour)
    result.setAlphaF(alpha)
    return result


def _figures(font: QFont, size_change: float) -> QFont:
    # Off screen and on X11 the default may be 12 pt or more, too large for a dense window.
    points = min(font.pointSizeF(), 10.0) if font.pointSizeF() > 0 else 9.0
    font.setPointSizeF((points + size_change) * _State.font_scale)
    font.setFeature(QFont.Tag("tnum"), 1)
    return font


def _luminance(colour: QColor) -> float:
    def linear(c: float) -> float:
        return c / 12.92 if c <= 0.04045 else float(((c + 0.055) / 1.055) ** 2.4)

    r, g, b = linear(colour.redF()), linear(colour.greenF()), linear(colour.blueF())
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def _system_scheme(app: QGuiApplication) -> Scheme:
    return "dark" if app.styleHints().colorScheme() == Qt.ColorScheme.Dark else "light"


def _refresh(app: QApplication, *, always: bool = False) -> None:
    chosen = DARK if (_State.forced or _system_scheme(app)) == "dark" else LIGHT
    if chosen is _State.colours and not always:
        return
    _State.colours = chosen
    palette = _qt_palette(chosen)
    app.setPalette(palette)
    # None of these is filled with the window colour, so that it can stand for the frame.
    palette.setColor(QPalette.ColorRole.Window, chosen.frame.lighter(FRAME_SHADE))
    for kind in FRAMED:
        app.setPalette(palette, kind)  # type: ignore[arg-type] # bytes are refused, whatever the stub says
    changes().changed.emit()


def _qt_palette(c: Colours) -> QPalette:
    role, group = QPalette.ColorRole, QPalette.ColorGroup
    palette = QPalette(c.window)
    for which, colour in (
        (role.Window, c.window),
        (role.WindowText, c.text),
        (role.Base, c.base),
        (role.AlternateBase, c.window),
        (role.Text, c.text),
        (role.Button, c.raised),
        (role.ButtonText, c.text),
        (role.ToolTipBase, c.raised),
        (role.ToolTipText, c.text),
        (role.PlaceholderText, c.muted),
        (role.Highlight, c.accent),
        (role.HighlightedText, c.on_accent),
        (role.Accent, c.accent),
        (role.Link, c.info),
        (role.Mid, c.line),
    ):
        palette.setColor(which, colour)
    for which in (role.WindowText, role.Text, role.ButtonText, role.HighlightedText):
        palette.setColor(group.Disabled, which, _between(c.muted, c.window, 0.45))
    palette.setColor(group.Disabled, role.Highlight, c.line)
    return palette


def _between(a: QColor, b: QColor, share: float) -> QColor:
    return QColor.fromRgbF(
        a.redF() + (b.redF() - a.redF()) * share,
        a.greenF() + (b.greenF() - a.greenF()) * share,
        a.blueF() + (b.blueF() - a.blueF()) * share,
    )
