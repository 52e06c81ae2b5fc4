"""The numbers of a session as a TensorBoard event file: scalars of every step, params and histograms at some."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inspector.files import making_folder
from inspector.param_statistics import LaneColumns, ParamTable
from inspector.session.own_settings import group_settings
from inspector.session.reader import Session
from inspector.statistics import EXPONENT_BIAS
from inspector.stores import LANES, Lane

SCALAR_TAGS = ("loss", "grad_norm", "clip_scale", "lr", "nonfinite")
"""Written for every step, with each setting that changes in the session."""
SETTINGS = ("beta1", "beta2", "eps", "weight_decay", "max_grad_norm")
MAX_PARAM_STEPS = 1000
MAX_PARAM_VALUES = 2_000_000
"""Scalars of params are written at so many steps and of so many values at most, evenly spread, the last among them:
TensorBoard itself shows about a thousand points of a curve."""
MAX_HISTOGRAM_STEPS = 100
MAX_HISTOGRAMS = 100_000
"""The same for histograms."""


@dataclass(frozen=True, slots=True)
class Written:
    """What went into the event file: steps with scalars, with scalars of params, and with histograms."""

    steps: int
    param_steps: int
    histogram_steps: int
    file: str


def write_tensorboard(session: Session, out: Path, *, check: Callable[[], None] = lambda: None) -> Written:
    """Write a folder `out`, which must not hold anything, with one event file; UsageError where that cannot be done.

    Scalars are float32, as TensorBoard keeps them; NaN and infinities stay what they are, and what is unknown is left
    out. A step's wall time is when it ended. Histograms are of log₂|x| with a bucket a power of two.
    """
    from tensorboardX.record_writer import RecordWriter  # Takes a moment, and only this needs it.

    name = f"events.out.tfevents.{max(int(session.about.began), 0):010d}.inspector"
    with making_folder(out) as folder:
        records = RecordWriter(str(folder / name))
        try:
            written = _write(session, records, check)
            records.flush()
        finally:
            records.close()
    return Written(*written, name)


def spread(steps: range, count: int) -> frozenset[int]:
    """At most `count` of `steps`, evenly apart, the last among them."""
    if not steps or count < 1:
        return frozenset()
    stride = -(-len(steps) // count)
    return frozenset(steps[-1 - i * stride] for i in range(-(-len(steps) // stride)))


def _write(session: Session, records: Any, check: Callable[[], None]) -> tuple[int, int, int]:
    from tensorboardX.proto.event_pb2 import Event

    steps, params = session.steps, max(len(session.about.params), 1)
    values = MAX_PARAM_VALUES // (params * (len(LANES) + 3))
    with_params = spread(steps, min(MAX_PARAM_STEPS, max(values, 1)))
    with_histograms = spread(steps, min(MAX_HISTOGRAM_STEPS, max(MAX_HISTOGRAMS // (params * len(LANES)), 1)))
    scalars = _scalars(session)
    ended = session.metric("ended")
    counted = [0, 0]
    opening = Event(wall_time=session.about.began, file_version="brain.Event:2")
    records.write(opening.SerializeToString())

    def event(step: int, values: Iterator[Any]) -> None:
        made = Event(wall_time=_time(float(ended[step - steps.start]), session), step=step)
        made.summary.value.extend(values)
        if made.summary.value:
            records.write(made.SerializeToString())

    for i, step in enumerate(steps):
        check()
        event(step, (_scalar(tag, float(of[i])) for tag, of, known in scalars if known[i]))
        if step not in with_params and step not in with_histograms:
            continue
        table = session.param_statistics(step)
        if table is None:
            continue
        if step in with_params:
            event(step, _of_params(table))
            counted[0] += 1
        if step in with_histograms:
            # One event a lane: a message may not grow with the model without bound.
            for lane in LANES:
                event(step, _histograms(table, lane))
            counted[1] += 1
    return len(steps), counted[0], counted[1]


def _time(ended: float, session: Session) -> float:
    return ended if math.isfinite(ended) else session.about.began


def _scalars(session: Session) -> list[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Tag, a value a step, and where it is known: a recorded NaN is a value, of a kernel's time it is none."""
    found = []
    for name in SCALAR_TAGS:
        found.append((name, session.metric(name), session.known(name)))
    for name in SETTINGS:
        values = session.metric(name)
        if len(values) and (values != values[0]).any():
            found.append((name, values, np.ones(len(values), np.bool_)))
    for name, values in group_settings(session):
        # As the run's own: what changes, and the rate.
        if name.startswith("lr/") or (len(values) and (values != values[0]).any()):
            found.append((name.replace("/group ", "/group_"), values, ~np.isnan(values)))
    for name in session.metric_names():
        if name.startswith(("ms/", "cold/")):
            values = session.metric(name)
            kind, kernel = name.split("/", 1)
            tag = f"kernel_ms{'' if kind == 'ms' else '_cold'}/{kernel}"
            found.append((tag, values, ~np.isnan(values)))
        elif "/rank " in name:
            values = session.metric(name)
            found.append((name.replace("/rank ", "/rank_"), values, ~np.isnan(values)))
    return found


def _scalar(tag: str, value: float) -> Any:
    from tensorboardX.proto.summary_pb2 import Summary

    with np.errstate(all="ignore"):
        return Summary.Value(tag=tag, simple_value=float(np.float32(value)))


def _of_params(table: ParamTable) -> Iterator[Any]:
    for i, name in enumerate(table.names):
        for lane in LANES:
            yield _scalar(f"norm_{lane}/{name}", float(table.lanes[lane].norm[i]))
        yield _scalar(f"norm_update/{name}", float(table.update.norm[i]))
        if table.lanes["w"].norm[i] > 0:
            ratio = float(table.update.norm[i] / table.lanes["w"].norm[i])
            yield _scalar(f"update_ratio/{name}", ratio)
        yield _scalar(f"nonfinite_g/{name}", float(table.lanes["g"].nonfinite[i]))


def _histograms(table: ParamTable, lane: Lane) -> Iterator[Any]:
    """Of log₂|x| right before the update: elements that are finite and not 0, whatever their sign."""
    from tensorboardX.proto.summary_pb2 import HistogramProto, Summary

    columns: LaneColumns = table.lanes[lane]
    for i, name in enumerate(table.names):
        counts = columns.exponents[i].astype(np.float64)
        filled = np.flatnonzero(counts)
        if not len(filled):
            continue
        low, stop = int(filled[0]), int(filled[-1]) + 1
        counts = counts[low:stop]
        # Bucket i ends at limit i; one that is empty goes before the first, so that it begins where it should.
        limits = np.arange(low, stop + 1) - EXPONENT_BIAS
        middle = limits[:-1] + 0.5
        histogram = HistogramProto(
            min=float(limits[0]),
            max=float(limits[-1]),
            num=float(counts.sum()),
            sum=float((counts * middle).sum()),
            sum_squares=float((counts * middle**2).sum()),
            bucket_limit=[float(limit) for limit in limits],
            bucket=[0.0, *map(float, counts)],
        )
        yield Summary.Value(tag=f"log2_{lane}/{name}", histo=histogram)
