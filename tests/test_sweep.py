"""A sweep in the background: its process, what is read of it, and the view."""

from __future__ import annotations

import json
import math
import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pytestqt.qtbot import QtBot
from test_race import TINY
from ui_helpers import make_snapshot

from inspector.cli import run
from inspector.errors import UsageError
from inspector.hyper import with_values
from inspector.plan import Variant
from inspector.race import LaneSpec
from inspector.runtime.beside import BesidePicture
from inspector.runtime.commands import CancelSweep, Command, ResumeSweep, StartSweep
from inspector.runtime.sweeping import Sweeping, SweepPicture, options_of
from inspector.schedule import Schedule
from inspector.session.race_file import RaceFile
from inspector.session.reader import Session
from inspector.sources.open import open_source
from inspector.sweep import Point, best_of, points
from inspector.ui import theme
from inspector.ui.app import application
from inspector.ui.sweep_view import DIVERGED, LOSS, RUNS, SweepView

WAIT_S = 60.0


def test_points_are_the_runs_of_one_lane_at_one_rate() -> None:
    runs = [("adamw:lr=0.1,seed=0", 2.0, False), ("adamw:lr=0.1,seed=1", 3.0, True),
            ("adamw:lr=0.2,seed=0", 1.0, False), ("adamw:lr=0.2,seed=1", None, False)]  # fmt: skip
    found = points([(LaneSpec.from_text(text), loss, bad) for text, loss, bad in runs])
    assert found == (Point("adamw", 0.1, (2.0, 3.0), 1, 2, (3.0,)), Point("adamw", 0.2, (1.0,), 0, 2))
    assert [point.mean for point in found] == [2.5, 1.0]
    assert best_of(found) == {"adamw": found[1]}
    lost = Point("sgd", 1.0, (1.0, math.nan), 1, 2)
    # Whatever the order of the seeds.
    for losses in ((1.0, math.nan), (math.nan, 1.0)):
        assert Point("sgd", 1.0, losses, 1, 2).low == 1.0
        assert math.isnan(Point("sgd", 1.0, losses, 1, 2).high)
    assert (Point("sgd", 1.0, (3.0, 1.0), 0, 2).low, Point("sgd", 1.0, (3.0, 1.0), 0, 2).high) == (1.0, 3.0)
    assert math.isnan(lost.mean)
    assert best_of([lost]) == {}


def ended(sweeping: Sweeping, news: threading.Event) -> SweepPicture:
    for _ in range(int(WAIT_S / 0.5)):
        news.wait(0.5)
        news.clear()
        if sweeping.picture is not None and not sweeping.picture.running:
            return sweeping.picture
    raise AssertionError(sweeping.picture)


def test_a_rate_at_which_a_run_diverged_is_best_only_where_there_is_no_other() -> None:
    # A model whose gradients are lost stays as it is, which may be lower than what another rate ends at.
    lost, slow = Point("sgd", 10.0, (2.0,), 1, 1), Point("sgd", 1e-4, (3.0,), 0, 1)
    assert best_of((lost, slow)) == best_of((slow, lost)) == {"sgd": slow}
    assert best_of((lost,)) == {"sgd": lost}


