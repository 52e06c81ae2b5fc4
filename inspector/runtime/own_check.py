"""What a user's own kernels leave behind, held against the built-in ones on the same step."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from inspector.codecs import BLOCK
from inspector.diagnosis.facts import AfterStep, OwnDifference
from inspector.diagnosis.rules.eight_bit import largest_error
from inspector.errors import DeviceLostError, InspectorError
from inspector.floats import F32Array, F64Array
from inspector.hyper import Hyper
from inspector.optimizers import optimizer_of
from inspector.optimizers.adamw.oracle_8bit import kernel_eps
from inspector.own_kernels import NO_OWN_KERNELS
from inspector.param_hyper import param_step
from inspector.statistics import StatsLevel
from inspector.stepping import HostState, Stepper
from inspector.stores import LANES, Lane

MAX_ELEMENTS = 1 << 24
"""Of a model whose states are compared on the host."""
OFTEN = 4
"""So many first steps are looked at, and then those at powers of two after the first."""
TOLERANCE = 1e-4
"""Of the norm of the lane of a param; rounding of elements comes to 1e-7, the published 1 - β₂ to 1.3e-5."""
ADAM_LINES = {"m", "v", "m̂", "v̂", "ratio", "decay"}
_LANES: tuple[Lane, ...] = ("m", "v", "w")
"""In the order in which an update works them out."""


class OwnCheck:
    """Follows a run: a second run of the built-in kernels for a step, on the same device, from the same buffers."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._built_in: Stepper | None = None
        self._before: HostState | None = None

    def begun(self, stepper: Stepper, level: StatsLevel) -> None:
        """The gradients of a step are in place."""
        self._drop()
        variant = stepper.plan.variant
        if not variant.own or level == "off":
            self._first = None
            return
        step = stepper.cursor.step
        if self._first is None or step < self._first:
            self._first = step
        since = step - self._first
        looked = since < OFTEN or since & (since - 1) == 0
        if not looked or stepper.layout.padded_elements > MAX_ELEMENTS:
            return
        try:
            self._built_in = stepper.beside(replace(variant, own=NO_OWN_KERNELS))
            self._before = stepper.state()
        except DeviceLostError:
            raise
        except InspectorError:
            # Where there is no room for a second run the step is not compared.
            self._drop()

    def finished(self, stepper: Stepper, hyper: Hyper) -> AfterStep | None:
        """The step is complete; None where nothing of the user's ran."""
        if not stepper.plan.variant.own or self._first is None:
            return None
        gradients = stepper.counts("g")
        built_in, before = self._built_in, self._before
        if built_in is None or before is None or built_in.cursor.step != stepper.cursor.step:
            return AfterStep(gradients)
        given = built_in.gradients()
        built_in.run_to_end(hyper)
        own, other = stepper.state(), built_in.state()
        scale = built_in.grad_stats().clip_scale
        self._drop()
        differs = _differs(stepper, hyper, before, given, own, other, scale)
        if differs is None and stepper.plan.variant.kernel == "f16":
            differs = _mirror_differs(stepper, own)
        return AfterStep(gradients, _padding(stepper), differs)

    def replaced(self) -> None:
        """The run goes on with a new stepper on a new device: the old device is gone, and all on it."""
        self._built_in = self._before = None

    def reformed(self) -> None:
        """The run goes on in another form, within the step or after it."""
        self._drop()

    def _drop(self) -> None:
        if self._built_in is not None:
            self._built_in.release()
        self._built_in = self._before = None


def _code_spacing(stepper: Stepper, param: str, lane: Lane, values: F64Array) -> F64Array:
    """How far two codes next to each other are apart at most, for each element of `values`; 0 where they are float32.

    Rounding may make another code of a value near the middle of two, no more.
    """
    if lane == "w" or stepper.layout[param].state != "8bit":
        return np.zeros(len(values))
    sizes = np.where(np.isfinite(values), np.abs(values), 0.0)
    blocks = np.pad(sizes, (0, -len(values) % BLOCK)).reshape(-1, BLOCK)
    largest = np.repeat(blocks.max(axis=1), BLOCK)[: len(values)]
    return 2 * largest_error(stepper.plan.variant.codec, lane) * largest


