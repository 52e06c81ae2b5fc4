"""What adamw_8bit_update costs with each codec, beside adamw_update and a plain copy, by timestamps.

    python benchmarks/kernel_8bit.py [ELEMENTS]

The kernels take turns, so that a machine whose speed drifts favours none. Before each its gradients are put back, so
that codes stay as varied as in training, which looking them up may depend on. Bytes an element, read plus written: 32
in float32, 20 and two scales a block in 8 bits.
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any

import numpy as np
import wgpu

from inspector.codecs import BLOCK, CODECS, zero_word
from inspector.gpu.bench import copy_gbps
from inspector.gpu.device import Gpu
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.pipelines_8bit import CODER_CONSTANTS, ELEMENTS_A_GROUP, UPDATE_SLOTS
from inspector.gpu.timing import durations_ms
from inspector.hyper import Hyper, bias_uniform, hp_uniform
from inspector.plan import Access

SECONDS = 6.0
WARM_UP_S = 1.5
GROUPS_A_ROW = 65_535
F32_SLOTS: tuple[tuple[int, Access], ...] = (
    *((slot, "read_write") for slot in range(4)),
    (4, "read"),
    *((slot, "uniform") for slot in (5, 6, 7)),
)


def main() -> None:
    """Print the least and the median time of each kernel, and the bytes a second that means."""
    elements = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000_000
    elements = -(-elements // ELEMENTS_A_GROUP) * ELEMENTS_A_GROUP
    gpu = Gpu()
    copied = copy_gbps(gpu)
    print(f"{elements:,} elements on {gpu.info.name}; a copy moves {copied:.1f} GB/s")
    if not gpu.info.timestamps:
        sys.exit("This device has no timestamps.")
    gradients = _normal(gpu, elements)
    runs = {f"8-bit {codec}": _run_8bit(gpu, elements, codec) for codec in CODECS}
    runs["float32"] = _run_f32(gpu, elements)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    began = time.perf_counter()
    usage = wgpu.BufferUsage
    queries = gpu.device.create_query_set(type="timestamp", count=2 * len(runs))
    ticks = gpu.buffer("ticks", 16 * len(runs), usage.QUERY_RESOLVE | usage.COPY_SRC)
    while (now := time.perf_counter() - began) < SECONDS or len(taken["float32"]) < 3:
        encoder = gpu.encoder()
        for index, (pipeline, group, g, _) in enumerate(runs.values()):
            encoder.copy_buffer_to_buffer(gradients, 0, g, 0, g.size)
            writes = {
                "query_set": queries,
                "beginning_of_pass_write_index": 2 * index,
                "end_of_pass_write_index": 2 * index + 1,
            }
            in_pass = encoder.begin_compute_pass(timestamp_writes=writes)
            in_pass.set_pipeline(pipeline)
            in_pass.set_bind_group(0, group)
            groups = elements // ELEMENTS_A_GROUP
            columns = min(groups, GROUPS_A_ROW)
            in_pass.dispatch_workgroups(columns, -(-groups // columns))
            in_pass.end()
        encoder.resolve_query_set(queries, 0, 2 * len(runs), ticks, 0)
        pairs = gpu.read(ticks, 0, 16 * len(runs), encoder).view(np.uint64).reshape(-1, 2).tolist()
        for name, ms in zip(runs, durations_ms(pairs, gpu.timestamp_period_ns), strict=True):
            if ms is not None and (gpu.info.software or now > WARM_UP_S):
                taken[name].append(ms)
    for name, (*_, nbytes) in runs.items():
        least, middle = min(taken[name]), median(taken[name])
        gbps = nbytes * elements / middle / 1e6
        print(
            f"  {name:>13}: {least:8.3f} ms least, {middle:8.3f} median of {len(taken[name])}; {gbps:7.1f} GB/s "
            f"({gbps / copied:.0%} of a copy)"
        )


def _run_8bit(gpu: Gpu, elements: int, codec: Any) -> tuple[Any, Any, Any, float]:
    """Pipeline, bindings, gradients, and bytes an element."""
    words = [np.full(elements // 4, zero_word(codec, which), np.uint32) for which in ("m", "v")]
    scales = np.zeros(elements // BLOCK, np.float32)
    pipelines = Pipelines(gpu)
    buffers = [
        _normal(gpu, elements),
        gpu.storage("g", 4 * elements),
        *(_storage(gpu, x) for x in (*words, scales, scales)),
        *_settings(gpu, elements),
    ]
    group = pipelines.bind(UPDATE_SLOTS, [(b, 0, b.size) for b in buffers])
    pipeline = pipelines.get("adamw_8bit_update", "adamw_8bit_update", UPDATE_SLOTS, CODER_CONSTANTS[codec])
    return pipeline, group, buffers[1], 20 + 16 / BLOCK


def _run_f32(gpu: Gpu, elements: int) -> tuple[Any, Any, Any, float]:
    pipelines = Pipelines(gpu)
    lanes = [gpu.storage(name, 4 * elements) for name in "mv"]
    buffers = [_normal(gpu, elements), gpu.storage("g", 4 * elements), *lanes, *_settings(gpu, elements)]
    group = pipelines.bind(F32_SLOTS, [(b, 0, b.size) for b in buffers])
    return pipelines.get("adamw_update", "adamw_update", F32_SLOTS), group, buffers[1], 32.0


def _normal(gpu: Gpu, elements: int) -> Any:
    return _storage(gpu, np.random.default_rng(0).standard_normal(elements, dtype=np.float32))


def _settings(gpu: Gpu, elements: int) -> list[Any]:
    made = [_storage(gpu, np.float32([1, 1]))]
    for data in (
        np.uint32([elements]),
        hp_uniform(Hyper(), decays=True),
        bias_uniform(Hyper(), 10, "published"),
    ):
        made.append(gpu.uniform("settings", data.nbytes))
        gpu.write(made[-1], 0, data)
    return made


def _storage(gpu: Gpu, data: Any) -> Any:
    made = gpu.storage("lane", data.nbytes)
    gpu.write(made, 0, data)
    return made


if __name__ == "__main__":
    main()
