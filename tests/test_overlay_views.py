"""Recordings under the run in the plots: their curves, what is read out of them, their legend, and how they go."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from PySide6.QtWidgets import QToolButton
from pytestqt.qtbot import QtBot
from ui_helpers import make_histograms, make_history, make_snapshot

from inspector.history import EMPTY_HISTORY, History, HistoryRecorder, Series
from inspector.runtime.beside import BesidePicture, Overlay, OverlayHistograms, WhatIfProgress
from inspector.runtime.commands import CancelWhatIf, DropOverlay, ShowOverlay, WhatIf
from inspector.runtime.snapshots import Notice, Snapshot
from inspector.session.examples import EXAMPLES
from inspector.ui import theme
from inspector.ui.actions import reasons
from inspector.ui.histogram_view import HistogramView
from inspector.ui.lockstep_view import LockstepView
from inspector.ui.overlay_style import DASHES, beside, difference
from inspector.ui.plots_view import PlotsView
from inspector.ui.timing_view import TimingView
from inspector.ui.view import LazyView
from inspector.ui.what_if_dialog import WhatIfDialog, folder_for

pytestmark = pytest.mark.qt


def history_of(first: int, columns: Mapping[str, np.ndarray]) -> History:
    recorder = HistoryRecorder()
    recorder.extend(first, columns)
    return recorder.freeze()


def overlay(slot: int = 0, first: int = 1, **columns: Sequence[float]) -> Overlay:
    arrays = {name.replace("_ms", "ms/"): np.array(values, np.float64) for name, values in columns.items()}
    count = max(map(len, arrays.values()), default=0)
    name = f"run{slot}.session"
    return Overlay(f"/x/{name}", name, slot, range(first, first + count), history_of(first, arrays))


def run_of(**columns: Sequence[float]) -> History:
    return history_of(1, {name: np.array(values, np.float64) for name, values in columns.items()})


def on_screen(qtbot: QtBot, view: LazyView, snapshot: Snapshot) -> None:
    qtbot.addWidget(view)
    view.resize(1000, 420)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(snapshot)


def moment(history: History, *overlays: Overlay, **changes: Any) -> Snapshot:
    made = make_snapshot(beside=BesidePicture(overlays), **{"record": None, **changes})
    return replace(made, history=history)


def test_an_overlay_is_drawn_with_its_spikes_and_nan(qtbot: QtBot) -> None:
    view = PlotsView()
    losses = np.full(5000, 2.0)
    losses[1234], losses[4000] = 50.0, math.nan
    on_screen(qtbot, view, moment(run_of(loss=[3.0] * 10), overlay(loss=losses)))
    chart = view.charts["loss"]
    drawn = chart.drawn_under(0, "loss")
    assert drawn.bounds() == (2.0, 50.0)
    assert len(drawn.nan) == 1
    assert len(chart.edges.drawn("nan")) == 1
    low, high = chart.box.viewRange()[1]
    assert low < 2
    assert high > 50
    # All steps of both are in view.
    start, stop = chart.box.viewRange()[0]
    assert start < 1
    assert stop > 5000


def test_a_line_is_told_by_its_dash_and_by_its_colour(qtbot: QtBot) -> None:
    view = PlotsView()
    on_screen(
        qtbot, view, moment(run_of(loss=[3.0, 2.0]), overlay(0, loss=[1.0, 2.0]), overlay(2, loss=[2.0]))
    )
    under = view.charts["loss"]._under
    patterns = {slot: under[slot, "loss"].line.opts["pen"].dashPattern() for slot in (0, 2)}
    assert patterns[0] != patterns[2]
    assert all(patterns.values())
    assert not view.charts["loss"].pen("loss").dashPattern()
    colours = {under[slot, "loss"].line.opts["pen"].color().name() for slot in (0, 2)}
    assert len(colours | {theme.colours().text.name()}) == 3
    for scheme in (theme.LIGHT, theme.DARK):
        assert all(theme.contrast(colour, scheme.base) >= 3 for colour in scheme.overlays)
    assert len(set(DASHES)) == len(DASHES)


def test_values_of_both_and_their_difference_are_read_out(qtbot: QtBot) -> None:
    view = PlotsView()
    on_screen(
        qtbot,
        view,
        moment(
            run_of(loss=[3.0, 2.0]), overlay(0, loss=[3.0, 2.25, 1.5]), overlay(1, first=2, loss=[2.0, 1.0])
        ),
    )
    chart = view.charts["loss"]
    assert chart.title == "loss (nats/char)  2  ① 2.25 (+0.25)  ② 2 (±0)"
    chart.hovered.emit(1.0)
    assert chart.title == "loss (nats/char)  3  ① 3 (±0)"
    # Beyond the run a difference is one between the recordings.
    chart.hovered.emit(3.2)
    assert chart.title == "loss (nats/char)  ① 1.5  ② 1 (−0.5)"
    assert view.readout.text().startswith("step 3")
    assert chart.cross_line.value() == 3


def test_without_a_step_of_the_run_the_recordings_are_read_out(qtbot: QtBot) -> None:
    view = PlotsView()
    on_screen(qtbot, view, moment(EMPTY_HISTORY, overlay(loss=[3.0, 2.5]), cursor=None))
    assert view.charts["loss"].message == ""
    assert view.charts["loss"].title == "loss (nats/char)  ① 2.5"
    assert "F11" in view.charts["grad_norm"].message


def test_differences_in_words() -> None:
    assert difference(1.0, 1.5) == "+0.5"
    assert difference(1.5, 1.0) == "−0.5"
    assert difference(math.nan, math.nan) == "±0"
    assert difference(math.inf, math.inf) == "±0"
    assert difference(1.0, math.nan) == "n/a"
    assert beside((), "loss", 1, 2.0) == ("",)
    assert beside((overlay(loss=[2.0]),), "loss", 7, 2.0) == ("",)


def test_the_legend_names_them_and_takes_them_away(qtbot: QtBot) -> None:
    view = PlotsView()
    sent: list[Any] = []
    view.command.connect(sent.append)
    reading = replace(overlay(1), loading=True)
    on_screen(qtbot, view, moment(run_of(loss=[3.0]), overlay(0, loss=[1.0]), reading))
    assert view.legend.isVisible()
    assert view.legend.texts == ["① run0.session", "② run1.session, reading …"]
    view.legend.findChildren(QToolButton)[0].click()
    assert sent == [DropOverlay("/x/run0.session")]
    view.show_snapshot(moment(run_of(loss=[3.0])))
    assert not view.legend.isVisible()
    assert not view.charts["loss"]._under
    assert "①" not in view.charts["loss"].title


def test_the_legend_covers_no_curve(qtbot: QtBot) -> None:
    view = PlotsView()
    on_screen(qtbot, view, moment(run_of(loss=[3.0]), overlay(0, loss=[1.0])))
    for chart in view.charts.values():
        assert not view.legend.geometry().intersects(chart.geometry())


def test_kernel_times_lie_beside_each_other(qtbot: QtBot) -> None:
    view = TimingView()
    labels = [d.timing_key for d in make_snapshot().plan.dispatches]  # type: ignore[union-attr]
    history = make_history(8, labels=labels)
    name = f"ms/{labels[0]}"
    times = overlay(0)
    under = {name: np.linspace(1, 2, 20), "ms/other kernel": np.full(20, 0.5)}
    times = replace(times, steps=range(1, 21), history=history_of(1, under))
    on_screen(qtbot, view, moment(history, times))
    assert view.chart.drawn_under(0, name).drawn == 20
    # A kernel that only the recording ran is there as well.
    assert view.chart.drawn_under(0, "ms/other kernel").drawn == 20
    assert len(view.chart._under[0, name].dots.getData()[0]) > 1
    view.table.selectRow(0)
    view.chart.hovered.emit(8)
    assert "① 1.368" in view.chart.title
    view.chart.hovered.emit(20)
    assert view.chart.title.startswith("step 20")
    assert "① 2" in view.chart.title


def test_histograms_of_the_same_step_are_outlined(qtbot: QtBot) -> None:
    view = HistogramView()
    mine = make_histograms()
    # Twice the elements in each bin.
    doubled = replace(mine.stats["v"], exponents=mine.stats["v"].exponents * 2)
    found = OverlayHistograms(None, 129, MappingProxyType({"v": doubled}))
    under = replace(overlay(0, loss=[1.0]), histograms=found)
    on_screen(qtbot, view, moment(make_history(), under, histograms=mine))
    assert list(view._under) == [(0, "v")]
    _, heights = view._under[0, "v"].getData()
    _, own = view.bars["v"].getData()
    np.testing.assert_array_equal(heights, 2 * np.asarray(own))
    assert "run0.session: before the update of step 129" in view.words.text()
    bin_ = int(np.argmax(mine.stats["v"].exponents)) - 127
    count = int(mine.stats["v"].exponents.max())
    view.chart.hovered.emit(bin_ + 0.5)
    assert f"v {count:,} ① {2 * count:,} (+" in view.chart.title
    # Of another param they would be compared with what they are not.
    under = replace(under, histograms=replace(found, param="other"))
    view.show_snapshot(moment(make_history(), under, histograms=mine))
    assert view._under == {}
    under = replace(under, histograms=OverlayHistograms(None, 129, absent="x.session has no step 129."))
    view.show_snapshot(moment(make_history(), under, histograms=mine))
    assert "x.session has no step 129." in view.words.text()


def test_errors_of_8_bit_state_are_drawn_in_the_colours_of_m_and_v(qtbot: QtBot) -> None:
    view = LockstepView()
    under = overlay(0, loss=[1.0] * 9)
    steps = np.array([1, 5, 9])
    values = {"coding/m": np.array([0.01, 0.02, 0.03]), "coding/v": np.array([0.1, 0.2, 0.3])}
    series = {name: Series(v, v, v, np.zeros(3, np.uint32)) for name, v in values.items()}
    under = replace(under, coding=History(1, steps, MappingProxyType(series), 1))
    on_screen(qtbot, view, moment(run_of(loss=[1.0] * 9), under))
    chart = view.plots.errors
    np.testing.assert_allclose(chart.drawn_under(0, "coding/m").last, np.log10(values["coding/m"]))
    assert chart._under[0, "coding/v"].line.opts["pen"].color() == theme.lane_mark("v")
    assert chart._under[0, "coding/v"].line.opts["pen"].dashPattern()
    assert chart.message == ""
    assert chart.title.endswith("m ① 3 %  v ① 30 %")
    chart.hovered.emit(6.0)
    # Of a step without a value the nearest that has one is told, and which that is.
    assert "m ① 2 % at 5  v ① 20 % at 5" in chart.title
    assert view.legend.isVisible()
    view.show_snapshot(moment(run_of(loss=[1.0] * 9), overlay(0, loss=[1.0] * 9)))
    assert not view.legend.isVisible()


def test_with_a_kernel_selected_only_its_times_are_drawn(qtbot: QtBot) -> None:
    view = TimingView()
    labels = list(dict.fromkeys(d.timing_key for d in make_snapshot().plan.dispatches))  # type: ignore[union-attr]
    times = {f"ms/{label}": np.full(8, 0.5) for label in labels}
    under = replace(overlay(0), steps=range(1, 9), history=history_of(1, times))
    on_screen(qtbot, view, moment(make_history(8, labels=labels), under))
    assert len(view.chart._under) == len(labels)
    view.table.selectRow(1)
    assert list(view.chart._under) == [(0, f"ms/{labels[1]}")]


# --- what can be asked for


def test_what_cannot_be_asked_for_says_why() -> None:
    snapshot = make_snapshot()
    assert reasons(snapshot)["what_if"] == "no recording is open"
    assert reasons(snapshot)["drop_overlays"] == "no recording is laid under the run"
    snapshot = make_snapshot(beside=BesidePicture((overlay(loss=[1.0]),), recording="/x/run.session"))
    assert not {"what_if", "drop_overlays", "overlay"} & reasons(snapshot).keys()
    assert ShowOverlay("a") != ShowOverlay("b")


def dialog_of(qtbot: QtBot, tmp_path: Path, changes: str) -> tuple[WhatIfDialog, list[Any]]:
    beside_ = BesidePicture(recording=str(tmp_path / "run.session"), changes=changes)
    dialog = WhatIfDialog(make_snapshot(beside=beside_))
    sent: list[Any] = []
    dialog.command.connect(sent.append)
    qtbot.addWidget(dialog)
    dialog.show()
    return dialog, sent


def test_a_what_if_needs_a_change(qtbot: QtBot, tmp_path: Path) -> None:
    dialog, _ = dialog_of(qtbot, tmp_path, "")
    assert not dialog.start.isEnabled()
    assert "are those of the recording" in dialog.words.text()
    # What was set right before it was asked for has arrived.
    dialog.show_snapshot(make_snapshot(beside=BesidePicture(changes="beta2 0.5")))
    assert dialog.start.isEnabled()
    assert dialog.changed.text() == "beta2 0.5"


def test_a_what_if_of_an_example_is_not_put_into_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = EXAMPLES[0].path
    assert example is not None
    assert folder_for(example) == tmp_path
    own = tmp_path / "runs" / "a.session"
    own.mkdir(parents=True)
    assert folder_for(own) == own.parent
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != own.parent)
    assert folder_for(own) == tmp_path, "where nothing may be written beside it"


def test_a_what_if_shows_how_far_it_is_and_ends(qtbot: QtBot, tmp_path: Path) -> None:
    dialog, sent = dialog_of(qtbot, tmp_path, "beta2 0.5")
    assert Path(dialog.path.text()) == tmp_path / "run-what-if.session"
    (tmp_path / "taken.session").mkdir()
    dialog.path.setText(str(tmp_path / "taken"))
    assert "exists" in dialog.words.text()
    assert not dialog.start.isEnabled()
    dialog.path.setText(str(tmp_path / "made"))
    dialog.start.click()
    assert sent == [WhatIf(str(tmp_path / "made.session"), None)]
    progress = BesidePicture(what_if=WhatIfProgress("made", 3, 8))
    dialog.show_snapshot(make_snapshot())
    assert dialog.isVisible()
    dialog.show_snapshot(make_snapshot(beside=progress))
    assert (dialog.progress.value(), dialog.progress.maximum()) == (3, 8)
    dialog.show_snapshot(make_snapshot(beside=BesidePicture()))
    assert not dialog.isVisible()


def test_a_what_if_can_be_cancelled_and_one_that_is_refused_closes(qtbot: QtBot, tmp_path: Path) -> None:
    dialog, sent = dialog_of(qtbot, tmp_path, "beta2 0.5")
    dialog.start.click()
    dialog.reject()
    assert sent[-1] == CancelWhatIf()
    dialog, sent = dialog_of(qtbot, tmp_path, "beta2 0.5")
    dialog.start.click()
    dialog.show_snapshot(make_snapshot(notice=Notice(9, "error", "It exists.")))
    assert not dialog.isVisible()
