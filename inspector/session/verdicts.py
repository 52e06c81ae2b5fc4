"""A captured step of another program held against the same step run here: how far apart, param by param, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from inspector.floats import F32Array, bits, significant
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers.adamw.explaining import Explanation, explain_difference, explain_stretch
from inspector.optimizers.adamw.mistakes import moments, own_rule, weights
from inspector.optimizers.adamw.peers import PEERS, Given, Lanes, Peer
from inspector.optimizers.adamw.roundings import TOLERANCE_ULP
from inspector.session.compare import float_ulp
from inspector.session.reader import Session
from inspector.session.records import About, RecordedStep
from inspector.settings import Settings
from inspector.step_ulp import DTYPES, Dtype, LaneUlp, compare_step
from inspector.stepping import HostState
from inspector.stores import Lane

WRITTEN: tuple[Lane, ...] = ("m", "v", "w")
"""In the order in which a step comes to them."""
Nearer = Literal["recorded", "here", "neither"]


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first element of a param whose bits differ: what was recorded, what came out here, and float64.

    `ulp` is in units of `step_ulp`, `bits` in representable float32 between the two. `truth` starts from the same
    float32 state; `nearer` says who is nearer to it. `dispatch` wrote the element here.
    """

    step: int
    dispatch: int | None
    buffer: Lane
    param: str
    index: int
    recorded: float
    here: float
    truth: float
    ulp: float
    bits: int

    @property
    def nearer(self) -> Nearer:
        """Whose value is nearer to float64."""
        a, b = abs(self.recorded - self.truth), abs(self.here - self.truth)
        return "neither" if a == b or math.isnan(a) or math.isnan(b) else "recorded" if a < b else "here"


@dataclass(frozen=True, slots=True, eq=False)
class ParamVerdict:
    """One param after one step: recorded against here, by lane, and what accounts for the difference.

    `explanation` is None where there is nothing to explain: all lanes within 2 ULP, or a step that ran on from an
    earlier state, over `steps` steps, whose roundings add up.
    """

    param: str
    number: int
    lanes: Mapping[Lane, LaneUlp]
    explanation: Explanation | None = None
    first: FirstDifference | None = None
    idle: bool = False
    steps: int = 1
    beyond: tuple[str, ...] = ()
    """Of roundings alone, where what is beyond 2 ULP comes from."""

    @property
    def max_ulp(self) -> float:
        """The largest difference of any lane, in units of `step_ulp`."""
        return max((found.max_ulp for found in self.lanes.values()), default=0.0)

    @property
    def differing(self) -> int:
        """Elements whose bits differ, of all lanes together."""
        return sum(found.differing for found in self.lanes.values())

    @property
    def within(self) -> bool:
        """True where 2 ULP a step cover it."""
        return self.max_ulp <= TOLERANCE_ULP * self.steps

    @property
    def key(self) -> str:
        """The kind in a word: "same", "rounding", "adds up", those of `kinds.KINDS` joined by "+", or "unknown"."""
        if not self.differing:
            return "same"
        if self.explanation is not None:
            return self.explanation.key
        return "rounding" if self.within else "unknown" if self.steps == 1 else "adds up"

    @property
    def explained(self) -> bool:
        """False where nothing known accounts for the difference."""
        return self.within or (self.explanation is not None and self.explanation.explained)

    @property
    def agrees(self) -> bool:
        """True where it is what AdamW gives, but for roundings of a known order."""
        return self.within or (self.explained and self.key == "rounding")

    def __str__(self) -> str:
        if self.explanation is not None:
            more = f" What is beyond 2 ULP comes of {' and '.join(self.beyond)}." if self.beyond else ""
            return str(self.explanation) + more
        if not self.differing:
            return "Every bit is the same."
        if self.steps > 1:
            return f"The roundings of {self.steps:,} steps add up: it ran on from the state so many steps before."
        return f"Rounding: at most {significant(self.max_ulp, 2)} ULP."


