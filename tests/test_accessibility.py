"""Everything can be reached by keys, shows that it has them, and has a name that is read out; colours can be told."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyqtgraph as pg
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QColor, QImage
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractScrollArea,
    QAbstractSpinBox,
    QApplication,
    QCheckBox,
    QComboBox,
    QHeaderView,
    QLabel,
    QLineEdit,
    QMenu,
    QMenuBar,
    QScrollBar,
    QStyle,
    QStyleOptionButton,
    QTabBar,
    QTabWidget,
    QToolButton,
    QWidget,
)
from pytestqt.qtbot import QtBot
from test_palette import Shown

from inspector.ui import theme
from inspector.ui.app import application, make_views
from inspector.ui.board_style import ROW
from inspector.ui.chart import Chart

pytestmark = pytest.mark.qt

UI = Path(theme.__file__).parent
BY_ITSELF = (QScrollBar, QTabBar, QTabWidget, QHeaderView, QMenu, QMenuBar)
"""Of these Qt reads out what is in them."""


@pytest.fixture(scope="module")
def app() -> QApplication:
    return application()


@pytest.fixture
def whole(qtbot: QtBot) -> Iterator[Shown]:
    theme.apply(application(), "light")
    made = Shown(qtbot, views=make_views())
    made.window.ways.finder.hide()
    yield made
    made.bus.blockSignals(True)


def is_part_of_another(widget: QWidget) -> bool:
    """True of what Qt makes inside a widget: the list of a combo, what a scroll area shows, the corner of a table."""
    parent = widget.parentWidget()
    inside = isinstance(parent, QAbstractScrollArea) and parent.viewport() is widget
    above: QWidget | None = parent
    while above is not None and not isinstance(above, QComboBox):
        above = above.parentWidget()
    return (
        inside
        or widget.objectName().startswith("qt_")
        or isinstance(above, QComboBox)
        or isinstance(parent, QLineEdit)
    )


def interactive(window: QWidget) -> list[QWidget]:
    kinds = (QAbstractButton, QLineEdit, QComboBox, QAbstractItemView)
    return [
        w
        for w in window.findChildren(QWidget)
        if (w.focusPolicy() != Qt.FocusPolicy.NoFocus or isinstance(w, kinds))
        and not isinstance(w, BY_ITSELF)
        and not is_part_of_another(w)
        # What passes the keys on is never read out itself.
        and (w.focusProxy() is None or isinstance(w, kinds))
        # A sentence that is not there yet has nothing to read out.
        and not (isinstance(w, QLabel) and not w.text())
    ]


def where(widget: QWidget) -> str:
    names: list[str] = []
    at: QWidget | None = widget
    while at is not None:
        names.append(f"{type(at).__name__} {at.objectName()}".strip())
        at = at.parentWidget()
    return " in ".join(names)


def test_every_widget_that_takes_keys_or_clicks_has_a_name(whole: Shown) -> None:
    found = interactive(whole.window)
    assert len(found) > 80
    nameless = [
        where(widget)
        for widget in found
        if not QAccessible.queryAccessibleInterface(widget).text(QAccessible.Text.Name).strip()
    ]
    assert nameless == [], chr(10).join(nameless)


def test_dialogs_and_the_palette_have_names_as_well(whole: Shown) -> None:
    window = whole.window
    for name in ("record", "what_if", "keys", "overlay", "open"):
        window.actions_by_name[name].trigger()
    window.ways.navigator.open_palette()
    found = [w for w in interactive(window) if w.window() is not window and "QFileDialog" not in where(w)]
    found = [w for w in found if "SessionDialog" not in where(w)]
    assert len(found) >= 6
    nameless = [
        where(widget)
        for widget in found
        if not QAccessible.queryAccessibleInterface(widget).text(QAccessible.Text.Name).strip()
    ]
    assert nameless == [], chr(10).join(nameless)
    whole.clear()


def reached_by_tab(whole: Shown, view: QWidget) -> set[QWidget]:
    """What gets the keys by Tab alone, beginning at the view."""
    view.setFocus(Qt.FocusReason.TabFocusReason)
    seen: set[QWidget] = set()
    for _ in range(400):
        widget = QApplication.focusWidget()
        if widget is None or widget in seen:
            break
        seen.add(widget)
        whole.qtbot.keyClick(widget, Qt.Key.Key_Tab)
    return seen


def test_every_widget_that_takes_keys_is_reached_by_tab(whole: Shown) -> None:
    for name, view in whole.window.views.items():
        whole.window.ways.go_to_view(name)
        whole.qtbot.wait(5)
        takes = {
            w
            for w in interactive(whole.window)
            if w.isVisible()
            and w.isEnabled()
            and view.isAncestorOf(w)
            and w.focusPolicy().value & Qt.FocusPolicy.TabFocus.value
            and w.focusProxy() is None
            and not w.visibleRegion().isEmpty()
            # Of buttons of which one is down the arrows go from one to the other.
            and not (isinstance(w, QAbstractButton) and w.group() is not None and w.group().exclusive())
        }
        missed = {where(w) for w in takes - reached_by_tab(whole, view.key_target())}
        assert missed == set(), name


def picture(widget: QWidget) -> npt.NDArray[np.uint8]:
    image = widget.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    pixels = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.bytesPerLine() // 4, 4)
    return pixels[:, : image.width(), :3].copy()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_has_the_keys_is_seen_to_have_them(whole: Shown, scheme: theme.Scheme) -> None:
    """The picture with the focus on it differs from that without it, by at least a thin line's worth of pixels."""
    theme.apply(application(), scheme)
    window = whole.window
    hidden: list[str] = []
    for name, view in window.views.items():
        window.ways.go_to_view(name)
        whole.qtbot.wait(5)
        for widget in interactive(window):
            if not (widget.isVisible() and widget.isEnabled() and view.isAncestorOf(widget)):
                continue
            if (
                widget.focusPolicy() == Qt.FocusPolicy.NoFocus
                or widget.focusProxy()
                or widget.visibleRegion().isEmpty()
            ):
                continue
            window.setFocus()
            without = picture(view)
            widget.setFocus(Qt.FocusReason.ShortcutFocusReason)
            if QApplication.focusWidget() is not widget:
                continue
            difference = np.abs(picture(view).astype(int) - without).max(axis=2)
            if int((difference > 24).sum()) < 12:
                hidden.append(where(widget))
    assert hidden == [], chr(10).join(hidden)


