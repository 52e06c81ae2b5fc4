"""A step on its way to the recording: numbers that are still on a device, and what becomes of them on the host."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from inspector.hyper import Hyper
from inspector.integrations.torch.counting import Array
from inspector.integrations.torch.transfer import Copies, Transfer
from inspector.integrations.torch.watch import Counts, Strides, betas_of
from inspector.layout import Param
from inspector.settings import ParamSettings, Settings

Tensor = Any
I64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Number:
    """A number, or where it stands in the transfer of its step."""

    value: float = math.nan
    at: int | None = None

    def read(self, arrays: Sequence[Array]) -> float:
        """Its value, once the transfer is there."""
        return (
            self.value if self.at is None else float(np.asarray(arrays[self.at], np.float64).reshape(-1)[0])
        )


def number(value: Any, transfer: Transfer) -> Number:
    """Of a number, or of a tensor with one element, without waiting for its device."""
    if not isinstance(value, torch.Tensor):
        return Number(float(value))
    tensor = value.detach()
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    if tensor.device.type == "cpu":
        return Number(float(tensor.reshape(-1)[0]))
    return Number(at=transfer.add(tensor.reshape(-1)[:1].to(torch.float32)))


@dataclass(frozen=True, slots=True)
class GroupNumbers:
    """The settings of a group in one step; the rate may still be on a device."""

    lr: Number
    beta1: float
    beta2: float
    eps: float
    weight_decay: float

    @classmethod
    def of(cls, group: dict[str, Any], transfer: Transfer) -> GroupNumbers:
        """As they are now."""
        beta1, beta2 = betas_of(group)
        return cls(
            number(group.get("lr", 0.0), transfer),
            beta1,
            beta2,
            float(group.get("eps", 0.0)),
            float(group.get("weight_decay", 0.0)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Unclipped:
    """Gradients counted before they were clipped: the numbers of their params, and as in `Pending`."""

    numbers: list[int]
    counts: Counts
    strides: list[Strides]


@dataclass(frozen=True, slots=True)
class Clipping:
    """What was noticed of clip_grad_norm_: the norm of before, of order `kind`, and the limit.

    `before` is there where the norm may not be finite: scaled by such a one the gradients are all NaN or 0.
    """

    norm: Number
    limit: float
    kind: float
    before: Unclipped | None = None


@dataclass(slots=True, eq=False)
class Pending:
    """A step that ran, or that somebody skipped. `of_group` is the group of each param, `active` who had a gradient.

    `counts` is None where nothing was counted; `light` says that only gradients were. `found_inf` is above 0 where a
    fused optimizer skipped the step by itself. `broken_off` is a step that the end of the run cut short: it is
    `skipped` too, since nobody can tell what it updated. `checksums` are of the weights after it, int64 each.
    """

    step: int
    of_group: Sequence[int]
    active: npt.NDArray[np.bool_]
    groups: list[GroupNumbers]
    transfer: Transfer
    counts: Counts | None = None
    strides: list[Strides] = field(default_factory=list)
    light: bool = False
    skipped: bool = False
    broken_off: bool = False
    found_inf: Number | None = None
    scale: Number | None = None
    clippings: list[Clipping] = field(default_factory=list)
    losses: list[Number] = field(default_factory=list)
    gradients: Copies | None = None
    keyframe: Copies | None = None
    checksums: int | None = None
    gaps: list[str] = field(default_factory=list)
    ended: float = math.nan

    def finish(self) -> None:
        """It ran, and nothing more comes of it but perhaps its loss."""
        self.ended = time.time()
        self.transfer.seal()


class Settling:
    """Settings of steps by param, one step after the other: what is the same in the next is not worked out again."""

    def __init__(self) -> None:
        self._codes: I64Array = np.zeros(0, np.int64)
        """What tells apart the params of the step before: group, steps behind, idle or not."""
        self._first: I64Array = np.zeros(0, np.int64)
        """A param of each kind, in the order in which they come."""
        self._kind: I64Array = np.zeros(0, np.int64)
        """The kind of each param."""
        self._of: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        """The class of each kind, and so of each param."""

    def hyper_of(
        self,
        pending: Pending,
        arrays: Sequence[Array],
        t: I64Array,
        params: Sequence[Param],
        *,
        skipped: bool,
    ) -> Hyper:
        """What the step ran with, by param where they differ. `t` is the step count of each param after it."""
        rates = [group.lr.read(arrays) for group in pending.groups]
        of_group = np.array(pending.of_group, np.int64)
        idle = ~pending.active | skipped
        behind = pending.step - t - idle
        self._tell_apart((behind * len(pending.groups) + of_group) * 2 + idle)
        classes: dict[Settings, int] = {}
        of_kind = []
        for number_ in self._first.tolist():
            group = pending.groups[pending.of_group[number_]]
            settings = Settings(
                rates[pending.of_group[number_]], group.beta1, group.beta2, group.eps, group.weight_decay,
                int(behind[number_]), bool(idle[number_]),
            )  # fmt: skip
            of_kind.append(classes.setdefault(settings, len(classes)))
        common = next(iter(classes)) if len(classes) == 1 else None
        shared = common is not None and not common.behind and not common.idle
        first = pending.groups[0]
        if shared and first.weight_decay:
            # Without settings of their own only params of the block that decays do.
            shared = all(param.block == "wd" for param in params)
        own = None if shared else ParamSettings(tuple(classes), self._spread(tuple(of_kind)))
        return Hyper(rates[0], first.beta1, first.beta2, first.eps, first.weight_decay, math.inf, own)

    def _tell_apart(self, codes: I64Array) -> None:
        if np.array_equal(codes, self._codes):
            return
        self._codes = codes
        _, first, kind = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        self._first, self._kind = first[order], place[kind]
        self._of = ((), ())

    def _spread(self, of_kind: tuple[int, ...]) -> tuple[int, ...]:
        if self._of[0] != of_kind:
            self._of = of_kind, tuple(np.array(of_kind, np.int64)[self._kind].tolist())
        return self._of[1]
