"""Several processes: who records what, and whether those that should keep the same weights do.

Checksums go through the store that torch.distributed was set up with, never through a collective: a process that does
not record, or has stopped, keeps nobody waiting.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from inspector.errors import UsageError
from inspector.files import anything_at, write_text
from inspector.findings import Finding
from inspector.integrations.torch.params import Known
from inspector.session.database import DATABASE_NAME
from inspector.session.ranks_file import RANKS_NAME, parse, rank_folder, ranks_text
from inspector.session.reader import Session

Tensor = Any
PATIENCE_CHECKS = 8
"""Checks of which no other process has told anything are forgotten."""


@dataclass(frozen=True, slots=True)
class World:
    """This process among those that train together."""

    rank: int = 0
    size: int = 1

    @classmethod
    def now(cls) -> World:
        """As torch.distributed says, one process alone without it."""
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())


def folder_of(path: Path, world: World, *, apart: bool) -> Path:
    """Where this process records: the session itself, or a session of its own inside it."""
    return path / rank_folder(world.rank) if apart else path


def make_folder(path: Path, world: World) -> None:
    """The folder in which every process has its session, and a file that says how many.

    UsageError without a place, and where another run is recorded there: by one process, or by another number of them.
    """
    if (path / DATABASE_NAME).exists():
        raise UsageError(
            f"{path} is the session of a run that was not sharded over processes: name another session."
        )
    try:
        known = parse((path / RANKS_NAME).read_bytes(), path)
    except OSError:
        known = None
    if known is not None and len(known) != world.size:
        raise UsageError(
            f"{path} was recorded by {len(known):,} processes, and there are {world.size:,} now: name another session."
        )
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from None
    if world.rank == 0:
        write_text(path / RANKS_NAME, ranks_text(world.size))


def check_others(path: Path, world: World) -> None:
    """UsageError where a process without a session finds others that have theirs, from a run before.

    It would record a run of its own, and the whole would open no more.
    """
    for rank in range(world.size):
        folder = path / rank_folder(rank)
        if rank == world.rank or not anything_at(folder):
            continue
        with Session.open(folder) as session:
            theirs = session.about.run
        # One of this run may be there already: whoever is first makes its own.
        if theirs != run_id(path.name):
            raise UsageError(
                f"{path} holds a session of rank {rank:,} from a run before, and none of rank {world.rank:,}: bring "
                f"{rank_folder(world.rank)} back to go on with that run, or name another session."
            )


def run_id(name: str) -> str:
    """What the sessions of all processes of one run have in common; "" where they have no store to agree in."""
    store, mine = _store(), uuid.uuid4().hex
    with suppress(Exception):
        # Whoever comes first says it, and nobody waits.
        return bytes(store.compare_set(f"inspector/{name}/run", "", mine)).decode()
    return ""


def checksums(known: Sequence[Known]) -> Tensor | None:
    """int64[params]: the sum of the bits of each param, on the device of the first; None without any."""
    sums = []
    for each in known:
        w = each.local(each.param)
        if w is None or not w.numel():
            sums.append(torch.zeros((), dtype=torch.int64))
            continue
        kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
        sums.append(w.reshape(-1).view(kinds[w.element_size()]).sum(dtype=torch.int64))
    if not sums:
        return None
    device = next((s.device for s in sums if s.device.type != "cpu"), sums[0].device)
    return torch.stack([s.to(device, non_blocking=True) for s in sums])


class Agreement:
    """Holds the weights of all processes against each other. Called on the writing thread alone."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = f"inspector/{name}"
        self.began_at = 0
        """The step after which `record` was called; 0 where nothing is recorded, and where nobody knows of it. So steps
        are told of by their number from there on, which is the same for all."""
        self._open: dict[int, Any] = {}
        self._names: tuple[str, ...] = ()
        self._told: set[int] = set()

    def of(self, known: Sequence[Known]) -> None:
        """The params whose checksums come."""
        self._names = tuple(each.name for each in known)

    def due(self, step: int, every: int) -> bool:
        """Whether the weights after `step` are held against each other."""
        return every > 0 and (step - self.began_at) % every == 0

    def check(self, step: int, sums: Any) -> Finding | None:
        """Tell the others, or hold what they told against it; a finding where one has parted, told once for each."""
        store = _store()
        if store is None:
            return None
        if self._world.rank:
            with suppress(RuntimeError):
                store.set(self._key(step, self._world.rank), np.asarray(sums, "<i8").tobytes())
            return None
        self._open[step] = np.asarray(sums, np.int64)
        return self.look()

    def look(self) -> Finding | None:
        """Look at what the others told since; the first that has parted."""
        store = _store()
        if store is None:
            return None
        found = None
        for step, mine in list(self._open.items()):
            with suppress(RuntimeError):
                keys = [self._key(step, rank) for rank in range(1, self._world.size)]
                if not store.check(keys):
                    continue
                del self._open[step]
                for rank, key in enumerate(keys, 1):
                    theirs = np.frombuffer(store.get(key), "<i8")
                    store.delete_key(key)
                    found = found or self._parted(step, rank, mine, theirs)
        while len(self._open) > PATIENCE_CHECKS:
            del self._open[min(self._open)]
        return found

    def _parted(self, step: int, rank: int, mine: Any, theirs: Any) -> Finding | None:
        if rank in self._told or (len(mine) == len(theirs) and (mine == theirs).all()):
            return None
        self._told.add(rank)
        differ = np.flatnonzero(mine != theirs) if len(mine) == len(theirs) else np.arange(0)
        first = self._names[int(differ[0])] if len(differ) and int(differ[0]) < len(self._names) else None
        what = (
            f"{len(differ):,} of {len(mine):,} params differ, the first is {first}"
            if first
            else (f"it has {len(theirs):,} params, rank 0 has {len(mine):,}")
        )
        return Finding(
            "parted-rank", "error", step,
            f"After step {step:,} the weights of rank {rank} are not those of rank 0: {what}. Processes that average "
            "their gradients have to keep the same weights, bit for bit.",
            "Look for what one process alone does: params outside of DistributedDataParallel, a seed, a step that one "
            "skips, buffers that are not broadcast.",
            None, first, None, {"rank": rank, "params": len(differ)}, "exact: no threshold",
        )  # fmt: skip

    def _key(self, step: int, rank: int) -> str:
        return f"{self._name}/{step - self.began_at}/{rank}"


def _store() -> Any:
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    with suppress(Exception):
        return distributed.distributed_c10d._get_default_store()
    return None