def test_a_sweep_runs_as_a_process_and_its_results_are_read(tmp_path: Path) -> None:
    news, path = threading.Event(), tmp_path / "sweep.session"
    sweeping = Sweeping(news.set)
    sweeping.start(StartSweep(("adamw", "sgd"), "1e-3,1e-2", 2, 4, str(path)), TINY)
    assert sweeping.picture is not None
    assert (sweeping.picture.done, sweeping.picture.runs, sweeping.picture.running) == (0, 8, True)
    with pytest.raises(UsageError, match="goes on"):
        sweeping.start(StartSweep(("adamw",), "1,2", 1, 1, str(tmp_path / "b.session")), TINY)
    done = ended(sweeping, news)
    sweeping.close(WAIT_S)
    assert (done.done, done.problem) == (8, "")
    saved = RaceFile.read(path)
    losses = {lane.spec: lane.result.final_loss for lane in saved.lanes if lane.result is not None}
    for point in done.points:
        rate = f"lr={point.lr:g}"
        mine = tuple(losses[f"{point.lane}:{rate},seed={seed}"] for seed in range(2))
        assert point.losses == mine
    again = Sweeping(news.set)
    again.show(path)
    assert again.picture == done
    # A run that was stopped midway has a loss, and it is not its final one.
    result = saved.lanes[0].result
    assert result is not None
    saved.with_result(0, replace(result, steps=2)).write(path)
    again.show(path)
    assert again.picture is not None
    assert again.picture.done == 7
    assert [len(point.losses) for point in again.picture.points] == [1, 2, 2, 2]


def test_what_a_lane_leaves_out_is_as_the_source_was_opened(tmp_path: Path) -> None:
    source = open_source(TINY, schedule=Schedule.from_text("cosine:40:floor=0.1"))
    hyper = with_values(source.hyper, {"beta2": 0.9, "max_grad_norm": math.inf, "lr": 7.0})
    options = options_of(source, hyper, Variant(numerics="precise"))
    news, path = threading.Event(), tmp_path / "sweep.session"
    sweeping = Sweeping(news.set)
    sweeping.start(StartSweep(("adamw",), "1e-3", 1, 2, str(path)), TINY, options=options)
    assert ended(sweeping, news).problem == ""
    sweeping.close(WAIT_S)
    with Session.open(path / "lane-000.session") as session:
        assert session.about.variant.numerics == "precise"
        assert session.about.hyper == replace(source.hyper, lr=1e-3, beta2=0.9, max_grad_norm=math.inf)
        assert Schedule.from_text(session.about.schedule) == source.schedule


def test_one_that_is_ended_or_fails_says_so(tmp_path: Path) -> None:
    news = threading.Event()
    asleep = Sweeping(news.set, command=(sys.executable, "-c", "import time; time.sleep(600)"))
    asleep.start(StartSweep(("adamw",), "1,2", 1, 1, str(tmp_path / "a.session")), TINY)
    asleep.cancel()
    assert ended(asleep, news).problem == "It was ended."
    asleep.close(WAIT_S)
    failing = Sweeping(
        news.set, command=(sys.executable, "-c", "import sys; sys.exit('inspector: No device.')")
    )
    failing.start(StartSweep(("adamw",), "1,2", 1, 1, str(tmp_path / "b.session")), TINY)
    assert ended(failing, news).problem == "No device."
    failing.close(WAIT_S)
    for asked in (StartSweep(("nosuch",), "1,2", 1, 1, "x"), StartSweep(("adamw",), "a", 1, 1, "x"),
                  StartSweep(("adamw",), "1,2", 1, 1, str(tmp_path))):  # fmt: skip
        with pytest.raises(UsageError):
            failing.start(asked, TINY)


def test_what_has_no_loss_of_its_own_is_not_swept(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "synthetic:1000", "--steps", "2"]) == 2
    assert "final losses" in capsys.readouterr().err
    assert run(["sweep", TINY, "--lr", "1,2", "--steps", "0"]) == 2
    assert capsys.readouterr().err.strip().endswith("--steps 0 leaves no loss to compare: give at least 1.")


