"""Pipelines of the kernels over an 8-bit state, by what they do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inspector.codecs import CODEC_NUMBER, Codec
from inspector.gpu.pipelines import Pipelines
from inspector.hyper import Numerics
from inspector.plan import Access

UPDATE_SLOTS: tuple[tuple[int, Access], ...] = (
    *((slot, "read_write") for slot in range(6)),
    (6, "read"),
    *((slot, "uniform") for slot in (7, 8, 9)),
)
ENCODE_SLOTS: tuple[tuple[int, Access], ...] = (
    (0, "read_write"),
    (1, "read_write"),
    (2, "read"),
    (3, "uniform"),
)
DECODE_SLOTS: tuple[tuple[int, Access], ...] = ((0, "read"), (1, "read"), (2, "read_write"), (3, "uniform"))
ELEMENTS_A_GROUP = 1024
"""What one workgroup of any of the three takes: four blocks."""
CODER_CONSTANTS: dict[Codec, tuple[tuple[str, float], ...]] = {
    codec: (("CODEC", float(number)),) for codec, number in CODEC_NUMBER.items()
}
"""Constants of encode_8bit and decode_8bit."""


class Pipelines8bit(Pipelines):
    """Pipelines with the 8-bit kernels by name."""

    def update(
        self, codec: Codec, numerics: Numerics = "published", more: Sequence[tuple[str, float]] = ()
    ) -> Any:
        """The pipeline of adamw_8bit_update; `more` are constants of the forms that all updates share."""
        constants = (("CODEC", CODEC_NUMBER[codec]), ("PRECISE", float(numerics == "precise")), *more)
        return self.get("adamw_8bit_update", "adamw_8bit_update", UPDATE_SLOTS, constants)

    def encode(self, codec: Codec) -> Any:
        """The pipeline of encode_8bit."""
        return self.get("encode_8bit", "encode_8bit", ENCODE_SLOTS, (("CODEC", CODEC_NUMBER[codec]),))

    def decode(self, codec: Codec) -> Any:
        """The pipeline of decode_8bit."""
        return self.get("decode_8bit", "decode_8bit", DECODE_SLOTS, (("CODEC", CODEC_NUMBER[codec]),))
