"""What a stepper is, seen from above: its cursor, what it takes and what it gives back.

The runtime drives any object of this shape: the one on a GPU, or a recording on a machine without any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from inspector.codecs import Moments8bit
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import BlockName, Layout, Param
from inspector.own_kernels import OwnKernel
from inspector.plan import Plan, Variant
from inspector.statistics import BufferStats
from inspector.stores import Lane

if TYPE_CHECKING:
    from inspector.coding_error import ParamCodingError
    from inspector.decay import DecayMeter
    from inspector.drift import ParamDrift
    from inspector.looking import Looker
    from inspector.mapping import Mapper
    from inspector.param_statistics import ParamTable


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a run stands: in step `step` (t, from 1), after `dispatch` of its `count` dispatches.

    At dispatch 0 the gradients of the step are in place and nothing has run. (t, count) is the end of step t.
    """

    step: int
    dispatch: int
    count: int

    @property
    def at_end(self) -> bool:
        """True once the step is complete."""
        return self.dispatch == self.count

    @property
    def between_steps(self) -> bool:
        """True where no dispatch of a step has run without the others: at its start or its end."""
        return self.at_end or self.dispatch == 0

    @property
    def finished_steps(self) -> int:
        """How many steps are complete."""
        return self.step if self.at_end else self.step - 1


@dataclass(frozen=True, slots=True)
class HostState:
    """w, m, v by param name, flat float32; a param missing in m or v starts at zero. `finished_steps` is t.

    `coded` are m and v of params with 8-bit state as codes, from which they go on byte for byte where the codec is the
    same; `m` and `v` hold their values.

    `states` are those in shapes of their own, by name and param, each in its shape; what is missing begins anew.
    """

    w: Mapping[str, F32Array]
    m: Mapping[str, F32Array]
    v: Mapping[str, F32Array]
    finished_steps: int = 0
    coded: Mapping[str, Moments8bit] = field(default_factory=dict)
    states: Mapping[str, Mapping[str, F32Array]] = field(default_factory=dict)


def lost_moments(state: HostState) -> int:
    """Elements whose v is 0 under an m that is not, as linear codes leave them: they move by about lr·m̂/ε next."""
    return sum(
        int(np.count_nonzero((state.v[name] == 0) & (m != 0)))
        for name, m in state.m.items()
        if name in state.v
    )


@dataclass(frozen=True, slots=True)
class GeneratedState:
    """Weights drawn on the device: normal, one (mean, standard deviation) by param name; m = v = 0."""

    seed: int
    normal: Mapping[str, tuple[float, float]]
    finished_steps: int = 0


@dataclass(frozen=True, slots=True)
class HostGradients:
    """Gradients by param name, flat float32; a missing param has gradient 0. `loss` in nats, None if unknown."""

    values: Mapping[str, F32Array]
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class GeneratedGradients:
    """Gradients drawn on the device from (seed, step): normal, one (mean, standard deviation) by param name."""

    seed: int
    step: int
    normal: Mapping[str, tuple[float, float]]
    loss: float | None = None


State = HostState | GeneratedState
Gradients = HostGradients | GeneratedGradients


@dataclass(frozen=True, slots=True)
class KernelTime:
    """What one dispatch took. `ms` is None where the clock gave nothing usable (shown as n/a)."""

    name: str
    block: BlockName | None
    ms: float | None
    clock: Literal["gpu", "cpu"]
    cold: bool = False
    """Measured after the device had idled, so at low clocks; left out of means."""
    began_ms: float | None = None
    """When it began, on the device's clock from some moment on; None where that clock cannot be read."""


@dataclass(frozen=True, slots=True)
class GradStats:
    """grad_stats as the kernel left them, float32 widened: gradient norm before clipping, and clip scale."""

    grad_norm: float
    clip_scale: float


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """The adapter in use, for people. `software` means it runs on the CPU."""

    name: str
    backend: str
    software: bool
    timestamps: bool
    description: str = ""


@dataclass(frozen=True, slots=True)
class UndoInfo:
    """What can be undone: dispatches and whole steps in memory, bytes used and the bound on them."""

    dispatches: int = 0
    steps: int = 0
    nbytes: int = 0
    limit: int = 0
    oldest_step: int | None = None
    """The earliest step whose end can be gone back to."""


