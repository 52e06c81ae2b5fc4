"""Runs with Muon: what is typed for it, the layout that names what steps each param, recordings, lines lit in WGSL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_helpers import make_engine, make_stepper, normal_state

from inspector.adamw_settings import AdamwSettings, parse
from inspector.cli import run
from inspector.errors import UsageError
from inspector.gpu.device import Gpu
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers import optimizer, optimizer_of, plan_step
from inspector.optimizers.definition import LINE_SLOTS
from inspector.param_hyper import step_of
from inspector.param_statistics import ParamTable, param_stats
from inspector.plan import Limits, Variant, layout_for
from inspector.race import LaneSpec
from inspector.runtime.memory_picture import RunMemory
from inspector.runtime.microscope import Microscope
from inspector.runtime.reporting import form_words
from inspector.runtime.snapshots import CountedParams
from inspector.session.reader import Session
from inspector.shader_lines import update_code
from inspector.ui.params_columns import FIRST_FIGURE
from inspector.ui.params_model import ParamsModel

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


def test_the_table_of_params_says_what_steps_each() -> None:
    layout = layout_for(PARAMS, Limits(), MUON)
    zero = {p.name: np.zeros(p.numel, np.float32) for p in PARAMS}
    table = ParamTable.of(
        param_stats(
            s.name, s.block, dict.fromkeys("wgmv", zero[s.name]), clip_scale=1.0, hyper=Hyper(), step=1, start=s.offset
        )
        for s in layout
    )  # fmt: skip
    model = ParamsModel()
    counted = CountedParams(1, table, None)
    steps = {s.name: optimizer_of(MUON, s.param).name for s in layout}
    model.show_counted(counted, layout, stepped=steps)
    column = [c.title for c in model.columns].index("optimizer") + FIRST_FIGURE
    shown = {model.name_at(row): model.text(row, column) for row in range(model.rowCount())}
    assert shown == {"": "", "embed.weight": "adamw", "h.weight": "muon", "norm.weight": "adamw"}
    model.sort_by(column, largest_first=True)
    assert model.name_at(model.total_rows) == "h.weight"
    model.show_counted(counted, layout)
    assert "optimizer" not in [c.title for c in model.columns]


@pytest.mark.gpu
def test_the_memory_of_a_run_tells_what_is_no_moment(gpu: Gpu) -> None:
    w = {p.name: np.ones(p.numel, np.float32) for p in PARAMS}
    picture = RunMemory().of(make_stepper(gpu, PARAMS, MUON, w=w))
    assert picture.in_place == (("v", "the orthogonalised update", 4 * 24),)
    # X and its successor, A and B of the 4 by 6 matrix, each row in whole vec4s; its squares; the norm's own.
    assert picture.scratch_bytes >= 4 * (2 * 4 * 8 + 2 * 4 * 4 + 1 + 3)
    plain = RunMemory().of(make_stepper(gpu, PARAMS, w=w))
    assert plain.in_place == ()


@pytest.mark.gpu
def test_the_microscope_waits_for_the_matrix(gpu: Gpu) -> None:
    w, g, *_ = normal_state(PARAMS)
    engine = make_engine(gpu, PARAMS, g, w=w, variant=MUON)
    engine.begin()
    last = next(d.index for d in engine.stepper.plan.dispatches if d.label.startswith("unstack"))
    looked = Microscope()
    looked.ask("h.weight", 5)
    engine.run_again_to(last)
    looked.refresh(engine, running=False)
    assert looked.picture is not None
    assert f"up to dispatch {last + 1} of this step (unstack h.weight)" in looked.picture.missing
    assert not looked.picture.lines
    engine.run_again_to(last + 1)
    looked.moved()
    looked.refresh(engine, running=False)
    assert not looked.picture.missing
    foretold = {line.name: line.f32 for line in looked.picture.lines}
    engine.finish_step()
    looked.moved()
    looked.refresh(engine, running=False)
    assert looked.picture.agrees
    assert foretold == {line.name: line.f32 for line in looked.picture.lines}
    # A param that AdamW steps needs no waiting.
    engine.begin()
    looked.ask("norm.weight", 0)
    looked.refresh(engine, running=False)
    assert looked.picture.lines


def test_a_lane_of_a_race_may_give_adamw_settings_of_its_own() -> None:
    text = "muon:lr=0.02,adamw.lr=0.003,adamw.beta1=0.9"
    lane = LaneSpec.from_text(text)
    assert str(lane) == text
    used = lane.settings_of(Hyper(beta1=0.95), PARAMS, lane.variant_of(Variant()))
    assert [step_of(used, i, p.block, 1).hyper.lr for i, p in enumerate(PARAMS)] == [0.003, 0.02, 0.003]
    assert lane.hyper_of(Hyper()).per_param is None
    for wrong in ("lion:adamw.lr=1", "muon:adamw.rate=1", "muon:adamw.lr=1,adamw.lr=2"):
        with pytest.raises(UsageError):
            LaneSpec.from_text(wrong)


def test_a_pattern_that_names_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    told = problem(
        capsys, "run", "charlm", "--steps", "1", "--optimizer", "muon", "--no-muon", "h.7.*, embed*"
    )
    assert told == "inspector: --no-muon 'h.7.*' names none of the 14 params of charlm."


def test_a_form_in_words_leaves_out_what_is_not_set() -> None:
    assert "no_muon" not in form_words(Variant())
    assert "no_muon h.0.*" in form_words(Variant(optimizer="muon", no_muon="h.0.*"))
