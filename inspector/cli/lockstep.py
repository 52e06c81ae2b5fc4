"""What `inspector run` says of 8-bit state: errors of coding beside each param, and a second run in lockstep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inspector.byte_sizes import size_text
from inspector.coding_error import LaneCodingError, ParamCodingError
from inspector.drift import ParamDrift
from inspector.floats import significant
from inspector.runtime.lockstep import EightBitPicture
from inspector.statistics import EXPONENT_BIAS


def add_coding(params: Sequence[dict[str, Any]], picture: EightBitPicture, *, histogram: bool = True) -> None:
    """Put `coding` into the documents of the params whose errors were measured in the step they are of."""
    by_name = {each.name: each for each in picture.coding}
    for param in params:
        if param["name"] in by_name:
            param["coding"] = _coding(by_name[param["name"]], histogram=histogram)


def lockstep_document(picture: EightBitPicture) -> dict[str, Any]:
    """`lockstep`, the second run after a step; nothing where there is none."""
    if picture.companion is None or picture.drift_total is None:
        return {}
    document: dict[str, Any] = {
        "codec": picture.codec,
        "kernels": [picture.primary, picture.companion],
        "open_loop": True,
        "ms": picture.ms,
        "drift": {**_drift(picture.drift_total), "param": picture.drift_total.param},
        "params": [{"name": each.name, "drift": _drift(each)} for each in picture.drift],
    }
    if picture.coding_total is not None:
        document["coding"] = _coding(picture.coding_total, whole=True)
        add_coding(document["params"], picture, histogram=False)
    if picture.f32_bytes is not None and picture.coded_bytes is not None:
        document["bytes"] = {
            name: {**found.computed, "total": found.total, "allocated": found.allocated_total}
            for name, found in (("f32", picture.f32_bytes), ("8bit", picture.coded_bytes))
        }
    return {"lockstep": document}


def lockstep_words(document: dict[str, Any] | None) -> list[str]:
    """The same in a few lines, for people."""
    if document is None:
        return []
    drift, both = document["drift"], document["bytes"]
    lines = [
        f"Lockstep with {document['codec']}, on gradients of the first run (open loop): drift ‖Δw‖/‖w‖ "
        f"{significant(drift['relative'], 3)}, largest |Δw| {significant(drift['largest'], 3)} at "
        f"{drift['param']}[{drift['index']}].",
        f"w, g, m, v take {size_text(both['f32']['total'])} in float32 and {size_text(both['8bit']['total'])} with "
        "8-bit state.",
    ]
    if "coding" in document:
        m, v = (100 * document["coding"][lane]["relative"] for lane in ("m", "v"))
        lost = document["coding"]["lost"]
        lines.insert(
            1,
            f"Rms error over rms: m {significant(m, 3)} %, v {significant(v, 3)} %; "
            f"{lost:,} v became 0 under an m that did not.",
        )
    return lines


def _drift(drift: ParamDrift) -> dict[str, Any]:
    return {
        "relative": drift.relative,
        "apart": drift.apart,
        "norm": drift.norm,
        "largest": drift.largest,
        "index": drift.index,
    }


def _coding(error: ParamCodingError, *, whole: bool = False, histogram: bool = True) -> dict[str, Any]:
    lanes = {"m": (error.m, error.worst_params[0]), "v": (error.v, error.worst_params[1])}
    found = {name: _lane(*each, whole=whole, histogram=histogram) for name, each in lanes.items()}
    return {**found, "lost": error.lost}


def _lane(error: LaneCodingError, param: str, *, whole: bool, histogram: bool) -> dict[str, Any]:
    worst: dict[str, Any] = {"index": error.worst_block, "rms": error.worst_block_rms}
    if whole:
        worst["param"] = param
    lane: dict[str, Any] = {
        "largest": error.largest,
        "rms": error.rms,
        "relative": error.relative,
        "worst_block": worst,
    }
    if histogram:
        powers = error.log2_range()
        lane["histogram"] = None
        if powers is not None:
            low, high = (power + EXPONENT_BIAS for power in powers)
            lane["histogram"] = {"log2": powers[0], "counts": error.exponents[low : high + 1].tolist()}
    return lane
