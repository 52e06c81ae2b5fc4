"""The speed of a run, also where a step takes longer than the time over which it is measured."""

from __future__ import annotations

import pytest

from inspector.runtime import pace
from inspector.runtime.pace import Pace


def test_a_step_of_many_parts_is_no_speed_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(pace.time, "perf_counter", lambda: now[0])
    measured = Pace()
    measured.restart()
    rates = []
    for part in range(1, 13):
        # Two seconds a part, four parts a step.
        now[0] += 2.0
        measured.ran(part % 4 == 0)
        measured.count()
        rates.append(measured.rate)
    assert rates == [None] * 3 + [0.125] * 9


def test_the_speed_of_short_steps_is_that_of_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(pace.time, "perf_counter", lambda: now[0])
    measured = Pace()
    measured.restart()
    for _ in range(8):
        now[0] += 0.125
        measured.ran(1)
        measured.count()
    assert measured.rate == 8.0
