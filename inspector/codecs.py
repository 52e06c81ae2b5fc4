"""8-bit codes of the moments m and v, in blocks of 256 elements with one float32 scale each.

linear   the published codec, for m and v alike: scale = max|x| / 127, at least 1e-12, and
         code = round(x / scale), halves to the even code (as WGSL's round), limited to ±127.
sqrt     m as in linear; v as the linear codes of √v, so that its range in a block is squared. A v that is not 0
         has a code of at least 1: an element whose v became 0 under an m that did not would next be moved by lr·m̂/ε.
dynamic  an index into a map of 256 values from 1e-7 to 1 of the block's largest magnitude: dynamic tree quantization
         (Dettmers 2015, arXiv 1511.04561; for optimizers Dettmers et al. 2022, arXiv 2110.02861), signed for m,
         unsigned for v. scale = max|x|.

Every codec has a code for 0, and a block of zeros decodes to exactly 0. What is not finite has no code: ±inf is taken
as ±LARGEST, like all beyond it, and NaN as 0. Codes are int8 (linear, sqrt) or uint8 (dynamic), packed four to a
u32 word, element 4i in the low byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from inspector.floats import BoolArray, F32Array, F64Array, ulp_size

BLOCK = 256
LEVELS = 127
SCALE_FLOOR = 1e-12
"""The least scale of the linear codes."""
LARGEST = 2.0**126
"""The largest magnitude with a code; WGSL says nothing about a division by more."""
LEAST_NORMAL = 2.0**-126
"""Devices may take a lesser magnitude as 0; a dynamic block that has nothing larger is a block of zeros."""

Codec = Literal["linear", "sqrt", "dynamic"]
Which = Literal["m", "v"]
CODECS: tuple[Codec, ...] = ("linear", "sqrt", "dynamic")
CODEC_NUMBER: dict[Codec, int] = {"linear": 0, "sqrt": 1, "dynamic": 2}
"""The `CODEC` constant of the kernels."""

Codes = npt.NDArray[np.int8] | npt.NDArray[np.uint8]
Values = npt.NDArray[np.floating[Any]]
FloatType = type[np.float32] | type[np.float64]


# --- the dynamic map


@dataclass(frozen=True, slots=True)
class DynamicMap:
    """256 ascending values, float32[256]; `zero` is the index of 0, the last value is 1.

    `edges` are the midpoints between the magnitudes from 0 upwards, float32[255 - zero].
    """

    values: F32Array
    edges: F32Array
    zero: int


@cache
def dynamic_map(which: Which) -> DynamicMap:
    """The map for m (signed, -0.993 to 1) or v (unsigned, 0 to 1).

    Seven decades, from 1e-7 to 1. The decade that ends at 10^(e-6), e = 0 … 6, is divided into 2^e equal parts for m,
    2^(e+1) for v, each represented by its middle; 0 and 1 are added, and for m the negatives of all but 1.

    Number the magnitudes so that part p of a decade of 2^d parts has J = 2^d + p. Its middle is then
    (18·J + 9 - 16·2^d) · q, and the midpoint between J - 1 and J of one decade is (18·J - 16·2^d) · q, with
    q = 5^d / 2e7 for m and 5^d / 2e8 for v. In float32 that is one product of a whole number and a rounded q, which is
    how the kernels' arithmetic can give the same bits as this table.
    """
    signed = which == "m"
    numbers = np.arange(1, 128) if signed else np.arange(2, 256)
    decade = np.floor(np.log2(numbers)).astype(np.int64)
    parts = np.exp2(decade)
    q = (np.power(5.0, decade) / (2e7 if signed else 2e8)).astype(np.float32)
    middles = (18.0 * numbers + 9 - 16 * parts).astype(np.float32) * q
    above = 18.0 * (numbers + 1) - 16 * parts
    # The next decade's first part is wider, so its midpoint with this one's last lies 18 units higher.
    above[numbers + 1 == 2 * parts] += 18
    # What follows the last middle, 20·2^d - 9 units, is no middle: 1, at 20·2^d.
    above[-1] = 20 * parts[-1] - 4.5
    edges = np.concatenate((middles[:1] / np.float32(2), above.astype(np.float32) * q))
    magnitudes = np.concatenate((np.zeros(1, np.float32), middles, np.ones(1, np.float32)))
    values = np.concatenate((-middles[::-1], magnitudes)) if signed else magnitudes
    for array in (values, edges):
        array.setflags(write=False)
    return DynamicMap(values, edges, zero=127 if signed else 0)


# --- codes and values


@dataclass(frozen=True, slots=True)
class Encoded:
    """Codes of whole blocks, int8 or uint8, flat, and one float32 scale a block."""

    codes: Codes
    scales: F32Array


@dataclass(frozen=True, slots=True)
class Moments8bit:
    """m and v of one param as codes of whole blocks; what lies beyond the param decodes to 0."""

    codec: Codec
    m: Encoded
    v: Encoded

    def decoded(self, elements: int) -> tuple[F64Array, F64Array]:
        """m and v, float64[elements]."""
        m = decode(self.codec, "m", self.m.codes, self.m.scales, np.float64)[:elements]
        v = decode(self.codec, "v", self.v.codes, self.v.scales, np.float64)[:elements]
        return np.asarray(m, np.float64), np.asarray(v, np.float64)

    def stands_for(self, which: Which, values: F32Array) -> bool:
        """True where the codes of m or v decode to these values, bit for bit."""
        coded = self.m if which == "m" else self.v
        decoded = decode(self.codec, which, coded.codes, coded.scales)[: values.size]
        return decoded.tobytes() == np.ascontiguousarray(values, np.float32).tobytes()


def zero_code(codec: Codec, which: Which) -> int:
    """The byte that decodes to 0: what a new or padded state holds."""
    return dynamic_map(which).zero if codec == "dynamic" else 0


def zero_word(codec: Codec, which: Which) -> int:
    """Four zero codes, as the u32 word to fill a new state with."""
    return zero_code(codec, which) * 0x0101_0101


def blocks(elements: int) -> int:
    """How many blocks hold so many elements."""
    return -(-elements // BLOCK)


def state_bytes(elements: int) -> int:
    """Bytes of m and v of a param of so many elements: a code each, and two scales for each block begun."""
    return 2 * elements + 8 * blocks(elements)


def encode(codec: Codec, which: Which, values: Values) -> Encoded:
    """Codes and scales of `values`, float32 or float64, flat; padded with zeros to whole blocks of 256.

    Calculated in the type of `values`, the scale rounded to float32 in either. float32 is what a kernel without fused
    operations gives, float64 the truth for given scales.
    """
    x = _in_blocks(_coded_quantity(codec, which, _codable(values)))
    largest = np.max(np.abs(x), axis=1)
    if codec == "dynamic":
        scales = np.where(largest < LEAST_NORMAL, 0, largest).astype(np.float32)
    else:
        floor = np.float32(SCALE_FLOOR)
        scales = np.maximum((largest / x.dtype.type(LEVELS)).astype(np.float32), floor)
    return Encoded(_codes(codec, which, x, scales), scales)


def encode_with(codec: Codec, which: Which, values: Values, scales: F32Array) -> Codes:
    """The codes of `values` (see `encode`) for given scales, float32, one for each block."""
    return _codes(codec, which, _in_blocks(_coded_quantity(codec, which, _codable(values))), scales)


def decode(
    codec: Codec, which: Which, codes: Codes, scales: F32Array, dtype: FloatType = np.float32
) -> Values:
    """The values of codes of whole blocks, in `dtype`, flat: code · scale (squared for v in sqrt), or map · scale."""
    scale = np.repeat(scales.astype(dtype), BLOCK)
    values: Values
    if codec == "dynamic":
        values = dynamic_map(which).values[codes.astype(np.uint8)].astype(dtype)
    else:
        values = codes.astype(dtype)
    # Adding 0 turns the -0 of a negative code in a block of zeros into 0.
    values = values * scale + dtype(0)
    return values * values if _as_root(codec, which) else values


def decode_one(codec: Codec, which: Which, code: int, scale: np.float32) -> np.float32:
    """The value that one code stands for, at the scale of its block."""
    kind: type[np.uint8] | type[np.int8] = np.uint8 if codec == "dynamic" else np.int8
    codes: Codes = np.full(BLOCK, code, kind)  # type: ignore[assignment]
    with np.errstate(all="ignore"):
        return np.float32(decode(codec, which, codes, np.array([scale], np.float32))[0])


def pack(codes: Codes) -> npt.NDArray[np.uint32]:
    """Codes, a multiple of 4 of them, as u32 words: element 4i is the low byte of word i."""
    return np.ascontiguousarray(codes).view("<u4").astype(np.uint32, copy=False)


def unpack(codec: Codec, words: npt.NDArray[np.uint32]) -> Codes:
    """The codes in u32 words, int8 or uint8 as the codec has them."""
    raw = np.ascontiguousarray(words).astype("<u4", copy=False)
    return raw.view(np.uint8) if codec == "dynamic" else raw.view(np.int8)


def ambiguous(
    codec: Codec,
    which: Which,
    values: Values,
    scales: F32Array,
    ulps: float = 1.0,
    largest: Values | None = None,
) -> BoolArray:
    """True where another code follows from a value within `ulps` float32 ULP of the one given; padded to blocks.

    The ULP is that of the value, or of `largest` (same shape) where a value is a sum that cancelled. An error of the
    scale or of a division is one of the value of as many ULP (of the root's, twice as many). Magnitudes
    below the least normal float32 count as within reach of 0.
    """
    x = _codable(np.asarray(values, np.float64))
    reach = np.abs(x) if largest is None else np.maximum(np.abs(x), np.abs(largest))
    # Nothing added to nothing is exact.
    reach = np.where(reach > 0, np.maximum(ulps * ulp_size(reach), LEAST_NORMAL), 0)
    low, high = x - reach, x + reach
    different: BoolArray = encode_with(codec, which, low, scales) != encode_with(codec, which, high, scales)
    return different


# --- errors


@dataclass(frozen=True, slots=True)
class LaneError:
    """Errors of m or of v, in its unit: the largest, the root mean square, and the block where that is worst."""

    largest: float
    rms: float
    worst_block: int
    worst_block_rms: float


@dataclass(frozen=True, slots=True)
class StateError:
    """What a codec does to a state. `lost` counts elements whose v decodes to 0 while v and the decoded m are not 0.

    Those are the ones whose next update divides by little more than ε.
    """

    m: LaneError
    v: LaneError
    lost: int


def state_error(codec: Codec, m: Values, v: Values, m_coded: Encoded, v_coded: Encoded) -> StateError:
    """The errors of a coded state against the float32 values `m` and `v` (flat, without padding) it stands for."""
    got_m = decode(codec, "m", m_coded.codes, m_coded.scales, np.float64)[: m.size]
    got_v = decode(codec, "v", v_coded.codes, v_coded.scales, np.float64)[: v.size]
    lost = int(np.count_nonzero((got_v == 0) & (v != 0) & (got_m != 0)))
    return StateError(_lane_error(m, got_m), _lane_error(v, got_v), lost)


def coding_error(codec: Codec, m: Values, v: Values) -> StateError:
    """The errors of encoding float32 `m` and `v` (flat) once."""
    return state_error(codec, m, v, encode(codec, "m", m), encode(codec, "v", v))


def _lane_error(wanted: Values, got: Values) -> LaneError:
    if not wanted.size:
        return LaneError(0.0, 0.0, 0, 0.0)
    off = np.abs(got - np.asarray(wanted, np.float64))
    squares = _in_blocks(off * off)
    counts = np.minimum(BLOCK, wanted.size - BLOCK * np.arange(squares.shape[0]))
    each = np.sqrt(squares.sum(axis=1) / counts)
    worst = int(np.argmax(each))
    return LaneError(float(off.max()), float(np.sqrt(np.mean(off * off))), worst, float(each[worst]))


# --- inner parts


def _as_root(codec: Codec, which: Which) -> bool:
    return codec == "sqrt" and which == "v"


def _codable(values: Values) -> Values:
    x = np.asarray(values).ravel()
    limited: Values = np.clip(np.where(np.isnan(x), x.dtype.type(0), x), -LARGEST, LARGEST).astype(x.dtype)
    return limited


def _coded_quantity(codec: Codec, which: Which, x: Values) -> Values:
    """What is coded: v has no sign, and its root is taken in sqrt."""
    if which == "v":
        x = np.maximum(x, x.dtype.type(0))
    return np.sqrt(x) if _as_root(codec, which) else x


def _in_blocks(x: Values) -> Values:
    padded = np.zeros((blocks(x.size), BLOCK), x.dtype)
    padded.ravel()[: x.size] = x
    return padded


def _codes(codec: Codec, which: Which, x: Values, scales: F32Array) -> Codes:
    scale = scales.astype(x.dtype)[:, None]
    if codec != "dynamic":
        code = np.clip(np.rint(x / scale), -LEVELS, LEVELS)
        if _as_root(codec, which):
            code = np.maximum(code, x > 0)
        return code.astype(np.int8).ravel()
    table = dynamic_map(which)
    number = np.empty(x.shape, np.int64)
    for row, (magnitudes, edges) in enumerate(
        zip(np.abs(x), table.edges.astype(x.dtype) * scale, strict=True)
    ):
        # A magnitude on an edge takes the lesser code.
        number[row] = np.searchsorted(edges, magnitudes, side="left")
    if which == "m":
        number = np.where(x < 0, -np.minimum(number, LEVELS), number)
    # In a block of zeros every edge is 0.
    number = np.where(scale > 0, number, 0)
    return (number + table.zero).astype(np.uint8).ravel()
