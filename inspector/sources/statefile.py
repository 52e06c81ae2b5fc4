"""State files: weights, gradients and moments of one or several steps in one safetensors file.

Tensors w/NAME and g/NAME, optional m/NAME and v/NAME; g@T/NAME is the gradient of step T. Metadata: t (finished
steps), lr, beta1, beta2, eps, weight_decay, max_grad_norm, no_decay. Beside the m and v of a param with 8-bit state may
stand their codes and scales (m.codes/NAME, m.scales/NAME, the same of v; codec in the metadata), from which a run goes
on byte for byte. m/NAME and v/NAME are what counts: codes that stand for other values are left aside.
State in shapes of its own, as Adafactor's, stands there by its name: row_var/NAME.
Params with settings of their own stand in the metadata `groups`, see state_groups.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from inspector.codecs import BLOCK, CODECS, Codec, Encoded, Moments8bit, blocks
from inspector.errors import UsageError
from inspector.floats import F32Array, parse_number, shortest
from inspector.hyper import HYPER_NAMES, Hyper, with_values
from inspector.layout import Param
from inspector.optimizers import PARAM_STATES
from inspector.progress import counting
from inspector.schedule import Schedule
from inspector.session.tensorfile import TensorData, TensorFile, write_tensors
from inspector.settings import Settings
from inspector.sources.base import EndOfSourceError, ReadWeights
from inspector.sources.state_groups import KEY, read_groups, write_groups
from inspector.stepping import GradStats, HostGradients, HostState
from inspector.stores import MOMENTS

_KEY = re.compile(
    r"(?P<lane>[wgmv]|[a-z]\w{1,31})(?P<part>\.codes|\.scales)?(?:@(?P<step>[0-9]{1,10}))?/(?P<name>.+)",
    re.DOTALL,
)
MAX_STEP = 2**31 - 1
_HINT = "names are w/NAME, g/NAME, g@T/NAME, m/NAME and v/NAME, and " + ", ".join(
    f"{s}/NAME" for s in PARAM_STATES
)


class StateFile:
    """A state file as a source. Its settings are taken as they stand, however odd: they run as a kernel would."""

    def __init__(self, path: Path, *, schedule: Schedule | None = None) -> None:
        self._file = TensorFile(path)
        self.schedule = schedule or Schedule()
        self.name = str(path)
        self._lanes: dict[str, set[str]] = {lane: set() for lane in "wgmv"}
        self._steps: dict[int, set[str]] = {}
        self._states: dict[str, set[str]] = {}
        """The params that the file holds a state of in a shape of its own, by state."""
        self._coded: set[str] = set()
        """The params whose codes the file holds."""
        for key in self._file.entries:
            self._sort(key)
        if not self._lanes["w"]:
            raise UsageError(
                f"{path} holds no weights: a state file names them w/NAME, their gradients g/NAME."
            )
        self.finished_steps = self._finished_steps()
        if self._lanes["g"]:
            # g/ is the gradient buffer as it stands; what is given for the step by number goes before it.
            self._steps.setdefault(self.finished_steps + 1, self._lanes["g"])
        if not self._steps:
            raise UsageError(
                f"{path} holds no gradients: a state file names them g/NAME, or g@T/NAME for step T."
            )
        self.last_step: int | None = max(self._steps)
        self._check_shapes()
        self._check_codes()
        self.params, self.hyper = read_groups(
            self.name, self._file.metadata.get(KEY), self._params(), self._hyper(), self.finished_steps
        )
        elements = sum(p.numel for p in self.params)
        steps = "1 step" if len(self._steps) == 1 else f"{len(self._steps):,} steps"
        self.description = f"{elements:,} elements in {len(self.params):,} params, gradients of {steps}"
        given: set[str] = set().union(*self._steps.values())
        silent = sum(p.name not in given for p in self.params)
        if silent:
            self.description += f", none for {silent:,} params, which are taken as 0"
        self._order = [p.name for p in self.params]

    def initial_state(self) -> HostState:
        """w, m, v as in the file, widened to float32; t as in the metadata."""
        lanes: dict[str, dict[str, F32Array]] = {}
        states: dict[str, dict[str, F32Array]] = {}
        begun = counting(sum(map(len, (*(self._lanes[lane] for lane in "wmv"), *self._states.values()))))
        for lane in "wmv":
            lanes[lane] = {}
            for name in self._order:
                if name in self._lanes[lane]:
                    begun(1)
                    lanes[lane][name] = self._flat(f"{lane}/{name}")
        for state, names in self._states.items():
            states[state] = {}
            for name in self._order:
                if name in names:
                    begun(1)
                    states[state][name] = self._file.floats(f"{state}/{name}")
        return HostState(lanes["w"], lanes["m"], lanes["v"], self.finished_steps, self._codes(lanes), states)

    def _codes(self, lanes: Mapping[str, Mapping[str, F32Array]]) -> dict[str, Moments8bit]:
        """The codes that stand for the m and v of the file."""
        found = {}
        for name in sorted(self._coded):
            m, v = (
                Encoded(self._file.codes(f"{lane}.codes/{name}"), self._file.floats(f"{lane}.scales/{name}"))
                for lane in "mv"
            )
            state = Moments8bit(self._codec, m, v)
            given = [(which, lanes[which].get(name)) for which in MOMENTS]
            if all(values is not None and state.stands_for(which, values) for which, values in given):
                found[name] = state
        return found

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        """The gradients of `step`; EndOfSourceError where the file has none for it."""
        names = self._steps.get(step)
        if names is None:
            have = ", ".join(str(s) for s in sorted(self._steps)[:8]) + (
                ", …" if len(self._steps) > 8 else ""
            )
            raise EndOfSourceError(
                f"{self.name} holds no gradients of step {step}; it has those of step {have}."
            )
        plain = names is self._lanes["g"]
        return HostGradients({n: self._flat(f"g/{n}" if plain else f"g@{step}/{n}") for n in names})

    def waiting_gradients(self) -> dict[str, F32Array]:
        """The gradient buffer as the file gives it, g/NAME, flat by param name."""
        return {name: self._flat(f"g/{name}") for name in self._lanes["g"]}

    def later_gradients(self, finished_steps: int) -> dict[str, F32Array]:
        """The gradients given by number for steps after `finished_steps`, by tensor name, in their shapes."""
        return {
            f"g@{step}/{name}": self._file.floats(f"g@{step}/{name}")
            for step, names in self._steps.items()
            if step > finished_steps and names is not self._lanes["g"]
            for name in sorted(names)
        }

    def has_step(self, step: int) -> bool:
        """True where the file holds gradients of that step."""
        return step in self._steps

    def _sort(self, key: str) -> None:
        match = _KEY.fullmatch(key)
        if match is not None and match["lane"] in PARAM_STATES and not match["part"] and not match["step"]:
            self._states.setdefault(match["lane"], set()).add(match["name"])
            return
        if match is not None and match["part"] and match["lane"] in MOMENTS and not match["step"]:
            self._coded.add(match["name"])
            return
        if (
            match is None
            or match["part"]
            or match["lane"] not in self._lanes
            or (match["step"] and match["lane"] != "g")
        ):
            raise UsageError(f"{self.name}: tensor {key!r} has no place in a state file: {_HINT}.")
        if match["step"] is None:
            self._lanes[match["lane"]].add(match["name"])
            return
        step = int(match["step"])
        if not 1 <= step <= MAX_STEP:
            raise UsageError(f"{self.name}: {key!r} names step {step}: steps count from 1.")
        self._steps.setdefault(step, set()).add(match["name"])

    def _finished_steps(self) -> int:
        text = self._file.metadata.get("t", "0")
        steps = int(text) if re.fullmatch("[0-9]{1,10}", text.strip()) else -1
        if not 0 <= steps < MAX_STEP:
            raise UsageError(
                f"{self.name}: t is {text[:40]!r}: it is the number of finished steps, from 0 to {MAX_STEP - 1}."
            )
        return steps

    def _check_shapes(self) -> None:
        entries = self._file.entries
        tensors = [(f"{lane}/{name}", name) for lane in "gmv" for name in self._lanes[lane]]
        tensors += [
            (f"g@{step}/{name}", name)
            for step, names in self._steps.items()
            if names is not self._lanes["g"]
            for name in names
        ]
        for key, name in sorted(tensors):
            weight = entries.get(f"w/{name}")
            if weight is None:
                raise UsageError(
                    f"{self.name} holds {key!r} but no 'w/{name}': every param needs its weights."
                )
            if entries[key].shape != weight.shape:
                other = self._same_shape(entries[key].shape, name)
                raise UsageError(
                    f"{self.name}: {key!r} has the shape {list(entries[key].shape)}, its weights 'w/{name}' have "
                    f"{list(weight.shape)}{other}."
                )

        for state, names in self._states.items():
            for name in sorted(names):
                weight, key = entries.get(f"w/{name}"), f"{state}/{name}"
                if weight is None:
                    raise UsageError(
                        f"{self.name} holds {key!r} but no 'w/{name}': every param needs its weights."
                    )
                wanted, found = PARAM_STATES[state].shape(weight.shape), entries[key].shape
                # Where the form decides on the shape too, it is held against that of the run.
                if wanted != found and (wanted is None or not PARAM_STATES[state].by_form):
                    has = "no such state" if wanted is None else f"one of shape {list(wanted)}"
                    raise UsageError(
                        f"{self.name}: {key!r} has the shape {list(entries[key].shape)}; a param of shape "
                        f"{list(weight.shape)} has {has}."
                    )

    def _check_codes(self) -> None:
        codec = self._file.metadata.get("codec", "")
        if self._coded and codec not in CODECS:
            raise UsageError(
                f"{self.name} holds codes, and its codec is {codec[:40]!r}: it has to be one of {', '.join(CODECS)}."
            )
        self._codec: Codec = next((known for known in CODECS if known == codec), CODECS[0])
        kind = "U8" if codec == "dynamic" else "I8"
        entries = self._file.entries
        for name in sorted(self._coded):
            if f"w/{name}" not in entries:
                raise UsageError(
                    f"{self.name} holds codes of {name!r} but no 'w/{name}': every param needs its weights."
                )
            n = blocks(math.prod(entries[f"w/{name}"].shape))
            for key, dtype, shape in (
                (f"{lane}.{part}/{name}", dtype, shape)
                for lane in MOMENTS
                for part, dtype, shape in (("codes", kind, (n * BLOCK,)), ("scales", "F32", (n,)))
            ):
                entry = entries.get(key)
                if entry is None or (entry.dtype, entry.shape) != (dtype, shape):
                    raise UsageError(
                        f"{self.name}: 8-bit state of {name!r} needs {key!r} of type {dtype} and shape {list(shape)}: "
                        "write all four tensors of it, or none."
                    )

    def _same_shape(self, shape: tuple[int, ...], besides: str) -> str:
        for name in sorted(self._lanes["w"]):
            if name != besides and self._file.entries[f"w/{name}"].shape == shape:
                return f"; it would fit 'w/{name}', so the two may be swapped"
        return ""

    def _params(self) -> tuple[Param, ...]:
        text = self._file.metadata.get("no_decay")
        no_decay = None if text is None else {name.strip() for name in text.split(",") if name.strip()}
        unknown = sorted((no_decay or set()) - self._lanes["w"])
        if unknown:
            raise UsageError(f"{self.name}: no_decay names {unknown[0]!r}, which the file does not hold.")
        names = [key[2:] for key in self._file.entries if key.startswith("w/")]
        return tuple(
            Param(n, self._file.entries[f"w/{n}"].shape, None if no_decay is None else n not in no_decay)
            for n in names
        )

    def _hyper(self) -> Hyper:
        given = {}
        for name in HYPER_NAMES:
            text = self._file.metadata.get(name)
            if text is None:
                continue
            try:
                given[name] = parse_number(text)
            except ValueError:
                raise UsageError(f"{self.name}: {name} is {text!r}, which is not a number.") from None
        return with_values(Hyper(), given)

    def _flat(self, key: str) -> F32Array:
        return self._file.floats(key).reshape(-1)


def write_state(
    path: Path,
    params: tuple[Param, ...],
    lanes: Mapping[str, Mapping[str, F32Array]],
    *,
    finished_steps: int,
    hyper: Hyper,
    stats: GradStats | None,
    later: Mapping[str, F32Array] | None = None,
    coded: Mapping[str, Moments8bit] | None = None,
    states: Mapping[str, Mapping[str, F32Array]] | None = None,
    own: Mapping[str, Settings] | None = None,
) -> None:
    """Write w, g, m, v (`lanes` by name, flat) after step `finished_steps` as a state file; m and v as far as given.

    `own` are the settings of params that have some of their own, by name.
    `coded` are the codes behind m and v of params with 8-bit state, of one codec; `states` are those in other shapes.
    `later` are gradients of steps that have not run, by tensor name.
    `stats` go to the metadata as gradNorm and clipScale, the repr of the float32.
    """
    tensors: dict[str, TensorData] = {
        f"{lane}/{p.name}": np.asarray(values[p.name], dtype=np.float32).reshape(p.shape)
        for lane, values in lanes.items()
        for p in params
        # Of a moment that the optimizer does not keep there is nothing.
        if lane not in MOMENTS or p.name in values
    }
    tensors |= later or {}
    for state, by_param in (states or {}).items():
        tensors |= {f"{state}/{name}": values for name, values in by_param.items()}
    metadata = {"t": str(finished_steps)} | {name: shortest(getattr(hyper, name)) for name in HYPER_NAMES}
    for name, codes in (coded or {}).items():
        for lane, encoded in (("m", codes.m), ("v", codes.v)):
            tensors |= {f"{lane}.codes/{name}": encoded.codes, f"{lane}.scales/{name}": encoded.scales}
        metadata["codec"] = codes.codec
    no_decay = [p.name for p in params if p.block == "no_wd"]
    if all(name == name.strip() and "," not in name for name in no_decay):
        metadata["no_decay"] = ",".join(no_decay)
    elif any(p.block != Param(p.name, p.shape).block for p in params):
        raise UsageError(
            f"{path} cannot be written: it would list params without decay, and a name has a comma in it."
        )
    if own is not None:
        metadata[KEY] = write_groups(params, own, finished_steps)
    if stats is not None:
        metadata["gradNorm"] = shortest(np.float32(stats.grad_norm))
        metadata["clipScale"] = shortest(np.float32(stats.clip_scale))
    write_tensors(path, tensors, metadata)
