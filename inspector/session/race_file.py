"""The file that makes one race of several sessions: what each lane ran, and what came of it.

`race.json` lies in the folder of the race beside `lane-000.session` and so on, each a session like any other. It is
written anew, as a whole, whenever a lane is done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from inspector.errors import UsageError
from inspector.files import named_files, write_text
from inspector.floats import to_json
from inspector.hyper import HYPER_NAMES, check_value
from inspector.plan import Variant
from inspector.race import MAX_LANES, MAX_SWEEP, LaneSpec
from inspector.session.database import check_begun
from inspector.session.jsonform import from_text, to_text

RACE_NAME = "race.json"
FORMAT = 1
MAX_BYTES = 16 << 20
SWEPT_AT_ONCE = 4
"""Runs of a sweep that go side by side: as many as there are threads for, and no more of the device's memory."""

Kind = Literal["race", "sweep"]


def lanes_at_once(kind: Kind) -> int:
    """How many lanes run side by side."""
    return MAX_LANES if kind == "race" else SWEPT_AT_ONCE


def lane_folder(number: int) -> str:
    """The session of one lane, inside that of the race."""
    return f"lane-{number:03d}.session"


@dataclass(frozen=True, slots=True)
class LaneResult:
    """What came of a lane. `steps` are those that it ran. `final_loss` is the mean over the last tenth of them, in the
    unit of the source, None where it has none; `weights_sha256` that of its weights, float32, params in the order of
    the source, "" where it ended in the middle of a step."""

    steps: int
    final_loss: float | None
    weights_sha256: str
    diverged: int | None = None
    """The step at which it was seen to diverge."""
    why: str = ""
    """By what it was seen to diverge, or why it ended before the others."""
    ended: bool = False
    """It ended by itself before all steps had run."""


@dataclass(frozen=True, slots=True)
class RacedLane:
    """A lane as it was saved: `spec` as a person writes it, and the result once it is done."""

    spec: str
    result: LaneResult | None = None


@dataclass(frozen=True, slots=True)
class RaceFile:
    """What is needed to run the race again, and what came of it. `settings` and `form` hold for every lane as the
    recording begins; what a step ran with stands in the recording of its lane."""

    kind: Kind
    source: str
    closed_loop: bool
    steps: int
    settings: Mapping[str, float]
    form: Mapping[str, Any]
    schedule: str | None
    seed: int | None
    device: str
    software: str
    lanes: tuple[RacedLane, ...]
    began_at: int = 0
    """Steps that the race had run when the recording began: only one from the start can be run again."""
    files: tuple[str, ...] = ()
    """The files of its source, as seen from the folder that the race lies in."""

    def source_from(self, folder: Path) -> str:
        """What to open for the race that lies in `folder`, wherever the program is started; UsageError where its files
        are neither where they were nor where they are named from."""
        beside = [os.path.normpath(folder.absolute().parent / name) for name in self.files]
        missing = next((path for path in beside if not os.path.exists(path)), None)
        if missing is None:
            return "+".join(beside) or self.source
        if not named_files(self.source):
            raise UsageError(
                f"{folder} ran over {self.source}, which is not there any more: put it back at {missing}."
            )
        return self.source

    @classmethod
    def read(cls, folder: Path) -> RaceFile:
        """That of a folder; UsageError, saying what is wrong, where there is none that a race wrote."""
        path = folder / RACE_NAME
        try:
            if path.stat().st_size > MAX_BYTES:
                raise UsageError(f"{path} is larger than any that a race writes: it is not opened.")
            document = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            check_begun(folder)
            raise UsageError(
                f"{folder} is no saved race or sweep: name the session that 'inspector race … --save' made."
            ) from None
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
        except (ValueError, RecursionError):
            raise UsageError(f"{path} is damaged: it is no JSON document.") from None
        return _parsed(document, path)

    def write(self, folder: Path) -> None:
        """Put it in the place of the one that there is, durably."""
        document = to_json({"format": FORMAT} | asdict(self))
        write_text(
            folder / RACE_NAME, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        )

    def with_result(self, number: int, result: LaneResult) -> RaceFile:
        """The same with what came of one lane."""
        lanes = list(self.lanes)
        lanes[number] = replace(lanes[number], result=result)
        return replace(self, lanes=tuple(lanes))

    def is_done(self, number: int) -> bool:
        """Whether a lane ran all steps, or ended by itself: one that was stopped midway has a result as well."""
        result = self.lanes[number].result
        return result is not None and (result.steps >= self.steps or result.ended)

    @property
    def runs(self) -> tuple[tuple[LaneSpec, float | None, bool], ...]:
        """Of each lane what it runs, its final loss (None where it is not done or has none), whether it diverged."""
        found = []
        for number, (spec, lane) in enumerate(zip(self.specs, self.lanes, strict=True)):
            result = lane.result if self.is_done(number) else None
            loss = None if result is None else result.final_loss
            found.append((spec, loss, result is not None and result.diverged is not None))
        return tuple(found)

    @property
    def specs(self) -> tuple[LaneSpec, ...]:
        """What the lanes run."""
        return tuple(LaneSpec.from_text(lane.spec) for lane in self.lanes)


