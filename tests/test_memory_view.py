"""The memory view: bills of the model that is open or of a number of elements, by devices, stage and precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot, small_layout, small_plan

from inspector.byte_sizes import GB
from inspector.memory_bill import bills
from inspector.runtime.memory_picture import MemoryPicture
from inspector.state_memory import run_use
from inspector.ui import theme
from inspector.ui.memory_bars import spans
from inspector.ui.memory_model import BAR, DEVICES, ON_EACH, OPTIMIZER, PRECISION, TOTAL
from inspector.ui.memory_view import NO_SOURCE, STAGE_TEXTS, MemoryView

pytestmark = pytest.mark.qt


def allocated() -> Mapping[str, int]:
    return {spec.name: spec.size for spec in small_plan().buffers}


def picture() -> MemoryPicture:
    return MemoryPicture(run_use(small_plan(), allocated()), bills(small_layout().params))


def shown(
    qtbot: QtBot, memory: MemoryPicture | None = None, width: int = 950, height: int = 300
) -> MemoryView:
    view = MemoryView()
    qtbot.addWidget(view)
    view.resize(width, height)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(make_snapshot(memory=memory))
    return view


def cells(view: MemoryView, column: int) -> list[str]:
    return [str(view.model.index(row, column).data()) for row in range(view.model.rowCount())]


def typed(qtbot: QtBot, view: MemoryView, text: str) -> None:
    view.elements.clear()
    qtbot.keyClicks(view.elements, text)
    qtbot.keyClick(view.elements, Qt.Key.Key_Return)


def test_without_a_source_it_says_what_would_fill_it(qtbot: QtBot) -> None:
    view = shown(qtbot)
    assert view.said.text() == NO_SOURCE
    assert view.model.rowCount() == 0
    assert "once a source is on a device" in view.run.text()


def test_the_model_that_is_open_is_billed(qtbot: QtBot) -> None:
    view = shown(qtbot, picture())
    n = small_layout().elements
    assert view.model.bills[0].total == 16 * n
    assert cells(view, OPTIMIZER)[0].startswith("adamw")
    assert f"{n:,} elements" in view.said.text()
    assert "activations" in view.said.text()


def test_the_run_stands_beside_it_as_allocated(qtbot: QtBot) -> None:
    view = shown(qtbot, picture())
    n, padded = small_layout().elements, small_layout().padded_elements
    assert f"{16 * (padded - n)} B are gaps" in view.run.text()
    assert f"{4 * n:,}" in view.run.toolTip()
    assert f"{4 * padded:,}" in view.run.toolTip()


def test_70b_in_two_bytes_is_560_gb(qtbot: QtBot) -> None:
    view = shown(qtbot, picture())
    typed(qtbot, view, "70B")
    view.precision.setCurrentText("bf16")
    assert set(cells(view, PRECISION)) == {"bf16"}
    assert cells(view, TOTAL)[0] == "560 GB"
    assert [cells(view, DEVICES + i)[0] for i in range(3)] == ["24", "7", "4"]
    typed(qtbot, view, "")
    assert f"{small_layout().elements:,} elements" in view.said.text()


def test_what_is_no_number_is_said_and_changes_nothing(qtbot: QtBot) -> None:
    view = shown(qtbot, picture())
    before = cells(view, TOTAL)
    typed(qtbot, view, "many")
    assert "no number of elements" in view.said.text()
    assert cells(view, TOTAL) == before
    typed(qtbot, view, "")
    assert "no number" not in view.said.text()


def test_devices_and_stage_change_what_lies_on_each(qtbot: QtBot) -> None:
    view = shown(qtbot)
    typed(qtbot, view, "70B")
    view.precision.setCurrentText("bf16")
    view.devices.setValue(8)
    assert cells(view, ON_EACH)[0] == "70.0 GB"
    view.stage.setCurrentIndex(1)
    # Weights and gradients whole, 280 GB of moments over 8.
    assert cells(view, ON_EACH)[0] == "315 GB"
    assert cells(view, DEVICES)[0] == "none"


def test_keys_reach_everything(qtbot: QtBot) -> None:
    view = shown(qtbot, picture())
    view.table.setFocus()
    qtbot.keyClick(view.table, Qt.Key.Key_Z)
    assert view.stage.currentText() == STAGE_TEXTS[0]
    qtbot.keyClick(view.table, Qt.Key.Key_R)
    assert set(cells(view, PRECISION)) == {"f32"}
    qtbot.keyClick(view.table, Qt.Key.Key_D)
    assert view.devices.hasFocus()
    view.table.setFocus()
    qtbot.keyClick(view.table, Qt.Key.Key_M)
    assert view.elements.hasFocus()


def test_parts_lie_end_to_end_and_fill_the_bar_of_the_largest() -> None:
    bill = bills(small_layout().params)[1]
    found = spans([(part, part.nbytes) for part in bill.parts], bill.total, 180.0)
    assert [part.name for part, _, _ in found] == ["weights", "gradients", "m", "v", "f16 mirror"]
    assert [(low, high) for _, low, high in found] == [
        pytest.approx(pair) for pair in ((0, 40), (40, 80), (80, 120), (120, 160), (160, 180))
    ]


def test_the_bar_is_painted_in_the_colours_of_the_lanes(qtbot: QtBot) -> None:
    view = shown(qtbot, picture())
    view.precision.setCurrentText("f32")
    area = view.table.visualRect(view.model.index(0, BAR))
    image = view.table.viewport().grab(area).toImage()
    middle = image.height() // 2
    seen = [QColor(image.pixel(x, middle)).name() for x in range(image.width())]
    order = list(dict.fromkeys(name for name in seen if seen.count(name) > 10))
    lanes = [theme.lane_mark(lane).name() for lane in ("w", "g", "m", "v")]
    assert [name for name in order if name in lanes] == lanes


def test_cells_say_in_full_what_they_mean(qtbot: QtBot) -> None:
    view = shown(qtbot)
    typed(qtbot, view, "70B")
    row = [b.precision.name for b in view.model.bills].index("bf16")
    assert f"{560 * GB:,} bytes" in str(view.model.index(row, TOTAL).data(Qt.ItemDataRole.ToolTipRole))
    parts = str(view.model.index(row, BAR).data(Qt.ItemDataRole.AccessibleTextRole))
    assert parts == "On each: weights 140 GB, gradients 140 GB, m 140 GB, v 140 GB"


def test_what_looking_at_the_run_takes_is_told_beside_it(qtbot: QtBot) -> None:
    view = shown(qtbot, replace(picture(), map_bytes=12_180_000, undo_bytes=345))
    assert view.run.text().endswith("Beside it 12.2 MB for the map, 345 B for going back.")
    assert "12,180,000" in view.run.toolTip()
