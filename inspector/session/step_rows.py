"""The scalars of a step as bytes, every bit kept, and many of them as columns; the checksum of a row."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.floats import F64Array
from inspector.hyper import HYPER_NAMES, Hyper
from inspector.session.records import Form, RecordedStep
from inspector.session.setting_rows import pack_settings, settings_size
from inspector.settings import ParamSettings
from inspector.statistics import NonFinite
from inspector.stepping import KernelTime

STEP = np.dtype(
    [
        ("step", "<i8"),
        ("ended", "<f8"),
        ("loss", "<f8"),
        *((name, "<f8") for name in HYPER_NAMES),
        ("grad_norm", "<u4"),
        ("clip_scale", "<u4"),
        ("nan", "<i8"),
        ("posinf", "<i8"),
        ("neginf", "<i8"),
        ("first", "<i8"),
        ("findings", "<u4"),
        ("form", "<u2"),
        ("has", "<u2"),
    ]
)
"""The fixed part of a step's row. grad_norm and clip_scale are float32 as bits; `form` is the number of its variant.

`findings` counts those of all steps up to this one, so that one that goes missing is missed.
"""
KERNEL = np.dtype([("name", "<u2"), ("has", "<u2"), ("ms", "<f8"), ("began_ms", "<f8")])
"""What follows it, once a kernel; `name` is the number of its name and block. Settings of params end a row."""

HAS_LOSS, HAS_GRAD_NORM, HAS_CLIP_SCALE, HAS_STATISTICS, HAS_SETTINGS = 1, 2, 4, 8, 16
NORM_OF_PART = 32
_FLAGS = {"loss": HAS_LOSS, "grad_norm": HAS_GRAD_NORM, "clip_scale": HAS_CLIP_SCALE}
_HAS_MS, _HAS_BEGAN, _GPU_CLOCK, _COLD = 1, 2, 4, 8
_STEP_STRUCT = struct.Struct("<q" + "d" * (2 + len(HYPER_NAMES)) + "IIqqqqIHH")
_KERNEL_STRUCT = struct.Struct("<HHdd")
assert _STEP_STRUCT.size == STEP.itemsize
assert _KERNEL_STRUCT.size == KERNEL.itemsize

SCALARS = ("loss", "grad_norm", "clip_scale", *HYPER_NAMES, "nonfinite", "nan", "posinf", "neginf", "ended")
"""The metrics that every step has, NaN where unknown."""


def checksum(table: str, key: int | str, data: bytes | str) -> int:
    """The CRC-32 of a row, its table and key included, so that no row can stand for another."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return zlib.crc32(raw, zlib.crc32(f"{table}:{key}:".encode("utf-8", "surrogatepass")))


def pack_step(
    step: RecordedStep,
    form: int,
    names: Sequence[int],
    *,
    findings: int,
    statistics: bool,
    settings_map: int | None = None,
) -> bytes:
    """The row of a step; `form` and `names` are the numbers of its variant and of its kernels' names.

    `findings` is the number of them up to this step, `settings_map` that of the map of params that have settings of
    their own.
    """
    own = step.hyper.per_param
    counts = step.nonfinite
    has = (
        HAS_LOSS * (step.loss is not None)
        | HAS_GRAD_NORM * (step.grad_norm is not None)
        | HAS_CLIP_SCALE * (step.clip_scale is not None)
        | HAS_STATISTICS * statistics
        | HAS_SETTINGS * (own is not None)
        | NORM_OF_PART * step.of_part
    )
    row = _STEP_STRUCT.pack(
        step.step,
        step.ended,
        0.0 if step.loss is None else step.loss,
        *(getattr(step.hyper, name) for name in HYPER_NAMES),
        float_bits(step.grad_norm),
        float_bits(step.clip_scale),
        counts.nan,
        counts.posinf,
        counts.neginf,
        -1 if counts.first is None else counts.first,
        findings,
        form,
        has,
    )
    row += b"".join(map(_pack_kernel, names, step.kernels))
    if own is None:
        return row
    assert settings_map is not None
    return row + pack_settings(own, settings_map)


def float_bits(value: float | None) -> int:
    """The bits of a float32 that was widened, NaN payloads kept; 0 for None."""
    if value is None:
        return 0
    with np.errstate(all="ignore"):
        return int(np.float64(value).astype(np.float32).view(np.uint32))


def _pack_kernel(name: int, kernel: KernelTime) -> bytes:
    has = (
        _HAS_MS * (kernel.ms is not None)
        | _HAS_BEGAN * (kernel.began_ms is not None)
        | _GPU_CLOCK * (kernel.clock == "gpu")
        | _COLD * kernel.cold
    )
    return _KERNEL_STRUCT.pack(
        name,
        has,
        0.0 if kernel.ms is None else kernel.ms,
        0.0 if kernel.began_ms is None else kernel.began_ms,
    )


def has_settings(data: bytes) -> bool:
    """True where the row of a step ends with settings of params."""
    return len(data) >= STEP.itemsize and bool(data[STEP.itemsize - 2] & HAS_SETTINGS)


def without_settings(data: bytes) -> bytes:
    """The row of a step up to its settings of params; ValueError for a row that no step can have."""
    if has_settings(data):
        data = data[: len(data) - settings_size(data, STEP.itemsize)]
    if len(data) < STEP.itemsize or (len(data) - STEP.itemsize) % KERNEL.itemsize:
        raise ValueError("the row of a step has the wrong size")
    return data


