"""What the kernel is told of params, made once and checked each step: the same as looking at each of them tells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch_runs as runs  # noqa: E402
from emulated_kernel import Words, compile_kernel  # noqa: E402

from inspector.integrations.torch import kernel, record, watch  # noqa: E402
from inspector.integrations.torch.counting import gradient_alone  # noqa: E402
from inspector.integrations.torch.params import Known, kind_of, name_params  # noqa: E402
from inspector.integrations.torch.prepared import Prepared  # noqa: E402
from inspector.session.reader import Session  # noqa: E402

AdamW = torch.optim.AdamW


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


class Mixed(torch.nn.Module):
    """Params of three types, a convolution laid out by channels, one that takes no part."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.wide = torch.nn.Parameter(torch.randn(6, 5))
        self.brief = torch.nn.Parameter(torch.randn(7).to(torch.bfloat16))
        self.short = torch.nn.Parameter(torch.randn(9).to(torch.float16))
        self.unused = torch.nn.Parameter(torch.randn(3))

    def backward(self) -> None:
        """Gradients for all but one."""
        loss = self.conv(torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)).square().sum()
        (loss + self.wide.sum() + self.brief.float().sum() + self.short.float().sum()).backward()


def made(**options: Any) -> tuple[Mixed, Any, list[Known]]:
    """One step has run, so that there is a state."""
    model = Mixed()
    optimizer = AdamW(runs.split(model), lr=1e-3, **options)
    model.backward()
    optimizer.step()
    return model, optimizer, name_params(optimizer, model)


def of_tasks(optimizer: Any, known: list[Known], t: Any, *, light: bool = False, **more: Any) -> Any:
    """JOB[params] by looking at each param."""
    kind = kind_of(optimizer)
    lanes = watch.lanes_of(optimizer, known, kind)
    tasks, _ = watch.tasks_of(lanes, known, optimizer.param_groups, kind, t, **more)
    return kernel.jobs_of([gradient_alone(task) for task in tasks] if light else tasks)[0]


def of_prepared(
    optimizer: Any,
    known: list[Known],
    t: Any,
    *,
    light: bool = False,
    prepared: Prepared | None = None,
    **more: Any,
) -> Any:
    """The same by what was prepared."""
    prepared = prepared or Prepared(optimizer, known, kind_of(optimizer))
    gradients = prepared.gradients([each.param.grad for each in known])
    assert gradients is not None
    jobs, _ = prepared.of_step(optimizer.param_groups, gradients, t, more["scale"], skipped=more["skipped"])
    if light:
        prepared.gradients_alone(jobs, gradients)
    return jobs


@pytest.mark.parametrize(
    "options", [{}, {"amsgrad": True}, {"maximize": True}, {"betas": (0.5, 0.75)}], ids=str
)
@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("skipped", [False, True])
@pytest.mark.parametrize("scale", [None, 1024.0])
def test_the_kernel_is_told_the_same_as_of_each_param(
    options: dict[str, Any], light: bool, skipped: bool, scale: float | None
) -> None:
    _, optimizer, known = made(**options)
    t = np.arange(2, 2 + len(known))
    more = {"scale": None if scale is None else torch.tensor(scale), "skipped": skipped, "light": light}
    np.testing.assert_array_equal(
        of_prepared(optimizer, known, t, **more), of_tasks(optimizer, known, t, **more)
    )


def test_settings_are_those_of_the_step_that_is_told() -> None:
    _, optimizer, known = made()
    t = np.full(len(known), 5)
    prepared = Prepared(optimizer, known, kind_of(optimizer))
    optimizer.param_groups[0]["lr"] = 0.25
    optimizer.param_groups[1].update(betas=(0.1, 0.2), eps=0.5, weight_decay=0.125)
    assert prepared.holds()
    jobs = of_prepared(optimizer, known, t, scale=None, skipped=False, prepared=prepared)
    np.testing.assert_array_equal(jobs, of_tasks(optimizer, known, t, scale=None, skipped=False))
    assert set(jobs["lr"]) == {0.25, 1e-3}


