"""Boxes and buttons of lanes that the optimizer does not keep: greyed out, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtWidgets import QAbstractButton

from inspector.optimizers import optimizer
from inspector.runtime.snapshots import Snapshot
from inspector.stores import LANES, Lane

_TOLD = "told_when_kept"


def kept_lanes(snapshot: Snapshot) -> tuple[Lane, ...]:
    """The lanes that the run has buffers of; all while there is no run."""
    return snapshot.plan.lanes if snapshot.plan is not None and snapshot.plan.layout.segments else LANES


def absent_lane(snapshot: Snapshot, lane: Lane) -> str:
    """Why a lane is not there, in a sentence."""
    title = (
        optimizer(snapshot.plan.variant.optimizer).title if snapshot.plan is not None else "This optimizer"
    )
    return f"{title} keeps no {lane}."


def show_kept(buttons: Mapping[Lane, QAbstractButton], snapshot: Snapshot) -> bool:
    """Grey out the buttons of lanes that are not kept, with the reason as tooltip; True where that changed any."""
    kept, changed = kept_lanes(snapshot), False
    for lane, button in buttons.items():
        there = lane in kept
        if there == button.isEnabled():
            continue
        changed = True
        button.setEnabled(there)
        if there:
            button.setToolTip(str(button.property(_TOLD)))
        else:
            button.setProperty(_TOLD, button.toolTip())
            button.setToolTip(absent_lane(snapshot, lane))
    return changed


def words_or(buttons: Mapping[Lane, QAbstractButton]) -> str:
    """The lanes that can be chosen, as in "w, g or m"."""
    names = [lane for lane, button in buttons.items() if button.isEnabled()]
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
