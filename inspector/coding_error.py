"""What coding m and v in 8 bits does to each param: errors against the float32 values that were coded; and by numpy."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inspector.codecs import Codec, Encoded, LaneError, Values, decode, encode, state_error
from inspector.floats import F32Array
from inspector.statistics import BINS, EXPONENT_BIAS, buffer_stats


@dataclass(frozen=True, slots=True, eq=False)
class LaneCodingError:
    """Errors of m or of v over some elements, in the lane's own unit (of the gradient, or of its square).

    `largest` and `rms` are the largest and the root mean square |error|, `rms_value` the root mean square of the values
    coded. `worst_block` is the block of 256 of the param whose rms error, `worst_block_rms`, is largest.
    `exponents` is uint32[255], read-only: |errors| by power of two as in BufferStats; an error of 0 is in none.
    """

    largest: float
    rms: float
    rms_value: float
    worst_block: int
    worst_block_rms: float
    exponents: npt.NDArray[np.uint32]

    @property
    def relative(self) -> float:
        """The rms error over the rms of the values; 0 where there is no error, NaN where all values are 0."""
        if self.rms == 0:
            return 0.0
        return self.rms / self.rms_value if self.rms_value else math.nan

    def log2_range(self) -> tuple[int, int] | None:
        """The lowest and highest power of two with any error, None where all are 0."""
        filled = np.flatnonzero(self.exponents)
        return (int(filled[0]) - EXPONENT_BIAS, int(filled[-1]) - EXPONENT_BIAS) if len(filled) else None


@dataclass(frozen=True, slots=True, eq=False)
class ParamCodingError:
    """Errors of one param with 8-bit state, or of several as one.

    `lost` counts elements whose v decodes to 0 while v and the decoded m are not 0: their next update divides by little
    more than ε. `param` is the one that `worst_block` of m and v are counted in, one name each.
    """

    name: str
    numel: int
    m: LaneCodingError
    v: LaneCodingError
    lost: int
    worst_params: tuple[str, str]


def param_coding_error(
    name: str, codec: Codec, m: Values, v: Values, m_coded: Encoded, v_coded: Encoded
) -> ParamCodingError:
    """By numpy: a coded state against `m` and `v` (flat, float32 or float64, without padding) that it stands for."""
    errors = state_error(codec, m, v, m_coded, v_coded)
    got_m = decode(codec, "m", m_coded.codes, m_coded.scales, np.float64)[: m.size]
    got_v = decode(codec, "v", v_coded.codes, v_coded.scales, np.float64)[: v.size]
    lanes = (_lane(errors.m, np.asarray(m), got_m), _lane(errors.v, np.asarray(v), got_v))
    return ParamCodingError(name, m.size, *lanes, errors.lost, (name, name))


def coded_once(name: str, codec: Codec, m: F32Array, v: F32Array) -> ParamCodingError:
    """The same for float32 `m` and `v` (flat) coded once."""
    return param_coding_error(name, codec, m, v, encode(codec, "m", m), encode(codec, "v", v))


def merged_error(errors: Iterable[ParamCodingError], name: str = "") -> ParamCodingError:
    """Several params as one."""
    errors = tuple(errors)
    numel = sum(e.numel for e in errors)
    m, m_param = _merged([(e.name, e.numel, e.m) for e in errors], numel)
    v, v_param = _merged([(e.name, e.numel, e.v) for e in errors], numel)
    return ParamCodingError(name, numel, m, v, sum(e.lost for e in errors), (m_param, v_param))


def at_most(values: F32Array, points: int) -> tuple[F32Array, int]:
    """`values` reduced to at most `points` largest of runs of equal length, and that length. NaN counts as largest."""
    group = max(-(-len(values) // max(points, 1)), 1)
    if group == 1:
        return values, 1
    reduced = np.maximum.reduceat(values, np.arange(0, len(values), group))
    return np.asarray(reduced, np.float32), group


def _merged(lanes: list[tuple[str, int, LaneCodingError]], numel: int) -> tuple[LaneCodingError, str]:
    worst = max(lanes, key=lambda each: each[2].worst_block_rms, default=None)
    exponents = np.zeros(BINS, np.uint32)
    for _, _, lane in lanes:
        exponents += lane.exponents
    exponents.flags.writeable = False

    def rms(which: str) -> float:
        squares = math.fsum(n * getattr(lane, which) ** 2 for _, n, lane in lanes)
        return math.sqrt(squares / numel) if numel else 0.0

    return LaneCodingError(
        max((lane.largest for _, _, lane in lanes), default=0.0),
        rms("rms"),
        rms("rms_value"),
        worst[2].worst_block if worst else 0,
        worst[2].worst_block_rms if worst else 0.0,
        exponents,
    ), worst[0] if worst else ""


def _lane(error: LaneError, wanted: Values, got: Values) -> LaneCodingError:
    off = np.abs(got - wanted.astype(np.float64)).astype(np.float32)
    wide = wanted.astype(np.float64)
    rms_value = math.sqrt(float(np.mean(wide * wide))) if wide.size else 0.0
    return LaneCodingError(
        error.largest,
        error.rms,
        rms_value,
        error.worst_block,
        error.worst_block_rms,
        buffer_stats(off).exponents,
    )
