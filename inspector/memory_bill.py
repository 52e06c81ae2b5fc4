"""What training a model takes in memory, by optimizer and precision: in all, and on each of several devices.

Counted are weights, gradients, what the optimizer keeps, a float32 master copy and a half-precision mirror. Left out
are activations, buffers of communication, fragmentation and what a framework takes for itself, so numbers of devices
are least ones. GB are 10⁹ bytes throughout.

Sharding after Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (arXiv
1910.02054): stage 1 shards the optimizer's state and the master copy over the devices, stage 2 the gradients as well,
stage 3 the weights as well. Shards are taken as even to the byte.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from inspector.codecs import blocks
from inspector.errors import UsageError
from inspector.layout import F32_BYTES, Param
from inspector.optimizers import OPTIMIZERS
from inspector.optimizers.state_size import Sizes, is_hidden, kept
from inspector.param_state import ParamState, Shape
from inspector.plan import SMALL_ELEMENTS

DEVICE_GB = (24, 80, 141)
STAGES = (0, 1, 2, 3)
MAX_DEVICES = 1_000_000
LEFT_OUT = "activations, communication buffers, fragmentation and what a framework takes for itself"

MAX_ELEMENTS = 10**15
_COUNT = re.compile(r"(?P<number>\d[\d_,]*(\.\d+)?([eE]\+?\d{1,3})?) ?(?P<unit>[kKmMbBgGtT]?)")
_GROUPED = re.compile(r"\d{1,3}(_\d{3})+|\d{1,3}((,\d{3})+)(\.\d+)?")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}

Shapes = Counter[tuple[Shape, bool]]
"""How many params there are of a shape, and whether they are hidden matrices."""
Kind = Literal["weights", "gradients", "state", "master", "mirror"]
KINDS: tuple[Kind, ...] = ("weights", "gradients", "state", "master", "mirror")
SHARDED_FROM: dict[Kind, int] = {"state": 1, "master": 1, "gradients": 2, "weights": 3, "mirror": 3}
"""The least ZeRO stage that shards it."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes an element of each kind. `coded`: moments as 8-bit codes with a float32 scale for each block of 256."""

    name: str
    says: str
    weights: int
    gradients: int
    moments: int
    master: int = 0
    mirror: int = 0
    coded: bool = False


