"""How far the lanes of a race or a sweep are, told on a terminal."""

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
