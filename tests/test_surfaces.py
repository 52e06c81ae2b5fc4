"""Problems of two parameters: functions and gradients against differences, and the view with its paths."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest
from event_loop import let_run
from pytestqt.qtbot import QtBot
from test_race import started
from ui_helpers import make_race, make_snapshot

from inspector.cli import run
from inspector.errors import UsageError
from inspector.history import HistoryRecorder
from inspector.layout import Param, make_layout
from inspector.optimizers import Instead, plan_step, runs_as
from inspector.plan import Limits, Variant
from inspector.race import LaneSpec
from inspector.runtime.commands import Command, StartRace
from inspector.runtime.race_pictures import LanePicture, RacePicture
from inspector.sources.open import open_source
from inspector.sources.surface import SurfaceSource
from inspector.stepping import HostGradients
from inspector.surfaces import SURFACES, Surface, surface_of
from inspector.ui import theme
from inspector.ui.app import application
from inspector.ui.race_model import LANE, STATE
from inspector.ui.race_view import RaceView
from inspector.ui.surface_view import SurfaceView

each_surface = pytest.mark.parametrize("surface", SURFACES.values(), ids=SURFACES)


@each_surface
def test_the_gradient_is_that_of_the_function(surface: Surface) -> None:
    rng = np.random.default_rng(3)
    x0, x1, y0, y1 = surface.window
    h = 1e-6
    for x, y in zip(rng.uniform(x0, x1, 50), rng.uniform(y0, y1, 50), strict=True):
        f = surface.value
        along_x = (f(np.array(x + h), np.array(y)) - f(np.array(x - h), np.array(y))) / (2 * h)
        along_y = (f(np.array(x), np.array(y + h)) - f(np.array(x), np.array(y - h))) / (2 * h)
        np.testing.assert_allclose(surface.slope(x, y), (along_x, along_y), rtol=1e-5, atol=1e-5)


@each_surface
def test_nothing_in_its_window_is_lower_than_its_minima(surface: Surface) -> None:
    x0, x1, y0, y1 = surface.window
    x, y = np.linspace(x0, x1, 401), np.linspace(y0, y1, 401)
    least = surface.value(x[:, None], y[None, :]).min()
    for at in surface.minima:
        np.testing.assert_allclose(surface.slope(*at), (0, 0), atol=1e-12)
        lowest = float(surface.value(np.array(at[0]), np.array(at[1])))
        assert lowest <= least + 1e-12
        assert lowest == pytest.approx(surface.lowest, abs=1e-12)


@each_surface
def test_what_is_worth_racing_on_it_can_race_and_gets_lower(surface: Surface) -> None:
    lanes = [LaneSpec.from_text(text) for text in surface.lanes]
    assert {lane.optimizer for lane in lanes} == {"sgd", "momentum", "adam", "lion"}
    race = started(*surface.lanes, source=f"surface:{surface.name}")
    try:
        for _ in range(60):
            race.step()
        for lane in race.lanes:
            loss = lane.history.series["loss"].last
            assert loss[-1] < loss[0], lane.name
            assert lane.diverged is None
    finally:
        race.close()


def test_gradient_descent_on_the_valley_is_what_the_formula_says() -> None:
    """w ← w - lr·∇f by hand: each part shrinks by 1 - lr and 1 - 50·lr a step."""
    race = started("sgd:lr=0.01", "sgd:lr=0.02", source="surface:valley")
    try:
        for _ in range(10):
            race.step()
        for lane, rate in zip(race.lanes, (0.01, 0.02), strict=True):
            x, y = (lane.history.series[name].last for name in ("x", "y"))
            steps = np.arange(1, 11)
            np.testing.assert_allclose(x, -4 * (1 - rate) ** steps, rtol=1e-5)
            np.testing.assert_allclose(y, (1 - 50 * rate) ** steps, rtol=1e-5, atol=1e-7)
    finally:
        race.close()


def test_noise_is_the_same_for_the_same_seed_and_step_and_has_its_deviation() -> None:
    source, again, other = (SurfaceSource.from_text("surface:noisy", seed=seed) for seed in (1, 1, 2))
    weights = {"xy": np.zeros(2, np.float32)}

    def drawn(source: SurfaceSource, step: int) -> np.ndarray:
        gradients = source.gradients(step, lambda: weights)
        assert isinstance(gradients, HostGradients)
        return gradients.values["xy"]

    np.testing.assert_array_equal(drawn(source, 7), drawn(again, 7))
    assert (drawn(source, 7) != drawn(other, 7)).all()
    many = np.array([drawn(source, step) for step in range(1, 2001)])
    # At the minimum the gradient is noise alone; four deviations of the estimate either way.
    assert abs(many.std() - 2.0) < 4 * 2.0 / np.sqrt(2 * many.size)
    assert abs(many.mean()) < 4 * 2.0 / np.sqrt(many.size)


def test_a_surface_is_opened_by_name() -> None:
    assert surface_of(open_source("surface:saddle").name) is SURFACES["saddle"]
    assert surface_of("charlm") is None
    with pytest.raises(UsageError, match=r"surface:valley, surface:rosenbrock"):
        open_source("surface:hill")
    assert run(["run", "surface:rosenbrock", "--steps", "3"]) == 0


AnyView = TypeVar("AnyView", SurfaceView, RaceView)


def shown(qtbot: QtBot, kind: type[AnyView], width: int = 800) -> AnyView:
    theme.apply(application(), "light")
    view = kind()
    qtbot.addWidget(view)
    view.resize(width, 500)
    view.show()
    return view


@pytest.mark.qt
def test_each_lane_is_a_path_from_the_start(qtbot: QtBot) -> None:
    view = shown(qtbot, SurfaceView)
    sent: list[Command] = []
    view.command.connect(sent.append)
    view.show_snapshot(make_snapshot(source="charlm"))
    assert "surface:valley" in view.map.message
    view.start()
    assert not sent
    view.show_snapshot(make_snapshot(source="surface:valley"))
    assert view.map.message == ""
    # Its key is pressed in the window, with those of all views.
    view.button.click()
    assert sent == [StartRace(SURFACES["valley"].lanes)]
    recorder = HistoryRecorder()
    for step, (x, y) in enumerate(((-3.0, 0.5), (-2.0, 0.25)), start=1):
        recorder.append(step, {"loss": 1.0, "x": x, "y": y})
    lane = LanePicture("sgd", "sgd", 2, recorder.freeze())
    view.show_snapshot(make_snapshot(source="surface:valley", race=RacePicture((lane,), 0, True, True)))
    x, y = view.map.paths()[0]
    assert (list(x), list(y)) == ([-4.0, -3.0, -2.0], [1.0, 0.5, 0.25])
    view.map.read_out(2.0, 1.0)
    assert "f 27" in view.map.title
    view.show_snapshot(make_snapshot(source="surface:valley", race=make_race()))
    assert len(view.map.paths()) == 3
    # Where the view is low, what the lanes are called is beside the map.
    view.resize(900, 160)
    let_run(1)
    assert view.map.height() > 110
    assert view.map.width() > 300


MUON_AS = Instead("AdamW", "no param is a hidden matrix")
SHAMPOO_AS = Instead("AdamW", "no param is a matrix")


def test_an_optimizer_of_matrices_runs_as_another_where_there_is_none() -> None:
    one, matrix, head = Param("xy", (2,)), Param("h.0.weight", (4, 4)), Param("lm_head.weight", (4, 4))
    muon, shampoo = Variant(optimizer="muon"), Variant(optimizer="shampoo")
    assert (runs_as(muon, [one]), runs_as(shampoo, [one])) == (MUON_AS, SHAMPOO_AS)
    # A head is a matrix, and Muon leaves it to AdamW.
    assert (runs_as(muon, [one, head]), runs_as(shampoo, [one, head])) == (MUON_AS, None)
    assert runs_as(muon, [one, matrix]) is None
    assert runs_as(Variant(), [one]) is None
    assert runs_as(Variant(optimizer="muon", no_muon="h.*"), [one, matrix]) == MUON_AS


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "said"), [("muon", MUON_AS), ("shampoo", SHAMPOO_AS)])
def test_on_a_surface_it_takes_the_steps_of_the_other_and_says_so(name: str, said: str) -> None:
    race = started("adamw:lr=0.1", f"{name}:lr=0.1", source="surface:valley")
    try:
        for _ in range(5):
            race.step()
        first, second = race.lanes
        assert (first.runs_as, second.runs_as) == (None, said)
        assert first.digest() == second.digest()
    finally:
        race.close()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("words", "who"),
    [
        (("run", "surface:valley", "--steps", "1", "--optimizer", "muon"), "muon"),
        (("layout", "surface:valley", "--optimizer", "muon"), "muon"),
        (("race", "surface:saddle", "--steps", "1", "--lane", "sgd", "--lane", "muon"), "the lane muon"),
        (("sweep", "surface:valley", "--steps", "1", "--lane", "muon", "--lr", "0.1,0.2"), "the lane muon"),
    ],
)  # fmt: skip
def test_commands_say_so_once(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], who: str) -> None:
    assert run(list(words)) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "AdamW" in line]
    assert said == [f"inspector: {who} steps {words[1]} as AdamW: no param is a hidden matrix."]


@pytest.mark.qt
def test_the_legend_of_a_surface_says_so(qtbot: QtBot) -> None:
    view = shown(qtbot, SurfaceView)
    history = HistoryRecorder().freeze()
    lanes = (LanePicture("sgd", "sgd", 2, history), LanePicture("muon", "muon", 2, history, runs_as=MUON_AS))
    view.show_snapshot(make_snapshot(source="surface:valley", race=RacePicture(lanes, 0, True, True)))
    said = [label.text() for _, label in view._rows]
    assert said == ["sgd · step 2", "muon as AdamW · step 2 · as AdamW: no param is a hidden matrix"]


@pytest.mark.qt
def test_a_race_says_so_of_lanes_that_are_written_and_of_those_that_run(qtbot: QtBot) -> None:
    view = shown(qtbot, RaceView, width=1200)
    layout = make_layout([Param("xy", (2,))])
    moment = make_snapshot(source="surface:valley", plan=plan_step(layout, Limits(), Variant()))
    view.show_snapshot(moment)
    assert view.words.text() == ""
    view.load("adamw muon:lr=0.1 muon:lr=0.2 sham")
    assert view.words.text() == "muon runs as AdamW: no param is a hidden matrix"
    view.load("adamw shampoo")
    assert view.words.text() == "shampoo runs as AdamW: no param is a matrix"
    history = HistoryRecorder().freeze()
    lanes = (
        LanePicture("adamw", "adamw", 2, history),
        LanePicture("shampoo", "shampoo", 2, history, runs_as=SHAMPOO_AS),
    )
    view.show_snapshot(replace(moment, race=RacePicture(lanes, 0, True, True)))
    # The row of the lane says it now.
    assert view.words.text() == "adamw in front"
    assert view.model.text(1, STATE) == "runs, as AdamW: no param is a matrix"
    assert view.model.text(0, STATE) == "runs"
    assert [view.model.text(row, LANE) for row in range(2)] == ["adamw", "shampoo as AdamW"]
    matrix = plan_step(make_layout([Param("h.0.weight", (8, 8))]), Limits(), Variant())
    view.load("adamw muon")
    view.show_snapshot(make_snapshot(plan=matrix))
    assert view.words.text() == ""
