"""A GPT of 10 M parameters trained with PyTorch on the CPU, recorded by one line, followed, and executed again here.

    python benchmarks/pytorch_run.py [--steps 300] [--layers 6] [--folder DIR] [--keep] [--fused]

Trains in a process of its own, in which `record(...)` is the one line added; meanwhile this one follows the session as
`inspector info` would, and says how far behind it is. Then `inspector replay --verify` runs every step again from the
state that PyTorch had before it, and holds w, m and v after it against PyTorch's. Each step keeps w, m, v and g: 16
bytes a parameter, 48 GB for 300 steps of 10 M, which have to fit below --folder and are deleted at the end without
--keep. Prints figures as a table of Markdown. Needs PyTorch and an adapter (the software one is enough).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
WIDTH, HEADS, CONTEXT, BATCH, VOCAB = 368, 8, 32, 4, 256
LR, WARMUP, DECAY, BETAS, CLIP = 6e-4, 30, 0.1, (0.9, 0.95), 1.0


# --- the script of a user


def train(path: Path, steps: int, layers: int, capture: str, fused: bool, threads: int) -> None:
    """What a person has in train.py, with one line added."""
    import torch
    from torch import nn
    from torch.nn import functional

    from inspector.integrations.torch import record

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = (
                part.view(b, t, HEADS, c // HEADS).transpose(1, 2)
                for part in self.qkv(self.ln_1(x)).split(c, 2)
            )
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, c))
            return x + self.down(functional.gelu(self.up(self.ln_2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.h = nn.ModuleList(Block() for _ in range(layers))
            self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
            self.head.weight = self.wte.weight
            for module in self.modules():
                if isinstance(module, (nn.Linear, nn.Embedding)):
                    nn.init.normal_(module.weight, std=0.02)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)

        def forward(self, tokens: Any) -> Any:
            x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
            for block in self.h:
                x = block(x)
            return self.head(self.ln_f(x))

    torch.manual_seed(1)
    torch.set_num_threads(threads)
    library = Path(sysconfig.get_paths()["stdlib"])
    text = b"".join(
        (library / name).read_bytes() for name in ("argparse.py", "ast.py", "typing.py", "inspect.py")
    )
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    model = GPT()
    params = list(model.parameters())
    groups = [
        {"params": [p for p in params if p.dim() >= 2], "weight_decay": DECAY},
        {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, fused=fused)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda k: min((k + 1) / WARMUP, 0.55 + 0.45 * math.cos(math.pi * min(k / steps, 1))),
    )
    began = time.perf_counter()
    with record(optimizer, path, model=model, capture=capture) as recording:
        for _ in range(steps):
            at = torch.randint(len(data) - CONTEXT - 1, (BATCH,))
            batch = torch.stack([data[i : i + CONTEXT + 1] for i in at.tolist()])
            logits = model(batch[:, :-1])
            loss = functional.cross_entropy(logits.reshape(-1, VOCAB), batch[:, 1:].reshape(-1))
            loss.backward()
            recording.loss(loss)
            nn.utils.clip_grad_norm_(params, CLIP)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        trained = time.perf_counter() - began
    document = {
        "torch": torch.__version__,
        "parameters": sum(p.numel() for p in params),
        "tensors": len(params),
        "threads": threads,
        "train_s": trained,
        "whole_s": time.perf_counter() - began,
        "loss": loss.item(),
        "problem": recording.problem,
    }
    print(json.dumps(document))


# --- what is measured


def inspector(*arguments: str) -> dict[str, Any]:
    """A command of the inspector, its document."""
    done = subprocess.run(
        [sys.executable, "-m", "inspector", *arguments, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 2 or not done.stdout:
        raise SystemExit(f"inspector {' '.join(arguments)}: {done.stderr}")
    return {**json.loads(done.stdout), "exit_code": done.returncode}


def follow(path: Path, training: subprocess.Popen[str], every_s: float) -> list[tuple[int, float]]:
    """While the training goes on: the steps that another process sees, and how long ago the last one ended, in s."""
    from inspector.errors import InspectorError
    from inspector.session.reader import Session

    seen: list[tuple[int, float]] = []
    session: Session | None = None
    try:
        while training.poll() is None:
            time.sleep(every_s)
            try:
                if session is None:
                    session = Session.open(path)
                session.follow()
            except InspectorError:
                # It has not begun.
                continue
            if session.steps:
                last = session.steps.stop - 1
                if not seen or seen[-1][0] != last:
                    seen.append((last, time.time() - session.step(last).ended))
    finally:
        if session is not None:
            session.close()
    return seen


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def main() -> None:
    """Train, follow, execute again, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--capture", default="all")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument(
        "--threads", type=int, default=1, help="of PyTorch, whose threads wait for each other busily"
    )
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train is not None:
        train(given.train, given.steps, given.layers, given.capture, given.fused, given.threads)
        return
    folder = Path(tempfile.mkdtemp(prefix="pytorch-run-", dir=given.folder))
    path = folder / "gpt.session"
    try:
        measure(path, given)
    finally:
        if not given.keep:
            shutil.rmtree(folder)


