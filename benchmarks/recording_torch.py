"""What recording a run of PyTorch costs: a GPT of 124 M parameters, with and without it, in one process, in turns.

    python benchmarks/recording_torch.py                       # on a GPU: 124 M, bfloat16 autocast, fused AdamW
    python benchmarks/recording_torch.py --check               # the counts of the GPU held against numpy first
    python benchmarks/recording_torch.py --batch 32 --context 1024 --captures stats stats+flight:4 --json
    python benchmarks/recording_torch.py --size tiny --device cpu --steps 4 --rounds 3   # to see that it runs
    python benchmarks/recording_torch.py --size tiny --device cpu --batch 4 --context 64 --unkept

A round trains `--steps` steps without recording, then with each of `--captures`, the order turned by one every
round, so that a clock that drifts favours none. Every turn has a recording of its own, which is closed outside of what
is timed. The host's clock is read when the device is done, before the first and after the last step of a turn; its
first `--warm` steps are left out, and so is the first round, in which memory is taken. Printed are the median and the
quartiles of a step, and of what recording adds to it, round by round. With `--unkept` each capture has turns besides in
which the script does not wait until the step before is on disk: what that promise costs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent.parent))

from inspector.integrations.torch import record
from inspector.integrations.torch.counting import Task, table_of
from inspector.integrations.torch.keeping import Keeping
from inspector.integrations.torch.transfer import Transfer
from inspector.integrations.torch.watch import Counter
from inspector.param_statistics import lane_stats

SIZES = {"gpt-124m": (12, 12, 768, 50_304), "gpt-10m": (6, 6, 384, 256), "tiny": (2, 2, 64, 256)}
"""Layers, heads, width, vocabulary."""


UNKEPT = ", unkept"
WAIT = Keeping.wait_for


def _no_wait(keeping: Keeping, step: int) -> float | None:
    """As though every step were on disk."""
    return None


class Block(torch.nn.Module):
    """Attention and MLP as in GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(c, 2)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(torch.nn.Module):
    """GPT-2 with tied embeddings."""

    def __init__(self, layers: int, heads: int, width: int, vocabulary: int, context: int) -> None:
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(context, width)
        self.h = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
                torch.nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.wte.weight

    def forward(self, tokens: Any) -> Any:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


class Training:
    """A model that trains on drawn tokens."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.options = options
        layers, heads, width, vocabulary = SIZES[options.size]
        self.device = torch.device(options.device)
        self.model = Gpt(layers, heads, width, vocabulary, options.context).to(self.device)
        decayed = [p for p in self.model.parameters() if p.dim() >= 2]
        others = [p for p in self.model.parameters() if p.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
            lr=3e-4, betas=(0.9, 0.95), **{options.optimizer: True},
        )  # fmt: skip
        self.vocabulary = vocabulary

    def step(self, recording: Any) -> None:
        """As people write it; the loss is not waited for."""
        # New ones each step, frequent and rare as words are: the rules would tell of a batch learnt by heart.
        shape = (self.options.batch, self.options.context + 1)
        tokens = (self.vocabulary * torch.rand(shape, device=self.device) ** 4).long()
        with torch.autocast(self.device.type, torch.bfloat16):
            logits = self.model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        if recording is not None:
            recording.loss(loss)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def wait(self) -> None:
        """Until the device has done all."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def turn(self, recording: Any) -> float:
        """Seconds a step."""
        for _ in range(self.options.warm):
            self.step(recording)
        self.wait()
        began = time.perf_counter()
        for _ in range(self.options.steps):
            self.step(recording)
        self.wait()
        return (time.perf_counter() - began) / self.options.steps


