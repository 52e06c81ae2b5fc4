"""Captured tensors read back: a file is checked against its checksum when it is first used, then mapped."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from inspector.codecs import BLOCK, CODECS, Codec, Encoded, Moments8bit, Which, blocks, decode
from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.layout import Param
from inspector.session.places import Places
from inspector.session.records import StoredFile
from inspector.session.tensor_store import MAX_TENSORS, file_crc32
from inspector.session.tensorfile import TensorFile
from inspector.stepping import HostState
from inspector.stores import MOMENTS, Lane

_STATE: tuple[Lane, ...] = ("w", "m", "v")
OPEN_FILES = 64
"""Maps kept at a time."""
_TENSORS_A_PARAM = 5
"""At most: w, and codes and scales of m and v."""


class CapturedTensors:
    """The tensor files of a session; `file_of` gives the one with the capture of a step and kind, None without."""

    def __init__(
        self,
        places: Places,
        params: Sequence[Param],
        file_of: Callable[[int, str], StoredFile | None],
    ) -> None:
        self._places = places
        self._params = {p.name: p for p in params}
        self._signs = max((sum(map(name.count, "{[,:")) for name in self._params), default=0)
        self._file_of = file_of
        self._open: OrderedDict[str, TensorFile] = OrderedDict()
        self._checked: set[tuple[str, int]] = set()

    def forget(self) -> None:
        """The files may have changed."""
        self._open.clear()
        self._checked.clear()

    def tensor(self, lane: Lane, step: int, param: str) -> F32Array:
        """In its shape, read-only. Gradients of the step; w, m, v after it. Coded state is decoded, the rest mapped."""
        shape = self._param(param).shape
        kind = "gradients" if lane == "g" else "keyframe"
        file = self._file(step, kind)
        key = f"{lane}@{step}/{param}"
        if key in file.entries:
            values = self._floats(file, key, shape)
        elif lane in ("m", "v") and f"{lane}_codes@{step}/{param}" in file.entries:
            values = self._decoded(file, lane, step, param)
        elif lane == "w":
            raise UsageError(
                f"{self._places.path} is damaged: the weights of {param!r} at step {step} are missing."
            )
        else:
            # As offered: what is missing in gradients or moments is 0.
            values = np.zeros(shape, np.float32)
        values.flags.writeable = False
        return values

    def window(self, lane: Lane, step: int, param: str, start: int, stop: int) -> F32Array:
        """A copy of elements [start, stop) of a tensor, flat; of coded state only their blocks are decoded."""
        file = self._file(step, "gradients" if lane == "g" else "keyframe")
        if lane in MOMENTS and f"{lane}_codes@{step}/{param}" in file.entries:
            first, last = start // BLOCK, blocks(stop)
            encoded = self._encoded(file, lane, step, param)
            part = Encoded(encoded.codes[BLOCK * first : BLOCK * last], encoded.scales[first:last])
            with np.errstate(all="ignore"):
                values = decode(self._codec(file, step), lane, part.codes, part.scales)
            return np.array(values[start - BLOCK * first : stop - BLOCK * first], np.float32)
        return self.tensor(lane, step, param).reshape(-1)[start:stop].copy()

    def gradients(self, step: int) -> dict[str, F32Array]:
        """The gradients of a step by param name, flat, as far as they were offered."""
        file = self._file(step, "gradients")
        return {
            name: self.tensor("g", step, name).reshape(-1)
            for name in self._params
            if f"g@{step}/{name}" in file.entries
        }

    def state(self, step: int) -> HostState:
        """The state after a step, codes included."""
        file = self._file(step, "keyframe")
        lanes: dict[Lane, dict[str, F32Array]] = {"w": {}, "m": {}, "v": {}}
        coded: dict[str, Moments8bit] = {}
        for name in self._params:
            for lane in _STATE:
                if lane == "w" or any(
                    f"{lane}{part}@{step}/{name}" in file.entries for part in ("", "_codes")
                ):
                    lanes[lane][name] = self.tensor(lane, step, name).reshape(-1)
            if f"m_codes@{step}/{name}" in file.entries:
                m, v = (self._encoded(file, which, step, name) for which in MOMENTS)
                coded[name] = Moments8bit(self._codec(file, step), m, v)
        return HostState(lanes["w"], lanes["m"], lanes["v"], step, coded)

    def check(self, file: StoredFile) -> None:
        """UsageError where a file is not as it was written."""
        self._opened(file)

    # --- inner parts

    def _param(self, name: str) -> Param:
        param = self._params.get(name)
        if param is None:
            raise UsageError(f"{self._places.path} has no param {name!r}.")
        return param

    def _file(self, step: int, kind: str) -> TensorFile:
        stored = self._file_of(step, kind)
        if stored is None:
            what = "gradients of step" if kind == "gradients" else "state after step"
            raise UsageError(f"{self._places.path} holds no {what} {step:,}: they were not captured.")
        return self._opened(stored)

    def _opened(self, stored: StoredFile) -> TensorFile:
        file = self._open.get(stored.name)
        if file is not None:
            self._open.move_to_end(stored.name)
            return file
        place = self._places.place(stored)
        try:
            if (stored.name, stored.crc32) not in self._checked:
                if file_crc32(place.path, place.start, place.size) != stored.crc32:
                    raise UsageError(
                        f"{self._places.path} is damaged: {stored.name} does not match its checksum."
                    )
                self._checked.add((stored.name, stored.crc32))
            file = TensorFile(
                place.path,
                within=(place.start, place.size),
                max_tensors=MAX_TENSORS + _TENSORS_A_PARAM * len(self._params),
                max_signs=self._signs,
            )
        except OSError as error:
            raise UsageError(f"{place.path} cannot be read: {error.strerror or error}.") from None
        self._open[stored.name] = file
        if len(self._open) > OPEN_FILES:
            self._open.popitem(last=False)
        return file

    def _floats(self, file: TensorFile, key: str, shape: tuple[int, ...]) -> F32Array:
        entry = file.entries[key]
        if entry.dtype != "F32" or entry.shape != shape:
            raise UsageError(
                f"{self._places.path} is damaged: tensor {key!r} is {entry.dtype} {list(entry.shape)}, "
                f"not F32 {list(shape)}."
            )
        return file.floats(key)

    def _encoded(self, file: TensorFile, which: Which, step: int, param: str) -> Encoded:
        codes, scales = f"{which}_codes@{step}/{param}", f"{which}_scales@{step}/{param}"
        count = blocks(self._param(param).numel)
        whole = codes in file.entries and file.entries[codes].shape == (256 * count,)
        if not whole or scales not in file.entries:
            raise UsageError(
                f"{self._places.path} is damaged: the codes of {param!r} at step {step} are not whole."
            )
        values = file.codes(codes)
        if values.dtype != (np.uint8 if self._codec(file, step) == "dynamic" else np.int8):
            raise UsageError(f"{self._places.path} is damaged: {codes!r} does not suit its codec.")
        return Encoded(values, self._floats(file, scales, (count,)))

    def _decoded(self, file: TensorFile, which: Which, step: int, param: str) -> F32Array:
        encoded = self._encoded(file, which, step, param)
        with np.errstate(all="ignore"):
            values = decode(self._codec(file, step), which, encoded.codes, encoded.scales)
        shape = self._param(param).shape
        return np.asarray(values[: self._param(param).numel], np.float32).reshape(shape)

    def _codec(self, file: TensorFile, step: int) -> Codec:
        codec = file.metadata.get(f"codec@{step}")
        if codec not in CODECS:
            raise UsageError(f"{self._places.path} is damaged: the codec of step {step} is {codec!r}.")
        return codec
