"""`record`: follows an optimizer of PyTorch through its own step hooks, and never stands in the way of the training.

What runs on the script's thread enqueues work on the devices and returns; it waits for none of them. Whatever goes
wrong is told once, ends the recording, and leaves the script alone.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from inspector.errors import InspectorError, UsageError
from inspector.integrations.torch import ends, noticed
from inspector.integrations.torch.params import unwrapped
from inspector.integrations.torch.run import Run
from inspector.integrations.torch.steps import Steps
from inspector.integrations.torch.writing import End, Remark, Save
from inspector.session.policy import Policy
from inspector.session.records import LOADED_STATE, LOADED_WEIGHTS
from inspector.statistics import StatsLevel

Tensor = Any
Optimizer = Any
AGREE_EVERY = 100
TERM = "SIGTERM"
SAVE_S = 10
"""How long a handler of the script waits for the flight recorder to be written: schedulers kill after 30 s or so."""
LEVELS: tuple[StatsLevel, ...] = ("off", "light", "full")


class _TerminatedError(Exception):
    """The process was asked to end."""


class RecordingWarning(UserWarning):
    """A recording has ended before the training did, or does less than was asked for."""


def record(
    optimizer: Optimizer,
    path: str | os.PathLike[str],
    model: Any = None,
    capture: str = "stats",
    *,
    stats: StatsLevel = "full",
    stats_every: int = 1,
    agree_every: int = AGREE_EVERY,
    loss_after: bool = False,
    description: str = "",
    planned_steps: int | None = None,
    sigterm: bool = True,
) -> Recording:
    """Record every step of `optimizer` from now on to the session at `path`, until the `with` block or `close()`.

    `model` gives the params their names. `capture` is a policy: `stats`, `grads:N`, `keyframes:N`, `flight:K`, `all`,
    joined by `+`. `stats` "light" counts the gradients alone, "off" nothing; params are counted in every step that
    `stats_every` divides. `loss_after` says that `loss` is called after the step that it is of, now and then perhaps,
    where that does not show from the first time.

    Where `sigterm`, and where this is called on the main thread, SIGTERM ends the recording in order, the flight
    recorder written, before it ends the process. A handler that the script set before is called once that is written,
    and the recording goes on as long as that lets it.

    A session that is there is gone on with, where it is of the same params and ends at or after the step that the
    optimizer stands at. Under torch.distributed rank 0 records and every `agree_every` steps holds the weights of the
    others against its own; where params are sharded every rank records its part.

    UsageError for what cannot be recorded. Once the training goes on, nothing is raised any more.
    """
    if stats not in LEVELS:
        raise UsageError(f"stats is {stats!r}: choose one of {', '.join(LEVELS)}.")
    if not isinstance(capture, str):
        raise UsageError(
            f"capture is {capture!r}: give a text as 'stats', 'flight:8' or 'grads:10+keyframes:100'."
        )
    for name, number in (("stats_every", stats_every), ("agree_every", agree_every)):
        if not isinstance(number, int):
            raise UsageError(f"{name} is {number!r}: give a whole number of steps.")
    if not os.fspath(path):
        raise UsageError("The path is empty: name the folder of the session, as in 'run.session'.")
    if stats_every < 1 or agree_every < 0:
        raise UsageError("stats_every counts steps from 1, agree_every from 0, which checks nothing.")
    policy = Policy.from_text(capture)
    run = Run(
        optimizer,
        Path(path),
        model,
        policy,
        stats=stats,
        agree_every=agree_every,
        description=description,
        planned_steps=planned_steps,
    )
    return Recording(
        Path(path), Steps(run, stats=stats, stats_every=stats_every, loss_after=loss_after), sigterm=sigterm
    )


class _OfOneModel:
    """A hook of the model that is recorded, which a copy of it does not have.

    PyTorch copies and pickles the hooks of a module with it (averaged weights, a model saved whole). There it becomes
    something of the standard library that takes any arguments and does nothing, so that it loads everywhere.
    """

    def __init__(self, hook: Callable[[Any, Any], None]) -> None:
        self._hook = hook

    def __call__(self, module: Any, keys: Any) -> None:
        self._hook(module, keys)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """What is raised in `method` ends the recording and not the training."""

    @functools.wraps(method)
    def guarded(self: Recording, *args: Any, **kwargs: Any) -> Any:
        if not self.open:
            return None
        try:
            with self._busy(), torch.no_grad():
                return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the training goes on
            self._give_up(error)
            return None

    return guarded


class Recording:
    """A recording of an optimizer that goes on; see `record`. For the thread that trains."""

    def __init__(self, path: Path, steps: Steps, *, sigterm: bool = True) -> None:
        self.path = path
        self.open = True
        self.problem: str | None = None
        """Why it ended by itself, in a sentence."""
        self._steps = steps
        self._run = steps.run
        self._told = self._loss_told = False
        self._pid = os.getpid()
        self._depth = 0
        optimizer = self._run.optimizer
        self._handles = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
            optimizer.register_load_state_dict_post_hook(self._loaded),
        ]
        if self._run.model is not None:
            hook = _OfOneModel(self._weights_loaded)
            self._handles.append(self._run.model.register_load_state_dict_post_hook(hook))
        noticed.listen(self)
        ends.follow(self, sigterm=sigterm)

    # --- for the script

    @_guarded
    def loss(self, value: Any) -> None:
        """The loss of a step, a number or a tensor with one element, which is not waited for.

        Told before `optimizer.step()`, it is that of the step to come, the mean where it is told several times, as of
        micro-batches; where the first time is after a step, always of the step before. What is no number is left out,
        and a warning says so once.
        """
        if not _is_number(value):
            if not self._loss_told:
                self._loss_told = True
                kind = (
                    f"a tensor of {value.numel()} elements"
                    if isinstance(value, torch.Tensor)
                    else repr(value)[:60]
                )
                _warn(f"loss() was given {kind}, which is no number: that loss is left out.")
            return
        self._steps.loss(value)

    @_guarded
    def mark(self, text: str) -> None:
        """Note something at the next step, to be found again on its time axis."""
        if not self._run.records:
            return
        writer = self._run.writer or self._run.start()
        self._steps.release()
        writer.put(Remark(self._run.step + 1, " ".join(str(text).split())[:500]))

    def close(self, error: BaseException | None = None) -> None:
        """End the recording once all of it is written; `error` is what ended the run. Again does nothing."""
        if not self.open:
            return
        if os.getpid() != self._pid:
            self.open = False  # A child of the process that records.
            return
        with self._busy():
            self._finish(error)
            self._detach()
            self._report()

    # --- the end of the process

    @property
    def busy(self) -> bool:
        """As ends.Closes has it."""
        return self._depth > 0

    def terminated(self, *, going_on: bool) -> None:
        """As ends.Closes has it."""
        if not self.open or os.getpid() != self._pid:
            return
        if going_on:
            self._save(f"the run was asked to end by {TERM}")
        else:
            self.close(_TerminatedError(f"The run was ended by {TERM}."))

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(value)

    # --- hooks, on the script's thread

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """Before the step. One with a closure has its gradients only once that has run."""
        closures = [kwargs.get("closure"), *(arg for arg in args if callable(arg) and arg is not optimizer)]
        closure = next((each for each in closures if each is not None), None)
        if closure is None or not self.open:
            self._begin()
            return None
        run = self._closing(closure)
        if kwargs.get("closure") is closure:
            return args, {**kwargs, "closure": run}
        return tuple(run if arg is closure else arg for arg in args), kwargs

    def _closing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(closure)
        def run() -> Any:
            loss = closure()
            # Of an optimizer that runs it several times in a step the first counts.
            if not self._steps.began:
                if loss is not None and not self._steps.has_loss:
                    self.loss(loss)
                self._begin()
            return loss

        return run

    @_guarded
    def _begin(self) -> None:
        self._steps.begin()

    @_guarded
    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._steps.end()

    @_guarded
    def _loaded(self, optimizer: Optimizer) -> None:
        self._steps.loaded(LOADED_STATE)

    @_guarded
    def _weights_loaded(self, module: Any, keys: Any) -> None:
        self._steps.loaded(LOADED_WEIGHTS)

    # --- what is noticed

    @_guarded
    def clipping(self, params: list[Tensor], norm: Tensor | None) -> None:
        """As noticed.Listener has it."""
        self._steps.clipping(params, norm)

    @_guarded
    def clipped(self, params: list[Tensor], limit: float, norm: Tensor, kind: float) -> None:
        """As noticed.Listener has it."""
        self._steps.clipped(params, limit, norm, kind)

    def stepped(self, optimizer: Optimizer, step: Callable[[], Any], scaler: Any) -> Any:
        """As noticed.Listener has it: a step that a loss scaler leaves out runs no hook."""
        before = self._run.step
        given = step()
        if self._run.step == before and self._is_mine(optimizer):
            self._left_out(scaler)
        return given

    @_guarded
    def _left_out(self, scaler: Any) -> None:
        self._steps.left_out(scaler)

    def _is_mine(self, optimizer: Optimizer) -> bool:
        with suppress(UsageError):
            return unwrapped(optimizer) is self._run.optimizer
        return False

    # --- inner parts

    @contextmanager
    def _busy(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                ends.settle()

    @_guarded
    def _save(self, text: str) -> None:
        """Write what the flight recorder holds, and wait a little until it is on disk."""
        run = self._run
        if run.records and run.writer is not None:
            self._steps.release()
            item = Save(run.step + 1, text)
            run.writer.put(item)
            item.done.wait(SAVE_S)

    @_guarded
    def _finish(self, error: BaseException | None) -> None:
        run = self._run
        if not run.records:
            return
        writer = run.writer or run.start()
        reason = _reason(error)
        failed = error is not None and not isinstance(error, KeyboardInterrupt)
        try:
            # A signal says nothing of the step that it came in; that is no end that the gradients of it tell of.
            self._steps.break_off(None if isinstance(error, _TerminatedError) else error)
        except Exception:
            # Of a device that has failed nothing more is to be had; what was recorded is kept all the same.
            if error is None:
                raise
        writer.put(End(reason, failed=failed))
        writer.join()
        self.problem = writer.problem

    def _give_up(self, error: Exception) -> None:
        """End the recording; the training goes on."""
        self.problem = (
            str(error)
            if isinstance(error, InspectorError)
            else f"Recording has failed with {type(error).__name__}: {error}"
        )
        self._detach()
        writer = self._run.writer
        if writer is not None:
            with suppress(Exception):
                writer.put(End(self.problem, failed=True))
        self._report()

    def _detach(self) -> None:
        self.open = False
        for handle in self._handles:
            handle.remove()
        noticed.forget(self)
        ends.forget(self)
        self._steps.forget()

    def _report(self) -> None:
        """Say once what went wrong."""
        if self.problem is None or self._told:
            return
        self._told = True
        _warn(f"{self.problem.rstrip('.')}. The training goes on without being recorded.")


def _warn(text: str) -> None:
    try:
        warnings.warn(text, RecordingWarning, stacklevel=3)
    except RecordingWarning:  # Where warnings are errors, this one must not end the training.
        sys.stderr.write(f"inspector: {text}\n")


def _is_number(value: Any) -> bool:
    """True for one real number or a tensor with one, whose device is not asked."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return not isinstance(value, str)


def _reason(error: BaseException | None) -> str | None:
    if error is None:
        return None
    if isinstance(error, KeyboardInterrupt):
        return "The run was stopped."
    if isinstance(error, _TerminatedError):
        return str(error)
    lines = str(error).splitlines()
    return f"The run ended with {type(error).__name__}{f': {lines[0][:300]}' if lines else ''}."
