"""What is shown of a race, as data: a history a lane, and where each stands."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.history import History
from inspector.optimizers import Instead

METRICS = ("loss", "grad_norm", "update_norm", "weight_norm", "lr", "clip_scale")
"""Of a lane's history."""


@dataclass(frozen=True, slots=True, eq=False)
class LanePicture:
    """One lane: `name` among the others, `spec` as a person writes it, the steps that are complete, its history.

    `diverged` is the step at which it was seen to diverge and by what, `ended` why it runs no further. `runs_as` is
    there where its optimizer takes none of the params: what steps them all instead, and why.
    """

    name: str
    spec: str
    steps: int
    history: History
    diverged: tuple[int, str] | None = None
    ended: str | None = None
    runs_as: Instead | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RacePicture:
    """All lanes. Views show the one in `front`; with `together` the others keep up with it.

    In a closed loop gradients come from each lane's own weights; else they are the same for all.
    """

    lanes: tuple[LanePicture, ...]
    front: int
    together: bool
    closed_loop: bool
    live: bool = True
    """False of a race that was saved, of which the lane in front is open as a recording."""