# --- colours


def linear(colour: QColor) -> npt.NDArray[np.float64]:
    c = np.array([colour.redF(), colour.greenF(), colour.blueF()])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lightness(colour: QColor) -> float:
    return float(linear(colour) @ (0.2126, 0.7152, 0.0722))


def contrast(a: QColor, b: QColor) -> float:
    """WCAG 2.2, worked out here by itself."""
    high, low = sorted((lightness(a), lightness(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


SCHEMES = pytest.mark.parametrize("colours", [theme.LIGHT, theme.DARK], ids=["light", "dark"])


def test_the_contrast_of_the_theme_is_that_of_the_standard() -> None:
    assert contrast(QColor("black"), QColor("white")) == pytest.approx(21)
    # 4.54 is the figure that WCAG's own tools give for #767676 on white.
    assert contrast(QColor("#767676"), QColor("white")) == pytest.approx(4.54, abs=0.005)
    for a, b in itertools.combinations(map(QColor, ("#0072B2", "#E69F00", "#123456", "#fedcba")), 2):
        assert theme.contrast(a, b) == pytest.approx(contrast(a, b), rel=1e-6)


@SCHEMES
def test_every_pair_of_text_and_ground_can_be_read(colours: theme.Colours) -> None:
    grounds = (colours.base, colours.window, colours.raised)
    texts = (
        colours.text,
        colours.muted,
        colours.accent,
        colours.info,
        colours.warning,
        colours.error,
        colours.ok,
    )
    for text, ground in itertools.product(texts, grounds):
        assert contrast(text, ground) >= 4.5, (text.name(), ground.name())
    assert contrast(colours.on_accent, colours.accent) >= 4.5
    for ground in grounds:
        for lane in (*theme.LANE_COLOURS.values(), theme.NONFINITE):
            assert contrast(theme.ink(lane, ground), ground) >= 4.5


SCHEME_NAMES = pytest.mark.parametrize("scheme", ["light", "dark"])


@SCHEME_NAMES
def test_every_mark_stands_out_from_its_ground(app: QApplication, scheme: theme.Scheme) -> None:
    """Lines, bars and signs: 3:1 (WCAG 2.2, 1.4.11), in plots and in the legends beside them."""
    theme.apply(app, scheme)
    colours = theme.colours()
    marks = {f"lane {lane}": theme.lane_mark(lane) for lane in theme.LANE_COLOURS}
    marks |= {f"overlay {i}": theme.mark(colour) for i, colour in enumerate(colours.overlays)}
    marks |= {f"row {colour}": theme.mark(QColor(colour)) for colour in ROW}
    marks |= {
        name: getattr(colours, name) for name in ("accent", "info", "warning", "error", "ok", "text", "muted")
    }
    marks["nonfinite"] = theme.nonfinite_mark()
    marks["frame"] = colours.frame
    poor = {
        f"{name} {mark.name()} on {ground.name()}: {contrast(mark, ground):.2f}"
        for (name, mark), ground in itertools.product(marks.items(), (colours.base, colours.window))
        if contrast(mark, ground) < 3.0
    }
    assert poor == set()


@SCHEME_NAMES
def test_a_mark_stays_near_the_colour_that_means_something(app: QApplication, scheme: theme.Scheme) -> None:
    """It is made darker or lighter, and keeps its hue: w is blue, g orange, m green and v purple in both schemes."""
    theme.apply(app, scheme)
    for lane, colour in theme.LANE_COLOURS.items():
        turned = abs(theme.lane_mark(lane).hsvHueF() - colour.hsvHueF())
        assert min(turned, 1 - turned) < 0.02, lane
        assert apart(theme.lane_mark(lane), colour, "none") < 20, lane


def test_no_view_draws_a_lane_in_a_colour_that_may_not_stand_out() -> None:
    """Outside the theme the colours of lanes are only what others are made of: ink for words, marks for the rest."""
    allowed = re.compile(
        r"(ink|mark|_ink)\(\s*(theme\.)?(LANE_COLOURS|NONFINITE)|set_colours|in theme\.LANE_COLOURS\.items"
    )
    raw = [
        f"{path.name}: {line.strip()}"
        for path in sorted(UI.glob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"theme\.(LANE_COLOURS|NONFINITE)", line)
        and path.name != "theme.py"
        and not allowed.search(line)
        # Over data, whose colours are the same in both schemes.
        and path.name not in ("map_paint.py", "map_legend.py", "map_marks.py")
    ]
    assert raw == [], chr(10).join(raw)


def is_empty(item: pg.PlotCurveItem) -> bool:
    x, _ = item.getData()
    return x is None or len(x) == 0


@SCHEME_NAMES
def test_every_line_of_every_plot_stands_out(whole: Shown, scheme: theme.Scheme) -> None:
    """As the plots have them after the theme was changed under them."""
    theme.apply(application(), scheme)
    ground = theme.colours().base
    # Over an image its own colours are the ground, the same in both schemes.
    charts = [
        chart
        for chart in whole.window.findChildren(Chart)
        if not any(isinstance(item, pg.ImageItem) for item in chart.scene().items())
    ]
    lines = [
        (chart, item)
        for chart in charts
        for item in chart.scene().items()
        if isinstance(item, pg.PlotCurveItem)
        # A part of another item takes its pen once there is something to draw.
        and not (isinstance(item.parentItem(), pg.PlotDataItem) and is_empty(item))
    ]
    assert len(charts) >= 8
    assert len(lines) >= 12
    poor = [
        f"{pen.color().name()} in {where(chart)}"
        for chart, item in lines
        if (pen := pg.mkPen(item.opts["pen"])).style() != Qt.PenStyle.NoPen
        and contrast(pen.color(), ground) < 3.0
    ]
    assert poor == []


@SCHEME_NAMES
def test_a_button_that_is_down_is_told_from_those_that_are_not(whole: Shown, scheme: theme.Scheme) -> None:
    """By its ground, not by a shade: 3:1 (WCAG 2.2, 1.4.11)."""
    theme.apply(application(), scheme)
    views = whole.window.views
    found = 0
    for name in ("board", "ranks", "compare", "values"):
        whole.window.ways.go_to_view(name)
        whole.qtbot.wait(5)
        tabs = [b for b in whole.window.docks["plots"].findChildren(QToolButton) if b.isVisible()]
        for button in {*views[name].findChildren(QAbstractButton), *tabs}:
            takes_part = button.isCheckable() and button.isVisible() and button.isEnabled()
            if not takes_part or isinstance(button, QCheckBox):
                continue
            grounds = []
            group = button.group()
            if group is not None:
                group.setExclusive(False)
            for down in (False, True):
                button.setChecked(down)
                image = button.grab().toImage()
                grounds.append(QColor(image.pixel(image.width() // 2, 4)))
            if group is not None:
                group.setExclusive(True)
            found += 1
            assert contrast(*grounds) >= 3.0, f"{where(button)} {button.text()}"
    assert found >= 8


def edge(widget: QWidget) -> float:
    """The contrast of the frame on the left, halfway down, with the window around it."""
    image = widget.grab().toImage()
    left, middle = 0, widget.height() // 2
    if isinstance(widget, QCheckBox):
        option = QStyleOptionButton()
        widget.initStyleOption(option)
        box = widget.style().subElementRect(QStyle.SubElement.SE_CheckBoxIndicator, option, widget)
        left, middle = box.left(), box.center().y()
    ratio = image.devicePixelRatio()
    pixels = [QColor(image.pixel(round((left + x) * ratio), round(middle * ratio))) for x in range(3)]
    return max(contrast(pixel, theme.colours().window) for pixel in pixels)


@SCHEME_NAMES
def test_frames_of_what_is_typed_in_chosen_from_or_ticked_stand_out(
    whole: Shown, scheme: theme.Scheme
) -> None:
    """What one aims at is seen where it begins: 3:1 (WCAG 2.2, 1.4.11)."""
    theme.apply(application(), scheme)
    kinds = (QLineEdit, QComboBox, QAbstractSpinBox, QCheckBox)
    found: set[str] = set()
    poor: set[str] = set()
    for name in whole.window.views:
        whole.window.ways.go_to_view(name)
        whole.qtbot.wait(5)
        for kind in kinds:
            for widget in whole.window.findChildren(kind):
                inside = isinstance(widget, QLineEdit) and isinstance(
                    widget.parentWidget(), QComboBox | QAbstractSpinBox
                )
                if (
                    not widget.isVisible()
                    or not widget.isEnabled()
                    or inside
                    or widget.visibleRegion().isEmpty()
                ):
                    continue
                found.add(kind.__name__)
                if edge(widget) < 3.0:
                    poor.add(f"{where(widget)}: {edge(widget):.2f}")
    assert found == {kind.__name__ for kind in kinds}
    assert not poor, chr(10).join(poor)


DEFICIENT = {
    # Machado, Oliveira and Fernandes 2009, "A Physiologically-based Model for Simulation of Color Vision Deficiency",
    # severity 1.0, on linear sRGB.
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "none": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
}  # fmt: skip
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = TO_XYZ @ np.ones(3)


def lab(colour: QColor, vision: str) -> npt.NDArray[np.float64]:
    """CIELAB of a colour as somebody with this vision sees it."""
    seen = np.clip(np.array(DEFICIENT[vision]) @ linear(colour), 0, 1)
    t = TO_XYZ @ seen / WHITE
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def apart(a: QColor, b: QColor, vision: str) -> float:
    return float(np.linalg.norm(lab(a, vision) - lab(b, vision)))


def test_the_simulation_is_that_of_the_paper() -> None:
    """Red and green of equal lightness come near each other, blue and yellow do not."""
    red, green = QColor("#C83C3C"), QColor("#6E7800")
    for vision in ("protanopia", "deuteranopia"):
        assert apart(red, green, vision) < apart(red, green, "none") / 2
        assert apart(QColor("blue"), QColor("yellow"), vision) > 100
    assert apart(QColor("white"), QColor("black"), "none") == pytest.approx(100, abs=0.1)


@pytest.mark.parametrize("vision", list(DEFICIENT))
@SCHEME_NAMES
def test_what_stands_side_by_side_is_told_apart_by_everybody(
    app: QApplication, scheme: theme.Scheme, vision: str
) -> None:
    """At least 10 in CIELAB, four times what is just seen (2.3)."""
    theme.apply(app, scheme)
    colours = theme.colours()
    sets = {
        "lanes": [theme.lane_mark(lane) for lane in theme.LANE_COLOURS],
        "lanes as they are": list(theme.LANE_COLOURS.values()),
        "severities": [colours.info, colours.warning, colours.error],
        "overlays and the run": [*map(theme.mark, colours.overlays), colours.text],
        "selection": [colours.accent, colours.text, colours.muted],
    }
    for name, group in sets.items():
        for a, b in itertools.combinations(group, 2):
            assert apart(a, b, vision) >= 10, (name, a.name(), b.name())
