"""What a session holds, as one document: for `inspector info`, and for scripts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from inspector.layout import F32_BYTES
from inspector.session.records import CAPTURE_KINDS, About
from inspector.settings import SETTING_NAMES

if TYPE_CHECKING:
    from inspector.session.reader import Session


def session_info(session: Session) -> dict[str, Any]:
    """What a session holds, in one document."""
    about = session.about
    device, variant = about.device, about.variant
    own = {"own": str(variant.own)} if variant.own else {}
    # Of an optimizer that is none of those here, the form of the kernels says nothing of what ran.
    foreign = {"optimizer": about.foreign} if about.foreign else {}
    names = [name for name in type(variant).__dataclass_fields__ if name != "own"]
    return {
        "path": str(session.path),
        "id": session.id,
        "source": about.source,
        "description": about.description,
        "device": {"name": device.name, "backend": device.backend, "software": device.software},
        "variant": {name: getattr(variant, name) for name in names} | own | foreign,
        "params": len(about.params),
        "elements": sum(p.numel for p in about.params),
        "layout": _layout(session),
        "parent": _parent(session.about),
        "origin": about.origin or None,
        "foreign": about.foreign or None,
        "unreplayable": about.unreplayable or None,
        "dtypes": dict(Counter(about.dtypes)) if about.dtypes else None,
        "rank": _rank(session.about),
        "ranks": _ranks(session),
        "added": [{"step": each.step, "params": each.params} for each in about.added],
        "groups": _groups(session.about),
        "steps": {"first": session.steps.start, "last": session.steps.stop - 1, "count": len(session.steps)},
        "captures": {kind: len(session.captures(kind)) for kind in CAPTURE_KINDS},
        "policy": about.policy,
        "stats": about.stats,
        "findings": len(session.findings()),
        "gaps": [str(note) for note in session.notes("gap")],
        "size": session.nbytes,
        "state": session.state,
        "ended_because": session.ended_because,
        "format": session.format,
        "software": about.software,
        "began": about.began,
    }


def how_to_go_on(source: str, path: object) -> str:
    """What goes on with the recording at `path`, which was interrupted, of a run of `source`."""
    if source == "pytorch":
        return f"record() with the path {path} goes on with it"
    return f"the same inspector run … --save {path} --resume goes on with it"


def _layout(session: Session) -> dict[str, Any] | None:
    """As the recording began; of one whose params grew, as it ended."""
    step, laid = None, session.about.layout
    if session.about.added and session.steps:
        step = session.steps.stop - 1
        laid = session.step(step).layout
    layout = session.layout(step)
    if layout is None or laid is None:
        return None
    return {
        "step": step,
        "align_bytes": layout.align * F32_BYTES,
        "max_binding_bytes": laid.limits.max_storage_buffer_binding_size,
        "max_buffer_bytes": laid.limits.max_buffer_size,
        "padded_elements": layout.padded_elements,
        "pages": [{"start": p.start, "stop": p.stop} for p in layout.pages],
        "blocks": [{"name": b.name, "start": b.start, "stop": b.stop} for b in layout.blocks],
        "params": [
            {"name": s.name, "offset": s.offset, "numel": s.numel, "block": s.block, "state": s.state}
            for s in layout
        ],
    }


def _rank(about: About) -> dict[str, int] | None:
    if about.rank is None:
        return None
    sharded = sum(shard is not None for shard in about.shards)
    return {"rank": about.rank, "of": about.world_size or 1, "sharded_params": sharded}


def _ranks(session: Session) -> list[dict[str, Any]] | None:
    return [
        {
            "rank": part.rank,
            "path": str(rank.path),
            "elements": part.elements,
            "last": part.last,
            "state": part.state,
            "ended_because": part.reason or None,
        }
        for part, rank in zip(session.rank_parts(), session.ranks, strict=True)
    ] or None


def _groups(about: About) -> list[dict[str, Any]] | None:
    """The classes of params as the recording began, None where all share their settings."""
    own = about.hyper.per_param
    if own is None:
        return None
    counts = Counter(own.of)
    return [
        {**{name: getattr(each, name) for name in SETTING_NAMES}, "params": counts[i]}
        for i, each in enumerate(own.classes)
        if counts[i]
    ]


def _parent(about: About) -> dict[str, Any] | None:
    parent = about.parent
    if parent is None:
        return None
    steps = {"first": parent.first, "last": parent.last}
    return {"path": parent.path, "id": parent.id, "steps": steps, "changes": dict(parent.changes)}
