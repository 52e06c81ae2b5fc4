"""What is plotted over steps: kept of a run while it goes, read out of a recording beside it, in bounded memory."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import recordings
from test_worker import Opener, Watched

from inspector.history import HistoryRecorder
from inspector.line_store import FallStore, LineStore, joined, quantiles
from inspector.param_statistics import ParamStats, ParamTable, UpdateStats, lane_stats
from inspector.runtime import commands as c
from inspector.runtime.kept_lines import Kept
from inspector.runtime.plotted import MEASURES, MOST_LINES, PERCENTS, Fall, Line, Reading
from inspector.runtime.recorded_lines import RecordedLines
from inspector.statistics import BINS, buffer_stats

ALL = np.array([True, True])


def table_of(**gradients: list[float]) -> ParamTable:
    """A param each with these gradients and weights of 1."""
    rows = []
    for name, given in gradients.items():
        g = np.array(given, np.float32)
        w = np.ones(len(g), np.float32)
        lanes = {lane: lane_stats(values) for lane, values in {"w": w, "g": g, "m": w, "v": w}.items()}
        rows.append(ParamStats(name, "wd", len(g), lanes, UpdateStats(0.5, 1.0, 0, 0, 0, 0, 0, 0)))  # type: ignore[arg-type]
    return ParamTable.of(rows)


def quantile_of(exponents: np.ndarray, zeros: int, largest: float, q: float) -> float:
    return float(quantiles(exponents[None], np.array([zeros]), np.array([largest]), q)[0])


# --- the store


def test_lines_keep_what_a_history_keeps_of_each() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(1000, 2))
    values[137, 0], values[138, 0], values[700, 1] = 1e6, math.nan, math.inf
    store, peers = LineStore("ab", capacity=64), HistoryRecorder(64)
    for i, row in enumerate(values):
        store.append(i + 1, row, ALL)
        peers.append(i + 1, dict(zip("ab", row, strict=True)))
    peer = peers.freeze()
    for key in "ab":
        mine = store.history(key)
        assert (mine.stride, mine.first.tolist()) == (peer.stride, peer.first.tolist())
        for name in ("low", "high", "gaps"):
            mine_of, peers_of = getattr(mine.series[key], name), getattr(peer.series[key], name)
            np.testing.assert_array_equal(mine_of, peers_of)
    assert store.history("a").series["a"].high.max() == 1e6
    assert store.history("a").series["a"].gaps.sum() == 1
    assert len(store) <= 64


def test_going_back_forgets_and_loses_nothing_before() -> None:
    store = LineStore("ab", capacity=8)
    for step in range(1, 101):
        store.append(step, np.array([step, -step], float), ALL)
    store.truncate(90)
    low, high = (getattr(store.history("a").series["a"], name) for name in ("low", "high"))
    assert (low.min(), high.max(), store.last_step) == (1, 90, 90)
    store.append(91, np.array([5.0, 5.0]), ALL)
    assert store.history("b").series["b"].high.max() == 5


def test_a_line_asked_for_later_has_no_gaps_before_and_others_stay() -> None:
    store = LineStore("a", capacity=16)
    for step in range(1, 41):
        store.append(step, np.array([float(step)]), np.array([True]))
    store.set_keys("xa")
    store.append(41, np.array([7.0, 41.0]), ALL)
    late, kept = store.history("x").series["x"], store.history("a").series["a"]
    assert (np.nanmin(late.low), np.nanmax(late.high), late.gaps.sum()) == (7, 7, 0)
    assert (kept.low[0], kept.high.max()) == (1, 41)
    store.truncate(40)
    assert np.isnan(store.history("x").series["x"].last).all()
    assert store.history("a").series["a"].high.max() == 40


def test_what_is_handed_out_stays_as_it_was() -> None:
    store = LineStore("a", capacity=4)
    store.append(1, np.array([1.0]), np.array([True]))
    before = store.history("a")
    for step in range(2, 60):
        store.append(step, np.array([9.0]), np.array([True]))
    assert before.series["a"].last.tolist() == [1.0]
    with pytest.raises(ValueError, match="read-only"):
        before.series["a"].last[0] = 2.0


def test_waterfalls_add_up_neighbours_and_keep_every_count() -> None:
    store = FallStore(capacity=8)
    for step in range(1, 101):
        counts = np.zeros(BINS, np.uint32)
        counts[120] = 10
        counts[200] = step == 37
        store.append(step, counts, zeros=2, nonfinite=int(step == 90))
    fall = store.picture()
    assert len(fall) <= 8
    assert fall.counts[:, 120].sum() == 1000
    at = np.flatnonzero(fall.counts[:, 200])
    assert fall.first[at[0]] <= 37 < fall.first[at[0]] + fall.stride
    assert (fall.zeros.sum(), fall.nonfinite.sum()) == (200, 1)


@pytest.mark.parametrize("q", [0.05, 0.5, 0.95])
def test_percentiles_are_within_a_factor_of_two_of_sorted_magnitudes(q: float) -> None:
    values = np.abs(np.random.default_rng(5).normal(size=4001)).astype(np.float32) ** 3
    stats = buffer_stats(values)
    exact = float(np.sort(values)[math.ceil(q * len(values)) - 1])
    found = quantile_of(stats.exponents, 0, stats.max_abs, q)
    assert exact / 2 < found < exact * 2


def test_percentiles_count_zeros_and_never_exceed_the_largest() -> None:
    stats = buffer_stats(np.array([0, 0, 0, 1.5], np.float32))
    assert quantile_of(stats.exponents, 3, 1.5, 0.5) == 0
    assert 1 <= quantile_of(stats.exponents, 3, 1.5, 0.99) <= 1.5
    assert math.isnan(quantile_of(np.zeros(BINS, np.uint32), 0, 0.0, 0.5))


def test_where_a_run_parts_from_its_recording_one_goes_on_where_the_other_ends() -> None:
    told, own = LineStore("a", capacity=8), LineStore("a")
    for step in range(1, 33):
        told.append(step, np.array([float(step)]), np.array([True]))
    for step in range(18, 21):
        own.append(step, np.array([-float(step)]), np.array([True]))
    history = joined(told.history("a"), own.history("a"), 18)
    # Buckets of four steps up to 16; that of 17 to 20 tells of steps that went otherwise.
    assert history.first.tolist() == [1, 5, 9, 13, 18, 19, 20]
    assert history.series["a"].high.tolist() == [4, 8, 12, 16, -18, -19, -20]
    assert joined(told.history("a"), own.history("a"), 1).first.tolist() == [18, 19, 20]


# --- what is read


def test_metrics_of_params_and_of_all_are_read_at_once() -> None:
    table = table_of(a=[3.0, 4.0], b=[math.nan, 12.0, 0.0])
    lines = [Line("grad_norm", "a"), Line("grad_norm", "b"), Line("nonfinite", "b"), Line("grad_max"),
             Line("grad_norm", "nosuch"), Line("update_ratio", "a"), Line("nan")]  # fmt: skip
    values, known = Reading(lines).values(table, table.merged("all"))
    assert known.tolist() == [True, True, True, True, False, True, True]
    np.testing.assert_allclose(values[[0, 1, 2, 3, 5, 6]], [5, 12, 1, 12, 0.5 / math.sqrt(2), 1])


def test_percentiles_of_a_param_and_of_all_are_read_of_the_right_rows() -> None:
    table = table_of(a=[0.0, 0.0, 0.0, 8.0], b=[1.0, 1.0, 64.0, 64.0])
    lines = [Line("g_p99", "b"), Line("g_p50", "a"), Line("g_p99", "a"), Line("g_p50"), Line("w_p50", "b"),
             Line("g_p25", "b"), Line("g_p50", "nosuch")]  # fmt: skip
    values, known = Reading(lines).values(table, table.merged("all"))
    assert known.tolist() == [True] * 6 + [False]
    # Of all eight the fourth is the least 1; a value is never above the largest.
    np.testing.assert_array_less(values[:6] / 2.01, [64, 0.1, 8, 1, 1, 1])
    np.testing.assert_array_less([63.9, -1, 7.9, 0.9, 0.9, 0.9], values[:6])


def test_without_counts_of_params_the_gradients_as_a_whole_are_known() -> None:
    gradients = buffer_stats(np.array([0, -8, math.inf], np.float32))
    values, known = Reading([Line("grad_max"), Line("posinf"), Line("grad_zeros"), Line("w_norm")]).values(
        None, None, gradients
    )
    assert values[:3].tolist() == [8, 1, 1]
    assert known.tolist() == [True, True, True, False]


def test_every_lane_has_its_percentiles() -> None:
    assert {f"{lane}_p{p:02}" for lane in "wgmv" for p in PERCENTS} <= MEASURES.keys()
    assert Line.parse("grad_norm@h.0.attn@x") == Line("grad_norm", "h.0.attn@x")


def test_nothing_is_kept_while_nothing_is_asked_for() -> None:
    kept = Kept()
    assert not kept
    assert kept.nbytes == 0
    kept.want([Line("grad_norm", f"p{i}") for i in range(MOST_LINES)], ())
    assert 0 < kept.nbytes < 64e6
    kept.want((), ())
    assert kept.nbytes == 0


# --- out of a recording


def test_a_recording_tells_its_lines_from_the_first_step_on(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    recordings.record(path, 12)
    told: list[str] = []
    done = threading.Event()
    lines = RecordedLines(done.set, told.append)
    line, fall = Line("w_norm", recordings.PARAMS[0].name), Fall("g")
    lines.want(c.ViewLines((line,), (fall,), frozenset({line, fall})))
    lines.opened(str(path))
    while lines.picture.share is not None or line not in lines.picture.lines:
        assert done.wait(10)
        done.clear()
    history = lines.picture.lines[line]
    assert history.first.tolist() == list(range(1, 13))
    expected = [recordings.table(step)[0].lanes["w"].norm for step in range(1, 13)]
    np.testing.assert_allclose(history.series[str(line)].last, expected)
    assert len(lines.picture.falls[fall]) == 12
    # Another line later, without reading the first one away; then nothing.
    other = Line("grad_norm", recordings.PARAMS[1].name)
    lines.want(c.ViewLines((line, other), (), frozenset({other})))
    while other not in lines.picture.lines or len(lines.picture.lines[other]) < 12:
        assert done.wait(10)
        done.clear()
    assert line not in lines.picture.lines
    assert lines.close(5)
    assert not told


# --- of a run


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched(Opener())
    yield made
    assert made.worker.close(10)


@pytest.mark.gpu
def test_a_run_keeps_what_is_plotted_and_forgets_what_it_goes_back_before(watched: Watched) -> None:
    a, b = Line("grad_norm", "a"), Line("grad_norm", "b")
    watched.until(lambda s: s.mode == "paused")
    watched.worker.send(c.SetStats("full"))
    watched.worker.send(c.ViewLines((a, b), (), frozenset({a, b})))
    for _ in range(3):
        watched.worker.send(c.StepIteration())
    snapshot = watched.until(lambda s: a in s.plotted.lines and len(s.plotted.lines[a]) == 3)
    # The gradient of step t is t everywhere: 12 elements and 5.
    np.testing.assert_allclose(snapshot.plotted.lines[a].series[str(a)].last, np.sqrt(12) * np.arange(1, 4))
    np.testing.assert_allclose(snapshot.plotted.lines[b].series[str(b)].last, np.sqrt(5) * np.arange(1, 4))
    assert snapshot.plotted.since == 1
    watched.worker.send(c.Seek(1))
    watched.until(lambda s: a in s.plotted.lines and len(s.plotted.lines[a]) == 1)
    watched.worker.send(c.StepIteration())
    watched.until(lambda s: a in s.plotted.lines and s.plotted.lines[a].first.tolist() == [1, 2])
    watched.worker.send(c.ViewLines())
    assert not watched.until(lambda s: not s.plotted.lines).plotted.lines
