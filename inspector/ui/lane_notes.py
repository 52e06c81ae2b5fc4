"""What is to be said of lanes as they are written: what of them does nothing, what steps the params instead. No Qt."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from inspector.errors import UsageError
from inspector.layout import Layout
from inspector.optimizers import runs_as
from inspector.plan import Variant
from inspector.race import LaneSpec


class LaneNotes:
    """Worked out once for a layout and lanes, since it may take a look at every param."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._lanes: tuple[Variant, tuple[str, ...]] = Variant(), ()
        self._words = ""

    def words(self, texts: Iterable[str], layout: Layout, base: Variant) -> str:
        """Those of the lanes `texts`, which run as `base` says but for what they say; what is no lane yet has none."""
        lanes = base, tuple(texts)
        if layout is not self._layout or lanes != self._lanes:
            self._layout, self._lanes = layout, lanes
            self._words = " · ".join(dict.fromkeys(_notes(lanes[1], layout, base)))
        return self._words


def _notes(texts: Iterable[str], layout: Layout, base: Variant) -> list[str]:
    found = []
    for text in texts:
        with suppress(UsageError):
            lane = LaneSpec.from_text(text)
            if idle := lane.idle_words(base):
                found.append(idle)
            if instead := runs_as(lane.variant_of(base), (segment.param for segment in layout)):
                found.append(f"{lane.optimizer} runs {instead}")
    return found
