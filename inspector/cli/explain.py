"""`inspector explain`: one element's update, line by line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inspector.cli.at_step import find_param, stepper_at
from inspector.cli.options import as_dict, make_console, make_table
from inspector.cli.shaders import shaders_of
from inspector.errors import UsageError
from inspector.floats import shortest, significant
from inspector.gpu.explain import explain_element
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Variant
from inspector.settings import SETTING_NAMES, Settings
from inspector.sources.base import Source


def describe(
    source: Source,
    hyper: Hyper,
    variant: Variant,
    *,
    adapter: str | None,
    param: str,
    index: str,
    step: int | None,
    given: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The document of --json. `given` are the parts of `variant` that hold over what was recorded."""
    tensor = find_param(source, param)
    flat = flat_index(index, tensor)
    with stepper_at(
        source, hyper, variant, given=given or {}, adapter=adapter, step=step, what="explained"
    ) as (stepper, used):
        return _document(source, stepper, stepper.plan.variant, tensor, flat, used)


def _document(
    source: Source, stepper: GpuStepper, variant: Variant, tensor: Param, flat: int, used: Hyper
) -> dict[str, Any]:
    param = tensor.name
    found = explain_element(stepper, used, param, flat)
    dispatch = found.dispatch
    return {
        "source": source.name,
        "param": param,
        "index": flat,
        "multi_index": [int(i) for i in np.unravel_index(flat, tensor.shape)] if tensor.shape else [],
        "step": found.step,
        "t": found.t,
        "settings": None if found.settings is None else _settings(found.settings, tensor),
        "block": dispatch.block,
        "element": found.element,
        "dispatch": {"index": dispatch.index, "label": dispatch.label, "kernel": dispatch.entry_point},
        "own_kernel": dispatch.own.place if dispatch.own else None,
        "shaders": shaders_of(variant),
        "workgroup": list(found.workgroup),
        "thread": found.thread,
        "lane": found.lane,
        "bindings": [
            {"slot": b.slot, "name": b.name, "buffer": b.buffer, "offset": b.offset, "size": b.size}
            for b in dispatch.bindings
        ],
        "before": found.before,
        "after": found.after,
        "lines": [
            {
                "name": line.name,
                "formula": line.formula,
                "f32": line.f32,
                "bits": f"{int(np.float32(line.f32).view(np.uint32)):08x}",
                "f64": line.f64,
                "ulp": line.ulp,
            }
            for line in found.lines
        ],
        "state": stepper.layout[param].state,
        "coded": [as_dict(line) for line in found.coded],
        "agrees_with_kernel": found.agrees,
    }


def _settings(own: Settings, tensor: Param) -> dict[str, Any]:
    """What the param takes the step with where it has settings of its own."""
    return {"group": tensor.group, **{name: getattr(own, name) for name in SETTING_NAMES}}


def flat_index(text: str, param: Param) -> int:
    """A flat index, or one a dimension with commas between them, as a flat index into `param`."""
    try:
        parts = [int(part) for part in text.strip().strip("[]()").split(",")]
    except ValueError:
        raise UsageError(
            f"--index {text!r} is no index: give a number, or one a dimension as in 12,3."
        ) from None
    limits = param.shape if len(parts) > 1 else (param.numel,)
    if len(parts) != len(limits) or any(not 0 <= i < n for i, n in zip(parts, limits, strict=True)):
        raise UsageError(
            f"--index {text} lies outside {param.name} of shape {list(param.shape)} ({param.numel:,} elements)."
        )
    return int(np.ravel_multi_index(parts, limits))


def show(document: dict[str, Any]) -> None:
    """Print the document for people."""
    console = make_console()
    where = f"{document['param']}{list(document['multi_index'])}"
    d = document["dispatch"]
    console.print(
        f"{where}: element {document['element']:,} of the mega-buffer, block {document['block']}, "
        f"step {document['step']}",
        markup=False,
    )
    console.print(
        f"dispatch {d['index']} {d['label']}, workgroup {document['workgroup']}, thread {document['thread']}, "
        f"lane {document['lane']} of its vec4",
        markup=False,
    )
    own = document["settings"]
    if own is not None:
        words = ", ".join(f"{name} {shortest(own[name])}" for name in SETTING_NAMES)
        console.print(f"settings of its own, group {own['group']}: {words}; its step t = {document['t']:,}")
    for lane, value in document["before"].items():
        bound = [b for b in document["bindings"] if b["name"] in (lane, f"{lane}_packed", f"{lane}_scale")]
        places = ", ".join(
            f"slot {b['slot']} {b['name']} = {b['buffer']}[{b['offset']:,} + {b['size']:,} bytes]"
            for b in bound
        )
        console.print(f"  {places}, before: {lane} = {shortest(value)}", markup=False)
    table = make_table("line", "formula", "bits", right=("float32 on the GPU", "float64", "ULP"))
    for line in document["lines"]:
        table.add_row(
            line["name"],
            line["formula"],
            line["bits"],
            shortest(line["f32"]),
            shortest(line["f64"]),
            f"{line['ulp']:.2f}",
        )
    console.print(table)
    if document["coded"]:
        table = make_table(
            "kept in 8 bits", right=("value", "code", "scale of its block", "stands for", "error")
        )
        for c in document["coded"]:
            error = float(c["stored"]) - float(c["value"])
            table.add_row(
                c["lane"],
                shortest(c["value"]),
                str(c["code"]),
                shortest(c["scale"]),
                shortest(c["stored"]),
                significant(error, 3),
            )
        console.print(table)
    same = document["agrees_with_kernel"]
    if document["own_kernel"] is not None:
        _show_own(document)
        return
    console.print(
        (
            "w is bit for bit what the dispatch wrote, m and v have the codes it wrote."
            if document["coded"]
            else f"{_kept(document)} bit for bit what the dispatch wrote."
        )
        if same
        else "The dispatch wrote other bits than these lines: the compiler arranged its arithmetic differently."
    )


def _kept(document: dict[str, Any]) -> str:
    """The lanes that the update writes, as the subject of a sentence."""
    names = [lane for lane in ("w", "m", "v") if lane in document["before"]]
    return f"{', '.join(names[:-1])} and {names[-1]} are" if len(names) > 1 else f"{names[0]} is"


def _show_own(document: dict[str, Any]) -> None:
    """Say how what the user's kernel wrote compares with the lines, which are the built-in kernel's."""
    console = make_console()
    name = f"own kernel {document['dispatch']['kernel']} from {document['own_kernel']}"
    if document["agrees_with_kernel"]:
        console.print(f"The {name} wrote w, m and v bit for bit as in these lines.", soft_wrap=True)
        return
    at = {line["name"]: line["f32"] for line in document["lines"]}
    console.print(f"The {name} wrote other bits than these lines of the built-in kernel:", soft_wrap=True)
    for lane in ("w", "m", "v"):
        wrote, expected = document["after"][lane], at[lane]
        same = _bits(wrote) == _bits(expected)
        console.print(
            f"  {lane}: {shortest(wrote)}{' as here' if same else f', here {shortest(expected)}'}",
            soft_wrap=True,
        )


def _bits(value: np.float32) -> int:
    return int(np.float32(value).view(np.uint32))
