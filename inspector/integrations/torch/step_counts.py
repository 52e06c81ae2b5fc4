"""What is counted of a run's params in each step: by what was prepared where their tensors stay, else one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from inspector.errors import InspectorError
from inspector.integrations.torch.counting import gradient_alone
from inspector.integrations.torch.pending import Unclipped
from inspector.integrations.torch.prepared import Gradients, Prepared
from inspector.integrations.torch.run import Run
from inspector.integrations.torch.transfer import Transfer
from inspector.integrations.torch.watch import Counter, Counts, Strides, gradients_of, lanes_of, tasks_of

Tensor = Any


class StepCounts:
    """Counts the params of `run`, on the thread that trains. Nothing here waits for a device."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._counter = Counter()
        self._prepared: Prepared | None = None
        self._unfit: tuple[Any, ...] | None = None
        """What a run was like that could not be prepared for."""
        self._seen: tuple[Prepared, list[int], Gradients] | None = None
        """What the gradients of the step to come were as they were clipped, with their ids."""
        self._clipped: list[int] = []
        self._clipped_numbers: list[int] = []
        """The ids of the params that were clipped together last, and the numbers of those that are of the run."""

    @property
    def fallback(self) -> str | None:
        """Why a GPU is not counted on by the kernel, if so."""
        return self._counter.fallback

    def count(
        self,
        gradients: Sequence[Tensor | None],
        t: Any,
        scale: Tensor | None,
        transfer: Transfer,
        *,
        skipped: bool,
        light: bool,
    ) -> tuple[Counts, list[Strides]]:
        """Start counting a step; `t` int64[params] is the step count that it is to each, `gradients` are its own."""
        run = self._run
        prepared, found = self._seen_or_looked_at(gradients)
        if prepared is not None and found is not None:
            jobs, made = prepared.of_step(run.groups, found, t, scale, skipped=skipped)
            if light:
                prepared.gradients_alone(jobs, found)
            counts = Counts(len(jobs))
            for device, numbers in prepared.devices:
                whole = len(numbers) == len(jobs)
                sizes = prepared.sizes if whole else tuple(prepared.sizes[number] for number in numbers)
                self._counter.launch(
                    device, numbers, jobs if whole else jobs[numbers], sizes, counts, transfer
                )
            del made  # The kernel is on its way; the allocator of its stream reuses the memory after it.
            return counts, prepared.strides
        lanes = lanes_of(run.optimizer, run.known, run.kind)
        tasks, strides = tasks_of(lanes, run.known, run.groups, run.kind, t, scale, skipped=skipped)
        if light:
            tasks = [gradient_alone(task) for task in tasks]
        return self._counter.count(tasks, transfer), strides

    def before_clipping(
        self, params: Sequence[Tensor], norm: Tensor | None, transfer: Transfer, done: set[int]
    ) -> Unclipped | None:
        """Start counting the gradients of `params` but those that are `done`; None where there is nothing to count.

        They need not be counted where `norm`, a number on a device, is finite.
        """
        run = self._run
        numbers = self.numbers_of(params)
        if done:
            numbers = [number for number in numbers if number not in done]
        if not numbers:
            return None
        gradients = run.gradients()
        prepared, found = self._looked_at(gradients)
        if prepared is not None and found is not None:
            self._seen = prepared, list(map(id, gradients)), found
        if prepared is None or found is None:
            taken, tasks, strides = gradients_of(run.known, run.groups, numbers, norm)
            return Unclipped(taken, self._counter.count(tasks, transfer), strides) if taken else None
        unless = None if norm is None or hasattr(norm, "full_tensor") else norm.detach().float()
        chosen = np.array(numbers, np.intp)
        chosen = chosen[found.there[chosen]]
        if not len(chosen):
            return None
        jobs = prepared.before_clipping(run.groups, found, chosen, unless)
        counts = Counts(len(jobs))
        for device, mine in prepared.devices:
            places = np.arange(len(chosen))
            if len(prepared.devices) > 1:
                places = np.flatnonzero(np.isin(chosen, mine))
            if len(places):
                here = jobs[places]
                sizes = tuple(here["numel"].tolist())
                self._counter.launch(device, places, here, sizes, counts, transfer)
        order = chosen.tolist()
        return Unclipped(order, counts, prepared.strides_of(order))

    def numbers_of(self, params: Sequence[Tensor]) -> list[int]:
        """The numbers of those of `params` that are of the run, in its order."""
        given = list(map(id, params))
        if given != self._clipped:
            here = set(given)
            self._clipped = given
            self._clipped_numbers = [n for n, each in enumerate(self._run.params) if id(each) in here]
        return self._clipped_numbers

    # --- inner parts

    def _seen_or_looked_at(
        self, gradients: Sequence[Tensor | None]
    ) -> tuple[Prepared | None, Gradients | None]:
        """As `_looked_at`, where clipping has looked at them in this step by less."""
        seen, self._seen = self._seen, None
        if seen is not None and seen[0] is self._prepared and seen[0].of is self._run.known:
            prepared, ids, found = seen
            if prepared.stays(gradients, ids, found):
                return prepared, found
        return self._looked_at(gradients)

    def _looked_at(self, gradients: Sequence[Tensor | None]) -> tuple[Prepared | None, Gradients | None]:
        """What is prepared, and the gradients of a step as it reads them; None where they have to be gone through."""
        run = self._run
        prepared = self._prepared
        if prepared is None or prepared.of is not run.known or not prepared.holds():
            prepared = self._prepared = self._prepare()
        return prepared, None if prepared is None else prepared.gradients(gradients)

    def _prepare(self) -> Prepared | None:
        run = self._run
        like = run.known, id(run.optimizer.state), len(run.optimizer.state)
        if self._unfit is not None and self._unfit[0] is like[0] and self._unfit[1:] == like[1:]:
            return None
        try:
            if self._counter.has_kernels({each.device for each in run.params}):
                return Prepared(run.optimizer, run.known, run.kind)
        except (ValueError, RuntimeError, InspectorError):
            pass
        self._unfit = like
        return None
