"""Values in every form, looked for, as an image, and written to a file; an element that is picked in them."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot
from test_values_view import cell, plan_of, window
from ui_helpers import make_snapshot, make_values, small_layout

from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.layout import Param
from inspector.runtime.commands import CancelWork, FindValue, SaveValues, ViewMatrix, ViewValues
from inspector.runtime.snapshots import CloseUp, MatrixImage, ValuesWindow
from inspector.runtime.value_finding import Found, Working
from inspector.ui.matrix_geometry import columns_of, whole
from inspector.ui.value_forms import FORMS, difference_text, value_text
from inspector.ui.values_view import ValuesView
from inspector.value_search import exponent_query, matches, parse_query

pytestmark = pytest.mark.qt

PARAM = "h.0.attn.qkv.weight"
Key, Mod, Left = Qt.Key, Qt.KeyboardModifier, Qt.MouseButton.LeftButton


class Shown:
    """A view of values, what it sent and which elements were picked in it."""

    def __init__(self, qtbot: QtBot, param: str = PARAM, **changes: object) -> None:
        self.view = ValuesView()
        qtbot.addWidget(self.view)
        self.sent: list[object] = []
        self.picked: list[tuple[str, int]] = []
        self.view.command.connect(self.sent.append)
        self.view.element_selected.connect(lambda name, index: self.picked.append((name, index)))
        self.view.resize(900, 400)
        with qtbot.waitExposed(self.view):
            self.view.show()
        self.changes = changes
        self.show()
        self.view.select_param(param)

    def show(self, **changes: object) -> None:
        self.view.show_snapshot(make_snapshot(**{**self.changes, **changes}))

    def of(self, kind: type) -> list:
        return [command for command in self.sent if isinstance(command, kind)]


# --- forms


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (1.0, ("1.0", "1.0", "n/a", "1,065,353,216", "3f800000", "0 01111111 " + "0" * 23, "0")),
        (-0.1, ("−0.1", "−0.1", "n/a", "3,184,315,597", "bdcccccd", "1 01111011 10011001100110011001101", "−4")),
        (70000.0, ("70000.0", "inf", "n/a", "1,200,142,336", "4788b800", "0 10001111 00010001011100000000000", "16")),
        (1e-42, ("1e−42", "0.0", "n/a", "714", "000002ca", "0 00000000 00000000000001011001010", "−126")),
        (0.0, ("0.0", "0.0", "n/a", "0", "00000000", "0 00000000 " + "0" * 23, "zero")),
        (np.nan, ("NaN", "NaN", "n/a", "2,143,289,344", "7fc00000", "0 11111111 1" + "0" * 22, "NaN")),
        (-np.inf, ("−inf", "−inf", "n/a", "4,286,578,688", "ff800000", "1 11111111 " + "0" * 23, "−inf")),
    ],
)  # fmt: skip
def test_a_value_in_every_form(value: float, wanted: tuple[str, ...]) -> None:
    with np.errstate(under="ignore"):
        assert tuple(value_text(np.float32(value), form) for form in FORMS) == wanted


def test_a_difference_is_a_number_or_a_distance_in_ulp() -> None:
    a, b = np.float32(1.0), np.nextafter(np.float32(1.0), np.float32(2.0))
    assert difference_text(a, np.float32(0.5), "f32") == "−0.5"
    assert difference_text(a, b, "hex") == "+1 ULP"
    assert difference_text(b, a, "bits") == "−1 ULP"
    assert difference_text(np.float32(-0.0), np.float32(0.0), "u32") == "0 ULP"
    assert difference_text(a, b, "f16") == "0"
    assert difference_text(a, np.float32(np.nan), "hex") == "NaN"


def test_columns_of_before_after_and_difference(qtbot: QtBot) -> None:
    values = window("p", [1.5, 2.0], [1.0, 2.0])
    shown = Shown(qtbot, "p", plan=plan_of(Param("p", (2,))), values=values)
    view = shown.view
    for lane in "gmv":
        view.lane_boxes[lane].setChecked(False)  # type: ignore[index]
    view.bar.moment_actions["difference"].setChecked(True)
    titles = [
        view.model.headerData(c, Qt.Orientation.Horizontal, Qt.ItemDataRole.DisplayRole) for c in range(5)
    ]
    assert titles == ["flat", "index", "w before", "w after", "Δw"]
    assert [cell(view, 0, c) for c in range(2, 5)] == ["1.0", "• 1.5", "0.5"]
    view.bar.moment_actions["before"].setChecked(False)
    view.form_combo.setCurrentText("hex")
    assert [cell(view, 0, c) for c in (2, 3)] == ["• 3fc00000", "+4,194,304 ULP"]


def test_codes_and_halves_are_those_that_lie_in_memory(qtbot: QtBot) -> None:
    after: dict[str, F32Array] = {lane: np.zeros(2, np.float32) for lane in "wgmv"}
    after["w"][:] = 0.1
    codes = {"m": np.array([-127, 5], np.int16)}
    half = np.array([0.25, 0.5], np.float16).view(np.uint16)
    values = ValuesWindow("p", 0, after, {"m": after["m"]}, codes, {"m": np.array([-120, 5], np.int16)}, half)  # type: ignore[arg-type]
    shown = Shown(qtbot, "p", plan=plan_of(Param("p", (2,))), values=values)
    view = shown.view
    view.form_combo.setCurrentText("i8 code")
    qtbot.waitUntil(lambda: [c.raw for c in shown.of(ViewValues)[-1:]] == ["codes"])
    columns = {
        view.model.headerData(c, Qt.Orientation.Horizontal, Qt.ItemDataRole.DisplayRole): c for c in range(10)
    }
    assert cell(view, 0, columns["m before"]) == "−120"
    assert cell(view, 0, columns["m after"]) == "−127"
    assert cell(view, 0, columns["v after"]) == "n/a"
    view.form_combo.setCurrentText("f16")
    qtbot.waitUntil(lambda: shown.of(ViewValues)[-1].raw == "half")
    # Of the mirror, and not what 0.1 would round to.
    assert cell(view, 0, columns["w after"]) == "0.25"


# --- picking


def test_going_through_the_rows_picks_elements_and_what_others_pick_does_not_move_the_page(
    qtbot: QtBot,
) -> None:
    shown = Shown(qtbot, values=make_values(PARAM, 0, 77))
    view = shown.view
    view.table.setFocus()
    view.go_to(10)
    assert shown.picked == []
    top = view.paged.top
    qtbot.keyClick(view.table, Key.Key_Down)
    assert shown.picked == [(PARAM, 11)]
    view.select_element(PARAM, 11)
    assert view.paged.top == top
    view.select_element(PARAM, 500)
    assert view.current == 500
    assert shown.picked == [(PARAM, 11)]


# --- looking for values


def answered(shown: Shown, **found: object) -> None:
    asked = shown.of(FindValue)[-1]
    shown.show(closeup=CloseUp(found=Found(asked, 128, **found)))  # type: ignore[arg-type]


def test_a_value_is_looked_for_from_where_a_person_is(qtbot: QtBot) -> None:
    shown = Shown(qtbot, values=make_values(PARAM, 0, 77))
    view, bar = shown.view, shown.view.find_bar
    view.table.setFocus()
    view.go_to(10)
    shown.show()
    view.open_find()
    assert bar.isVisible()
    assert bar.query.hasFocus()
    qtbot.keyClicks(bar.query, "|x| > 0.3")
    bar.lane.setCurrentText("m")
    qtbot.keyClick(bar.query, Key.Key_Return)
    assert shown.of(FindValue)[-1] == FindValue(parse_query("|x| > 0.3"), "m", PARAM, (PARAM, 10))
    answered(shown, count=34, param=PARAM, index=200, wrapped=True)
    assert shown.picked[-1] == (PARAM, 200)
    assert view.current == 200
    assert bar.status.text() == f"34 match in step 128; at 200 of {PARAM}, from the other end"
    qtbot.keyClick(bar.query, Key.Key_Return, Mod.ShiftModifier)
    assert shown.of(FindValue)[-1].backwards
    assert shown.of(FindValue)[-1].at == (PARAM, 200)
    answered(shown)
    assert "No m in" in bar.status.text()
    bar.scope.setCurrentText("all params")
    qtbot.keyClick(bar.query, Key.Key_F3)
    assert shown.of(FindValue)[-1].param is None
    answered(shown, count=1, param="norm.weight", index=3)
    assert shown.picked[-1] == ("norm.weight", 3)
    qtbot.keyClick(bar.query, Key.Key_Escape)
    assert not bar.isVisible()


def test_keys_go_to_what_is_not_finite_and_what_changed(qtbot: QtBot) -> None:
    shown = Shown(qtbot, values=make_values(PARAM, 0, 77))
    table = shown.view.table
    table.setFocus()
    for key, modifier, kind, backwards in (
        (Key.Key_N, Mod.NoModifier, "nonfinite", False), (Key.Key_N, Mod.ShiftModifier, "nonfinite", True),
        (Key.Key_C, Mod.NoModifier, "changed", False), (Key.Key_C, Mod.ShiftModifier, "changed", True),
    ):  # fmt: skip
        qtbot.keyClick(table, key, modifier)
        asked = shown.of(FindValue)[-1]
        assert (asked.query.kind, asked.backwards) == (kind, backwards)
        answered(shown)


def test_what_cannot_be_looked_for_is_explained_and_a_long_search_can_be_ended(qtbot: QtBot) -> None:
    shown = Shown(qtbot)
    bar = shown.view.find_bar
    shown.view.open_find()
    for text in ("", "x", "2..1", "|x| < -1", "1..", "0.1 ± 99999999 ulp"):
        bar.query.setText(text)
        qtbot.keyClick(bar.query, Key.Key_Return)
        assert bar.status.text().startswith("⚠ ")
    assert shown.of(FindValue) == []
    bar.query.setText("1")
    qtbot.keyClick(bar.query, Key.Key_Return)
    shown.show(closeup=CloseUp(working=Working("Looking for 1 in w", 30, 100)))
    assert "30 %" in bar.status.text()
    qtbot.keyClick(bar.query, Key.Key_Escape)
    assert shown.sent[-1] == CancelWork()
    assert bar.isVisible()
    answered(shown, ended=True)
    assert bar.status.text() == "The search was ended."
    shown.view.select_param("")


def test_queries_match_what_they_say() -> None:
    xs = np.array([0, -0.0, 1, -1, 0.1, np.nan, np.inf, -np.inf, 1e-42, 5, 2], np.float32)
    for text, wanted in {
        "0": [0, 1], "0.1": [4], "-1..1": [0, 1, 2, 3, 4, 8], "−1 .. 1": [0, 1, 2, 3, 4, 8], "> 1": [6, 9, 10],
        ">= 1": [2, 6, 9, 10], "< 0": [3, 7], "<= -1": [3, 7], "|x| > 1": [6, 7, 9, 10], "|x| 0.05..1": [2, 3, 4],
        "|x| < 1e-40": [0, 1, 8], "nan": [5], "inf": [6], "-inf": [7], "±inf": [6, 7], "non-finite": [5, 6, 7],
        "0x3f800000": [2], "0x80000000": [1], "1 ± 1 ulp": [2], "= 5": [9], "> 0.1": [2, 6, 9, 10], "1_0..20": [],
    }.items():  # fmt: skip
        assert np.flatnonzero(matches(parse_query(text), xs)).tolist() == wanted, text
    near = np.nextafter(np.float32([1, 1, 1]), np.float32([2, 0, 1]))
    assert matches(parse_query("1 ± 1 ulp"), near).all()
    assert matches(parse_query("1"), near).tolist() == [False, False, True]
    assert matches(parse_query("changed"), near, np.float32([1, 1, 1])).tolist() == [True, True, False]
    assert np.flatnonzero(matches(exponent_query(0), xs)).tolist() == [2, 3]
    assert np.flatnonzero(matches(exponent_query(-127), xs)).tolist() == [8]
    with pytest.raises(UsageError, match="nothing to look for"):
        parse_query("about 3")


# --- an image


def image_of(
    request: object, shape: tuple[int, int], nonfinite: tuple[int, int] | None = None
) -> MatrixImage:
    height, width = shape
    rgba = np.zeros((height, width, 4), np.uint8)
    rgba[...] = (0, 0, 255, 255)
    rgba[0, 0] = (255, 0, 0, 255)
    values, bad = np.full(shape, 0.5, np.float32), np.zeros(shape, np.float32)
    if nonfinite:
        bad[nonfinite] = 2
    return MatrixImage(request, rgba, values, bad, 0.0, 1.0)  # type: ignore[arg-type]


def test_as_an_image_only_the_pixels_on_screen_are_asked_for(qtbot: QtBot) -> None:
    shown = Shown(qtbot, plan=plan_of(Param("p", (3000, 1000))))
    view, canvas = shown.view, shown.view.matrix.canvas
    view.select_param("p")
    view.table.setFocus()
    qtbot.keyClick(view.table, Key.Key_M)
    qtbot.waitUntil(lambda: bool(shown.of(ViewMatrix)))
    request = shown.of(ViewMatrix)[-1].request
    assert (request.param, request.lane, request.moment, request.columns) == ("p", "w", "after", 1000)
    assert (request.width, request.height) == (canvas.width(), canvas.height())
    assert (request.across, request.down) == (1000 / canvas.width(), 3000 / canvas.height())
    # The table asks for nothing while nobody sees it.
    qtbot.waitUntil(lambda: shown.of(ViewValues)[-1:] == [ViewValues(None)])
    canvas.setFocus()
    for _ in range(20):
        qtbot.keyClick(canvas, Key.Key_Plus)
    qtbot.waitUntil(lambda: shown.of(ViewMatrix)[-1].request.across == 1.0)
    close = shown.of(ViewMatrix)[-1].request
    # One pixel an element from here on.
    assert close.width <= canvas.width() / 64 + 2
    view.matrix.lane.setCurrentText("v")
    view.matrix.moment.setCurrentText("difference")
    view.matrix.scale.setCurrentIndex(1)
    qtbot.waitUntil(lambda: shown.of(ViewMatrix)[-1].request.logarithmic)
    last = shown.of(ViewMatrix)[-1].request
    assert (last.lane, last.moment) == ("v", "difference")
    qtbot.keyClick(canvas, Key.Key_M)
    assert view.table.hasFocus()
    assert shown.sent[-1] == ViewMatrix(None) or ViewMatrix(None) in shown.sent[-2:]


def test_an_image_is_painted_read_out_and_picked_from(qtbot: QtBot) -> None:
    shown = Shown(qtbot, plan=plan_of(Param("p", (4, 6))))
    view, canvas = shown.view, shown.view.matrix.canvas
    view.select_param("p")
    view.bar.image.setChecked(True)
    qtbot.waitUntil(lambda: bool(shown.of(ViewMatrix)))
    request = shown.of(ViewMatrix)[-1].request
    assert (request.width, request.height) == (6, 4)
    shown.show(closeup=CloseUp(matrix=image_of(request, (4, 6), (1, 2))))
    size = 1 / (canvas.view.across if canvas.view else 1)
    at = QPointF(2.5 * size, 1.5 * size)
    assert canvas.describe(at).splitlines() == [
        "p[1, 2], flat 8", "w after = 0.5", "2 non-finite under this pixel",
    ]  # fmt: skip
    picture = canvas.grab().toImage()
    assert picture.pixelColor(int(size / 2), int(size / 2)) == QColor(255, 0, 0)
    assert picture.pixelColor(int(1.5 * size), int(size / 2)) == QColor(0, 0, 255)
    qtbot.mouseClick(canvas, Left, pos=QPoint(int(at.x()), int(at.y())))
    assert shown.picked[-1] == ("p", 8)
    canvas.setFocus()
    qtbot.keyClick(canvas, Key.Key_Right)
    qtbot.keyClick(canvas, Key.Key_Up)
    assert shown.picked[-2:] == [("p", 9), ("p", 3)]
    qtbot.keyClick(canvas, Key.Key_Up)
    assert shown.picked[-1] == ("p", 3)
    view.select_element("p", 20)
    assert canvas.current == 20


def test_the_view_of_a_matrix_zooms_about_a_point_and_stays_inside() -> None:
    view = whole(3000, 1000, 500, 300)
    assert (view.across, view.down) == (2.0, 10.0)
    closer = view.zoomed(4, 125, 75)
    assert closer.element_at(125, 75) == view.element_at(125, 75)
    assert (closer.across, closer.down) == (0.5, 2.5)
    assert closer.panned(-1e6, 1e6).element_at(0, 299) == (2997, 0)
    assert closer.zoomed(1e-9, 3, 3) == view
    assert closer.revealing(2999, 999).element_at(499, 299) == (2997, 999)
    assert view.resized(250, 300) == whole(3000, 1000, 250, 300)
    small = whole(4, 6, 500, 300)
    assert small.across == small.down == pytest.approx(1 / 64)
    assert small.element_at(6.2 * 64, 5) is None
    assert [columns_of(p) for p in (Param("a", (3, 5, 7)), Param("b", (9,)), Param("c", (1000,)), Param("d", ()))] == [
        7, 9, 256, 1,
    ]  # fmt: skip


# --- to a file


def test_selected_rows_or_all_of_them_are_written(qtbot: QtBot) -> None:
    shown = Shown(qtbot, values=make_values(PARAM, 0, 77))
    view = shown.view
    view.table.setFocus()

    def choose(path: str, *, by_key: bool = False) -> None:
        if by_key:
            qtbot.keyClick(view.table, Key.Key_E)
        else:
            qtbot.mouseClick(view.bar.save, Left)
        dialog = view.findChild(QFileDialog)
        assert dialog is not None
        dialog.fileSelected.emit(path)
        dialog.close()
        qtbot.waitUntil(lambda: view.findChild(QFileDialog) is None)

    choose("/tmp/all.csv", by_key=True)
    assert shown.of(SaveValues)[-1] == SaveValues(
        "/tmp/all.csv", PARAM, ("w", "g", "m", "v"), 0, small_layout()[PARAM].numel
    )
    view.go_to(5)
    for _ in range(3):
        qtbot.keyClick(view.table, Key.Key_Down, Mod.ShiftModifier)
    view.lane_boxes["g"].setChecked(False)
    # The element that is selected stays so when the columns change.
    assert view.current == 8
    view.go_to(5)
    for _ in range(3):
        qtbot.keyClick(view.table, Key.Key_Down, Mod.ShiftModifier)
    choose("/tmp/some.csv")
    assert shown.of(SaveValues)[-1] == SaveValues("/tmp/some.csv", PARAM, ("w", "m", "v"), 5, 4)


def test_everything_has_a_name_and_what_has_no_room_has_its_key(qtbot: QtBot) -> None:
    shown = Shown(qtbot)
    bar, find = shown.view.bar, shown.view.find_bar
    for widget in (bar.form_combo, bar.index_field, bar.columns, bar.image, bar.find_button, bar.save, find.query,
                   find.lane, find.scope, shown.view.matrix.canvas, shown.view.matrix.lane):  # fmt: skip
        assert widget.accessibleName()
        assert widget.focusPolicy() & Qt.FocusPolicy.TabFocus
    shown.view.resize(bar.minimumWidth(), 300)
    qtbot.waitUntil(lambda: not bar.save.isVisible())
    assert bar.image.geometry().right() <= bar.width()
    shown.view.resize(900, 300)
    qtbot.waitUntil(bar.save.isVisible)
