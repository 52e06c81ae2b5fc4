"""The whole optimizer step here against PyTorch's, on the same GPU in the same run.

    python benchmarks/against_pytorch.py [SAMPLES]

PyTorch: clip_grad_norm_ (foreach), AdamW(fused=True).step() and zero_grad(set_to_none=False) over the tensors of
gpt-116m in float32, eager and as a CUDA graph, by CUDA events. Where bitsandbytes is installed, its AdamW8bit the
same way. Here: the dispatches of one step by timestamp queries. All after more than a second of work, so at full
clocks. Needs PyTorch with CUDA, and its GPU as the WebGPU adapter.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from inspector.codecs import CODECS
from inspector.gpu.bench import bench, copy_gbps
from inspector.gpu.device import Gpu
from inspector.plan import Variant
from inspector.preset import gpt_116m_params

WARM_UP_S = 1.5
VARIANTS = {
    "f32 two-block": Variant(),
    "f32 single": Variant(dispatch="single"),
    "f32 per-tensor": Variant(dispatch="per-tensor"),
    "f32 atomic": Variant(reduce="atomic"),
    "f32 precise": Variant(numerics="precise"),
    "f32 in passes": Variant(fused=False),
    "f32 adam-l2": Variant(optimizer="adam-l2"),
    "f16 two-block": Variant(kernel="f16"),
    "f16 in passes": Variant(kernel="f16", fused=False),
    **{f"8-bit {codec}": Variant(kernel="8bit", codec=codec) for codec in CODECS},
    "8-bit dynamic, small too": Variant(kernel="8bit", codec="dynamic", small_state="8bit"),
    "8-bit dynamic per-tensor": Variant(kernel="8bit", codec="dynamic", dispatch="per-tensor"),
}


def _training(optimizer: Callable[[list[dict[str, Any]]], Any]) -> Callable[[], None]:
    """One step with clipping and zeroing, over the reference model in its two groups."""
    params = [torch.nn.Parameter(0.02 * torch.randn(p.shape, device="cuda")) for p in gpt_116m_params()]
    for p in params:
        p.grad = 1e-5 * torch.randn_like(p)
    groups = [
        {"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
    ]
    made = optimizer(groups)

    def step() -> None:
        torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
        made.step()
        made.zero_grad(set_to_none=False)

    return step


def bitsandbytes_step() -> tuple[str, float] | None:
    """The version and the median ms of AdamW8bit (dynamic codes, small params in float32); None without it."""
    if importlib.util.find_spec("bitsandbytes") is None:
        return None
    import bitsandbytes

    ms = _median_ms(_training(lambda groups: bitsandbytes.optim.AdamW8bit(groups, lr=1e-3)))
    return bitsandbytes.__version__, ms


def torch_step() -> tuple[float, float]:
    """Median ms of PyTorch's step, eager and as a CUDA graph."""
    step = _training(lambda groups: torch.optim.AdamW(groups, lr=1e-3, fused=True, capturable=True))
    eager = _median_ms(step)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return eager, _median_ms(graph.replay)


def _median_ms(step: Callable[[], object], samples: int = 200) -> float:
    until = time.perf_counter() + WARM_UP_S
    while time.perf_counter() < until:
        step()
    torch.cuda.synchronize()
    pairs = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(samples)
    ]
    for start, end in pairs:
        start.record()
        step()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairs)


def main() -> None:
    """Print both, and the ratios."""
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    eager, graph = torch_step()
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}")
    print(f"  {eager:.3f} ms eager, {graph:.3f} ms as a graph")
    eight_bit = bitsandbytes_step()
    if eight_bit is not None:
        print(f"  bitsandbytes {eight_bit[0]} AdamW8bit: {eight_bit[1]:.3f} ms")
    torch.cuda.empty_cache()
    gpu = Gpu()
    copied = copy_gbps(gpu)
    print(f"here on {gpu.info.name} ({gpu.info.backend}); a copy moves {copied:,.0f} GB/s")
    for form, variant in VARIANTS.items():
        report = bench(gpu, gpt_116m_params(), variant, samples=samples, seconds=20, copy=copied)
        step = report.step
        kernels = ", ".join(f"{k.name} {k.median_ms:.3f}" for k in report.kernels if k.median_ms >= 0.02)
        print(
            f"  {form:>24}: {step.median_ms:.3f} ms (p95 {step.p95_ms:.3f}, {step.samples} warm samples, "
            f"{step.gbps:,.0f} GB/s, {step.share:.0%} of copy) = {step.median_ms / eager:.2f} of eager, "
            f"{step.median_ms / graph:.2f} of graph ({kernels})"
        )


if __name__ == "__main__":
    main()
