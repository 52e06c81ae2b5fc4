"""Counting by a kernel of its own, one launch a step for all params of a device: CUDA, and ROCm where that compiles it.

It is compiled by the NVRTC that PyTorch brings with it, so no compiler has to be installed.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from inspector.integrations.torch.counting import ALL_BINS, RECORD, WORDS, Array, Counted, Task, Tensor
from inspector.stores import LANES

THREADS = 256
CHUNK = 16384
"""Elements that a block of threads takes; as in the kernel."""
KEPT_BLOCKS = 8
"""Lists of blocks kept on the device: of all params, of those that are clipped together."""
SOURCE = Path(__file__).with_name("count_params.cu")
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
JOB = np.dtype(
    [
        ("at", "<u8", (5,)), ("step", "<u8"), ("lr_at", "<u8"), ("scale_at", "<u8"),
        ("unless_at", "<u8"),
        *((name, "<f8") for name in ("lr", "beta1", "beta2", "eps", "decay", "t", "sign")),
        ("kinds", "<u8"), ("form", "<u8"), ("numel", "<u8"),
    ]
)  # fmt: skip
"""What the kernel is told of a param; the fields of its struct Job."""


@cache
def compiled(device: int) -> Any:
    """The kernel for a device; raises what the compiler or the driver says where there is none."""
    with torch.cuda.device(device):
        return torch.cuda._compile_kernel(SOURCE.read_text("utf-8"), "count_params")


def jobs_of(tasks: Sequence[Task]) -> tuple[Array, list[Tensor]]:
    """JOB[params], and tensors made for it, which have to live until the kernel has run."""
    made: list[Tensor] = []

    def on_device(tensor: Tensor | None, device: Any) -> int:
        if tensor is None:
            return 0
        if tensor.dtype != torch.float32 or tensor.device != device:
            tensor = tensor.to(device=device, dtype=torch.float32, non_blocking=True)
            made.append(tensor)
        return int(tensor.data_ptr())

    rows = []
    for task in tasks:
        device = task.w.device
        given = (*task.lanes, task.v_max)
        kinds = 0
        for at, tensor in enumerate(given):
            if tensor is not None:
                kinds |= KINDS[tensor.dtype] << (4 * at)
        rows.append(
            (
                tuple(0 if tensor is None else tensor.data_ptr() for tensor in given),
                on_device(task.step_tensor, device), on_device(task.lr_tensor, device),
                on_device(task.scale, device), on_device(task.unless_finite, device),
                task.lr, task.beta1, task.beta2, task.eps, task.decay, task.t, task.sign,
                kinds, task.adam | task.l2 << 1 | task.idle << 2, task.w.numel(),
            )
        )  # fmt: skip
    return np.array(rows, JOB), made


def can_count(task: Task) -> bool:
    """True where the kernel reads tensors of these types."""
    return all(tensor is None or tensor.dtype in KINDS for tensor in (*task.lanes, task.v_max))


def blocks_of(sizes: Sequence[int]) -> Array:
    """uint32[blocks, 2]: the number of a param, and which CHUNK of it."""
    counts = np.array([-(-size // CHUNK) for size in sizes], np.int64)
    owner = np.repeat(np.arange(len(sizes)), counts)
    chunk = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
    return np.stack((owner, chunk), 1).astype(np.uint32)


def decode(words: Array, count: int) -> Counted:
    """What the kernel left for `count` params, once it is on the host."""
    records, bins = words[: count * WORDS], words[count * WORDS :]
    return Counted(
        np.ascontiguousarray(records).view(RECORD), bins.view(np.uint32).reshape(count, len(LANES), ALL_BINS)
    )


class Launcher:
    """Launches a kernel of four pointers. What PyTorch looks up and makes anew at every launch is kept."""

    def __init__(self, kernel: Any) -> None:
        """`kernel` as PyTorch compiled it."""
        self._function = kernel.func
        self._keep = kernel
        utils = torch.cuda._utils
        # Older versions know CUDA alone, by another name.
        find = getattr(utils, "_get_gpu_runtime_library", None) or utils._get_cuda_library
        self._call = find().cuLaunchKernel
        self._pointers = [ctypes.c_void_p() for _ in range(4)]
        self._arguments = (ctypes.c_void_p * 4)(*(ctypes.addressof(each) for each in self._pointers))

    def __call__(self, blocks: int, *addresses: int) -> None:
        """On the current stream of the current device; RuntimeError for what the driver says."""
        for pointer, address in zip(self._pointers, addresses, strict=True):
            pointer.value = address
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        torch.cuda._utils._check_cuda(
            self._call(self._function, blocks, 1, 1, THREADS, 1, 1, 0, stream, self._arguments, None)
        )


class KernelCounter:
    """Counts params of one CUDA device; blocks are laid out once for the same params."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._launch = Launcher(compiled(device.index))
        self._blocks: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()
        """By the sizes of the params."""

    def count(self, tasks: Sequence[Task]) -> Tensor:
        """As `launch`, of tasks."""
        jobs, _made = jobs_of(tasks)
        # What was made on the way is given back to the allocator of the stream, which reuses it after the kernel.
        return self.launch(jobs, tuple(task.w.numel() for task in tasks))

    def launch(self, jobs: Array, sizes: tuple[int, ...]) -> Tensor:
        """Launch it on the current stream, and return at once: words for `decode`, on the device.

        `jobs` is JOB[params], `sizes` their elements.
        """
        blocks = self._blocks.get(sizes)
        if blocks is None:
            blocks = self._blocks[sizes] = torch.from_numpy(blocks_of(sizes).view(np.int32)).to(self.device)
            if len(self._blocks) > KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        # Pinned, so that the copy does not wait; PyTorch reuses the memory only once the copy is done.
        staged = torch.from_numpy(jobs.view(np.int64)).pin_memory()
        told = staged.to(self.device, non_blocking=True)
        half = len(jobs) * WORDS
        words = torch.zeros(
            half + len(jobs) * len(LANES) * ALL_BINS // 2, dtype=torch.int64, device=self.device
        )
        if len(blocks):
            with torch.cuda.device(self.device):
                at = words.data_ptr()
                self._launch(len(blocks), told.data_ptr(), blocks.data_ptr(), at, at + 8 * half)
        return words
