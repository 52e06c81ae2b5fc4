"""Whether sessions are those of all processes of one run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from inspector.errors import UsageError
from inspector.session.records import About


def check_same_run(path: Path, abouts: Sequence[About]) -> None:
    """UsageError in a sentence that names what does not fit."""
    first = abouts[0]
    for rank, about in enumerate(abouts):
        if about.world_size != len(abouts) or about.rank != rank:
            what = (
                "of a run in one process"
                if about.rank is None
                else f"rank {about.rank} of {about.world_size} processes"
            )
            raise UsageError(
                f"{path} is no whole run: the session in its place for rank {rank} of {len(abouts)} is {what}."
            )
        if about.run != first.run:
            raise UsageError(
                f"{path} is no one run: rank {rank} was recorded in another run than rank 0. Put the sessions of one "
                "run together."
            )
        for name, words in (
            ("origin", "made by"),
            ("variant", "in the form"),
            ("schedule", "with the schedule"),
            ("finished_steps", "after step"),
        ):
            mine, theirs = getattr(about, name), getattr(first, name)
            if mine != theirs:
                raise UsageError(
                    f"{path} is no one run: rank {rank} begins {words} {mine}, rank 0 {words} {theirs}."
                )
