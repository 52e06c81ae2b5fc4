"""The run that is recorded: an optimizer, its params by name, how far it is, and the session it goes to."""

from __future__ import annotations

import time
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from inspector import __version__
from inspector.errors import UsageError
from inspector.files import anything_at, check_writable
from inspector.hyper import Hyper
from inspector.integrations.torch.keeping import BEHIND_DEVICE, BEHIND_HOST
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
from inspector.integrations.torch.pending import GroupNumbers, I64Array, Pending
from inspector.integrations.torch.ranks import Agreement, World, check_others, folder_of, make_folder, run_id
from inspector.integrations.torch.taking_up import check_same, start_step, take_up
from inspector.integrations.torch.transfer import Copier, Transfer
from inspector.integrations.torch.watch import lanes_of
from inspector.integrations.torch.writing import Grown, Remark, Writer
from inspector.layout import Param
from inspector.plan import Limits, layout_for
from inspector.session.new_place import check_outside
from inspector.session.policy import Policy
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.records import About, RecordedLayout
from inspector.statistics import StatsLevel
from inspector.stepping import DeviceInfo, HostState

Tensor = Any
_GRAD = attrgetter("grad")


class Run:
    """An optimizer and the session it is recorded to, which is made with its first step. For the thread that trains.

    `step` is the last that began, `t` the step count of each param, `records` False in a process that only tells
    another the checksums of its weights. `behind` is how many steps may have run that are not on disk.
    """

    def __init__(
        self,
        optimizer: Any,
        path: Path,
        model: Any,
        policy: Policy,
        *,
        stats: StatsLevel,
        agree_every: int,
        description: str,
        planned_steps: int | None,
    ) -> None:
        """UsageError for what cannot be recorded."""
        self.optimizer = unwrapped(optimizer)
        self.policy = policy
        self.step = 0
        self.writer: Writer | None = None
        self.model = inner_model(model)
        self._stats, self._description, self._planned = stats, description, planned_steps
        self.agreement = Agreement(World.now(), path.name)
        self._know(name_params(self.optimizer, self.model))
        self.kind: Kind = kind_of(self.optimizer)
        self.t: I64Array = np.zeros(len(self.known), np.int64)
        self.copier = Copier()
        self._sizes: tuple[int, ...] = ()
        self._path = path
        self._world = World.now()
        self._apart = any(each.shard is not None for each in self.known)
        self._folder = folder_of(path, self._world, apart=self._apart)
        self.records = self._apart or self._world.rank == 0
        together = self._world.size > 1 and not self._apart
        self.checks_every = agree_every if together else 0
        if self.records:
            self._check_place()

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The optimizer's groups."""
        found: list[dict[str, Any]] = self.optimizer.param_groups
        return found

    def gradients(self) -> list[Tensor | None]:
        """The gradients of all params as they are now, sharded ones whole."""
        return list(map(_GRAD, self.params))

    def start(self) -> Writer:
        """Make the session, or take it up, as the optimizer stands before its first step."""
        self._know(name_params(self.optimizer, self.model, {id(each.param): each for each in self.known}))
        self._sizes = self._group_sizes()
        self.t = self.counts()
        params = as_params(self.known, self.groups)
        check = self.agreement.check if self.checks_every else None
        if anything_at(self._folder):
            recorder, session = take_up(self._folder, params, self.kind, self.t)
            self.step = self.agreement.began_at = recorder.last_step
            self.writer = Writer(recorder, self.t, earlier=session, check=check)
            self.writer.put(Remark(self.step + 1, f"gone on by {self.kind.origin}"))
            return self.writer
        self.step = self.agreement.began_at = int(self.t.max(initial=0))
        recorder = Recorder.create(self._folder, self._about(params))
        if self.policy.captures:
            lanes: dict[str, dict[str, Any]] = {"w": {}, "m": {}, "v": {}}
            for (lane, name), values in self.copier.copy(self.state()).arrays().items():
                lanes[lane][name] = values
            recorder.offer_start(HostState(lanes["w"], lanes["m"], lanes["v"], self.step))
        self.writer = Writer(recorder, self.t, check=check)
        for note in self._notes():
            self.writer.put(Remark(self.step + 1, note))
        return self.writer

    def look_for_params(self) -> None:
        """Params that joined since the step before: the session takes them from the next step on."""
        if self._group_sizes() == self._sizes:
            return
        before = self.known
        mine = {id(each.param): each for each in before}
        listed = name_params(self.optimizer, self.model, mine)
        self._sizes = self._group_sizes()
        if [each for each in listed if id(each.param) in mine] != before:
            raise UsageError("Params were taken out of the optimizer, which a recording cannot follow.")
        more = [each for each in listed if id(each.param) not in mine]
        self._know([*before, *more])
        counts = self.counts()[len(before) :]
        self.t = np.concatenate((self.t, counts))
        if not more or self.writer is None:
            return
        state = None
        if self.policy.captures:
            state = Pending(self.step, [], np.zeros(0, np.bool_), [], Transfer())
            state.keyframe = self.copier.copy(self.state())
        shards = tuple(each.shard for each in more) if self._apart else ()
        params = as_params(more, self.groups)
        self.writer.put(Grown(self.step + 1, params, dtypes_of(more), shards, tuple(counts.tolist()), state))

    def counts(self) -> I64Array:
        """The step count of each param as the optimizer keeps it; waits for the device, so only where a run begins."""
        found = []
        for each in self.known:
            step = (self.optimizer.state.get(each.param) or {}).get("step", 0)
            if isinstance(step, torch.Tensor):
                step = each.local(step)
            found.append(0 if step is None else int(step))
        return np.array(found, np.int64)

    def state(self) -> list[tuple[Any, Tensor]]:
        """w, m and v of every param as far as there are any, by lane and name."""
        lanes = lanes_of(self.optimizer, self.known, self.kind, gradients=False)
        return [
            ((lane, each.name), tensor)
            for lane, tensors in (("w", lanes.w), ("m", lanes.m), ("v", lanes.v))
            for each, tensor in zip(self.known, tensors, strict=True)
            if tensor is not None
        ]

    # --- inner parts

    def _know(self, known: list[Known]) -> None:
        """These are the params from now on; the lists are others whenever they are."""
        self.known = known
        self.params: list[Tensor] = [each.param for each in known]
        self.of_group = tuple(each.group for each in known)
        on_host = all(param.device.type == "cpu" for param in self.params)
        self.behind = BEHIND_HOST if on_host else BEHIND_DEVICE
        self.agreement.of(known)

    def _group_sizes(self) -> tuple[int, ...]:
        return tuple(len(group["params"]) for group in self.groups)

    def _check_place(self) -> None:
        """UsageError, before any training, where nothing can be recorded at the path."""
        if self._apart:
            make_folder(self._path, self._world)
        if anything_at(self._folder):
            with Session.open(self._folder) as session:
                params = as_params(self.known, self.groups)
                check_same(session, self._folder, params, self.kind, str(self.policy))
                start_step(session, self._folder, self.counts())
            return
        if self._apart:
            check_others(self._path, self._world)
        check_outside(self._path)
        check_writable(self._folder)

    def _about(self, params: tuple[Param, ...]) -> About:
        kind, world = self.kind, self._world
        dtypes = dtypes_of(self.known)
        transfer = Transfer()
        first = GroupNumbers.of(self.groups[0], transfer)
        transfer.seal()
        lr = first.lr.read(transfer.arrays())
        layout = layout_for(params, Limits(), kind.variant)
        several = world.size > 1
        return About(
            source="pytorch",
            params=params,
            variant=kind.variant,
            hyper=Hyper(lr, first.beta1, first.beta2, first.eps, first.weight_decay, float("inf")),
            schedule="constant",
            device=_device(self.known),
            finished_steps=self.step,
            policy=str(self.policy),
            software=f"inspector {__version__}",
            began=time.time(),
            description=self._description or (kind.name if self.model is None else type(self.model).__name__),
            stats=self._stats,
            planned_steps=self._planned,
            layout=RecordedLayout.of(layout, Limits(), params),
            origin=kind.origin,
            foreign="" if kind.adam else kind.name,
            dtypes=dtypes,
            unreplayable=unreplayable(kind, dtypes),
            rank=world.rank if several else None,
            world_size=world.size if several else None,
            shards=tuple(each.shard for each in self.known) if self._apart else (),
            run=run_id(self._path.name) if self._apart else "",
        )

    def _notes(self) -> list[str]:
        notes = notes_of(self.known, self.model)
        if self.kind.maximize:
            notes.append("the optimizer maximizes: gradients are recorded with their sign changed")
        return notes


def _device(known: list[Known]) -> DeviceInfo:
    """What trains, for people."""
    device = known[0].param.device
    name = {"cpu": "CPU", "mps": "Apple GPU"}.get(device.type, device.type)
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    return DeviceInfo(name, f"PyTorch {device.type}", device.type == "cpu", False)
