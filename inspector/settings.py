"""Settings that params need not share: classes of params with one step count, and those idle in a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Settings:
    """What the params of one class take a step with, float64; `lr` as used, the schedule applied.

    `weight_decay` counts as it stands, whatever the block. The step count of the params is that of the run less
    `behind`. An `idle` class takes no part: no decay, m, v and its count stay as they are, as PyTorch does with a param
    that has no gradient; so w, m and v are left byte for byte.
    """

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    behind: int = 0
    idle: bool = False

    def t(self, step: int) -> int:
        """The step count that the run's step `step` is to these params; of idle ones that of the last they took."""
        return step - self.behind - self.idle


IDLE = -1
"""In place of the number of a class: it takes no part in the step."""

SETTING_NAMES: tuple[str, ...] = ("lr", "beta1", "beta2", "eps", "weight_decay")
"""The settings that may differ from param to param."""


@dataclass(frozen=True, slots=True)
class ParamSettings:
    """The settings of each param in one step: `of` has the number of its class among `classes`, by param.

    The params are in the order of the source or session that the run is of, not as they lie in memory. Those beyond the
    end of `of` were added to the run later: they are idle.
    """

    classes: tuple[Settings, ...]
    of: tuple[int, ...]

    def of_param(self, number: int) -> Settings | None:
        """The settings of a param by its number; None for one that was not there yet."""
        return self.classes[self.of[number]] if number < len(self.of) else None

    def is_idle(self, number: int) -> bool:
        """True where the param takes no part in the step."""
        found = self.of_param(number)
        return found is None or found.idle

    def check(self, params: int) -> ParamSettings:
        """Return it, or raise ValueError where it does not fit a run of so many params."""
        if len(self.of) > params:
            raise ValueError(f"it has settings for {len(self.of)} of {params} params")
        if self.of and not 0 <= min(self.of) <= max(self.of) < len(self.classes):
            raise ValueError("a param has settings of a class that is missing")
        if any(each.behind < 0 for each in self.classes):
            raise ValueError("the step count of a param is ahead of that of the run")
        return self

    def kinds(self) -> tuple[int, ...]:
        """The number of the first class with the same settings, of each class; IDLE for those that take no part."""
        first: dict[Settings, int] = {}
        return tuple(IDLE if each.idle else first.setdefault(each, i) for i, each in enumerate(self.classes))

    def cuts_like(self, other: ParamSettings) -> bool:
        """True where the same params share settings, and the same are idle: whatever these settings are."""
        return self is other or (self.kinds() == other.kinds() and self.of == other.of)

    def each(self, change: Callable[[Settings], Settings]) -> ParamSettings:
        """The same with `change` made to every class."""
        return replace(self, classes=tuple(change(each) for each in self.classes))
