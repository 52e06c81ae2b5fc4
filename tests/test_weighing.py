"""Policies and reports asked for from the window: worked out on the worker's thread, at the step asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_worker import Opener, Tiny, Watched

from inspector import policies
from inspector.floats import F32Array, ulp_distance
from inspector.gpu.opener import StepperMaker
from inspector.hyper import Hyper
from inspector.plan import Variant
from inspector.policies import PolicyTable
from inspector.runtime import commands as c
from inspector.runtime.weighing import weigh_on_device, weigh_on_host
from inspector.sources.base import ReadWeights
from inspector.stepping import HostGradients, HostState

pytestmark = pytest.mark.gpu


class Planted(Tiny):
    """NaN in b[2] at step 3, -Inf in a[1, 0] at step 4."""

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        values: dict[str, F32Array] = {p.name: np.full(p.numel, step, np.float32) for p in self.params}
        if step == 3:
            values["b"][2] = np.nan
        if step == 4:
            values["a"][3] = -np.inf
        return HostGradients(values, loss=1.0 / step)


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched(Opener(Planted))
    yield made
    made.worker.close(20.0)


def table_of(watched: Watched, step: int) -> PolicyTable:
    snapshot = watched.until(lambda s: s.policies is not None and s.policies.step == step)
    assert snapshot.policies is not None
    return snapshot.policies


def nonfinite(table: PolicyTable, policy: str) -> dict[str, int]:
    return dict(next(o.nonfinite for o in table.outcomes if o.policy == policy))


def test_the_step_in_place_is_weighed_without_moving(watched: Watched) -> None:
    watched.at(1, 0)
    watched.worker.send(c.WeighPolicies(1, "a", 5))
    table = table_of(watched, 1)
    assert (table.param, table.index, table.gradient) == ("a", 5, 1.0)
    assert table.gradients.total == 0
    expected = weigh_on_host(Planted(), Planted.hyper, Variant(), 1, ("a", 5))
    assert expected == table
    assert watched.at(1, 0).weighing is None


@pytest.mark.parametrize("dispatch", [None, 4])
def test_a_step_that_has_run_is_gone_back_to(watched: Watched, dispatch: int | None) -> None:
    watched.at(1, 0)
    watched.worker.send(c.Run(until=6))
    watched.until(lambda s: s.mode == "paused" and s.cursor is not None and s.cursor.finished_steps == 6)
    if dispatch is not None:
        watched.worker.send(c.Seek(3, dispatch))
        watched.at(3, dispatch)
    watched.worker.send(c.WeighPolicies(3))
    table = table_of(watched, 3)
    assert (table.param, table.index) == ("b", 2)
    assert nonfinite(table, "propagate") == {"w": 1, "m": 1, "v": 1}
    assert nonfinite(table, "clip_grad_norm") == {"w": 17, "m": 17, "v": 17}
    # The state is that after two steps, which no NaN has touched.
    assert nonfinite(table, "loss_scaler") == {"w": 0, "m": 0, "v": 0}
    watched.at(3, 0)


def test_where_nothing_has_been_updated_the_run_stays(watched: Watched) -> None:
    # The norm is known after two dispatches; w, m, v and g are as they were.
    watched.at(1, 0)
    watched.worker.send(c.Seek(4, 2))
    watched.at(4, 2)
    watched.worker.send(c.WeighPolicies(4))
    table = table_of(watched, 4)
    assert (table.param, table.index, table.gradients.neginf) == ("a", 3, 1)
    watched.at(4, 2)


@pytest.mark.parametrize("ran", [3, 6])
def test_a_finding_that_is_gone_to_is_still_listed(watched: Watched, ran: int) -> None:
    watched.at(1, 0)
    watched.worker.send(c.Run(until=ran))
    watched.until(lambda s: s.mode == "paused" and s.cursor is not None and s.cursor.finished_steps == ran)
    watched.worker.send(c.Seek(3, 0))
    snapshot = watched.at(3, 0)
    assert [(f.rule, f.step, f.param) for f in snapshot.findings] == [("nonfinite-gradient", 3, "b")]
    watched.worker.send(c.StepIteration())
    again = watched.until(lambda s: s.cursor is not None and s.cursor.finished_steps == 3)
    assert again.findings == snapshot.findings


def test_a_step_to_come_is_refused_in_a_sentence(watched: Watched) -> None:
    watched.at(1, 0)
    watched.worker.send(c.WeighPolicies(9))
    told = watched.until(lambda s: s.notice is not None)
    assert told.notice is not None
    assert told.notice.text
    assert told.policies is None


def test_what_comes_next_ends_it(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "CHUNK", 1)
    watched.at(1, 0)
    watched.worker.send(c.WeighPolicies(1))
    watched.worker.send(c.StepDispatch())
    told = watched.until(lambda s: s.notice is not None and s.cursor is not None and s.cursor.dispatch == 1)
    assert told.notice is not None
    assert "not worked out to the end" in told.notice.text
    assert told.policies is None


def test_another_source_has_no_table_yet(watched: Watched) -> None:
    watched.at(1, 0)
    watched.worker.send(c.WeighPolicies(1))
    table_of(watched, 1)
    watched.worker.send(c.OpenSource("tiny"))
    watched.until(lambda s: s.run == 2 and s.policies is None and s.mode == "paused")


def test_a_report_has_what_was_weighed(watched: Watched, tmp_path: Path) -> None:
    watched.at(1, 0)
    watched.worker.send(c.Run(until=5))
    watched.until(lambda s: s.mode == "paused" and s.cursor is not None and s.cursor.finished_steps == 5)
    watched.worker.send(c.WeighPolicies(3))
    table_of(watched, 3)
    out = tmp_path / "r.html"
    watched.worker.send(c.SaveReport(str(out)))
    watched.until(lambda s: s.notice is not None and "Wrote the report" in s.notice.text)
    text = out.read_text(encoding="utf-8")
    assert "Policies side by side, step 3" in text
    assert "non-finite" in text


def test_a_place_that_cannot_be_written_is_told_and_the_run_goes_on(watched: Watched, tmp_path: Path) -> None:
    watched.at(1, 0)
    watched.worker.send(c.StepIteration())
    watched.until(lambda s: s.cursor is not None and s.cursor.finished_steps == 1)
    watched.worker.send(c.Run())
    watched.until(lambda s: s.mode == "running")
    watched.worker.send(c.SaveReport(str(tmp_path / "none" / "r.html")))
    told = watched.until(lambda s: s.notice is not None)
    assert told.notice is not None
    assert "does not exist" in told.notice.text
    assert told.mode == "running"


@pytest.mark.parametrize("numerics", ["published", "precise"])
@pytest.mark.parametrize("optimizer", ["adamw", "adam-l2"])
def test_the_published_kernel_is_told_as_the_device_runs_it(numerics: Any, optimizer: Any) -> None:
    source = Planted()
    rng = np.random.default_rng(9)
    lanes = [{p.name: rng.random(p.numel, np.float32) for p in source.params} for _ in range(3)]
    hyper = Hyper(weight_decay=0.1, lr=0.01)
    variant = Variant(numerics=numerics, optimizer=optimizer)
    stepper = StepperMaker().make(source.params, variant, HostState(*lanes, 2))
    try:
        stepper.begin_step(source.gradients(3, stepper.weights))
        told = {
            (name, i): weigh_on_device(stepper, hyper, (name, i)).outcomes[0]
            for name, numel in (("a", 12), ("b", 5))
            for i in range(numel)
        }
        stepper.run_to_end(hyper)
        after, stats = stepper.state(), stepper.grad_stats()
    finally:
        stepper.close()
    for (name, i), outcome in told.items():
        assert outcome.element is not None
        for lane in ("w", "m", "v"):
            mine = np.float32([outcome.element.after[lane]])
            # Fused or not: a rounding a line.
            assert ulp_distance(mine, getattr(after, lane)[name][i : i + 1])[0] <= 4, (name, i, lane)
    first = told["a", 0]
    assert first.clip_scale is not None
    assert ulp_distance(np.float32([first.grad_norm]), np.float32([stats.grad_norm]))[0] <= 2
    assert ulp_distance(np.float32([first.clip_scale]), np.float32([stats.clip_scale]))[0] <= 2
