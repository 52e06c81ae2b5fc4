"""Addresses of elements as people type them: `name[1, 2]`, `name[1234]`, an index alone, or `#1234` in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from inspector.errors import UsageError
from inspector.layout import Layout, Param

_INDEXED = re.compile(r"(?P<name>.*?)\s*\[(?P<index>[^\[\]]*)\]\s*")
_NAMED_AT_MOST = 3
FORMS = "name[12, 3], name[1234], an index alone, or #1234 for an element of the mega-buffers"


def parse_address(text: str, layout: Layout, param: str = "") -> tuple[str, int]:
    """The param and the flat index in it; `param` is the one that an index alone is of. UsageError if there is none."""
    bare = text.strip()
    if not bare:
        raise UsageError(f"Type which element: {FORMS}.")
    if bare in layout:
        return bare, parse_index("0", layout[bare].param)
    if bare.startswith("#"):
        return _in_memory(bare, layout)
    found = _INDEXED.fullmatch(bare)
    # A name may hold brackets itself, so the longest one that there is comes first.
    if found is not None and found["name"]:
        name = _named(found["name"], layout)
        return name, parse_index(found["index"] or "0", layout[name].param)
    if re.fullmatch(r"[\[(]?[\d\s,;+-]*[\])]?", bare):
        if param not in layout:
            raise UsageError(f"An index alone is of the param that is selected, and none is: {FORMS}.")
        return param, parse_index(bare, layout[param].param)
    return _named(bare, layout), 0


def parse_index(text: str, param: Param) -> int:
    """A flat element from "1234" or a multi-index "12, 3" or "[12, 3]"; UsageError if there is none."""
    bare = text.strip().strip("[]()")
    parts = [p.strip() for p in bare.replace(";", ",").split(",")]
    try:
        numbers = [int(p) for p in parts]
    except ValueError:
        raise UsageError(f"{text.strip()!r} is not an index: write 1234 or 12, 3.") from None
    if len(numbers) == 1:
        flat = numbers[0]
    elif len(numbers) == len(param.shape):
        for number, extent in zip(numbers, param.shape, strict=True):
            if not 0 <= number < extent:
                shape = " × ".join(f"{n:,}" for n in param.shape)
                raise UsageError(f"{number:,} is outside 0 to {extent - 1:,}: the shape is {shape}.")
        flat = int(np.ravel_multi_index(tuple(numbers), param.shape))
    else:
        raise UsageError(f"{param.name} has {_counted(len(param.shape), 'dimension')}, not {len(numbers)}.")
    if not 0 <= flat < param.numel:
        elements = _counted(param.numel, "element")
        raise UsageError(f"There is no element {flat:,}: {param.name} has {elements}.")
    return flat


def address(param: Param, index: int) -> str:
    """An element as `parse_address` reads it: "h.0.attn.qkv.weight[3, 17]"; the name alone of a scalar."""
    if not param.shape:
        return param.name
    at = np.unravel_index(index, param.shape) if param.numel else (index,)
    return f"{param.name}[{', '.join(str(int(i)) for i in at)}]"


def _in_memory(text: str, layout: Layout) -> tuple[str, int]:
    try:
        element = int(text[1:].replace(",", "").replace("_", ""))
    except ValueError:
        raise UsageError(f"{text!r} is no place in memory: write # and a number, as in #1234.") from None
    segment = layout.at(element)
    if segment is None:
        last = layout.padded_elements - 1
        where = "in a gap between params" if 0 <= element <= last else f"outside 0 to {last:,}"
        raise UsageError(f"Element {element:,} of the mega-buffers lies {where}: there is no param.")
    return segment.name, element - segment.offset


def _named(text: str, layout: Layout) -> str:
    if text in layout:
        return text
    near = near_names(text, (s.name for s in layout))
    if len(near) == 1:
        return near[0]
    if near:
        shown = ", ".join(near[:_NAMED_AT_MOST])
        raise UsageError(
            f"{len(near):,} params have {text!r} in their names: {shown}{', …' if len(near) > 3 else ''}."
        )
    raise UsageError(f"There is no param {text!r} here: write {FORMS}.")


def near_names(text: str, names: Iterable[str]) -> list[str]:
    """The names that hold `text`, whatever the case; those that end with it alone, where there are any."""
    wanted = text.lower()
    found = [name for name in names if wanted in name.lower()]
    return [name for name in found if name.lower().endswith(wanted)] or found


def _counted(value: int, noun: str) -> str:
    return f"{value:,} {noun}{'' if value == 1 else 's'}"
