"""`inspector policies`: what optimizers that treat non-finite gradients differently would make of one step."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from inspector.cli.at_step import find_param, stepper_at
from inspector.cli.explain import flat_index
from inspector.cli.options import make_console, make_table
from inspector.errors import UsageError
from inspector.floats import shortest, significant
from inspector.hyper import Hyper
from inspector.number_words import nonfinite_counts
from inspector.plan import Variant
from inspector.policies import STATE_LANES, Outcome, PolicyTable
from inspector.runtime.weighing import weigh_on_device, weigh_on_host
from inspector.sources.base import EndOfSourceError, Source, hyper_at
from inspector.sources.recording import Recording
from inspector.stores import Lane


def describe(
    source: Source,
    hyper: Hyper,
    variant: Variant,
    *,
    given: Mapping[str, Any],
    adapter: str | None,
    param: str | None,
    index: str | None,
    step: int | None,
) -> dict[str, Any]:
    """The document of --json."""
    tensor = None if param is None else find_param(source, param)
    if tensor is None and index is not None:
        raise UsageError("--index is of a param: name it with --param.")
    element = None if tensor is None else (tensor.name, flat_index(index or "0", tensor))
    table = weigh_step(source, hyper, variant, given=given, adapter=adapter, step=step, element=element)
    return document(source, table)


def weigh_step(
    source: Source,
    hyper: Hyper,
    variant: Variant,
    *,
    given: Mapping[str, Any],
    adapter: str | None,
    step: int | None,
    element: tuple[str, int] | None,
) -> PolicyTable:
    """The policies on a step, the first there is where `step` is None; on a device only where the state before the step
    has to be rebuilt."""
    with _progress() as tell:
        if isinstance(source, Recording):
            made = _of_keyframe(source, hyper, variant, given, step, element, tell)
        else:
            made = _of_first(source, hyper, variant, step, element, tell)
        if made is not None:
            return made
        with stepper_at(
            source, hyper, variant, given=given, adapter=adapter, step=step, what="looked at"
        ) as (stepper, used):
            return weigh_on_device(stepper, used, element, tell)


def _of_first(
    source: Source,
    hyper: Hyper,
    variant: Variant,
    step: int | None,
    element: tuple[str, int] | None,
    tell: Callable[[int, int], None],
) -> PolicyTable | None:
    first = source.initial_state().finished_steps + 1
    if step is not None and step != first:
        return None
    used = hyper_at(source, hyper, source.schedule, first)
    try:
        return weigh_on_host(source, used, variant, first, element, tell)
    except EndOfSourceError as error:
        raise UsageError(f"--step {first} cannot be looked at: {error}") from None


def _of_keyframe(
    source: Recording,
    hyper: Hyper,
    variant: Variant,
    given: Mapping[str, Any],
    step: int | None,
    element: tuple[str, int] | None,
    tell: Callable[[int, int], None],
) -> PolicyTable | None:
    at = source.first_step if step is None else step
    if problem := source.missing(at):
        raise UsageError(f"--step {at} cannot be looked at: {problem}")
    if at - 1 not in source.session.captures("keyframe"):
        return None
    form = source.recorded_variant(at) or variant
    typed = {name: value for name, value in given.items() if name in ("numerics", "optimizer")}
    near = source.starting_for(at)
    try:
        used = hyper_at(source, hyper, source.schedule, at)
        return weigh_on_host(near, used, _replaced(form, typed), at, element, tell)
    finally:
        near.session.close()


def _replaced(form: Variant, typed: Mapping[str, Any]) -> Variant:
    return Variant(
        optimizer=typed.get("optimizer", form.optimizer), numerics=typed.get("numerics", form.numerics)
    )


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("elements", total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


def document(source: Source, table: PolicyTable) -> dict[str, Any]:
    """A table as the document has it."""
    shape = next((p.shape for p in source.params if p.name == table.param), ())
    return {
        "source": source.name,
        "step": table.step,
        "elements": table.elements,
        "params": table.params,
        "nonfinite_gradients": {
            "nan": table.gradients.nan,
            "posinf": table.gradients.posinf,
            "neginf": table.gradients.neginf,
            "params": table.hit_params,
        },
        "param": table.param,
        "index": table.index,
        "multi_index": None if table.index is None else _multi_index(table.index, shape),
        "gradient": None if table.param is None else np.float32(table.gradient),
        "policies": [_outcome(o) for o in table.outcomes],
    }


def _multi_index(flat: int, shape: tuple[int, ...]) -> list[int]:
    index: list[int] = []
    for extent in reversed(shape):
        flat, at = divmod(flat, extent)
        index.insert(0, at)
    return index


def _outcome(o: Outcome) -> dict[str, Any]:
    return {
        "policy": o.policy,
        "title": o.title,
        "grad_norm": np.float32(o.grad_norm),
        "clip_scale": None if o.clip_scale is None else np.float32(o.clip_scale),
        "step_counts": o.counts,
        "nonfinite": {lane: o.nonfinite[lane] for lane in STATE_LANES},
        "nonfinite_params": o.params,
        "update_norm": o.update_norm,
        "before": None if o.element is None else _lanes(o.element.before),
        "after": None if o.element is None else _lanes(o.element.after),
        "says": o.says,
    }


def _lanes(values: Mapping[Lane, float]) -> dict[str, np.float32]:
    return {lane: np.float32(value) for lane, value in values.items()}


def show(document: dict[str, Any]) -> None:
    """Print the document for people."""
    console = make_console()
    bad = document["nonfinite_gradients"]
    total = bad["nan"] + bad["posinf"] + bad["neginf"]
    console.print(
        f"Step {document['step']:,} of {document['source']}: {total:,} of {document['elements']:,} gradients are not "
        f"finite ({nonfinite_counts(bad['nan'], bad['posinf'], bad['neginf'])}), in {bad['params']:,} of "
        f"{document['params']:,} params.",
        soft_wrap=True,
    )
    table = make_table(
        "policy", "the step", right=("gradient norm", "clip scale", "‖Δw‖", "w", "m", "v", "params")
    )
    for o in document["policies"]:
        lanes = o["nonfinite"]
        table.add_row(
            o["title"],
            f"counts, t = {document['step']:,}"
            if o["step_counts"]
            else f"is skipped, t = {document['step'] - 1:,}",
            _digits(o["grad_norm"]),
            "none" if o["clip_scale"] is None else _digits(o["clip_scale"]),
            _digits(o["update_norm"]),
            *(f"{lanes[lane]:,}" for lane in STATE_LANES),
            f"{o['nonfinite_params']:,}",
        )
    console.print(table)
    console.print("w, m, v and params: elements that are not finite afterwards, and in how many params.")
    if document["param"] is not None:
        _show_element(console, document)
    console.print()
    for o in document["policies"]:
        console.print(f"{o['title']}: {o['says']}", soft_wrap=True)


def _show_element(console: Console, document: dict[str, Any]) -> None:
    place = f"{document['param']}{document['multi_index']}"
    console.print(f"\n{place}, gradient {shortest(document['gradient'])}:", soft_wrap=True)
    table = make_table("", right=STATE_LANES)
    before = document["policies"][0]["before"]
    table.add_row("before the step", *(shortest(before[lane]) for lane in STATE_LANES))
    for o in document["policies"]:
        table.add_row(o["title"], *(shortest(o["after"][lane]) for lane in STATE_LANES))
    console.print(table)


def _digits(value: float) -> str:
    return significant(value, 6) if math.isfinite(value) else shortest(value)
