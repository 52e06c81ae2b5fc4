"""An offset into the mega-buffers as typed, in elements or bytes, and what lies there. No Qt."""

from __future__ import annotations

import re
from dataclasses import dataclass

from inspector.byte_sizes import GB, GIB, KB, KIB, MB, MIB
from inspector.errors import UsageError
from inspector.layout import Layout, Segment
from inspector.ui import format as fmt

ELEMENT_BYTES = 4
"""The buffers w and g, and m and v where they are not coded, hold float32."""
HINT = "an element as in 4096, or a byte of a float32 buffer as in 16384b, 16 KiB or 0x4000"
_DECIMAL = re.compile(r"([0-9][0-9_,]{0,24})\s*(?:elements?|(b|bytes?|ki?b?|mi?b?|gi?b?))?", re.IGNORECASE)
_HEX = re.compile(r"0x[0-9a-f_]{1,20}", re.IGNORECASE)
_UNITS = {"b": 1, "bytes": 1, "byte": 1, "kb": KB, "mb": MB, "gb": GB}
_BINARY = {"k": KIB, "m": MIB, "g": GIB}
"""With an i, and of a letter alone, as places in buffers are multiples of powers of two."""


@dataclass(frozen=True, slots=True)
class Spot:
    """An element of the mega-buffers, and the param that it is of; None in a gap."""

    element: int
    segment: Segment | None
    text: str

    @property
    def index(self) -> int:
        """The flat index in the param; 0 in a gap."""
        return self.element - self.segment.offset if self.segment else 0


def parse_offset(text: str, layout: Layout) -> Spot:
    """What lies at an offset; UsageError in words for what is none, or lies beyond the end."""
    typed = text.strip()
    if _HEX.fullmatch(typed):
        # Addresses are written so, and they count bytes.
        element = int(typed.replace("_", ""), 16) // ELEMENT_BYTES
    elif match := _DECIMAL.fullmatch(typed):
        element = int(re.sub("[_,]", "", match[1]))
        if match[2]:
            element = element * _unit_bytes(match[2]) // ELEMENT_BYTES
    else:
        raise UsageError(f"Type {HINT}.")
    if element >= layout.padded_elements:
        end = layout.padded_elements
        raise UsageError(
            f"The mega-buffers end before that: they hold {end:,} elements, {end * ELEMENT_BYTES:,} bytes of float32."
        )
    return Spot(element, layout.at(element), described(element, layout))


def described(element: int, layout: Layout) -> str:
    """What lies at an element, in words."""
    segment = layout.at(element)
    where = f"element {element:,}, byte {element * ELEMENT_BYTES:,}"
    if segment is not None:
        return f"{segment.name}{fmt.multi_index(element - segment.offset, segment.param.shape)} · {where}"
    return f"a gap between params, where nothing is stored · {where}"


def _unit_bytes(unit: str) -> int:
    name = unit.lower()
    return _UNITS[name] if name in _UNITS else _BINARY[name[0]]
