"""Options that do nothing as they are given: told by every command that takes them, refused where none can hold."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from state_files import write

from inspector.cli.app import COMMANDS
from inspector.cli.option_groups import with_options_apart

Call = Callable[..., tuple[int, str, str]]
EXAMPLE = Path(__file__).parent.parent / "sessions" / "nan-gradient.session.zip"
"""AdamW in float32."""
STEPS: dict[str, tuple[object, ...]] = {
    "run": ("run", "synthetic:64", "--steps", "1"),
    "diagnose": ("diagnose", "synthetic:64", "--steps", "1"),
    "explain": ("explain", "synthetic:64", "--param", "w", "--index", "0"),
    "report": ("report", "synthetic:64", "--steps", "1", "--out", "OUT.html"),
    "policies": ("policies", "synthetic:64"),
    "window": ("window", "synthetic:64"),
    "screenshot": ("screenshot", "synthetic:64", "--out", "OUT.png"),
    "layout": ("layout", "synthetic:64"),
    "bench": ("bench", "--elements", "64"),
    "replay": ("replay", EXAMPLE, "--from", "25", "--to", "25"),
}
"""The commands that take an optimizer, on as little as there is."""
SETTINGS = ("--beta1", "0.5", "--lr", "1", "--eps", "1")
FORM = ("--codec", "sqrt", "--small-state", "8bit")


def takes(name: str, option: str) -> bool:
    return option in signature(with_options_apart(COMMANDS[name])).parameters


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is opened, drawn or timed for it."""

    def none(*args: Any, **options: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr("inspector.cli.window.open_window", lambda *args, **options: 0)
    monkeypatch.setattr("inspector.cli.window.take_picture", none)
    monkeypatch.setattr("inspector.cli.bench.measure", none)
    monkeypatch.setattr("inspector.cli.bench.show", none)


def told(err: str) -> list[str]:
    return [line for line in err.splitlines() if "nothing" in line]


def place(words: tuple[object, ...], folder: Path) -> tuple[object, ...]:
    return tuple(
        folder / word if isinstance(word, str) and word.startswith("OUT") else word for word in words
    )


def test_every_command_that_takes_an_optimizer_is_asked() -> None:
    assert {name for name in COMMANDS if takes(name, "optimizer")} == set(STEPS)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in STEPS if takes(name, "eps")])
def test_a_setting_that_the_optimizer_does_not_use_is_told(
    call: Call, quick: None, tmp_path: Path, name: str
) -> None:
    _, _, err = call(*place(STEPS[name], tmp_path), "--optimizer", "sgd", *SETTINGS)
    assert told(err) == [
        f"inspector: {each} does nothing with --optimizer sgd." for each in ("--beta1", "--eps")
    ]


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in STEPS if takes(name, "codec")])
def test_a_part_of_the_form_that_nothing_reads_is_told(
    call: Call, quick: None, tmp_path: Path, name: str
) -> None:
    more = ("--factors", "sum") if takes(name, "factors") else ()
    _, _, err = call(*place(STEPS[name], tmp_path), *FORM, *more)
    of_shampoo = ["inspector: --factors does nothing without --optimizer shampoo."] if more else []
    assert told(err) == [
        *of_shampoo,
        "inspector: --codec sqrt and --small-state 8bit do nothing without --kernel 8bit.",
    ]


@pytest.mark.gpu
def test_what_a_recording_brings_along_is_not_told_as_if_it_had_been_typed(
    call: Call, tmp_path: Path
) -> None:
    path = tmp_path / "muon.session"
    saved = call(
        "run", "charlm", "--steps", "1", "--optimizer", "muon", "--no-muon", "h.0*", "--save", path, "--capture",
        "all",
    )  # fmt: skip
    assert saved[0] == 0, saved[2]
    code, _, err = call("run", path, "--steps", "1", "--optimizer", "adamw")
    assert (code, told(err)) == (0, [])


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--eps", "1", "--lane", "sgd", "--lane", "lion"), ["--eps does nothing: no lane uses it."]),
        (("--eps", "1", "--lane", "sgd", "--lane", "adamw"), []),
        (
            ("--lr", "1", "--lane", "sgd:lr=0.1", "--lane", "lion:lr=0.1"),
            ["--lr does nothing: each lane that uses it has its own."],
        ),
        (("--lr", "1", "--lane", "sgd:lr=0.1", "--lane", "lion"), []),
    ],
)
def test_a_setting_of_a_race_that_no_lane_reads_is_told(
    call: Call, words: tuple[str, ...], said: list[str]
) -> None:
    code, _, err = call("race", "surface:valley", "--steps", "1", *words)
    assert (code, told(err)) == (0, [f"inspector: {each}" for each in said])


