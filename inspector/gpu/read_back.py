"""Whole lanes read back by param name, and the state that they are."""

from __future__ import annotations

import numpy as np

from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.memory import LaneMemory
from inspector.gpu.param_states import read_states
from inspector.plan import Plan
from inspector.progress import counting
from inspector.stepping import HostState
from inspector.stores import MOMENTS, Lane

READ_AT_ONCE = 1 << 22
"""Elements of a lane that are read back between two looks at whether they are still wanted."""


def read_params(memory: LaneMemory, lane: Lane) -> dict[str, F32Array]:
    """A lane by param name, each flat."""
    return _by_param(memory, memory.read(lane, 0, memory.end))


def read_state(gpu: Gpu, memory: LaneMemory, plan: Plan, finished_steps: int) -> HostState:
    """w, m, v by param name; nothing of a moment that the optimizer does not keep. It says how far it is."""
    wanted = [lane for lane in ("w", *MOMENTS) if lane in plan.lanes]
    end = memory.end
    begun = counting(len(wanted) * end)
    split: dict[str, dict[str, F32Array]] = {"w": {}, "m": {}, "v": {}}
    for lane in wanted:
        values = np.empty(end, np.float32)
        for start in range(0, end, READ_AT_ONCE):
            count = min(READ_AT_ONCE, end - start)
            begun(count)
            values[start : start + count] = memory.read(lane, start, count)
        split[lane] = _by_param(memory, values)
    coded = memory.coded_state()
    states = read_states(gpu, memory.buffers, plan.states)
    return HostState(split["w"], split["m"], split["v"], finished_steps, coded, states)


def _by_param(memory: LaneMemory, values: F32Array) -> dict[str, F32Array]:
    return {s.name: values[s.offset : s.stop] for s in memory.layout}
