"""The whole float32 step on the software adapter against PyTorch's on the same cores, in the same run.

    python benchmarks/against_pytorch_cpu.py [ELEMENTS]

PyTorch: AdamW(fused=True).step() alone, and with clip_grad_norm_ and zero_grad, over the tensors of synthetic:ELEMENTS
on the CPU, by the clock. Here: the dispatches of one step by timestamp queries. Both take turns, so that what else the
machine does falls on both. Needs PyTorch.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch

from inspector.gpu.device import Gpu
from inspector.gpu.opener import device_layout
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.plan import Variant
from inspector.preset import drawn_gradients, drawn_state, synthetic_params

ROUNDS = 12
TURN = 8


def main() -> None:
    """Print the medians and their ratios."""
    elements = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000_000
    params = synthetic_params(elements)
    tensors = [torch.nn.Parameter(0.02 * torch.randn(p.shape)) for p in params]
    gradients = [1e-5 * torch.randn_like(t) for t in tensors]
    optimizer = torch.optim.AdamW(tensors, lr=1e-3, fused=True)
    gpu = Gpu()
    stepper = GpuStepper(
        gpu, device_layout(gpu, params, Variant()), Variant(), drawn_state(params, 0), undo_bytes=0
    )
    taken: dict[str, list[float]] = {"here": [], "step": [], "clip, step and zero": []}
    for _ in range(ROUNDS):
        for k in range(TURN):
            stepper.begin_step(drawn_gradients(params, 0, stepper.cursor.step + 1))
            times = stepper.run_to_end(Hyper())
            if k:
                taken["here"].append(sum(t.ms if t.ms is not None else float("nan") for t in times))
        for name in ("step", "clip, step and zero"):
            for k in range(TURN):
                for tensor, gradient in zip(tensors, gradients, strict=True):
                    tensor.grad = gradient.clone()
                started = time.perf_counter()
                if name != "step":
                    torch.nn.utils.clip_grad_norm_(tensors, 1.0, foreach=True)
                optimizer.step()
                if name != "step":
                    optimizer.zero_grad(set_to_none=False)
                if k:
                    taken[name].append(1e3 * (time.perf_counter() - started))
    median = {name: statistics.median(values) for name, values in taken.items()}
    print(
        f"{elements:,} elements, {torch.get_num_threads()} threads, PyTorch {torch.__version__}, {gpu.info.name}"
    )
    print(f"  here, the whole step: {median['here']:.2f} ms")
    for name in ("step", "clip, step and zero"):
        print(
            f"  PyTorch, {name}: {median[name]:.2f} ms; here {median['here'] / median[name]:.2f} times as long"
        )


if __name__ == "__main__":
    main()
