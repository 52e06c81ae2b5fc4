"""What can be looked at of a run beside whole buffers: single elements, where values lie, and matrices as images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from inspector.explaining import ElementValues
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.param_state import PlacedState
from inspector.plan import Variant
from inspector.stepping import GradStats
from inspector.stores import Lane
from inspector.value_search import Query

Moment = Literal["after", "before", "difference"]
"""As a buffer is; as it was before the last dispatch; and what that changed, after less before."""
MOMENTS_SHOWN: tuple[Moment, ...] = ("after", "before", "difference")

State = tuple[np.float32, np.float32, np.float32]
"""w, m and v of an element."""


@dataclass(frozen=True, slots=True)
class TrailPart:
    """An element over steps, as far as it is known: w, m and v after a step, and g as the step was given it."""

    states: Mapping[int, State] = field(default_factory=dict)
    gradients: Mapping[int, np.float32] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hits:
    """Where elements match a query: how many, and as places in the mega-buffer the first, the last, the first after
    a place and the last before it; None where there is none."""

    count: int = 0
    first: int | None = None
    last: int | None = None
    next: int | None = None
    previous: int | None = None


@dataclass(frozen=True, slots=True)
class MatrixRequest:
    """A rectangle of a param as an image of `width` by `height` pixels, one lane at one moment.

    The param is taken as rows of `columns` elements. Pixel (x, y) covers columns `left` + [x, x+1) · `across` and rows
    `top` + [y, y+1) · `down`: the element of largest magnitude there, with its sign.
    """

    param: str
    lane: Lane
    moment: Moment
    columns: int
    left: float
    top: float
    across: float
    down: float
    width: int
    height: int
    logarithmic: bool = False
    """Coloured by the logarithm of the magnitude rather than by the value."""


@dataclass(frozen=True, slots=True)
class MatrixPixels:
    """A rectangle of a param reduced to pixels: float32 [height, width] arrays, read-only.

    `values` is the element of largest magnitude under each pixel, with its sign, 0 where the pixel covers none;
    `nonfinite` counts non-finite elements under it.
    """

    values: F32Array
    nonfinite: F32Array


class Looker(Protocol):
    """Looks at a run where it stands and changes nothing of it. Elements are places in the mega-buffer."""

    def element(self, element: int, given_to: int | None = None) -> ElementValues | None:
        """An element as it is; or as dispatch number `given_to` of the step is or was given it.

        None where memory does not reach back that far.
        """
        ...

    def trail(self, element: int, since: int = 0) -> TrailPart:
        """The element over the steps from `since` on, as far as memory reaches, the present one included."""
        ...

    def gradients_given(self, dispatch: int) -> F32Array | None:
        """All gradients as dispatch number `dispatch` of the step was given them, gaps included, read back.

        None where memory does not reach back that far.
        """
        ...

    def stats_ahead(self, hyper: Hyper) -> GradStats:
        """gradNorm and clipScale of the step at the cursor, worked out beside it where it is not that far yet."""
        ...

    def update_lines(
        self,
        values: ElementValues,
        *,
        clip_scale: float,
        clipped: bool,
        hyper: Hyper,
        step: int,
        decays: bool,
        coded: bool,
        variant: Variant,
        param: Param,
    ) -> F32Array:
        """The lines of an element's update as the GPU computes them from its values, float32[10].

        `clipped` where its gradient was multiplied by the clip scale before; `coded` where m and v are kept in 8 bits;
        `param` is whose element it is.
        """
        ...

    def find(
        self,
        lane: Lane,
        query: Query,
        start: int,
        stop: int,
        at: int | None = None,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> Hits:
        """Where elements [start, stop) match. `progress` is told elements done, of how many; what it raises ends it."""
        ...

    def matrix_pixels(self, request: MatrixRequest) -> MatrixPixels:
        """A rectangle of a param as pixels."""
        ...

    def param_state(self, state: PlacedState, count: int, *, before: bool = False) -> F32Array:
        """The first `count` values, flat, of a state in a shape of its own; or as before the last dispatch."""
        ...

    def codes(
        self, lane: Lane, start: int, count: int, *, before: bool = False
    ) -> npt.NDArray[np.int16] | None:
        """8-bit codes of elements, int8 or uint8 widened; None where any of them is float32."""
        ...

    def half(self, start: int, count: int) -> npt.NDArray[np.uint16] | None:
        """The bits of the half-precision mirror of w; None where there is none."""
        ...
