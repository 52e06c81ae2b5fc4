"""What the kernel is told of params whose tensors stay where they are from step to step: made once, checked each time.

Looking at thousands of params one by one in Python costs the script milliseconds a step. Here each question is asked
of all of them in one pass that the interpreter runs without bytecode of its own (`map` over methods of PyTorch), and
what has to be told is filled in by numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter, is_, is_not
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from inspector.integrations.torch.counting import Array
from inspector.integrations.torch.kernel import JOB, KINDS
from inspector.integrations.torch.params import Kind, Known
from inspector.integrations.torch.watch import Strides, alike, settings_of, sign_of, state_of

Tensor = Any
U64Array = npt.NDArray[np.uint64]
_PLAIN = {torch.Tensor, torch.nn.Parameter}
"""Subclasses may answer anything, so they are looked at one by one."""
_BASE = torch._C.TensorBase
_DTYPE = attrgetter("dtype")
W, G = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """The gradients of a step by param: where they are (0: none) and of which type."""

    pointers: U64Array
    kinds: U64Array
    there: npt.NDArray[np.bool_]
    places: list[int]
    """As `pointers`, of those that are there."""


class Prepared:
    """Params, and the lanes of their state, as they were when this was made; `holds` says whether they still are."""

    def __init__(self, optimizer: Any, known: Sequence[Known], kind: Kind) -> None:
        """ValueError where a tensor is one that the kernel does not read as it is."""
        self._optimizer, self.of = optimizer, known
        self._state = optimizer.state
        self._dicts = list(self._state.values())
        if not all(type(each) is dict for each in self._dicts):
            raise ValueError("a state is no dict")
        self._lengths = list(map(len, self._dicts))
        self._params = [each.param for each in known]
        self._sharded = [(number, each) for number, each in enumerate(known) if each.sharded]
        self._weights = [each.local(each.param) for each in known]
        # Where each tensor of a state was found, the tensor itself, and the part of it that is here.
        self._owners: list[dict[str, Any]] = []
        self._keys: list[str] = []
        self._found: list[Tensor] = []
        self._parts: list[Tensor] = []
        self.strides: list[Strides] = []
        self.jobs: Array = np.zeros(len(known), JOB)
        rows = [self._row(each, w, kind) for each, w in zip(known, self._weights, strict=True)]
        self.jobs[:] = np.array(rows, JOB)
        self.group_of = np.array([each.group for each in known], np.intp)
        self._weight_types = list(map(_DTYPE, self._weights))
        self._weight_strides = list(map(_BASE.stride, self._weights))
        self._weight_places = list(map(_BASE.data_ptr, self._weights))
        self._places = list(map(_BASE.data_ptr, self._parts))
        self.sizes = tuple(map(_BASE.numel, self._weights))
        self._sizes = list(self.sizes)
        self._odd = any(each is not None for each in self.strides)
        self.devices = _devices(self._weights)

    def holds(self) -> bool:
        """True where every tensor is still the one it was, in its place, of its type and strides."""
        return (
            self._same_state()
            and all(each.local(each.param) is self._weights[number] for number, each in self._sharded)
            and list(map(_BASE.data_ptr, self._parts)) == self._places
            and list(map(_BASE.data_ptr, self._weights)) == self._weight_places
            and list(map(_DTYPE, self._weights)) == self._weight_types
            and list(map(_BASE.stride, self._weights)) == self._weight_strides
        )

    def stays(self, given: Sequence[Tensor | None], ids: list[int], found: Gradients) -> bool:
        """The same, where it was so a moment ago in the same step, and `given` had these ids and was `found` so.

        Nothing has moved since then, and the state is of the same tensors: types and strides change by that alone.
        """
        if self._sharded or not found.there.all():
            return False
        return (
            self._same_state()
            and list(map(id, given)) == ids
            and list(map(_BASE.data_ptr, given)) == found.places
            and list(map(_BASE.data_ptr, self._parts)) == self._places
            and list(map(_BASE.data_ptr, self._weights)) == self._weight_places
        )

    def gradients(self, given: Sequence[Tensor | None]) -> Gradients | None:
        """The gradients `given` of all params, None where one of them is not read as it is."""
        count = len(given)
        tensors: list[Any] = list(given)
        for number, each in self._sharded:
            tensors[number] = each.local(tensors[number])
        numbers: Any = slice(None)
        sizes = self._sizes
        if not all(map(is_not, tensors, repeat(None))):
            numbers = [number for number, tensor in enumerate(tensors) if tensor is not None]
            sizes = [sizes[number] for number in numbers]
            tensors = [tensors[number] for number in numbers]
        kinds: list[Any] = list(map(KINDS.get, map(_DTYPE, tensors)))
        if not (set(map(type, tensors)) <= _PLAIN and all(map(is_not, kinds, repeat(None)))):
            return None
        try:
            if list(map(_BASE.numel, tensors)) != sizes or not self._lie_alike(tensors, numbers):
                return None
            places = list(map(_BASE.data_ptr, tensors))
        except RuntimeError:  # Sparse ones have no place.
            return None
        found = Gradients(
            np.zeros(count, np.uint64), np.zeros(count, np.uint64), np.zeros(count, np.bool_), places
        )
        found.pointers[numbers], found.kinds[numbers], found.there[numbers] = places, kinds, True
        return found

    def of_step(
        self,
        groups: Sequence[dict[str, Any]],
        gradients: Gradients,
        t: Array,
        scale: Tensor | None,
        *,
        skipped: bool,
    ) -> tuple[Array, list[Tensor]]:
        """JOB[params] of a step, as `jobs_of(tasks_of(…))`, and tensors made for it.

        `t` is the step count that the step is to each param.
        """
        jobs, made = self.jobs.copy(), list[Tensor]()
        of = self.group_of
        settings = [settings_of(group) for group in groups]
        for name in ("lr", "beta1", "beta2", "eps", "decay"):
            jobs[name] = np.array([each[name] for each in settings], np.float64)[of]
        jobs["sign"] = np.array([sign_of(group) for group in groups])[of]
        for device, mine in self.devices:
            if scale is not None:
                jobs["scale_at"][mine] = np.where(gradients.there[mine], _place(scale, device, made), 0)
            for number, each in enumerate(settings):
                if each["lr_tensor"] is not None:
                    here = mine[of[mine] == number]
                    jobs["lr_at"][here] = _place(each["lr_tensor"], device, made) if len(here) else 0
        jobs["t"] = t
        jobs["at"][:, G] = gradients.pointers
        jobs["kinds"] |= gradients.kinds << np.uint64(4)
        jobs["form"] |= np.where(gradients.there & (not skipped), np.uint64(0), np.uint64(4))
        return jobs, made

    def gradients_alone(self, jobs: Array, gradients: Gradients) -> None:
        """Make of `jobs` those of the gradients alone: to be counted beside them costs nothing more."""
        there = gradients.there
        jobs["at"][:, W] = np.where(there, gradients.pointers, jobs["at"][:, W])
        jobs["at"][:, 2:] = 0
        w_kind = np.where(there, gradients.kinds, jobs["kinds"] & np.uint64(15))
        jobs["kinds"] = w_kind | gradients.kinds << np.uint64(4)
        jobs["form"] &= ~np.uint64(1)

    def before_clipping(
        self, groups: Sequence[dict[str, Any]], gradients: Gradients, numbers: Array, unless: Tensor | None
    ) -> Array:
        """JOB[numbers] of gradients about to be clipped, counted unless what `unless` holds there is finite."""
        jobs = np.zeros(len(numbers), JOB)
        jobs["at"][:, W] = jobs["at"][:, G] = gradients.pointers[numbers]
        kinds = gradients.kinds[numbers]
        jobs["kinds"] = kinds | kinds << np.uint64(4)
        jobs["t"], jobs["form"] = 1.0, 4
        jobs["numel"] = self.jobs["numel"][numbers]
        jobs["sign"] = np.array([sign_of(group) for group in groups])[self.group_of[numbers]]
        if unless is not None:
            jobs["unless_at"] = np.where(self.on(unless.device)[numbers], unless.data_ptr(), 0)
        return jobs

    def strides_of(self, numbers: Sequence[int]) -> list[Strides]:
        """Shape and strides of those params that do not lie in memory as their elements are numbered."""
        return [self.strides[number] for number in numbers] if self._odd else [None] * len(numbers)

    def on(self, device: Any) -> npt.NDArray[np.bool_]:
        """Which params are on `device`."""
        there = np.zeros(len(self.of), np.bool_)
        for each, mine in self.devices:
            if each == device:
                there[mine] = True
        return there

    # --- inner parts

    def _same_state(self) -> bool:
        """True where the optimizer's state is of the same tensors."""
        state = self._optimizer.state
        return (
            state is self._state
            and len(state) == len(self._dicts)
            and all(map(is_, state.values(), self._dicts))
            and list(map(len, self._dicts)) == self._lengths
            and all(map(is_, map(dict.get, self._owners, self._keys), self._found))
        )

    def _row(self, each: Known, w: Tensor, kind: Kind) -> tuple[Any, ...]:
        lanes = state_of(each, w, self._optimizer.state, kind)
        given = [w, None, *(None if found is None else found.part for found in lanes[:3])]
        tensors, stride = alike(given)
        if any(mine is not theirs for mine, theirs in zip(tensors, given, strict=True)):
            raise ValueError(f"{each.name} does not lie as its state does")
        self.strides.append(stride)
        kinds = 0
        for at, tensor in enumerate(tensors):
            if tensor is not None:
                if tensor.dtype not in KINDS or type(tensor) not in _PLAIN:
                    raise ValueError(f"{each.name} is of a type that the kernel does not read")
                kinds |= KINDS[tensor.dtype] << (4 * at)
        for found in lanes:
            if found is not None:
                self._owners.append(found.owner)
                self._keys.append(found.key)
                self._found.append(found.whole)
                self._parts.append(found.part)
        step = lanes[3]
        if step is not None and (step.part.dtype != torch.float32 or step.part.device != w.device):
            raise ValueError(f"the count of {each.name} is no float32 beside it")
        at_five = tuple(0 if tensor is None else tensor.data_ptr() for tensor in tensors)
        step_at = 0 if step is None else step.part.data_ptr()
        form = kind.adam | kind.l2 << 1
        return at_five, step_at, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, kinds, form, w.numel()

    def _lie_alike(self, tensors: Sequence[Tensor], numbers: Any) -> bool:
        """True where each gradient lies in memory as its param does."""
        if not self._odd:
            return all(map(_BASE.is_contiguous, tensors))
        strides = self.strides if isinstance(numbers, slice) else self.strides_of(numbers)
        return all(
            tensor.is_contiguous() if stride is None else tensor.stride() == stride[1]
            for tensor, stride in zip(tensors, strides, strict=True)
        )


def _devices(tensors: Sequence[Tensor]) -> list[tuple[Any, Array]]:
    """The devices of `tensors`, with the numbers of those that are there."""
    by_device: dict[Any, list[int]] = {}
    for number, tensor in enumerate(tensors):
        by_device.setdefault(tensor.device, []).append(number)
    return [(device, np.array(numbers, np.intp)) for device, numbers in by_device.items()]


def _place(tensor: Tensor, device: Any, made: list[Tensor]) -> int:
    """Where a number is on `device` as float32; what has to be made for it is added to `made`."""
    if tensor.dtype != torch.float32 or tensor.device != device:
        tensor = tensor.to(device=device, dtype=torch.float32, non_blocking=True)
        made.append(tensor)
    return int(tensor.data_ptr())
