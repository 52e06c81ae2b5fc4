"""What the kernels over an 8-bit state bind, and the constants that choose their codec."""

from __future__ import annotations

from inspector.codecs import CODEC_NUMBER, Codec
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
"""Constants of all three by codec; the update has others beside them."""
