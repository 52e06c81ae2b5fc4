"""What optimizers that treat non-finite gradients differently would each make of one and the same step.

All are worked out in float32, in parts of a param, so that a model of any size needs little memory. The published
kernel is that of `optimizers`; PyTorch's arithmetic is that of torch.optim.AdamW (or Adam, for decay in the gradient)
and torch.nn.utils.clip_grad_norm_ with their defaults, error_if_nonfinite off; the loss scaler is
torch.amp.GradScaler. Sums of squares are added up in float64 and rounded, so a norm may differ from a device's in its
last bits; where the float32 sum overflows it is infinite here as there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from inspector.floats import F32Array, finite_mask, shortest
from inspector.hyper import Hyper, Numerics
from inspector.optimizers.adamw import oracle
from inspector.param_hyper import ParamStep
from inspector.statistics import NonFinite
from inspector.stores import Lane

PolicyName = Literal["published", "clip_grad_norm", "loss_scaler", "propagate", "reset"]
POLICIES: tuple[PolicyName, ...] = ("published", "clip_grad_norm", "loss_scaler", "propagate", "reset")
TITLES: Mapping[PolicyName, str] = {
    "published": "Published kernel",
    "clip_grad_norm": "PyTorch clip_grad_norm_ + AdamW",
    "loss_scaler": "Loss scaler that skips the step",
    "propagate": "AdamW without clipping or mask",
    "reset": "Mask, and reset the moments",
}
STATE_LANES: tuple[Lane, ...] = ("w", "m", "v")
CHUNK = 1 << 19
"""Elements at a time."""

Read = Callable[[Lane, str, int, int], F32Array]
"""Elements [start, stop) of a lane of a param, flat float32: w, m and v before the step, g as given to it."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A param as far as it matters here; `decays` says whether weight decay is applied to it.

    `own` is what it takes the step with where that is not what the run does. An idle one has no gradient, and stays.
    """

    name: str
    numel: int
    decays: bool
    own: ParamStep | None = None

    @property
    def idle(self) -> bool:
        """True where it takes no part in the step."""
        return self.own is not None and self.own.idle


@dataclass(frozen=True, slots=True)
class Element:
    """One element by lane, float32 widened: before the step, and what a policy makes of it."""

    before: Mapping[Lane, float]
    after: Mapping[Lane, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one policy does to a step.

    `grad_norm` and `clip_scale` as it computes them, the latter None where it clips nothing. `counts` is False where
    the step is skipped, so that t stays. `nonfinite` are elements that are not finite afterwards, by lane, `params` in
    how many params there are any. `update_norm` is ‖Δw‖ over elements of w that are finite before and after, NaN where
    there are none.
    """

    policy: PolicyName
    grad_norm: float
    clip_scale: float | None
    counts: bool
    nonfinite: Mapping[Lane, int]
    params: int
    update_norm: float
    says: str
    element: Element | None = None

    @property
    def title(self) -> str:
        """Its name for people."""
        return TITLES[self.policy]


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """The policies side by side at step `step` (t, from 1), in the order of POLICIES.

    `gradients` counts what is not finite in the gradients of all `elements`, its `first` being that of `param`;
    `hit_params` is in how many params. `param` and `index` (flat) are the element that is shown, None where the step
    has no element to show; `gradient` is its g.
    """

    step: int
    elements: int
    params: int
    gradients: NonFinite
    hit_params: int
    outcomes: tuple[Outcome, ...]
    param: str | None = None
    index: int | None = None
    gradient: float = math.nan


@dataclass(slots=True)
class _Gradients:
    """What one pass over all gradients gives."""

    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    hit_params: int = 0
    first: tuple[str, int] | None = None
    finite_squares: float = 0.0
    norm_squares: float = 0.0
    """Of the norms of the params, as PyTorch adds them up."""

    @property
    def total(self) -> int:
        return self.nan + self.posinf + self.neginf


