"""A script that trains in several processes over gloo: `python torch_ranks.py KIND RANK WORLD STORE SESSION`.

KIND is `ddp`, `alone` (rank 0 alone records), `parts` (the weights of rank 1 part), `late` and `late-parts` (both begin
to be recorded at step 6, as a run does that a checkpoint is loaded for), `fsdp`, `same` (FSDP, all ranks on
one batch and nothing clipped, which gives the bits of one process: `one`), `loose` (FSDP with a param that it leaves
alone), or `until` and `from`: `same` in two runs, steps 1 to 8 with a checkpoint at step 6 in SESSION.checkpoint, and
from that on to step 12.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch_runs as runs
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from inspector.integrations.torch import record


def save(model: Any, optimizer: Any, checkpoint: Path) -> None:
    """By torch.distributed.checkpoint, a file a process."""
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=checkpoint)


def load(model: Any, optimizer: Any, checkpoint: Path) -> None:
    """The same back."""
    weights, state = get_state_dict(model, optimizer)
    held = {"model": weights, "optimizer": state}
    dcp.load(held, checkpoint_id=checkpoint)
    set_state_dict(model, optimizer, model_state_dict=held["model"], optim_state_dict=held["optimizer"])


def main(kind: str, rank: int, world: int, store: str, path: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model: torch.nn.Module = runs.Net()
    model.scale = torch.nn.Parameter(torch.ones(1))  # FSDP takes no scalars.
    same = kind in ("same", "one", "until", "from")
    if kind in ("fsdp", "same", "loose", "until", "from"):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (world,))
        fully_shard(model, mesh=mesh, ignored_params={model.scale} if kind == "loose" else None)
    elif kind != "one":
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(runs.split(model), lr=3e-3)
    first, last = {"until": (1, 8), "from": (7, 12), "late": (6, 15), "late-parts": (6, 15)}.get(
        kind, (1, 10)
    )
    checkpoint = Path(path).with_suffix(".checkpoint")
    if kind == "from":
        load(model, optimizer, checkpoint)
    if kind.startswith("late"):
        runs.train(model, optimizer, [step * world + rank for step in range(1, first)], clip=1.0)
    recorded: Any = contextlib.nullcontext()
    if kind != "alone" or not rank:
        recorded = record(optimizer, path, model, "all", agree_every=2)

    def part(step: int) -> None:
        parts = {"parts": 3, "late-parts": 9}.get(kind)
        if parts is not None and rank == 1 and step == parts * world + rank:
            with torch.no_grad():
                dict(model.named_parameters())["module.embed.weight"][0, 0] += 1e-6

    with recorded as recording:
        for step in range(first, last + 1):
            batch = step if same else step * world + rank
            clip = None if same or kind == "loose" else 1.0
            runs.train(model, optimizer, [batch], recording=recording, before=part, clip=clip)
            if kind == "until" and step == 6:
                save(model, optimizer, checkpoint)
            if step == 8 or kind.startswith("late"):
                # What the others told of the steps until then is there, and looked at with the next.
                time.sleep(0.5)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
