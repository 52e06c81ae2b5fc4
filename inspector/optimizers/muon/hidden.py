"""Which params Muon steps itself: the hidden matrices."""

from __future__ import annotations

from fnmatch import fnmatchcase

from inspector.layout import Param
from inspector.optimizers.state_size import is_hidden
from inspector.plan import Variant


def takes(param: Param, variant: Variant) -> bool:
    """True for a hidden matrix by `is_hidden` that none of the variant's `no_muon` patterns names."""
    if not param.numel or not is_hidden(param.name, param.shape):
        return False
    return not any(fnmatchcase(param.name, glob.strip()) for glob in variant.no_muon.split(","))