def _padding(stepper: Stepper) -> dict[str, int]:
    """Elements between params that are not 0, by lane."""
    found: dict[str, int] = {}
    at, gaps = 0, []
    for start, stop in (*stepper.layout.filled_runs(), (stepper.layout.padded_elements,) * 2):
        if start > at:
            gaps.append((at, start - at))
        at = stop
    for lane in LANES:
        count = sum(int(np.count_nonzero(stepper.read(lane, start, size))) for start, size in gaps)
        if count:
            found[lane] = count
    return found


def _differs(
    stepper: Stepper,
    hyper: Hyper,
    before: HostState,
    given: dict[str, F32Array],
    own: HostState,
    other: HostState,
    scale: float,
) -> OwnDifference | None:
    """The element in the first lane of an update that is off, which lies furthest from the built-in one.

    Of the moments those that the optimizer keeps.
    """
    for lane in (lane for lane in _LANES if lane in stepper.plan.lanes):
        worst: OwnDifference | None = None
        share = TOLERANCE
        for segment in stepper.layout:
            if not segment.numel:
                continue
            a = np.asarray(getattr(own, lane)[segment.name], np.float64).reshape(-1)
            b = np.asarray(getattr(other, lane)[segment.name], np.float64).reshape(-1)
            was = np.asarray(getattr(before, lane)[segment.name], np.float64).reshape(-1)
            with np.errstate(all="ignore"):
                off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
                # Of codes one is allowed, with what the scale is rounded by.
                off[off <= (1 + TOLERANCE) * _code_spacing(stepper, segment.name, lane, b)] = 0.0
                # Of what the step changed: weights move by a thousandth of their norm.
                moved = np.abs(b - was)
                norm = float(np.sqrt(np.sum(np.square(moved[np.isfinite(moved)]))))
                spacing = np.spacing(np.abs(b).astype(np.float32)).astype(np.float64)
                rounding = 4 * float(np.sqrt(np.sum(np.square(spacing))))
            total = float(np.sqrt(np.sum(np.square(off))))
            if not total > TOLERANCE * norm + rounding:
                continue
            relative = total / max(norm, 1e-30)
            if worst is None or relative > share or math.isnan(total):
                share = relative
                at = int(np.nanargmax(np.where(np.isnan(off), np.inf, off)))
                line = _first_line(stepper, hyper, segment.name, at, before, given, own, scale, lane)
                worst = OwnDifference(
                    segment.name, lane, at, float(a[at]), float(b[at]), float(off[at]), max(norm, 1e-30), line
                )
        if worst is not None:
            return worst
    return None


def _mirror_differs(stepper: Stepper, own: HostState) -> OwnDifference | None:
    """The element of the half-precision mirror furthest from the weight that it stands for.

    WGSL rounds a conversion to f16 up or down as it likes, so that one spacing is allowed.
    """
    mirror, worst, most = stepper.half_weights(), None, 0.0
    for segment in stepper.layout:
        if not segment.numel:
            continue
        with np.errstate(all="ignore"):
            right = np.asarray(own.w[segment.name], np.float32).reshape(-1).astype(np.float16)
            got = mirror[segment.name]
            a, b = got.astype(np.float64), right.astype(np.float64)
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            off = np.where(same, 0.0, np.abs(a - b))
            spacing = np.abs(np.spacing(right)).astype(np.float64)
            far = ~same & ~(off <= spacing)
            # The largest finite number is what infinity rounds to in the other direction.
            far &= ~(np.isinf(b) & (np.abs(a) == float(np.finfo(np.float16).max)))
        if far.any():
            off = np.where(np.isnan(off), np.inf, off)
            at = int(np.argmax(np.where(far, off, -1.0)))
            if worst is None or off[at] > most:
                most, norm = float(off[at]), float(np.linalg.norm(np.where(np.isfinite(b), b, 0.0)))
                worst = OwnDifference(
                    segment.name, "w_f16", at, float(a[at]), float(b[at]), most, max(norm, 1e-30), "w_f16"
                )
    return worst


