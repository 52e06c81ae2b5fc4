"""What an optimizer keeps of a param beside its weights and gradients, told by the param's shape alone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from inspector.param_state import ParamState, Shape

_NOT_HIDDEN = re.compile(
    r"embed|\bw[tp]e\b|(^|[._])(lm_)?head\b|(^|\.)(output|classifier)(\.weight)?$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class StateBuffer:
    """`elements` numbers of a param's state. `moment`: one an element, which may be kept in 16 or 8 bits too."""

    name: str
    elements: int
    moment: bool = True


Sizes = Callable[[Shape, bool], tuple[StateBuffer, ...]]
"""From a param's shape, and whether it is a hidden matrix, to the buffers that its state takes."""


def is_hidden(name: str, shape: Shape) -> bool:
    """True for a matrix between two layers: of two or more dimensions, no embedding and no head by its name.

    What Muon orthogonalises (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/).
    """
    return len(shape) >= 2 and _NOT_HIDDEN.search(name) is None


def kept(moments: tuple[str, ...], states: tuple[ParamState, ...] = ()) -> Sizes:
    """A number an element in each of `moments`, and states in shapes of their own."""

    def sizes(shape: Shape, hidden: bool) -> tuple[StateBuffer, ...]:
        others = [(state.name, state.shape(shape)) for state in states]
        return (
            *(StateBuffer(name, math.prod(shape)) for name in moments),
            *(StateBuffer(name, math.prod(own), own == shape) for name, own in others if own is not None),
        )

    return sizes
