"""The CUDA kernel that counts params, compiled for the CPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
Words = Callable[[Any, tuple[int, ...]], Any]


def compile_kernel(folder: Path) -> Words:
    """What counts JOB[params] of so many elements, as words for `kernel.decode`."""
    from inspector.integrations.torch import kernel

    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    library = folder / "kernel.so"
    source = [f"-I{kernel.SOURCE.parent}", "-x", "c++", str(HERE / "cuda_on_cpu.h")]
    quiet = ["-w", "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([compiler, *quiet, *source, "-o", str(library)], check=True)
    run = ctypes.CDLL(str(library)).run

    def count(jobs: Any, sizes: tuple[int, ...]) -> Any:
        blocks = kernel.blocks_of(sizes)
        words = np.zeros(len(jobs) * (kernel.WORDS + 4 * 128), np.uint64)
        bins = words[len(jobs) * kernel.WORDS :]
        run(*(array.ctypes.data_as(ctypes.c_void_p) for array in (jobs, blocks)), len(blocks),
            *(array.ctypes.data_as(ctypes.c_void_p) for array in (words, bins)))  # fmt: skip
        return words

    return count