@dataclass(frozen=True, slots=True, eq=False)
class StepVerdict:
    """A step of another program held against here. It ran from the captured state after step `start`."""

    step: int
    start: int
    params: tuple[ParamVerdict, ...]

    @property
    def anchored(self) -> bool:
        """True where it began from the very state that the other program began from."""
        return self.start == self.step - 1

    @property
    def first(self) -> FirstDifference | None:
        """The first difference: of the earliest dispatch, then param by param."""
        found = [p.first for p in self.params if p.first is not None]
        return min(found, key=lambda f: -1 if f.dispatch is None else f.dispatch, default=None)

    def worst(self, lane: Lane) -> ParamVerdict | None:
        """The param that is farthest off in a lane; None for a run without params."""
        return max(
            (p for p in self.params if lane in p.lanes), key=lambda p: p.lanes[lane].max_ulp, default=None
        )

    @property
    def agrees(self) -> bool:
        """True where every param is what AdamW gives."""
        return all(p.agrees for p in self.params)


# --- what a step is given


def settings_of(hyper: Hyper, param: Param, number: int) -> Settings:
    """What a param takes the step with."""
    return hyper.of_param(number, decays=param.block == "wd")


def given_of(
    session: Session,
    step: RecordedStep,
    number: int,
    before: HostState,
    gradient: F32Array | None,
    scale: float,
) -> tuple[Given, Settings]:
    """A step as one param is given it, from the state before. `scale` is the clip scale that is yet to be applied."""
    about = session.about
    param = about.params[number]
    used = settings_of(step.hyper, param, number)
    hyper = Hyper(used.lr, used.beta1, used.beta2, used.eps, used.weight_decay, math.inf)
    own = step.hyper.per_param
    others = (
        tuple(each.weight_decay for each in own.classes) if own is not None else (step.hyper.weight_decay,)
    )
    lrs = {}
    for name, at in (("the step before", step.step - 1), ("the step after", step.step + 1)):
        if at in session.steps:
            lrs[name] = settings_of(session.step(at).hyper, param, number).lr
    zero = np.zeros(param.numel, np.float32)
    given = Given(
        Lanes(before.w[param.name], before.m.get(param.name, zero), before.v.get(param.name, zero)),
        zero if gradient is None else gradient,
        hyper,
        max(used.t(step.step), 1),
        l2=step.variant.optimizer == "adam-l2",
        scale=scale,
        dtype=dtype_of(about.dtypes, number),
        lrs=lrs,
        decays_of=others,
        counts={"the run": step.step},
    )
    return given, used


def dtype_of(dtypes: Sequence[str], number: int) -> Dtype:
    """The type that the other program kept a param in; float32 where it was not recorded."""
    named = dtypes[number] if number < len(dtypes) else "f32"
    return next((dtype for dtype in DTYPES if dtype == named), "f32")


def peer_of(about: About) -> str | None:
    """The peer whose roundings a program has, by its origin and device; None where these say nothing."""
    words = about.origin.lower()
    if "torch" not in words:
        return None
    device = f"{about.device.name} {about.device.backend} {about.device.description}".lower()
    cuda = "-cuda" if "cuda" in words or "cuda" in device else ""
    way = "fused" if "fused" in words else "foreach" if cuda and "foreach" in words else "loop"
    return f"torch-{way}{cuda}"


# --- the verdict


