"""Runs of PyTorch recorded through the optimizer's hooks: what a session holds, and that training never notices."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.errors import UsageError
from inspector.param_statistics import lane_stats
from inspector.session.reader import Session
from inspector.session.recorder import Recorder

torch = pytest.importorskip("torch")

import torch_runs as runs  # noqa: E402

from inspector.integrations.torch import RecordingWarning, noticed, params, record  # noqa: E402

AdamW = torch.optim.AdamW


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.session"


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def put_back() -> Any:
    """PyTorch's functions are its own again after every test."""
    yield
    assert not noticed._listeners
    assert not noticed._replaced
    assert torch.nn.utils.clip_grad._clip_grads_with_norm_.__module__ == "torch.nn.utils.clip_grad"
    assert torch.amp.GradScaler.step.__module__ == "torch.amp.grad_scaler"


# --- the training


@pytest.mark.parametrize("capture", ["stats", "all", "grads:2+keyframes:3+flight:2"])
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}, {"amsgrad": True}], ids=str)
def test_training_keeps_every_bit(path: Path, capture: str, options: dict[str, Any]) -> None:
    results = []
    for recorded in (False, True):
        torch.manual_seed(1)
        model = runs.Net()
        optimizer = AdamW(runs.split(model), lr=3e-3, **options)
        if recorded:
            with record(optimizer, path, model, capture) as recording:
                losses = runs.train(model, optimizer, range(1, 13), recording=recording)
        else:
            losses = runs.train(model, optimizer, range(1, 13))
        results.append((losses, runs.weights(model)))
    assert results[0] == results[1]
    with Session.open(path) as session:
        assert session.state == "complete"
        np.testing.assert_array_equal(session.metric("loss"), results[0][0])


@pytest.mark.parametrize("stats", ["off", "light", "full"])
def test_what_a_step_holds_is_what_float64_says_of_the_same_tensors(path: Path, stats: Any) -> None:
    model = runs.Net()
    optimizer = AdamW(runs.split(model), lr=3e-3)
    seen: list[dict[str, Any]] = []

    def keep(step: int) -> None:
        state = optimizer.state
        seen.append(
            {
                name: [
                    each.detach().clone().numpy().ravel()
                    for each in (
                        param,
                        param.grad,
                        state[param].get("exp_avg", torch.zeros_like(param)),
                        state[param].get("exp_avg_sq", torch.zeros_like(param)),
                    )
                ]
                for name, param in model.named_parameters()
            }
        )

    with record(optimizer, path, model, stats=stats):
        runs.train(model, optimizer, range(1, 5), clip=0.5, before=keep)
    with Session.open(path) as session:
        assert session.about.stats == stats
        for step, held in enumerate(seen, 1):
            table = session.param_statistics(step)
            if stats != "full":
                assert table is None
                continue
            assert table is not None
            assert set(table.names) == set(held)
            for found in table:
                for lane, values in zip("wgmv", held[found.name], strict=True):
                    expected = lane_stats(values)
                    mine = found.lanes[lane]  # type: ignore[index]
                    assert (mine.low, mine.high) == (expected.low, expected.high)
                    assert mine.norm == pytest.approx(expected.norm, rel=1e-12)
                    np.testing.assert_array_equal(mine.counts.exponents, expected.counts.exponents)
            after = {n: p.detach().numpy().ravel() for n, p in model.named_parameters()}
            following = seen[step] if step < len(seen) else {n: [w] for n, w in after.items()}
            for found in table:
                moved = following[found.name][0].astype("f8") - held[found.name][0]
                assert found.update.norm == pytest.approx(math.sqrt(float((moved**2).sum())), rel=1e-4)
        # Noticed in clip_grad_norm_, whatever is counted: the norm of before, and what it was scaled by.
        norms, scales = session.metric("grad_norm"), session.metric("clip_scale")
        clipped = [
            math.sqrt(sum(float((g.astype("f8") ** 2).sum()) for _, g, _, _ in each.values()))
            for each in seen
        ]
        np.testing.assert_allclose(norms * scales, clipped, rtol=1e-5)
        np.testing.assert_allclose(scales, np.minimum(1, 0.5 / (norms + 1e-6)), rtol=1e-6)


