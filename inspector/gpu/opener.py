"""Opens sources and makes GPU steppers for them: what the runtime is handed on a machine with a device."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.errors import InspectorError
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.layout import DEFAULT_ALIGN_BYTES, F32_BYTES, Layout, Param
from inspector.plan import BINDING_ALIGN_BYTES, Variant, layout_for, required_placement
from inspector.progress import EndedError
from inspector.stepping import State

HARDWARE_UNDO_BYTES = 8 << 30
SOFTWARE_UNDO_BYTES = 2 << 30
"""What going back may take by default: a few steps of the reference model on a large GPU, one on the CPU."""


@dataclass(frozen=True, slots=True)
class StepperMaker:
    """Makes a stepper on the chosen adapter. `undo_bytes` None takes the default for the kind of adapter."""

    adapter: str | None = None
    undo_bytes: int | None = None
    align_bytes: int = DEFAULT_ALIGN_BYTES

    def make(
        self,
        params: tuple[Param, ...],
        variant: Variant,
        state: State,
        layout: Layout | None = None,
        *,
        alone: bool = False,
    ) -> GpuStepper:
        """A new device with the state on it, the params as in `layout` where this device can bind them there.

        With `alone` any of them can be bound by itself, as settings of its own ask.
        """
        gpu = Gpu(self.adapter)
        undo = self.undo_bytes
        if undo is None:
            undo = SOFTWARE_UNDO_BYTES if gpu.info.software else HARDWARE_UNDO_BYTES
        try:
            if layout is None or not suits(gpu, layout, variant):
                layout = device_layout(gpu, params, variant, self.align_bytes, alone=alone)
            return GpuStepper(gpu, layout, variant, state, undo_bytes=undo)
        except (InspectorError, EndedError):
            # Whoever is told may want to make another, for which the memory of this one has to be free.
            gpu.close()
            raise


def suits(gpu: Gpu, layout: Layout, variant: Variant) -> bool:
    """True where the device can run a form with the params where `layout` has them."""
    align = max(BINDING_ALIGN_BYTES, gpu.limits.min_storage_buffer_offset_alignment)
    page = max((p.stop - p.start for p in layout.pages), default=0)
    fits = page * F32_BYTES <= gpu.limits.max_buffer_size
    return fits and layout.placement.covers(required_placement(variant, align))


def device_layout(
    gpu: Gpu,
    params: tuple[Param, ...],
    variant: Variant,
    align_bytes: int = DEFAULT_ALIGN_BYTES,
    *,
    alone: bool = False,
) -> Layout:
    """The params laid out for this device, see `layout_for`."""
    return layout_for(params, gpu.limits, variant, align_bytes, alone=alone)
