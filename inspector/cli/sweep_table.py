"""Final loss by learning rate: as rows of a document, and as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from inspector.cli.options import make_table
from inspector.floats import plain_exponent, shortest
from inspector.sweep import Point, best_of


def rate_rows(points: Sequence[Point]) -> dict[str, list[dict[str, Any]]]:
    """`rates`, a row a lane and learning rate, and `best`, those of them that are the best of their lane."""
    best = best_of(points)
    lanes = dict.fromkeys(point.lane for point in points)
    return {
        "rates": [_row(point) for point in points],
        "best": [_row(best[lane]) for lane in lanes if lane in best],
    }


def _row(point: Point) -> dict[str, Any]:
    return {
        "lane": point.lane, "lr": point.lr, "final_loss": point.mean, "low": point.low, "high": point.high,
        "seeds": len(point.losses), "diverged": point.diverged,
    }  # fmt: skip


def show_rates(console: Console, document: dict[str, Any]) -> None:
    """A table a lane; the best rate of it is marked."""
    for name in dict.fromkeys(row["lane"] for row in document["rates"]):
        table = make_table(right=("lr", "final loss", "lowest", "highest", "seeds"), title=name)
        table.add_column("")
        for row in document["rates"]:
            if row["lane"] == name:
                lost = f"{row['diverged']:,} diverged" if row["diverged"] else ""
                best = " ".join(filter(None, ("best" if row in document["best"] else "", lost)))
                table.add_row(
                    shortest(row["lr"]), loss_text(row["final_loss"]), loss_text(row["low"]),
                    loss_text(row["high"]), str(row["seeds"]), best,
                )  # fmt: skip
        console.print(table)


def loss_text(value: float | None) -> str:
    """A loss for people, in the unit of its source; a dash where there is none."""
    if value is None:
        return "–"
    # A loss that has run away in float64 would be hundreds of digits.
    return f"{value:.4f}" if abs(value) < 1e6 else plain_exponent(f"{value:.4e}")
