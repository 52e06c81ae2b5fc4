"""How recordings under a run are told apart: by sign, dash and colour; and what they read beside it, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtGui import QColor

from inspector.runtime.beside import MAX_OVERLAYS, Overlay
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.chart import Dash
from inspector.ui.line_sample import Symbol
from inspector.ui.readouts import Readout, read_out_at

SIGNS = "①②③"
DASHES: tuple[Dash, ...] = ((6, 3), (2, 2), (9, 3, 2, 3))
SYMBOLS: tuple[Symbol, ...] = ("o", "s", "t1")
"""On lines whose dash says what they are of."""
assert len(SIGNS) == len(DASHES) == MAX_OVERLAYS == len(theme.LIGHT.overlays) == len(theme.DARK.overlays)


def colour_of(slot: int) -> QColor:
    """The colour of a recording where lines are not coloured by what they are of."""
    return theme.colours().overlays[slot]


def shown(overlays: Sequence[Overlay]) -> tuple[Overlay, ...]:
    """Those that have been read."""
    return tuple(o for o in overlays if not o.loading)


def beside(
    overlays: Sequence[Overlay], name: str, step: float | None, value: float | None
) -> tuple[str, ...]:
    """What the recordings read at a step, from the longest text to the shortest: with differences, without, nothing.

    A difference is to `value`, that of the run, or to the first that has one where the run has none.
    """
    found = [(o, read_out_at(o.history, name, step)) for o in overlays] if step is not None else []
    known = [(SIGNS[o.slot], r) for o, r in found if r is not None]
    if not known:
        return ("",)
    base = value
    long: list[str] = []
    for sign, read in known:
        text = f"{sign} {_text(read)}"
        if base is not None:
            text += f" ({difference(base, read.last)})"
        base = read.last if base is None else base
        long.append(text)
    return "  ".join(["", *long]), "  ".join(["", *(f"{sign} {_text(r)}" for sign, r in known)]), ""


def difference(base: float, other: float) -> str:
    """`other` minus `base` with its sign: +0.0066, −1.2e−3, 0."""
    change = other - base if math.isfinite(base) and math.isfinite(other) else math.nan
    if base == other or (math.isnan(base) and math.isnan(other)):
        return "±0"
    if math.isnan(change):
        return fmt.NA
    return f"{'+' if change > 0 else ''}{fmt.number(change, 3)}"


def _text(read: Readout) -> str:
    return fmt.number(read.last)