def test_settings_are_those_of_each_group_and_step(path: Path) -> None:
    model = runs.Net()
    optimizer = torch.optim.Adam(runs.split(model, lr=1e-2, betas=(0.8, 0.9)), lr=1e-3, eps=1e-6)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    with record(optimizer, path, model):
        for step in range(1, 4):
            runs.train(model, optimizer, [step])
            schedule.step()
    with Session.open(path) as session:
        about = session.about
        assert about.variant.optimizer == "adam-l2"
        assert about.variant.numerics == "precise"
        assert about.origin == f"PyTorch {torch.__version__} Adam (for-loop)"
        assert [(p.name, p.group, p.decay) for p in about.params] == [
            ("embed.weight", 0, True), ("mix.weight", 0, True),
            ("scale", 1, False), ("norm.weight", 1, False), ("norm.bias", 1, False), ("mix.bias", 1, False),
        ]  # fmt: skip
        for step in range(1, 4):
            own = session.step(step).hyper.per_param
            assert own is not None
            wide, narrow = own.of_param(0), own.of_param(2)
            assert wide is not None
            assert narrow is not None
            assert (wide.lr, wide.beta1, wide.beta2, wide.eps, wide.weight_decay) == (
                1e-2 * (1 / step), 0.8, 0.9, 1e-6, 0.1,
            )  # fmt: skip
            assert (narrow.lr, narrow.weight_decay, narrow.t(step)) == (1e-3 * (1 / step), 0.0, step)
        assert any("head.weight is the same tensor as embed.weight" in str(n) for n in session.notes("mark"))


def test_one_group_needs_no_settings_of_its_own(path: Path) -> None:
    model = torch.nn.Linear(3, 2, bias=False)
    optimizer = AdamW(model.parameters(), lr=1e-3)
    with record(optimizer, path, model):
        _step(model, optimizer)
    with Session.open(path) as session:
        hyper = session.step(1).hyper
        assert hyper.per_param is None
        assert (hyper.lr, hyper.weight_decay, hyper.max_grad_norm) == (1e-3, 0.01, math.inf)


def _step(model: Any, optimizer: Any, factor: float = 1.0) -> None:
    optimizer.zero_grad()
    (model(torch.ones(4, 3)).square().mean() * factor).backward()
    optimizer.step()


# --- params that come, go and stand still


def test_a_param_without_gradient_is_idle_and_its_count_stands(path: Path) -> None:
    a, b = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2))
    frozen = torch.nn.Parameter(torch.ones(5), requires_grad=False)
    optimizer = AdamW([a, b, frozen], lr=0.1)
    with record(optimizer, path, capture="all"):
        for step in range(1, 6):
            optimizer.zero_grad()
            loss = a.sum() if step in (3, 4) else a.sum() + b.sum()
            loss.backward()
            optimizer.step()
    with Session.open(path) as session:
        assert [p.name for p in session.about.params] == ["group0.0", "group0.1", "group0.2"]
        found = []
        for step in range(1, 6):
            own = session.step(step).hyper.per_param
            assert own is not None
            each = [own.of_param(number) for number in range(3)]
            found.append([(s.idle, s.t(step)) for s in each if s is not None])
        assert found == [
            [(False, 1), (False, 1), (True, 0)],
            [(False, 2), (False, 2), (True, 0)],
            [(False, 3), (True, 2), (True, 0)],
            [(False, 4), (True, 2), (True, 0)],
            [(False, 5), (False, 3), (True, 0)],
        ]
        assert int(optimizer.state[b]["step"]) == 3
        assert session.keyframe(4).w["group0.1"].tobytes() == session.keyframe(2).w["group0.1"].tobytes()


def test_params_that_join_are_recorded_from_then_on(path: Path) -> None:
    model = runs.Net()
    params = dict(model.named_parameters())
    late = params.pop("mix.weight")
    optimizer = AdamW(params.values(), lr=1e-2)
    with record(optimizer, path, model, "all"):
        runs.train(model, optimizer, range(1, 4))
        optimizer.add_param_group({"params": [late], "lr": 1e-3})
        runs.train(model, optimizer, range(4, 7))
    with Session.open(path) as session:
        assert session.about.params[-1].name == "mix.weight"
        assert session.about.params_in(3) == 5
        assert session.about.params_in(4) == 6
        own = session.step(5).hyper.per_param
        assert own is not None
        settings = own.of_param(5)
        assert settings is not None
        assert (settings.lr, settings.t(5)) == (1e-3, 2)
        table = session.param_statistics(5)
        assert table is not None
        assert "mix.weight" in table.names
        got = np.asarray(session.tensor("w", step=6, param="mix.weight")).ravel()
        assert got.tobytes() == late.detach().numpy().tobytes()


def test_statistics_are_in_the_order_of_memory(path: Path) -> None:
    """Which is not that of the optimizer where the params that are not decayed come first."""
    model = runs.Net()
    optimizer = AdamW(runs.split(model)[::-1], lr=3e-3)
    with record(optimizer, path, model):
        runs.train(model, optimizer, range(1, 3))
    with Session.open(path) as session:
        table, layout = session.param_statistics(2), session.layout(2)
        assert table is not None
        assert layout is not None
        assert list(table.names) == [segment.name for segment in layout]
        assert list(table.names) != [param.name for param in session.about.params]
        for name, w in model.named_parameters():
            row = table.names.index(name)
            assert (table.blocks[row], table.numel[row]) == (layout[name].block, w.numel())
            assert layout.at(int(table.update.largest_at[row])) is layout[name]


