"""Modules of a user's own WGSL, and what the compiler says of it in one sentence with file and line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import wgpu

from inspector.errors import UsageError
from inspector.gpu.compile_messages import compile_message
from inspector.gpu.device import Gpu, explained
from inspector.own_kernels import OwnKernel

FEATURES = {"f16": "shader-f16"}
"""What a device needs for a language extension."""


def own_module(gpu: Gpu, own: OwnKernel) -> Any:
    """The compiled module; UsageError where the compiler or the device does not take it."""
    for name, line in own.enables:
        feature = FEATURES.get(name)
        if feature is not None and feature not in gpu.device.features:
            raise UsageError(
                f"{own.file}:{line}: 'enable {name};' needs the feature {feature}, which {gpu.info.name} does not "
                "have: choose another adapter, or keep two halves in a u32."
            )
    with explained(f"compiling {own.file}"), compiled(own):
        return gpu.device.create_shader_module(label=own.file, code=own.source)


@contextmanager
def compiled(own: OwnKernel | None) -> Iterator[None]:
    """Turn what the compiler raises for a user's kernel into one sentence; leave anything else as it is."""
    try:
        yield
    except wgpu.GPUValidationError as error:
        if own is None:
            raise
        message = compile_message(
            str(error), own.file, own.source, entry_point=own.entry_point, line=own.line
        )
        raise UsageError(message) from error
