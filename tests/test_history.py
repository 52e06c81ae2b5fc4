"""The history of metrics: bounded, extremes kept, NaN counted, cut when going back, pictures never changed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector.history import EMPTY_HISTORY, TAIL, History, HistoryRecorder

values = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf])
rows = st.dictionaries(st.sampled_from(["loss", "lr", "norm"]), values)
moves = st.lists(st.tuples(st.just("append"), rows) | st.tuples(st.just("truncate"), st.integers(0, 60)))


def assert_same(history: History, model: list[tuple[int, dict[str, float]]], capacity: int) -> None:
    """Each bucket against a naive search over all the steps it covers."""
    assert len(history) <= capacity
    covered = [s for first in history.first for s in range(first, first + history.stride)]
    assert covered == sorted(set(covered))
    assert {step for step, _ in model} <= set(covered)
    for name, series in history.series.items():
        for i, first in enumerate(history.first):
            steps = [row for step, row in model if first <= step < first + history.stride]
            assert steps
            inside = [row[name] for row in steps if name in row]
            numbers = [x for x in inside if not math.isnan(x)]
            if numbers:
                assert (series.low[i], series.high[i]) == (min(numbers), max(numbers))
            else:
                assert math.isnan(series.low[i])
                assert math.isnan(series.high[i])
            assert series.gaps[i] == len(inside) - len(numbers)
            if name in steps[-1]:
                np.testing.assert_equal(series.last[i], steps[-1][name])


def copy_of(history: History) -> tuple[object, ...]:
    return (
        history.first.copy(),
        {k: (s.low.copy(), s.high.copy(), s.last.copy(), s.gaps.copy()) for k, s in history.series.items()},
        history.stride,
    )


@given(moves=moves, capacity=st.sampled_from([4, 6, 10]))
@settings(deadline=None, max_examples=200)
def test_any_run_shows_what_a_plain_list_holds_and_no_picture_of_it_ever_changes(
    moves: list[tuple[str, object]], capacity: int
) -> None:
    recorder = HistoryRecorder(capacity)
    model: list[tuple[int, dict[str, float]]] = []
    pictures: list[tuple[History, tuple[object, ...]]] = []
    for kind, argument in moves:
        if kind == "append":
            step = model[-1][0] + 1 if model else 1
            recorder.append(step, argument)
            model.append((step, argument))
        else:
            recorder.truncate(argument)
            model = [row for row in model if row[0] <= argument]
        history = recorder.freeze()
        pictures.append((history, copy_of(history)))
        assert_same(history, model, capacity)
    for history, kept in pictures:
        np.testing.assert_equal(copy_of(history), kept)


@given(rows=st.lists(rows, max_size=60), freeze_at=st.sets(st.integers(1, 60)))
@settings(deadline=None, max_examples=100)
def test_pictures_taken_now_and_then_stay_as_they_were(
    rows: list[dict[str, float]], freeze_at: set[int]
) -> None:
    recorder = HistoryRecorder(8)
    pictures = []
    for step, row in enumerate(rows, start=1):
        recorder.append(step, row)
        if step in freeze_at:
            history = recorder.freeze()
            pictures.append((history, copy_of(history)))
    for history, kept in pictures:
        np.testing.assert_equal(copy_of(history), kept)


def test_a_hundred_thousand_steps_take_bounded_memory_and_keep_every_spike() -> None:
    recorder = HistoryRecorder(512)
    for step in range(1, 100_001):
        recorder.append(step, {"loss": 50.0 if step == 77_777 else 1.0})
    history = recorder.freeze()
    assert len(history) <= 512
    assert history.stride == 256
    loss = history.series["loss"]
    assert loss.high.max() == 50.0
    assert history.first[int(np.argmax(loss.high))] <= 77_777
    assert loss.low.min() == 1.0


def test_a_step_single_again_after_going_back_inside_a_merged_bucket() -> None:
    recorder = HistoryRecorder(4)
    for step in range(1, 9):
        recorder.append(step, {"loss": float(step)})
    assert recorder.freeze().stride == 2
    recorder.truncate(5)
    history = recorder.freeze()
    assert history.series["loss"].high.tolist() == [2, 4, 5]
    recorder.append(6, {"loss": 60.0})
    assert recorder.freeze().series["loss"].high.tolist() == [2, 4, 60]


def test_going_back_beyond_the_steps_kept_singly_loses_no_more_than_one_bucket() -> None:
    recorder = HistoryRecorder(4)
    last = 4 * TAIL
    for step in range(1, last + 1):
        recorder.append(step, {"loss": float(step)})
    stride = recorder.freeze().stride
    recorder.truncate(stride + 10)
    assert recorder.freeze().series["loss"].high.tolist() == [stride]
    recorder.append(stride + 11, {"loss": 0.5})
    assert recorder.freeze().series["loss"].last.tolist() == [stride, 0.5]


def test_a_metric_that_comes_late_is_nan_before() -> None:
    recorder = HistoryRecorder(4)
    recorder.append(1, {"lr": 1.0})
    recorder.append(2, {"lr": 1.0, "loss": math.inf})
    loss = recorder.freeze().series["loss"]
    np.testing.assert_equal(loss.last, [math.nan, math.inf])
    assert loss.gaps.tolist() == [0, 0]


def test_steps_have_to_come_in_order() -> None:
    recorder = HistoryRecorder(4)
    recorder.append(5, {})
    with pytest.raises(ValueError, match="step 5 does not follow step 5"):
        recorder.append(5, {})
    recorder.truncate(4)
    recorder.append(5, {})


def test_a_picture_cannot_be_written_and_tells_versions_apart() -> None:
    recorder = HistoryRecorder(4)
    recorder.append(1, {"loss": 1.0})
    first = recorder.freeze()
    assert recorder.freeze().version == first.version
    with pytest.raises(ValueError, match="read-only"):
        first.series["loss"].low[0] = 2
    with pytest.raises(ValueError, match="read-only"):
        first.first[0] = 2
    recorder.truncate(0)
    assert recorder.freeze().version != first.version
    assert len(EMPTY_HISTORY) == 0


@pytest.mark.parametrize("capacity", [0, 2, 5, 7])
def test_a_capacity_that_cannot_be_halved_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match="even number"):
        HistoryRecorder(capacity)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.none() | values, max_size=70), st.integers(0, 70), st.sampled_from([4, 8, 64]))
def test_what_a_column_lacks_is_as_if_it_was_never_appended(
    column: list[float | None], split: int, capacity: int
) -> None:
    one_by_one, whole = HistoryRecorder(capacity), HistoryRecorder(capacity)
    for i, value in enumerate(column):
        one_by_one.append(3 + i, {"lr": 1.0} | ({} if value is None else {"loss": value}))
    numbers = np.array([math.nan if value is None else value for value in column], np.float64)
    known = np.array([value is not None for value in column], np.bool_)
    for part in (slice(None, split), slice(split, None)):
        columns = {"loss": numbers[part], "lr": np.ones(len(numbers[part]))}
        whole.extend(3 + (part.start or 0), columns, {"loss": known[part]})
    made, expected = whole.freeze(), one_by_one.freeze()
    assert (made.stride, made.first.tolist()) == (expected.stride, expected.first.tolist())
    for series, wanted in (
        (made.series[name], expected.series[name]) for name in expected.series.keys() & made.series.keys()
    ):
        for name in ("low", "high", "gaps"):
            np.testing.assert_array_equal(getattr(series, name), getattr(wanted, name))


def test_a_picture_is_the_same_object_as_long_as_nothing_is_new() -> None:
    recorder = HistoryRecorder(4)
    recorder.append(1, {"loss": 1.0})
    first = recorder.freeze()
    assert recorder.freeze() is first
    recorder.append(2, {"loss": 2.0})
    second = recorder.freeze()
    assert second is not first
    recorder.truncate(5)
    assert recorder.freeze() is second
    recorder.truncate(1)
    assert recorder.freeze() is not second
    assert recorder.freeze().series["loss"].last.tolist() == [1.0]
    assert second.series["loss"].last.tolist() == [1.0, 2.0]