def unpack_step(
    whole: bytes,
    forms: Sequence[Form],
    names: Sequence[tuple[str, str | None]],
    settings: Callable[[bytes], ParamSettings],
) -> tuple[RecordedStep, Form]:
    """The step that `pack_step` made a row of, and its form; IndexError where that names what is not there.

    `settings` unpacks those of params.
    """
    data = without_settings(whole)
    own = settings(whole[len(data) :]) if has_settings(whole) else None
    step, ended, loss, *rest = _STEP_STRUCT.unpack_from(data)
    hyper, (grad_norm, clip_scale, nan, posinf, neginf, first, _, form, has) = (
        rest[: len(HYPER_NAMES)],
        rest[len(HYPER_NAMES) :],
    )
    widened = np.array([grad_norm, clip_scale], np.uint32).view(np.float32).astype(np.float64)
    ran = RecordedStep(
        step,
        replace(Hyper(*hyper), per_param=own),
        forms[form].variant,
        loss if has & HAS_LOSS else None,
        float(widened[0]) if has & HAS_GRAD_NORM else None,
        float(widened[1]) if has & HAS_CLIP_SCALE else None,
        NonFinite(nan, posinf, neginf, None if first < 0 else first),
        tuple(_kernel(names, *each) for each in _KERNEL_STRUCT.iter_unpack(data[STEP.itemsize :])),
        ended,
        of_part=bool(has & NORM_OF_PART),
    )
    return ran, forms[form]


def _kernel(
    names: Sequence[tuple[str, str | None]], name: int, has: int, ms: float, began: float
) -> KernelTime:
    text, block = names[name]
    return KernelTime(
        text,
        block,  # type: ignore[arg-type]
        ms if has & _HAS_MS else None,
        "gpu" if has & _GPU_CLOCK else "cpu",
        bool(has & _COLD),
        began if has & _HAS_BEGAN else None,
    )


class StepColumns:
    """The rows of consecutive steps, as columns when they are asked for."""

    def __init__(self, fixed: npt.NDArray[Any], kernels: bytes, counts: npt.NDArray[np.int64]) -> None:
        """`fixed` is of type STEP; `kernels` has `counts` records of type KERNEL a step."""
        self.fixed = fixed
        self._kernels = kernels
        self._counts = counts

    @classmethod
    def of_rows(cls, rows: list[bytes]) -> StepColumns:
        """ValueError where a row has the wrong size."""
        size = STEP.itemsize
        if any(map(has_settings, rows)):
            rows = [without_settings(row) for row in rows]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        if ((lengths < size) | ((lengths - size) % KERNEL.itemsize != 0)).any():
            raise ValueError("a row has the wrong size")
        whole = np.frombuffer(b"".join(rows), np.uint8)
        counts = (lengths - size) // KERNEL.itemsize
        if len(rows) and (lengths == lengths[0]).all():
            by_row = whole.reshape(len(rows), -1)
            fixed = np.ascontiguousarray(by_row[:, :size]).view(STEP).reshape(-1)
            return cls(fixed, by_row[:, size:].tobytes(), counts)
        mask = np.zeros(len(whole), np.bool_)
        for start in np.cumsum(lengths) - lengths:
            mask[start : start + size] = True
        return cls(whole[mask].view(STEP), whole[~mask].tobytes(), counts)

    def __len__(self) -> int:
        return len(self.fixed)

    def followed_by(self, later: StepColumns) -> StepColumns:
        """These steps and those after them."""
        return StepColumns(
            np.concatenate((self.fixed, later.fixed)),
            self._kernels + later._kernels,
            np.concatenate((self._counts, later._counts)),
        )

    def scalar(self, name: str) -> F64Array:
        """One of `SCALARS`, float64 with a value a step."""
        if name == "nonfinite":
            return np.asarray(self.fixed["nan"] + self.fixed["posinf"] + self.fixed["neginf"], np.float64)
        column = self.fixed[name]
        if name in ("grad_norm", "clip_scale"):
            column = column.view("<f4")
        # Quiets no NaN: a float32 that is widened keeps its payload.
        with np.errstate(invalid="ignore"):
            values = column.astype(np.float64)
        return np.where(self.known(name), values, math.nan) if name in _FLAGS else values

    def known(self, name: str) -> npt.NDArray[np.bool_]:
        """Whether one of `SCALARS` is known, a value a step."""
        flag = _FLAGS.get(name)
        return np.ones(len(self), np.bool_) if flag is None else (self.fixed["has"] & flag) != 0

    def of_part(self) -> npt.NDArray[np.bool_]:
        """Whether the norm is of the part of one process, a value a step."""
        return np.asarray((self.fixed["has"] & NORM_OF_PART) != 0)

    def kernel_ms(self, names: Sequence[str]) -> dict[str, F64Array]:
        """Milliseconds a step by "ms/KEY", or "cold/KEY" where a dispatch of that key was cold; else NaN.

        `names` is the key of each kernel by its number. As kernel_metrics of the runtime.
        """
        records = np.frombuffer(self._kernels, KERNEL)
        row = np.repeat(np.arange(len(self._counts)), self._counts)
        found: dict[str, F64Array] = {}
        for key in dict.fromkeys(names):
            numbers = [i for i, name in enumerate(names) if name == key]
            mine = np.isin(records["name"], numbers)
            at, own = row[mine], records[mine]
            ms = np.where(own["has"] & _HAS_MS, own["ms"], math.nan)
            total = np.bincount(at, ms, len(self._counts))
            ran = np.bincount(at, minlength=len(self._counts)) > 0
            cold = np.bincount(at, (own["has"] & _COLD) != 0, len(self._counts)) > 0
            for kind, where in (("ms", ran & ~cold), ("cold", ran & cold)):
                if where.any():
                    found[f"{kind}/{key}"] = np.where(where, total, math.nan)
        return found
