"""`record`: follows an optimizer of PyTorch through its own step hooks, and never stands in the way of the training.

What runs on the script's thread enqueues work on the devices and returns; it waits for none of them. Whatever goes
wrong is told once, ends the recording, and leaves the script alone.
"""

from __future__ import annotations

import functools
import os
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from inspector import __version__
from inspector.errors import InspectorError, UsageError
from inspector.files import anything_at
from inspector.hyper import Hyper
from inspector.integrations.torch import ends, noticed
from inspector.integrations.torch.params import (
    Kind,
    Known,
    as_params,
    dtypes_of,
    inner_model,
    kind_of,
    name_params,
    notes_of,
    unreplayable,
    unwrapped,
)
from inspector.integrations.torch.pending import Clipping, GroupNumbers, Number, Pending, number
from inspector.integrations.torch.ranks import Agreement, World, checksums, folder_of, make_folder
from inspector.integrations.torch.taking_up import check_same, start_step, take_up
from inspector.integrations.torch.transfer import Copier, Transfer
from inspector.integrations.torch.watch import Counter, lanes_of, tasks_of
from inspector.integrations.torch.writing import Counters, End, Grown, Remark, Writer
from inspector.layout import Param
from inspector.plan import Limits, layout_for
from inspector.session.database import DATABASE_NAME
from inspector.session.policy import Policy, Wanted
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.records import About, RecordedLayout
from inspector.statistics import StatsLevel
from inspector.stepping import DeviceInfo, HostState

Tensor = Any
Optimizer = Any
AGREE_EVERY = 100
COPIES = 4
"""Steps whose tensors may be on their way to the host at once."""
LEVELS: tuple[StatsLevel, ...] = ("off", "light", "full")


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
    description: str = "",
    planned_steps: int | None = None,
) -> Recording:
    """Record every step of `optimizer` from now on to the session at `path`, until the `with` block or `close()`.

    `model` gives the params their names. `capture` is a policy: `stats`, `grads:N`, `keyframes:N`, `flight:K`, `all`,
    joined by `+`. `stats` "light" counts the gradients alone, "off" nothing; params are counted in every step that
    `stats_every` divides. A session that is there is gone on with, where it is of the same params and ends at or after
    the step that the optimizer stands at. Under torch.distributed rank 0 records and every `agree_every` steps holds
    the weights of the others against its own; where params are sharded every rank records its part.

    UsageError for what cannot be recorded. Once the training goes on, nothing is raised any more.
    """
    if stats not in LEVELS:
        raise UsageError(f"stats is {stats!r}: choose one of {', '.join(LEVELS)}.")
    if stats_every < 1 or agree_every < 0:
        raise UsageError("stats_every counts steps from 1, agree_every from 0, which checks nothing.")
    return Recording(
        optimizer,
        Path(path),
        model,
        str(Policy.from_text(capture)),
        stats,
        stats_every,
        agree_every,
        description,
        planned_steps,
    )


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """What is raised in `method` ends the recording and not the training."""

    @functools.wraps(method)
    def guarded(self: Recording, *args: Any, **kwargs: Any) -> Any:
        if not self.open:
            return None
        try:
            with torch.no_grad():
                return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the training goes on
            self._give_up(error)
            return None

    return guarded


