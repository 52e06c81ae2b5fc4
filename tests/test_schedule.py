"""Learning-rate schedules against hand-worked factors, and their text."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from inspector.errors import UsageError
from inspector.schedule import Schedule


def test_a_constant_schedule_leaves_every_step_at_the_full_rate() -> None:
    assert [Schedule().factor(step) for step in (1, 2, 10**9)] == [1.0, 1.0, 1.0]


def test_warm_up_rises_linearly_from_its_first_step_to_the_full_rate() -> None:
    schedule = Schedule(warmup=4)
    assert [schedule.factor(step) for step in range(1, 7)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_is_halfway_in_the_middle_and_stays_at_the_floor() -> None:
    schedule = Schedule(warmup=10, total=110, floor=0.2)
    assert schedule.factor(5) == 0.5
    assert schedule.factor(10) == 1.0
    assert schedule.factor(35) == pytest.approx(0.2 + 0.8 * (1 + math.sqrt(0.5)) / 2, rel=1e-15)
    assert schedule.factor(60) == pytest.approx(0.6, rel=1e-15)
    assert schedule.factor(110) == 0.2
    assert schedule.factor(10**9) == 0.2


def test_the_factor_is_continuous_and_falls_after_the_warm_up() -> None:
    schedule = Schedule(warmup=100, total=1500, floor=0.1)
    factors = [schedule.factor(step) for step in range(1, 1600)]
    steepest = max(abs(b - a) for a, b in pairwise(factors))
    assert steepest <= 1 / 100 + 1e-12
    decay = factors[99:1500]
    assert decay == sorted(decay, reverse=True)
    assert all(0.1 <= factor <= 1 for factor in decay)


def test_steps_count_from_one() -> None:
    with pytest.raises(UsageError, match="count from 1"):
        Schedule(warmup=100).factor(0)


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("constant", Schedule()),
        ("warmup:100", Schedule(warmup=100)),
        ("cosine:1500", Schedule(total=1500)),
        ("cosine:1500:warmup=100", Schedule(warmup=100, total=1500)),
        ("cosine:1500:warmup=100:floor=0.1", Schedule(warmup=100, total=1500, floor=0.1)),
        ("cosine:1500:floor=1e-5", Schedule(total=1500, floor=1e-5)),
    ],
)
def test_text_and_schedule_are_the_same_thing(text: str, schedule: Schedule) -> None:
    assert Schedule.from_text(text) == schedule
    assert str(schedule) == text


def test_the_parts_of_a_cosine_come_in_any_order() -> None:
    assert Schedule.from_text(" cosine:9:floor=0.5:warmup=0 ") == Schedule(total=9, floor=0.5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "linear",
        "constant:3",
        "warmup",
        "warmup:",
        "warmup:0",
        "warmup:-5",
        "warmup:1.5",
        "warmup:10:floor=1",
        "cosine",
        "cosine:soon",
        "cosine:0",
        "cosine:100:warmup=100",
        "cosine:100:warmup=-1",
        "cosine:100:warmup=1:warmup=2",
        "cosine:100:floor",
        "cosine:100:floor=2",
        "cosine:100:floor=-0.1",
        "cosine:100:floor=nan",
        "cosine:100:ceiling=1",
        "cosine:" + "9" * 5000,
    ],
)
def test_bad_text_is_explained_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Schedule.from_text(text)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_a_floor_without_a_decay_is_refused() -> None:
    with pytest.raises(UsageError, match="floor needs a decay"):
        Schedule(floor=0.1)
