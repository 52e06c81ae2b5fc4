"""Sources for incidents: drawn gradients to plant a fault in, the live model, and a network in half precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.schedule import Schedule
from inspector.sources.base import ReadWeights
from inspector.sources.charlm.config import CharLmConfig
from inspector.sources.charlm.source import CharLm
from inspector.sources.charlm.text import VOCABULARY
from inspector.stepping import HostGradients, HostState

F32 = npt.NDArray[np.float32]
Lanes = dict[str, F32]
Edit = Callable[[int, Lanes], None]
"""Changes the gradients of a step in place, flat by name."""

SIZE = 1e-3
"""The standard deviation of drawn gradients."""
BLOCK = (
    ("attn.weight", (16, 16)),
    ("mlp.up.weight", (16, 32)),
    ("mlp.down.weight", (32, 16)),
    ("norm.weight", (16,)),
)
PARAMS: tuple[Param, ...] = (
    Param("embed.weight", (24, 16)),
    *(Param(f"h.{layer}.{name}", shape) for layer in range(2) for name, shape in BLOCK),
    Param("norm.bias", (16,)),
)
"""2,992 elements; the norm of their gradients is about 0.054."""
NO_CLIP = Hyper(max_grad_norm=float("inf"))
TINY = CharLmConfig(width=16, layers=1, heads=2, context=16, rows=4, ffn=32)


def steady_loss(step: int) -> float:
    """2 nats, a hundredth up and down in turn."""
    return 2.0 + 0.02 * (-1) ** step


class Drawn:
    """Normal gradients whose size varies by a tenth from step to step, as that of batches does; weights do not matter.

    `edit` plants what is wrong with them. `state` takes the place of fresh weights and no moments.
    """

    def __init__(
        self,
        *,
        params: Sequence[Param] = PARAMS,
        hyper: Hyper | None = None,
        schedule: Schedule | None = None,
        edit: Edit | None = None,
        loss: Callable[[int], float | None] = steady_loss,
        state: HostState | None = None,
        size: float = SIZE,
        seed: int = 0,
    ) -> None:
        self.name, self.description = "drawn", "drawn gradients"
        self.params = tuple(params)
        self.hyper = hyper or Hyper()
        self.schedule = schedule or Schedule()
        self.last_step: int | None = None
        self._edit, self._loss, self._size, self._seed = edit, loss, size, seed
        self._state = state or HostState(weights(params), {}, {})

    def initial_state(self) -> HostState:
        return self._state

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        rng = np.random.default_rng([self._seed, step])
        batch = self._size * 2 ** rng.normal(0, 0.15)
        drawn: Lanes = {
            p.name: (batch * rng.standard_normal(p.numel)).astype(np.float32) for p in self.params
        }
        if self._edit is not None:
            self._edit(step, drawn)
        return HostGradients(drawn, self._loss(step))


def weights(params: Sequence[Param], size: float = 0.05, seed: int = 0) -> Lanes:
    """Matrices drawn with that standard deviation, gains of 1."""
    rng = np.random.default_rng([seed, 0])
    return {
        p.name: np.ones(p.numel, np.float32)
        if len(p.shape) < 2
        else (size * rng.standard_normal(p.numel)).astype(np.float32)
        for p in params
    }


def trained(
    params: Sequence[Param] = PARAMS, step: int = 5000, sizes: Mapping[str, float] | None = None
) -> HostState:
    """The state after many steps of Drawn at β₁ = 0.9: v is the square of the size, m has √(0.1/1.9) of it."""
    rng = np.random.default_rng(7)
    size = {p.name: (sizes or {}).get(p.name, SIZE) for p in params}
    m = {p.name: (0.23 * size[p.name] * rng.standard_normal(p.numel)).astype(np.float32) for p in params}
    v = {p.name: np.full(p.numel, size[p.name] ** 2, np.float32) for p in params}
    return HostState(weights(params), m, v, step)


def from_step(first: int, edit: Callable[[Lanes], None], last: int | None = None) -> Edit:
    """Plants `edit` in the steps from `first` on, up to `last`."""

    def planted(step: int, g: Lanes) -> None:
        if first <= step and (last is None or step <= last):
            edit(g)

    return planted


def in_step(step: int, edit: Callable[[Lanes], None]) -> Edit:
    """Plants `edit` in one step."""
    return from_step(step, edit, step)


def put(name: str, index: int, value: float) -> Callable[[Lanes], None]:
    """Sets one element."""

    def edit(g: Lanes) -> None:
        g[name][index] = value

    return edit


def times(factor: float, *names: str) -> Callable[[Lanes], None]:
    """Multiplies the gradients of these params, or of all."""

    def edit(g: Lanes) -> None:
        for name in names or tuple(g):
            g[name] *= np.float32(factor)

    return edit


class WrongTokens(CharLm):
    """The live model, reading its text by another vocabulary from a step on: characters are exchanged for others."""

    def __init__(self, model: CharLm, *, since: int) -> None:
        super().__init__(model.config, schedule=model.schedule)
        self._since = since

    def batch(self, step: int) -> npt.NDArray[np.uint8]:
        """The text as it is, or with the code of each character a third of the vocabulary further on."""
        rows = super().batch(step)
        if step < self._since:
            return rows
        size = len(VOCABULARY)
        return ((rows.astype(np.int64) + size // 3) % size).astype(np.uint8)


class HalfNetwork:
    """y = W₂·relu(W₁·x), squared error, forward and backward in float16 with a loss scale, as mixed precision has it.

    `inputs` are what x is multiplied by in a step; `scale` is the loss scale, taken out again in float32. One unit has
    incoming weights a hundred times those of the others, so that it overflows first.
    """

    HOT = 5
    """The unit."""

    def __init__(self, *, scale: Callable[[int], float], inputs: Callable[[int], float]) -> None:
        self.name, self.description = "half network", "a network in float16"
        self.params = (Param("up.weight", (16, 24)), Param("down.weight", (24, 4)))
        self.hyper, self.schedule = NO_CLIP, Schedule()
        self.last_step: int | None = None
        self._scale, self._inputs = scale, inputs

    def initial_state(self) -> HostState:
        rng = np.random.default_rng(3)
        up = np.abs(0.1 * rng.standard_normal((16, 24)))
        up[:, self.HOT] *= 100
        down = 0.1 * rng.standard_normal((24, 4))
        down[self.HOT] = 0.5
        return HostState(
            {"up.weight": up.astype("f4").ravel(), "down.weight": down.astype("f4").ravel()}, {}, {}
        )

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        w = {name: value.astype(np.float16) for name, value in read_weights().items()}
        rng = np.random.default_rng([5, step])
        scale = np.float16(self._scale(step))
        with np.errstate(all="ignore"):
            x = (self._inputs(step) * np.abs(rng.standard_normal((8, 16)))).astype(np.float16)
            hidden = np.maximum(x @ w["up.weight"], np.float16(0))
            error = hidden @ w["down.weight"]
            loss = float(np.square(error.astype(np.float32)).mean())
            back = scale * (error / np.float16(error.size))
            down = (hidden.T @ back).astype(np.float32) / np.float32(scale)
            through = (back @ w["down.weight"].T) * (hidden > 0)
            up = (x.T @ through).astype(np.float32) / np.float32(scale)
        return HostGradients({"up.weight": up.ravel(), "down.weight": down.ravel()}, loss)


def tiny(schedule: Schedule | None = None, **changes: int) -> CharLm:
    """The live model at its smallest that still learns."""
    return CharLm(replace(TINY, **changes), schedule=schedule)


def with_hyper(source: CharLm, **changes: float) -> CharLm:
    """The same with other settings."""
    source.hyper = replace(source.hyper, **changes)
    return source
