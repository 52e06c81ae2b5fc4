"""`inspector layout`: params, blocks, pages and the plan, without a device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from inspector.cli.options import make_console, make_table
from inspector.errors import UsageError
from inspector.layout import F32_BYTES, make_layout
from inspector.optimizers import optimizer_of, plan_step
from inspector.param_hyper import segment_classes
from inspector.plan import Limits, Variant, required_placement
from inspector.sources.base import Source, remarks_of
from inspector.sources.checkpoint.source import Checkpoint
from inspector.stores import MOMENTS


def describe(
    source: Source, variant: Variant, *, align: int | None, max_binding: int | None, max_buffer: int | None
) -> dict[str, Any]:
    """The document of --json; offsets and sizes in bytes."""
    defaults = Limits()
    needed = required_placement(variant)
    align = needed.align * F32_BYTES if align is None else align
    device_align = min(align, defaults.min_storage_buffer_offset_alignment)
    binding = _positive("--max-binding", max_binding, defaults.max_storage_buffer_binding_size)
    buffer = _positive("--max-buffer", max_buffer, None)
    placement = required_placement(variant, device_align)
    if source.hyper.per_param is not None and variant.kernel == "8bit":
        placement = replace(placement, bound_alone=True)
    layout = make_layout(source.params, align_bytes=align, max_buffer_bytes=buffer, placement=placement)
    limits = Limits(
        max_storage_buffer_binding_size=binding,
        max_buffer_size=buffer or max(layout.padded_elements * F32_BYTES, defaults.max_buffer_size),
        min_storage_buffer_offset_alignment=device_align,
    )
    plan = plan_step(layout, limits, variant, segment_classes(layout, source.hyper))
    moments = sum(lane in MOMENTS for lane in plan.lanes)
    stored = source.stored if isinstance(source, Checkpoint) else {}
    return {
        "remarks": list(remarks_of(source, steps=False)),
        "params": [
            {
                "name": s.name,
                "shape": list(s.param.shape),
                "numel": s.numel,
                "block": s.block,
                "group": s.param.group,
                "offset": s.offset * F32_BYTES,
                "nbytes": s.numel * F32_BYTES,
                "state": s.state,
                # Of both moments; an optimizer may keep one of them, or none.
                "state_bytes": s.state_bytes * moments // len(MOMENTS),
                "optimizer": optimizer_of(variant, s.param).name,
                **({"stored": stored[s.name]} if s.name in stored else {}),
            }
            for s in layout
        ],
        "states": [
            {
                "name": each.name,
                "param": each.param,
                "shape": list(each.shape),
                "buffer": each.buffer,
                "offset": each.start * F32_BYTES,
                "nbytes": each.elements * F32_BYTES,
            }
            for each in plan.states
        ],
        "elements": layout.elements,
        "padded_elements": layout.padded_elements,
        "blocks": [
            {
                "name": b.name,
                "params": len(b.segments),
                "offset": b.start * F32_BYTES,
                "end": b.stop * F32_BYTES,
                "elements": sum(s.numel for s in b.segments),
            }
            for b in layout.blocks
        ],
        "pages": [
            {"index": p.index, "offset": p.start * F32_BYTES, "nbytes": (p.stop - p.start) * F32_BYTES}
            for p in layout.pages
        ],
        "dispatches": [
            {
                "kernel": d.entry_point,
                "file": d.own.place if d.own else None,
                "label": d.label,
                "block": d.block,
                "groups": list(d.groups),
                "bindings": [
                    {
                        "slot": b.slot,
                        "name": b.name,
                        "buffer": b.buffer,
                        "offset": b.offset,
                        "size": b.size,
                        "access": b.access,
                    }
                    for b in d.bindings
                ],
            }
            for d in plan.dispatches
        ],
    }


def _positive(option: str, value: int | None, default: Any) -> Any:
    if value is not None and value <= 0:
        raise UsageError(f"{option} {value} is not a size in bytes: give a number above 0.")
    return default if value is None else value


def _stored_words(types: dict[str, str]) -> str:
    return ", ".join(f"{lane} {kind}" for lane, kind in types.items()) or "–"


def show(document: dict[str, Any]) -> None:
    """Print the document for people."""
    console = make_console()
    stored = any("stored" in p for p in document["params"])
    several = len({p["optimizer"] for p in document["params"]}) > 1
    table = make_table(
        "param",
        "shape",
        "block",
        "state",
        *(["optimizer"] if several else []),
        *(["in the file"] if stored else []),
        right=("elements", "offset (bytes)", "size (bytes)", "moments (bytes)"),
        title="Params",
    )
    for p in document["params"]:
        table.add_row(
            p["name"],
            str(p["shape"]),
            p["block"],
            p["state"],
            *([p["optimizer"]] if several else []),
            *([_stored_words(p.get("stored", {}))] if stored else []),
            f"{p['numel']:,}",
            f"{p['offset']:,}",
            f"{p['nbytes']:,}",
            f"{p['state_bytes']:,}",
        )
    console.print(table)
    padding = document["padded_elements"] - document["elements"]
    console.print(
        f"{document['elements']:,} elements in {len(document['params']):,} params, {padding:,} elements of padding, "
        f"{len(document['pages'])} page(s) of each mega-buffer."
    )
    if document["states"]:
        table = make_table(
            "state", "param", "shape", "buffer", right=("offset (bytes)", "size (bytes)"),
            title="States in shapes of their own",
        )  # fmt: skip
        for each in document["states"]:
            table.add_row(
                each["name"], each["param"], str(each["shape"]), each["buffer"], f"{each['offset']:,}",
                f"{each['nbytes']:,}",
            )  # fmt: skip
        console.print(table)
    table = make_table(
        "#",
        "dispatch",
        "block",
        "groups",
        "slot: buffer, offset + size (bytes)",
        title="Dispatches of a step",
    )
    for i, d in enumerate(document["dispatches"]):
        bindings = "\n".join(
            f"{b['slot']}: {b['name']} = {b['buffer']}, {b['offset']:,} + {b['size']:,} ({b['access']})"
            for b in d["bindings"]
        )
        table.add_row(str(i), d["label"], d["block"] or "–", "·".join(map(str, d["groups"])), bindings)
    console.print(table)
