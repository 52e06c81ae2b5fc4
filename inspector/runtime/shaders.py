"""Kernels whose WGSL is edited while a run stands: checked, put in place, and the step run again with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from inspector.errors import DeviceLostError, UsageError
from inspector.floats import F32Array, F64Array, finite_mask
from inspector.hyper import Hyper
from inspector.layout import Segment
from inspector.optimizers import optimizer, optimizer_of
from inspector.optimizers.adamw.oracle import clip_scale, kernel_norm
from inspector.optimizers.adamw.oracle_8bit import update_decoded
from inspector.own_kernels import NO_OWN_KERNELS, OwnKernel, OwnKernels
from inspector.param_hyper import param_step
from inspector.plan import Plan, Variant
from inspector.progress import advanced
from inspector.shader_edit import ShaderMessage, is_edited, read_edited, shader_message
from inspector.shader_trial import LaneSum, ShaderTrial, shares
from inspector.stepping import GradStats, Stepper
from inspector.stores import Lane

if TYPE_CHECKING:
    from inspector.runtime.engine import Engine

MOST_ELEMENTS = 1 << 20
"""So many are compared at most, from the start of each param: in float64 on the host."""
MOST_GRADIENTS = 1 << 22
"""Up to so many are added up for their norm in float64."""
MOST_DISPATCHES = 4000
"""Of what is taken back by the undo memory, which keeps about as many."""
_NORM = ("reduce_norm_sq", "reduce_norm_sq_final", "finalize_grad_stats")
MIRROR = "w_f16"
NO_MEMORY = "the memory for going back does not hold this step, so nothing was compared"
Windows = tuple[tuple[Segment, int], ...]


@dataclass(frozen=True, slots=True)
class ShaderCheck:
    """A text that was checked as the kernel `entry_point`, and what is wrong with it; nothing where it compiles."""

    entry_point: str
    text: str
    messages: tuple[ShaderMessage, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ShadersPicture:
    """`opened_with` are the own kernels of files; a kernel goes back to them, or to the built-in one."""

    check: ShaderCheck | None = None
    trial: ShaderTrial | None = None
    opened_with: OwnKernels = NO_OWN_KERNELS


NO_SHADERS = ShadersPicture()


@dataclass(frozen=True, slots=True)
class _Left:
    """What stood in the buffers right before a kernel's first dispatch, and right behind its last."""

    given: Mapping[str, tuple[F32Array, ...]]
    after: Mapping[str, tuple[F32Array, ...]]
    stats: GradStats
    """As it stands behind them, or behind finalize_grad_stats."""
    norm: float | None = None
    """Of the gradients in float64; None where they are many, or no kernel of the norm is looked at."""


@dataclass(slots=True)
class Shaders:
    """Held by whoever owns the device, and called on its thread."""

    picture: ShadersPicture = field(default=NO_SHADERS)

    def opened(self, variant: Variant, *, anew: bool) -> None:
        """A source is open; `anew` where it is another one."""
        before = NO_OWN_KERNELS if anew else self.picture.opened_with
        kernels = tuple(
            k for own in variant.own.kernels if (k := before.get(own.entry_point) if is_edited(own) else own)
        )
        self.picture = ShadersPicture(opened_with=OwnKernels(kernels))

    def check(self, engine: Engine, entry_point: str, text: str) -> OwnKernel | None:
        """See what is wrong with a text, by its slots and by the compiler; the kernel where nothing is."""
        kernel, messages = read_edited(entry_point, text)
        if kernel is not None:
            try:
                engine.stepper.check_kernel(kernel)
            except DeviceLostError:
                raise
            except UsageError as error:
                kernel, messages = None, (shader_message(entry_point, str(error)),)
        self.picture = replace(self.picture, check=ShaderCheck(entry_point, text, messages))
        return kernel

    def put(self, engine: Engine, entry_point: str, text: str | None) -> None:
        """Put the kernel of a text in place and run the step again as far as it had run; None for what was opened.

        The run stands where it stood. Where the text does not compile nothing happens but that it is said. UsageError
        in the middle of a step that cannot be gone back to the start of.
        """
        if text is None:
            kernel = self.picture.opened_with.get(entry_point)
            self.picture = replace(self.picture, check=None)
        else:
            kernel = self.check(engine, entry_point, text)
            if kernel is None:
                return
        old = engine.stepper.plan.variant
        new = _with(old, entry_point, kernel)
        if new == old and text is None:
            self.picture = replace(self.picture, trial=None)
            return
        trial = self._run_again(engine, entry_point, new)
        words = (_words(old.own.get(entry_point)), _words(kernel))
        self.picture = replace(self.picture, trial=replace(trial, against=words[0], now=words[1]))

    def _run_again(self, engine: Engine, entry_point: str, new: Variant) -> ShaderTrial:
        stepper, at = engine.stepper, engine.stepper.cursor
        step = at.step
        if at.dispatch and not engine.undo_iteration():
            if not at.at_end:
                raise UsageError(
                    "The kernel can be replaced only at the start of a step that memory does not reach back to: finish "
                    "this step first, or start with a larger --undo-mb."
                )
            engine.set_variant(new)
            return ShaderTrial(entry_point, step, note=f"{NO_MEMORY}; it runs from the next step on")
        hyper = engine.step_hyper
        windows = _windows(stepper.plan, entry_point)
        try:
            # Ended by then, nothing is replaced and the step runs on to where it stood.
            advanced(0, 3)
            before = _measured(engine, hyper, entry_point, windows)
            advanced(1, 3)
            engine.set_variant(new)
            now = _measured(engine, hyper, entry_point, windows) if before is not None else None
        finally:
            count = engine.stepper.cursor.count
            # Only the norm has other dispatches in an own kernel, and those come first.
            engine.run_again_to(at.dispatch and max(at.dispatch + count - at.count, 1))
        if before is None or now is None:
            where = "the kernel is in place" if at.dispatch else "it runs from here on"
            return ShaderTrial(entry_point, step, note=f"{NO_MEMORY}; {where}")
        return _compared(stepper, hyper, entry_point, step, windows, before, now)