def test_params_that_join_twice(path: Path) -> None:
    model = runs.Net()
    first, second, *rest = model.parameters()
    optimizer = AdamW([{"params": rest}], lr=3e-3)
    with record(optimizer, path, model):
        runs.train(model, optimizer, range(1, 3))
        optimizer.add_param_group({"params": [first]})
        runs.train(model, optimizer, range(3, 5))
        optimizer.add_param_group({"params": [second]})
        runs.train(model, optimizer, range(5, 7))
    with Session.open(path) as session:
        assert [(each.step, each.params) for each in session.about.added] == [(3, 4), (5, 5)]
        for step in session.steps:
            layout = session.layout(step)
            assert layout is None or len(layout.segments) == 6
        assert session.layout(6) is not None
        assert session.verify() == []


def test_a_run_that_goes_on_keeps_its_step_count(path: Path) -> None:
    model = runs.Net()
    optimizer = AdamW(runs.split(model), lr=1e-2)
    runs.train(model, optimizer, range(1, 8))
    with record(optimizer, path, model, "all"):
        runs.train(model, optimizer, range(8, 10))
    with Session.open(path) as session:
        assert session.steps == range(8, 10)
        assert session.about.finished_steps == 7
        assert set(session.keyframe(7).m) == {name for name, _ in model.named_parameters()}


# --- what is not float32, or not Adam


@pytest.mark.parametrize(("dtype", "word"), [(torch.bfloat16, "bf16"), (torch.float16, "f16")], ids=str)
def test_half_precision_params(path: Path, dtype: Any, word: str) -> None:
    model = runs.Net(dtype)
    optimizer = AdamW(runs.split(model), lr=1e-2)
    with record(optimizer, path, model, "all"):
        runs.train(model, optimizer, range(1, 4))
    with Session.open(path) as session:
        assert set(session.about.dtypes) == {word}
        assert "float16" in session.about.unreplayable
        got = np.asarray(session.tensor("w", step=3, param="mix.weight"))
        np.testing.assert_array_equal(got, model.mix.weight.detach().float().numpy())


def test_what_cannot_be_run_again_is_said(path: Path, tmp_path: Path) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters(), amsgrad=True, maximize=True, foreach=True)
    with record(optimizer, path, model, "grads:1"):
        runs.train(model, optimizer, range(1, 3))
        gradient = model.mix.weight.grad.clone()
    with Session.open(path) as session:
        assert "amsgrad" in session.about.unreplayable
        assert session.about.origin.endswith("AdamW (foreach)")
        assert any("maximizes" in str(note) for note in session.notes("mark"))
        np.testing.assert_array_equal(session.tensor("g", step=2, param="mix.weight"), -gradient.numpy())
    with record(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), tmp_path / "sgd.session", model):
        pass
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with record(optimizer, tmp_path / "other.session", model):
        runs.train(model, optimizer, range(1, 41))
    with Session.open(tmp_path / "other.session") as session:
        assert session.about.foreign == "SGD"
        assert "SGD" in session.about.unreplayable
        table = session.param_statistics(20)
        assert table is not None
        assert (table.lanes["m"].norm > 0).all()
        assert [finding.rule for finding in session.findings()] == ["decay-on-norm-or-bias"][:0]


def test_an_optimizer_with_a_step_of_its_own_is_not_taken_for_adam(path: Path) -> None:
    class Mine(AdamW):  # type: ignore[misc, valid-type]
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    model = runs.Net()
    with record(Mine(model.parameters()), path, model) as recording:
        runs.train(model, recording._run.optimizer, [1])
    with Session.open(path) as session:
        assert session.about.foreign == "Mine"


def test_a_closure_is_run_before_the_step_is_looked_at(path: Path) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters(), lr=1e-2)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = runs.loss_of(model, 1)
        loss.backward()
        return loss

    with record(optimizer, path, model, "grads:1"):
        losses = [float(optimizer.step(closure).detach()) for _ in range(3)]
    with Session.open(path) as session:
        np.testing.assert_array_equal(session.metric("loss"), losses)
        np.testing.assert_array_equal(
            session.tensor("g", step=3, param="mix.weight"), model.mix.weight.grad.numpy()
        )


def test_elements_are_numbered_as_they_are_whatever_their_place_in_memory(path: Path) -> None:
    model = torch.nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)
    optimizer = AdamW(model.parameters(), lr=1e-2)
    with record(optimizer, path, model, "grads:1"):
        model(torch.ones(1, 4, 5, 5).to(memory_format=torch.channels_last)).sum().backward()
        model.weight.grad[3, 2, 1, 0] = math.inf
        gradient = model.weight.grad.clone()
        optimizer.step()
    with Session.open(path) as session:
        finding = next(f for f in session.findings() if f.rule == "nonfinite-gradient")
        assert (finding.param, finding.index) == (
            "weight",
            int(np.ravel_multi_index((3, 2, 1, 0), (8, 4, 3, 3))),
        )
        np.testing.assert_array_equal(
            session.tensor("g", step=1, param="weight"), gradient.contiguous().numpy()
        )


