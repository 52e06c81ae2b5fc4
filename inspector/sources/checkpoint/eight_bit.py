"""The 8-bit state of bitsandbytes: codes into a map of 256 values, with a largest magnitude a block.

Where the blocks have 256 elements and the map is the dynamic one, the codes are those of the codec `dynamic` as they
stand (`inspector.codecs`; the map is drawn up by `create_dynamic_map` of bitsandbytes.functional). Anything else is
decoded: value = map[code] · largest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from inspector.codecs import BLOCK, Encoded, Which, blocks, dynamic_map, zero_code
from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.tensor_tree import StoredTensor, Tree

MAP_RTOL = 2.0**-20
"""Maps are worked out in float32 in other orders: they differ by some ULP, neighbouring values by 1 % and more."""


@dataclass(frozen=True, slots=True)
class CodedMoment:
    """m or v in codes, uint8 in the shape of the param. `block` elements share a largest magnitude."""

    codes: StoredTensor
    largest: StoredTensor
    values: StoredTensor
    which: Which
    block: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the param."""
        return self.codes.shape

    @property
    def numel(self) -> int:
        """Number of elements."""
        return self.codes.numel

    @property
    def is_dynamic(self) -> bool:
        """True where the codes mean what those of the codec `dynamic` do."""
        table = dynamic_map(self.which).values
        return self.block == BLOCK and bool(np.allclose(self.values.flat(), table, rtol=MAP_RTOL, atol=0))

    def encoded(self) -> Encoded:
        """The codes of the codec `dynamic`, padded to whole blocks; for those that are."""
        codes = np.full(blocks(self.numel) * BLOCK, zero_code("dynamic", self.which), np.uint8)
        codes[: self.numel] = self.codes.read().reshape(-1)
        scales = np.ascontiguousarray(self.largest.flat())
        return Encoded(codes, scales)

    def decoded(self) -> F32Array:
        """The values, float32, flat."""
        codes = self.codes.read().reshape(-1)
        largest = self.largest.flat()
        values: F32Array = self.values.flat()[codes]
        values *= np.repeat(largest, self.block)[: values.size] if largest.size > 1 else largest
        return values


def coded_moment(codes: StoredTensor, parts: Mapping[str, Tree], which: Which, where: str) -> CodedMoment:
    """UsageError where map or magnitudes are missing or of another size."""
    values, largest = parts.get("qmap"), parts.get("absmax")
    if not isinstance(values, StoredTensor) or values.shape != (256,) or not values.is_float:
        raise UsageError(
            f"{where} is in 8-bit codes without a map of 256 values (qmap): it cannot be decoded."
        )
    block = max(codes.numel, 1)
    if isinstance(largest, StoredTensor):
        block = _block(codes.numel, largest.numel, where)
    else:
        largest = parts.get("max")
        if not isinstance(largest, StoredTensor) or largest.numel != 1:
            raise UsageError(f"{where} is in 8-bit codes without magnitudes (absmax): it cannot be decoded.")
    return CodedMoment(codes, largest, values, which, block)


def _block(elements: int, magnitudes: int, where: str) -> int:
    """256 where that fits, or the power of two that does: sizes in use are 2,048 and 4,096."""
    for block in (BLOCK, *(1 << power for power in range(4, 17))):
        if math.ceil(elements / block) == magnitudes:
            return block
    raise UsageError(
        f"{where} has {magnitudes:,} magnitudes for {elements:,} codes, which no size of a block gives: it is damaged."
    )
