"""The layout file of a dump: which params lie where in which raw buffers, before and after which steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from inspector.codecs import BLOCK, CODECS, Codec
from inspector.errors import UsageError
from inspector.floats import parse_number
from inspector.hyper import HYPER_NAMES, NUMERICS, Hyper, Numerics
from inspector.layout import Param
from inspector.sources.checkpoint.files import read_json

FORMAT = "optimizer-dump"
VERSION = 1
DumpType = Literal["f32", "f16", "u8"]
Endian = Literal["little", "big"]
ENDIANS: tuple[Endian, ...] = ("little", "big")
"""The order of the bytes of a float; a GPU's is little. Packed codes are bytes, and have none."""
SLACK = 16_384
"""Elements that a buffer may have beyond its last param and be as long as it should: the widest gap that the alignment
of bindings makes, in a buffer of scales. They have to be zero."""
ITEM_BYTES: dict[str, int] = {"f32": 4, "f16": 2, "u8": 1}
USUAL_TYPES: dict[str, DumpType] = {
    "w": "f32", "g": "f32", "m": "f32", "v": "f32", "w_f16": "f16",
    "m_packed": "u8", "v_packed": "u8", "m_scale": "f32", "v_scale": "f32",
}  # fmt: skip
"""The buffers of a step, with the type each has unless the layout says otherwise."""
CODED = ("m_packed", "v_packed", "m_scale", "v_scale")
MAX_STEP = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Piece:
    """A raw file, or the part of it from byte `offset` on."""

    path: Path
    dtype: DumpType
    offset: int = 0
    endian: Endian = "little"


Buffers = Mapping[str, tuple[Piece, ...]]
"""The files of each buffer; several are pages that follow each other."""


@dataclass(frozen=True, slots=True)
class DumpStep:
    """One step: buffers as they were before it (with its gradients) and after it, and what the engine said of it."""

    step: int
    hyper: Hyper
    before: Buffers
    after: Buffers
    loss: float | None
    grad_norm: float | None
    clip_scale: float | None


@dataclass(frozen=True, slots=True)
class DumpLayout:
    """`offsets` has the first element of each param in the buffers, in the order of `params`."""

    path: Path
    params: tuple[Param, ...]
    offsets: tuple[int, ...]
    steps: tuple[DumpStep, ...]
    optimizer: str
    codec: Codec
    numerics: Numerics
    engine: str
    excess: tuple[str, ...] = ()
    """Sentences on buffers that go on beyond their last param, the first of each kind."""


def read_layout(path: Path) -> DumpLayout:
    """UsageError, in a sentence that names the entry, for what is no layout."""
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UsageError(
            f'{path} is no layout of a dump: it has to be a JSON object with "format": "{FORMAT}", "params" and '
            '"buffers" or "steps".'
        )
    if document.get("version", VERSION) != VERSION:
        raise UsageError(
            f"{path} is of version {document['version']!r}; this program reads version {VERSION}."
        )
    params, offsets = _params(document.get("params"), path)
    hyper = _hyper(document.get("hyper"), Hyper(), f"{path}: hyper")
    codec = document.get("codec", "linear")
    known = next((each for each in CODECS if each == codec), None)
    if known is None:
        raise UsageError(f"{path}: its codec is {codec!r}; it has to be one of {', '.join(CODECS)}.")
    optimizer = document.get("optimizer", "adamw")
    if optimizer not in ("adamw", "adam-l2"):
        raise UsageError(f"{path}: its optimizer is {optimizer!r}; it has to be adamw or adam-l2.")
    numerics = next((each for each in NUMERICS if each == document.get("numerics", "published")), None)
    if numerics is None:
        raise UsageError(
            f"{path}: its numerics are {document['numerics']!r}; it has to be {' or '.join(NUMERICS)}."
        )
    endian: Endian | None = next((each for each in ENDIANS if each == document.get("endian", "little")), None)
    if endian is None:
        raise UsageError(
            f"{path}: its endian is {document['endian']!r}; it has to be little, as GPUs are, or big."
        )
    steps = _steps(document, hyper, path, endian)
    layout = DumpLayout(
        path, params, offsets, steps, optimizer, known, numerics, str(document.get("engine", ""))[:80]
    )
    excess: dict[str, str] = {}
    for step in steps:
        _check_sizes(layout, step, excess)
    return replace(layout, excess=tuple(excess.values()))


