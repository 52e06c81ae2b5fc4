"""The file that makes one run of the sessions of several processes: how many there are, and in which folders."""

from __future__ import annotations

import json
from pathlib import Path

from inspector.errors import UsageError

RANKS_NAME = "ranks.json"
MAX_BYTES = 1 << 20
MAX_RANKS = 16_384


def rank_folder(rank: int) -> str:
    """The session of one process, inside that of all."""
    return f"rank-{rank:04d}.session"


def ranks_text(world_size: int) -> str:
    """The file for so many processes."""
    ranks = [rank_folder(rank) for rank in range(world_size)]
    return json.dumps({"world_size": world_size, "ranks": ranks}, indent=1) + "\n"


def parse(data: bytes, path: Path) -> tuple[str, ...]:
    """The folders by rank; UsageError where it is not as a recording writes it: nothing else is opened by its name."""
    try:
        document = json.loads(data.decode("utf-8"))
        size, names = document["world_size"], document["ranks"]
        sound = type(size) is int and 0 < size <= MAX_RANKS and type(names) is list
        sound = sound and names == [rank_folder(rank) for rank in range(size)]
    except (ValueError, KeyError, TypeError, RecursionError):
        sound, names = False, []
    if not sound:
        raise UsageError(
            f"{path / RANKS_NAME} is damaged: it does not list rank-0000.session and so on, one for each process."
        )
    return tuple(names)