def measure(path: Path, given: argparse.Namespace) -> None:
    words = [
        sys.executable,
        __file__,
        "--train",
        str(path),
        "--steps",
        str(given.steps),
        "--layers",
        str(given.layers),
    ]
    words += [
        "--capture",
        given.capture,
        "--threads",
        str(given.threads),
        *(["--fused"] if given.fused else []),
    ]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ) as training:
        seen = follow(path, training, 0.25)
        out = training.communicate()[0]
    if training.returncode:
        raise SystemExit(f"the training ended with {training.returncode}")
    trained = json.loads(out.splitlines()[-1])
    if trained["problem"]:
        raise SystemExit(trained["problem"])
    info = inspector("info", str(path))
    began = time.perf_counter()
    report = inspector("replay", str(path), "--verify")
    took = time.perf_counter() - began
    (path.parent / "verify.json").write_text(json.dumps(report), encoding="utf-8")
    show(trained, seen, info, report, took, size_of(path))


def show(
    trained: dict[str, Any], seen: list[tuple[int, float]], info: dict[str, Any], report: dict[str, Any], took: float,
    size: int,
) -> None:  # fmt: skip
    steps, elements = len(report["steps"]), report["elements"]
    lags = sorted(lag for _, lag in seen)
    lag = f"median {lags[len(lags) // 2]:.2f} s, longest {lags[-1]:.2f} s" if lags else "n/a"
    beyond = {lane: count / elements for lane, count in report["beyond_2_ulp"].items()}
    far = [step["step"] for step in report["steps"] if step["w"]["max_ulp"] > 2]
    rows = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {report['device']['name']}",
        "run": f"{report['origin']}, {trained['parameters']:,} parameters in {trained['tensors']} tensors",
        "training": f"{trained['train_s'] / max(steps, 1):.2f} s a step in {trained['threads']} threads, recorded",
        "last loss": f"{trained['loss']:.3f}",
        "session": f"{size / 1e9:.2f} GB, policy {info['policy']}",
        "followed live": f"{len(seen)} times another step, behind by {lag}",
        "compared": f"{report['compared']['steps']} steps, {report['compared']['anchored']} from the very state before",
        "executed again": f"{took / max(steps, 1):.2f} s a step, reading and explaining included",
        "largest ULP": ", ".join(f"{lane} {value:.3g}" for lane, value in report["max_ulp_by_lane"].items()),
        "ULP from AdamW in PyTorch's own roundings": ", ".join(
            f"{k} {v:.3g}" for k, v in report["peer_ulp"].items()
        ),
        "beyond 2 ULP": ", ".join(f"{100 * share:.2g} % of {lane}" for lane, share in beyond.items()),
        "steps with w beyond 2 ULP": f"{len(far)} of {steps}",
        "kinds": "; ".join(
            f"{k['kind']} ({k['steps']} steps, {len(k['params'])} params: {k['words']})"
            for k in report["kinds"]
        ),
        "exit code of replay --verify": report["exit_code"],
    }
    print("| | |\n|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