PRECISIONS: tuple[Precision, ...] = (
    Precision("f32", "all in float32", 4, 4, 4),
    Precision("f32+f16", "all in float32, and a float16 mirror of the weights", 4, 4, 4, mirror=2),
    Precision("bf16+master", "weights and gradients in bfloat16, a float32 master copy", 2, 2, 4, master=4),
    Precision("bf16", "weights, gradients and moments in bfloat16", 2, 2, 2),
    Precision("f32+8bit", "weights and gradients in float32, moments in 8 bits", 4, 4, 1, coded=True),
    Precision("bf16+master+8bit", "as bf16+master with moments in 8 bits", 2, 2, 1, master=4, coded=True),
)
PRECISION_NAMES = tuple(p.name for p in PRECISIONS)
_FOR_ALL = ("f32", "bf16+master", "bf16")
"""The precisions of optimizers other than AdamW, whose codes and mirror there are no kernels for."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one thing that is kept: `name` is its kind, or of state the buffer's name."""

    kind: Kind
    name: str
    nbytes: int

    def on_each(self, devices: int, stage: int) -> int:
        """Bytes on each of so many devices in a ZeRO stage."""
        return -(-self.nbytes // devices) if stage >= SHARDED_FROM[self.kind] else self.nbytes


@dataclass(frozen=True)
class Bill:
    """What one optimizer takes in one precision. `also` are optimizers that keep the same."""

    optimizer: str
    also: tuple[str, ...]
    precision: Precision
    elements: int
    parts: tuple[Part, ...]

    @cached_property
    def total(self) -> int:
        """Bytes of everything once."""
        return sum(part.nbytes for part in self.parts)

    def of(self, kind: Kind) -> int:
        """Bytes of one kind."""
        return sum(part.nbytes for part in self.parts if part.kind == kind)

    def on_each(self, devices: int, stage: int, kind: Kind | None = None) -> int:
        """Bytes on each of so many devices, of one kind or of all."""
        return sum(p.on_each(devices, stage) for p in self.parts if kind is None or p.kind == kind)

    def devices_of(self, capacity: int, stage: int) -> int | None:
        """The fewest devices of `capacity` bytes that hold it in a ZeRO stage; None where no number does."""
        if self.total <= capacity:
            return 1
        sharded = sum(p.nbytes for p in self.parts if stage >= SHARDED_FROM[p.kind])
        room = capacity - (self.total - sharded)
        if room <= 0 or not sharded:
            return None
        devices = -(-sharded // room)
        while self.on_each(devices, stage) > capacity:
            # Each part is rounded up to a byte.
            if devices >= sharded:
                return None
            devices += 1
        return devices


def shapes_of(params: Iterable[Param]) -> Shapes:
    """What counts of params: of tens of thousands few differ in it."""
    return Counter((p.shape, is_hidden(p.name, p.shape)) for p in params)


def shapes_of_count(elements: int) -> Shapes:
    """Square matrices of `elements` elements in all, for what depends on shapes where only a count is known.

    Their width is the power of two nearest to that of a Llama-shaped model of this size: 12 · width² elements a layer,
    a layer for each 128 of width. What is left over is one more matrix, and a vector shorter than the width.
    """
    width = 2 ** round(math.log2(max(elements * 128 / 12, 1)) / 3)
    matrices, rest = divmod(elements, width * width)
    rows, rest = divmod(rest, width)
    found = {
        ((width, width), True): matrices,
        ((rows, width), True): int(rows > 0),
        ((rest,), False): int(rest > 0),
    }
    return Counter({shape: count for shape, count in found.items() if count})


def bills(params: Iterable[Param]) -> tuple[Bill, ...]:
    """The bill of each optimizer in each precision that it is usual in: AdamW first, in all of them."""
    return bills_of(shapes_of(params))


def bills_of(shapes: Shapes) -> tuple[Bill, ...]:
    """The same from shapes."""
    return tuple(
        _bill(name, also, sizes, precision, shapes)
        for name, also, sizes in _optimizers()
        for precision in PRECISIONS
        if name == "adamw" or precision.name in _FOR_ALL
    )


def check_sharding(devices: int, stage: int) -> None:
    """UsageError for a number of devices or a stage that there is not."""
    if not 1 <= devices <= MAX_DEVICES:
        raise UsageError(f"--devices {devices} is no number of devices: give one from 1 to {MAX_DEVICES:,}.")
    if stage not in STAGES:
        raise UsageError(f"--zero {stage} is no stage of ZeRO: give 0, 1, 2 or 3.")


def parse_count(text: str) -> int | None:
    """The number of elements that `text` gives, as in 70e9, 70B or 116,017,920; None where it is no number.

    UsageError for a number outside 1 to 10¹⁵, and for a comma that may be a decimal one.
    """
    found = _COUNT.fullmatch(text.strip())
    if found is None:
        return None
    digits = found["number"]
    if re.search("[_,]", digits) and _GROUPED.fullmatch(digits) is None:
        raise UsageError(
            f"{text!r} can be read in two ways: separate groups of three digits, as in 1,500,000, and write a "
            "decimal point, as in 1.5B."
        )
    number = Fraction(digits.replace("_", "").replace(",", "")) * _UNITS[found["unit"].lower()]
    if not 1 <= number <= MAX_ELEMENTS:
        raise UsageError(f"{text!r} is no number of elements to bill: give one from 1 to {MAX_ELEMENTS:,}.")
    return round(number)


def _optimizers() -> list[tuple[str, tuple[str, ...], Sizes]]:
    """Names and sizes, AdamW first; optimizers that keep the same buffers as one before go with it."""
    by_state: dict[tuple[tuple[str, ...], tuple[ParamState, ...]], list[str]] = {}
    own: list[tuple[str, tuple[str, ...], Sizes]] = []
    for each in sorted(OPTIMIZERS.values(), key=lambda o: o.name != "adamw"):
        if each.billed is not None:
            continue
        by_state.setdefault((each.state, each.param_states), []).append(each.name)
    for (moments, states), names in by_state.items():
        own.append((names[0], tuple(names[1:]), kept(moments, states)))
    return [*own, *((each.name, (), each.billed) for each in OPTIMIZERS.values() if each.billed is not None)]


def _bill(
    name: str,
    also: tuple[str, ...],
    sizes: Sizes,
    precision: Precision,
    shapes: Shapes,
) -> Bill:
    elements = sum(math.prod(shape) * count for (shape, _), count in shapes.items())
    state: dict[str, int] = {}
    for (shape, hidden), count in shapes.items():
        for buffer in sizes(shape, hidden):
            each = _state_bytes(buffer.elements, precision) if buffer.moment else F32_BYTES * buffer.elements
            state[buffer.name] = state.get(buffer.name, 0) + each * count
    parts = (
        Part("weights", "weights", precision.weights * elements),
        Part("gradients", "gradients", precision.gradients * elements),
        *(Part("state", buffer, nbytes) for buffer, nbytes in state.items()),
        Part("master", "master copy", precision.master * elements),
        Part("mirror", "f16 mirror", precision.mirror * elements),
    )
    return Bill(name, also, precision, elements, tuple(p for p in parts if p.nbytes))


def _state_bytes(elements: int, precision: Precision) -> int:
    if not precision.coded:
        return precision.moments * elements
    if elements < SMALL_ELEMENTS:
        # 8-bit optimizers keep the state of small params in float32.
        return F32_BYTES * elements
    return elements + F32_BYTES * blocks(elements)
