"""Lanes that an optimizer does not keep: greyed out in the views, with the reason, and named on the map."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot
from ui_helpers import make_map, make_snapshot, small_layout

from inspector.optimizers import plan_step
from inspector.plan import Limits, Plan, Variant
from inspector.runtime.map_picture import map_image
from inspector.runtime.snapshots import Snapshot
from inspector.ui.binding_table import binding_lines
from inspector.ui.histogram_view import HistogramView
from inspector.ui.hyper_view import HyperView
from inspector.ui.map_paint import MapPainter
from inspector.ui.params_view import ParamsView
from inspector.ui.values_view import ValuesView

pytestmark = pytest.mark.qt


def plan_of(name: str) -> Plan:
    return plan_step(small_layout(), Limits(), Variant(optimizer=name))


def shown_by(name: str) -> Snapshot:
    return make_snapshot(plan=plan_of(name))


def test_columns_of_what_is_not_kept_are_not_there(qtbot: QtBot) -> None:
    view = ValuesView()
    qtbot.addWidget(view)
    view.show()
    view.show_snapshot(shown_by("lion"))
    assert view.model.lanes == ("w", "g", "m")
    assert view.bar.lane_boxes["v"].toolTip() == "Lion keeps no v."
    view.show_snapshot(make_snapshot())
    assert view.model.lanes == ("w", "g", "m", "v")
    assert view.bar.lane_boxes["v"].toolTip() == "Show the columns of v."


def test_values_say_in_what_type_the_moments_are_that_are_kept(qtbot: QtBot) -> None:
    view = ValuesView()
    qtbot.addWidget(view)
    view.show()
    name = small_layout().segments[0].name
    for optimizer, says in (("adamw", ", m and v in float32"), ("lion", ", m in float32"), ("adafactor", "")):
        view.show_snapshot(shown_by(optimizer))
        view.select_param(name)
        assert view.note.text().endswith(f" elements{says}. • changed")


def test_histograms_ask_for_what_is_kept(qtbot: QtBot) -> None:
    view = HistogramView()
    qtbot.addWidget(view)
    view.show()
    view.show_snapshot(shown_by("momentum"))
    assert view.lanes == ("m",)
    view.show_snapshot(shown_by("sgd"))
    assert view.lanes == ()
    assert view.chart.message == "Tick w or g to see its magnitudes."


def test_params_go_back_to_w_where_the_lane_has_gone(qtbot: QtBot) -> None:
    view = ParamsView()
    qtbot.addWidget(view)
    view.show()
    view.show_snapshot(make_snapshot())
    view.lane_buttons["v"].click()
    view.show_snapshot(shown_by("sgd"))
    assert view.model.lane == "w"
    assert not view.lane_buttons["m"].isEnabled()


def test_settings_that_are_not_used_are_greyed_out(qtbot: QtBot) -> None:
    view = HyperView()
    qtbot.addWidget(view)
    view.show()
    view.show_snapshot(shown_by("sgd"))
    enabled = {name for name, field in view.fields.items() if field.isEnabled()}
    assert enabled == {"lr", "weight_decay", "max_grad_norm", "schedule"}
    name = next(label for label in view.findChildren(QLabel) if label.buddy() is view.fields["eps"])
    assert view.fields["eps"].toolTip() == name.toolTip() == "SGD does not use ε."
    view.show_snapshot(make_snapshot())
    assert all(field.isEnabled() for field in view.fields.values())
    assert view.fields["eps"].toolTip() == name.toolTip() == "Added to √v̂ in the denominator, 0 or more."


def test_the_map_takes_pixels_of_the_lanes_there_are() -> None:
    from inspector.mapping import MapRequest

    full = make_map(MapRequest(0.0, 100.0, 64, 8, "value"))
    lanes = ("w", "g")
    part = map_image(full.request, {lane: full.pixels[lane] for lane in lanes})
    painter = MapPainter()
    assert painter.reason("v") == ""
    painter.set_image(part)
    assert (painter.reason("g"), painter.reason("v")) == ("", "This optimizer keeps no v.")


@pytest.mark.parametrize(
    ("name", "numerics", "bias"),
    [
        ("adamw", "published", ("β₁ᵗ", "β₂ᵗ", "ε", "–")), ("lion", "published", ("–",) * 4),
        ("lion", "precise", ("1-β₁", "1-β₂", "–", "–")), ("sgd", "precise", ("–",) * 4),
    ],
)  # fmt: skip
def test_members_of_uniforms_are_named_as_the_optimizer_has_them(
    name: str, numerics: str, bias: tuple[str]
) -> None:
    plan = plan_step(small_layout(), Limits(), Variant(optimizer=name, numerics=numerics))  # type: ignore[arg-type]
    update = next(d for d in plan.dispatches if d.updates)
    values = {"bias": (0.0,) * 4, "hp:wd": (0.0,) * 4}
    rows = [line[1].strip() for line in binding_lines(plan, update, values)]
    assert [row.partition(" = ")[0] for row in rows[-4:]] == list(bias)
