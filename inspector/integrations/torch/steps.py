"""The steps of a run, one after the other: what is enqueued before and after each, and when it is handed over."""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import repeat
from operator import attrgetter, is_not
from typing import Any

import numpy as np
import torch

from inspector.errors import InspectorError, UsageError
from inspector.integrations.torch.pending import (
    Clipping,
    GroupNumbers,
    Number,
    Pending,
    Unclipped,
    number,
)
from inspector.integrations.torch.ranks import checksums
from inspector.integrations.torch.run import Run
from inspector.integrations.torch.step_counts import StepCounts
from inspector.integrations.torch.transfer import Copies, Transfer
from inspector.integrations.torch.watch import sign_of, without_moments
from inspector.integrations.torch.writing import PutInPlace, Remark
from inspector.session.records import LOADED_STATE, WRITTEN_WEIGHTS
from inspector.statistics import StatsLevel

Tensor = Any
_VERSION = attrgetter("_version")
COPIES = 4
COPIED_BYTES = 1 << 30
"""So many copies may be on their way to the host at once, or as many as come to so many bytes."""


class Steps:
    """Follows the steps of `run`, on the thread that trains. Nothing here waits for a device."""

    def __init__(self, run: Run, *, stats: StatsLevel, stats_every: int, loss_after: bool = False) -> None:
        self.run = run
        self._stats, self._every = stats, stats_every
        self._current: Pending | None = None
        self._held: Pending | None = None
        """A step that ran, and may still be given its loss."""
        self._order: str | None = "after" if loss_after else None
        """Whether the script tells the loss "before" or "after" the step that it belongs to."""
        self._losses: list[Number] = []
        self._clippings: list[Clipping] = []
        self._unclipped: Unclipped | None = None
        """Of the clipping that goes on."""
        self._transfer = Transfer()
        """Of the step to come."""
        self._counts = StepCounts(run)
        self._how_told = self._state_told = False
        self._copies: list[Copies] = []
        self._versions: frozenset[int] = frozenset()
        """Of the gradients that the last step took."""
        self._weights: list[int] = []
        """How often PyTorch counted each weight as written to, after the last step."""
        self._written_before = False
        """True where something else wrote to weights before the last step."""
        self._loaded: list[str] = []
        """What the script has loaded since the last step."""

    @property
    def began(self) -> bool:
        """True within a step."""
        return self._current is not None

    @property
    def has_loss(self) -> bool:
        """True where the loss of the step to come was told."""
        return bool(self._losses)

    def begin(self, *, skipped: bool = False) -> None:
        """The gradients of a step are in place, and nothing is updated yet; nor will be where it is `skipped`."""
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            raise UsageError(
                "The optimizer's step is captured as a CUDA graph, whose replays run no hooks: it cannot be recorded."
            )
        run = self.run
        if run.writer is not None and run.writer.problem is not None:
            raise InspectorError(run.writer.problem)
        self.release()
        if run.records and run.writer is None:
            run.start()
        run.look_for_params()
        self._look_for_writes()
        run.step += 1
        gradients = run.gradients()
        pending = self._current = self._next(gradients, skipped=skipped)
        if not run.records:
            return
        left_out = skipped or (pending.found_inf is not None and pending.found_inf.value > 0)
        if not left_out:
            run.t[pending.active] += 1
        wanted = self._wanted().gradients
        counted = self._stats != "off" and run.step % self._every == 0
        if not counted and not wanted:
            return
        scale = getattr(run.optimizer, "grad_scale", None)
        if counted:
            late = run.writer.skipped if run.writer is not None else 0
            t = np.maximum(run.t + left_out - late, 1)
            pending.counts, pending.strides = self._counts.count(
                gradients, t, scale, pending.transfer, skipped=left_out, light=pending.light
            )
            self._say_how()
        if wanted:
            self._capture_gradients(pending, gradients, scale)

    def end(self) -> None:
        """The step has run."""
        pending, self._current = self._current, None
        if pending is None:
            return
        run = self.run
        if run.agreement.due(run.step, run.checks_every):
            sums = checksums(run.known)
            if sums is not None:
                pending.checksums = pending.transfer.add(sums)
        if not run.records:
            self._tell_checksums(pending)
            return
        if self._wanted().keyframe and self._may_copy(pending, "keyframe"):
            pending.keyframe = run.copier.copy(run.state())
            self._copies.append(pending.keyframe)
        pending.finish()
        self._say_what_is_kept(pending)
        self._versions = self._gradient_versions()
        self._weights = self._weight_versions()
        if pending.losses and self._order is None:
            self._order = "before"
        if self._order == "before":
            self._hand_over(pending)
        else:
            # Its loss may still come; it is handed over with the next step at the latest.
            self._held = pending
        if run.writer is not None:
            run.writer.wait_for(run.step - run.behind)

    def release(self) -> None:
        """Hand over the step whose loss was waited for."""
        held, self._held = self._held, None
        if held is not None:
            self._order = self._order or "before"
            self._hand_over(held)

    def loss(self, value: Any) -> None:
        """The loss of the step to come, or of the one that ran last."""
        held = self._held
        if held is None or self._order == "before":
            self._losses.append(number(value, self._transfer))
            return
        self._order = "after"
        held.losses.append(number(value, held.transfer))
        held.finish()
        self.release()

    def clipping(self, params: list[Tensor], norm: Tensor | None) -> None:
        """The gradients of the step to come are about to be clipped.

        A norm that is not finite leaves nothing of them by which to find the cause, so they are counted before. What a
        norm on a device is the host does not know yet: there the count looks at it, and ends where it is finite.
        """
        run = self.run
        self._unclipped = None
        if not run.records or self._stats == "off" or (run.step + 1) % self._every:
            return
        known_now = norm is not None and not hasattr(norm, "full_tensor") and norm.device.type == "cpu"
        if known_now and torch.isfinite(norm):
            return
        done = {n for each in self._clippings if each.before is not None for n in each.before.numbers}
        self._unclipped = self._counts.before_clipping(params, norm, self._transfer, done)

    def clipped(self, params: list[Tensor], limit: float, norm: Tensor, kind: float) -> None:
        """The gradients of the step to come were clipped."""
        before, self._unclipped = self._unclipped, None
        if self.run.records and self._counts.numbers_of(params):
            self._clippings.append(Clipping(number(norm, self._transfer), limit, kind, before))

    def left_out(self, scaler: Any) -> None:
        """A loss scaler did without the step: its gradients are recorded, and that nothing was updated."""
        self.begin(skipped=True)
        scale = getattr(scaler, "_scale", None)
        if self._current is not None and isinstance(scale, torch.Tensor):
            self._current.scale = number(scale, self._current.transfer)
        self.end()

    def loaded(self, what: str) -> None:
        """The script has loaded a checkpoint; `what` says so: LOADED_STATE or LOADED_WEIGHTS."""
        if self.run.writer is not None and what not in self._loaded:
            self._loaded.append(what)

    def break_off(self, error: BaseException | None) -> None:
        """No more steps come. What `error` ended may stand in a step that did not come to be: it is kept as such."""
        interrupted, self._current = self._current, None
        self.release()
        run = self.run
        if interrupted is None and error is not None and self._has_new():
            self.begin(skipped=True)
            interrupted, self._current = self._current, None
        if interrupted is not None and run.writer is not None:
            # Out of the step itself: some params may be updated, which nobody can tell.
            interrupted.skipped = interrupted.broken_off = True
            interrupted.finish()
            run.writer.put(interrupted)

    def forget(self) -> None:
        """Let go of what is under way."""
        self._current = self._held = None
        self._losses, self._clippings, self._copies = [], [], []
        self._unclipped = None

    # --- inner parts

    def _look_for_writes(self) -> None:
        """What the script wrote of w, m or v since the step before; a state that it loaded has step counts of its own.

        Weights are noticed to be written where PyTorch counts it: not through `param.data`.
        """
        run, loaded = self.run, self._loaded
        if run.writer is None or not run.records:
            return
        now = self._weight_versions()
        before, self._weights = self._weights, now
        written = [n for n, (was, is_) in enumerate(zip(before, now, strict=False)) if was != is_]
        if not loaded and written and not self._written_before:
            first, more = run.known[written[0]].name, len(written) - 1
            loaded.append(f"{WRITTEN_WEIGHTS}: {first}{f' and {more:,} more' if more else ''}")
        # A script that does so in each step is told of once.
        self._written_before = bool(written)
        if not loaded:
            return
        self._loaded = []
        if LOADED_STATE in loaded:
            run.t = run.counts()
        state = None
        if run.policy.captures:
            state = Pending(run.step, [], np.zeros(0, np.bool_), [], Transfer())
            state.keyframe = run.copier.copy(run.state())
        run.writer.put(PutInPlace(run.step + 1, tuple(loaded), tuple(run.t.tolist()), state))

    def _weight_versions(self) -> list[int]:
        return list(map(_VERSION, self.run.params))

    def _next(self, gradients: list[Tensor | None], *, skipped: bool) -> Pending:
        run = self.run
        transfer, self._transfer = self._transfer, Transfer()
        found_inf = getattr(run.optimizer, "found_inf", None)
        scale = getattr(run.optimizer, "grad_scale", None)
        pending = Pending(
            run.step,
            run.of_group,
            np.fromiter(map(is_not, gradients, repeat(None)), np.bool_, len(run.known)),
            [GroupNumbers.of(group, transfer) for group in run.groups],
            transfer,
            skipped=skipped,
            losses=self._losses,
            clippings=self._clippings,
            light=self._stats == "light",
        )
        self._losses, self._clippings = [], []
        if isinstance(found_inf, torch.Tensor):
            pending.found_inf = number(found_inf, transfer)
            pending.scale = None if scale is None else number(scale, transfer)
        return pending

    def _say_how(self) -> None:
        """Note once that a GPU is counted on in the slower way."""
        why = self._counts.fallback
        if why is not None and not self._how_told and self.run.writer is not None:
            self._how_told = True
            note = f"params are counted by PyTorch's own operations, more slowly: the kernel cannot be used ({why})"
            self.run.writer.put(Remark(self.run.step, note))

    def _say_what_is_kept(self, pending: Pending) -> None:
        """Note once, after the first step that it took, where the optimizer's state is none that is recorded."""
        if self._state_told or pending.skipped or self.run.writer is None:
            return
        self._state_told = True
        note = without_moments(self.run.optimizer, self.run.known, self.run.kind)
        if note:
            self.run.writer.put(Remark(self.run.step, note))

    def _wanted(self) -> Any:
        writer = self.run.writer
        assert writer is not None
        return writer.recorder.wants(self.run.step)

    def _hand_over(self, pending: Pending) -> None:
        if self.run.writer is not None:
            self.run.writer.put(pending)

    def _capture_gradients(
        self, pending: Pending, gradients: list[Tensor | None], scale: Tensor | None
    ) -> None:
        if not self._may_copy(pending, "gradients"):
            return
        run = self.run
        by_sign: dict[float, list[tuple[Any, Tensor]]] = {1.0: [], -1.0: []}
        for each, whole in zip(run.known, gradients, strict=True):
            gradient = each.local(whole)
            if gradient is not None:
                by_sign[sign_of(run.groups[each.group])].append((each.name, gradient))
        copies = run.copier.copy(by_sign[1.0], scale)
        if by_sign[-1.0]:
            copies = copies.with_those_of(run.copier.copy(by_sign[-1.0], scale, -1.0))
        pending.gradients = copies
        self._copies.append(copies)

    def _may_copy(self, pending: Pending, what: str) -> bool:
        self._copies = [copies for copies in self._copies if copies.on_the_way]
        if len(self._copies) < COPIES or sum(copies.nbytes for copies in self._copies) < COPIED_BYTES:
            return True
        pending.gaps.append(f"{what} not captured, copies of the steps before were on their way")
        return False

    def _has_new(self) -> bool:
        """True where something of a step to come is there: a loss, clipped gradients, a backward pass."""
        if self.run.writer is None or not self.run.records:
            return False
        return bool(self._losses or self._clippings or not self._gradient_versions() <= self._versions)

    def _gradient_versions(self) -> frozenset[int]:
        """What tells whether a backward pass has run since: one that is not among those before is new."""
        there = [gradient for gradient in self.run.gradients() if gradient is not None]
        return frozenset(map(hash, zip(map(id, there), map(_VERSION, there), strict=True)))

    def _tell_checksums(self, pending: Pending) -> None:
        """Of a process that does not record, on a thread that waits for the device."""
        if pending.checksums is None:
            return
        pending.finish()

        def tell(at: int) -> None:
            with suppress(Exception):
                self.run.agreement.check(pending.step, pending.transfer.arrays()[at])

        threading.Thread(
            target=tell, args=(pending.checksums,), name="inspector-checksums", daemon=True
        ).start()
