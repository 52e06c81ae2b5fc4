"""Runs with Muon: what is typed for it, the layout that names what steps each param, recordings, lines lit in WGSL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.cli import run
from inspector.errors import UsageError
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers import optimizer, plan_step
from inspector.optimizers.definition import LINE_SLOTS
from inspector.optimizers.muon.settings import AdamwSettings, parse
from inspector.param_hyper import step_of
from inspector.plan import Limits, Variant, layout_for
from inspector.session.reader import Session
from inspector.shader_lines import update_code

MUON = Variant(optimizer="muon")
PARAMS = [Param("embed.weight", (9, 4)), Param("h.weight", (4, 6)), Param("norm.weight", (4,))]


def document(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> Any:
    assert run([*args, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def problem(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert run(args) == 2
    return " ".join(capsys.readouterr().err.split())


def test_what_muon_leaves_to_adamw_has_the_settings_of_adamw() -> None:
    hyper = Hyper(lr=0.02, beta1=0.95, beta2=0.99, weight_decay=0.1)
    used = AdamwSettings(parse("lr=3e-4, beta1=0.9,weight_decay=0.2"), MUON).of(hyper, PARAMS)
    taken = {p.name: step_of(used, i, p.block, 1).hyper for i, p in enumerate(PARAMS)}
    figures = {name: (h.lr, h.beta1, h.beta2, h.weight_decay) for name, h in taken.items()}
    assert figures == {
        "embed.weight": (3e-4, 0.9, 0.99, 0.2),
        "h.weight": (0.02, 0.95, 0.99, 0.1),
        # Without decay, as it would be otherwise.
        "norm.weight": (3e-4, 0.9, 0.99, 0.0),
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lr", "'lr': '' is not a number"),
        ("rate=1", "'rate=1' is no setting: write NAME=NUMBER"),
        ("lr=fast", "'lr=fast': 'fast' is not a number"),
        ("beta1=1.5", "--beta1 1.5 is outside [0, 1)"),
    ],
)
def test_what_is_no_setting_is_said(text: str, says: str) -> None:
    with pytest.raises(UsageError) as told:
        parse(text)
    assert says in str(told.value)


def test_adamw_settings_are_refused_where_they_do_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "give --optimizer muon" in problem(capsys, "run", "charlm", "--steps", "1", "--adamw", "lr=1e-3")


def test_the_layout_says_what_steps_each_param(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "layout", "charlm", "--optimizer", "muon", "--no-muon", "h.1.*")
    by_name = {p["name"]: p["optimizer"] for p in found["params"]}
    assert by_name["h.0.attn.qkv.weight"] == "muon"
    assert {by_name[n] for n in ("embed.weight", "norm.weight", "h.1.attn.qkv.weight")} == {"adamw"}
    assert sum(d["label"].startswith("newton_schulz") for d in found["dispatches"]) == 4 * 15
    plain = document(capsys, "layout", "charlm")
    assert {p["optimizer"] for p in plain["params"]} == {"adamw"}


def test_every_line_of_its_update_is_lit_in_its_wgsl() -> None:
    plan = plan_step(layout_for(PARAMS, Limits(), MUON), Limits(), MUON)
    code = update_code(plan, next(d for d in plan.dispatches if d.entry_point == "muon_update"))
    one = np.ones(1, np.float32)
    done = optimizer("muon").update(one, one, one, one, scale=1.0, hyper=Hyper(), step=1, decays=True)
    member = ("grad", "m", "v", "m_hat", "v_hat", "denominator", "ratio", "decay", "change", "w")
    for line in done.lines:
        shown, lit = code.of(line.name)
        assert {shown.unit.place(at).partition(":")[0] for at in lit} == {"optimizers/muon/muon.wgsl"}, (
            line.name
        )
        text = shown.unit.text.splitlines()
        assert all(f"to.{member[LINE_SLOTS[line.name]]} =" in text[at - 1] for at in lit)


@pytest.mark.gpu
def test_a_recording_runs_again_to_the_same_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "a.session"
    options = ("--optimizer", "muon", "--lr", "0.02", "--beta1", "0.95", "--adamw", "lr=3e-3,beta1=0.9")
    ran = document(
        capsys, "run", "charlm", "--steps", "4", "--stats", "full", *options, "--save", str(saved), "--capture", "all"
    )  # fmt: skip
    assert ran["variant"]["optimizer"] == "muon"
    again = document(capsys, "replay", str(saved), "--verify")
    assert again["bit_exact"] is True
    step = Session.open(saved).step(3)
    assert step.hyper.per_param is not None
    assert {c.beta1 for c in step.hyper.per_param.classes} == {0.95, 0.9}
