"""Compute pipelines from the WGSL files, built-in ones and a user's own, compiled once each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import wgpu

from inspector.gpu.device import Gpu, explained
from inspector.gpu.own_modules import compiled, own_module
from inspector.own_kernels import OwnKernel
from inspector.plan import Access, Plan
from inspector.shader_text import shared, unit

_BUFFER_TYPE = {"read": "read-only-storage", "read_write": "storage", "uniform": "uniform"}


ADAM_ONLY = {"CODEC", "CODED"}
"""Constants that only a rule with codes declares."""

MOST_TEXTS = 32
"""Of users' kernels, compiled and kept."""


class Pipelines:
    """Pipelines by kernel, entry point and constants, with explicit bind group layouts."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._modules: dict[str, Any] = {}
        self._layouts: dict[tuple[tuple[int, Access], ...], Any] = {}
        self._pipelines: dict[tuple[Any, ...], Any] = {}
        self._texts: dict[str, None] = {}
        """The users' texts that modules and pipelines are kept of, the oldest first."""

    def get(
        self,
        kernel: str,
        entry_point: str,
        slots: Sequence[tuple[int, Access]],
        constants: Sequence[tuple[str, float]] = (),
        own: OwnKernel | None = None,
        rule: Sequence[str] | None = None,
    ) -> Any:
        """The pipeline of `kernel`, or of a user's `own` in its place, with these slots bound in group 0.

        `rule` are the files with the update of an optimizer other than Adam, which stand before the kernel's own text.
        UsageError with file and line where the compiler does not take the user's.
        """
        rule = shared(kernel) if rule is None else tuple(rule)
        if "codecs" not in rule and own is None:
            constants = [each for each in constants if each[0] not in ADAM_ONLY]
        key = (kernel, entry_point, tuple(slots), tuple(constants), own, rule)
        if key not in self._pipelines:
            device = self._gpu.device
            keys = dict(own.overrides) if own else {}
            with explained(f"compiling {kernel}"), compiled(own):
                layout = device.create_pipeline_layout(bind_group_layouts=[self.layout(slots)])
                self._pipelines[key] = device.create_compute_pipeline(
                    label=kernel,
                    layout=layout,
                    compute={
                        "module": self._module(kernel, rule) if own is None else self._own_module(own),
                        "entry_point": entry_point,
                        "constants": {keys.get(name, name): value for name, value in constants},
                    },
                )
        return self._pipelines[key]

    def check_own(self, plan: Plan) -> None:
        """Compile every own kernel of the plan's variant; UsageError with file and line for the first that fails.

        So a run fails before it begins, or before it changes its form, and not in the middle.
        """
        for own in plan.variant.own.kernels:
            self._own_module(own)
        for dispatch in plan.dispatches:
            if dispatch.own is not None:
                slots = tuple((b.slot, b.access) for b in dispatch.bindings)
                self.get(dispatch.kernel, dispatch.entry_point, slots, dispatch.constants, dispatch.own)

    def bind(self, slots: Sequence[tuple[int, Access]], ranges: Sequence[tuple[Any, int, int]]) -> Any:
        """A bind group of (buffer, byte offset, byte size) for each slot."""
        entries = [
            {"binding": slot, "resource": {"buffer": buffer, "offset": offset, "size": size}}
            for (slot, _), (buffer, offset, size) in zip(slots, ranges, strict=True)
        ]
        with explained("binding buffers"):
            return self._gpu.device.create_bind_group(layout=self.layout(slots), entries=entries)

    def layout(self, slots: Sequence[tuple[int, Access]]) -> Any:
        """The bind group layout of these slots."""
        key = tuple(slots)
        if key not in self._layouts:
            entries = [
                {
                    "binding": slot,
                    "visibility": wgpu.ShaderStage.COMPUTE,
                    "buffer": {"type": _BUFFER_TYPE[access]},
                }
                for slot, access in key
            ]
            self._layouts[key] = self._gpu.device.create_bind_group_layout(entries=entries)
        return self._layouts[key]

    def _own_module(self, own: OwnKernel) -> Any:
        key = f"{own.file}\n{own.source}"
        if key not in self._modules:
            self._modules[key] = own_module(self._gpu, own)
        self._texts.pop(key, None)
        self._texts[key] = None
        if len(self._texts) > MOST_TEXTS:
            # While one is edited there is another with every pause in typing. What runs holds on to its own.
            oldest = next(iter(self._texts))
            del self._texts[oldest], self._modules[oldest]
            for old in [k for k in self._pipelines if k[4] and f"{k[4].file}\n{k[4].source}" == oldest]:
                del self._pipelines[old]
        return self._modules[key]

    def _module(self, kernel: str, before: tuple[str, ...]) -> Any:
        key = "\n".join((kernel, *before))
        if key not in self._modules:
            text = unit(kernel, before).text
            self._modules[key] = self._gpu.device.create_shader_module(label=kernel, code=text)
        return self._modules[key]