class Stepper(Protocol):
    """A run that can stop between any two dispatches, look at every buffer, and go back.

    All methods are called on one thread. Positions and counts are in elements of the mega-buffer.
    """

    @property
    def layout(self) -> Layout: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def cursor(self) -> Cursor: ...
    @property
    def device(self) -> DeviceInfo: ...
    @property
    def memory_bytes(self) -> int:
        """Bytes of GPU memory allocated."""
        ...

    @property
    def buffer_bytes(self) -> Mapping[str, int]:
        """Bytes of each of the plan's buffers, as the device allocated it."""
        ...

    @property
    def undo_info(self) -> UndoInfo: ...
    @property
    def looker(self) -> Looker:
        """Looks at single elements, where values lie, and matrices, without changing anything."""
        ...

    @property
    def mapper(self) -> Mapper:
        """Reduces the mega-buffers to pixels, without changing anything."""
        ...

    def begin_step(self, gradients: Gradients, hyper: Hyper | None = None) -> None:
        """Put the gradients of the next step in place; the cursor moves to (t + 1, 0).

        The plan becomes that of the classes of params in `hyper`; without it, or where that changes until the first
        dispatch, then. An idle param has no gradient. UsageError where the form cannot run with these classes.
        """
        ...

    def run_dispatch(self, hyper: Hyper) -> KernelTime:
        """Run the dispatch at the cursor, keeping what it overwrites."""
        ...

    def run_until(self, hyper: Hyper, dispatch: int) -> tuple[KernelTime, ...]:
        """Run in one submission until `dispatch` dispatches of the step have run; nothing where they have."""
        ...

    def run_to_end(self, hyper: Hyper) -> tuple[KernelTime, ...]:
        """Run the rest of the step in one submission; one time for each dispatch that ran."""
        ...

    def undo_dispatch(self) -> bool:
        """Take the last dispatch back, byte for byte; False where memory does not reach back."""
        ...

    def rewind_step(self) -> bool:
        """Go back to the start of the current step, or from there to the start of the one before."""
        ...

    def rewind_to(self, step: int) -> bool:
        """Go back to the end of step `step`; False where memory does not reach that far."""
        ...

    def restore(self, state: State, progress: Callable[[float], None] = lambda share: None) -> None:
        """Go to the end of step `state.finished_steps` with another state, of the same params in the same form.

        Gradients are 0 there, as the update leaves them. What was kept for going back is forgotten. `progress` is told
        the share that is done; what it raises leaves the buffers with parts of either state.
        """
        ...

    def grad_stats(self) -> GradStats: ...
    def counts(self, lane: Lane) -> BufferStats:
        """Counts over all params in one lane, without the histogram."""
        ...

    def given_counts(self, lane: Lane) -> BufferStats:
        """Counts over all params of a lane as the run was given it: 8-bit codes hold nothing that is not finite."""
        ...

    def check_form(self, params: tuple[Param, ...], variant: Variant) -> None:
        """UsageError where params could not run in that form on this device; own kernels are compiled for it."""
        ...

    def check_kernel(self, own: OwnKernel) -> None:
        """UsageError with file and line where an own kernel could not run in the present form; it is compiled."""
        ...

    def param_stats(self, hyper: Hyper) -> ParamTable:
        """Statistics of every param and of the update to come; UsageError but between finalize and the update."""
        ...

    def lane_stats(self, hyper: Hyper, elements: tuple[int, int]) -> ParamTable:
        """Statistics of w, g, m and v as they are at any moment, of the params within `elements` of the mega-buffer.

        Rows of other params, and the figures of the update, mean nothing.
        """
        ...

    @property
    def param_stats_ms(self) -> float | None:
        """GPU time of the last param statistics; None where the device has no clock."""
        ...

    def coding_errors(self, hyper: Hyper) -> tuple[ParamCodingError, ...]:
        """What coding does to m and v of the update to come, of each param with 8-bit state; UsageError as above."""
        ...

    def block_errors(self, param: str) -> tuple[F32Array, F32Array]:
        """Rms errors of m and v by block of 256 of a param, as last measured by `coding_errors`."""
        ...

    @property
    def coding_ms(self) -> float | None:
        """GPU time of the last `coding_errors`; None where the device has no clock or nothing was measured."""
        ...

    def decay_meter(self) -> DecayMeter:
        """What adds up the decay that each element receives from here on.

        UsageError within a step, of other optimizers than AdamW and Adam with L2, and with 8-bit state.
        """
        ...

    def beside(self, variant: Variant, *, undo_bytes: int = 0) -> Stepper:
        """A second run on the same device from w, m, v and the gradients of this moment; UsageError within a step.

        The state is coded anew where its type differs. It is released, not closed, which would end the device.
        """
        ...

    def another(self, state: State, variant: Variant | None = None, *, undo_bytes: int = 0) -> Stepper:
        """A second run on the same device from another state, at any time, in the same form and the same places or in
        `variant`.

        It is released, not closed, which would end the device.
        """
        ...

    def drift_from(self, other: Any) -> tuple[ParamDrift, ...]:
        """How far the weights of a run made by `beside` are from these, by param in the order of the layout."""
        ...

    @property
    def drift_ms(self) -> float | None:
        """GPU time of the last `drift_from`; None where the device has no clock."""
        ...

    def release(self) -> None:
        """Give back the memory of everything on the device, which stays open."""
        ...

    def stats(self, lane: Lane, param: str | None) -> BufferStats:
        """Statistics of a param, or of all params, in one lane."""
        ...

    def changed_lanes(self) -> tuple[Lane, ...]:
        """The lanes of which the last dispatch kept what it overwrote."""
        ...

    def gradients(self) -> dict[str, F32Array]:
        """The gradient buffer by param name, flat, read back."""
        ...

    def weights(self) -> Mapping[str, F32Array]:
        """w by param name, read back, each in its param's shape."""
        ...

    def half_weights(self) -> Mapping[str, npt.NDArray[np.float16]]:
        """The half-precision mirror by param name, flat, read back; KeyError where the plan keeps none."""
        ...

    def read(self, lane: Lane, start: int, count: int, *, before: bool = False) -> F32Array:
        """`count` elements from `start`; with `before` as they were before the last dispatch."""
        ...

    def state(self) -> HostState:
        """w, m, v as they are, read back."""
        ...

    def can_take(self, variant: Variant) -> bool:
        """True where the layout allows that form; otherwise a new stepper has to be made from the state."""
        ...

    def set_variant(self, variant: Variant) -> None:
        """Run the next step in another form; only at the end of a step or at its start."""
        ...

    def copy_gbps(self) -> float:
        """GB/s, bytes read plus written, that a plain copy reaches on this device. Measured now: takes seconds."""
        ...

    def close(self) -> None: ...