# --- the loss


def test_the_loss_belongs_to_the_step_it_was_told_for(tmp_path: Path) -> None:
    for order in ("before", "after", "micro", "never"):
        path = tmp_path / f"{order}.session"
        model = torch.nn.Linear(3, 1)
        optimizer = AdamW(model.parameters())
        with record(optimizer, path, model) as recording:
            for step in range(1, 5):
                if order == "before":
                    recording.loss(torch.tensor(float(step)))
                if order == "micro":
                    recording.loss(step - 1.0)
                    recording.loss(torch.tensor([step + 1.0]))
                _step(model, optimizer)
                if order == "after":
                    recording.loss(torch.tensor(float(step), requires_grad=True))
        with Session.open(path) as session:
            expected = [math.nan] * 4 if order == "never" else [1.0, 2.0, 3.0, 4.0]
            np.testing.assert_array_equal(session.metric("loss"), expected)


# --- what is noticed on the way


def test_clipping_is_noticed_however_it_was_imported(path: Path) -> None:
    from torch.nn.utils import clip_grad_norm_

    model = torch.nn.Linear(3, 1)
    optimizer = AdamW(model.parameters())
    with record(optimizer, path, model) as recording:
        for kind in (2.0, math.inf):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).square().mean().backward()
            norm = float(sum(p.grad.double().square().sum() for p in model.parameters()).sqrt())
            largest = float(clip_grad_norm_(model.parameters(), 0.01, norm_type=kind))
            optimizer.step()
            recording.loss(norm)
        other = torch.nn.Linear(2, 1)
        other(torch.ones(1, 2)).sum().backward()
        clip_grad_norm_(other.parameters(), 1e-9)  # Not ours.
        _step(model, optimizer)
    with Session.open(path) as session:
        np.testing.assert_allclose(session.metric("grad_norm")[:2], session.metric("loss")[:2], rtol=1e-5)
        np.testing.assert_allclose(
            session.metric("clip_scale")[1:], [0.01 / (largest + 1e-6), 1.0], rtol=1e-6
        )


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscaled", [False, True])
def test_a_loss_scaler_and_the_step_it_skips(path: Path, fused: bool, unscaled: bool) -> None:
    model = torch.nn.Linear(3, 1)
    optimizer = AdamW(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    kept = []
    with record(optimizer, path, model, "grads:1+keyframes:1"):
        for step in range(1, 5):
            optimizer.zero_grad()
            loss = model(torch.ones(4, 3)).square().mean() * (math.inf if step == 3 else 1.0)
            scaler.scale(loss).backward()
            if unscaled:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            kept.append(model.weight.detach().clone().numpy())
    with Session.open(path) as session:
        assert session.steps == range(1, 5)
        own = session.step(3).hyper.per_param
        assert own is not None
        assert all(each.idle for each in own.classes)
        last = session.step(4).hyper.per_param
        settings = last.of_param(0) if last is not None else None
        assert settings is not None
        assert (settings.t(4), settings.behind) == (3, 1)
        assert session.step(3).nonfinite.total == 4
        np.testing.assert_array_equal(session.tensor("w", step=3, param="weight"), kept[1])
        np.testing.assert_array_equal(session.tensor("w", step=4, param="weight"), kept[3])
        assert [n.step for n in session.notes("mark") if "loss scaler" in n.text] == [3]
        table = session.param_statistics(3)
        assert table is not None
        assert table.update.norm.tolist() == [0.0, 0.0]
        # As the optimizer took them: without the scale.
        gradient = np.asarray(session.tensor("g", step=1, param="bias"))
        with torch.random.fork_rng():
            torch.manual_seed(0)
            fresh = torch.nn.Linear(3, 1)
        fresh(torch.ones(4, 3)).square().mean().backward()
        np.testing.assert_array_equal(gradient, fresh.bias.grad.numpy())
        norm = math.sqrt(float(sum(p.grad.double().square().sum() for p in fresh.parameters())))
        assert session.metric("grad_norm")[0] == pytest.approx(norm, rel=1e-6)


# --- going on


def test_a_resumed_run_goes_on_in_the_same_session(path: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.pt"
    whole = runs.Net()
    optimizer = AdamW(runs.split(whole), lr=3e-3)
    runs.train(whole, optimizer, range(1, 13))

    torch.manual_seed(0)
    model = runs.Net()
    optimizer = AdamW(runs.split(model), lr=3e-3)
    with record(optimizer, path, model, "flight:4"):
        runs.train(model, optimizer, range(1, 7))
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)
        runs.train(model, optimizer, range(7, 10))

    model = runs.Net()
    optimizer = AdamW(runs.split(model), lr=3e-3)
    with pytest.raises(UsageError, match="stands at step 0: load the checkpoint before record"):
        record(optimizer, path, model, "flight:4")
    held = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(held["model"])
    optimizer.load_state_dict(held["optimizer"])
    with pytest.raises(UsageError, match="recorded with capture='flight:4'"):
        record(optimizer, path, model)
    with record(optimizer, path, model, "flight:4"):
        runs.train(model, optimizer, range(7, 13))
    assert runs.weights(model) == runs.weights(whole)
    with Session.open(path) as session:
        assert session.steps == range(1, 13)
        assert session.state == "complete"
        assert any("steps 7 to 9" in note.text for note in session.notes("mark"))
    other = torch.nn.Linear(2, 2)
    with pytest.raises(UsageError, match="other params"):
        record(AdamW(other.parameters()), path, other)


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [
        (torch.optim.AdamW, torch.optim.SGD, "is a recording of AdamW, and this optimizer is SGD"),
        (torch.optim.SGD, torch.optim.AdamW, "is a recording of SGD, and this optimizer is AdamW"),
        (
            torch.optim.AdamW,
            torch.optim.Adam,
            "of AdamW, and this optimizer is Adam with the decay in its gradient",
        ),
    ],
)
def test_a_session_of_another_kind_of_optimizer_is_refused_by_kind(
    first: Any, then: Any, words: str, path: Path
) -> None:
    model = runs.Net()
    optimizer = first(model.parameters(), lr=1e-3)
    with record(optimizer, path, model):
        runs.train(model, optimizer, range(1, 4))
    with pytest.raises(UsageError, match=words):
        record(then(model.parameters(), lr=1e-3), path, model)


