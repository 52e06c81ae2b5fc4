"""What the lanes of a run are filled with: given by the host, or drawn on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.generator import GRADIENT_STREAM, WEIGHT_STREAM, Generator
from inspector.gpu.half_mirror import mirror_weights
from inspector.gpu.memory import LaneMemory
from inspector.gpu.param_states import write_states
from inspector.gpu.pipelines import Pipelines
from inspector.layout import Layout
from inspector.plan import Plan, binding_elements
from inspector.statistics import BufferStats, added_up, buffer_stats
from inspector.stepping import GeneratedGradients, GeneratedState, Gradients, HostState, State
from inspector.stores import MOMENTS, Lane


class Filling:
    """Writes states and gradients into `memory`."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines, memory: LaneMemory) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._memory = memory
        self._generator: Generator | None = None
        self._given: HostState | None = None
        """What coded lanes were made of, until the first step: only who asks has it counted."""

    def close(self) -> None:
        """Give back what numbers are drawn with."""
        if self._generator is not None:
            self._generator.close()

    def fill(self, plan: Plan, state: State, told: Callable[[int], None] = lambda elements: None) -> None:
        """Put w, m, v and the states of `plan` in place; `told` of elements as they are uploaded.

        Of a generated state m and v are left as they are where they are float32: new buffers hold 0.
        """
        given = {} if isinstance(state, GeneratedState) else state.states
        write_states(self._gpu, self._memory.buffers, plan.states, given)
        if isinstance(state, GeneratedState):
            self._generate("w", state.normal, state.seed, 0, WEIGHT_STREAM)
            if self._memory.coded:
                for moment in MOMENTS:
                    self._memory.upload(moment, {}, {})
            return
        lanes: tuple[tuple[Lane, Mapping[str, F32Array]], ...] = (
            ("w", state.w), ("m", state.m), ("v", state.v),
        )  # fmt: skip
        for lane, values in lanes:
            self._memory.upload(lane, values, state.coded, told)
        if self._memory.coded:
            self._given = state

    def given_counts(self, lane: Lane) -> BufferStats | None:
        """Counts over all params of a coded lane as it was given; None where it is the same as what it holds."""
        given = {"m": self._given.m, "v": self._given.v}.get(lane) if self._given is not None else None
        return None if given is None else _counted(self._memory.layout, given)

    def forget(self) -> None:
        """What was given is no longer what the lanes hold."""
        self._given = None

    def replace(self, plan: Plan, state: State, progress: Callable[[float], None]) -> None:
        """Put another state in place of the one that is there, with gradients of 0.

        `progress` is told the share that is done; what it raises leaves parts of either state.
        """
        layout, done = self._memory.layout, 0

        def told(elements: int) -> None:
            nonlocal done
            progress(done / (4 * max(layout.elements, 1)))
            done += elements

        if isinstance(state, GeneratedState) and not self._memory.coded:
            for moment in MOMENTS:
                self._memory.upload(moment, {}, {}, told)
        self.fill(plan, state, told)
        self._memory.upload("g", {}, {}, told)
        mirror_weights(self._gpu, self._pipelines, self._memory)
        self.forget()

    def load_gradients(self, gradients: Gradients) -> None:
        """Put the gradients of a step in place."""
        if isinstance(gradients, GeneratedGradients):
            self._generate("g", gradients.normal, gradients.seed, gradients.step, GRADIENT_STREAM)
        else:
            self._memory.upload("g", gradients.values, {})

    def _generate(self, lane: Lane, normal: Any, seed: int, step: int, stream: int) -> None:
        layout = self._memory.layout
        if self._generator is None:
            self._generator = Generator(
                self._gpu, self._pipelines, layout, binding_elements(layout, self._gpu.limits)
            )
        pages = [self._memory.buffers[name] for name in self._memory.pages(lane)]
        self._generator.fill(pages, lane, normal, seed=seed, step=step, stream=stream)


def _counted(layout: Layout, values: Mapping[str, F32Array]) -> BufferStats:
    """Counts of a lane given by param name; a missing param is 0."""
    parts = []
    for s in layout:
        given = values.get(s.name)
        flat = np.zeros(s.numel, np.float32) if given is None else np.asarray(given, np.float32).reshape(-1)
        parts.append(buffer_stats(flat, start=s.offset))
    return added_up(parts)
