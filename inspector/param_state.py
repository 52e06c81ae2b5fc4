"""State that an optimizer keeps of a param in a shape of its own: what there is, and where it lies in buffers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.layout import F32_BYTES, Layout

Shape = tuple[int, ...]

LEAST_ALIGN_BYTES = 64


@dataclass(frozen=True, slots=True)
class ParamState:
    """One buffer of float32 beside the moments that have an element each.

    `shape` gives what a param of a shape has of it, None where it has nothing; with `by_form` it hangs on the form of
    the step as well, and is that of the usual form. A run begins with `initial` throughout, with `diagonal` on the
    diagonal of the last two dimensions only. Parts for which `together`, of the param's shape, is equal lie one behind
    the other. `title` is what it is, in words.
    """

    name: str
    title: str
    shape: Callable[[Shape], Shape | None]
    initial: float = 0.0
    diagonal: bool = False
    by_form: bool = False
    together: Callable[[Shape], Shape] | None = None


@dataclass(frozen=True, slots=True)
class PlacedState:
    """A param's part of a state: `shape` float32 values in row-major order from element `start` of `buffer` on."""

    name: str
    param: str
    shape: Shape
    buffer: str
    start: int
    initial: float
    diagonal: bool = False

    @property
    def elements(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)

    @property
    def stop(self) -> int:
        """The element after its last."""
        return self.start + self.elements

    def begins_as(self) -> F32Array:
        """What a run begins with, float32 in its shape."""
        if not self.diagonal:
            return np.full(self.shape, self.initial, np.float32)
        return np.broadcast_to(
            np.float32(self.initial) * np.eye(self.shape[-1], dtype=np.float32), self.shape
        )


def place_states(
    layout: Layout, states: Sequence[ParamState], *, align_bytes: int, max_buffer_bytes: int
) -> tuple[PlacedState, ...]:
    """Where the states of all params lie: a state after the other, each in the order of the layout but for `together`.

    Every part begins where a binding may. What does not fit in one buffer goes on in the next, no part across two.
    UsageError for one that is larger than a buffer.
    """
    align = max(align_bytes, LEAST_ALIGN_BYTES) // F32_BYTES
    room = max_buffer_bytes // F32_BYTES
    return tuple(each for state in states for each in _placed(layout, state, align, room))


def _placed(layout: Layout, state: ParamState, align: int, room: int) -> Iterator[PlacedState]:
    parts: list[tuple[str, Shape, int, int]] = []
    page = at = 0
    held = [s for s in layout if state.shape(s.param.shape) is not None]
    if state.together is not None:
        alike = state.together
        held.sort(key=lambda s: alike(s.param.shape))
    for segment in held:
        shape = state.shape(segment.param.shape)
        assert shape is not None
        elements = math.prod(shape)
        if elements > room:
            raise UsageError(
                f"{state.name} of {segment.name} needs {elements * F32_BYTES:,} bytes, over this device's buffer limit "
                f"of {room * F32_BYTES:,}: use a smaller model or another adapter."
            )
        if at + elements > room:
            page, at = page + 1, 0
        parts.append((segment.name, shape, page, at))
        at = -(-(at + elements) // align) * align
    for name, shape, number, start in parts:
        buffer = state.name if not page else f"{state.name}[{number}]"
        yield PlacedState(state.name, name, shape, buffer, start, state.initial, state.diagonal)
