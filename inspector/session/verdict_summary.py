"""What many verdicts come to: the worst of each param, how often each kind, and the first difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inspector.session.verdicts import FirstDifference, ParamVerdict, StepVerdict
from inspector.stores import Lane


@dataclass(slots=True)
class KindFound:
    """One kind of difference: `words` as a sentence of its first place, in how many steps, and of which params."""

    key: str
    words: str
    source: str
    first_step: int
    steps: int = 0
    params: dict[str, int] = field(default_factory=dict)
    """Steps by param."""


@dataclass(slots=True)
class ParamFound:
    """One param over all steps. `max_ulp` and `step` by lane; `share` of its elements that differ, at its worst."""

    param: str
    max_ulp: dict[Lane, float] = field(default_factory=dict)
    step: dict[Lane, int] = field(default_factory=dict)
    index: dict[Lane, int | None] = field(default_factory=dict)
    max_bits: int = 0
    share: dict[Lane, float] = field(default_factory=dict)
    beyond: dict[Lane, int] = field(default_factory=dict)
    """Elements more than 2 ULP apart, of all steps together."""
    kinds: dict[str, int] = field(default_factory=dict)
    """Steps by kind."""

    def take(self, step: int, verdict: ParamVerdict) -> None:
        """Take in another step."""
        self.kinds[verdict.key] = self.kinds.get(verdict.key, 0) + 1
        for lane, found in verdict.lanes.items():
            self.max_bits = max(self.max_bits, found.max_bits)
            self.beyond[lane] = self.beyond.get(lane, 0) + found.beyond
            self.share[lane] = max(self.share.get(lane, 0.0), found.share)
            if found.max_ulp > self.max_ulp.get(lane, -1.0):
                self.max_ulp[lane], self.step[lane], self.index[lane] = found.max_ulp, step, found.max_index


class Summary:
    """Takes in one verdict after the other, in the order of the steps."""

    def __init__(self) -> None:
        self.steps = 0
        self.anchored = 0
        self.first: FirstDifference | None = None
        self.agrees = True
        self.by_param: dict[str, ParamFound] = {}
        self.kinds: dict[str, KindFound] = {}
        self.max_ulp: dict[Lane, float] = {}
        self.left: dict[str, float] = {}
        """The largest difference from the roundings of the peers named, by lane, where it is roundings."""
        self.elements = 0
        """Of all steps together, in one lane."""
        self.beyond: dict[Lane, int] = {}
        self.max_ulp_in_step = 0.0
        """The worst of a single step, without those that add up."""

    def take(self, verdict: StepVerdict) -> None:
        """Take in another step."""
        self.steps += 1
        self.anchored += verdict.anchored
        self.agrees = self.agrees and verdict.agrees
        self.first = self.first or verdict.first
        told: set[str] = set()
        for param in verdict.params:
            self.by_param.setdefault(param.param, ParamFound(param.param)).take(verdict.step, param)
            for lane, found in param.lanes.items():
                self.beyond[lane] = self.beyond.get(lane, 0) + found.beyond
                self.max_ulp[lane] = max(self.max_ulp.get(lane, 0.0), found.max_ulp)
            self.elements += next(iter(param.lanes.values())).elements
            if param.steps == 1:
                self.max_ulp_in_step = max(self.max_ulp_in_step, param.max_ulp)
            if param.key == "rounding" and param.explanation is not None:
                for name, ulp in param.explanation.left.items():
                    self.left[name] = max(self.left.get(name, 0.0), ulp)
            if param.key == "same":
                continue
            if param.key not in self.kinds:
                self.kinds[param.key] = KindFound(param.key, str(param), _source(param), verdict.step)
            kind = self.kinds[param.key]
            kind.params[param.param] = kind.params.get(param.param, 0) + 1
            if param.explanation is not None and param.explanation.peers and not kind.source:
                kind.words, kind.source = str(param), _source(param)
            if param.key not in told:
                told.add(param.key)
                kind.steps += 1

    @property
    def bit_exact(self) -> bool:
        """True where no element of any step differs."""
        return self.first is None


def _source(verdict: ParamVerdict) -> str:
    found = verdict.explanation
    if found is None:
        return ""
    if found.kinds:
        return "; ".join(named.kind.source for named in found.kinds)
    return " or ".join(peer.name for peer in found.peers)


def worst_first(found: Mapping[str, ParamFound]) -> list[ParamFound]:
    """Params by their largest difference in any lane."""
    return sorted(found.values(), key=lambda p: -max(p.max_ulp.values(), default=0.0))
