"""Which params Muon steps itself: the hidden matrices."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase

from inspector.layout import Param
from inspector.optimizers.state_size import StateBuffer, is_hidden
from inspector.param_state import Shape
from inspector.plan import Variant


def takes(param: Param, variant: Variant) -> bool:
    """True for a hidden matrix by `is_hidden` that none of the variant's `no_muon` patterns names."""
    if not param.numel or not is_hidden(param.name, param.shape):
        return False
    return not any(fnmatchcase(param.name, glob.strip()) for glob in variant.no_muon.split(","))


def billed(shape: Shape, hidden: bool) -> tuple[StateBuffer, ...]:
    """A momentum for hidden matrices, AdamW's m and v for all other params."""
    n = math.prod(shape)
    return (StateBuffer("m", n),) if hidden else (StateBuffer("m", n), StateBuffer("v", n))