@pytest.mark.gpu
def test_a_setting_of_a_sweep_that_no_lane_reads_is_told(call: Call) -> None:
    code, _, err = call(
        "sweep", "surface:valley", "--steps", "1", "--lr", "0.1", "--lane", "sgd", "--beta2", "0.5"
    )
    assert (code, told(err)) == (0, ["inspector: --beta2 does nothing: no lane uses it."])


@pytest.mark.parametrize(
    "words", [("--lr", "3"), ("--optimizer", "sgd"), ("--unfused",), ("--seed", "1")], ids=lambda w: w[0]
)
def test_a_report_on_a_recording_takes_no_other_settings(
    call: Call, tmp_path: Path, words: tuple[str, ...]
) -> None:
    out = tmp_path / "r.html"
    code, _, err = call("report", EXAMPLE, "--out", out, *words)
    assert code == 2
    assert f"tells it as it was recorded: leave {words[0]} out" in err
    assert not out.exists()


@pytest.mark.parametrize("words", [("--lr", "3"), ("--lane", "sgd"), ("--steps", "4"), ("--decay",)])
def test_a_race_that_is_run_again_takes_no_other_settings(
    call: Call, tmp_path: Path, words: tuple[str, ...]
) -> None:
    code, _, err = call("race", tmp_path, "--verify", *words)
    assert (code, err) == (
        2,
        f"inspector: --verify runs a race again as it was saved: leave {words[0]} out.\n",
    )


def test_what_is_captured_of_a_replay_needs_a_place(call: Call) -> None:
    code, _, err = call("replay", EXAMPLE, "--capture", "all")
    assert (code, err) == (
        2,
        "inspector: --capture needs a session to record to: name it with --save NAME.session.\n",
    )


@pytest.mark.parametrize(
    ("source", "drawn"),
    [("charlm", True), ("synthetic:64", True), ("surface:noisy", True), ("surface:valley", False)],
)
def test_a_seed_is_told_to_do_nothing_where_nothing_is_drawn(
    call: Call, quick: None, source: str, drawn: bool
) -> None:
    code, _, err = call("window", source, "--seed", "3")
    said = [] if drawn else [f"inspector: --seed does nothing: nothing of {source} is drawn."]
    assert (code, told(err)) == (0, said)


def test_a_seed_is_told_to_do_nothing_for_what_is_read(call: Call, quick: None, tmp_path: Path) -> None:
    state = write(tmp_path / "s.safetensors", {"w/a": np.ones(3, np.float32), "g/a": np.ones(3, np.float32)})
    for source in (EXAMPLE, state):
        code, _, err = call("window", source, "--seed", "3")
        assert code == 0
        assert [line for line in told(err) if "--seed" in line] == [
            f"inspector: --seed does nothing: nothing of {source} is drawn."
        ]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("race", "surface:valley", "--lane", "sgd", "--lane", "lion", "--seed", "1"), ["--seed does nothing"]),
        (
            ("race", "surface:valley", "--lane", "sgd:seed=1", "--lane", "lion"),
            ["seed does nothing in the lane sgd:seed=1"],
        ),
        (("sweep", "surface:valley", "--lr", "0.1", "--seeds", "2"), ["--seeds 2 runs each alike"]),
        (("sweep", "surface:noisy", "--lr", "0.1", "--seeds", "2"), []),
        (("sweep", "surface:valley", "--lr", "0.1"), []),
    ],
)  # fmt: skip
def test_seeds_of_lanes_are_told_where_nothing_is_drawn(
    call: Call, words: tuple[str, ...], said: list[str]
) -> None:
    code, _, err = call(*words, "--steps", "1")
    lines = [line for line in err.splitlines() if "seed" in line]
    assert code == 0
    assert lines == [f"inspector: {each}: nothing of surface:valley is drawn." for each in said]
