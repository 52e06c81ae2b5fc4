"""`inspector memory`: what training a model takes in memory, by optimizer and precision. Needs no device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspector.byte_sizes import GB, size_text
from inspector.cli.options import make_console, make_table
from inspector.files import anything_at
from inspector.floats import significant
from inspector.layout import Param
from inspector.memory_bill import (
    DEVICE_GB,
    KINDS,
    LEFT_OUT,
    PRECISIONS,
    Bill,
    Shapes,
    bills_of,
    check_sharding,
    parse_count,
    shapes_of,
    shapes_of_count,
)
from inspector.preset import GPT_116M, gpt_116m_params
from inspector.session.tensorfile import FLOAT_TYPES, TensorFile
from inspector.sources.open import open_source


@dataclass(frozen=True, slots=True)
class Model:
    """What is billed; `origin` says where the shapes come from."""

    shapes: Shapes
    origin: str


def describe(spec: str, *, devices: int, zero: int, precision: str | None) -> dict[str, Any]:
    """The document of --json; sizes in bytes, capacities of devices in GB of 10⁹ bytes."""
    check_sharding(devices, zero)
    model = find_model(spec)
    found = [b for b in bills_of(model.shapes) if precision in (None, b.precision.name)]
    return {
        "source": spec,
        "shapes": model.origin,
        "params": model.shapes.total(),
        "elements": sum(math.prod(shape) * n for (shape, _), n in model.shapes.items()),
        "devices": devices,
        "zero": zero,
        "gb_bytes": GB,
        "left_out": LEFT_OUT,
        "precisions": {p.name: p.says for p in PRECISIONS},
        "bills": [_row(b, devices, zero) for b in found],
    }


def find_model(spec: str) -> Model:
    """The params of a source, of a safetensors file by its header alone, or of a number of elements."""
    count = None if anything_at(Path(spec)) else parse_count(spec)
    if count is not None:
        return Model(shapes_of_count(count), "taken as square matrices: only the number of elements is known")
    if spec == GPT_116M:
        return Model(shapes_of(gpt_116m_params()), "as laid out")
    path = Path(spec)
    if path.is_file() and path.suffix == ".safetensors":
        params = _of_header(path)
        if params:
            return Model(shapes_of(params), "as in the file's header")
    return Model(shapes_of(open_source(spec).params), "as laid out")


def _of_header(path: Path) -> tuple[Param, ...]:
    """The float tensors of a model's weights; none of a state file, which is a source."""
    entries = TensorFile(path).entries
    if any(name.startswith("w/") for name in entries):
        return ()
    return tuple(
        Param(name, each.shape)
        for name, each in entries.items()
        if each.dtype in (*FLOAT_TYPES, "F64", "F8_E4M3", "F8_E5M2")
    )


def _row(bill: Bill, devices: int, zero: int) -> dict[str, Any]:
    return {
        "optimizer": bill.optimizer,
        "also": list(bill.also),
        "precision": bill.precision.name,
        **{kind: bill.of(kind) for kind in KINDS},
        "states": {p.name: p.nbytes for p in bill.parts if p.kind == "state"},
        "total": bill.total,
        "bytes_per_element": bill.total / bill.elements if bill.elements else 0.0,
        "per_device": bill.on_each(devices, zero),
        "devices_needed": {str(gb): bill.devices_of(gb * GB, zero) for gb in DEVICE_GB},
    }


def show(document: dict[str, Any]) -> None:
    """Print the document for people; units are powers of ten."""
    console = make_console()
    several = document["devices"] > 1
    console.print(
        f"{document['elements']:,} elements in {document['params']:,} params, shapes {document['shapes']}."
    )
    table = make_table(
        "optimizer",
        "precision",
        right=(
            *KINDS, "total", "bytes/element", *(("on each",) if several else ()),
            *(f"{gb} GB" for gb in DEVICE_GB),
        ),
        title="Memory for training" + (f", on {document['devices']:,} devices" if several else ""),
    )  # fmt: skip
    for row in document["bills"]:
        table.add_row(
            ", ".join((row["optimizer"], *row["also"])),
            row["precision"],
            *(size_text(row[kind]) if row[kind] else "–" for kind in KINDS),
            size_text(row["total"]),
            significant(row["bytes_per_element"], 4),
            *((size_text(row["per_device"]),) if several else ()),
            *("none" if n is None else f"{n:,}" for n in row["devices_needed"].values()),
        )
    console.print(table)
    console.print(
        f"GB are 10⁹ bytes. The last columns: the fewest devices of that size in ZeRO stage {document['zero']}, "
        f"none where no number holds it. Left out: {document['left_out']}."
    )
