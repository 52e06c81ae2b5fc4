"""Captured tensors read back: what is used of a file is held against its checksums the first time, then mapped."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator

import numpy as np

from inspector.codecs import BLOCK, CODECS, Codec, Codes, Encoded, Moments8bit, Which, blocks, decode
from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.layout import Param
from inspector.session.checksums import PART_BYTES, file_checksum
from inspector.session.places import Place, Places
from inspector.session.records import About, StoredFile
from inspector.session.tensor_store import MAX_TENSORS
from inspector.session.tensorfile import TensorFile
from inspector.stepping import HostState
from inspector.stores import LANES, MOMENTS, Lane

_STATE: tuple[Lane, ...] = ("w", "m", "v")
OPEN_FILES = 64
"""Maps kept at a time."""
_TENSORS_A_PARAM = 5 + 8
"""At most: w, codes and scales of m and v, and states in shapes of their own."""
_STATE_KEY = re.compile(r"(?P<state>[a-z]\w{1,31})@(?P<step>[0-9]{1,19})/(?P<param>.+)", re.DOTALL)
_CODED = {f"{lane}_{part}" for lane in MOMENTS for part in ("codes", "scales")}


class _CheckedFile:
    """A tensor file of which nothing is given out that was not held against its checksum."""

    def __init__(self, stored: StoredFile, place: Place, damaged: str, **limits: int) -> None:
        """`damaged` is the sentence for a part that does not match; `limits` as of TensorFile."""
        self.stored = stored
        self._place, self._damaged = place, damaged
        parts = stored.parts or (stored.crc32,)
        self._part_bytes = PART_BYTES if stored.parts else max(stored.size, 1)
        self._unchecked = set(range(len(parts)))
        self._checksums = parts
        if len(parts) != max(-(-stored.size // self._part_bytes), 1):
            raise UsageError(damaged)
        # The header before anything in it is believed: its length, then all of it.
        self._check(0, min(8, stored.size))
        with place.path.open("rb") as file:
            file.seek(place.start)
            length = int.from_bytes(file.read(8), "little")
        self._check(0, min(8 + length, stored.size))
        self._file = TensorFile(place.path, within=(place.start, place.size), **limits)
        self.entries, self.metadata = self._file.entries, self._file.metadata

    def check_all(self) -> None:
        """UsageError where any of it is not as it was written."""
        self._check(0, self.stored.size)

    def floats(self, key: str, first: int = 0, last: int | None = None) -> F32Array:
        """A float tensor; only its elements [first, last) are checked, flat, where these are given."""
        entry = self.entries[key]
        if last is None:
            self._check_place(entry.start, entry.stop)
            return self._file.floats(key)
        # F32 by then.
        self._check_place(entry.start + 4 * first, entry.start + 4 * last)
        return self._file.floats(key).reshape(-1)[first:last]

    def codes(self, key: str) -> Codes:
        """A tensor of codes."""
        entry = self.entries[key]
        self._check_place(entry.start, entry.stop)
        return self._file.codes(key)

    def _check_place(self, start: int, stop: int) -> None:
        self._check(start - self._place.start, stop - self._place.start)

    def _check(self, start: int, stop: int) -> None:
        """Hold bytes [start, stop) of the file against the checksums of the parts they lie in."""
        each = self._part_bytes
        for part in range(start // each, -(-stop // each) or 1):
            if part not in self._unchecked:
                continue
            at = part * each
            try:
                found = file_checksum(
                    self._place.path, self._place.start + at, min(each, self.stored.size - at)
                )
            except OSError as error:
                raise UsageError(f"{self._place.path} cannot be read: {error.strerror or error}.") from None
            if found != self._checksums[part]:
                raise UsageError(self._damaged)
            self._unchecked.discard(part)


class CapturedTensors:
    """The tensor files of a session; `file_of` gives the one with the capture of a step and kind, None without."""

    def __init__(
        self,
        places: Places,
        about: About,
        file_of: Callable[[int, str], StoredFile | None],
    ) -> None:
        self._places = places
        self._file_of = file_of
        self._open: OrderedDict[str, _CheckedFile] = OrderedDict()
        self.use(about)

    def use(self, about: About) -> None:
        """The session is of these params."""
        self._params = {p.name: p for p in about.params}
        self._joined = {p.name: each.step for each in about.added for p in about.params[each.params :]}
        """The step from which on a param that was added takes part."""
        self._signs = max((sum(map(name.count, "{[,:")) for name in self._params), default=0)

    def forget(self) -> None:
        """The files may have changed."""
        self._open.clear()

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
        elif lane == "w" and step < self._joined.get(param, 0):
            raise UsageError(
                f"{self._places.path} holds no weights of {param!r} at step {step:,}: it takes part from step "
                f"{self._joined[param]:,} on."
            )
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
        key = f"{lane}@{step}/{param}"
        if key in file.entries:
            return self._floats(file, key, self._param(param).shape, start, stop).copy()
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
            if f"w@{step}/{name}" not in file.entries and step < self._joined.get(name, 0):
                # Not there yet: it is idle until it is.
                lanes["w"][name] = np.zeros(self._params[name].numel, np.float32)
                continue
            for lane in _STATE:
                if lane == "w" or any(
                    f"{lane}{part}@{step}/{name}" in file.entries for part in ("", "_codes")
                ):
                    lanes[lane][name] = self.tensor(lane, step, name).reshape(-1)
            if f"m_codes@{step}/{name}" in file.entries:
                coded[name] = self.codes(step, name)
        return HostState(lanes["w"], lanes["m"], lanes["v"], step, coded, self._states(file, step))

    def param_state(self, name: str, step: int, param: str) -> F32Array:
        """A state in a shape of its own after a step, in that shape, read-only; UsageError where there is none."""
        self._param(param)
        file, key = self._file(step, "keyframe"), f"{name}@{step}/{param}"
        if key not in file.entries or name in LANES or name in _CODED:
            has = sorted({each for each, _, of in self._state_keys(file, step) if of == param})
            there = f"it has {', '.join(has)}" if has else "it has no state in a shape of its own"
            raise UsageError(f"{self._places.path} holds no {name!r} of {param!r} at step {step:,}: {there}.")
        return self._state(file, key)

    def param_states(self, step: int) -> dict[str, dict[str, F32Array]]:
        """All of them, by state and param."""
        return self._states(self._file(step, "keyframe"), step)

    def holds(self, lane: Lane, step: int, param: str) -> bool:
        """True where the capture of that step has something of the lane of a param."""
        entries = self._file(step, "gradients" if lane == "g" else "keyframe").entries
        return f"{lane}@{step}/{param}" in entries or f"{lane}_codes@{step}/{param}" in entries

    def holds_codes(self, step: int, param: str) -> bool:
        """True where its m and v were kept in 8 bits."""
        return f"m_codes@{step}/{param}" in self._file(step, "keyframe").entries

    def codes(self, step: int, param: str) -> Moments8bit:
        """m and v of a param as their codes; UsageError where they are not kept in 8 bits."""
        self._param(param)
        file = self._file(step, "keyframe")
        if f"m_codes@{step}/{param}" not in file.entries:
            raise UsageError(
                f"{self._places.path} holds no codes of {param!r}: its m and v are float32 there."
            )
        m, v = (self._encoded(file, which, step, param) for which in MOMENTS)
        return Moments8bit(self._codec(file, step), m, v)

    def check(self, file: StoredFile) -> None:
        """UsageError where a file is not as it was written."""
        self._opened(file).check_all()

    # --- inner parts

    def _states(self, file: _CheckedFile, step: int) -> dict[str, dict[str, F32Array]]:
        found: dict[str, dict[str, F32Array]] = {}
        for name, key, param in self._state_keys(file, step):
            found.setdefault(name, {})[param] = self._state(file, key)
        return found

    def _state_keys(self, file: _CheckedFile, step: int) -> Iterator[tuple[str, str, str]]:
        """Name, key and param of each state in a shape of its own."""
        for key in file.entries:
            match = _STATE_KEY.fullmatch(key)
            if match is None or match["state"] in _CODED or int(match["step"]) != step:
                continue
            if match["param"] in self._params:
                yield match["state"], key, match["param"]

    def _state(self, file: _CheckedFile, key: str) -> F32Array:
        values = self._floats(file, key, file.entries[key].shape)
        values.flags.writeable = False
        return values

    def _param(self, name: str) -> Param:
        param = self._params.get(name)
        if param is None:
            raise UsageError(f"{self._places.path} has no param {name!r}.")
        return param

    def _file(self, step: int, kind: str) -> _CheckedFile:
        stored = self._file_of(step, kind)
        if stored is None:
            what = "gradients of step" if kind == "gradients" else "state after step"
            raise UsageError(f"{self._places.path} holds no {what} {step:,}: they were not captured.")
        return self._opened(stored)

    def _opened(self, stored: StoredFile) -> _CheckedFile:
        file = self._open.get(stored.name)
        if file is not None and file.stored == stored:
            self._open.move_to_end(stored.name)
            return file
        place = self._places.place(stored)
        try:
            file = _CheckedFile(
                stored,
                place,
                f"{self._places.path} is damaged: {stored.name} does not match its checksum.",
                max_tensors=MAX_TENSORS + _TENSORS_A_PARAM * len(self._params),
                max_signs=self._signs,
            )
        except OSError as error:
            raise UsageError(f"{place.path} cannot be read: {error.strerror or error}.") from None
        self._open[stored.name] = file
        if len(self._open) > OPEN_FILES:
            self._open.popitem(last=False)
        return file

    def _floats(
        self, file: _CheckedFile, key: str, shape: tuple[int, ...], first: int = 0, last: int | None = None
    ) -> F32Array:
        entry = file.entries[key]
        if entry.dtype != "F32" or entry.shape != shape:
            raise UsageError(
                f"{self._places.path} is damaged: tensor {key!r} is {entry.dtype} {list(entry.shape)}, "
                f"not F32 {list(shape)}."
            )
        return file.floats(key, first, last)

    def _encoded(self, file: _CheckedFile, which: Which, step: int, param: str) -> Encoded:
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

    def _decoded(self, file: _CheckedFile, which: Which, step: int, param: str) -> F32Array:
        encoded = self._encoded(file, which, step, param)
        with np.errstate(all="ignore"):
            values = decode(self._codec(file, step), which, encoded.codes, encoded.scales)
        shape = self._param(param).shape
        return np.asarray(values[: self._param(param).numel], np.float32).reshape(shape)

    def _codec(self, file: _CheckedFile, step: int) -> Codec:
        codec = file.metadata.get(f"codec@{step}")
        if codec not in CODECS:
            raise UsageError(f"{self._places.path} is damaged: the codec of step {step} is {codec!r}.")
        return codec