def _swapped_weights(model: Mixed, optimizer: Any) -> None:
    model.wide.data = model.wide.data.clone()


def _another_type(model: Mixed, optimizer: Any) -> None:
    model.wide.data = model.wide.data.to(torch.bfloat16)


def _loaded(model: Mixed, optimizer: Any) -> None:
    optimizer.load_state_dict(optimizer.state_dict())


def _moment_replaced(model: Mixed, optimizer: Any) -> None:
    state = optimizer.state[model.wide]
    state["exp_avg"] = state["exp_avg"].clone()


def _moment_moved(model: Mixed, optimizer: Any) -> None:
    optimizer.state[model.wide]["exp_avg_sq"].data = torch.ones_like(model.wide)


def _state_of_one_replaced(model: Mixed, optimizer: Any) -> None:
    optimizer.state[model.wide] = dict(optimizer.state[model.wide])


def _state_emptied(model: Mixed, optimizer: Any) -> None:
    optimizer.state.clear()


def _moment_dropped(model: Mixed, optimizer: Any) -> None:
    del optimizer.state[model.wide]["exp_avg"]


def _transposed(model: Mixed, optimizer: Any) -> None:
    model.wide.data = model.wide.data.view(5, 6).t()


CHANGES: list[Callable[[Mixed, Any], None]] = [
    _swapped_weights, _another_type, _loaded, _moment_replaced, _moment_moved, _state_of_one_replaced, _state_emptied,
    _moment_dropped, _transposed,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
def test_a_tensor_that_is_another_one_is_noticed(change: Callable[[Mixed, Any], None]) -> None:
    model, optimizer, known = made()
    prepared = Prepared(optimizer, known, kind_of(optimizer))
    assert prepared.holds()
    change(model, optimizer)
    assert not prepared.holds()


def test_steps_that_run_leave_it_as_it_is() -> None:
    model, optimizer, known = made(foreach=True)
    prepared = Prepared(optimizer, known, kind_of(optimizer))
    for _ in range(3):
        optimizer.zero_grad()
        model.backward()
        assert prepared.holds()
        optimizer.step()
    assert prepared.holds()


def test_gradients_that_the_kernel_does_not_read_are_left_to_those_who_look_at_each() -> None:
    _, optimizer, known = made()
    prepared = Prepared(optimizer, known, kind_of(optimizer))
    gradients = [each.param.grad for each in known]
    at = next(number for number, each in enumerate(known) if each.name == "wide")
    assert prepared.gradients(gradients) is not None
    for other in (
        torch.randn(5, 6).t(),
        torch.randn(6, 5).to_sparse(),
        torch.randn(6, 5, dtype=torch.float64),
        torch.randn(3, 5),
    ):
        assert prepared.gradients([*gradients[:at], other, *gradients[at + 1 :]]) is None
    # By channels where the param is, and not else.
    at = next(number for number, each in enumerate(known) if each.name == "conv.weight")
    assert prepared.gradients([*gradients[:at], gradients[at].contiguous(), *gradients[at + 1 :]]) is None


@pytest.mark.parametrize("kind", [torch.float64, torch.complex64])
def test_params_that_the_kernel_does_not_read_are_not_prepared_for(kind: Any) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(3, dtype=kind))])
    known = [Known("a", optimizer.param_groups[0]["params"][0], 0, False, None)]
    with pytest.raises(ValueError, match="type"):
        Prepared(optimizer, known, kind_of(optimizer))


# --- a run


