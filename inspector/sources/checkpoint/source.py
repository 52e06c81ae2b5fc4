"""A checkpoint as a source: weights, the state of their optimizer, and gradients, read or drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

import numpy as np

from inspector.codecs import Moments8bit
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Variant
from inspector.progress import counting
from inspector.schedule import Schedule
from inspector.settings import Settings
from inspector.sources.base import ReadWeights
from inspector.sources.checkpoint.contents import Contents, read_contents
from inspector.sources.checkpoint.drawn import drawn_gradient
from inspector.sources.checkpoint.eight_bit import CodedMoment
from inspector.sources.checkpoint.files import LoadPickled
from inspector.sources.checkpoint.optimizer_state import Moment
from inspector.stepping import HostGradients, HostState


class Checkpoint:
    """Files that other programs saved. Opening reads headers and step counts; weights and moments where they are used.

    `remarks` are what a person should know of how they were taken, each a sentence; `form` is the form of the step that
    goes on as the optimizer did.
    """

    seeded = True

    def __init__(
        self, name: str, paths: Sequence[Path], load: LoadPickled, *, seed: int = 0, schedule: Schedule | None = None
    ) -> None:  # fmt: skip
        self._contents: Contents = read_contents(paths, load)
        settled = self._contents.settled
        self.name = name
        self.schedule = schedule or Schedule()
        self.last_step: int | None = None
        self.origin = settled.origin if settled else ""
        self.unreplayable = settled.unreplayable if settled else ""
        self.seed = seed
        shapes = {name: tensor.shape for name, tensor in self._contents.weights.items()}
        decays = settled.decays if settled else None
        self.params = tuple(
            Param(
                name,
                shape,
                None if decays is None else decays[i],
                settled.groups[i] if settled else 0,
            )
            for i, (name, shape) in enumerate(shapes.items())
        )
        self.hyper: Hyper = settled.hyper if settled else Hyper()
        self.finished_steps = settled.finished_steps if settled else 0
        self.form: Variant | None = self._form() if settled else None
        self.description = self._description()
        self.remarks = self._contents.remarks

    @property
    def stored(self) -> Mapping[str, Mapping[str, str]]:
        """The type in which the files keep each lane of each param: F32, BF16, "8bit" and so on, by param and lane."""
        found: dict[str, dict[str, str]] = {}
        for name, weight in self._contents.weights.items():
            state = self._contents.states.get(name)
            moments = {"m": state.m if state else None, "v": state.v if state else None}
            found[name] = {"w": weight.dtype} if name not in self._contents.missing else {}
            found[name] |= {lane: _type(each) for lane, each in moments.items() if each is not None}
        return found

    @property
    def has_gradients(self) -> bool:
        """True where the files hold gradients, of the next step."""
        return bool(self._contents.gradients)

    def initial_state(self) -> HostState:
        """w, m, v of the files as float32; 8-bit codes of the dynamic codec byte for byte beside their values."""
        contents = self._contents
        begun = counting(len(contents.weights) + len(contents.states))
        w: dict[str, F32Array] = {}
        for name, tensor in contents.weights.items():
            begun(1)
            w[name] = tensor.flat()
        m: dict[str, F32Array] = {}
        v: dict[str, F32Array] = {}
        coded: dict[str, Moments8bit] = {}
        for name, state in contents.states.items():
            begun(1)
            for lane, moment in ((m, state.m), (v, state.v)):
                if moment is not None:
                    lane[name] = _values(moment)
            if _is_dynamic(state.m) and _is_dynamic(state.v):
                coded[name] = Moments8bit("dynamic", state.m.encoded(), state.v.encoded())
        return HostState(w, m, v, self.finished_steps, coded)

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        """Those of the files for the step after the state; else drawn, the same for the same seed and step."""
        if self.has_gradients and step == self.finished_steps + 1:
            return HostGradients({name: each.flat() for name, each in self._contents.gradients.items()})
        return HostGradients(
            {
                param.name: self._drawn(number, param, step)
                for number, param in enumerate(self.params)
                if param.name in self._contents.states
            }
        )

    def recorded_gradients(self) -> dict[str, F32Array]:
        """The gradients that the files hold, flat, by param; {} where they hold none."""
        return {name: each.flat() for name, each in self._contents.gradients.items()}

    def _drawn(self, number: int, param: Param, step: int) -> F32Array:
        state = self._contents.states[param.name]
        if state.m is None or state.v is None:
            return np.zeros(param.numel, np.float32)
        settings: Settings = self.hyper.of_param(number, decays=True)
        t = self.finished_steps - settings.behind
        return drawn_gradient(
            _values(state.m), _values(state.v), settings, t, seed=self.seed, step=step, number=number
        )

    def _form(self) -> Variant:
        """Bias terms as the optimizer has them, and 8-bit state where the files keep it in codes that go on."""
        settled = self._contents.settled
        assert settled is not None
        large = [s for n, s in self._contents.states.items() if self._contents.weights[n].numel >= SMALL]
        dynamic = bool(large) and all(_is_dynamic(each) for s in large for each in (s.m, s.v))
        return Variant(
            optimizer="adam-l2" if settled.l2 else "adamw",
            numerics="precise",
            kernel="8bit" if dynamic else "f32",
            codec="dynamic" if dynamic else "linear",
        )

    @property
    def on_gradients(self) -> str:
        """That they are drawn, or 0; "" where the files hold those of the next step."""
        if self.has_gradients:
            return ""
        if any(s.m is not None for s in self._contents.states.values()):
            return (
                "A checkpoint holds no gradients: those of its steps are drawn from what m and v say of them."
            )
        return "Without gradients, and without m and v to draw them from, all gradients are 0."

    def _description(self) -> str:
        elements = sum(p.numel for p in self.params)
        text = f"{elements:,} elements in {len(self.params):,} params"
        if self.origin:
            text += f", {self.origin} after {self.finished_steps:,} steps"
        if self.has_gradients:
            return f"{text}, gradients of step {self.finished_steps + 1:,}, those of later steps drawn from m and v"
        if any(s.m is not None for s in self._contents.states.values()):
            return f"{text}, gradients drawn from m and v"
        return f"{text}, no gradients and no state to draw them from: all 0"


SMALL = 4096
"""Params below keep float32 state, with bitsandbytes as here."""


def _is_dynamic(moment: Moment | None) -> TypeGuard[CodedMoment]:
    return isinstance(moment, CodedMoment) and moment.is_dynamic


def _values(moment: Moment) -> F32Array:
    return moment.decoded() if isinstance(moment, CodedMoment) else moment.flat()


def _type(moment: Moment) -> str:
    if not isinstance(moment, CodedMoment):
        return moment.dtype
    return "8bit dynamic" if moment.is_dynamic else f"8bit, blocks of {moment.block}"
