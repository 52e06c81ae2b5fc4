"""A dump as a source: the raw mega-buffers of another engine, one step or many, with a layout file in JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.codecs import BLOCK, Encoded, Moments8bit, Which, blocks, decode, zero_code
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.plan import Variant
from inspector.schedule import Schedule
from inspector.sources.base import EndOfSourceError, ReadWeights
from inspector.sources.dump_layout import Buffers, DumpStep, Piece, read_layout
from inspector.stepping import HostGradients, HostState
from inspector.stores import MOMENTS

_NUMPY = {"f32": "f4", "f16": "f2", "u8": "u1"}
_ORDERS = {"little": "<", "big": ">"}
LOOKED_AT = 4096
"""Weights by which it is seen that bytes are in the other order."""
CHECKED_ELEMENTS = 1 << 26
"""Of a mirror up to so many elements each is held against its weight as the dump is opened."""


class Dump:
    """The steps of a dump in order. What each ran with is as the layout says of it."""

    def __init__(self, path: Path, *, schedule: Schedule | None = None) -> None:
        self._layout = read_layout(path)
        first = self._layout.steps[0]
        self.name = str(path)
        self.params = self._layout.params
        self.hyper = first.hyper
        self.recorded_schedule = Schedule()
        self.schedule = schedule or self.recorded_schedule
        self.finished_steps = first.step - 1
        self.origin = self._layout.engine or "dump"
        self.unreplayable = ""
        self._by_step = {each.step: each for each in self._layout.steps}
        given = [each.step for each in self._layout.steps if "g" in each.before]
        self.last_step: int | None = max(given, default=self.finished_steps)
        coded = "m_packed" in first.before
        half = "w_f16" in first.before
        self.form: Variant | None = Variant(
            optimizer=self._layout.optimizer,
            numerics=self._layout.numerics,
            kernel="8bit" if coded else "f16" if half else "f32",
            codec=self._layout.codec if coded else "linear",
            small_state="8bit" if coded else "f32",
        )
        self.remarks = tuple(self._remarks())
        elements = sum(p.numel for p in self.params)
        steps = f"steps {first.step:,} to {self.last_step:,}" if given else "no gradients"
        self.description = f"{elements:,} elements in {len(self.params):,} params, {steps} as dumped"

    @property
    def steps(self) -> tuple[DumpStep, ...]:
        """All that the layout lists, in order."""
        return self._layout.steps

    def initial_state(self) -> HostState:
        """w, m, v before the first step as float32, 8-bit codes byte for byte beside their values."""
        return self.state(self._layout.steps[0].before, self.finished_steps)

    def state(self, buffers: Buffers, finished_steps: int) -> HostState:
        """w, m and v as they lie in `buffers`."""
        w = self._lane(buffers["w" if "w" in buffers else "w_f16"])
        moments: dict[str, dict[str, F32Array]] = {lane: {} for lane in "mv"}
        coded: dict[str, Moments8bit] = {}
        for lane in "mv":
            if lane in buffers:
                moments[lane] = self._lane(buffers[lane])
        if "m_packed" in buffers and "v_packed" in buffers:
            codes = {which: self._codes(buffers, which) for which in MOMENTS}
            for name in codes["m"]:
                coded[name] = Moments8bit(self._layout.codec, codes["m"][name], codes["v"][name])
            for which in MOMENTS:
                for param in self.params:
                    if (own := codes[which].get(param.name)) is not None:
                        decoded = decode(self._layout.codec, which, own.codes, own.scales)
                        moments[which][param.name] = np.asarray(decoded, np.float32)[: param.numel]
        return HostState(w, moments["m"], moments["v"], finished_steps, coded)

    def state_before(self, step: int) -> HostState | None:
        """The state before a step, None where it was not dumped."""
        found = self._by_step.get(step)
        whole = found is not None and ("w" in found.before or "w_f16" in found.before)
        return self.state(found.before, step - 1) if found is not None and whole else None

    def state_after(self, step: int) -> HostState | None:
        """The state after a step, or before the next; None where neither was dumped."""
        found = self._by_step.get(step)
        if found is not None and ("w" in found.after or "w_f16" in found.after):
            return self.state(found.after, step)
        return self.state_before(step + 1)

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        """Those that were dumped, whatever the weights are; EndOfSourceError where there are none."""
        found = self._by_step.get(step)
        if found is None or "g" not in found.before:
            raise EndOfSourceError(f"{self.name} holds no gradients of step {step:,}.")
        return HostGradients(self._lane(found.before["g"]), found.loss)

    def recorded_hyper(self, step: int) -> Hyper | None:
        """What a step ran with, None for one that was not dumped."""
        found = self._by_step.get(step)
        return None if found is None else found.hyper

    def recorded_variant(self, step: int) -> Variant | None:
        """The form that a step ran in, as its buffers say."""
        return self.form if step in self._by_step else None

    def _lane(self, pieces: tuple[Piece, ...]) -> dict[str, F32Array]:
        whole = [_mapped(piece) for piece in pieces]
        return {
            param.name: np.asarray(_cut(whole, offset, offset + param.numel), np.float32)
            for param, offset in zip(self.params, self._layout.offsets, strict=True)
        }

    def _codes(self, buffers: Buffers, which: Which) -> dict[str, Encoded]:
        kind: Any = np.uint8 if self._layout.codec == "dynamic" else np.int8
        codes = [_mapped(piece).view(kind) for piece in buffers[f"{which}_packed"]]
        scales = [_mapped(piece) for piece in buffers[f"{which}_scale"]]
        found = {}
        for param, offset in zip(self.params, self._layout.offsets, strict=True):
            if not param.numel:
                continue
            count = blocks(param.numel)
            own = np.full(count * BLOCK, zero_code(self._layout.codec, which), kind)
            own[: param.numel] = _cut(codes, offset, offset + param.numel)
            first = offset // BLOCK
            found[param.name] = Encoded(own, np.asarray(_cut(scales, first, first + count), np.float32))
        return found

    def _remarks(self) -> list[str]:
        first = self._layout.steps[0]
        found = list(self._layout.excess)
        if (swapped := _swapped(first.before)) is not None:
            found.append(swapped)
        if not any(name in first.before for name in ("m", "m_packed")):
            found.append("The dump has no m and v before its first step: they start at 0.")
        if "w" not in first.before:
            found.append("The dump has the half-precision weights alone: w is taken from them.")
        elif "w_f16" in first.before and sum(p.numel for p in self.params) <= CHECKED_ELEMENTS:
            w, half = self._lane(first.before["w"]), self._lane(first.before["w_f16"])
            with np.errstate(all="ignore"):
                off = {
                    name: int(np.count_nonzero(
                        values.astype(np.float16).view(np.uint16) != half[name].astype(np.float16).view(np.uint16)
                    ))
                    for name, values in w.items()
                }  # fmt: skip
            worst = max(off, key=lambda name: off[name], default="")
            if sum(off.values()):
                found.append(
                    f"{sum(off.values()):,} elements of w_f16 are not w rounded to half precision, most of them in "
                    f"{worst}: the mirror is not in step with the weights."
                )
        return found


def _mapped(piece: Piece) -> npt.NDArray[Any]:
    kind = np.dtype(_ORDERS[piece.endian] + _NUMPY[piece.dtype])
    if piece.path.stat().st_size <= piece.offset:
        return np.zeros(0, kind)
    raw = np.memmap(piece.path, np.uint8, mode="r", offset=piece.offset)
    return np.asarray(raw).view(kind)


def _cut(pages: list[npt.NDArray[Any]], start: int, stop: int) -> npt.NDArray[Any]:
    """Elements [start, stop) of pages that follow each other."""
    found, at = [], 0
    for page in pages:
        low, high = max(start - at, 0), min(stop - at, page.size)
        if low < high:
            found.append(page[low:high])
        at += page.size
    if len(found) == 1:
        return found[0]
    return np.concatenate(found) if found else np.zeros(0, pages[0].dtype if pages else np.float32)


def _swapped(buffers: Buffers) -> str | None:
    """A sentence where the weights look as if their bytes were in the other order than the layout says."""
    pieces = buffers.get("w", ())
    if not pieces or pieces[0].dtype != "f32":
        return None
    read = _mapped(pieces[0])[: 16 * LOOKED_AT]
    read = read[read.view("u4") != 0][:LOOKED_AT]
    if not read.size or _usual(read) > 0.5 or _usual(read.view(read.dtype.newbyteorder())) < 0.9:
        return None
    other = "little" if pieces[0].endian == "big" else "big"
    return (
        f"The bytes of {pieces[0].path.name} seem to be in the other order: read so, its values are of the size that "
        f'weights have. Where that is so, give "endian": "{other}" in the layout.'
    )


def _usual(values: npt.NDArray[Any]) -> float:
    """The share of float32 values that are of the size that weights have."""
    with np.errstate(all="ignore"):
        size = np.abs(values.astype(np.float32))
    return float(np.mean((size > 2.0**-40) & (size < 2.0**20)))
