"""Which processes keep which part of a param, in words. No Qt."""

from __future__ import annotations

import math
from collections.abc import Sequence

from inspector.ranks import Held
from inspector.ui import format as fmt

LISTED = 16
"""So many parts are listed; the others are counted."""


def holders(held: Sequence[Held]) -> int:
    """How many processes keep any of it."""
    return sum(math.prod(each.shape) > 0 for each in held)


def parts_text(held: Sequence[Held]) -> str:
    """In a cell: "4 × 32 rows", "rows 4 + 3", "4 parts", "rank 1", "2 copies", and copies of parts as "2 × 2 parts"."""
    there = [each for each in held if math.prod(each.shape) > 0]
    boxes = list(dict.fromkeys((each.offset, each.shape) for each in there))
    if not there:
        return ""
    copies = len(there) // len(boxes)
    if len(boxes) == 1:
        return f"rank {there[0].rank}" if copies == 1 else f"{copies:,} copies"
    beside = f"{copies:,} copies of " if copies > 1 else ""
    if _along_rows(boxes):
        rows = [shape[0] for _, shape in boxes]
        if len(set(rows)) == 1:
            return f"{beside}{len(rows):,} × {fmt.plural(rows[0], 'row')}"
        if len(rows) <= 4:
            return f"{beside}rows {' + '.join(f'{n:,}' for n in rows)}"
        return f"{beside}{len(rows):,} × up to {fmt.plural(max(rows), 'row')}"
    return f"{beside}{len(boxes):,} parts"


def parts_list(held: Sequence[Held]) -> str:
    """A line for each process: which rows, or which box, it keeps."""
    lines = [f"rank {each.rank}: {_part_text(each)}" for each in held[:LISTED]]
    if len(held) > LISTED:
        lines.append(f"and {len(held) - LISTED:,} more ranks")
    return "\n".join(lines)


def _part_text(each: Held) -> str:
    if not math.prod(each.shape):
        return "nothing"
    if not each.shape:
        return "the scalar"
    if not any(each.offset[1:]):
        first, last = each.offset[0], each.offset[0] + each.shape[0] - 1
        rows = f"row {first:,}" if first == last else f"rows {first:,} to {last:,}"
        return (
            f"{rows} of shape {fmt.shape(each.shape)}"
            if len(each.shape) > 1
            else rows.replace("row", "element")
        )
    ranges = (f"{at:,} to {at + size - 1:,}" for at, size in zip(each.offset, each.shape, strict=True))
    return f"elements [{', '.join(ranges)}]"


def _along_rows(boxes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> bool:
    return len({(offset[1:], shape[1:]) for offset, shape in boxes}) == 1
