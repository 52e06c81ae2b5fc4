"""What an optimizer keeps of a param beside its weights and gradients, told by the param's shape alone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from inspector.param_state import ParamState, Shape

SHAMPOO_BLOCK = 1024
"""Largest side of a Kronecker factor: longer dimensions are split (Anil et al. 2020, arXiv 2002.09018, §5; the
default of Meta's Distributed Shampoo, Shi et al. 2023, arXiv 2309.06497)."""

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


def shampoo(shape: Shape, hidden: bool) -> tuple[StateBuffer, ...]:
    """Gupta et al. 2018 (arXiv 1802.09568), algorithm 1, with a momentum.

    Each block of a matrix has two Kronecker factors and the inverse fourth root of each; further dimensions count with
    the second. A vector has the diagonal.
    """
    momentum = StateBuffer("m", math.prod(shape))
    if len(shape) < 2 or not math.prod(shape):
        return momentum, StateBuffer("diagonal", math.prod(shape))
    rows, columns = shape[0], math.prod(shape[1:])
    left, right = _squares(rows) * _blocks(columns), _squares(columns) * _blocks(rows)
    return momentum, StateBuffer("factors", left + right, False), StateBuffer("roots", left + right, False)


def muon(shape: Shape, hidden: bool) -> tuple[StateBuffer, ...]:
    """Jordan et al. 2024: a momentum for hidden matrices, AdamW's m and v for all other params."""
    n = math.prod(shape)
    return (StateBuffer("m", n),) if hidden else (StateBuffer("m", n), StateBuffer("v", n))


PLANNED: dict[str, Sizes] = {"shampoo": shampoo, "muon": muon}
"""Optimizers that are known by what they keep, whether or not there are kernels for them."""


def _blocks(side: int) -> int:
    return -(-side // SHAMPOO_BLOCK)


def _squares(side: int) -> int:
    """Σ b² over the blocks that a side is split into."""
    whole, rest = divmod(side, SHAMPOO_BLOCK)
    return whole * SHAMPOO_BLOCK**2 + rest**2
