"""State in shapes of its own on the device: written from a host's arrays and read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.layout import F32_BYTES
from inspector.param_state import PlacedState

States = Mapping[str, Mapping[str, F32Array]]
"""Arrays by state and param, each in the shape of the state."""


def write_states(gpu: Gpu, buffers: Mapping[str, Any], states: Iterable[PlacedState], given: States) -> None:
    """Write what is given, bits kept; what is not given becomes as a run begins with it.

    UsageError for an array of another shape.
    """
    for each in states:
        values = given.get(each.name, {}).get(each.param)
        if values is None:
            values = each.begins_as()
        if values.shape != each.shape:
            raise UsageError(
                f"{each.name} of {each.param} has the shape {list(values.shape)}, where {list(each.shape)} is needed: "
                "the state is of another model, optimizer or form."
            )
        if each.elements:
            bits = np.ascontiguousarray(values, dtype=np.float32).reshape(-1).view(np.uint32)
            gpu.write(buffers[each.buffer], each.start * F32_BYTES, bits)


def read_states(
    gpu: Gpu, buffers: Mapping[str, Any], states: Iterable[PlacedState]
) -> dict[str, dict[str, F32Array]]:
    """All of them as they are, by state and param, in their shapes."""
    found: dict[str, dict[str, F32Array]] = {}
    whole: dict[str, F32Array] = {}
    for each in states:
        if each.buffer not in whole:
            buffer = buffers[each.buffer]
            whole[each.buffer] = gpu.read(buffer, 0, buffer.size // F32_BYTES * F32_BYTES).view(np.float32)
        values = whole[each.buffer][each.start : each.stop].reshape(each.shape)
        found.setdefault(each.name, {})[each.param] = values.copy()
    return found
