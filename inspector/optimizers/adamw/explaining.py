"""Why what another program wrote differs from what AdamW gives here: the roundings of a known peer, or a known mistake.

Judged on a sample (the elements farthest off and others spread over the param), then confirmed on all of it. An answer
is given only where it accounts for every element to within what roundings may leave of it (`roundings.py`); where none
does that is said, with how far m, v and w are off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from inspector.floats import BoolArray, F32Array, F64Array, bits, significant
from inspector.optimizers.adamw.kinds import Named
from inspector.optimizers.adamw.mistakes import (
    Array,
    Candidate,
    Make,
    by_rule,
    moment_candidates,
    moved_too_little,
    own_moments,
    own_rule,
    weight_candidates,
)
from inspector.optimizers.adamw.peers import PEERS, Given, Lanes, Peer
from inspector.optimizers.adamw.roundings import TOLERANCE_ULP, allowed
from inspector.step_ulp import CHUNK, Dtype, LaneUlp, compare_step, kept_in, ulps, unit

SAMPLE = 4096
NARROW_PEERS = frozenset({"published", "torch-fused-cuda"})
"""Those that form 1-β and 1-βᵗ in float32."""
LANES = ("w", "m", "v")


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """What accounts for the difference of one param in one step.

    `kinds` are mistakes, by what they change: none where the difference is rounding alone, or where it is unexplained.
    `peers` are those whose roundings they are, each of them bit for bit where `exact`. `lanes` is how far the result is
    from AdamW in float32 without any mistake, `left` how far in ULP from what is named. `either` has kinds that
    account for it as well as those named.
    """

    explained: bool
    kinds: tuple[Named, ...]
    peers: tuple[Peer, ...]
    exact: bool
    lanes: Mapping[str, LaneUlp]
    left: Mapping[str, float] = field(default_factory=dict)
    either: tuple[Named, ...] = ()
    nonfinite: int = 0
    dtype: Dtype = "f32"

    @property
    def key(self) -> str:
        """The kind in a word: keys joined by "+", "rounding", or "unknown", of which a part may be known."""
        if not self.explained:
            return "unknown"
        return "+".join(named.key for named in self.kinds) or "rounding"

    def __str__(self) -> str:
        """A sentence."""
        if self.kinds and self.explained:
            text = " and ".join(str(named) for named in self.kinds)
            also = f" (or {' or '.join(str(n) for n in self.either)})" if self.either else ""
            return f"It has {text}{also}; that leaves {_lanes(self.left)}."
        if self.explained:
            whose = " or ".join(peer.name for peer in self.peers)
            how = "bit for bit" if self.exact else f"to {_lanes(self.left)}"
            return (
                f"The roundings are those of {whose}, {how}." if whose else f"Rounding: {_lanes(self.left)}."
            )
        parts = []
        for lane in ("m", "v", "w"):
            found = self.lanes[lane]
            if found.max_ulp <= TOLERANCE_ULP:
                parts.append(f"{lane} agrees within {_ulp_text(found.max_ulp)} ULP")
            else:
                parts.append(
                    f"{lane} differs by up to {_ulp_text(found.max_ulp)} ULP, in "
                    f"{significant(100 * found.share, 3)} % of elements, "
                    f"first at [{found.first}] and most at [{found.max_index}]"
                )
        known = " and ".join(str(named) for named in self.kinds)
        part = f"; a part of it is {known}" if known else ""
        return f"No known kind: {'; '.join(parts)}{part}."


def explain_difference(
    given: Given, after: Lanes, *, rounding: str | None = None, all_peers: bool = True
) -> Explanation:
    """What accounts for `after`, which another program wrote; `rounding` is the key of the peer it is known to be.

    Without `all_peers` roundings are named after the first peer that they may be of, the known one before others.

    Of any length; some twenty evaluations of the param where it is explained by rounding, a few more and those of a
    sample where it is not. Elements whose gradient or state is not finite are judged apart.
    """
    # What overflows, underflows or is not finite is judged by what comes of it.
    with np.errstate(all="ignore"):
        return _explain(given, after, rounding, all_peers)


def _explain(given: Given, after: Lanes, rounding: str | None, all_peers: bool) -> Explanation:
    finite = _finite(given, after)
    lost = len(finite) - int(np.count_nonzero(finite))
    if lost:
        there = PEERS[0].step(given)
        apart = {lane: compare_step(*_three(lane, given, after, there), given.dtype) for lane in LANES}
        told = _explain(given.take(finite), after.take(finite), rounding, all_peers)
        return _with_lost(given, after, ~finite, told, apart)
    lanes: dict[str, LaneUlp] = {}
    for peer in _ordered(rounding):
        made = peer.step(given)
        if not lanes or all(_within(lane, given, after, getattr(made, lane)) for lane in LANES):
            found = {lane: compare_step(*_three(lane, given, after, made), given.dtype) for lane in LANES}
            lanes = lanes or found
            if all(_within(lane, given, after, getattr(made, lane)) for lane in LANES):
                if not all_peers:
                    left = {lane: each.max_ulp for lane, each in found.items()}
                    exact = not any(each.differing for each in found.values())
                    return Explanation(True, (), (peer,), exact, found, left, dtype=given.dtype)
                return _rounding(given, after, found, rounding)
    if _unchanged(given.before, after):
        return Explanation(
            True, (Named("skipped"),), (), False, lanes, dict.fromkeys(LANES, 0.0), dtype=given.dtype
        )
    # Beside the roundings of each sort of kernel, the likelier first: all formed in float64, all in float32, or of β in
    # float32 alone. What can only be guessed, or is fitted, comes last.
    narrow = given.narrowed()
    sorts = [given, narrow, replace(narrow, narrow=False)]
    if rounding in NARROW_PEERS:
        sorts[:2] = narrow, given
    first = _mistakes(sorts[0], after, lanes)
    others = (_mistakes(each, after, lanes) for each in sorts[1:])
    guessed = (_mistakes(each, after, lanes, guess=True) for each in sorts[:2])
    return next((found for found in chain([first], others, guessed) if found.explained), first)


def explain_stretch(given: Given, after: Lanes, peer: Peer, made: Lanes, steps: int) -> Explanation:
    """What accounts for `after`, of several steps, where `made` is what `peer` made of them from the same state.

    `given` holds the largest magnitudes on the way for a state before. Roundings alone are recognised, 2 ULP a step.
    """
    lanes = {lane: compare_step(*_three(lane, given, after, made), given.dtype) for lane in LANES}
    left = {lane: found.max_ulp for lane, found in lanes.items()}
    exact = not any(found.differing for found in lanes.values())
    holds = max(left.values()) <= TOLERANCE_ULP * steps
    return Explanation(holds, (), (peer,) if holds else (), exact, lanes, left, dtype=given.dtype)


# --- rounding alone


def _rounding(given: Given, after: Lanes, lanes: Mapping[str, LaneUlp], known: str | None) -> Explanation:
    """Whose roundings: the peers that give every bit, or else those that leave least."""
    at = _sample(given, after)
    small, wrote = given.take(at), after.take(at)
    scores: list[tuple[tuple[float, int], Peer]] = []
    for peer in _ordered(known):
        made = peer.step(small)
        off = max(
            float(ulps(*_three(lane, small, wrote, made), given.dtype).max(initial=0)) for lane in LANES
        )
        count = sum(
            int(np.count_nonzero(bits(getattr(made, lane)) != bits(getattr(wrote, lane)))) for lane in LANES
        )
        scores.append(((off, count), peer))
    exact = [peer for (_, count), peer in scores if not count]
    if exact:
        exact = [peer for peer in exact if _every_bit(given, after, peer)]
    left = {lane: found.max_ulp for lane, found in lanes.items()}
    if exact:
        return Explanation(True, (), tuple(exact), True, lanes, dict.fromkeys(LANES, 0.0), dtype=given.dtype)
    fewest = min(score[1] for score, _ in scores)
    # Those that are as near as the nearest are not told apart by a sample.
    near = tuple(peer for score, peer in scores if score[1] <= 1.05 * fewest)
    if known is not None and known not in {peer.key for peer in near}:
        near = ()
    return Explanation(True, (), near[:2], False, lanes, left, dtype=given.dtype)


def _every_bit(given: Given, after: Lanes, peer: Peer) -> bool:
    for part in _chunks(len(after.w)):
        made, wrote = peer.step(given.take(part)), after.take(part)
        if any((bits(getattr(made, lane)) != bits(getattr(wrote, lane))).any() for lane in LANES):
            return False
    return True


# --- mistakes


def _mistakes(
    given: Given, after: Lanes, lanes: Mapping[str, LaneUlp], *, guess: bool = False
) -> Explanation:
    either: list[Named] = []
    first = _answer(
        given, after, ("m", "v"), (own_moments, *_moments_of_peers()), moment_candidates, either, guess
    )
    held = any(name.key in ROUNDED for name, _ in first or ())
    of_weights = _rounded_first if held else weight_candidates
    second = _answer(given, after, ("w",), (by_rule(own_rule(given)),), of_weights, either, guess)
    if guess and first is not None and second is None and moved_too_little(given, after):
        second = [(Named("amsgrad"), None)]
    if first is None or second is None:
        return Explanation(
            False, _composed([*(first or ()), *(second or ())]), (), False, lanes, dtype=given.dtype
        )
    named = _composed([*first, *second])
    made: dict[str, Array] = {}
    for about, plain, found in ((("m", "v"), own_moments, first), (("w",), by_rule(own_rule(given)), second)):
        make = found[0][1] if found else plain
        if make is not None:
            made |= dict(zip(about, make(given, after), strict=True))
    keys = {each.key for each in named}
    left = {lane: _left(lane, given, after, each, keys) for lane, each in made.items()}
    also = tuple(each for each in either if each.key not in keys)
    return Explanation(True, named, (), False, lanes, left, also, dtype=given.dtype)


def _answer(
    given: Given, after: Lanes, about: tuple[str, ...], plain: Sequence[Make],
    candidates: Callable[[Given, Lanes], Iterator[Candidate]], either: list[Named], fitted: bool,
) -> list[tuple[Named, Make | None]] | None:  # fmt: skip
    """The first candidate that holds on the sample and then on all; others that hold as well go to `either`.

    An empty list where nothing but AdamW is needed; None where nothing holds.
    """
    at = _sample(given, after)
    small = given.take(at), after.take(at)
    parts = [(given.take(part), after.take(part)) for part in _chunks(len(after.w))]
    if any(all(_holds(make, *each, about, given.dtype) for each in (small, *parts)) for make in plain):
        return []
    found: list[tuple[Named, Make | None]] = []
    for name, make in candidates(given, after):
        # Numbers that were worked out fit whatever a named kind does.
        if name.key in FITTED and (found or not fitted):
            continue
        dtype, l2 = NARROW.get(name.key, given.dtype), name.key == "l2"
        if all(_holds(make, *each, about, dtype, l2) for each in (small, *parts)):
            if found and found[0][0].key not in ROUNDED:
                either.append(name)
            elif found:
                # What roundings account for needs no mistake.
                break
            else:
                found.append((name, make))
    return found or None


def _rounded_first(given: Given, after: Lanes) -> Iterator[Candidate]:
    """Of a program whose m and v show β in float32, w is likeliest to show the same; some mistakes are as small."""
    return iter(sorted(weight_candidates(given, after), key=lambda each: each[0].key not in ROUNDED))


def _moments_of_peers() -> tuple[Make, ...]:
    """m and v in the roundings of each peer, which a gradient far larger than m lets show."""

    def of(peer: Peer) -> Make:
        def make(given: Given, after: Lanes) -> tuple[Array, ...]:
            made = peer.step(given)
            return made.m, made.v

        return make

    return tuple(of(peer) for peer in PEERS if peer.key not in NARROW_PEERS)


ROUNDED = frozenset({"float32-betas", "float32-corrections"})
FITTED = frozenset(
    {"clip-norm", "beta1", "beta2", "gradient-factor", "unscaled-missing", "lr-other", "decay-other"}
)
SHOWS_IN_BOTH = (
    ("l2", "decay-off"),
    ("decay-decoupled", "l2-missing"),
    ("float32-betas", "float32-corrections"),
)
"""A mistake, and what else of it shows, which is not a second one."""
NARROW: dict[str, Dtype] = {
    "moments-bf16": "bf16",
    "weights-bf16": "bf16",
    "moments-f16": "f16",
    "weights-f16": "f16",
}


def _holds(
    make: Make, given: Given, after: Lanes, about: Sequence[str], dtype: Dtype, l2: bool = False
) -> bool:
    # What was rounded to fewer bits has none beyond them.
    if dtype != given.dtype and any(kept_in(getattr(after, lane)) != dtype for lane in about):
        return False
    made = make(given, after)
    return all(_within(lane, given, after, each, dtype, l2) for lane, each in zip(about, made, strict=True))


def _within(
    lane: str,
    given: Given,
    after: Lanes,
    made: Array,
    dtype: Dtype | None = None,
    l2: bool = False,
) -> bool:
    slack = allowed(lane, given, after, dtype or given.dtype, l2=l2 or given.l2)
    return bool((_off(getattr(after, lane), made) <= slack).all())


def _off(there: F32Array, made: Array) -> F64Array:
    with np.errstate(all="ignore"):
        off = np.abs(there.astype(np.float64) - made)
    return np.asarray(np.where(np.isnan(off), np.inf, off), np.float64)


def _composed(found: Sequence[tuple[Named, Make | None]]) -> tuple[Named, ...]:
    """What m and v say together with what w says: one mistake may show in both."""
    named = tuple(dict.fromkeys(name for name, _ in found))
    keys = {each.key for each in named}
    for key, other in SHOWS_IN_BOTH:
        if {key, other} <= keys:
            return tuple(each for each in named if each.key != other)
    return named


def _left(lane: str, given: Given, after: Lanes, made: Array, keys: set[str]) -> float:
    """How far in ULP `lane` is from what the kinds named give, at most; of the type that they keep it in."""
    part = "weights" if lane == "w" else "moments"
    dtype = next((NARROW[key] for key in keys if key in NARROW and key.startswith(part)), given.dtype)
    before, there = getattr(given.before, lane), getattr(after, lane)
    return float((_off(there, made) / unit(before, there, dtype)).max(initial=0))


# --- elements


def _three(lane: str, given: Given, after: Lanes, made: Lanes) -> tuple[F32Array, F32Array, F32Array]:
    return getattr(given.before, lane), getattr(after, lane), getattr(made, lane)


def _sample(given: Given, after: Lanes) -> npt.NDArray[np.intp]:
    """Elements to judge by: those farthest from AdamW in each lane, and others spread evenly."""
    count = len(after.w)
    if count <= SAMPLE:
        return np.arange(count)
    made = PEERS[0].step(given)
    worst = []
    for lane in LANES:
        off = ulps(*_three(lane, given, after, made), given.dtype)
        worst.append(np.argpartition(off, count - SAMPLE // 8)[count - SAMPLE // 8 :])
    spread = np.linspace(0, count - 1, SAMPLE // 2).astype(np.intp)
    return np.unique(np.concatenate((*worst, spread)))


def _finite(given: Given, after: Lanes) -> BoolArray:
    lanes = (given.g, *(getattr(each, lane) for each in (given.before, after) for lane in LANES))
    return np.asarray(np.logical_and.reduce([np.isfinite(each) for each in lanes]))


def _with_lost(
    given: Given, after: Lanes, lost: BoolArray, told: Explanation, lanes: Mapping[str, LaneUlp]
) -> Explanation:
    """The explanation of the finite elements, and of those lost whether a gradient that is not finite made them so."""
    g = given.g[lost]
    before = given.before.take(lost)
    was = np.logical_and.reduce([np.isfinite(getattr(before, lane)) for lane in LANES])
    spread = np.isfinite(g) | ~np.isfinite(after.m[lost])
    known = bool((was <= (~np.isfinite(g) & spread)).all())
    kinds = (Named("nonfinite", f"{int(lost.sum()):,} elements"), *told.kinds) if known else told.kinds
    return Explanation(
        known and told.explained,
        kinds,
        told.peers,
        False,
        lanes,
        told.left,
        told.either,
        int(lost.sum()),
        told.dtype,
    )


def _unchanged(before: Lanes, after: Lanes) -> bool:
    return all((bits(getattr(before, lane)) == bits(getattr(after, lane))).all() for lane in LANES)


def _ordered(known: str | None) -> list[Peer]:
    return sorted(PEERS, key=lambda peer: peer.key != known)


def _chunks(count: int) -> list[slice]:
    return [slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]


def _lanes(left: Mapping[str, float]) -> str:
    texts = [f"{lane} {_ulp_text(left[lane])}" for lane in LANES if lane in left and left[lane] == left[lane]]
    return f"{', '.join(texts)} ULP at most" if texts else "no figure"


def _ulp_text(value: float) -> str:
    return (
        significant(value, 2) if value < 10 else f"{value:,.0f}" if np.isfinite(value) else "infinitely many"
    )
