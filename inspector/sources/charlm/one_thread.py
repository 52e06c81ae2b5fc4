"""Matrix products kept on the thread that asks for them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep matrix products on the thread that asks for them, where numpy brings OpenBLAS.

    OpenBLAS's threads wait for each other by spinning, and matrices this small gain nothing from them. While
    other programs had both cores of a machine, as a software GPU driver may, a step took up to 320 ms with
    them and about 20 ms without.

    How many there are holds for the whole process: while several threads are in here, the last puts it back.
    """
    library = openblas()
    if library is None:
        yield
        return
    _inside.enter(library)
    try:
        yield
    finally:
        _inside.leave(library)


class _Inside:
    """How many threads want OpenBLAS to have one thread, and how many it had before the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._before = 1

    def enter(self, openblas: ctypes.CDLL) -> None:
        with self._lock:
            if not self._count:
                self._before = openblas.scipy_openblas_get_num_threads64_()
                openblas.scipy_openblas_set_num_threads64_(1)
            self._count += 1

    def leave(self, openblas: ctypes.CDLL) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                openblas.scipy_openblas_set_num_threads64_(self._before)


_inside = _Inside()


@cache
def openblas() -> ctypes.CDLL | None:
    """The OpenBLAS in numpy's wheels, already loaded; None where numpy was built with another library."""
    package = Path(np.__file__).parent
    for path in (*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")):
        library = ctypes.CDLL(str(path))
        if hasattr(library, "scipy_openblas_set_num_threads64_"):
            return library
    return None