def judge(
    given: Given, settings: Settings, param: Param, number: int, recorded: Lanes, here: Lanes, *,
    step: int, start: int, dispatch: int | None, peer: str | None, explain: Callable[[ParamVerdict], bool],
    ran_on: tuple[Peer, Lanes] | None = None,
) -> ParamVerdict:  # fmt: skip
    """One param after a step. `explain` says whether one that is within 2 ULP is worth an explanation as well.

    Of a step that ran on from an earlier state, `ran_on` is what a peer made of all steps since, and `given` holds the
    largest magnitudes on the way for a state before.
    """
    before = given.before
    lanes: dict[Lane, LaneUlp] = {
        lane: compare_step(getattr(before, lane), getattr(recorded, lane), getattr(here, lane), given.dtype)
        for lane in WRITTEN
    }
    found = ParamVerdict(param.name, number, lanes, idle=settings.idle, steps=step - start)
    first = next((lane for lane in WRITTEN if lanes[lane].first is not None), None)
    if first is None:
        return found
    at = lanes[first].first
    assert at is not None
    found = replace(
        found, first=_first(given, first, at, recorded, here, step, dispatch, param.name, found.steps)
    )
    if settings.idle or (found.within and (found.steps > 1 or not explain(found))):
        return found
    if ran_on is not None:
        return replace(found, explanation=explain_stretch(given, recorded, *ran_on, found.steps))
    found = replace(
        found, explanation=explain_difference(given, recorded, rounding=peer, all_peers=explain(found))
    )
    return replace(found, beyond=_beyond(found, given, here, peer))


def _beyond(found: ParamVerdict, given: Given, here: Lanes, peer: str | None) -> tuple[str, ...]:
    """Where what is beyond 2 ULP comes from: what of the peer its order does not give, or how the kernel rounds."""
    told = found.explanation
    if told is None or found.key != "rounding" or found.within:
        return ()
    theirs = max(told.left.values(), default=0.0)
    but = ""
    if theirs > TOLERANCE_ULP:
        # What a peer is known for says nothing of a program that is not it.
        but = OTHER_WAY if peer is None else next((each.but for each in told.peers if each.but), "")
    ours = found.max_ulp > max(theirs, TOLERANCE_ULP) and _is_ours(given, here)
    return tuple(each for each in (but, OWN_WAY if ours else "") if each)


OTHER_WAY = "roundings of the program that none of these orders gives"
OWN_WAY = "how the kernel here forms 1-β and rounds"


def _is_ours(given: Given, here: Lanes) -> bool:
    """True where the kernel here gives what its formula does in float32, so that what is beyond 2 ULP is of that."""
    ours = (peer for peer in PEERS if peer.key in ("precise", "published"))
    made = (peer.step(given) for peer in ours)
    return any(
        all(
            compare_step(getattr(given.before, k), getattr(here, k), getattr(each, k)).max_ulp
            <= TOLERANCE_ULP
            for k in WRITTEN
        )
        for each in made
    )


def _first(
    given: Given, lane: Lane, at: int, recorded: Lanes, here: Lanes, step: int, dispatch: int | None, param: str,
    steps: int,
) -> FirstDifference:  # fmt: skip
    one = slice(at, at + 1)
    a, b = getattr(recorded, lane)[one], getattr(here, lane)[one]
    truth = math.nan
    if steps == 1:
        small = given.take(one)
        with np.errstate(all="ignore"):
            m, v = moments(small)
            exact = {"m": m, "v": v}
            # In float64 all the way, not from the m and v that either of them rounded.
            wide = Lanes(small.before.w, m, v)  # type: ignore[arg-type]
            exact["w"] = weights(small, wide, own_rule(small))
        truth = float(exact[lane][0])
    apart = compare_step(getattr(given.before, lane)[one], a, b, given.dtype)
    distance = float_ulp(float(a[0]), float(b[0])) or 0
    return FirstDifference(
        step, dispatch, lane, param, at, float(a[0]), float(b[0]), truth, apart.max_ulp, distance
    )


def unchanged(before: HostState, after: HostState, name: str) -> bool:
    """True where w, m and v of a param have the same bits in both."""
    pairs = ((getattr(state, lane).get(name) for state in (before, after)) for lane in WRITTEN)
    return all((bits(a) == bits(b)).all() for a, b in pairs if a is not None and b is not None)
