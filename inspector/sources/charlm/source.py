"""The live model as a source of gradients."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.schedule import Schedule
from inspector.sources.base import ReadWeights
from inspector.sources.charlm.config import CharLmConfig
from inspector.sources.charlm.model import (
    initial_weights,
    logits,
    loss_and_gradients,
    make_params,
    one_hot_of,
)
from inspector.sources.charlm.operations import PLAIN, FloatArray
from inspector.sources.charlm.text import UNKNOWN, Tokens, decode, read_text
from inspector.stepping import HostGradients, HostState

DEFAULT_CONFIG = CharLmConfig()
DEFAULT_HYPER = Hyper(lr=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, max_grad_norm=1.0)
DEFAULT_SCHEDULE = Schedule(warmup=100)


class CharLm:
    """The live model as a source: every step is a forward and backward pass on the CPU, in float32.

    The batch of a step depends on the seed and the step alone, so a step taken twice gives the same bits.
    Raises UsageError where Python's standard library has no source files to train on.
    """

    closed_loop = True
    seeded = True

    def __init__(self, config: CharLmConfig = DEFAULT_CONFIG, *, schedule: Schedule | None = None) -> None:
        self.config = config
        self.schedule = DEFAULT_SCHEDULE if schedule is None else schedule
        self.hyper = DEFAULT_HYPER
        self.params = make_params(config)
        self.last_step: int | None = None
        self._folder = Path(sysconfig.get_paths()["stdlib"])
        if next(self._folder.glob("*.py"), None) is None:
            raise UsageError(_no_text(self._folder))

    @classmethod
    def from_text(cls, spec: str) -> CharLm:
        """`charlm` or `charlm:width=128,layers=4,…` with fields of CharLmConfig; else UsageError."""
        kind, colon, options = spec.strip().partition(":")
        if kind != "charlm" or (colon and not options):
            raise UsageError(
                f"{spec!r} is not a live model: write charlm or, say, charlm:width=128,layers=4."
            )
        return cls(CharLmConfig.from_text(options))

    @property
    def name(self) -> str:
        """As on the command line: `charlm` and the sizes that differ from the default."""
        options = str(self.config)
        return f"charlm:{options}" if options else "charlm"

    @property
    def description(self) -> str:
        """One line for people."""
        c = self.config
        return (
            f"Llama-shaped character model: {c.layers} layers of width {c.width}, {c.elements:,} elements, "
            f"batches of {c.rows} rows of {c.context} characters of Python's standard library"
        )

    def initial_state(self) -> HostState:
        """Initial weights drawn from the seed; m and v start at zero."""
        return HostState({name: w.ravel() for name, w in initial_weights(self.config).items()}, {}, {})

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        """Grads of `step`'s batch at the weights of now; the loss is in nats a character."""
        loss, gradients = loss_and_gradients(self.config, read_weights(), self.batch(step))
        return HostGradients({name: _flat(g) for name, g in gradients.items()}, loss)

    def batch(self, step: int) -> Tokens:
        """The characters of a step: uint8 [rows, context + 1], each row a random place in the text."""
        length = self.config.context + 1
        starts = np.random.default_rng([self.config.seed, step]).integers(
            0, self._text.size - length, size=self.config.rows, endpoint=True
        )
        rows: Tokens = self._text[starts[:, None] + np.arange(length)]
        return rows

    def sample(self, weights: Mapping[str, F32Array], count: int, seed: int = 0) -> str:
        """`count` characters that the model writes after a newline, drawn by their probability.

        Weights that are not finite write only the symbol for unknown characters.
        """
        rng = np.random.default_rng(seed)
        tokens = np.zeros(count + 1, dtype=np.uint8)
        for at in range(1, count + 1):
            seen = tokens[max(0, at - self.config.context) : at]
            with np.errstate(all="ignore"):
                scores = logits(
                    PLAIN, self.config, weights, one_hot_of(seen, np.dtype(np.float32)), seen.size
                )[-1]
                cumulative = np.exp(scores.astype(np.float64) - scores.max()).cumsum()
                drawn = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
                tokens[at] = min(drawn, UNKNOWN)
        return decode(tokens[1:])

    @cached_property
    def _text(self) -> Tokens:
        """Read when the first batch is made, which keeps the start quick."""
        text = read_text(self._folder, self.config.seed)
        if text.size <= self.config.context:
            raise UsageError(_no_text(self._folder))
        return text


def _no_text(folder: Path) -> str:
    return (
        f"charlm trains on the source files of Python's standard library, and {folder} has too few of them: "
        "use a Python installed with its sources, or start with another source such as synthetic:1000000."
    )


def _flat(gradient: FloatArray) -> F32Array:
    return np.ascontiguousarray(gradient, dtype=np.float32).ravel()
