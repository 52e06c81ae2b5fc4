"""A script that trains in several processes over gloo: `python torch_ranks.py KIND RANK WORLD STORE SESSION`.

KIND is `ddp`, `alone` (rank 0 alone records), `parts` (the weights of rank 1 part), `fsdp`, `same` (FSDP, all ranks on
one batch and nothing clipped, which gives the bits of one process: `one`) or `loose` (FSDP with a param that it leaves
alone).
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
import torch_runs as runs

from inspector.integrations.torch import record


def main(kind: str, rank: int, world: int, store: str, path: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model: torch.nn.Module = runs.Net()
    model.scale = torch.nn.Parameter(torch.ones(1))  # FSDP takes no scalars.
    if kind in ("fsdp", "same", "loose"):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (world,))
        fully_shard(model, mesh=mesh, ignored_params={model.scale} if kind == "loose" else None)
    elif kind != "one":
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(runs.split(model), lr=3e-3)
    recorded: Any = contextlib.nullcontext()
    if kind != "alone" or not rank:
        recorded = record(optimizer, path, model, "all", agree_every=2)

    def part(step: int) -> None:
        if kind == "parts" and rank == 1 and step == 3 * world + rank:
            with torch.no_grad():
                dict(model.named_parameters())["module.embed.weight"][0, 0] += 1e-6

    with recorded as recording:
        for step in range(1, 11):
            batch = step if kind in ("same", "one") else step * world + rank
            clip = None if kind in ("same", "one", "loose") else 1.0
            runs.train(model, optimizer, [batch], recording=recording, before=part, clip=clip)
            if step == 8:
                # What the others told of the steps until then is there, and looked at with the next.
                time.sleep(0.5)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
