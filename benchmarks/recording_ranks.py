"""Records runs of several processes, opens them as one, and holds what it finds against what the processes held.

    python benchmarks/recording_ranks.py                              # as many GPUs as there are, through NCCL
    python benchmarks/recording_ranks.py --device cpu --ranks 2       # over gloo
    python benchmarks/recording_ranks.py --size gpt-10m --steps 40 --keep /tmp/ranks

Checked are, each a line of what is printed: DistributedDataParallel, which rank 0 records alone; the same with a weight
that is changed in the last rank, which is named; FSDP2, whose parts opened as one run have the weights that the ranks
put together (bit for bit), the gradient norm that float64 says of the gradients put together (1e-6 relative) and that
`clip_grad_norm_` returned, one loss a rank, and from every state captured the next one in PyTorch's roundings; and
FSDP2 with a param that it leaves alone, whose copies part. The exit code is 1 where any of it does not hold.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from recording_torch import SIZES, Gpt
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent.parent))

from inspector.integrations.torch import record
from inspector.optimizers.adamw.peers import PEERS
from inspector.runtime.diagnosing import diagnose_session
from inspector.session.peer_run import PeerRun
from inspector.session.reader import Session
from inspector.step_ulp import compare_step

CONTEXT, BATCH = 64, 8
CLIP = 1.0
ROUNDINGS = 8.0
"""ULP: what the square root of a CPU, off by one, comes to in w. What is put together wrongly is millions."""


def train(rank: int, options: argparse.Namespace, kind: str, path: Path, port: int) -> None:
    """One process."""
    cuda = options.device == "cuda"
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=options.ranks)
    torch.manual_seed(0)
    layers, heads, width, vocabulary = SIZES[options.size]
    model: Any = Gpt(layers, heads, width, vocabulary, CONTEXT).to(device)
    if kind in ("ddp", "parts"):
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank] if cuda else None)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(options.device, (options.ranks,))
        alone = {model.ln_f.weight} if kind == "loose" else set()
        for block in model.h:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh, ignored_params=alone)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": 0.1}]
    # One call of a fused or foreach kernel takes parts of params (DTensor) or whole ones, not both.
    for whole in (False, True):
        alike = [p for p in others if hasattr(p, "full_tensor") != whole]
        if alike:
            groups.append({"params": alike, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(groups, lr=1e-3, fused=cuda)
    norms: list[float] = []
    with record(optimizer, path, model, options.capture, agree_every=2) as recording:
        for step in range(1, options.steps + 1):
            generator = torch.Generator().manual_seed(step * options.ranks + rank)
            tokens = torch.randint(0, vocabulary, (BATCH, CONTEXT), generator=generator).to(device)
            loss = functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())
            recording.loss(loss)
            optimizer.zero_grad()
            loss.backward()
            if kind != "loose":
                norm: Any = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
                norms.append(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm))
            if kind == "parts" and rank == options.ranks - 1 and step == options.steps // 2:
                with torch.no_grad():
                    model.module.ln_f.weight[0] += 1e-6
            optimizer.step()
            # For a model whose states come faster than the disk takes them, which would leave gaps.
            time.sleep(options.pause)
        if kind == "fsdp":
            whole = {name: p.full_tensor().detach().cpu().clone() for name, p in model.named_parameters()}
            if rank == 0:
                torch.save({"weights": whole, "norms": norms}, path.with_suffix(".pt"))
        # What the others tell of their weights is looked at with the next step, or at the end.
        time.sleep(0.5)
        dist.barrier()
    dist.barrier()
    dist.destroy_process_group()


def check_ddp(path: Path, options: argparse.Namespace, say: Callable[[str], None]) -> None:
    with Session.open(path) as session:
        assert session.steps == range(1, options.steps + 1), session.steps
        assert (session.about.rank, session.about.world_size) == (0, options.ranks)
        assert not session.ranks
        found = [f for f in session.findings() if f.rule == "parted-rank"]
        assert not found, found[0].message
        say(f"{len(session.steps)} steps by rank 0, {len(session.about.params)} params, all ranks agree")


def check_parts(path: Path, options: argparse.Namespace, say: Callable[[str], None]) -> None:
    with Session.open(path) as session:
        found = [f for f in diagnose_session(session, 1, options.steps) if f.rule == "parted-rank"]
        assert found, "the rank whose weights were changed is not named"
        assert found[0].evidence["rank"] == options.ranks - 1, found[0].evidence
        assert options.steps // 2 <= found[0].step <= options.steps // 2 + 2, found[0].step
        say(f"step {found[0].step}: {found[0].message}")


def check_fsdp(path: Path, options: argparse.Namespace, say: Callable[[str], None]) -> None:
    held = torch.load(path.with_suffix(".pt"), weights_only=True)
    with Session.open(path) as session:
        assert session.steps == range(1, options.steps + 1), session.steps
        assert len(session.ranks) == options.ranks
        assert len({rank.about.run for rank in session.ranks}) == 1
        assert session.ranks[0].about.run
        last = options.steps
        for name, expected in held["weights"].items():
            mine = session.tensor("w", last, name.replace("head.weight", "wte.weight"))
            assert mine.shape == tuple(expected.shape), name
            assert (mine.view(np.uint32) == expected.numpy().view(np.uint32)).all(), name
        say(
            f"{len(held['weights'])} params put together have every bit of what the ranks held after step {last}"
        )
        np.testing.assert_allclose(session.metric("grad_norm"), held["norms"], rtol=1e-6)
        worst = 0.0
        for step in session.captures("gradients"):
            squares = (np.square(g.astype(np.float64)).sum() for g in session.gradients(step).values())
            clipped = math.sqrt(math.fsum(squares))
            row = session.step(step)
            assert row.grad_norm is not None
            assert row.clip_scale is not None
            worst = max(worst, abs(clipped / (row.grad_norm * row.clip_scale) - 1))
            table = session.param_statistics(step)
            assert table is not None
            counted = math.sqrt(math.fsum(np.square(table.lanes["g"].norm).tolist()))
            # A GPU adds up squares of a thread in float32 before it does so in float64.
            near = 1e-8 if options.device == "cuda" else 1e-12
            assert math.isclose(counted, clipped, rel_tol=near), (step, counted, clipped)
        assert worst < 1e-6, worst
        say(f"the norm is that of all gradients put together, to {worst:.1e}")
        losses = np.stack([session.metric(f"loss/rank {rank}") for rank in range(options.ranks)])
        np.testing.assert_allclose(session.metric("loss"), losses.mean(0), rtol=1e-12)
        assert (losses.std(0) > 0).all()
        assert not any(session.parted(step) for step in session.steps)
        peer, ulp, states = nearest_peer(session)
        assert ulp <= ROUNDINGS, (peer, ulp)
        say(f"{states} states follow from those before them in the roundings of {peer}, to {ulp:g} ULP")


def nearest_peer(session: Session) -> tuple[str, float, int]:
    """Whose roundings of AdamW the captured states have, and how many ULP they are off at most; how many states."""
    captured = set(session.captures("keyframe"))
    steps = [step for step in session.captures("gradients") if {step - 1, step} <= captured]
    worst = {}
    for peer in PEERS:
        far = 0.0
        for step in steps:
            run = PeerRun(session, session.keyframe(step - 1), peer.key)
            before = run.state()
            run.run(session.step(step), session.gradients(step), 1.0)
            after, made = session.keyframe(step), run.state()
            for lane in ("w", "m", "v"):
                for name, values in getattr(made, lane).items():
                    # In units at the largest of before, after and the step between.
                    old = getattr(before, lane)[name]
                    old = np.maximum(np.abs(old), np.abs(values - old))
                    far = max(far, compare_step(old, values, getattr(after, lane)[name]).max_ulp)
        worst[peer.key] = far
    best = min(worst, key=worst.__getitem__)
    return best, worst[best], len(steps)


def check_loose(path: Path, options: argparse.Namespace, say: Callable[[str], None]) -> None:
    with Session.open(path) as session:
        found = [f for f in diagnose_session(session, 1, options.steps) if f.rule == "parted-rank"]
        assert found, "the param whose copies part is not named"
        assert found[0].param == "ln_f.weight", found[0]
        say(f"step {found[0].step}: {found[0].message}")


CHECKS = {"ddp": check_ddp, "parts": check_parts, "fsdp": check_fsdp, "loose": check_loose}


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count() or 2)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--capture", default="all")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each step, for a slow disk")
    parser.add_argument("--kinds", nargs="+", choices=CHECKS, default=list(CHECKS))
    parser.add_argument("--keep", type=Path, help="a folder for the sessions, which are deleted otherwise")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in options.kinds:
            path = folder / f"{kind}.session"
            lines: list[str] = []
            began = time.perf_counter()
            try:
                torch.multiprocessing.spawn(  # type: ignore[no-untyped-call]
                    train, (options, kind, path, _free_port()), nprocs=options.ranks
                )
                CHECKS[kind](path, options, lines.append)
            except Exception as error:  # noqa: BLE001 - the others are still tried
                failed += 1
                lines.append(f"FAILED: {error}")
                traceback.print_exc()
            seconds = time.perf_counter() - began
            print(json.dumps({"kind": kind, "device": options.device, "ranks": options.ranks,
                              "seconds": round(seconds, 1), "found": lines}), flush=True)  # fmt: skip
    return 1 if failed else 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
