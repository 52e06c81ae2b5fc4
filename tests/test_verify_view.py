"""Recorded against here in the window: a step as table, words and plots, what is asked of the worker; the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import foreign_runs
import numpy as np
import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot
from test_worker import WAIT_S, Opener, Watched
from ui_helpers import make_snapshot

from inspector.gpu.opener import StepperMaker
from inspector.history import History, Series
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers.adamw.peers import PEERS, Given, Lanes
from inspector.runtime import commands as c
from inspector.runtime.beside import BesidePicture, VerifyPicture
from inspector.session.verdicts import StepVerdict, judge
from inspector.settings import Settings
from inspector.sources.base import Source
from inspector.sources.open import open_source
from inspector.stepping import Cursor
from inspector.ui import theme
from inspector.ui.verify_model import DIFFER, KIND, PARAM, W
from inspector.ui.verify_view import VerifyView

ORIGIN = "PyTorch 2.13.0 AdamW (for-loop)"
PEER = {peer.key: peer for peer in PEERS}


def verdict(step: int = 3) -> StepVerdict:
    """Two params: one PyTorch's, one whose w moved a thousandth too far."""
    rng = np.random.default_rng(5)
    params = []
    for number, name in enumerate(("good", "bad")):
        w, m, g = (rng.standard_normal(64).astype(np.float32) * s for s in (0.1, 1e-3, 1e-2))
        v = (1e-4 * rng.random(64)).astype(np.float32)
        given = Given(Lanes(w, m, v), g, Hyper(1e-3, 0.9, 0.95, 1e-8, 0.0), step)
        made = PEER["torch-loop"].step(given)
        # As a GPU may round precise numerics.
        here = PEER["torch-foreach-cuda"].step(given)
        if name == "bad":
            made = replace(made, w=np.where(np.arange(64) % 2, made.w * np.float32(1.01), made.w))
        used = Settings(1e-3, 0.9, 0.95, 1e-8, 0.0)
        params.append(
            judge(
                given, used, Param(name, (8, 8)), number, made, here,
                step=step, start=step - 1, dispatch=3, peer="torch-loop", explain=lambda verdict: True,
            )
        )  # fmt: skip
    return StepVerdict(step, step - 1, tuple(params))


def worst(*steps: int) -> History:
    values = np.array([float(step) for step in steps])
    series = Series(values, values, values, np.zeros(len(steps), np.uint32))
    return History(1, np.array(steps, np.int64), MappingProxyType(dict.fromkeys("wmv", series)), len(steps))


def picture(**changes: object) -> VerifyPicture:
    found = VerifyPicture(ORIGIN, 3, verdict(), worst=worst(3), unexplained=(3, 7))
    return replace(found, **changes)


def beside(found: VerifyPicture, **changes: object) -> dict[str, object]:
    return {"beside": BesidePicture(verify=found), "mode": "paused", "cursor": Cursor(3, 4, 4), **changes}


@pytest.fixture
def sent() -> list[c.Command]:
    return []


@pytest.fixture
def show(qtbot: QtBot, sent: list[c.Command]) -> Callable[..., VerifyView]:
    view = VerifyView()
    qtbot.addWidget(view)
    view.command.connect(sent.append)
    view.resize(1300, 320)
    with qtbot.waitExposed(view):
        view.show()

    def show_(found: VerifyPicture, **changes: object) -> VerifyView:
        view.show_snapshot(make_snapshot(**beside(found, **changes)))
        return view

    return show_


@pytest.mark.qt
def test_the_table_has_each_param_the_farthest_first_with_its_kind(show: Callable[..., VerifyView]) -> None:
    view = show(picture())
    rows = [[view.rows.index(row, column).data() for column in (PARAM, KIND)] for row in range(2)]
    assert rows == [["bad", "unknown"], ["good", "rounding"]]
    # The 32 that were moved, and one more by its rounding, of 64.
    assert view.rows.index(0, DIFFER).data() == "51.6 %"
    assert float(view.rows.index(0, W).data().replace(",", "")) > 1000
    assert view.rows.index(0, KIND).data(Qt.ItemDataRole.ForegroundRole) == theme.ink(theme.NONFINITE)
    assert view.rows.index(1, KIND).data(Qt.ItemDataRole.ForegroundRole) is None
    text = view.words.text()
    assert text.startswith(f"Step 3 of {ORIGIN}: rounding, unknown; at most ")
    assert "recorded" in text


@pytest.mark.qt
def test_a_param_says_what_accounts_for_it_and_a_double_click_selects_its_worst_element(
    qtbot: QtBot, show: Callable[..., VerifyView]
) -> None:
    view = show(picture())
    with qtbot.waitSignal(view.param_selected) as named:
        view.table.selectRow(0)
    assert named.args == ["bad"]
    assert view.says.text().startswith("bad: No known kind: m agrees within")
    row = view.rows.rows[0]
    assert row.lanes["w"].max_index is not None
    with qtbot.waitSignal(view.element_selected) as chosen:
        view.table.activated.emit(view.rows.index(0, 0))
    assert chosen.args == ["bad", row.lanes["w"].max_index]
    view.select_param("good")
    assert "PyTorch's foreach or for-loop" in view.says.text()
    assert view.bars._titles_at(0.5)[0].endswith("of 64 elements of good")


