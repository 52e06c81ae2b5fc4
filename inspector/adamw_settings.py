"""Settings of their own for the params that an optimizer leaves to AdamW, as Muon and Shampoo do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inspector.errors import UsageError
from inspector.hyper import Hyper, check_value
from inspector.layout import Param
from inspector.optimizers import OPTIMIZERS, optimizer
from inspector.plan import Variant
from inspector.settings import SETTING_NAMES, ParamSettings, Settings


@dataclass(frozen=True, slots=True)
class AdamwSettings:
    """`values` by name, for the params that are left to AdamW in the form `variant`."""

    values: Mapping[str, float]
    variant: Variant

    def of(self, hyper: Hyper, params: Sequence[Param]) -> Hyper:
        """`hyper` with classes of params: those it takes as it stands, the others with `values`, undecayed ones λ 0.

        UsageError for a form that leaves none to AdamW, and for params that have settings of their own already.
        """
        if optimizer(self.variant.optimizer).rest is None:
            leaving = " or ".join(name for name, each in OPTIMIZERS.items() if each.rest is not None)
            raise UsageError(
                f"--adamw is for what an optimizer leaves to AdamW: this run is of {self.variant.optimizer}, so give "
                f"--optimizer {leaving}, or --lr and the like."
            )
        if hyper.per_param is not None:
            raise UsageError(
                "--adamw does nothing here: the params of this source come with settings of their own."
            )
        shared = Settings(hyper.lr, hyper.beta1, hyper.beta2, hyper.eps, hyper.weight_decay)
        named: Any = self.values
        rest = replace(shared, **named)
        classes: dict[Settings, int] = {}
        of = []
        for param in params:
            own = shared if optimizer(self.variant.optimizer).takes(param, self.variant) else rest
            own = own if param.block == "wd" else replace(own, weight_decay=0.0)
            of.append(classes.setdefault(own, len(classes)))
        return replace(hyper, per_param=ParamSettings(tuple(classes), tuple(of)))


def parse(text: str) -> dict[str, float]:
    """Settings as typed, as in "lr=3e-4,beta1=0.9"; UsageError for what is none."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in SETTING_NAMES:
            raise UsageError(
                f"--adamw {part.strip()!r} is no setting: write NAME=NUMBER with commas between, of "
                f"{', '.join(SETTING_NAMES)}."
            )
        try:
            number = float(value)
        except ValueError:
            raise UsageError(f"--adamw {part.strip()!r}: {value!r} is not a number.") from None
        check_value(name, number)
        found[name] = number
    return found
