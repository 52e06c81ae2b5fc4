"""Sizes in bytes as people read them. One rule for the window, the commands and every sentence.

How much there is (memory, files, what is left on a disk) is in powers of ten, as devices, disks and GB/s are: 141 GB
of an H200 are 141·10⁹ bytes. Where something lies in a buffer and how much a device binds are multiples of powers of
two and stay whole: those are in KiB, MiB, GiB.
"""

from __future__ import annotations

KB, MB, GB = 10**3, 10**6, 10**9
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BINARY_UNITS = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))


def size_text(nbytes: float) -> str:
    """How much there is, in three digits and a power of ten: 464 MB, 1.12 TB; whole bytes below 1 kB."""
    if abs(nbytes) < KB:
        return f"{nbytes:.0f} B"
    # What would be rounded to 1000 takes the next unit.
    thousands = next(n for n in range(1, 9) if abs(nbytes) < 999.5 * 1000**n or n == 8)
    value = nbytes / 1000**thousands
    digits = next(d for d, below in enumerate((99.5, 9.995, 0)) if abs(value) >= below)
    return f"{value:,.{digits}f} {'kMGTPEZY'[thousands - 1]}B"


def limit_text(nbytes: int) -> str:
    """A limit of a device or a place in a buffer: 128 MiB, 64 KiB; its bytes where it is no whole number of those."""
    for unit, name in BINARY_UNITS:
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit:,} {name}"
    return f"{nbytes:,} bytes"
