"""Settings of params as the end of a step's row: the classes, then the number of the map that says who is of which."""

from __future__ import annotations

import struct

from inspector.settings import ParamSettings, Settings

_CLASS = struct.Struct("<5dqB7x")
"""lr, β₁, β₂, ε, λ; steps behind; 1 where idle."""
_END = struct.Struct("<II")
"""The number of the map, and that of the classes before it."""


def pack_settings(settings: ParamSettings, number: int) -> bytes:
    """`settings` as bytes, but for which param is of which class: that is the map of this `number`."""
    classes = (
        _CLASS.pack(c.lr, c.beta1, c.beta2, c.eps, c.weight_decay, c.behind, c.idle) for c in settings.classes
    )
    return b"".join((*classes, _END.pack(number, len(settings.classes))))


def settings_size(row: bytes, start: int) -> int:
    """How many bytes at the end of `row` are settings, which begin after `start`; ValueError where it is too short."""
    if len(row) < start + _END.size:
        raise ValueError("the settings of params in the row of a step are cut off")
    _, classes = _END.unpack_from(row, len(row) - _END.size)
    size = int(classes) * _CLASS.size + _END.size
    if size > len(row) - start:
        raise ValueError("the settings of params in the row of a step are cut off")
    return size


def unpack_settings(data: bytes, maps: list[tuple[int, ...]], params: int) -> ParamSettings:
    """What `pack_settings` made bytes of, in a run of so many params; ValueError for what no run can have."""
    number, _ = _END.unpack_from(data, len(data) - _END.size)
    classes = tuple(
        Settings(lr, beta1, beta2, eps, decay, behind, bool(idle))
        for lr, beta1, beta2, eps, decay, behind, idle in _CLASS.iter_unpack(data[: len(data) - _END.size])
    )
    if number >= len(maps):
        raise ValueError(f"row {number} of maps is missing")
    return ParamSettings(classes, maps[number]).check(params)
