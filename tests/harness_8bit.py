"""The 8-bit kernels on buffers of their own, without a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.codecs import Codec, Encoded, Which, blocks, pack, unpack, zero_word
from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.pipelines_8bit import (
    CODER_CONSTANTS,
    DECODE_SLOTS,
    ELEMENTS_A_GROUP,
    ENCODE_SLOTS,
    UPDATE_SLOTS,
)
from inspector.hyper import Hyper, Numerics, adam_hp_uniform, bias_uniform
from inspector.optimizers.adamw.oracle_8bit import Moments8bit
from inspector.plan import Access

MARK = np.float32(1.5)
"""What stands beyond the last element of w and g; nobody may change it."""
BEYOND = 64

U32 = npt.NDArray[np.uint32]


@dataclass
class Outcome:
    w: F32Array
    g: F32Array
    state: Moments8bit
    words: tuple[U32, U32]


class Bench8bit:
    """Runs the kernels. `rows` limits the groups of a row, so that grids of several rows show at small sizes."""

    def __init__(self, gpu: Gpu, rows: int = 65_535) -> None:
        self.gpu = gpu
        self.pipelines = Pipelines(gpu)
        self.rows = rows

    def update(
        self,
        w: F32Array,
        g: F32Array,
        state: Moments8bit,
        *,
        hyper: Hyper,
        step: int,
        scale: float = 1.0,
        decays: bool = True,
        numerics: Numerics = "published",
        steps: int = 1,
        constants: Sequence[tuple[str, float]] = (),
    ) -> Outcome:
        """One step, or several with the same gradient, on w and g of any size and the state of whole blocks."""
        n, codec = w.size, state.codec
        beyond = np.full(BEYOND, MARK, np.float32)
        arrays: list[npt.NDArray[Any]] = [
            np.concatenate((w, beyond)), np.concatenate((g, beyond)), pack(state.m.codes), pack(state.v.codes),
            state.m.scales, state.v.scales, np.float32([0, scale]), np.uint32([n]),
            adam_hp_uniform(hyper, step, decays=decays), bias_uniform(hyper, step, numerics),
        ]  # fmt: skip
        buffers = self._buffers(arrays, UPDATE_SLOTS)
        form = (*CODER_CONSTANTS[codec], ("PRECISE", float(numerics == "precise")), *constants)
        pipeline = self.pipelines.get("adamw_8bit_update", "adamw_8bit_update", UPDATE_SLOTS, form)
        for k in range(steps):
            self.gpu.write(buffers[1], 0, g)
            self.gpu.write(buffers[8], 0, adam_hp_uniform(hyper, step + k, decays=decays))
            self.gpu.write(buffers[9], 0, bias_uniform(hyper, step + k, numerics))
            self._dispatch(pipeline, UPDATE_SLOTS, buffers, arrays, n)
        got = [self._read(b, a) for b, a in zip(buffers[:6], arrays[:6], strict=True)]
        for lane in got[:2]:
            assert (lane[n:] == MARK).all()
        for buffer in buffers:
            self.gpu.release(buffer)
        after = Moments8bit(
            codec,
            Encoded(unpack(codec, got[2]), got[4]),
            Encoded(unpack(codec, got[3]), got[5]),
        )
        return Outcome(got[0][:n], got[1][:n], after, (got[2], got[3]))

    def encode(self, codec: Codec, which: Which, values: F32Array) -> Encoded:
        n = values.size
        words = np.full(64 * blocks(n), zero_word(codec, which), np.uint32)
        what = np.uint32([n, which == "v"])
        # What follows the last element is not the encoder's business.
        arrays = [
            words,
            np.zeros(blocks(n), np.float32),
            np.append(values, np.full(BEYOND, 99, np.float32)),
            what,
        ]
        pipeline = self.pipelines.get("encode_8bit", "encode_8bit", ENCODE_SLOTS, CODER_CONSTANTS[codec])
        words, scales = self._run(pipeline, ENCODE_SLOTS, arrays, n, (0, 1))
        return Encoded(unpack(codec, words), scales)

    def decode(self, codec: Codec, which: Which, coded: Encoded, n: int) -> F32Array:
        out = np.full(n + BEYOND, MARK, np.float32)
        arrays = [pack(coded.codes), coded.scales, out, np.uint32([n, which == "v"])]
        pipeline = self.pipelines.get("decode_8bit", "decode_8bit", DECODE_SLOTS, CODER_CONSTANTS[codec])
        (values,) = self._run(pipeline, DECODE_SLOTS, arrays, n, (2,))
        assert (values[n:] == MARK).all()
        return values[:n]

    def _run(
        self,
        pipeline: Any,
        slots: tuple[tuple[int, Access], ...],
        arrays: list[Any],
        n: int,
        read: tuple[int, ...],
    ) -> list[Any]:
        buffers = self._buffers(arrays, slots)
        self._dispatch(pipeline, slots, buffers, arrays, n)
        got = [self._read(buffers[k], arrays[k]) for k in read]
        for buffer in buffers:
            self.gpu.release(buffer)
        return got

    def _buffers(self, arrays: list[Any], slots: tuple[tuple[int, Access], ...]) -> list[Any]:
        made = []
        for array, (_, access) in zip(arrays, slots, strict=True):
            make = self.gpu.uniform if access == "uniform" else self.gpu.storage
            buffer = make("test", array.nbytes)
            self.gpu.write(buffer, 0, array)
            made.append(buffer)
        return made

    def _dispatch(
        self,
        pipeline: Any,
        slots: tuple[tuple[int, Access], ...],
        buffers: list[Any],
        arrays: list[Any],
        n: int,
    ) -> None:
        groups = -(-n // ELEMENTS_A_GROUP)
        x = min(groups, self.rows)
        ranges = [
            (buffer, 0, -(-array.nbytes // 16) * 16) for buffer, array in zip(buffers, arrays, strict=True)
        ]
        encoder = self.gpu.encoder()
        in_pass = encoder.begin_compute_pass()
        in_pass.set_pipeline(pipeline)
        in_pass.set_bind_group(0, self.pipelines.bind(slots, ranges))
        in_pass.dispatch_workgroups(x, -(-groups // x))
        in_pass.end()
        self.gpu.submit(encoder)

    def _read(self, buffer: Any, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self.gpu.read(buffer, 0, like.nbytes).view(like.dtype)