def weigh(
    tensors: Sequence[Tensor],
    read: Read,
    *,
    hyper: Hyper,
    step: int,
    numerics: Numerics = "published",
    l2: bool = False,
    element: tuple[str, int] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> PolicyTable:
    """Every policy on the step `step` (t, from 1) with the settings `hyper`, its lr as used.

    `l2` puts the weight decay into the gradient, as that optimizer does. `element` (param, flat index) is shown before
    and after; without it the first non-finite gradient, or nothing where all are finite. `progress` is told how many
    elements are done of how many, twice the size of the model; what it raises ends the work.
    """
    total = sum(t.numel for t in tensors)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(done, 2 * total)

    progress(0, 2 * total)
    shared = ParamStep(hyper, step, decays=True)
    given = _look_at_gradients(tensors, read, advance)
    shown = element or given.first
    ways = [_Way(policy, given, hyper, numerics, l2) for policy in POLICIES]
    gradient = math.nan
    for tensor in tensors:
        for start in range(0, tensor.numel, CHUNK):
            stop = min(start + CHUNK, tensor.numel)
            w, m, v, g = (read(lane, tensor.name, start, stop) for lane in (*STATE_LANES, "g"))
            at = None
            if shown is not None and shown[0] == tensor.name and start <= shown[1] < stop:
                at = shown[1] - start
                gradient = 0.0 if tensor.idle else float(g[at])
            made: dict[tuple[object, ...], _Parts] = {}
            finite = bool(finite_mask(g).all())
            for way in ways:
                # Policies that do the same to this part need not do it twice.
                key = way.same_as(finite)
                if key not in made:
                    taken = tensor.own or replace(shared, decays=tensor.decays)
                    made[key] = way.parts(w, m, v, g, taken)
                way.take((w, m, v), made[key], at)
            advance(stop - start)
        for way in ways:
            way.end_of_param()
    return PolicyTable(
        step=step,
        elements=total,
        params=len(tensors),
        gradients=NonFinite(
            given.nan, given.posinf, given.neginf, None if given.first is None else given.first[1]
        ),
        hit_params=given.hit_params,
        outcomes=tuple(way.outcome() for way in ways),
        param=None if shown is None else shown[0],
        index=None if shown is None else shown[1],
        gradient=gradient,
    )


def _look_at_gradients(tensors: Sequence[Tensor], read: Read, advance: Callable[[int], None]) -> _Gradients:
    found = _Gradients()
    for tensor in tensors:
        if tensor.idle:
            advance(tensor.numel)
            continue
        before, squares, finite_squares = found.total, 0.0, 0.0
        for start in range(0, tensor.numel, CHUNK):
            stop = min(start + CHUNK, tensor.numel)
            g = read("g", tensor.name, start, stop)
            finite = finite_mask(g)
            if not finite.all():
                bad = g[~finite]
                found.nan += int(np.isnan(bad).sum())
                found.posinf += int((bad == np.inf).sum())
                found.neginf += int((bad == -np.inf).sum())
                if found.first is None:
                    found.first = tensor.name, start + int(np.argmin(finite))
            with np.errstate(all="ignore"):
                wide = g.astype(np.float64)
                part = wide[finite]
                finite_squares += float(np.dot(part, part))
                squares += float(np.dot(wide, wide))
            advance(stop - start)
        found.hit_params += found.total > before
        found.finite_squares += finite_squares
        # A norm a param, then the norm of those, each rounded to float32.
        found.norm_squares += float(_root_f32(squares)) ** 2
    return found


def _root_f32(squares: float) -> np.float32:
    """√ of a sum of squares as float32 arithmetic can give it: infinite where the sum overflows."""
    with np.errstate(all="ignore"):
        return np.float32(np.sqrt(np.float32(squares)))


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """w, m and v of a part after the step, how many in each are not finite, and Σ Δw² over how many finite ones."""

    after: tuple[F32Array, ...]
    bad: tuple[int, ...]
    squares: float
    finite: int


class _Way:
    """One policy at work: takes the step part by part and adds up what comes of it."""

    def __init__(
        self, policy: PolicyName, given: _Gradients, hyper: Hyper, numerics: Numerics, l2: bool
    ) -> None:
        self.policy, self.hyper, self.l2 = policy, hyper, l2
        self.numerics = numerics
        self.given = given
        self.masks = policy in ("published", "reset")
        self.norm = _root_f32(given.finite_squares if self.masks else given.norm_squares)
        self.scale = self._clip_scale()
        self.skips = policy == "loss_scaler" and given.total > 0
        self._nonfinite: dict[Lane, int] = dict.fromkeys(STATE_LANES, 0)
        self._params = 0
        self._bad_here = False
        self._squares = 0.0
        self._finite = 0
        self._element: Element | None = None

    def _clip_scale(self) -> np.float32:
        """What every gradient is multiplied by."""
        limit = self.hyper.max_grad_norm
        if self.policy == "propagate":
            return np.float32(1)
        if self.masks:
            return np.float32(oracle.clip_scale(float(self.norm), limit, np.float32))
        with np.errstate(all="ignore"):
            # A number by a tensor is the tensor's reciprocal times the number; a NaN stays one when it is clamped.
            wanted = np.float32(limit) * (np.float32(1) / (self.norm + np.float32(1e-6)))
            return np.float32(np.minimum(wanted, np.float32(1)))

    def same_as(self, finite: bool) -> tuple[object, ...]:
        """What is equal for policies that make the same of a part, whose gradients are all finite or not."""
        if self.skips:
            return ("skip",)
        if self.masks:
            return ("mask", "" if finite else self.policy)
        return ("torch", self.policy == "propagate")

    def parts(self, w: F32Array, m: F32Array, v: F32Array, g: F32Array, taken: ParamStep) -> _Parts:
        """What it makes of a part of a param."""
        with np.errstate(all="ignore"):
            stays = self.skips or taken.idle
            after = (w, m, v) if stays else self._update(w, m, v, g, taken)
            bad = tuple(int(np.count_nonzero(~finite_mask(values))) for values in after)
            if stays:
                return _Parts(after, bad, 0.0, len(w) - bad[0])
            moved = after[0].astype(np.float64)
            moved -= w
            finite = moved[np.isfinite(moved)]
            return _Parts(after, bad, float(np.dot(finite, finite)), len(finite))

    def take(self, before: tuple[F32Array, ...], part: _Parts, at: int | None) -> None:
        """Add a part of a param up; `at` is the element in it that is shown."""
        for lane, bad in zip(STATE_LANES, part.bad, strict=True):
            self._nonfinite[lane] += bad
            self._bad_here |= bad > 0
        self._squares += part.squares
        self._finite += part.finite
        if at is not None:
            self._element = Element(
                dict(zip(STATE_LANES, (float(x[at]) for x in before), strict=True)),
                dict(zip(STATE_LANES, (float(x[at]) for x in part.after), strict=True)),
            )

    def end_of_param(self) -> None:
        """The next part is of another param."""
        self._params += self._bad_here
        self._bad_here = False

    def outcome(self) -> Outcome:
        """What has come of it."""
        return Outcome(
            policy=self.policy,
            grad_norm=float(self.norm),
            clip_scale=None if self.policy == "propagate" or self.skips else float(self.scale),
            counts=not self.skips,
            nonfinite=dict(self._nonfinite),
            params=self._params,
            update_norm=math.sqrt(self._squares) if self._finite else math.nan,
            says=self._says(),
            element=self._element,
        )

    def _update(
        self, w: F32Array, m: F32Array, v: F32Array, g: F32Array, taken: ParamStep
    ) -> tuple[F32Array, F32Array, F32Array]:
        if not self.masks:
            return self._torch_update(w, m, v, g, taken)
        if self.policy == "reset":
            finite = finite_mask(g)
            m, v = (np.where(finite, x, np.float32(0)) for x in (m, v))
        done = oracle.update(
            w, g, m, v,
            scale=self.scale, hyper=taken.hyper, step=taken.step, decays=taken.decays, numerics=self.numerics,
            dtype=np.float32, l2=self.l2,
        )  # fmt: skip
        return _f32(done.w), _f32(done.m), _f32(done.v)

    def _torch_update(
        self, w: F32Array, m: F32Array, v: F32Array, g: F32Array, taken: ParamStep
    ) -> tuple[F32Array, F32Array, F32Array]:
        """torch.optim.AdamW's own order of operations: scalars in float64, tensors in float32."""
        h, decay = taken.hyper, taken.hyper.weight_decay if taken.decays else 0.0
        if np.isnan(self.scale):
            # It multiplies every gradient, and a NaN stays one through every line.
            nan = np.full_like(w, np.nan)
            return nan, nan, nan
        if self.policy != "propagate":
            g = g * self.scale
        if self.l2:
            g = g + np.float32(decay) * w
        else:
            w = w * np.float32(1 - h.lr * decay)
        m = m + np.float32(1 - h.beta1) * (g - m)
        v = v * np.float32(h.beta2) + np.float32(1 - h.beta2) * g * g
        first, second = (np.float64(1) - np.float64(b) ** taken.step for b in (h.beta1, h.beta2))
        denominator = np.sqrt(v) / np.float32(np.sqrt(second)) + np.float32(h.eps)
        moved = w + np.float32(-h.lr / first) * m / denominator
        return _f32(moved), _f32(m), _f32(v)

    def _says(self) -> str:
        """What it comes to, in a sentence or two."""
        bad = self.given.total
        if not bad and not np.isfinite(self.norm) and self.policy != "propagate":
            return (
                f"All gradients are finite, but the sum of their squares is not in float32: the clip scale is "
                f"{shortest(self.scale)}."
            )
        if not bad:
            return "All gradients are finite: a step like any other."
        what = f"{bad:,} non-finite {'gradient' if bad == 1 else 'gradients'}"
        if self.policy == "published":
            return f"Takes the {what} as 0 in the norm and in the update; their moments decay, all else trains on."
        if self.policy == "reset":
            return f"Takes the {what} as 0 and sets m and v of these elements to 0, so that only decay moves them."
        if self.policy == "loss_scaler":
            return "Leaves w, m, v and t as they are, and halves the loss scale: the whole batch is lost."
        if self.policy == "propagate":
            return f"w, m and v under the {what} are not finite from here on; all others train on."
        if math.isnan(self.scale):
            return (
                f"The norm is {shortest(self.norm)}, so the clip coefficient is NaN and multiplies every gradient: "
                "the whole model is NaN after this step."
            )
        return (
            f"The norm is {shortest(self.norm)}, so the clip coefficient is {shortest(self.scale)}: the {what} become "
            "NaN, all others 0."
        )


def _f32(values: object) -> F32Array:
    return np.asarray(values, np.float32)
