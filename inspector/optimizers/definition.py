"""What makes an optimizer: its state buffers, its kernels, its plan, its uniforms and its float64 oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from inspector.errors import UsageError
from inspector.floats import BoolArray, F32Array
from inspector.hyper import HYPER_NAMES, Hyper, Numerics
from inspector.layout import Layout, Param
from inspector.optimizers.evaluation import Array, FloatType, Scalar, Updated, UpdatedParam
from inspector.optimizers.state_size import Sizes
from inspector.param_hyper import Classes
from inspector.param_state import ParamState
from inspector.plan import KERNELS, Kernel, Limits, Plan, Variant
from inspector.stores import Lane

ADAM_RULE = ("common", "codecs", "coded_adam")
UNUSED = "–"
ADAM_BIAS: Mapping[Numerics, tuple[str, ...]] = MappingProxyType(
    {"published": ("β₁ᵗ", "β₂ᵗ", "ε", UNUSED), "precise": ("1/(1-β₁ᵗ)", "1/(1-β₂ᵗ)", "ε", "1-β₂")}
)
NO_BIAS: Mapping[Numerics, tuple[str, ...]] = MappingProxyType(
    {"published": (UNUSED,) * 4, "precise": (UNUSED,) * 4}
)
LINE_SLOTS: Mapping[str, int] = MappingProxyType(
    {
        "g'": 0, "m": 1, "v": 2, "m̂": 3, "blend": 3, "direction": 3, "v̂": 4, "denominator": 5, "ratio": 6, "sign": 6,
        "decay": 7, "update": 8, "w": 9,
    }
)  # fmt: skip
"""The lines of an oracle by name, and which member of the kernels' `Update` has their value, counted from 0."""


class ElementWise(Protocol):
    """One element-wise update at step `step` (from 1) in either type of float; `scale` is the clip scale.

    Arrays of one shape, `decays` a bool or a mask of it. A moment that the optimizer does not keep is given back as it
    is. The lines are in the order in which the kernel has them, by names of LINE_SLOTS.
    """

    def __call__(
        self,
        w: Array,
        g: Array,
        m: Array,
        v: Array,
        *,
        scale: float | Scalar,
        hyper: Hyper,
        step: int,
        decays: bool | BoolArray,
        numerics: Numerics = "published",
        dtype: FloatType = ...,
    ) -> Updated: ...


class ParamWise(Protocol):
    """One update of a whole param at step `step` (from 1) in either type of float; `scale` is the clip scale.

    w and g in the param's shape, `states` by name in theirs.
    """

    def __call__(
        self,
        w: Array,
        g: Array,
        states: Mapping[str, Array],
        *,
        scale: float | Scalar,
        hyper: Hyper,
        step: int,
        decays: bool,
        numerics: Numerics = "published",
        dtype: FloatType = ...,
    ) -> UpdatedParam: ...


@dataclass(frozen=True, slots=True)
class Optimizer:
    """`state` are the moments that it keeps, an element each. `uniforms(hyper, step, numerics)` gives the values of
    every uniform that is not constant, by key; `plan` lays the dispatches out; `update` is the oracle.

    `rule` names the WGSL files in which `updated` is, what it needs first: those that kernels stand behind which work
    the update out without applying it. A name with a slash is below inspector/, another below inspector/shaders/.

    What an optimizer does to an element may hang on its whole param. It has neither `update` nor `rule` then, but
    `update_param`; and what it keeps beside the moments are `param_states`.
    """

    name: str
    title: str
    state: tuple[str, ...]
    plan: Callable[[Layout, Limits, Variant, Classes | None], Plan]
    uniforms: Callable[[Hyper, int, Numerics], Mapping[str, F32Array]]
    update: ElementWise | None
    rule: tuple[str, ...] | None
    settings: tuple[str, ...] = HYPER_NAMES
    """The hyper-parameters that it uses; the others may have any value."""
    kernels: tuple[Kernel, ...] = KERNELS
    """The forms of the update kernel that there are of it."""
    bias_names: Mapping[Numerics, tuple[str, ...]] = field(default_factory=lambda: ADAM_BIAS)
    """What the members of the `bias` uniform are."""
    as_used: Callable[[Hyper], Hyper] = lambda hyper: hyper
    """Settings with those that it does not use as it takes them: Adam's λ is 0."""
    adam: bool = False
    """One of Adam's family: m and v as Adam has them, whatever becomes of the decay."""
    decay_in_gradient: bool = False
    """Weight decay is added to the gradient (L2) rather than to the update."""
    param_states: tuple[ParamState, ...] = ()
    """State in shapes of its own."""
    update_param: ParamWise | None = None

    @property
    def keeps(self) -> tuple[str, ...]:
        """The names of all that it keeps."""
        return (*self.state, *(each.name for each in self.param_states))

    def element_wise(self) -> ElementWise:
        """The oracle of one element by itself; UsageError where there is none."""
        if self.update is None:
            raise UsageError(
                f"An element's update cannot be told line by line: {self.title} updates it by sums over its param. "
                "Step through the dispatches instead."
            )
        return self.update

    rest: Optimizer | None = None
    """What steps the params that it does not take itself; it has the same uniforms. `update` and `rule` are its own."""
    takes: Callable[[Param, Variant], bool] = lambda param, variant: True
    """Whether it steps a param itself."""
    taken: str = "param"
    """What such a param is, in words."""

    between: Callable[[Variant, int], bool] | None = None
    """Of an optimizer whose steps are not all alike: whether a step goes without what only some of them do."""
    plan_between: Callable[[Layout, Limits, Variant, Classes | None], Plan] | None = None
    """The plan of such a step, over the same buffers; `plan` is that of the others."""

    form: tuple[str, ...] = ()
    """The parts of a variant that say something of this optimizer alone."""
    billed: Sizes | None = None
    """What the memory bill counts of a param, where that is not an element of each moment and the states."""

    in_place: Mapping[Lane, str] = field(default_factory=dict)
    """What stands in a moment's place of the params that it takes itself, where that is no moment."""

    def of(self, param: Param, variant: Variant) -> Optimizer:
        """What steps a param: it or `rest`."""
        return self if self.rest is None or self.takes(param, variant) else self.rest