@pytest.mark.qt
def test_the_step_on_show_is_compared_once_by_itself(
    qtbot: QtBot, show: Callable[..., VerifyView], sent: list[c.Command]
) -> None:
    nothing = VerifyPicture(ORIGIN)
    show(nothing)
    show(nothing)
    assert sent == [c.VerifyStep(3)]
    view = show(nothing, mode="running", cursor=Cursor(4, 4, 4))
    show(nothing, following=True, cursor=Cursor(4, 4, 4))
    assert sent == [c.VerifyStep(3)]
    show(nothing, cursor=Cursor(5, 4, 4))
    assert sent[1:] == [c.VerifyStep(5)]
    qtbot.keyClick(view.table, Qt.Key.Key_K)
    qtbot.keyClick(view.table, Qt.Key.Key_A)
    assert sent[2:] == [c.VerifyStep(5), c.VerifyAll()]
    show(replace(nothing, done=2, of=9), cursor=Cursor(5, 4, 4))
    assert view.words.text() == "Comparing steps: 2 of 9 …"
    view.all_button.click()
    assert sent[4:] == [c.CancelVerify()]


@pytest.mark.qt
def test_the_next_unexplained_step_is_gone_to_and_none_is_asked_of_an_own_run(
    show: Callable[..., VerifyView], sent: list[c.Command]
) -> None:
    view = show(picture())
    sent.clear()
    view.go_on()
    assert sent == [c.Seek(7)]
    view = show(VerifyPicture("", problem="No other program."), cursor=Cursor(9, 4, 4))
    assert view.words.text() == "No other program."
    assert not view.all_button.isEnabled()
    view.compare_all()
    assert sent == [c.Seek(7)]


# --- the worker


class Recorded(Opener):
    """Opens recordings."""

    def open_source(self, spec: str) -> Source:
        return open_source(spec)

    def replay_maker(self) -> StepperMaker:
        return StepperMaker(undo_bytes=0)


@pytest.fixture
def open_at() -> Iterator[Callable[[Path], Watched]]:
    made: list[Watched] = []

    def open_(path: Path) -> Watched:
        made.append(Watched(Recorded(), str(path)))
        made[-1].at(1, 0)
        return made[-1]

    yield open_
    for watched in made:
        assert watched.worker.close(WAIT_S)


@pytest.mark.gpu
def test_the_worker_compares_a_step_and_then_all_and_leaves_the_run_where_it_is(
    tmp_path: Path, open_at: Callable[[Path], Watched]
) -> None:
    def step_of(given: Given, param: Param) -> Lanes:
        made = PEER["torch-loop"].step(given)
        return replace(made, w=made.w - np.float32(1e-3)) if (given.t, param.name) == (3, "bias") else made

    path = tmp_path / "run.session"
    foreign_runs.write(path, 4, step_of=step_of)
    watched = open_at(path)
    assert watched.snapshots[-1].beside.verify.origin == foreign_runs.ORIGIN
    watched.worker.send(c.VerifyStep(3))
    found = watched.until(lambda s: s.beside.verify.verdict is not None).beside.verify
    assert found.verdict is not None
    assert {p.param: p.key for p in found.verdict.params}["bias"] == "unknown"
    assert found.unexplained == (3,)
    watched.worker.send(c.VerifyAll())
    shown = watched.until(lambda s: len(s.beside.verify.worst) == 4 and not s.beside.verify.of)
    assert shown.beside.verify.unexplained == (3,)
    assert shown.beside.verify.verdict is not None
    assert shown.cursor is not None
    assert (shown.cursor.step, shown.cursor.dispatch) == (1, 0)
    watched.worker.send(c.VerifyStep(99))
    problem = watched.until(lambda s: s.beside.verify.problem != "").beside.verify.problem
    assert "was not recorded" in problem
    other = tmp_path / "own.session"
    foreign_runs.write(other, 2, origin="")
    watched.worker.send(c.OpenSource(str(other)))
    told = watched.until(lambda s: s.source == str(other) and s.mode == "paused").beside.verify
    assert "Only what another program computed" in told.problem


@pytest.mark.gpu
def test_what_is_asked_for_next_ends_a_comparison(tmp_path: Path, open_at: Callable[[Path], Watched]) -> None:
    path = tmp_path / "run.session"
    foreign_runs.write(path, 30)
    watched = open_at(path)
    for command in (c.VerifyAll(), c.CancelVerify(), c.StepDispatch()):
        watched.worker.send(command)
    shown = watched.until(lambda s: s.cursor is not None and s.cursor.dispatch == 1)
    assert shown.beside.verify.of == 0
    assert len(shown.beside.verify.worst) < 30
