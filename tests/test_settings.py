"""What a person sets holds at once and at the next start; what the settings file holds never stops a start."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QSettings, Qt
from PySide6.QtWidgets import QApplication, QCheckBox, QComboBox, QLineEdit, QPushButton
from pytestqt.qtbot import QtBot
from test_window import Shown, light_views
from ui_helpers import FakeWorker, make_snapshot

from inspector.cli.window import RunOpener
from inspector.ui import docks, theme
from inspector.ui.app import application, make_view, run_window
from inspector.ui.main_window import MainWindow
from inspector.ui.options import FONT_SCALES, UNDO_MB, Options, read_options, write_options
from inspector.ui.settings_view import SettingsView

pytestmark = pytest.mark.qt


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    theme.apply(application(), "light", 1.0)


def open_at(path: Path) -> QSettings:
    return docks.open_settings(str(path / "w.ini"))


def with_page(qtbot: QtBot, path: Path) -> tuple[Shown, SettingsView]:
    page = make_view("settings")
    assert isinstance(page, SettingsView)
    shown = Shown(qtbot, open_at(path), {**light_views(), "settings": page})
    shown.window.ways.go_to_view("settings")
    return shown, page


def test_every_option_is_kept_and_read_back(tmp_path: Path) -> None:
    options = Options("dark", 1.5, "NVIDIA", 512, False)
    write_options(open_at(tmp_path), options)
    assert read_options(open_at(tmp_path)) == options
    write_options(open_at(tmp_path), Options())
    assert read_options(open_at(tmp_path)) == Options()
    assert "options" not in (tmp_path / "w.ini").read_text(), "what is as delivered is not written"


@given(
    st.dictionaries(
        st.sampled_from(["theme", "font_scale", "adapter", "undo_mb", "start_page", "other"]),
        st.one_of(
            st.text(max_size=30),
            st.integers(-(2**63), 2**63 - 1),
            st.floats(),
            st.booleans(),
            st.sampled_from(
                ["dark", "1.5", "nan", "inf", "-1", "1e999", "99999999999999999999", "\n\x1b[2J"]
            ),
            st.lists(st.text(max_size=3), max_size=3),
        ),
    )
)
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
def test_whatever_was_kept_the_options_can_be_meant(tmp_path: Path, kept: dict[str, object]) -> None:
    (tmp_path / "w.ini").unlink(missing_ok=True)
    writer = open_at(tmp_path)
    for name, value in kept.items():
        writer.setValue(f"options/{name}", value)
    writer.sync()
    options = read_options(open_at(tmp_path))
    assert options.theme in ("system", "light", "dark")
    assert math.isfinite(options.font_scale)
    assert FONT_SCALES[0] <= options.font_scale <= FONT_SCALES[-1]
    assert options.adapter.isprintable()
    assert options.undo_mb is None or UNDO_MB[0] <= options.undo_mb <= UNDO_MB[1]


@pytest.mark.parametrize(
    "content",
    [
        b"[options]\ntheme=@Variant(\\0\\0\\0\\x7f\\0\\0)\nfont_scale=@ByteArray(zz)\n",
        b"[options]\ntheme=@Invalid()\nfont_scale=nan\nundo_mb=@Size(1 2)\nadapter=@Rect(1 2 3 4)\n",
        b"[palette]\nrecent=@Variant(\\0)\n[recent]\nsources=@Invalid()\n[breakpoints]\nsize=99999999999\n",
        b"[layouts]\nsize=4000000000\n1\\name=x\n1\\state=@ByteArray(\\0)\n[window]\nfront=@Size(1 1)\n",
        b"\xff\xfe\x00[options\ntheme=dark" * 50,
        b"[options]\n" + b"theme=" + b"x" * 1_000_000 + b"\n",
    ],
)
def test_a_hostile_settings_file_does_not_stop_a_start(qtbot: QtBot, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.ini"
    path.write_bytes(content)
    seen: list[bool] = []

    def ready(window: MainWindow) -> None:
        seen.append(window.isVisible())
        window.ways.navigator.open_palette()
        window.close()

    assert run_window(FakeWorker, settings_path=str(path), views=light_views, on_ready=ready) == 0
    assert seen == [True]


def test_the_theme_is_changed_on_the_page_and_from_the_palette(qtbot: QtBot, tmp_path: Path) -> None:
    shown, page = with_page(qtbot, tmp_path)
    combo = page.findChild(QComboBox, "theme_option")
    assert isinstance(combo, QComboBox)
    combo.setFocus()
    qtbot.keyClick(combo, Qt.Key.Key_End)
    assert theme.colours().scheme == "dark"
    assert shown.window.actions_by_name["theme_dark"].isChecked()
    shown.window.actions_by_name["theme_light"].trigger()
    assert theme.colours().scheme == "light"
    assert combo.currentData() == "light"
    assert read_options(open_at(tmp_path)).theme == "light"
    shown.bus.blockSignals(True)


def test_the_size_of_text_is_changed_from_the_palette(qtbot: QtBot, tmp_path: Path) -> None:
    """Kept as the page keeps it, said with when it holds, and refused with a reason at either end."""
    shown, page = with_page(qtbot, tmp_path)
    acts = shown.window.actions_by_name
    sizes = page.findChild(QComboBox, "font_scale_option")
    assert isinstance(sizes, QComboBox)
    assert not acts["text_reset"].isEnabled()
    assert "100 %" in acts["text_reset"].toolTip()
    acts["text_larger"].trigger()
    assert read_options(open_at(tmp_path)).font_scale == 1.15 == sizes.currentData()
    assert shown.window.banner.text == "Text size 115 %, from the next start of the window."
    acts["text_smaller"].trigger()
    assert shown.window.banner.text == "Text size 100 %, as it is now."
    for _ in FONT_SCALES:
        acts["text_smaller"].trigger()
    assert read_options(open_at(tmp_path)).font_scale == FONT_SCALES[0]
    assert "the smallest" in acts["text_smaller"].toolTip()
    assert not acts["text_smaller"].isEnabled()
    for _ in FONT_SCALES:
        acts["text_larger"].trigger()
    assert read_options(open_at(tmp_path)).font_scale == FONT_SCALES[-1]
    assert not acts["text_larger"].isEnabled()
    acts["text_reset"].trigger()
    assert read_options(open_at(tmp_path)) == Options()
    assert not acts["text_reset"].isEnabled()
    sizes.setFocus()
    qtbot.keyClick(sizes, Qt.Key.Key_End)
    assert not acts["text_larger"].isEnabled(), "the page changes what is possible as well"
    shown.bus.blockSignals(True)


def test_everything_on_the_page_is_kept(qtbot: QtBot, tmp_path: Path) -> None:
    shown, page = with_page(qtbot, tmp_path)
    adapter, undo = page.findChild(QLineEdit, "adapter_field"), page.findChild(QLineEdit, "undo_option")
    start = page.findChild(QCheckBox, "start_page_option")
    assert isinstance(adapter, QLineEdit)
    assert isinstance(undo, QLineEdit)
    assert isinstance(start, QCheckBox)
    qtbot.keyClicks(adapter, "llvmpipe")
    qtbot.keyClick(adapter, Qt.Key.Key_Return)
    qtbot.keyClicks(undo, "256")
    qtbot.keyClick(undo, Qt.Key.Key_Return)
    start.click()
    scale = page.findChild(QComboBox, "font_scale_option")
    assert isinstance(scale, QComboBox)
    scale.setFocus()
    qtbot.keyClick(scale, Qt.Key.Key_End)
    wanted = Options(font_scale=FONT_SCALES[-1], adapter="llvmpipe", undo_mb=256, start_page=False)
    assert read_options(open_at(tmp_path)) == wanted == shown.window.preferences.options
    defaults = page.findChild(QPushButton, "defaults_button")
    assert isinstance(defaults, QPushButton)
    defaults.click()
    assert read_options(open_at(tmp_path)) == Options()
    assert (adapter.text(), undo.text(), start.isChecked()) == ("", "", True)
    shown.bus.blockSignals(True)


@pytest.mark.parametrize("typed", ["x", "-1", "1.5", str(UNDO_MB[1] + 1)])
def test_a_memory_that_cannot_be_meant_is_told_and_not_kept(qtbot: QtBot, tmp_path: Path, typed: str) -> None:
    shown, page = with_page(qtbot, tmp_path)
    page.undo_mb.setText(typed)
    page.undo_mb.editingFinished.emit()
    assert "whole number of MB" in page.note.text()
    assert read_options(open_at(tmp_path)).undo_mb is None
    shown.bus.blockSignals(True)


def test_the_adapters_that_were_found_are_offered(qtbot: QtBot) -> None:
    page = SettingsView()
    qtbot.addWidget(page)
    found: list[str] = []
    page.adapters = lambda: tuple(found)
    page.show_options(Options(adapter="mine"))
    found += ["A GPU", "llvmpipe", "llvmpipe"]
    page.show_snapshot(make_snapshot())
    assert [page.adapter.itemText(i) for i in range(page.adapter.count())] == ["", "A GPU", "llvmpipe"]
    assert page.adapter.currentText() == "mine", "what is typed stays"


def test_the_size_of_text_is_that_of_the_start(qtbot: QtBot, tmp_path: Path) -> None:
    write_options(open_at(tmp_path), Options(font_scale=1.5))
    before = theme.ui_font().pointSizeF()
    sizes: list[float] = []

    def ready(window: MainWindow) -> None:
        sizes.extend((window.font().pointSizeF(), theme.ui_font().pointSizeF()))
        window.close()

    settings_path = str(tmp_path / "w.ini")
    assert run_window(FakeWorker, settings_path=settings_path, views=light_views, on_ready=ready) == 0
    assert sizes == pytest.approx([1.5 * before] * 2)
    assert isinstance(QApplication.instance(), QApplication)


@pytest.mark.parametrize(
    ("given_adapter", "chosen", "used"),
    [
        (None, "", None),
        (None, "some", "some"),
        (None, "gone", None),
        ("given", "some", "given"),
        ("given", "gone", "given"),
    ],
)
def test_the_adapter_on_the_command_line_goes_before_that_of_the_settings(
    given_adapter: str | None, chosen: str, used: str | None
) -> None:
    opener = RunOpener(adapter=given_adapter, undo_mb=None, schedule=None, seed=None, given={})
    opener.chosen.found = ("Some GPU",)
    opener.chosen.adapter = lambda: chosen
    opener.chosen.undo_mb = lambda: 64
    maker = opener.replay_maker()
    assert maker.adapter == used, "one that is gone stops nothing"
