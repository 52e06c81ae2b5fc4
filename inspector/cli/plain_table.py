"""A table whose texts cannot steer the terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from inspector.cli.options import visible


class PlainTable(Table):
    """A table of rich that shows control characters written out: names come out of files that others wrote."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row of texts or of what rich can draw."""
        super().add_row(*(visible(cell) if isinstance(cell, str) else cell for cell in cells), **options)