def test_a_state_that_is_loaded_on_the_way_sets_the_counts(path: Path) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters())
    with record(optimizer, path, model):
        runs.train(model, optimizer, range(1, 4))
        early = optimizer.state_dict()
        early = {
            **early,
            "state": {k: {n: v.clone() for n, v in s.items()} for k, s in early["state"].items()},
        }
        runs.train(model, optimizer, range(4, 6))
        optimizer.load_state_dict(early)
        runs.train(model, optimizer, range(6, 8))
    with Session.open(path) as session:
        own = session.step(7).hyper.per_param
        assert own is not None
        assert {each.t(7) for each in own.classes} == {5}
        assert int(optimizer.state[model.scale]["step"]) == 5
        assert any("state was loaded" in note.text for note in session.notes("mark"))


# --- ends


def test_a_nan_is_found_and_the_flight_recorder_holds_its_cause(path: Path) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters())

    def spoil(step: int) -> None:
        if step == 11:
            model.mix.weight.grad[2, 5] = math.nan

    with record(optimizer, path, model, "flight:3") as recording:
        runs.train(model, optimizer, range(1, 14), before=spoil, recording=recording, clip=None)
    with Session.open(path) as session:
        rules = {f.rule: f for f in reversed(session.findings())}
        assert (rules["nonfinite-gradient"].step, rules["nonfinite-gradient"].param) == (11, "mix.weight")
        assert rules["nonfinite-gradient"].index == 2 * 12 + 5
        assert "The optimizer takes them as they are" in rules["nonfinite-gradient"].message
        assert rules["nonfinite-state"].step == 12
        assert rules["nonfinite-loss"].step == 12
        gradients = session.captures("gradients")
        assert {9, 10, 11} <= set(gradients)
        keyframes = [step for step in session.captures("keyframe") if 0 < step < 11]
        assert keyframes
        assert set(range(max(keyframes) + 1, 12)) <= set(gradients)


@pytest.mark.parametrize(("value", "kind"), [(math.nan, "nan"), (math.inf, "posinf"), (-math.inf, "neginf")])
@pytest.mark.parametrize("stats", ["full", "light"])
def test_the_origin_is_that_of_before_clipping_which_spreads_a_nan(
    path: Path, value: float, kind: str, stats: Any
) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters())
    with record(optimizer, path, model, "flight:3", stats=stats):
        for step in range(1, 4):
            optimizer.zero_grad()
            runs.loss_of(model, step).backward()
            if step == 3:
                model.mix.weight.grad[2, 5] = value
                norms = {name: _finite_norm(p.grad) for name, p in model.named_parameters()}
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    with Session.open(path) as session:
        found = {f.rule: f for f in session.findings() if f.step == 3}
        assert "norm-overflow" not in found, "the norm is infinite since a gradient is"
        finding = found["nonfinite-gradient"]
        assert (finding.param, finding.index) == ("mix.weight", 2 * 12 + 5)
        counts = {name: finding.evidence[name] for name in ("nan", "posinf", "neginf")}
        assert counts == {"nan": 0, "posinf": 0, "neginf": 0} | {kind: 1}
        assert "by a norm that is not finite" in finding.message
        nonfinite = session.step(3).nonfinite
        assert (nonfinite.total, getattr(nonfinite, kind)) == (1, 1)
        if stats == "full":
            table = session.param_statistics(3)
            assert table is not None
            for name, norm in norms.items():
                assert table.lanes["g"].norm[table.names.index(name)] == pytest.approx(norm, rel=1e-6)
        # What the optimizer took is kept beside it.
        taken = np.asarray(session.tensor("g", step=3, param="scale"))
        assert math.isnan(taken) if kind == "nan" else float(taken) == 0
        assert any("before clipping" in note.text for note in session.notes("mark") if note.step == 3)