def test_a_sweep_that_was_killed_is_gone_on_with_and_has_the_same_bits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "sweep.session", tmp_path / "whole.session"
    words = ["--lane", "adamw", "--lane", "sgd", "--lr", "1e-3,1e-2,1e-1", "--steps", "4", "--beta1", "0.8"]
    assert run(["sweep", TINY, *words, "--save", str(whole)]) == 0
    shutil.copytree(whole, path)
    saved = RaceFile.read(path)
    # Of six runs the last two did not come to their end: one stood after two steps, one had not begun.
    lanes = list(saved.lanes)
    result = lanes[4].result
    assert result is not None
    # That it had diverged by then does not make it one that is done.
    stopped = replace(result, steps=2, diverged=1, why="its loss rose")
    lanes[4:] = [replace(lanes[4], result=stopped), replace(lanes[5], result=None)]
    replace(saved, lanes=tuple(lanes)).write(path)
    shutil.rmtree(path / "lane-005.session")
    capsys.readouterr()
    assert run(["sweep", str(path), "--resume", "--json"]) == 0
    assert RaceFile.read(path) == saved
    document = json.loads(capsys.readouterr().out)
    assert [lane["weights_sha256"] for lane in document["lanes"]] == [
        lane.result.weights_sha256 for lane in saved.lanes if lane.result is not None
    ]
    assert {lane["hyper"]["beta1"] for lane in document["lanes"] if lane["optimizer"] == "adamw"} == {0.8}
    assert [len(rate["lane"]) > 0 and rate["seeds"] for rate in document["rates"]] == [1] * 6
    # There is nothing left, which is told the same.
    assert run(["sweep", str(path), "--resume"]) == 0
    assert RaceFile.read(path) == saved
    capsys.readouterr()
    assert run(["sweep", str(path), "--resume", "--steps", "5"]) == 2
    assert "leave --steps out" in capsys.readouterr().err
    monkeypatch.setattr("inspector.cli.sweep.KERNELS_REVISION", 99)
    replace(saved, lanes=tuple(lanes)).write(path)
    assert run(["sweep", str(path), "--resume"]) == 2
    assert "another version of the kernels" in capsys.readouterr().err
    # What there was of a run that is to begin anew stays until it is known that it can.
    assert (path / "lane-004.session").exists()
    monkeypatch.undo()
    replace(saved, device="Another GPU", lanes=tuple(lanes)).write(path)
    assert run(["sweep", str(path), "--resume"]) == 2
    assert "was begun on Another GPU" in capsys.readouterr().err


def test_what_is_no_sweep_is_not_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "race.session"
    assert run(["race", TINY, "--lane", "adamw", "--lane", "sgd", "--steps", "1", "--save", str(path)]) == 0
    capsys.readouterr()
    assert run(["sweep", str(path), "--resume"]) == 2
    assert "is a race" in capsys.readouterr().err
    assert run(["sweep", str(tmp_path / "none"), "--resume"]) == 2
    assert "is no saved race or sweep" in capsys.readouterr().err


def test_a_lane_is_swept_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", TINY, "--lane", "sgd", "--lane", "sgd", "--lr", "1,2", "--steps", "1"]) == 2
    assert "'sgd' is there twice" in capsys.readouterr().err


def test_the_rest_of_a_sweep_runs_as_a_process(tmp_path: Path) -> None:
    news, path = threading.Event(), tmp_path / "sweep.session"
    assert (
        run(["sweep", TINY, "--lane", "adamw", "--lr", "1e-3,1e-2", "--steps", "3", "--save", str(path)]) == 0
    )
    saved = RaceFile.read(path)
    replace(saved, lanes=(saved.lanes[0], replace(saved.lanes[1], result=None))).write(path)
    sweeping = Sweeping(news.set)
    sweeping.show(path)
    assert sweeping.picture is not None
    assert sweeping.picture.left == 1
    sweeping.resume(path)
    done = ended(sweeping, news)
    sweeping.close(WAIT_S)
    assert (done.left, done.done, done.problem) == (0, 2, "")
    assert RaceFile.read(path) == saved


@pytest.fixture
def view(qtbot: QtBot) -> SweepView:
    theme.apply(application(), "light")
    made = SweepView()
    qtbot.addWidget(made)
    made.resize(1000, 400)
    made.show()
    return made


@pytest.fixture
def sent(view: SweepView) -> list[Command]:
    commands: list[Command] = []
    view.command.connect(commands.append)
    return commands