class Launched:
    """A kernel on the CPU in place of CUDA's, which remembers how often it was launched."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.launches = 0

    def launch(self, jobs: Any, sizes: tuple[int, ...]) -> Any:
        self.launches += 1
        return torch.from_numpy(self.words(jobs, sizes).view(np.int64).copy())


def test_a_run_counted_by_what_was_prepared_is_the_run_counted_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a state that is loaded on the way, a param that moves, one without gradient, and gradients kept or not."""
    launched = Launched(compile_kernel(tmp_path))

    def trained(path: Path) -> None:
        torch.manual_seed(3)
        model = runs.Net()
        optimizer = AdamW(runs.split(model), lr=3e-3)
        with record(optimizer, path, model) as recording:
            for step in range(1, 10):
                optimizer.zero_grad(set_to_none=step % 2 == 0)
                runs.loss_of(model, step).backward()
                recording.loss(1.0)
                if step == 4:
                    optimizer.load_state_dict(optimizer.state_dict())
                if step == 6:
                    model.mix.weight.data = model.mix.weight.data.clone()
                if step == 7:
                    model.scale.grad = None
                optimizer.step()

    trained(tmp_path / "each.session")
    with monkeypatch.context() as patch:
        patch.setattr(watch.Counter, "_kernel", lambda self, device: launched)
        trained(tmp_path / "prepared.session")
    assert launched.launches == 9
    with (
        Session.open(tmp_path / "each.session") as each,
        Session.open(tmp_path / "prepared.session") as prepared,
    ):
        for step in each.steps:
            one, other = each.param_statistics(step), prepared.param_statistics(step)
            assert one is not None
            assert other is not None
            for lane in "wgmv":
                for name in ("zeros", "low", "high", "exponents"):
                    np.testing.assert_array_equal(
                        getattr(one.lanes[lane], name), getattr(other.lanes[lane], name), f"{step} {lane}"
                    )
                np.testing.assert_allclose(one.lanes[lane].norm, other.lanes[lane].norm, rtol=1e-6)
            np.testing.assert_allclose(one.update.norm, other.update.norm, rtol=1e-5)


@pytest.mark.parametrize("meanwhile", ["nothing", "weights", "gradient", "state"])
def test_what_changes_between_clipping_and_the_step_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """The gradients were looked at as they were clipped, which is enough only where nothing has moved since."""
    launched = Launched(compile_kernel(tmp_path))
    monkeypatch.setattr(watch.Counter, "_kernel", lambda self, device: launched)
    # On a GPU nobody knows yet that a norm is finite.
    monkeypatch.setattr(torch, "isfinite", lambda tensor: torch.tensor(False))
    model = runs.Net()
    optimizer = AdamW(runs.split(model), lr=3e-3)
    with record(optimizer, tmp_path / "a.session", model, "all") as recording:
        for step in range(1, 5):
            optimizer.zero_grad()
            runs.loss_of(model, step).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            if step == 3 and meanwhile == "weights":
                model.mix.weight.data = 2 * model.mix.weight.data
            if step == 3 and meanwhile == "gradient":
                model.mix.weight.grad = 2 * model.mix.weight.grad
            if step == 3 and meanwhile == "state":
                optimizer.state[model.mix.weight]["exp_avg"] = (
                    2 * optimizer.state[model.mix.weight]["exp_avg"]
                )
            before = {name: param.detach().clone() for name, param in model.named_parameters()}
            gradients = {name: param.grad.clone() for name, param in model.named_parameters()}
            m = float(optimizer.state[model.mix.weight]["exp_avg"].norm()) if step > 1 else 0.0
            optimizer.step()
            if step != 3:
                continue
            kept = before, gradients, m
    assert recording.problem is None
    assert launched.launches == 8
    weights, gradients, m = kept
    with Session.open(tmp_path / "a.session") as session:
        table = session.param_statistics(3)
        assert table is not None
        for row, name in enumerate(table.names):
            assert table.lanes["w"].norm[row] == pytest.approx(float(weights[name].norm()), rel=1e-5)
            assert table.lanes["g"].norm[row] == pytest.approx(float(gradients[name].norm()), rel=1e-5)
            if name == "mix.weight":
                assert table.lanes["m"].norm[row] == pytest.approx(m, rel=1e-5)