def _params(given: Any, path: Path) -> tuple[tuple[Param, ...], tuple[int, ...]]:
    if not isinstance(given, list) or not given:
        raise UsageError(
            f'{path} lists no params: give "params": [{{"name": …, "shape": […], "offset": …}}, …].'
        )
    params, offsets = [], []
    for i, each in enumerate(given):
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str) or not name:
            raise UsageError(f"{path}: param {i} has no name.")
        shape, offset, block = each.get("shape"), each.get("offset"), each.get("block")
        if not isinstance(shape, list) or not all(_whole(n) for n in shape):
            raise UsageError(f"{path}: the shape of {name!r} is {shape!r}; give a list of whole numbers.")
        if not _whole(offset):
            raise UsageError(f"{path}: the offset of {name!r} is {offset!r}; give its first element, from 0.")
        if block not in (None, "wd", "no_wd"):
            raise UsageError(f"{path}: the block of {name!r} is {block!r}; it is wd or no_wd.")
        params.append(Param(name, tuple(shape), None if block is None else block == "wd"))
        offsets.append(offset)
    names = [param.name for param in params]
    if len(set(names)) != len(names):
        raise UsageError(f"{path}: two params are named {next(n for n in names if names.count(n) > 1)!r}.")
    last = 0, ""
    for offset, param in sorted(zip(offsets, params, strict=True), key=lambda each: each[0]):
        if param.numel and offset < last[0]:
            raise UsageError(
                f"{path}: {param.name!r} begins at element {offset:,}, before {last[1]!r} ends at {last[0]:,}."
            )
        last = (offset + param.numel, param.name) if param.numel else last
    return tuple(params), tuple(offsets)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40