def test_a_run_of_nan_is_marked_once_and_not_in_every_step_that_is_left(path: Path) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters())
    with record(optimizer, path, model):
        for step in range(1, 10):
            optimizer.zero_grad()
            runs.loss_of(model, step).backward()
            if step in (3, 4, 5, 8):
                model.mix.weight.grad[2, 5] = math.nan
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if torch.isfinite(norm):
                optimizer.step()
            else:
                kept = [p.detach().clone() for p in model.parameters()]
                optimizer.step()
                with torch.no_grad():
                    for param, value in zip(model.parameters(), kept, strict=True):
                        param.copy_(value)
                        for moment in ("exp_avg", "exp_avg_sq"):
                            optimizer.state[param][moment].zero_()
    with Session.open(path) as session:
        told = [note.step for note in session.notes("mark") if "before clipping" in note.text]
        assert told == [3, 8]


def _finite_norm(gradient: Any) -> float:
    wide = gradient.double().numpy()
    return float(np.sqrt(np.square(wide[np.isfinite(wide)]).sum()))


def test_groups_that_are_clipped_one_by_one_keep_the_origin_of_each(path: Path) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters())
    with record(optimizer, path, model, "all"):
        runs.loss_of(model, 1).backward()
        model.mix.weight.grad[2, 5] = math.nan
        model.norm.weight.grad[3] = math.inf
        for part in (model.mix, model.norm):
            torch.nn.utils.clip_grad_norm_(part.parameters(), 1.0)
        optimizer.step()
    with Session.open(path) as session:
        table = session.param_statistics(1)
        assert table is not None
        bad = dict(zip(table.names, table.lanes["g"].nonfinite.tolist(), strict=True))
        assert {name: count for name, count in bad.items() if count} == {"mix.weight": 1, "norm.weight": 1}
        assert session.step(1).nonfinite.posinf == 1


def test_an_exception_leaves_the_steps_before_it_and_what_came_of_its_own(path: Path) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters())

    def run() -> None:
        with record(optimizer, path, model, "flight:2") as recording:
            runs.train(model, optimizer, range(1, 8), recording=recording)
            loss = runs.loss_of(model, 8) * math.nan
            recording.loss(loss)
            optimizer.zero_grad()
            loss.backward()
            raise FloatingPointError("the loss is NaN")

    with pytest.raises(FloatingPointError):
        run()
    with Session.open(path) as session:
        assert session.ended_because == "The run ended with FloatingPointError: the loss is NaN."
        assert session.steps == range(1, 9)
        own = session.step(8).hyper.per_param
        assert own is not None
        assert all(each.idle for each in own.classes)
        told = [note.text for note in session.notes("mark") if note.step == 8]
        assert told == ["the run ended before this step was complete"], "no loss scaler had a part in it"
        assert {"nonfinite-loss", "nonfinite-gradient"} <= {f.rule for f in session.findings() if f.step == 8}
        assert {7, 8} <= set(session.captures("gradients"))


def test_an_exception_between_steps_adds_none(path: Path) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters())

    def run() -> None:
        with record(optimizer, path, model, "flight:2"):
            runs.train(model, optimizer, range(1, 6))
            raise KeyError("x")

    with pytest.raises(KeyError):
        run()
    with Session.open(path) as session:
        assert session.steps == range(1, 6)
        assert {4, 5} <= set(session.captures("gradients"))


def test_scripts_that_end_in_their_own_ways(tmp_path: Path) -> None:
    bodies = {
        "exception": "record(optimizer, path, model, 'flight:2'); train(model, optimizer, range(1, 6)); 1 / 0",
        "last line": "record(optimizer, path, model, 'flight:2'); train(model, optimizer, range(1, 6))",
        "exit": "record(optimizer, path, model); train(model, optimizer, range(1, 6)); sys.exit(3)",
    }
    for name, body in bodies.items():
        path = tmp_path / f"{name}.session"
        done = runs.run_script(body, path)
        with Session.open(path) as session:
            assert session.steps == range(1, 6)
            assert session.state == "complete"
            if name == "exception":
                assert "ZeroDivisionError" in (session.ended_because or "")
                assert "ZeroDivisionError" in done.stderr
                assert session.captures("gradients")
            else:
                assert session.ended_because is None
                assert done.stderr == ""


