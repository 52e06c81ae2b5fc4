"""Each task of the guide, followed word for word in a window with a real worker: what is to be seen is seen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from guided import ROOT, Person

from inspector.ui.microscope_view import MicroscopeView
from inspector.ui.tasks import RECORD_CODE, TASKS, Step

pytestmark = [pytest.mark.gpu, pytest.mark.qt, pytest.mark.timeout(400)]

GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
    # What is recorded lies there.
    monkeypatch.chdir(tmp_path)
    made = Person()
    yield made
    made.close()


def steps(number: int) -> tuple[Step, ...]:
    return TASKS[number - 1].steps


def at(person: Person, step: int, dispatch: int) -> None:
    person.until(lambda s: s.cursor is not None and (s.cursor.step, s.cursor.dispatch) == (step, dispatch))


def in_front(person: Person, *views: str) -> None:
    for view in views:
        assert person.window.views[view].isVisible(), view


def test_the_guide_has_each_step_word_for_word() -> None:
    plain = " ".join(GUIDE.replace("\\\n", "\n").split())
    for number, task in enumerate(TASKS, 1):
        assert f"## {number}. {task.title}" in GUIDE
        for place, step in enumerate(task.steps, 1):
            assert f"{place}. {step.do} {step.see}" in plain, step.do
    assert RECORD_CODE in GUIDE


def test_step_through_an_update(person: Person) -> None:
    first, dispatches, select, update, back, run, microscope = steps(1)
    person.do(first)
    at(person, 1, 0)
    in_front(person, "plots", "values", "pipeline")
    person.do(dispatches)
    at(person, 1, 2)
    assert person.snapshot.record is not None
    assert person.snapshot.record.grad_norm > 0
    person.do(select)
    shown = person.until(lambda s: s.values is not None).values
    assert shown is not None
    assert shown.param == "h.0.attn.qkv.weight"
    person.do(update)
    at(person, 1, 3)
    values = person.until(lambda s: s.values is not None and bool(np.any(s.values.after["m"]))).values
    assert values is not None
    for lane in ("w", "m", "v"):
        assert np.any(values.before[lane] != values.after[lane]), lane
    assert np.any(values.before["g"])
    assert not np.any(values.after["g"])
    person.do(back)
    at(person, 1, 2)
    taken_back = person.until(lambda s: s.values is not None and not np.any(s.values.after["m"])).values
    assert taken_back is not None
    np.testing.assert_array_equal(taken_back.after["w"], values.before["w"])
    person.do(run)
    person.until(lambda s: s.mode == "paused")
    assert person.snapshot.cursor is not None
    assert person.snapshot.cursor.step > 10
    in_front(person, "plots")
    person.do(microscope)
    view = person.window.views["microscope"]
    assert isinstance(view, MicroscopeView)
    person.until(lambda s: s.closeup.element is not None)
    in_front(person, "microscope")


def test_record_your_own_training_run(person: Person, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = subprocess.Popen(
        [sys.executable, str(ROOT / "docs" / "train.py")],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    try:
        path = tmp_path / "run.session"
        deadline = time.monotonic() + 60
        while not (path / "session.sqlite").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        _, open_, follow, go, _ = steps(2)
        person.do(open_, tmp_path)
        person.until(lambda s: s.recorded is not None and s.recorded.state == "recording")
        in_front(person, "plots")
        person.until(lambda s: s.recorded is not None and s.recorded.last >= 6)
        person.do(follow)
        shown = person.until(lambda s: s.following and s.record is not None).record
        assert shown is not None
        person.until(lambda s: s.record is not None and s.record.step >= shown.step + 3)
        person.do(go)
        person.until(lambda s: s.glance is None and s.cursor is not None and s.cursor.step == 5)
        person.until(lambda s: s.map is not None and s.map.values["w"].any())
    finally:
        script.kill()
        script.wait()


def test_stop_where_it_goes_wrong(person: Person) -> None:
    open_, run, finding, policies, typed, remove = steps(3)
    person.do(open_)
    person.until(lambda s: s.source.endswith("nan-gradient.session.zip"))
    person.do(run)
    stop = person.until(lambda s: s.stop is not None).stop
    assert stop is not None
    at(person, 30, 0)
    assert stop.param == "h.0.ffn.down.weight"
    values = person.until(lambda s: s.values is not None).values
    assert values is not None
    index = 38 * 32 + 18
    assert np.isnan(values.after["g"][index - values.start])
    person.do(finding)
    in_front(person, "findings")
    assert person.snapshot.findings[0].rule == "nonfinite-gradient"
    person.do(policies)
    table = person.until(lambda s: s.policies is not None).policies
    assert table is not None
    assert len(table.outcomes) == 5
    in_front(person, "policies")
    person.do(typed)
    stop = person.until(lambda s: s.source == "charlm" and s.stop is not None).stop
    assert stop is not None
    at(person, 1, 2)
    assert stop.value < 0.2
    person.do(remove)
    person.until(lambda s: not s.breakpoints)


def test_ask_what_if(person: Person, tmp_path: Path) -> None:
    open_, change, run, compare, single, lockstep = steps(4)
    person.do(open_)
    person.until(lambda s: s.source.endswith("diverges.session.zip"))
    person.do(change)
    person.until(lambda s: s.hyper.beta2 == 0.95)
    person.do(run)
    laid = person.until(lambda s: len(s.beside.overlays) == 2).beside.overlays
    assert laid[1].path == str(tmp_path / "diverges-what-if.session")
    person.do(compare)
    report = person.until(
        lambda s: s.beside.diff is not None and s.beside.diff.report is not None
    ).beside.diff
    assert report is not None
    assert report.report is not None
    assert report.report.first is not None
    assert report.report.first.step == 1
    person.do(single)
    person.until(lambda s: any("what-if-2" in o.path for o in s.beside.overlays))
    assert person.snapshot.beside.changes == "dispatch single"
    person.do(lockstep)
    person.until(lambda s: s.eight_bit is not None and s.eight_bit.drift_step is not None)
    in_front(person, "lockstep")


def test_see_what_each_kernel_costs(person: Person) -> None:
    open_, run, copy, variants, _, back = steps(5)
    person.do(open_)
    person.do(run)
    in_front(person, "profile")
    assert not person.window.docks["map"].isVisible()
    person.do(copy)
    assert person.until(lambda s: s.copy_gbps is not None).copy_gbps
    # Its whole length is a matter of benchmarks: it begins, and ends with the same key.
    going: Callable[[], bool] = lambda: person.snapshot.comparing is not None  # noqa: E731
    person.do(Step("`V`", ""), rest=False)
    person.until(lambda _: going())
    person.do(Step("`V`", ""), rest=False)
    person.until(lambda _: not going())
    assert re.match("`V`", variants.do)
    person.do(back)
    in_front(person, "map", "pipeline", "values")
