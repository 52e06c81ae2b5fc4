"""`inspector import`: what other programs saved, as a session."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from inspector import __version__
from inspector.byte_sizes import size_text
from inspector.cli.options import open_told
from inspector.errors import InspectorError, UsageError
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import Layout, make_layout
from inspector.plan import Limits, Variant, required_placement
from inspector.session.new_place import check_new
from inspector.session.policy import ALL, Policy
from inspector.session.recorder import Recorder, check_room
from inspector.session.records import About, RecordedLayout, RecordedStep
from inspector.sources.base import Source, remarks_of
from inspector.sources.checkpoint.source import Checkpoint
from inspector.sources.dump import Dump
from inspector.sources.statefile import StateFile
from inspector.statistics import NonFinite, added_up, buffer_stats
from inspector.stepping import DeviceInfo, HostState

DEVICE = DeviceInfo("imported", "none", True, False, "not run here")
_DTYPES = {"F32": "f32", "BF16": "bf16", "F16": "f16"}


@dataclass(frozen=True, slots=True)
class _Step:
    """What was saved of one step."""

    step: int
    hyper: Hyper
    gradients: dict[str, F32Array] | None
    after: HostState | None
    loss: float | None = None
    grad_norm: float | None = None
    clip_scale: float | None = None


def import_files(files: Sequence[Path], save: Path) -> None:
    """Write what `files` hold as a session at `save`: the state, and steps where there are gradients of any.

    UsageError where they hold nothing of the kind, or the session cannot be made.
    """
    check_new(save)
    spec = "+".join(str(file) for file in files)
    source = open_told(spec, steps=False)
    if not isinstance(source, (Checkpoint, Dump, StateFile)):
        raise UsageError(f"{spec} is opened as it is: import takes checkpoints, dumps and state files.")
    steps = source.steps if isinstance(source, Dump) else ()
    state = source.initial_state()
    variant = (source.form if isinstance(source, (Checkpoint, Dump)) else None) or Variant()
    limits = Limits()
    layout = make_layout(source.params, placement=required_placement(variant))
    policy = ALL if not isinstance(source, Checkpoint) or source.has_gradients else Policy(keyframes_every=1)
    check_room(save.absolute(), policy.expected_bytes(layout, len(steps) or 1, stats="off"))
    with Recorder.create(save, _about(source, state, variant, policy, layout, limits)) as recorder:
        recorder.offer_start(state)
        for each in _steps(source):
            counts = NonFinite() if each.gradients is None else _counts(each.gradients, layout)
            recorder.offer(
                RecordedStep(
                    each.step,
                    each.hyper,
                    variant,
                    each.loss,
                    each.grad_norm,
                    each.clip_scale,
                    counts,
                    ended=time.time(),
                ),
                gradients=each.gradients,
                keyframe=each.after,
            )
            # One step in memory at a time.
            recorder.flush()
    if recorder.problem is not None:
        raise InspectorError(recorder.problem)
    held = sum(file.stat().st_size for file in save.rglob("*") if file.is_file())
    print(f"Imported {spec} to {save}, {size_text(held)}.", file=sys.stderr)


def _about(
    source: Checkpoint | Dump | StateFile,
    state: HostState,
    variant: Variant,
    policy: Policy,
    layout: Layout,
    limits: Limits,
) -> About:
    stored = source.stored if isinstance(source, Checkpoint) else {}
    dtypes = tuple(_DTYPES.get(stored.get(p.name, {}).get("w", "F32"), "f32") for p in source.params)
    other = not isinstance(source, StateFile)
    return About(
        source=source.name,
        params=source.params,
        variant=variant,
        hyper=source.hyper,
        schedule="constant",
        device=DEVICE,
        finished_steps=state.finished_steps,
        policy=str(policy),
        software=f"inspector {__version__}",
        began=time.time(),
        description=" ".join((f"{source.description}.", *remarks_of(source, steps=False)))
        if other
        else source.description,
        stats="off",
        layout=RecordedLayout.of(layout, limits, source.params),
        origin=source.origin if isinstance(source, (Checkpoint, Dump)) else "",
        dtypes=() if set(dtypes) <= {"f32"} else dtypes,
        unreplayable=source.unreplayable if isinstance(source, (Checkpoint, Dump)) else "",
    )


def _steps(source: Source) -> Iterator[_Step]:
    if isinstance(source, Checkpoint):
        if source.has_gradients:
            yield _Step(source.finished_steps + 1, source.hyper, source.recorded_gradients(), None)
    elif isinstance(source, Dump):
        for each in source.steps:
            given = "g" in each.before
            after = source.state_after(each.step)
            if not given and after is None and each is source.steps[-1]:
                # Nothing but the state before it, which is captured as that after the one before.
                return
            gradients = dict(source.gradients(each.step, dict).values) if given else None
            yield _Step(each.step, each.hyper, gradients, after, each.loss, each.grad_norm, each.clip_scale)
    elif isinstance(source, StateFile):
        first = source.finished_steps + 1
        # Steps of a session follow each other: what comes after a gap is left out.
        for step in range(first, (source.last_step or 0) + 1):
            if not source.has_step(step):
                print(f"inspector: no gradients of step {step:,}: later ones are left out.", file=sys.stderr)
                return
            yield _Step(step, source.hyper, dict(source.gradients(step, dict).values), None)


def _counts(gradients: dict[str, F32Array], layout: Layout) -> NonFinite:
    """Elements that are not finite; the first as they lie in the mega-buffers."""
    found = (segment for segment in layout if segment.name in gradients)
    return added_up(buffer_stats(gradients[s.name], start=s.offset) for s in found).nonfinite
