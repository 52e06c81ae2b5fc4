"""Choose an adapter, open a device on it with all the limits it has, and explain what is missing."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import wgpu
from wgpu.backends.wgpu_native._ffi import lib as wgpu_native

from inspector.byte_sizes import size_text
from inspector.errors import DeviceLostError, InspectorError, OutOfMemoryError, UsageError
from inspector.plan import Limits
from inspector.stepping import DeviceInfo

USED_FEATURES = ("timestamp-query", "shader-f16")
MIN_STORAGE_BUFFERS = 5
"""What adamw_update binds."""

_ADAPTER_ORDER = {"DiscreteGPU": 0, "IntegratedGPU": 1, "Unknown": 2, "CPU": 3}
_BACKEND_ORDER = {"Vulkan": 0, "Metal": 0, "D3D12": 0, "OpenGL": 1, "OpenGLES": 1}

# Its messages reach people through the exceptions below; on the console they would be shown twice.
logging.getLogger("wgpu").setLevel(logging.CRITICAL + 1)


@dataclass(frozen=True, slots=True)
class AdapterReport:
    """An adapter as `inspector doctor` shows it; `problem` says why it cannot be used, "" if it can."""

    name: str
    backend: str
    type: str
    description: str
    features: tuple[str, ...]
    limits: dict[str, int]
    problem: str

    @property
    def usable(self) -> bool:
        """True if the optimizer step can run on it."""
        return not self.problem


def list_adapters() -> list[tuple[Any, AdapterReport]]:
    """Every adapter with its report, best first: hardware before software, native API before OpenGL."""
    with explained("looking for adapters"):
        adapters = wgpu.gpu.enumerate_adapters_sync()
    pairs = [(adapter, _report(adapter)) for adapter in adapters]
    return sorted(pairs, key=lambda pair: _rank(pair[1]))


def _rank(report: AdapterReport) -> tuple[bool, int, int]:
    return (
        not report.usable,
        _ADAPTER_ORDER.get(report.type, 2),
        _BACKEND_ORDER.get(report.backend, 2),
    )


def _report(adapter: Any) -> AdapterReport:
    info = adapter.info
    limits = {key.replace("-", "_"): int(value) for key, value in adapter.limits.items()}
    problem = ""
    if limits["max_storage_buffers_per_shader_stage"] < MIN_STORAGE_BUFFERS:
        problem = (
            f"adamw_update binds {MIN_STORAGE_BUFFERS} storage buffers, the adapter allows "
            f"{limits['max_storage_buffers_per_shader_stage']}"
        )
    elif limits["max_compute_invocations_per_workgroup"] < 256:
        problem = "it runs fewer than 256 threads a workgroup"
    elif info["backend_type"] not in ("Vulkan", "Metal", "D3D12"):
        problem = f"its {info['backend_type']} backend is incomplete for compute"
    return AdapterReport(
        name=str(info["device"]),
        backend=str(info["backend_type"]),
        type=str(info["adapter_type"]),
        description=str(info["description"]),
        features=tuple(sorted(adapter.features)),
        limits=limits,
        problem=problem,
    )


def choose_adapter(name: str | None = None) -> tuple[Any, AdapterReport]:
    """The best usable adapter, or the best whose name or backend contains `name` (any case).

    Raises UsageError naming what there is, or what to install where there is nothing.
    """
    pairs = list_adapters()
    if not pairs:
        raise UsageError(
            "No GPU adapter was found: install a Vulkan driver, or the software one with "
            "'apt-get install mesa-vulkan-drivers libvulkan1'."
        )
    if name is not None:
        named = [(a, r) for a, r in pairs if name.lower() in f"{r.name} {r.backend} {r.type}".lower()]
        if not named:
            have = ", ".join(f"{r.name} ({r.backend})" for _, r in pairs)
            raise UsageError(f"No adapter is called {name!r}; there are: {have}.")
        pairs = named
    adapter, report = pairs[0]
    if not report.usable:
        raise UsageError(
            f"Adapter {report.name} ({report.backend}) cannot run the step: {report.problem}; install a Vulkan "
            "driver, or the software one with 'apt-get install mesa-vulkan-drivers libvulkan1'."
        )
    return adapter, report


class Gpu:
    """An open device: buffers, shader modules, readback, and what it can do. Used from one thread only."""

    def __init__(self, adapter_name: str | None = None) -> None:
        adapter, self.report = choose_adapter(adapter_name)
        features = [f for f in USED_FEATURES if f in self.report.features]
        with explained("opening the device"):
            self.device = adapter.request_device_sync(
                label="inspector", required_features=features, required_limits=dict(adapter.limits)
            )
        got = {key.replace("-", "_"): int(value) for key, value in self.device.limits.items()}
        self.limits = Limits(**{name: got[name] for name in Limits.__dataclass_fields__})
        self.queue = self.device.queue
        self.timestamp_period_ns = float(wgpu_native.wgpuQueueGetTimestampPeriod(self.queue._internal))
        self.info = DeviceInfo(
            name=self.report.name,
            backend=self.report.backend,
            software=self.report.type == "CPU",
            timestamps="timestamp-query" in features,
            description=self.report.description,
        )
        self.memory_bytes = 0
        self.memory_limit = available_memory() if self.info.software else None
        """Bytes that may be allocated, None where the driver says so itself: a software device takes what the
        computer has, and the system ends a process that takes more."""
        self._staging: Any = None

    def buffer(self, label: str, size: int, usage: int) -> Any:
        """A new buffer of at least `size` bytes, zero, a multiple of 16; counted in `memory_bytes`."""
        size = max(-(-size // 16) * 16, 16)
        if size > self.limits.max_buffer_size:
            raise UsageError(
                f"Buffer {label} needs {size:,} bytes, over the limit of {self.limits.max_buffer_size:,} on "
                f"{self.info.name}."
            )
        if self.memory_limit is not None and self.memory_bytes + size > self.memory_limit:
            raise OutOfMemoryError(
                f"Not enough memory: {label} takes {size_text(size)} beside {size_text(self.memory_bytes)} in "
                f"use, this computer has {size_text(self.memory_limit)}; choose a smaller model."
            )
        with explained(f"allocating {size:,} bytes for {label}"):
            made = self.device.create_buffer(label=label, size=size, usage=usage)
        self.memory_bytes += size
        return made

    def storage(self, label: str, size: int) -> Any:
        """A storage buffer that can be copied from and to."""
        usage = wgpu.BufferUsage
        return self.buffer(label, size, usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)

    def uniform(self, label: str, size: int) -> Any:
        """A uniform buffer that can be written."""
        return self.buffer(label, size, wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST)

    def release(self, buffer: Any) -> None:
        """Give a buffer's memory back now rather than when the collector finds it."""
        self.memory_bytes -= buffer.size
        buffer.destroy()

    def drop(self, buffer: Any) -> None:
        """Count a buffer as given back; its memory goes when the last command recorded on it is done.

        The caller keeps no reference to it. For buffers that an encoder not yet submitted may use: destroying
        one of those makes the submission fail.
        """
        self.memory_bytes -= buffer.size

    def write(self, buffer: Any, offset: int, data: npt.NDArray[Any]) -> None:
        """Write an array's bytes at byte `offset`, in order with what is submitted."""
        if data.nbytes:
            with explained("writing a buffer"):
                self.queue.write_buffer(buffer, offset, np.ascontiguousarray(data))

    def encoder(self) -> Any:
        """A new command encoder."""
        with explained("recording commands"):
            return self.device.create_command_encoder()

    def submit(self, encoder: Any) -> None:
        """Finish an encoder and submit it; does not wait."""
        with explained("running on the device"):
            self.queue.submit([encoder.finish()])

    def wait(self) -> None:
        """Block until the device has done all that was submitted."""
        with explained("waiting for the device"):
            self.device._poll_wait()

    def read(
        self, buffer: Any, offset: int, nbytes: int, encoder: Any | None = None
    ) -> npt.NDArray[np.uint8]:
        """`nbytes` from byte `offset` (multiples of 4), after what `encoder` records; waits for the device."""
        out = np.empty(nbytes, np.uint8)
        if nbytes == 0 and encoder is not None:
            self.submit(encoder)
        for at in range(0, nbytes, _MAX_STAGING):
            size = min(_MAX_STAGING, nbytes - at)
            staging = self._staging_buffer(size)
            encoder = encoder or self.encoder()
            with explained("reading back"):
                encoder.copy_buffer_to_buffer(buffer, offset + at, staging, 0, size)
            self.submit(encoder)
            encoder = None
            with explained("reading back"):
                staging.map_sync(wgpu.MapMode.READ, 0, size)
                # Copied by numpy, which lets other threads run meanwhile; bytes() would hold them up.
                np.copyto(
                    out[at : at + size], np.frombuffer(staging.read_mapped(0, size, copy=False), np.uint8)
                )
                staging.unmap()
        return out

    def read_all(
        self, ranges: Sequence[tuple[Any, int, int]], encoder: Any | None = None
    ) -> list[npt.NDArray[np.uint8]]:
        """As `read`, of several ranges (buffer, offset, nbytes), after one submission where they are not too large.

        Each submission and each wait costs as much as a small kernel.
        """
        if not ranges:
            if encoder is not None:
                self.submit(encoder)
            return []
        total = sum(nbytes for _, _, nbytes in ranges)
        if total > _MAX_STAGING or total == 0:
            found = []
            for buffer, offset, nbytes in ranges:
                found.append(self.read(buffer, offset, nbytes, encoder))
                encoder = None
            return found
        staging = self._staging_buffer(total)
        encoder = encoder or self.encoder()
        ends = list(accumulate(nbytes for _, _, nbytes in ranges))
        with explained("reading back"):
            for (buffer, offset, nbytes), end in zip(ranges, ends, strict=True):
                if nbytes:
                    encoder.copy_buffer_to_buffer(buffer, offset, staging, end - nbytes, nbytes)
        self.submit(encoder)
        out = np.empty(total, np.uint8)
        with explained("reading back"):
            staging.map_sync(wgpu.MapMode.READ, 0, total)
            np.copyto(out, np.frombuffer(staging.read_mapped(0, total, copy=False), np.uint8))
            staging.unmap()
        return np.split(out, ends[:-1])

    def _staging_buffer(self, size: int) -> Any:
        if self._staging is None or self._staging.size < size:
            if self._staging is not None:
                self.release(self._staging)
            self._staging = self.buffer(
                "staging", size, wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
            )
        return self._staging

    def close(self) -> None:
        """Destroy the device; every buffer on it is gone."""
        self.device.destroy()


_MAX_STAGING = 64 << 20


def available_memory() -> int | None:
    """Bytes of this computer's memory that programs can still take, None where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn what wgpu raises into one sentence: device lost, out of memory, or what was not valid."""
    try:
        yield
    except InspectorError:
        raise
    except wgpu.GPUOutOfMemoryError as error:
        raise OutOfMemoryError(
            f"The GPU ran out of memory while {doing}: close other programs or choose a smaller model."
        ) from error
    except (wgpu.GPUError, RuntimeError) as error:
        text = str(error)
        if "lost" in text.lower() or "PollThread" in text:
            raise DeviceLostError(f"The GPU device was lost while {doing}.") from error
        if "not enough memory" in text.lower() or "out of memory" in text.lower():
            raise OutOfMemoryError(
                f"The GPU ran out of memory while {doing}: close other programs or choose a smaller model."
            ) from error
        raise InspectorError(f"The GPU refused something while {doing}: {_cause(text)}") from error


def _cause(text: str) -> str:
    """The most specific lines of a wgpu message, as one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [
        line
        for line in lines
        if line not in ("Validation Error", "Caused by:") and not line.startswith("In wgpu")
    ]
    return " ".join(lines) or text.strip() or "no reason was given"
