"""Safetensors files made byte by byte, so that damaged and hostile ones can be made too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16", "float64": "F64", "int32": "I32", "int8": "I8"}
"""uint16 stands for the bits of bfloat16, which numpy does not know."""


def file_bytes(header: Any, data: bytes = b"", *, raw: bytes | None = None) -> bytes:
    """A file of this header (a JSON value, or its `raw` bytes) and data."""
    text = json.dumps(header).encode() if raw is None else raw
    return len(text).to_bytes(8, "little") + text + data


def header_and_data(
    tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], bytes]:
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    data = b""
    for name, value in tensors.items():
        raw = np.ascontiguousarray(value).tobytes()
        header[name] = {
            "dtype": TYPES[value.dtype.name],
            "shape": list(value.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    return header, data


def write(path: Path, tensors: Mapping[str, Any], **metadata: str) -> Path:
    """A state file of these tensors; plain lists become float32."""
    arrays = {k: np.float32(v) if isinstance(v, (list, float)) else np.asarray(v) for k, v in tensors.items()}
    path.write_bytes(file_bytes(*header_and_data(arrays, metadata)))
    return path
