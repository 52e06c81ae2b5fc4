"""The microscope as it is seen: what is asked for, the lines and their WGSL, the element over steps; keys and words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot, small_layout, small_plan

from inspector.addresses import address, parse_address, parse_index
from inspector.errors import UsageError
from inspector.explaining import CodedLine, ElementValues, exact_lines, explained, line_values, place_of
from inspector.hyper import Hyper
from inspector.layout import Param, make_layout
from inspector.optimizers import OPTIMIZERS
from inspector.runtime.commands import Seek, ViewElement
from inspector.runtime.element_trail import ElementTrail
from inspector.runtime.microscope import ElementPicture
from inspector.runtime.snapshots import CloseUp
from inspector.stores import LANES
from inspector.ui import microscope_model as model
from inspector.ui.microscope_lines import FORMULA, SAMPLES
from inspector.ui.microscope_trail import reduced, told_apart
from inspector.ui.microscope_view import MicroscopeView

pytestmark = pytest.mark.qt

PARAM = "h.0.attn.qkv.weight"
Key = Qt.Key
GIVEN = ElementValues(*np.float32([0.5, 0.25, 0.125, 0.0625]))


def trail(**lanes: tuple[list[int], list[float]]) -> ElementTrail:
    made = {lane: (np.array([], np.int64), np.array([], np.float32)) for lane in LANES}
    made |= {n: (np.array(s, np.int64), np.array(v, np.float32)) for n, (s, v) in lanes.items()}  # type: ignore[misc]
    return ElementTrail(made, from_memory=len(made["w"][0]))


def picture(param: str = PARAM, index: int = 17, **changes: object) -> ElementPicture:
    plan = small_plan()
    exact = exact_lines(
        GIVEN.as_arrays(), norm=2.0, scale=0.5, codec=None, clipped=False, hyper=Hyper(), step=128, decays=True,
        variant=plan.variant, param=plan.layout[param].param,
    )  # fmt: skip
    f32 = np.array([line.value[0] for line in exact[2:]], np.float32)
    base = ElementPicture(
        param, index, plan.layout[param].offset + index, 128, "given", plan, place_of(plan, param, index), GIVEN, GIVEN,
        explained(exact, line_values(exact, (2.0, 0.5), f32)), trail=trail(w=([1, 2, 3, 128], [1.0, 2.0, np.nan, 3.0])),
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def shown(qtbot: QtBot, made: ElementPicture | None = None) -> tuple[MicroscopeView, list[object]]:
    view = MicroscopeView()
    qtbot.addWidget(view)
    sent: list[object] = []
    view.command.connect(sent.append)
    view.resize(950, 200)
    view.select_element(PARAM, 17)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(make_snapshot(closeup=CloseUp(made)))
    return view, sent


def test_an_element_that_was_picked_is_said_to_be_looked_at_until_it_is_there(qtbot: QtBot) -> None:
    view = MicroscopeView()
    qtbot.addWidget(view)
    view.show()
    view.show_snapshot(make_snapshot())
    assert view.empty.isVisible()
    assert view.empty.text() == model.CHOOSE
    view.select_element(PARAM, 17)
    assert view.empty.isVisible()
    assert PARAM in view.empty.text()
    view.show_snapshot(make_snapshot(serial=3, closeup=CloseUp(picture())))
    assert not view.empty.isVisible()


def test_the_least_and_the_largest_of_a_lane_are_told_apart() -> None:
    assert told_apart(-1.0, 2.5, lambda _: True) == ("-1".replace("-", "−"), "2.5")
    assert told_apart(0.060456622, 0.06048644, lambda _: True) == ("0.06046", "0.06049")
    # As many digits as there is room for, where that is not enough.
    assert told_apart(0.060486421, 0.06048644, lambda text: len(text) < 9) == ("0.060486", "0.060486")


def test_the_formula_has_the_room_that_there_is(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, picture())
    header = view.table.horizontalHeader()
    for width in (2400, 700, 3000):
        view.resize(width, 400)
        qtbot.waitUntil(lambda: view.table.viewport().width() == view.table.maximumViewportSize().width())
        qtbot.wait(20)
        longest = max(view.fontMetrics().horizontalAdvance(row.formula) for row in view.model.rows)
        if width > 2000:
            assert view.table.columnWidth(FORMULA) > longest
            assert header.length() <= view.table.viewport().width()
        else:
            assert view.table.columnWidth(FORMULA) >= view.fontMetrics().horizontalAdvance(SAMPLES[FORMULA])


def test_an_element_is_asked_for_while_it_is_seen(qtbot: QtBot) -> None:
    view, sent = shown(qtbot)
    assert sent == [ViewElement(PARAM, 17)]
    view.select_element(PARAM, 18)
    view.select_element(PARAM, 18)
    view.select_param(PARAM)
    assert sent[1:] == [ViewElement(PARAM, 18)]
    view.select_param("norm.weight")
    assert sent[2:] == [ViewElement("norm.weight", 0)]
    view.hide()
    view.select_element(PARAM, 3)
    assert sent[3:] == [ViewElement(None)]
    view.show()
    assert sent[4:] == [ViewElement(PARAM, 3)]


def test_another_run_shows_nothing_of_the_one_before(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, picture())
    view.show_snapshot(make_snapshot(run=7))
    # The worker looks at the same element of the new one by itself.
    assert sent == [ViewElement(PARAM, 17)]
    assert view.model.rows == ()


def test_lines_stand_with_their_numbers_and_the_wgsl_of_the_selected_one_is_lit(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, picture())
    names = [row.name for row in view.model.rows]
    assert names[:6] == ["w₀", "g₀", "m₀", "v₀", "gradNorm", "clipScale"]
    row = view.model.rows[names.index("g'")]
    assert (row.f32, row.f64, row.ulp, row.bits) == ("0.125", "0.125", "0.00", "3e000000")
    assert view.table.currentIndex().row() == names.index("g'")
    assert view.code.lit_text[0].startswith("to.grad = ")
    view.table.setFocus()
    lit = {}
    for name in names[names.index("g'") :]:
        assert view.model.rows[view.table.currentIndex().row()].name == name
        lit[name] = view.code.lit_text
        qtbot.keyClick(view.table, Key.Key_Down)
    assert lit["m̂"] == ("to.m_hat = to.m / max(1.0 - bias.x, 1e-12);",)
    assert lit["w"] == ("to.w = select(w, w - to.change, is_finite4(to.change));",)
    view.table.selectRow(names.index("gradNorm"))
    assert view.code.lit_text == ("let grad_norm = sqrt(sums[0]);",)
    assert view.code.title.text() == "gradNorm: finalize_grad_stats.wgsl:26"
    view.table.selectRow(0)
    assert view.code.lit_text == ("let w0 = w[i];",)


def test_a_row_stays_selected_as_the_run_goes_on(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, picture())
    view.table.selectRow(9)
    view.show_snapshot(
        make_snapshot(closeup=CloseUp(picture(step=129, given=replace(GIVEN, w=np.float32(3)))))
    )
    assert view.table.currentIndex().row() == 9
    assert view.model.rows[0].f32 == "3.0"


def test_where_it_is_worked_on_and_how_far_the_step_is(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, picture())
    element = small_layout()[PARAM].offset + 17
    # Workgroups of 256 threads with four elements each.
    group, rest = divmod(element, 1024)
    words = view.where.text()
    assert f"thread {rest // 4}, lane {rest % 4} of its vec4 of workgroup {group}" in words
    assert "dispatch 3 adamw_update wd" in words
    assert f"slot 2 m: byte {4 * element:,} of buffer m" in view.where.toolTip()
    assert view.stage.text() == "step 128, before dispatch 3 updates it"
    for changes, wanted in (
        ({"stage": "ahead"}, "gradNorm is worked out ahead"),
        ({"stage": "done", "agrees": True}, "w, m and v bit for bit as in these lines"),
        ({"stage": "done", "agrees": False}, "wrote other bits than these lines"),
        ({"stage": "captured", "agrees": True}, "as recorded"),
        ({"missing": "Gone.", "lines": ()}, "Gone."),
    ):
        view.show_snapshot(make_snapshot(closeup=CloseUp(picture(**changes))))  # type: ignore[arg-type]
        assert wanted in view.stage.text()


def test_an_answer_to_an_older_question_is_not_shown(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, picture(index=3))
    assert view.model.rows == ()


def test_a_typed_address_goes_everywhere_and_a_wrong_one_is_explained(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, picture())
    picked: list[tuple[str, int]] = []
    view.element_selected.connect(lambda name, index: picked.append((name, index)))
    view.address.setFocus()
    for text, wanted in (
        (f"{PARAM}[1, 8]", (PARAM, 200)),
        ("44", (PARAM, 44)),
        ("norm.weight[3]", ("norm.weight", 3)),
    ):
        view.address.setText(text)
        qtbot.keyClick(view.address, Key.Key_Return)
        assert picked[-1] == wanted
        assert sent[-1] == ViewElement(*wanted)
    view.address.setText("nosuch[3]")
    qtbot.keyClick(view.address, Key.Key_Return)
    assert view.stage.text().startswith("⚠ There is no param 'nosuch'")
    assert len(picked) == 3


def test_keys_go_to_neighbours_and_copy(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, picture())
    view.table.setFocus()
    qtbot.keyClick(view.table, Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    text = QGuiApplication.clipboard().text()
    assert f"{PARAM}[0, 17]" in text
    assert "clipScale\tmin(1, max_grad_norm / max(gradNorm, 1e-6))\t0.5\t0.5\t0.00\t3f000000" in text
    qtbot.keyClick(view.table, Key.Key_BracketRight)
    assert sent[-1] == ViewElement(PARAM, 18)
    qtbot.keyClick(view.table, Key.Key_BracketLeft)
    qtbot.keyClick(view.table, Key.Key_BracketLeft)
    assert sent[-1] == ViewElement(PARAM, 16)
    assert view.address.text() == f"{PARAM}[0, 16]"
    qtbot.keyClick(view.table, Key.Key_A)
    assert view.address.hasFocus()
    view.select_element(PARAM, 0)
    view.step_element(-1)
    assert sent[-1] == ViewElement(PARAM, 0)


def test_over_steps_values_are_read_out_and_gone_to(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, picture())
    plot = view.trail
    assert "w after the update: 2.0" in plot.text_at(2)
    assert "g as the step was given it: not known" in plot.text_at(2)
    assert "w after the update: NaN" in plot.text_at(3)
    plot.setFocus()
    qtbot.keyClick(plot, Key.Key_Home)
    qtbot.keyClick(plot, Key.Key_Right)
    qtbot.keyClick(plot, Key.Key_Return)
    assert sent[-1] == Seek(2)
    qtbot.mouseClick(plot, Qt.MouseButton.LeftButton, pos=QPoint(round(plot.x_of(128)), 30))
    assert sent[-1] == Seek(128)
    assert view.trail_note.text() == "steps 1 to 128: 4 steps from memory"
    assert not plot.grab().isNull()


def test_everything_has_a_name_for_those_who_hear_it(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, picture())
    for widget in (view.address, view.table, view.code.editor, view.trail, *view.neighbours):
        assert widget.accessibleName()
        assert widget.focusPolicy() & Qt.FocusPolicy.TabFocus


# --- words and numbers, without a window


def test_numbers_that_are_not_known_say_so() -> None:
    rows = {row.name: row for row in model.rows(picture(exact_norm=False))}
    assert (rows["gradNorm"].f64, rows["gradNorm"].ulp) == ("n/a", "n/a")
    assert rows["m"].f64 != "n/a"
    assert model.rows(picture(lines=())) == ()
    assert (model.ulp_text(0.5), model.ulp_text(float("nan")), model.ulp_text(12345.6)) == (
        "0.50", "not both NaN", "12,346",
    )  # fmt: skip


def test_what_is_kept_in_8_bits_has_its_code_its_scale_and_what_was_lost() -> None:
    line = CodedLine("m", np.float32(0.11), 14, np.float32(0.0078125), np.float32(0.109375), True)
    row = model.rows(picture(coded=(line,)))[-1]
    assert (row.name, row.formula, row.f32, row.f64) == (
        "m kept",
        "code 14 · scale 0.0078125",
        "0.109375",
        "0.11",
    )
    assert row.ulp == "off by −6.25e−4"


def test_every_line_has_its_meaning() -> None:
    one = np.ones(1, np.float32)
    lines = {
        line.name
        for each in OPTIMIZERS.values()
        if each.update is not None
        for line in each.update(one, one, one, one, scale=1.0, hyper=Hyper(), step=1, decays=True).lines
    }
    assert {row.name for row in model.rows(picture())} | lines == set(model.MEANS)


def test_spikes_and_gaps_survive_the_reduction_to_pixels() -> None:
    steps = np.concatenate([np.arange(1, 5001), np.arange(7000, 9000)])
    values = np.zeros(len(steps), np.float32)
    values[[1234, 4000]] = [5.0, -7.0]
    values[100] = np.inf
    drawn = reduced(steps, values, 100)
    assert len(drawn.steps) <= 200
    assert (drawn.values.max(), drawn.values.min()) == (5.0, -7.0)
    assert drawn.bad.tolist() == [101]
    gaps = [
        (int(a), int(b)) for a, b, j in zip(drawn.steps, drawn.steps[1:], drawn.joined, strict=False) if not j
    ]
    assert len(gaps) == 2
    assert any(a <= 5000 and b >= 7000 for a, b in gaps)


LAYOUT = make_layout(
    [Param("a.weight", (4, 6)), Param("b.weight", (8,)), Param("x[0]", (3,)), Param("s", ())]
)


@pytest.mark.parametrize(
    ("text", "param", "found"),
    [
        ("a.weight[1, 2]", "", ("a.weight", 8)), ("a.weight[8]", "", ("a.weight", 8)),
        (" a.weight [1,2] ", "", ("a.weight", 8)),
        ("a.weight", "", ("a.weight", 0)), ("7", "b.weight", ("b.weight", 7)), ("[3, 5]", "a.weight", ("a.weight", 23)),
        ("x[0][2]", "", ("x[0]", 2)), ("x[0]", "", ("x[0]", 0)), ("s", "", ("s", 0)), ("s[]", "", ("s", 0)),
        ("b.w[3]", "", ("b.weight", 3)), ("#65", "", ("b.weight", 1)), ("A.WEIGHT[2]", "", ("a.weight", 2)),
    ],
)  # fmt: skip
def test_addresses(text: str, param: str, found: tuple[str, int]) -> None:
    if text == "#65":
        text = f"#{LAYOUT['b.weight'].offset + 1}"
    assert parse_address(text, LAYOUT, param) == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Type which element"), ("3", "none is"), ("nosuch", "no param 'nosuch'"),
        ("weight[1]", "2 params have 'weight'"),
        ("a.weight[4, 0]", "outside 0 to 3"), ("a.weight[24]", "no element 24"), ("#30", "gap"), ("#99999", "outside"),
        ("a.weight[x]", "not an index"), ("b.weight[1, 2]", "1 dimension"), ("#x", "no place"),
    ],
)  # fmt: skip
def test_addresses_that_name_nothing_are_explained(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_address(text, LAYOUT)


def test_an_address_reads_back() -> None:
    for segment in LAYOUT:
        for index in range(segment.numel):
            assert parse_address(address(segment.param, index), LAYOUT) == (segment.name, index)
    assert parse_index("0", Param("s", ())) == 0
