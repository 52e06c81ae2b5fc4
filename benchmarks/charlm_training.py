"""Trains the live model with AdamW in numpy and prints its loss and what a forward and backward pass takes.

    python benchmarks/charlm_training.py [--steps 1500] [--source charlm:width=128] [--sample 300]

The optimizer is the published one (see the README) in float32; a GPU is not needed.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from inspector.floats import F32Array
from inspector.sources.charlm.source import CharLm


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", default="charlm", help="as on the command line of the inspector")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--every", type=int, default=100, help="steps between two lines")
    parser.add_argument("--sample", type=int, default=0, help="characters to write at the end")
    args = parser.parse_args()

    begin = time.perf_counter()
    source = CharLm.from_text(args.source)
    state = source.initial_state()
    print(f"{source.name}: {source.description}")
    print(f"constructed in {(time.perf_counter() - begin) * 1e3:.0f} ms")
    begin = time.perf_counter()
    source.batch(1)
    print(f"text read in {(time.perf_counter() - begin) * 1e3:.0f} ms")

    w = {p.name: np.reshape(state.w[p.name], p.shape) for p in source.params}
    m = {name: np.zeros_like(weight) for name, weight in w.items()}
    v = {name: np.zeros_like(weight) for name, weight in w.items()}
    losses: list[float] = []
    elapsed_ms: list[float] = []
    for step in range(1, args.steps + 1):
        begin = time.perf_counter()
        gradients = source.gradients(step, lambda: w)
        elapsed_ms.append((time.perf_counter() - begin) * 1e3)
        losses.append(gradients.loss if gradients.loss is not None else float("nan"))
        adamw(
            source,
            step,
            w,
            m,
            v,
            {name: np.reshape(g, w[name].shape) for name, g in gradients.values.items()},
        )
        if step == 1 or step % args.every == 0:
            recent = min(args.every, step)
            low, middle, high = np.percentile(elapsed_ms[-recent:], [5, 50, 95])
            print(
                f"step {step:5d}  loss {np.mean(losses[-recent:]):.3f} nats/character  "
                f"forward+backward {middle:.1f} ms (p5 {low:.1f}, p95 {high:.1f})",
                flush=True,
            )
    if args.sample:
        print(source.sample(w, args.sample))


def adamw(
    source: CharLm,
    step: int,
    w: dict[str, F32Array],
    m: dict[str, F32Array],
    v: dict[str, F32Array],
    g: dict[str, F32Array],
) -> None:
    """One step in place, with clipping by the global norm; only tensors of two or more dimensions decay."""
    hyper = source.hyper
    lr = np.float32(hyper.lr * source.schedule.factor(step))
    norm = np.sqrt(sum(float(np.sum(x * x, dtype=np.float64)) for x in g.values()))
    clip = np.float32(min(1.0, hyper.max_grad_norm / max(norm, 1e-6)))
    b1, b2, eps = np.float32(hyper.beta1), np.float32(hyper.beta2), np.float32(hyper.eps)
    for name, weight in w.items():
        clipped = clip * g[name]
        m[name] = b1 * m[name] + (1 - b1) * clipped
        v[name] = b2 * v[name] + (1 - b2) * clipped * clipped
        decay = np.float32(hyper.weight_decay if weight.ndim >= 2 else 0.0)
        m_hat = m[name] / np.float32(1 - hyper.beta1**step)
        v_hat = v[name] / np.float32(1 - hyper.beta2**step)
        w[name] = weight - lr * (m_hat / (np.sqrt(v_hat) + eps) + decay * weight)


if __name__ == "__main__":
    main()