def _first_line(
    stepper: Stepper,
    hyper: Hyper,
    param: str,
    index: int,
    before: HostState,
    given: dict[str, F32Array],
    own: HostState,
    scale: float,
    lane: Lane,
) -> str:
    """The first line of the update that the kernel's results do not fit; a usual slip that explains them names it.

    `lane` is the first lane that is off.
    """
    variant, taken = stepper.plan.variant, param_step(hyper, stepper.layout, param, stepper.cursor.step)
    if taken.idle:
        # Nothing of the update may have touched it.
        return lane
    hyper = taken.hyper

    def value(values: dict[str, F32Array] | object, name: str = "") -> F32Array:
        source = values if isinstance(values, dict) else getattr(values, name)
        flat = np.asarray(source.get(param, np.zeros(0, np.float32))).reshape(-1)
        return flat[index : index + 1] if len(flat) else np.zeros(1, np.float32)

    w, g, m, v = value(before, "w"), value(given), value(before, "m"), value(before, "v")
    got: dict[str, float] = {lane: float(value(own, lane)[0]) for lane in _LANES}
    if stepper.layout[param].state == "8bit":
        hyper = replace(hyper, eps=kernel_eps(variant.codec, hyper.eps))
    stepped_by = optimizer_of(variant, stepper.layout[param].param)
    if stepped_by.update is None or stepped_by.in_place:
        # The lines hang on more than the element.
        return lane
    exact = stepped_by.update(
        w, g, m, v, scale=scale, hyper=hyper, step=taken.step, decays=taken.decays, numerics=variant.numerics,
    )  # fmt: skip
    line = {each.name: float(each.value[0]) for each in exact.lines}
    if not line.keys() >= ADAM_LINES:
        # The usual slips are known of the lines of Adam alone.
        return lane
    if stepper.layout[param].state == "8bit":
        # What was coded is not what the update went on with.
        if lane != "w":
            return lane
        got |= {"m": line["m"], "v": line["v"]}
    beta1, beta2 = float(np.float32(hyper.beta1)), float(np.float32(hyper.beta2))
    raw = float(g[0]) if np.isfinite(g[0]) else 0.0
    if not _near(got["m"], line["m"]):
        unclipped = beta1 * float(m[0]) + (1 - beta1) * raw
        return "g'" if scale != 1 and _near(got["m"], unclipped) else "m"
    if not _near(got["v"], line["v"]):
        unclipped = beta2 * float(v[0]) + (1 - beta2) * raw * raw
        return "g'" if scale != 1 and _near(got["v"], unclipped) else "v"
    change = float(w[0]) - got["w"]
    return _line_of_change(hyper, line, got, change, float(w[0]))


def _line_of_change(
    hyper: Hyper, line: dict[str, float], got: dict[str, float], change: float, w: float
) -> str:
    """Which line between m, v and w a slip is in, where one of the usual ones explains the change of w."""
    lr, eps, decay = hyper.lr, hyper.eps, line["decay"]
    root, m, m_hat, v_hat = math.sqrt(max(got["v"], 0.0)), got["m"], line["m̂"], line["v̂"]
    with_decay = {
        "m̂": m / (math.sqrt(v_hat) + eps) if v_hat >= 0 else math.nan,
        "v̂": m_hat / (root + eps) if root + eps else math.nan,
        "m̂ and v̂": m / (root + eps) if root + eps else math.nan,
        "denominator": m_hat / math.sqrt(v_hat + eps) if v_hat + eps > 0 else math.nan,
    }
    near = 1e-3 * abs(lr * line["ratio"]) + 4 * float(np.spacing(np.float32(abs(w))))
    for name, ratio in with_decay.items():
        if abs(change - lr * (ratio + decay)) <= near < abs(lr * (ratio - line["ratio"])):
            return name
    for other in (0.0, hyper.weight_decay * w):
        if abs(change - lr * (line["ratio"] + other)) <= near < abs(lr * (other - decay)):
            return "decay"
    return "w" if _near(change, 0.0) else "update"


def _near(a: float, b: float) -> bool:
    """Equal but for rounding in float32."""
    return abs(a - b) <= 1e-4 * abs(b) + 1e-30 if math.isfinite(a) and math.isfinite(b) else a == b
