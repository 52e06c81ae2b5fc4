"""A race as data: what each lane runs, as a person writes it, and the grid of lanes that a sweep is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType
from typing import Any, get_args

import numpy as np

from inspector.adamw_settings import AdamwSettings
from inspector.codecs import Codec
from inspector.errors import UsageError
from inspector.floats import shortest
from inspector.hyper import HYPER_NAMES, NUMERICS, Hyper, check_value, with_values
from inspector.layout import Param
from inspector.optimizers import OPTIMIZERS, optimizer
from inspector.plan import FACTORS, KERNELS, Variant, unnamed_glob
from inspector.settings import SETTING_NAMES

MAX_LANES = 8
"""Lanes of a race: as many as can be told apart in one plot."""
MAX_SWEEP = 1000
FORM_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"kernel": KERNELS, "codec": get_args(Codec), "numerics": NUMERICS, "factors": FACTORS}
)
"""What a lane may say of the form of its step, and the values that there are."""
FORM_NUMBERS = ("root_block", "root_every")
"""The same where any whole number from 1 on is a value."""
FORM_PATTERNS = ("no_muon",)
"""The same where patterns of names are a value: joined by +, since commas part the keys."""
NO_CHANGES: Mapping[str, Any] = MappingProxyType({})
ADAMW = "adamw."
"""What stands before settings of the params that an optimizer leaves to AdamW, as Muon does."""
LANE_FORM = "OPTIMIZER[:KEY=VALUE,…], as in adamw or lion:lr=3e-4,weight_decay=1"


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """What one lane runs where it differs from the others: an optimizer, settings, parts of the form, a seed.

    `seed` None takes that of the source, which all lanes have in common.
    """

    optimizer: str = "adamw"
    hyper: Mapping[str, float] = field(default_factory=lambda: NO_CHANGES)
    form: Mapping[str, str] = field(default_factory=lambda: NO_CHANGES)
    seed: int | None = None
    adamw: Mapping[str, float] = field(default_factory=lambda: NO_CHANGES)
    """Settings of the params that are left to AdamW, by name."""

    @classmethod
    def from_text(cls, text: str) -> LaneSpec:
        """`OPTIMIZER[:KEY=VALUE,…]`; UsageError, naming what there is, for anything else."""
        name, colon, options = (part.strip() for part in text.strip().partition(":"))
        if not name or (colon and not options):
            raise UsageError(f"{text!r} is no lane: write {LANE_FORM}.")
        leaves = optimizer(name).rest is not None
        hyper: dict[str, float] = {}
        form: dict[str, str] = {}
        adamw: dict[str, float] = {}
        seed: int | None = None
        for option in options.split(",") if options else ():
            key, equals, value = (part.strip() for part in option.partition("="))
            key = key.replace("-", "_")
            if not equals or not value:
                raise UsageError(f"The lane {text!r} has {option.strip()!r}: write {LANE_FORM}.")
            of_adamw = key.removeprefix(ADAMW)
            if (
                key in hyper
                or key in form
                or (of_adamw != key and of_adamw in adamw)
                or (key == "seed" and seed is not None)
            ):
                raise UsageError(f"The lane {text!r} is given {key} twice: give it once.")
            if key in HYPER_NAMES:
                hyper[key] = _number(text, key, value)
            elif key in FORM_CHOICES:
                form[key] = _choice(text, key, value)
            elif key in FORM_NUMBERS:
                form[key] = _whole(text, key, value)
            elif key in FORM_PATTERNS:
                form[key] = _patterns(text, key, value)
            elif of_adamw != key and of_adamw in SETTING_NAMES and leaves:
                adamw[of_adamw] = _number(text, of_adamw, value)
            elif key == "seed":
                seed = _seed(text, value)
            else:
                rest = (f"{ADAMW}lr and the like",) if leaves else ()
                known = ", ".join((*HYPER_NAMES, *FORM_CHOICES, *FORM_NUMBERS, *FORM_PATTERNS, *rest, "seed"))
                raise UsageError(f"The lane {text!r} has no setting {key!r}: give one of {known}.")
        return cls(
            optimizer(name).name,
            MappingProxyType(hyper),
            MappingProxyType(form),
            seed,
            MappingProxyType(adamw),
        )

    def __str__(self) -> str:
        """The text that `from_text` reads back."""
        parts = [f"{name}={shortest(value).removesuffix('.0')}" for name, value in self.hyper.items()]
        parts += [f"{name}={value}" for name, value in self.form.items()]
        parts += [f"{ADAMW}{name}={shortest(value).removesuffix('.0')}" for name, value in self.adamw.items()]
        parts += [] if self.seed is None else [f"seed={self.seed}"]
        return self.optimizer + (":" + ",".join(parts) if parts else "")

    def variant_of(self, base: Variant) -> Variant:
        """The form that it runs in, where all else is as in `base`."""
        changes: dict[str, Any] = {
            k: int(v) if k in FORM_NUMBERS else v.replace("+", ",") if k in FORM_PATTERNS else v
            for k, v in self.form.items()
        }
        return replace(base, optimizer=self.optimizer, **changes)

    def idle_in(self, base: Variant) -> tuple[str, ...]:
        """The keys that say nothing of its optimizer or in its form, where all else is as in `base`."""
        own = optimizer(self.optimizer)
        elsewhere = {part for each in OPTIMIZERS.values() for part in each.form} - set(own.form)
        if self.variant_of(base).kernel != "8bit":
            elsewhere.add("codec")
        return (*(k for k in self.hyper if k not in own.settings), *(k for k in self.form if k in elsewhere))

    def idle_words(self, base: Variant) -> str:
        """They are told to do nothing, without a full stop; "" where there are none."""
        idle = self.idle_in(base)
        verb = "does" if len(idle) == 1 else "do"
        return f"{' and '.join(idle)} {verb} nothing in the lane {self}" if idle else ""

    def hyper_of(self, base: Hyper) -> Hyper:
        """The settings that it runs with, where all else is as in `base`."""
        return with_values(base, self.hyper)

    def settings_of(self, base: Hyper, params: Sequence[Param], form: Variant) -> Hyper:
        """The same with those of each param, in the form that it runs in."""
        hyper = self.hyper_of(base)
        return AdamwSettings(self.adamw, form).of(hyper, params) if self.adamw else hyper


def lane_names(lanes: Sequence[LaneSpec]) -> tuple[str, ...]:
    """What the lanes are called: their texts, with a number where several are alike."""
    texts = [str(lane) for lane in lanes]
    seen: dict[str, int] = {}
    names = []
    for text in texts:
        seen[text] = seen.get(text, 0) + 1
        names.append(text if texts.count(text) == 1 else f"{text} ({seen[text]})")
    return tuple(names)


def check_forms(lanes: Sequence[LaneSpec], base: Variant, params: Sequence[Param]) -> None:
    """UsageError where the optimizer of a lane does not have the form that is asked of it, or a pattern of names fits
    none of `params`, which are empty where they are not known."""
    names = [param.name for param in params]
    for lane in lanes:
        form = lane.variant_of(base)
        kernel, there = form.kernel, optimizer(lane.optimizer).kernels
        glob = unnamed_glob(form.no_muon, names) if names and "no_muon" in lane.form else None
        if glob is not None:
            raise UsageError(
                f"The lane {str(lane)!r} has no_muon={glob}, which names none of the {len(names):,} params."
            )
        if kernel not in there:
            raise UsageError(
                f"The lane {str(lane)!r} asks for the {kernel} kernel, which {lane.optimizer} does not have: "
                f"choose {', '.join(there)}."
            )


def log_grid(text: str) -> tuple[float, ...]:
    """`LOW:HIGH:COUNT`, evenly spaced in the logarithm, three significant digits each; or numbers joined by commas."""
    form = f"{text!r} is no grid of learning rates: write LOW:HIGH:COUNT, as in 1e-4:1e-1:7, or numbers with commas."
    parts = text.split(":")
    try:
        if len(parts) == 1:
            values = tuple(float(part) for part in text.split(","))
        else:
            low, high, count = float(parts[0]), float(parts[1]), int(parts[2])
            if len(parts) != 3:
                raise UsageError(form)
            if not 0 < low < high < math.inf:
                raise UsageError(
                    f"The learning rates {text!r} do not rise from LOW to HIGH: give a LOW above 0 and below HIGH."
                )
            if not 2 <= count <= MAX_SWEEP:
                raise UsageError(
                    f"The learning rates {text!r} are {count:,}: give a COUNT from 2 to {MAX_SWEEP:,}."
                )
            values = tuple(float(f"{value:.3g}") for value in np.geomspace(low, high, count))
    except (ValueError, IndexError):
        raise UsageError(form) from None
    for value in values:
        check_value("lr", value)
    if len(set(values)) != len(values):
        raise UsageError(f"The learning rates {text!r} are not all different: give each once.")
    return values


def sweep_lanes(
    bases: Sequence[LaneSpec], rates: Sequence[float], seeds: Sequence[int]
) -> tuple[LaneSpec, ...]:
    """Each of `bases` at every learning rate and seed, in this order."""
    count = len(bases) * len(rates) * len(seeds)
    if count > MAX_SWEEP:
        raise UsageError(f"The sweep would be {count:,} runs: {MAX_SWEEP:,} is the limit.")
    texts = [str(base) for base in bases]
    for base in bases:
        if texts.count(str(base)) > 1:
            raise UsageError(
                f"The lane {str(base)!r} is there twice: give it once, and --seeds for more runs of it."
            )
        if "lr" in base.hyper or base.seed is not None:
            raise UsageError(
                f"The lane {str(base)!r} sets what the sweep varies: leave lr and seed out of it."
            )
    return tuple(
        replace(base, hyper=MappingProxyType({**base.hyper, "lr": rate}), seed=seed)
        for base, rate, seed in product(bases, rates, seeds)
    )


def _number(text: str, key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise UsageError(f"The lane {text!r} has {key}={value}: give a number.") from None
    check_value(key, number)
    return number


def _choice(text: str, key: str, value: str) -> str:
    if value not in FORM_CHOICES[key]:
        raise UsageError(f"The lane {text!r} has {key}={value}: choose {', '.join(FORM_CHOICES[key])}.")
    return value


def _whole(text: str, key: str, value: str) -> str:
    if not value.isascii() or not value.isdigit() or not int(value):
        raise UsageError(f"The lane {text!r} has {key}={value}: give a whole number of 1 or more.")
    return str(int(value))


def _patterns(text: str, key: str, value: str) -> str:
    globs = [glob.strip() for glob in value.split("+")]
    if not all(globs):
        raise UsageError(f"The lane {text!r} has {key}={value}: give patterns of names, joined by +.")
    return "+".join(globs)


def _seed(text: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise UsageError(f"The lane {text!r} has seed={value}: give a whole number of 0 or more.")
    return int(value)
