"""What commands say of lanes: how far they are, and their losses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def lane_steps(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal; what it gives is told how many steps of lanes were done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("steps of lanes", total=total)
        yield lambda count: progress.advance(task, count)


def nats(value: float | None) -> str:
    """A loss to four digits, "–" where there is none."""
    if value is None:
        return "–"
    # A loss that has run away in float64 would be hundreds of digits.
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4e}"
