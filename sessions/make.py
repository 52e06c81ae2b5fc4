"""Makes the example sessions beside this file anew: python sessions/make.py [NAME ...].

Real training of a small character model, seeded. The text is the standard library of the Python that runs this, so
another version gives other losses. An adapter that every machine can have is used, Mesa's software Vulkan, on which a
replay of them gives the same bits.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from inspector.gpu.opener import StepperMaker
from inspector.hyper import Hyper
from inspector.plan import Variant
from inspector.runtime.engine import Engine
from inspector.runtime.recording import Recording
from inspector.schedule import Schedule
from inspector.session.archive import pack
from inspector.session.policy import Policy
from inspector.session.reader import Session
from inspector.sources.base import ReadWeights
from inspector.sources.charlm.config import CharLmConfig
from inspector.sources.charlm.source import CharLm
from inspector.stepping import HostGradients

ADAPTER = "llvmpipe"
STEPS = 48
SMALL = CharLmConfig(width=16, layers=1, heads=2, ffn=44)
WIDER = CharLmConfig(width=32, layers=1, ffn=88)
BAD_STEP = 30
BAD_PARAM = "h.0.ffn.down.weight"
BAD_ELEMENTS = range(1234, 1237)


class WithNan(CharLm):
    """The model with gradients of one tensor lost at one step, as an overflow in a backward pass leaves it."""

    @property
    def name(self) -> str:
        return f"{super().name} with NaN"

    @property
    def description(self) -> str:
        return f"{super().description}; gradients of {BAD_PARAM} set to NaN at step {BAD_STEP}"

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        given = super().gradients(step, read_weights)
        if step == BAD_STEP:
            values = given.values[BAD_PARAM].copy()
            values[BAD_ELEMENTS] = math.nan
            given = HostGradients({**given.values, BAD_PARAM: values}, given.loss)
        return given


@dataclass(frozen=True, slots=True)
class Example:
    """How an example is recorded."""

    source: CharLm
    policy: str
    hyper: Hyper = field(default_factory=lambda: Hyper(1e-2, 0.9, 0.95, 1e-8, 0.1, 1.0))


EXAMPLES = {
    "healthy": Example(CharLm(SMALL, schedule=Schedule(warmup=8)), "grads:1+keyframes:16"),
    "nan-gradient": Example(WithNan(WIDER, schedule=Schedule(warmup=8)), "flight:6"),
    # A second moment that forgets within two steps, under a first one that remembers fifty: where g shrinks, v
    # follows at once and m does not. Nothing clips.
    "diverges": Example(
        CharLm(SMALL, schedule=Schedule(warmup=10)),
        "grads:1+keyframes:16",
        Hyper(3e-2, 0.98, 0.3, 1e-8, 0.0, 1e9),
    ),
}


def record(example: Example, path: Path, *, steps: int = STEPS, adapter: str | None = ADAPTER) -> None:
    """Record `steps` of an example at `path`."""
    source = example.source
    stepper = StepperMaker(adapter, undo_bytes=0).make(source.params, Variant(), source.initial_state())
    try:
        engine = Engine(source, stepper, hyper=example.hyper, keep_checkpoint=False, stats="full")
        recording = Recording.start(engine, path, Policy.from_text(example.policy), planned_steps=steps)
        for _ in range(steps):
            engine.step_iteration()
        recording.end()
    finally:
        stepper.close()


def main() -> None:
    """Record and pack those that are named, all of them by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(EXAMPLES))
    names = parser.parse_args().names or list(EXAMPLES)
    for name in names:
        if name not in EXAMPLES:
            parser.error(f"there is no example {name!r}: name one of {', '.join(EXAMPLES)}")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.session"
            record(EXAMPLES[name], path)
            packed = pack(path)
            with Session.open(packed) as session:
                losses = session.metric("loss")
            out = Path(__file__).with_name(packed.name)
            shutil.copyfile(packed, out)
        text = f"{out.name}: {out.stat().st_size / 1e6:.1f} MB, loss {losses[0]:.2f}, at best {losses.min():.2f} "
        sys.stdout.write(f"{text}in step {losses.argmin() + 1}, at last {losses[-1]:.2f}\n")


if __name__ == "__main__":
    main()