def test_a_killed_script_loses_at_most_the_step_in_progress(path: Path) -> None:
    body = """
    import time
    with record(optimizer, path, model, "grads:1"):
        for step in range(1, 1000):
            train(model, optimizer, [step])
            print(step, flush=True)
            time.sleep(0.05)
    """
    process = subprocess.Popen(
        runs.script(body, path), env=runs.environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = 0
    for line in process.stdout:
        told = int(line)
        if told == 12:
            time.sleep(0.04)
            process.kill()
            break
    rest = process.stdout.read().split()
    process.stdout.close()
    process.wait()
    told = int(rest[-1]) if rest else told
    with Session.open(path) as session:
        assert session.state == "interrupted"
        assert session.steps.stop - 1 >= told - 1
        assert set(session.captures("gradients")) == set(session.steps)


def test_a_recording_is_followed_while_it_is_written(path: Path) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters())
    with record(optimizer, path, model) as recording:
        runs.train(model, optimizer, range(1, 4), recording=recording)
        _wait_for(path, 3)
        with Session.open(path) as session:
            assert session.state == "recording"
            runs.train(model, optimizer, range(4, 6), recording=recording)
            deadline = time.monotonic() + 60
            while session.steps.stop <= 5 and time.monotonic() < deadline:
                session.follow()
                time.sleep(0.01)
            assert session.steps == range(1, 6)


def _wait_for(path: Path, step: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists():
            with Session.open(path) as session:
                if session.steps.stop > step:
                    return
        time.sleep(0.01)
    raise AssertionError(f"step {step} was not written")


# --- what goes wrong


def test_the_model_can_be_copied_and_pickled_while_it_is_recorded(path: Path) -> None:
    """Averaged weights (EMA) begin as `copy.deepcopy(model)`; a copy is nobody's recorded model."""
    model = runs.Net()
    optimizer = AdamW(model.parameters())
    with record(optimizer, path, model) as recording:
        runs.train(model, optimizer, range(1, 3), recording=recording)
        average = copy.deepcopy(model)
        pickled = pickle.dumps(model)
        assert b"inspector" not in pickled, "what is saved loads where the inspector is not installed"
        copy.deepcopy(optimizer)
        for each in (average, pickle.loads(pickled)):
            each.load_state_dict(model.state_dict())
        runs.train(model, optimizer, range(3, 5), recording=recording)
        model.load_state_dict(average.state_dict())
        runs.train(model, optimizer, range(5, 6), recording=recording)
    with Session.open(path) as session:
        assert session.steps == range(1, 6)
        loaded = [note.step for note in session.notes("mark") if "tensor" not in note.text]
        assert loaded == [5], "only what was loaded into the model itself"


def test_a_fault_of_the_recording_is_told_once_and_training_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inspector.integrations.torch import watch

    torch.manual_seed(1)
    plain = runs.Net()
    runs.train(plain, AdamW(plain.parameters()), range(1, 9))
    torch.manual_seed(1)
    model = runs.Net()
    optimizer = AdamW(model.parameters())
    calls = []

    def broken(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise ZeroDivisionError("planned")
        return counted(*args)

    counted = watch.Counter.count
    monkeypatch.setattr(watch.Counter, "count", broken)

    def run() -> Any:
        with record(optimizer, path, model) as recording:
            runs.train(model, optimizer, range(1, 9), recording=recording)
            assert not recording.open
        return recording

    with pytest.warns(RecordingWarning, match="ZeroDivisionError: planned") as told:
        recording = run()
    assert len(told) == 1
    assert runs.weights(model) == runs.weights(plain)
    recording._run.writer.join(10)
    with Session.open(path) as session:
        assert session.steps == range(1, 4)
        assert "planned" in (session.ended_because or "")


def test_a_full_disk_is_told_once_and_training_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters())
    free = iter([1 << 40] * 4)
    create = Recorder.create.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        Recorder, "create", classmethod(lambda cls, *args: create(cls, *args, free=lambda _: next(free, 0)))
    )

    def run() -> None:
        with record(optimizer, path, model, "all"):
            for step in range(1, 20):
                runs.train(model, optimizer, [step])
                time.sleep(0.01)

    with pytest.warns(RecordingWarning, match="the disk is full") as told:
        run()
    assert len(told) == 1
    with Session.open(path) as session:
        assert session.steps.stop > 1
        assert "the disk is full" in (session.ended_because or "")


