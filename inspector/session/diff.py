"""Two sessions held against each other, step by step and param by param, without a device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from inspector.errors import UsageError
from inspector.floats import F64Array, ulp_distance
from inspector.hyper import HYPER_NAMES
from inspector.layout import Param
from inspector.plan import Dispatch, Variant
from inspector.session.compare import (
    ArrayDifference,
    Difference,
    compare_arrays,
    count_differences,
    grad_stats_dispatch,
    same_float,
    step_differences,
    table_differences,
    tensor_difference,
    update_dispatches,
)
from inspector.session.differences import (
    METRICS,
    STATE,
    ParamDifference,
    SessionDiff,
    Setting,
    Timing,
)
from inspector.session.own_settings import own_differences
from inspector.session.plans import recorded_plan, times_in_plan
from inspector.session.reader import Session
from inspector.session.records import RecordedLayout, RecordedStep

MAX_TABLES = 256
"""Steps at most of which the statistics of params are given, evenly spread."""


def diff(
    a: Session,
    b: Session,
    *,
    check: Callable[[], None] = lambda: None,
    progress: Callable[[float], None] = lambda share: None,
) -> SessionDiff:
    """Compare all that both hold of the steps that both hold; UsageError where their params differ.

    No more than one tensor of each is looked at at a time. `check` is called between steps and between tensors,
    `progress` with the share that is done.
    """
    check_params(a, b)
    steps = range(max(a.steps.start, b.steps.start), min(a.steps.stop, b.steps.stop))
    if not steps:
        raise UsageError(f"{a.path} and {b.path} have no step in common: {_span(a)} stand beside {_span(b)}.")
    found = SessionDiff(steps)
    _metrics(found, a, b)
    _timings(found, a, b)
    found.params = [ParamDifference(p.name) for p in a.about.params]
    by_name = {each.name: each for each in found.params}
    keyframes = _common(a, b, "keyframe")
    gradients = _common(a, b, "gradients")
    tables = set(_spread(steps, MAX_TABLES))
    before: tuple[RecordedStep, RecordedStep] | None = None
    places = _Places(a)
    counted = "off" not in (a.about.stats, b.about.stats)
    at_start = steps.start - 1
    if at_start in keyframes:
        _compare_state(found, by_name, a, b, at_start, {}, check)
    for step in steps:
        check()
        progress((step - steps.start) / len(steps))
        x, y = a.step(step), b.step(step)
        _settings(found, before, (x, y), a.about.params)
        before = x, y
        captured = step in keyframes or step in gradients
        if found.first is not None and not captured and step not in tables:
            continue
        dispatches, norm_at = places.of(x)
        if (
            found.first is None
            and x.loss is not None
            and y.loss is not None
            and not _same_loss(x.loss, y.loss)
        ):
            found.first = Difference(step, None, "loss", "loss", a=x.loss, b=y.loss)
        if step in gradients:
            _compare_gradients(found, by_name, a, b, step, check)
        if found.first is None:
            counts = count_differences(x, y, places=_alike(a, b, step)) if counted else []
            numbers = [*counts, *step_differences(x, y, norm_at)]
            found.first = numbers[0] if numbers else None
        if found.first is None or step in tables:
            _compare_tables(found, by_name, a, b, step, norm_at, statistics=step in tables)
        if step in keyframes:
            foretold = found.first if _foretold(found.first, step) else None
            if foretold is not None:
                # The tensors of the same step say in which element.
                found.first = None
            _compare_state(found, by_name, a, b, step, dispatches, check)
            found.first = found.first or foretold
    return found


def check_params(a: Session, b: Session) -> None:
    """UsageError, naming the first, where the params of two sessions differ."""
    mine = {p.name: p for p in a.about.params}
    other = {p.name: p for p in b.about.params}
    text = f"{a.path} and {b.path} cannot be compared:"
    for name in (*mine, *other):
        if name not in other or name not in mine:
            where = a.path if name in mine else b.path
            raise UsageError(f"{text} param {name!r} is in {where} alone.")
        x, y = mine[name], other[name]
        if x.shape != y.shape:
            raise UsageError(
                f"{text} param {name!r} has the shape {list(x.shape)} in one, {list(y.shape)} in the other."
            )
        if x.block != y.block:
            raise UsageError(f"{text} param {name!r} is decayed in one and not in the other.")


# --- inner parts


class _Places:
    """Which dispatch of a step wrote what."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[object, tuple[dict[str, int | None], int | None, tuple[Dispatch, ...]]] = {}
        self._laid: RecordedLayout | None = None

    def of(self, step: RecordedStep) -> tuple[dict[str, int | None], int | None]:
        """By param the dispatch that updates it, and the one that writes grad_stats; none where it ran another plan."""
        if step.layout is not self._laid:
            self._laid, self._known = step.layout, {}
        own = step.hyper.per_param
        form = step.variant if own is None else (step.variant, own.of, own.kinds())
        known = self._known.get(form)
        if known is None:
            known = self._known[form] = self._plan(step)
        updates, norm_at, dispatches = known
        if step.kernels and times_in_plan(step.kernels, dispatches) is None:
            ran = [kernel.name for kernel in step.kernels]
            return {}, ran.index("finalize_grad_stats") if "finalize_grad_stats" in ran else None
        return updates, norm_at

    def _plan(self, step: RecordedStep) -> tuple[dict[str, int | None], int | None, tuple[Dispatch, ...]]:
        try:
            plan = recorded_plan(self._session, step)
        except UsageError:
            # Its device had larger limits, in a recording that does not hold them.
            return {}, None, ()
        layout, dispatches = plan.layout, plan.dispatches
        places = {s.name: s.offset for s in layout}
        return update_dispatches(dispatches, places), grad_stats_dispatch(dispatches), dispatches