def check(device: Any) -> None:
    """Counts on `device` held against numpy, for every type and awkward sizes; ends the program where they differ."""
    tasks = []
    for seed, (size, kind) in enumerate(
        (size, kind)
        for size in (1, 5, 33, 4096, 16_385, 1_000_003)
        for kind in (torch.float32, torch.bfloat16, torch.float16)
    ):
        drawn = torch.Generator().manual_seed(seed)
        w, g, m = (torch.randn(size, generator=drawn) * s for s in (0.05, 1e-3, 1e-4))
        v = torch.rand(size, generator=drawn) * 1e-6
        if size > 100:
            g[7], g[size // 2], g[size - 1], g[3] = float("nan"), float("inf"), -float("inf"), 0.0
        lanes = [lane.to(kind).to(device) for lane in (w, g, m, v)]
        tasks.append(Task(*lanes, lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1, t=7.0))
    transfer, counter = Transfer(), Counter()
    counts = counter.count(tasks, transfer)
    transfer.seal()
    sizes = [task.w.numel() for task in tasks]
    count = len(tasks)
    with np.errstate(all="ignore"):
        table = table_of(
            counts.host(transfer.arrays()), tuple(map(str, range(count))), ("wd",) * count, sizes, [0] * count,
            [None] * count,
        )  # fmt: skip
        for stats, task in zip(table, tasks, strict=True):
            for lane, tensor in zip("wgmv", task.lanes, strict=True):
                expected = lane_stats(tensor.float().cpu().numpy())
                found = stats.lanes[lane]
                same = (
                    found.counts.nonfinite == expected.counts.nonfinite
                    and found.counts.zeros == expected.counts.zeros
                    and (found.counts.exponents == expected.counts.exponents).all()
                    and (found.low, found.high) == (expected.low, expected.high)
                    and abs(found.norm - expected.norm) <= 2e-7 * expected.norm
                )
                if not same:
                    sys.exit(
                        f"{lane} of {task.w.dtype} with {task.w.numel()} elements is counted wrong: {found}"
                    )
            w, g, m, v = (lane.double().cpu().numpy() for lane in task.lanes)
            m1, v1 = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
            change = 1e-3 * (m1 / (1 - 0.9**7) / (np.sqrt(v1 / (1 - 0.95**7)) + 1e-8) + 0.1 * w)
            norm = np.sqrt(np.square(change[np.isfinite(change)]).sum())
            if (
                abs(stats.update.norm - norm) > 1e-5 * norm
                or stats.update.skipped != (~np.isfinite(change)).sum()
            ):
                sys.exit(f"the update of {task.w.dtype} with {task.w.numel()} elements is counted wrong")
    how = "operations of PyTorch" if counter.fallback or device.type != "cuda" else "the kernel"
    why = f" ({counter.fallback})" if counter.fallback else ""
    print(f"counted on {device} by {how}{why}: as numpy has it, {count} params", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="gpt-124m")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--optimizer", choices=("fused", "foreach"), default="fused")
    parser.add_argument("--captures", nargs="*", default=["stats", "stats+flight:4"])
    parser.add_argument("--steps", type=int, default=16, help="of a turn")
    parser.add_argument("--warm", type=int, default=4, help="steps of a turn that are left out")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--folder", type=Path, help="where the recordings go; a temporary folder if left out")
    parser.add_argument("--unkept", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.check:
        check(torch.device(options.device, 0) if options.device == "cuda" else torch.device(options.device))
    if options.unkept:
        options.captures += [f"{capture}{UNKEPT}" for capture in options.captures]
    folder = options.folder or Path(tempfile.mkdtemp(prefix="inspector-"))
    training = Training(options)
    for _ in range(options.warm + 2):
        training.step(None)
    plain: list[float] = []
    recorded: dict[str, list[float]] = {capture: [] for capture in options.captures}
    waits: dict[str, float] = dict.fromkeys(options.captures, 0.0)
    sizes: dict[str, int] = {}
    # A turn has a recording of its own, so that nothing of another one is under way in it.
    for round_ in range(options.rounds + 1):
        order = [None, *options.captures]
        shift = round_ % len(order)
        for capture in order[shift:] + order[:shift]:
            if capture is None:
                plain.append(training.turn(None))
                continue
            path = folder / f"{len(recorded[capture])}.session"
            shutil.rmtree(path, ignore_errors=True)
            policy = capture.removesuffix(UNKEPT)
            Keeping.wait_for = WAIT if policy == capture else _no_wait  # type: ignore[method-assign]
            recording = record(training.optimizer, path, training.model, policy)
            recorded[capture].append(training.turn(recording))
            began = time.perf_counter()
            recording.close()
            waits[capture] = max(waits[capture], time.perf_counter() - began)
            if recording.problem:
                sys.exit(recording.problem)
            sizes[capture] = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            shutil.rmtree(path)
        so_far = ", ".join(f"{c} {1e3 * times[-1]:.2f}" for c, times in recorded.items())
        print(
            f"round {round_} of {options.rounds}: {1e3 * plain[-1]:.2f} ms not recorded, {so_far}",
            file=sys.stderr,
        )
    if options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    # Of the first round pinned memory was taken.
    plain = plain[1:]
    recorded = {capture: times[1:] for capture, times in recorded.items()}
    document = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else options.device,
        "parameters": sum(p.numel() for p in training.model.parameters()),
        "batch": options.batch, "context": options.context, "optimizer": options.optimizer, "rounds": options.rounds,
        "plain_ms": _three([1e3 * each for each in plain]),
    }  # fmt: skip
    for capture, times in recorded.items():
        added = [100 * (each / bare - 1) for each, bare in zip(times, plain, strict=True)]
        document[capture] = {
            "ms": _three([1e3 * each for each in times]),
            "added_percent": _three(added),
            "close_s": round(waits[capture], 2),
            "session_bytes": sizes[capture],
        }
    if options.json:
        print(json.dumps(document, indent=1))
        return
    print(f"{document['device']}, PyTorch {torch.__version__}, {document['parameters']:,} parameters,")
    print(f"batch {options.batch} x {options.context}, {options.optimizer} AdamW,")
    print(f"{options.rounds} rounds of {options.steps} steps a turn: median (quartiles)")
    print(f"{'':16} {'ms a step':>26} {'added, %':>26}")
    print(f"{'not recorded':16} {_words(document['plain_ms'])}")
    for capture in recorded:
        found = document[capture]
        print(f"{capture:16} {_words(found['ms'])} {_words(found['added_percent'])}")


def _three(values: list[float]) -> list[float]:
    """Lower quartile, median, upper quartile."""
    if len(values) < 2:
        return [round(value, 3) for value in values * 3]
    return [round(value, 3) for value in statistics.quantiles(values, n=4, method="inclusive")]


def _words(three: Any) -> str:
    low, middle, high = three
    return f"{middle:10.2f} ({low:.2f} to {high:.2f})".rjust(26)


if __name__ == "__main__":
    main()
