"""Compute pipelines from the WGSL files, compiled once each."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

import wgpu

from inspector.gpu.device import Gpu, explained
from inspector.plan import Access

SHARED = {
    "adamw_8bit_update": ("common", "codecs"),
    "encode_8bit": ("common", "codecs"),
    "decode_8bit": ("common", "codecs"),
    "explain": ("common", "codecs", "coded_adam"),
    "coding_error": ("common", "codecs"),
}
"""What stands before a kernel's own text; "common" alone where it is not named here."""

_BUFFER_TYPE = {"read": "read-only-storage", "read_write": "storage", "uniform": "uniform"}


def shader_source(name: str) -> str:
    """The text of inspector/shaders/NAME.wgsl."""
    return resources.files("inspector").joinpath("shaders", f"{name}.wgsl").read_text(encoding="utf-8")


class Pipelines:
    """Pipelines by kernel, entry point and constants, with explicit bind group layouts."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._modules: dict[str, Any] = {}
        self._layouts: dict[tuple[tuple[int, Access], ...], Any] = {}
        self._pipelines: dict[tuple[Any, ...], Any] = {}

    def get(
        self,
        kernel: str,
        entry_point: str,
        slots: Sequence[tuple[int, Access]],
        constants: Sequence[tuple[str, float]] = (),
    ) -> Any:
        """The pipeline of `kernel` with these slots bound in group 0."""
        key = (kernel, entry_point, tuple(slots), tuple(constants))
        if key not in self._pipelines:
            device = self._gpu.device
            with explained(f"compiling {kernel}"):
                layout = device.create_pipeline_layout(bind_group_layouts=[self.layout(slots)])
                self._pipelines[key] = device.create_compute_pipeline(
                    label=kernel,
                    layout=layout,
                    compute={
                        "module": self._module(kernel),
                        "entry_point": entry_point,
                        "constants": dict(constants),
                    },
                )
        return self._pipelines[key]

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

    def _module(self, kernel: str) -> Any:
        if kernel not in self._modules:
            code = "\n".join(shader_source(name) for name in (*SHARED.get(kernel, ("common",)), kernel))
            self._modules[kernel] = self._gpu.device.create_shader_module(label=kernel, code=code)
        return self._modules[kernel]