def _common(a: Session, b: Session, kind: str) -> set[int]:
    return set(a.captures(kind)) & set(b.captures(kind))  # type: ignore[arg-type]


def _span(session: Session) -> str:
    steps = session.steps
    return f"steps {steps.start:,} to {steps.stop - 1:,}" if steps else "no steps"


def _spread(steps: range, count: int) -> Iterator[int]:
    """At most `count` of `steps`, evenly apart, the last among them."""
    yield from steps[:: max(-(-len(steps) // count), 1)]
    yield steps[-1]


def _metrics(found: SessionDiff, a: Session, b: Session) -> None:
    common = [slice(found.steps.start - s.steps.start, found.steps.stop - s.steps.start) for s in (a, b)]
    for name in METRICS:
        x, y = (s.metric(name)[part] for s, part in zip((a, b), common, strict=True))
        known, also = (s.known(name)[part] for s, part in zip((a, b), common, strict=True))
        found.a[name], found.b[name] = x, y
        with np.errstate(all="ignore"):
            ulp = ulp_distance(x.astype(np.float32), y.astype(np.float32))
        found.ulp[name] = np.where(known & also & ~(np.isnan(x) & np.isnan(y)), ulp, -1)


def _timings(found: SessionDiff, a: Session, b: Session) -> None:
    names = [set(s.metric_names()) for s in (a, b)]
    warm = [name for name in a.metric_names() if name.startswith("ms/")]
    warm += [name for name in b.metric_names() if name.startswith("ms/") and name not in names[0]]
    for name in warm:
        medians = []
        for session, known in zip((a, b), names, strict=True):
            values = session.metric(name) if name in known else np.full(0, np.nan)
            values = values[np.isfinite(values)]
            medians.append(float(np.median(values)) if len(values) else math.nan)
        found.timings.append(Timing(name.removeprefix("ms/"), *medians))


def _settings(
    found: SessionDiff,
    before: tuple[RecordedStep, RecordedStep] | None,
    now: tuple[RecordedStep, RecordedStep],
    params: Sequence[Param],
) -> None:
    """Add what differs now and did not, or differed otherwise, in the step before."""
    if before is not None and [(r.hyper, r.variant) for r in before] == [(r.hyper, r.variant) for r in now]:
        return

    def differing(pair: tuple[RecordedStep, RecordedStep]) -> dict[str, tuple[object, object]]:
        values = {name: tuple(getattr(r.hyper, name) for r in pair) for name in HYPER_NAMES}
        form = {n: tuple(getattr(r.variant, n) for r in pair) for n in Variant.__dataclass_fields__}
        own = own_differences(params, *pair)
        return {name: (x, y) for name, (x, y) in {**values, **form, **own}.items() if x != y}

    was = differing(before) if before else {}
    for name, (x, y) in differing(now).items():
        # A schedule changes the rate every step: what stays in the same ratio is told once.
        if name not in was or (not name.startswith("lr") and was[name] != (x, y)):
            found.settings.append(Setting(now[0].step, name, x, y))


def _compare_gradients(
    found: SessionDiff,
    by_name: dict[str, ParamDifference],
    a: Session,
    b: Session,
    step: int,
    check: Callable[[], None],
) -> None:
    x, y = a.gradients(step), b.gradients(step)
    total = found.gradients[step] = ArrayDifference()
    for param in a.about.params:
        check()
        p, q = (each.get(param.name) for each in (x, y))
        if p is None and q is None:
            continue
        zeros = np.zeros(param.numel if p is None or q is None else 0, np.float32)
        p, q = (zeros if each is None else each for each in (p, q))
        _compare(found, by_name[param.name], total, step, None, "g", param, (p, q))


def _compare_state(
    found: SessionDiff,
    by_name: dict[str, ParamDifference],
    a: Session,
    b: Session,
    step: int,
    dispatches: dict[str, int | None],
    check: Callable[[], None],
) -> None:
    totals = found.keyframes[step] = {lane: ArrayDifference() for lane in STATE}
    states = a.param_states(step), b.param_states(step)
    names = sorted({*states[0], *states[1]})
    there = min(s.about.params_in(step) for s in (a, b))
    order = sorted(a.about.params[:there], key=lambda p: -1 if (at := dispatches.get(p.name)) is None else at)
    for param in order:
        check()
        for lane in STATE:
            pair = a.tensor(lane, step, param.name).reshape(-1), b.tensor(lane, step, param.name).reshape(-1)
            at = dispatches.get(param.name)
            _compare(found, by_name[param.name], totals[lane], step, at, lane, param, pair)
        for name in names:
            kept = [of.get(name, {}).get(param.name) for of in states]
            size = next((each.size for each in kept if each is not None), None)
            if size is None:
                continue
            # Where one has none of it, it is 0, as a moment that is not kept.
            x, y = (np.zeros(size, np.float32) if v is None else v.reshape(-1) for v in kept)
            total = totals.setdefault(name, ArrayDifference())
            _compare(found, by_name[param.name], total, step, dispatches.get(param.name), name, param, (x, y))


def _compare(
    found: SessionDiff,
    mine: ParamDifference,
    total: ArrayDifference,
    step: int,
    dispatch: int | None,
    lane: str,
    param: Param,
    pair: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]],
) -> None:
    difference = compare_arrays(*pair)
    total.add(difference)
    mine.tensors.setdefault(lane, {})[step] = difference.relative
    mine.ulps.setdefault(lane, {})[step] = difference.max_ulp
    if difference.first is not None and found.first is None:
        found.first = tensor_difference(step, dispatch, lane, param.name, *pair, difference)


def _compare_tables(
    found: SessionDiff,
    by_name: dict[str, ParamDifference],
    a: Session,
    b: Session,
    step: int,
    dispatch: int | None,
    *,
    statistics: bool,
) -> None:
    x, y = a.param_statistics(step), b.param_statistics(step)
    if x is None or y is None:
        return
    if found.first is None:
        differences = table_differences(step, x, y, dispatch, places=_alike(a, b, step))
        found.first = differences[0] if differences else None
    if not statistics:
        return
    rows = {name: i for i, name in enumerate(y.names)}
    pairs: Sequence[tuple[str, F64Array, F64Array]] = [
        *((f"‖{lane}‖", x.lanes[lane].norm, y.lanes[lane].norm) for lane in ("w", "g", "m", "v")),
        ("‖Δw‖", x.update.norm, y.update.norm),
    ]
    for what, p, q in pairs:
        for i, name in enumerate(x.names):
            if name in rows:
                by_name[name].norms.setdefault(what, {})[step] = _relative(float(p[i]), float(q[rows[name]]))


def _foretold(first: Difference | None, step: int) -> bool:
    """True for what statistics of the step, counted right before its update, say of that update."""
    return (
        first is not None
        and (first.step, first.buffer) == (step, "statistics")
        and first.what.startswith("update")
    )


def _alike(a: Session, b: Session, step: int) -> bool:
    """True where elements of the mega-buffer are those of the same params."""
    x, y = a.step(step), b.step(step)
    if a.about.device.name != b.about.device.name or x.variant != y.variant:
        return False
    if x.layout is None or y.layout is None:
        return [p.name for p in a.about.params] == [p.name for p in b.about.params]
    places = (
        {p.name: at for p, at in zip(s.about.params, laid.offsets, strict=True)}
        for s, laid in ((a, x.layout), (b, y.layout))
    )
    return next(places) == next(places)


def _relative(a: float, b: float) -> float:
    if a == b:
        return 0.0
    return (b - a) / a if a else math.inf


def _same_loss(a: float, b: float) -> bool:
    return a == b or same_float(a, b)
