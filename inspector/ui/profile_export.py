"""What the profile writes to files: its tables as CSV, and the last steps as a trace."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.cost import KernelCost, costs_csv
from inspector.plan import Variant
from inspector.runtime.snapshots import Snapshot
from inspector.trace_export import Track, chrome_trace
from inspector.variants import changes


def has_trace(snapshot: Snapshot) -> bool:
    """True where there is a step to put into a trace."""
    return bool(_tracks(snapshot))


def tables_csv(snapshot: Snapshot, costs: Sequence[KernelCost]) -> str:
    """The costs of the run, then those of every variant compared, as `inspector bench --csv` has them."""
    tables = [(_run_name(snapshot), costs)] if costs else []
    if snapshot.comparison is not None:
        tables += [(r.name, (*r.kernels, r.step)) for r in snapshot.comparison.reports]
    return costs_csv(tables)


def trace(snapshot: Snapshot) -> str:
    """The last steps of the run and of every variant compared, a track each."""
    facts = {"source": snapshot.source, "copy_gbps": snapshot.copy_gbps}
    if snapshot.plan is not None:
        facts["elements"] = snapshot.plan.layout.elements
    device = snapshot.device.name if snapshot.device is not None else ""
    return chrome_trace(_tracks(snapshot), device=device, facts=facts)


def _tracks(snapshot: Snapshot) -> list[Track]:
    tracks = []
    if snapshot.plan is not None:
        dispatches = snapshot.plan.dispatches
        steps = [times for times in snapshot.last_times if len(times) == len(dispatches)]
        if steps:
            tracks.append(Track(_run_name(snapshot), dispatches, steps))
    if snapshot.comparison is not None:
        tracks += [Track(r.name, r.plan.dispatches, r.last_steps) for r in snapshot.comparison.reports]
    return tracks


def _run_name(snapshot: Snapshot) -> str:
    """The run is called so beside variants, which are named by how they differ from the form compared."""
    variant = snapshot.plan.variant if snapshot.plan is not None else Variant()
    return f"this run: {changes(Variant(), variant)}"