def _with(variant: Variant, entry_point: str, kernel: OwnKernel | None) -> Variant:
    return replace(variant, own=variant.own.with_kernel(entry_point, kernel))


def _words(kernel: OwnKernel | None) -> str:
    return "built-in" if kernel is None else "edited" if is_edited(kernel) else kernel.file


def _windows(plan: Plan, entry_point: str) -> Windows:
    """The params that a kernel works on, and how many elements of each are compared."""
    if entry_point in _NORM:
        return ()
    ranges = [d.elements for d in plan.dispatches if d.entry_point == entry_point]
    found = [s for s in plan.layout if s.numel and any(a < s.stop and s.offset < b for a, b in ranges)]
    counts = shares([s.numel for s in found], MOST_ELEMENTS)
    return tuple(zip(found, counts, strict=True))


def _measured(engine: Engine, hyper: Hyper, entry_point: str, windows: Windows) -> _Left | None:
    """Run the step from its start over a kernel, look, and take that back; None where memory does not hold it."""
    stepper = engine.stepper
    plan, first, last = stepper.plan, *_span(stepper.plan, entry_point)
    needed = sum(b.size for d in plan.dispatches[:last] for b in d.writes)
    if not last or needed > stepper.undo_info.limit or last > MOST_DISPATCHES:
        return None
    norm = None
    if entry_point in _NORM and stepper.layout.elements <= MOST_GRADIENTS:
        norm = kernel_norm(stepper.read("g", 0, stepper.layout.segments[-1].stop))
    times = stepper.run_until(hyper, first)
    given = _look(stepper, entry_point, windows)
    times += stepper.run_until(hyper, last)
    left = _Left(given, _look(stepper, entry_point, windows), stepper.grad_stats(), norm)
    if not stepper.rewind_step():
        # The device had no room after all: what ran has run.
        engine.ran_beside(times)
        return None
    return left


def _span(plan: Plan, entry_point: str) -> tuple[int, int]:
    """From before the first dispatch of a kernel to behind the last; of the norm to behind finalize_grad_stats."""
    if entry_point in _NORM:
        last = next(d.index for d in plan.dispatches if d.entry_point == "finalize_grad_stats")
        return 0, last + 1
    found = [d.index for d in plan.dispatches if d.entry_point == entry_point]
    return (found[0], found[-1] + 1) if found else (0, 0)


def _look(stepper: Stepper, entry_point: str, windows: Windows) -> dict[str, tuple[F32Array, ...]]:
    lanes: tuple[Lane, ...] = ("g",) if entry_point in ("scale", "fill_zero") else stepper.plan.lanes
    found: dict[str, tuple[F32Array, ...]] = {
        lane: tuple(stepper.read(lane, s.offset, count) for s, count in windows) for lane in lanes
    }
    if entry_point in ("adamw_update_f16", "cast_f32_to_f16"):
        halves = stepper.half_weights()
        found[MIRROR] = tuple(halves[s.name][:count].astype(np.float32) for s, count in windows)
    return found