class Recording:
    """A recording of an optimizer that goes on; see `record`. For the thread that trains."""

    def __init__(
        self,
        optimizer: Optimizer,
        path: Path,
        model: Any,
        policy: str,
        stats: StatsLevel,
        stats_every: int,
        agree_every: int,
        description: str,
        planned_steps: int | None,
    ) -> None:
        self.path = path
        self.problem: str | None = None
        """Why it ended by itself, in a sentence."""
        self.open = True
        self._optimizer = unwrapped(optimizer)
        self._model = inner_model(model)
        self._stats: StatsLevel = stats
        self._stats_every = stats_every
        self._description, self._planned = description, planned_steps
        self._policy = Policy.from_text(policy)
        self._known: list[Known] = name_params(self._optimizer, self._model)
        self._kind: Kind = kind_of(self._optimizer)
        self._world = World.now()
        apart = any(each.shard is not None for each in self._known)
        self._folder = folder_of(path, self._world, apart=apart)
        self._records = apart or self._world.rank == 0
        """Where it does not, this process only tells rank 0 the checksums of its weights."""
        self._checks_every = agree_every if self._world.size > 1 and not apart else 0
        self._apart = apart
        self._agreement = Agreement(self._world, path.name)
        self._agreement.of(self._known)
        self._writer: Writer | None = None
        self._step = 0
        """The last step that began."""
        self._t = np.zeros(len(self._known), np.int64)
        self._sizes: tuple[int, ...] = ()
        self._current: Pending | None = None
        self._held: Pending | None = None
        """A step that ran, and may still be given its loss."""
        self._order: str | None = None
        """Whether the script tells the loss "before" or "after" the step that it belongs to."""
        self._losses: list[Number] = []
        self._loss_transfer = Transfer()
        self._clippings: list[tuple[float, Any, float]] = []
        self._copier, self._counter = Copier(), Counter()
        self._copies: list[Any] = []
        self._seen_gradients: tuple[int, ...] = ()
        self._checks_sent = 0
        if self._records:
            self._check_place()
        self._pid = os.getpid()
        self._handles = [
            self._optimizer.register_step_pre_hook(self._before),
            self._optimizer.register_step_post_hook(self._after),
            self._optimizer.register_load_state_dict_post_hook(self._loaded),
        ]
        noticed.listen(self)
        ends.follow(self)

    # --- for the script

    def loss(self, value: Any) -> None:
        """The loss of a step, a number or a tensor with one element, which is not waited for.

        Told before `optimizer.step()`, it is that of the step to come, the mean where it is told several times, as of
        micro-batches; where the first time is after a step, always of the step before.
        """
        self._tell_loss(value)

    def mark(self, text: str) -> None:
        """Note something at the next step, to be found again on its time axis."""
        self._mark(text)

    def close(self, error: BaseException | None = None) -> None:
        """End the recording once all of it is written; `error` is what ended the run. Again does nothing."""
        if not self.open:
            return
        if os.getpid() != self._pid:
            self.open = False  # A child of the process that records.
            return
        reason = _reason(error)
        try:
            with torch.no_grad():
                self._finish(error, reason)
        except Exception as trouble:  # noqa: BLE001
            self._give_up(trouble)
        finally:
            self._detach()
        self._report()

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(value)

    # --- hooks, on the script's thread

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """Before the step. One with a closure has its gradients only once that has run."""
        closure = kwargs.get("closure") or next(
            (arg for arg in args if callable(arg) and arg is not optimizer), None
        )
        if closure is None or not self.open:
            self._begin()
            return None
        run = self._closing(closure)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": run}
        return tuple(run if arg is closure else arg for arg in args), kwargs

    def _closing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(closure)
        def run() -> Any:
            loss = closure()
            # Of an optimizer that runs it several times in a step the first counts.
            if self._current is None:
                if loss is not None:
                    self._tell_loss(loss)
                self._begin()
            return loss

        return run

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._end_step()

    @_guarded
    def _begin(self, skipped: bool = False) -> None:
        """The gradients of a step are in place, and nothing is updated yet."""
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise UsageError(
                "The optimizer's step is captured as a CUDA graph, whose replays run no hooks: it cannot be recorded."
            )
        self._check_writer()
        self._release()
        if self._records and self._writer is None:
            self._start()
        if tuple(len(group["params"]) for group in self._optimizer.param_groups) != self._sizes:
            self._grow()
        self._step += 1
        step, optimizer = self._step, self._optimizer
        transfer, self._loss_transfer = self._loss_transfer, Transfer()
        groups = optimizer.param_groups
        found_inf, scale = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
        active = np.array([each.param.grad is not None for each in self._known])
        pending = Pending(
            step,
            [each.group for each in self._known],
            active,
            [GroupNumbers.of(group, transfer) for group in groups],
            transfer,
            skipped=skipped,
            losses=self._losses,
            light=self._stats == "light",
        )
        self._losses = []
        for limit, norm, kind in self._clippings:
            pending.clippings.append(Clipping(number(norm, transfer), limit, kind))
        self._clippings = []
        if isinstance(found_inf, torch.Tensor):
            pending.found_inf = number(found_inf, transfer)
            pending.scale = None if scale is None else number(scale, transfer)
        self._current = pending
        if not self._records:
            return
        left_out = skipped or (pending.found_inf is not None and pending.found_inf.value > 0)
        if not left_out:
            self._t[active] += 1
        wanted = self._wanted(step)
        counted = self._stats != "off" and step % self._stats_every == 0
        if counted or wanted.gradients:
            lanes = lanes_of(optimizer, self._known, self._kind)
        if counted:
            t = self._t + (0 if not left_out else 1) - (self._writer.skipped if self._writer else 0)
            tasks, pending.strides = tasks_of(
                lanes, self._known, groups, self._kind, np.maximum(t, 1), scale, skipped=left_out
            )
            if pending.light:
                tasks = [_gradient_alone(task) for task in tasks]
            pending.counts = self._counter.count(tasks, transfer)
        if wanted.gradients:
            self._capture_gradients(pending, lanes.g, scale)

    @_guarded
    def _end_step(self) -> None:
        """The step has run."""
        pending, self._current = self._current, None
        if pending is None:
            return
        step = pending.step
        if self._checks_every and step % self._checks_every == 0:
            sums = checksums(self._known)
            if sums is not None:
                pending.checksums = pending.transfer.add(sums)
        if not self._records:
            self._send_checksums(pending)
            return
        if self._wanted(step).keyframe:
            self._capture_state(pending)
        pending.transfer.seal()
        pending.finish()
        self._seen_gradients = self._gradient_versions()
        if self._order == "after" or (self._order is None and not pending.losses):
            # Its loss may still come; it is handed over with the next step at the latest.
            self._held = pending
        else:
            if pending.losses:
                self._order = "before"
            self._hand_over(pending)

    @_guarded
    def _loaded(self, optimizer: Optimizer) -> None:
        """The script has loaded a state: the counts of the steps are others now."""
        if self._writer is None:
            return
        self._release()
        self._t = self._counts()
        self._writer.put(Counters(tuple(self._t.tolist())))
        self._writer.put(Remark(self._step + 1, "the optimizer's state was loaded"))

    # --- what is noticed

    def clipped(self, params: list[Tensor], limit: float, norm: Tensor, kind: float) -> None:
        """As noticed.Listener has it."""
        if (
            self.open
            and self._records
            and not {id(p) for p in params}.isdisjoint(id(k.param) for k in self._known)
        ):
            self._clippings.append((limit, norm, kind))

    def stepped(self, optimizer: Optimizer, step: Callable[[], Any], scaler: Any) -> Any:
        """As noticed.Listener has it: a step that a loss scaler leaves out runs no hook."""
        before = self._step
        given = step()
        with suppress(Exception):
            if self.open and self._step == before and unwrapped(optimizer) is self._optimizer:
                self._left_out(scaler)
        return given

    @_guarded
    def _left_out(self, scaler: Any) -> None:
        self._begin(skipped=True)
        if self._current is not None:
            scale = getattr(scaler, "_scale", None)
            if isinstance(scale, torch.Tensor):
                self._current.scale = number(scale, self._current.transfer)
        self._end_step()

    # --- inner parts: the steps

    @_guarded
    def _tell_loss(self, value: Any) -> None:
        held = self._held
        if held is not None and (self._order == "after" or self._order is None):
            self._order = "after"
            held.losses.append(number(value, held.transfer))
            held.transfer.seal()
            self._release()
            return
        self._losses.append(number(value, self._loss_transfer))

    @_guarded
    def _mark(self, text: str) -> None:
        if self._writer is None:
            if not self._records:
                return
            self._start()
        if self._writer is not None:
            self._release()
            self._writer.put(Remark(self._step + 1, " ".join(str(text).split())[:500]))

    def _release(self) -> None:
        """Hand over the step whose loss was waited for."""
        held, self._held = self._held, None
        if held is not None:
            if self._order is None:
                self._order = "before"
            self._hand_over(held)

    def _hand_over(self, pending: Pending) -> None:
        if self._writer is not None:
            self._writer.put(pending)

    def _wanted(self, step: int) -> Wanted:
        return Wanted() if self._writer is None else self._writer.recorder.wants(step)

    def _capture_gradients(
        self, pending: Pending, gradients: list[Tensor | None], scale: Tensor | None
    ) -> None:
        if not self._may_copy(pending, "gradients"):
            return
        groups = self._optimizer.param_groups
        plus: list[tuple[Any, Tensor]] = []
        minus: list[tuple[Any, Tensor]] = []
        for each, gradient in zip(self._known, gradients, strict=True):
            if gradient is not None:
                (minus if groups[each.group].get("maximize") else plus).append((each.name, gradient))
        pending.gradients = self._copier.copy(plus, scale)
        if minus:
            pending.gradients = pending.gradients.with_those_of(self._copier.copy(minus, scale, -1.0))
        self._copies.append(pending.gradients)

    def _capture_state(self, pending: Pending) -> None:
        if self._may_copy(pending, "keyframe"):
            pending.keyframe = self._copier.copy(self._state())
            self._copies.append(pending.keyframe)

    def _state(self) -> list[tuple[Any, Tensor]]:
        lanes = lanes_of(self._optimizer, self._known, self._kind, gradients=False)
        found = []
        for lane, tensors in (("w", lanes.w), ("m", lanes.m), ("v", lanes.v)):
            for each, tensor in zip(self._known, tensors, strict=True):
                if tensor is not None:
                    found.append(((lane, each.name), tensor))
        return found

    def _may_copy(self, pending: Pending, what: str) -> bool:
        self._copies = [copies for copies in self._copies if copies.on_the_way]
        if len(self._copies) < COPIES:
            return True
        pending.notes.append(("gap", f"{what} not captured, the copies before are still on their way"))
        return False

    def _gradient_versions(self) -> tuple[int, ...]:
        """What tells whether a backward pass has run since."""
        return tuple(
            -1 if (g := each.param.grad) is None else hash((id(g), g._version)) for each in self._known
        )

    # --- inner parts: beginning and end

    def _check_place(self) -> None:
        """UsageError, before any training, where nothing can be recorded at the path."""
        if self._apart:
            make_folder(self.path, self._world)
        if anything_at(self._folder):
            with Session.open(self._folder) as session:
                check_same(session, self._folder, as_params(self._known, self._optimizer.param_groups))
                start_step(session, self._folder, self._counts())
            return
        for folder in self._folder.absolute().parents:
            if (folder / DATABASE_NAME).exists():
                raise UsageError(
                    f"{self._folder} lies inside the session {folder}: name a place outside of it."
                )
        from inspector.files import check_writable

        check_writable(self._folder)

    def _start(self) -> None:
        """Make the session, as the optimizer stands before its first step."""
        self._sizes = tuple(len(group["params"]) for group in self._optimizer.param_groups)
        self._known = name_params(self._optimizer, self._model, {id(k.param): k for k in self._known})
        self._agreement.of(self._known)
        self._t = self._counts()
        params = as_params(self._known, self._optimizer.param_groups)
        check = self._agreement.check if self._checks_every else None
        if anything_at(self._folder):
            recorder, session = take_up(self._folder, params, self._t)
            self._step = recorder.last_step
            self._writer = Writer(recorder, self._t, earlier=session, check=check)
            self._writer.put(Remark(self._step + 1, f"gone on by {self._kind.origin}"))
            return
        self._step = int(self._t.max(initial=0))
        recorder = Recorder.create(self._folder, self._about(params))
        if self._policy.captures:
            copies = self._copier.copy(self._state()).arrays()
            lanes: dict[str, dict[str, Any]] = {"w": {}, "m": {}, "v": {}}
            for (lane, name), values in copies.items():
                lanes[lane][name] = values
            recorder.offer_start(HostState(lanes["w"], lanes["m"], lanes["v"], self._step))
        self._writer = Writer(recorder, self._t, check=check)
        for note in self._notes():
            self._writer.put(Remark(self._step + 1, note))

    def _about(self, params: tuple[Param, ...]) -> About:
        groups, kind = self._optimizer.param_groups, self._kind
        dtypes = dtypes_of(self._known)
        first = GroupNumbers.of(groups[0], transfer := Transfer())
        transfer.seal()
        hyper = Hyper(
            first.lr.read(transfer.arrays()),
            first.beta1,
            first.beta2,
            first.eps,
            first.weight_decay,
            float("inf"),
        )
        layout = layout_for(params, Limits(), kind.variant)
        name = self._description or (type(self._model).__name__ if self._model is not None else kind.name)
        world = self._world
        return About(
            source="pytorch",
            params=params,
            variant=kind.variant,
            hyper=hyper,
            schedule="constant",
            device=_device(self._known),
            finished_steps=self._step,
            policy=str(self._policy),
            software=f"inspector {__version__}",
            began=time.time(),
            description=name,
            stats=self._stats,
            planned_steps=self._planned,
            layout=RecordedLayout.of(layout, Limits(), params),
            origin=kind.origin,
            foreign="" if kind.adam else kind.name,
            dtypes=dtypes,
            unreplayable=unreplayable(kind, dtypes),
            rank=world.rank if world.size > 1 else None,
            world_size=world.size if world.size > 1 else None,
            shards=tuple(each.shard for each in self._known) if self._apart else (),
        )

    def _notes(self) -> list[str]:
        notes = notes_of(self._known, self._model)
        if self._kind.maximize:
            notes.append("the optimizer maximizes: gradients are recorded with their sign changed")
        return notes

    def _grow(self) -> None:
        """Params joined: the session takes them from the next step on."""
        before = self._known
        self._known = name_params(self._optimizer, self._model, {id(k.param): k for k in before})
        self._sizes = tuple(len(group["params"]) for group in self._optimizer.param_groups)
        mine = {id(each.param) for each in before}
        order = [each for each in self._known if id(each.param) in mine]
        if [id(each.param) for each in order] != [id(each.param) for each in before]:
            raise UsageError("Params were taken out of the optimizer, which a recording cannot follow.")
        more = [each for each in self._known if id(each.param) not in mine]
        self._known = [*before, *more]
        self._agreement.of(self._known)
        if not more or not self._records or self._writer is None:
            return
        counts = self._counts()
        self._t = np.concatenate((self._t, counts[len(before) :]))
        state = None
        if self._policy.captures:
            state = Pending(self._step, [], np.zeros(0, np.bool_), [], Transfer())
            state.keyframe = self._copier.copy(self._state())
        groups = self._optimizer.param_groups
        self._writer.put(
            Grown(
                self._step + 1, as_params(more, groups), dtypes_of(more), tuple(each.shard for each in more),
                tuple(counts[len(before) :].tolist()), state,
            )
        )  # fmt: skip

    def _counts(self) -> Any:
        """The step count of each param, as the optimizer keeps it; waits for the device, so only where a run begins."""
        found = []
        for each in self._known:
            step = (self._optimizer.state.get(each.param) or {}).get("step", 0)
            if isinstance(step, torch.Tensor):
                step = each.local(step)
            found.append(int(step) if step is not None else 0)
        return np.array(found, np.int64)

    def _send_checksums(self, pending: Pending) -> None:
        """Of a process that does not record: tell rank 0, on a thread that waits for the device."""
        if pending.checksums is None:
            return
        pending.transfer.seal()
        import threading

        def send() -> None:
            with suppress(Exception):
                self._agreement.check(pending.step, pending.transfer.arrays()[pending.checksums or 0])

        threading.Thread(target=send, name="inspector-checksums", daemon=True).start()

    def _finish(self, error: BaseException | None, reason: str | None) -> None:
        if not self._records:
            return
        if self._writer is None:
            self._start()
        assert self._writer is not None
        interrupted, self._current = self._current, None
        self._release()
        if interrupted is not None:
            # The exception came out of the step itself: what was counted before it is kept.
            interrupted.skipped = True
            interrupted.transfer.seal()
            interrupted.finish()
            self._writer.put(interrupted)
        elif error is not None:
            with suppress(Exception):
                self._keep_unapplied()
        if error is not None and reason is not None:
            self._writer.put(Remark(max(self._step, 1), reason))
        self._writer.put(End(reason, failed=error is not None and not isinstance(error, KeyboardInterrupt)))
        self._writer.join()
        self.problem = self.problem or self._writer.problem

    def _keep_unapplied(self) -> None:
        """Gradients or a loss of a step that did not come to be: what ended the run may stand in them."""
        if not self._losses and not self._clippings and self._gradient_versions() == self._seen_gradients:
            return
        self._begin(skipped=True)
        pending, self._current = self._current, None
        if pending is not None and self._writer is not None:
            pending.transfer.seal()
            pending.finish()
            self._writer.put(
                Remark(pending.step, "nothing was updated in this step, the run ended before it")
            )
            self._writer.put(pending)

    def _check_writer(self) -> None:
        if self._writer is not None and self._writer.problem is not None:
            raise InspectorError(self._writer.problem)

    def _give_up(self, error: Exception) -> None:
        """End the recording; the training goes on."""
        if isinstance(error, InspectorError):
            self.problem = str(error)
        else:
            self.problem = f"Recording has failed with {type(error).__name__}: {error}"
        self._detach()
        writer = self._writer
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
        self._current = self._held = None

    def _report(self) -> None:
        """Say once what went wrong."""
        if self.problem is None:
            return
        text = f"{self.problem.rstrip('.')}. The training goes on without being recorded."
        try:
            warnings.warn(text, RecordingWarning, stacklevel=2)
        except RecordingWarning:  # Where warnings are errors, this one must not end the training.
            print(f"inspector: {text}", file=sys.stderr)  # noqa: T201


def _gradient_alone(task: Any) -> Any:
    from dataclasses import replace

    zero = task.g if task.g is not None else task.w
    return replace(task, w=zero, m=None, v=None, v_max=None, adam=False)


def _reason(error: BaseException | None) -> str | None:
    if error is None:
        return None
    if isinstance(error, KeyboardInterrupt):
        return "The run was stopped."
    text = str(error).splitlines()[0][:300] if str(error) else ""
    return f"The run ended with {type(error).__name__}{f': {text}' if text else ''}."


def _device(known: list[Known]) -> DeviceInfo:
    """What trains, for people."""
    device = known[0].param.device
    name = "CPU"
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    elif device.type != "cpu":
        name = device.type
    return DeviceInfo(name, f"PyTorch {device.type}", device.type == "cpu", False)