@pytest.mark.qt
def test_a_run_that_diverged_does_not_press_the_others_into_a_line(view: SweepView) -> None:
    found = (
        Point("adamw", 0.0, (4.5,), 0, 1),
        Point("adamw", 1e-3, (2.0, 2.5), 0, 2),
        Point("adamw", 1e-2, (1.5, 2.25), 1, 2, (2.25,)),
        Point("adamw", 1e-1, (2.2, 900.0), 1, 2, (900.0,)),
        Point("adamw", 1.0, (math.nan,), 1, 1, (math.nan,)),
    )
    picture = SweepPicture("/a/s.session", "charlm", 300, found, 7, 8, running=False)
    view.show_snapshot(make_snapshot(beside=BesidePicture(sweep=picture)))
    chart = view.chart
    low, high = chart.box.viewRange()[1]
    assert 1.0 < low < 1.5
    assert 4.5 < high < 6
    x, y = chart.means("adamw")
    assert list(x) == [-3.0, -2.0, -1.0, 0.0]
    np.testing.assert_array_equal(y, [2.25, math.nan, math.nan, math.nan])
    assert chart.crosses("adamw") == [(-2.0, 2.25)]
    assert (chart.edges.drawn("posinf"), chart.edges.drawn("nan")) == ([-1.0], [0.0])
    chart.hovered.emit(-1.1)
    assert "(1 of 2 diverged)" in chart.title


@pytest.mark.qt
def test_a_sweep_that_was_ended_is_gone_on_with_by_a_button(view: SweepView, sent: list[Command]) -> None:
    found = (Point("adamw", 1e-3, (2.0,), 0, 1), Point("adamw", 1e-2, (), 0, 1))
    for running, shown in ((True, False), (False, True)):
        picture = SweepPicture("/a/s.session", "charlm", 300, found, 1, 2, running)
        view.show_snapshot(make_snapshot(beside=BesidePicture(sweep=picture)))
        assert view.resume_button.isVisible() is shown
    view.resume_button.click()
    assert sent == [ResumeSweep("/a/s.session")]


@pytest.mark.qt
def test_the_view_shows_points_and_starts_and_ends(
    qtbot: QtBot, view: SweepView, sent: list[Command]
) -> None:
    view.show_snapshot(make_snapshot(source="charlm"))
    assert "Ctrl+Return" in view.chart.message
    view.button.click()
    asked = sent.pop()
    assert isinstance(asked, StartSweep)
    assert (asked.lanes, asked.lr, asked.seeds, asked.steps) == (("adamw",), "1e-4:1e-1:7", 1, 300)
    assert asked.path.endswith("sweep-charlm.session")
    found = (
        Point("adamw", 1e-3, (2.0, 2.5), 0, 2),
        Point("adamw", 1e-2, (1.5, 9.0), 1, 2, (9.0,)),
        Point("sgd", 1e-3, (), 0, 2),
    )
    picture = SweepPicture("/a/s.session", "charlm", 300, found, 4, 6, running=True)
    view.show_snapshot(make_snapshot(beside=BesidePicture(sweep=picture)))
    assert view.chart.message == ""
    assert [view.model.text(row, LOSS) for row in range(3)] == ["2.25", "5.25", "n/a"]
    assert view.model.text(0, RUNS) == "2 of 2"
    assert view.model.text(1, DIVERGED) == "1"
    assert "adamw best at lr 0.001" in view.words.text()
    x, y = view.chart.means("adamw")
    assert list(x) == [-3.0, -2.0]
    np.testing.assert_array_equal(y, [2.25, math.nan])
    view.button.click()
    assert sent.pop() == CancelSweep()
    assert view.model.as_text().splitlines()[1].startswith("adamw\t0.001\t2.25")
    other = SweepView()
    qtbot.addWidget(other)
    view.seeds.setValue(5)
    other.load(view.kept_text())
    assert other.kept_text() == view.kept_text()