def _compared(
    stepper: Stepper, hyper: Hyper, entry_point: str, step: int, windows: Windows, before: _Left, now: _Left
) -> ShaderTrial:
    if entry_point in _NORM:
        return _norm_compared(stepper, hyper, entry_point, step, before, now)
    sums = {lane: LaneSum(lane, "f16" if lane == MIRROR else "f32") for lane in before.after}
    for i, (segment, _) in enumerate(windows):
        exact = _exact(stepper.plan, hyper, entry_point, step, segment, before, i)
        for lane, total in sums.items():
            right = exact.get(lane)
            if lane == MIRROR:
                # What the weights that the kernel itself left are, rounded.
                right = _halves(now.after["w"][i])
            total.add(
                segment.name, 0, before.given[lane][i], before.after[lane][i], now.after[lane][i], right
            )
    lanes = (MIRROR,) if entry_point == "cast_f32_to_f16" else tuple(sums)
    compared = sum(count for _, count in windows)
    of = sum(segment.numel for segment, _ in windows)
    return ShaderTrial(entry_point, step, tuple(sums[lane].row for lane in lanes), compared, of)


def _exact(
    plan: Plan, hyper: Hyper, entry_point: str, step: int, segment: Segment, left: _Left, i: int
) -> dict[str, F64Array]:
    """What the lanes of a param hold in float64 behind a kernel, as far as it is known: 8-bit m and v are coded."""
    g = left.given["g"][i] if "g" in left.given else np.zeros(0, np.float32)
    if entry_point == "fill_zero":
        return {"g": np.zeros(len(g))}
    if entry_point == "scale":
        return {"g": left.stats.clip_scale * np.where(finite_mask(g), g, 0).astype(np.float64)}
    if entry_point == "cast_f32_to_f16":
        return {}
    taken = param_step(hyper, plan.layout, segment.name, step)
    if taken.idle:
        return {lane: values[i].astype(np.float64) for lane, values in left.given.items() if lane != MIRROR}
    variant = plan.variant
    scale = left.stats.clip_scale if variant.fused else 1.0
    w, m, v = (left.given[lane][i] if lane in left.given else np.zeros_like(g) for lane in ("w", "m", "v"))
    found: dict[str, F64Array] = {"g": np.zeros(len(g))} if variant.fused else {"g": g.astype(np.float64)}
    with np.errstate(all="ignore"):
        if segment.state == "8bit":
            _, lines = update_decoded(
                w, g, m, v, codec=variant.codec, scale=scale, hyper=taken.hyper, step=taken.step,
                decays=taken.decays, numerics=variant.numerics, l2=optimizer(variant.optimizer).decay_in_gradient,
            )  # fmt: skip
            return found | {"w": np.asarray(lines[-1].value, np.float64)}
        exact = optimizer_of(variant, segment.param).element_wise()(
            w, g, m, v, scale=scale, hyper=taken.hyper, step=taken.step, decays=taken.decays,
            numerics=variant.numerics,
        )  # fmt: skip
    return found | {
        "w": np.asarray(exact.w, np.float64), "m": np.asarray(exact.m, np.float64), "v": np.asarray(exact.v, np.float64)
    }  # fmt: skip


def _halves(w: F32Array) -> F64Array:
    with np.errstate(over="ignore"):
        return w.astype(np.float16).astype(np.float64)


def _norm_compared(
    stepper: Stepper, hyper: Hyper, entry_point: str, step: int, before: _Left, now: _Left
) -> ShaderTrial:
    layout = stepper.layout
    rows = []
    for name, was, left, exact in _norm_values(before.stats, now.stats, before.norm, hyper):
        total = LaneSum(name)
        a, b = (np.array([value], np.float32) for value in (was, left))
        total.add("", 0, b, a, b, None if exact is None else np.array([exact]))
        rows.append(total.row)
    return ShaderTrial(entry_point, step, tuple(rows), layout.elements, layout.elements)


def _norm_values(
    before: GradStats, now: GradStats, norm: float | None, hyper: Hyper
) -> Iterator[tuple[str, float, float, float | None]]:
    scale = None if norm is None else float(clip_scale(norm, hyper.max_grad_norm))
    yield "gradNorm", before.grad_norm, now.grad_norm, norm
    yield "clipScale", before.clip_scale, now.clip_scale, scale