def _hyper(given: Any, base: Hyper, where: str) -> Hyper:
    if given is None:
        return base
    if not isinstance(given, dict):
        raise UsageError(f"{where} is no object of settings.")
    values = {name: getattr(base, name) for name in HYPER_NAMES}
    for name, value in given.items():
        if name not in values:
            raise UsageError(f"{where} has {name!r}; settings are {', '.join(HYPER_NAMES)}.")
        # JSON has no Infinity: what JavaScript writes of it is null.
        number = math.inf if value is None and name == "max_grad_norm" else _number(value)
        if number is None:
            raise UsageError(f"{where}: {name} is {value!r}, which is not a number.")
        values[name] = number
    return Hyper(**values)


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            return parse_number(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _steps(document: Mapping[str, Any], hyper: Hyper, path: Path, endian: Endian) -> tuple[DumpStep, ...]:
    given = document.get("steps")
    if given is None:
        t = document.get("t", 0)
        if not _whole(t):
            raise UsageError(f"{path}: t is {t!r}; it is the number of finished steps.")
        given = [
            {
                "t": t + 1, "before": document.get("buffers"), "after": document.get("after"),
                **{name: document.get(name) for name in ("loss", "grad_norm", "clip_scale")},
            }
        ]  # fmt: skip
    if not isinstance(given, list) or not given:
        raise UsageError(
            f'{path} has no steps: give "buffers", or "steps": [{{"t": 1, "before": {{…}}}}, …].'
        )
    found: list[DumpStep] = []
    for i, each in enumerate(given):
        step: Any = each.get("t") if isinstance(each, dict) else None
        if not _whole(step) or not 1 <= step <= MAX_STEP:
            raise UsageError(f"{path}: the t of its step {i} is {step!r}: steps count from 1.")
        if found and step != found[-1].step + 1:
            raise UsageError(
                f"{path}: step {step:,} comes after step {found[-1].step:,}: steps have to follow each other; make a "
                "dump of each stretch."
            )
        hyper = _hyper(each.get("hyper"), hyper, f"{path}: hyper of step {step}")
        before, after = (
            _buffers(each.get(when), path, f"step {step} {when}", endian) for when in ("before", "after")
        )
        found.append(DumpStep(step, hyper, before, after, *(
            _said(each.get(name), path, name) for name in ("loss", "grad_norm", "clip_scale")
        )))  # fmt: skip
    if not any(lane in found[0].before for lane in ("w", "w_f16")):
        raise UsageError(
            f'{path}: step {found[0].step} has no weights before it: give the file of "w", or of "w_f16".'
        )
    return tuple(found)


def _said(value: Any, path: Path, name: str) -> float | None:
    number = None if value is None else _number(value)
    if value is not None and number is None:
        raise UsageError(f"{path}: {name} is {value!r}, which is not a number.")
    return number


def _buffers(given: Any, path: Path, where: str, endian: Endian) -> dict[str, tuple[Piece, ...]]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise UsageError(f"{path}: {where} is no object from buffers to files.")
    found = {}
    for lane, value in given.items():
        if lane not in USUAL_TYPES:
            raise UsageError(f"{path}: {where} has the buffer {lane!r}; there are {', '.join(USUAL_TYPES)}.")
        pieces = value if isinstance(value, list) else [value]
        found[lane] = tuple(_piece(each, lane, path, where, endian) for each in pieces)
    for lane in "mv":
        parts = [name for name in (f"{lane}_packed", f"{lane}_scale") if name in found]
        if len(parts) == 1:
            raise UsageError(
                f"{path}: {where} has {parts[0]} alone: 8-bit state needs {lane}_packed and {lane}_scale."
            )
    return found


def _piece(value: Any, lane: str, path: Path, where: str, endian: Endian) -> Piece:
    entry = {"file": value} if isinstance(value, str) else value
    file = entry.get("file") if isinstance(entry, dict) else None
    if not isinstance(file, str) or not file or Path(file).is_absolute() or ".." in Path(file).parts:
        raise UsageError(
            f"{path}: {where} names the file {file!r} for {lane}: give one beside the layout or below it."
        )
    dtype: Any = entry.get("dtype", USUAL_TYPES[lane])
    offset: Any = entry.get("offset", 0)
    usual = USUAL_TYPES[lane]
    allowed: Sequence[str] = ("u8",) if usual == "u8" else ("f32", "f16")
    if dtype not in allowed:
        raise UsageError(
            f"{path}: {where}: the dtype of {lane} is {dtype!r}; it may be {' or '.join(allowed)}."
        )
    if not _whole(offset):
        raise UsageError(f"{path}: {where}: the offset of {lane} is {offset!r}; give bytes.")
    return Piece(path.parent / file, dtype, offset, endian)


def _something_in(piece: Piece, last: int) -> bool:
    """True where one of the `last` elements of a piece, few, is not zero."""
    if last < 1:
        return False
    size = piece.path.stat().st_size
    with piece.path.open("rb") as file:
        file.seek(max(size - last * ITEM_BYTES[piece.dtype], piece.offset))
        return any(file.read())


def _check_sizes(layout: DumpLayout, step: DumpStep, excess: dict[str, str]) -> None:
    """UsageError where a buffer ends before its params do; one that goes on is told in `excess`, once a buffer."""
    ends = [offset + p.numel for offset, p in zip(layout.offsets, layout.params, strict=True)]
    last = max(range(len(ends)), key=lambda i: ends[i])
    for when, buffers in (("before", step.before), ("after", step.after)):
        if any(lane in CODED for lane in buffers):
            odd = next(
                (i for i, at in enumerate(layout.offsets) if at % BLOCK and layout.params[i].numel), None
            )
            if odd is not None:
                raise UsageError(
                    f"{layout.path}: {layout.params[odd].name!r} begins at element {layout.offsets[odd]:,}, within a "
                    f"block of {BLOCK}: no block of 8-bit state may hold two params."
                )
        for lane, pieces in buffers.items():
            held = 0
            for piece in pieces:
                try:
                    size = piece.path.stat().st_size
                except OSError as error:
                    raise UsageError(
                        f"{layout.path} names {piece.path.name} for {lane} {when} step {step.step}, which cannot be "
                        f"read: {error.strerror or error}."
                    ) from None
                if not piece.path.is_file():
                    raise UsageError(
                        f"{layout.path} names {piece.path.relative_to(layout.path.parent)} for {lane} {when} step "
                        f"{step.step}, which is no file."
                    )
                if (size - piece.offset) % ITEM_BYTES[piece.dtype] or size < piece.offset:
                    raise UsageError(
                        f"{piece.path} has {size:,} bytes, which from byte {piece.offset:,} on are no whole "
                        f"{piece.dtype}."
                    )
                held += (size - piece.offset) // ITEM_BYTES[piece.dtype]
            needed = math.ceil(ends[last] / BLOCK) if lane.endswith("_scale") else ends[last]
            if held < needed:
                raise UsageError(
                    f"{pieces[-1].path} is cut off: {lane} {when} step {step.step} has {held:,} elements, and "
                    f"{layout.params[last].name!r} ends at {needed:,}."
                )
            if lane not in excess and (held > needed + SLACK or _something_in(pieces[-1], held - needed)):
                excess[lane] = (
                    f"{pieces[-1].path.name} is longer than the layout: {lane} {when} step {step.step} has {held:,} "
                    f"elements, and the last param, {layout.params[last].name!r}, ends at {needed:,}. What lies beyond "
                    "is left out: see that no param is missing and that the shapes are those of this buffer."
                )
