"""CRC-32 of files by parts: a part can be held against its own, and those of the parts give that of the whole."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

PART_BYTES = 4 << 20
"""Of a part; the last one of a file is shorter."""
_READ_BYTES = 8 << 20
_POLYNOMIAL = 0xEDB88320
"""Of the CRC-32 of zlib, zip and Ethernet, the highest power first in the lowest bit."""


def part_checksums(pieces: Iterable[memoryview]) -> tuple[int, ...]:
    """The CRC-32 of each part of what lies in `pieces` one after the other."""
    found: list[int] = []
    crc, room = 0, PART_BYTES
    for piece in pieces:
        while piece:
            part, piece = piece[:room], piece[room:]
            crc = zlib.crc32(part, crc)
            room -= len(part)
            if not room:
                found.append(crc)
                crc, room = 0, PART_BYTES
    return (*found, crc) if room < PART_BYTES or not found else tuple(found)


def whole_checksum(parts: Sequence[int], size: int) -> int:
    """The CRC-32 of `size` bytes whose parts have these."""
    if not parts:
        return 0
    step = _power(8 * PART_BYTES)
    whole = parts[0]
    for part in parts[1:-1]:
        whole = _times(step, whole) ^ part
    if len(parts) > 1:
        whole = _times(_power(8 * (size - (len(parts) - 1) * PART_BYTES)), whole) ^ parts[-1]
    return whole


def file_checksum(path: Path, start: int, size: int) -> int:
    """The CRC-32 of `size` bytes of a file, read, not mapped: a map of a file that shrinks ends the process."""
    crc = 0
    buffer = memoryview(bytearray(min(_READ_BYTES, max(size, 1))))
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while size > 0:
            got = file.readinto(buffer[: min(size, len(buffer))])
            if not got:
                break
            crc = zlib.crc32(buffer[:got], crc)
            size -= got
    return crc


def _times(a: int, b: int) -> int:
    """The product of two polynomials over GF(2), modulo that of the CRC."""
    product = 0
    while a:
        if a & 0x8000_0000:
            product ^= b
        a = a << 1 & 0xFFFF_FFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _power(bits: int) -> int:
    """What a CRC is multiplied by when so many zero bits follow: x to the power of `bits`."""
    power, square = 0x8000_0000, 0x4000_0000
    while bits:
        if bits & 1:
            power = _times(power, square)
        square = _times(square, square)
        bits >>= 1
    return power