def is_race(path: Path) -> bool:
    """True for the folder of a race."""
    return (path / RACE_NAME).is_file()


def kind_of(folder: Path) -> Kind:
    """What the folder of a race says that it is, for a sentence: a race where its file cannot be read."""
    try:
        return RaceFile.read(folder).kind
    except UsageError:
        return "race"


def _parsed(document: Any, path: Path) -> RaceFile:
    if isinstance(document, dict) and type(document.get("format")) is int and document["format"] != FORMAT:
        raise UsageError(
            f"{path} has format {document['format']}, and this program reads {FORMAT}: use the one that wrote it."
        )
    try:
        lanes = tuple(_lane(lane) for lane in document["lanes"])
        made = RaceFile(
            kind=_one_of(document["kind"], "race", "sweep"),
            source=_typed(document["source"], str),
            closed_loop=_typed(document["closed_loop"], bool),
            steps=_typed(document["steps"], int),
            settings={k: _setting(k, v) for k, v in document["settings"].items()},
            form=_form(document["form"]),
            schedule=_optional(document["schedule"], str),
            seed=_optional(document["seed"], int),
            device=_typed(document["device"], str),
            software=_typed(document["software"], str),
            lanes=lanes,
            began_at=_typed(document["began_at"], int),
            files=tuple(_typed(name, str) for name in document.get("files", ())),
        )
        if not (0 < len(lanes) <= MAX_SWEEP and made.steps >= 0):
            raise ValueError(len(lanes))
        # Whoever opens it runs what they say: that has to be lanes.
        _ = made.specs
    except UsageError as error:
        raise UsageError(f"{path} is damaged: {error}") from None
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        raise UsageError(f"{path} is damaged: it does not say what each lane of a race ran.") from None
    if made.kind == "sweep" and not all("lr" in spec.hyper for spec in made.specs):
        raise UsageError(f"{path} is damaged: it does not say at which learning rate each lane ran.")
    return made


def _setting(name: Any, value: Any) -> float:
    if name not in HYPER_NAMES:
        raise ValueError(name)
    number = float(_number(value))
    check_value(name, number)
    return number


def _form(document: Any) -> dict[str, Any]:
    """Parts of a form that there are, each with a value that it may have; ValueError for any other."""
    from_text(Variant, json.dumps(json.loads(to_text(Variant())) | document))
    return dict(document)


def _lane(document: Any) -> RacedLane:
    found = document["result"]
    if found is None:
        return RacedLane(_typed(document["spec"], str))
    loss = found["final_loss"]
    return RacedLane(
        _typed(document["spec"], str),
        LaneResult(
            _typed(found["steps"], int),
            None if loss is None else _number(loss),
            _typed(found["weights_sha256"], str),
            _optional(found["diverged"], int),
            _typed(found["why"], str),
            # What was written before this had a word said why it ended, or by what it diverged.
            _typed(found.get("ended", bool(found["why"]) and found["diverged"] is None), bool),
        ),
    )


def _typed(value: Any, type_: type) -> Any:
    if type(value) is not type_:
        raise TypeError(value)
    return value


def _optional(value: Any, type_: type) -> Any:
    return None if value is None else _typed(value, type_)


def _number(value: Any) -> float:
    """A number, or one of the strings that stand for those that JSON does not have."""
    if type(value) not in (int, float) and value not in ("NaN", "Infinity", "-Infinity"):
        raise TypeError(value)
    return float(value)


def _one_of(value: Any, *choices: str) -> Any:
    if value not in choices:
        raise ValueError(value)
    return value