def test_warnings_that_are_errors_do_not_reach_the_training(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from inspector.integrations.torch import step_counts

    def broken(*args: Any, **more: Any) -> Any:
        raise OSError("planned")

    monkeypatch.setattr(step_counts, "lanes_of", broken)
    model = runs.Net()
    optimizer = AdamW(model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with record(optimizer, path, model) as recording:
            runs.train(model, optimizer, range(1, 3), recording=recording)
    assert "planned" in capsys.readouterr().err
    recording._run.writer.join(10)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (lambda m, o, p: record(o, p, m, "grads:0"), "not a number of steps"),
        (lambda m, o, p: record(o, p, m, "some"), "not a capture policy"),
        (lambda m, o, p: record(m, p, m), "no torch.optim.Optimizer"),
        (lambda m, o, p: record(o, p, "gpt"), "no named_parameters"),
        (lambda m, o, p: record(o, p / "a" / "b", m), "does not exist"),
        (lambda m, o, p: record(o, p, m, stats="all"), "choose one of off, light, full"),
        (lambda m, o, p: record(o, p, m, stats_every=0), "counts steps from 1"),
        (
            lambda m, o, p: record(
                torch.optim.SGD([torch.nn.Parameter(torch.zeros(2, dtype=torch.cfloat))]), p
            ),
            "complex",
        ),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_training(what: Any, sentence: str, path: Path) -> None:
    model = runs.Net()
    with pytest.raises(UsageError, match=sentence):
        what(model, AdamW(model.parameters()), path)
    assert not path.exists()


@pytest.mark.parametrize(
    "options",
    [{"capture": None}, {"capture": 5}, {"stats_every": "2"}, {"stats_every": 1.5}, {"agree_every": None}],
)
def test_options_of_another_type_are_refused_in_a_sentence(options: dict[str, Any], path: Path) -> None:
    model = runs.Net()
    with pytest.raises(UsageError, match=next(iter(options))):
        record(AdamW(model.parameters()), path, model, **options)
    assert not path.exists()


def test_an_empty_path_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="path is empty"):
        record(AdamW(runs.Net().parameters()), "")


@pytest.mark.parametrize(
    "value", [None, "x", [], 1 + 2j, 10**400, torch.ones(2), torch.ones(1, dtype=torch.cfloat)]
)
def test_a_loss_that_is_no_number_is_left_out_and_the_recording_goes_on(path: Path, value: Any) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters())
    with record(optimizer, path, model) as recording:
        with pytest.warns(RecordingWarning, match="loss"):
            recording.loss(value)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            recording.loss(value)
        runs.train(model, optimizer, range(1, 4), recording=recording)
    assert recording.problem is None
    with Session.open(path) as session:
        assert session.steps == range(1, 4)
        assert np.isfinite(session.metric("loss")).all()


def test_a_session_that_is_deleted_meanwhile_ends_in_a_sentence(path: Path) -> None:
    model = runs.Net()
    optimizer = AdamW(model.parameters())
    recording = record(optimizer, path, model, "all")
    runs.train(model, optimizer, range(1, 3))
    _wait_for(path, 1)
    path.rename(path.with_name("elsewhere.session"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RecordingWarning)
        runs.train(model, optimizer, range(3, 6))
        recording.close()
    assert [str(each.message) for each in told if issubclass(each.category, RecordingWarning)] == [
        f"The recording {path} has ended, it cannot be written: No such file or directory. "
        "The training goes on without being recorded."
    ]


def test_a_session_of_something_else_is_not_gone_on_with(path: Path) -> None:
    path.mkdir()
    model = runs.Net()
    with pytest.raises(UsageError, match="is no session"):
        record(AdamW(model.parameters()), path, model)


def test_importing_it_loads_neither_the_gpu_nor_the_window() -> None:
    code = (
        "import sys, inspector.integrations.torch; "
        "print([m for m in ('wgpu', 'PySide6', 'inspector.gpu', 'inspector.runtime', 'inspector.sources', 'typer') "
        "if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=runs.environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_many_params_make_few_operations(path: Path) -> None:
    """Small params are counted together: fewer operations of PyTorch in the hook than a tenth of the params."""
    params = [torch.nn.Parameter(torch.ones(3 + i % 7)) for i in range(2000)]
    optimizer = AdamW(params, foreach=True)
    for param in params:
        param.grad = torch.ones_like(param)
    with record(optimizer, path) as recording:
        optimizer.step()
        with (
            torch.no_grad(),
            torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile,
        ):
            recording._steps.begin()
        # Views move nothing.
        views = {
            "as_strided",
            "slice",
            "narrow",
            "detach",
            "to",
            "select",
            "unbind",
            "resolve_conj",
            "resolve_neg",
        }
        counted = sum(each.count for each in profile.key_averages() if each.key.split("::")[-1] not in views)
        recording._steps.end()
    assert counted < 200
    with Session.open(path) as session:
        table = session.param_statistics(2)
        assert table is not None
        assert len(table) == 2000


@pytest.mark.parametrize(
    ("way", "cuda", "numerics"),
    [
        ({"fused": True}, True, "published"),
        ({"fused": True}, False, "precise"),
        ({"foreach": True}, True, "precise"),
        ({"foreach": False}, True, "precise"),
    ],
)
def test_the_kernels_run_in_the_numerics_of_the_way_that_pytorch_took(
    way: dict[str, bool], cuda: bool, numerics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PyTorch 2.11 on CUDA: fused_adam_utils.cuh has 1-β in float32, foreach and the loop have it from the host."""
    monkeypatch.setattr(params, "_on_cuda", lambda groups: cuda)
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))], **way)
    assert params.kind_of(optimizer).variant.numerics == numerics
