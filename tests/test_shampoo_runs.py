"""Runs with Shampoo: what is typed for it, recordings whose steps have other plans, state files, lines lit in WGSL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_helpers import make_engine, normal_state

from inspector.adamw_settings import AdamwSettings, parse
from inspector.cli import bench, run
from inspector.errors import UsageError
from inspector.gpu.device import Gpu
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers import optimizer, plan_step
from inspector.optimizers.definition import LINE_SLOTS
from inspector.param_hyper import step_of
from inspector.plan import Limits, Plan, Variant, layout_for
from inspector.race import LaneSpec
from inspector.runtime.microscope import Microscope
from inspector.session.plans import recorded_plan
from inspector.session.reader import Session
from inspector.shader_lines import update_code
from inspector.variants import NO_CHANGE, all_choices

SHAMPOO = Variant(optimizer="shampoo", root_block=16, root_every=2)
PARAMS = [Param("embed.weight", (9, 4)), Param("h.weight", (4, 6)), Param("norm.weight", (4,))]
SMALL = "charlm:width=16,layers=1,heads=2,ffn=16,context=16,rows=2"
FORM = ("--optimizer", "shampoo", "--root-block", "32", "--root-every", "2")


def document(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> Any:
    assert run([*args, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def problem(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert run(args) == 2
    return " ".join(capsys.readouterr().err.split())


def plan_of(variant: Variant) -> Plan:
    return plan_step(layout_for(PARAMS, Limits(), variant), Limits(), variant)


def test_the_layout_says_what_steps_each_param_in_blocks_of_the_size_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = document(capsys, "layout", "charlm", "--optimizer", "shampoo", "--root-block", "64")
    by_name = {p["name"]: p["optimizer"] for p in found["params"]}
    assert by_name["embed.weight"] == by_name["h.0.attn.qkv.weight"] == "shampoo"
    assert by_name["norm.weight"] == "adamw"
    # 97 by 64 in two blocks of 49 rows, rounded up to 56; all others in blocks of 64 by 64.
    assert sum(d["label"] == "shampoo_gradient embed.weight blocks 0-1" for d in found["dispatches"]) == 1
    assert sum(d["kernel"] == "shampoo_gradient" for d in found["dispatches"]) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ("--root-block", "100"),
            "--root-block 100 is no size of blocks: give a multiple of 8 from 8 to 1,024.",
        ),
        (("--root-every", "0"), "--root-every 0 is no number of steps: give 1 or more."),
        (("--dispatch", "single"), "one dispatch cannot do for all"),
        (("--kernel", "8bit"), "run shampoo with --kernel f32"),
        (("--unfused",), "Shampoo has no unfused form"),
    ],
)
def test_what_cannot_be_meant_is_said(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], says: str
) -> None:
    assert says in problem(capsys, "run", "charlm", "--steps", "1", "--optimizer", "shampoo", *options)


@pytest.mark.gpu
def test_options_of_another_optimizer_are_told_to_do_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["run", "synthetic:64", "--steps", "1", "--root-every", "3", "--factors", "sum", "--json"]) == 0
    )
    told = capsys.readouterr().err
    assert "--root-every does nothing without --optimizer shampoo." in told
    assert "--factors does nothing without --optimizer shampoo." in told
    assert "--root-block" not in told


def test_what_it_leaves_to_adamw_may_have_settings_of_its_own() -> None:
    hyper = Hyper(lr=0.05, weight_decay=0.1)
    used = AdamwSettings(parse("lr=3e-3"), SHAMPOO).of(hyper, PARAMS)
    assert [step_of(used, i, p.block, 1).hyper.lr for i, p in enumerate(PARAMS)] == [0.05, 0.05, 3e-3]
    with pytest.raises(UsageError, match="give --optimizer muon or shampoo"):
        AdamwSettings({"lr": 1.0}, Variant()).of(hyper, PARAMS)


def test_a_lane_of_a_race_may_say_blocks_and_steps() -> None:
    text = "shampoo:lr=0.05,root_every=20,factors=sum,adamw.lr=0.003"
    lane = LaneSpec.from_text(text)
    assert LaneSpec.from_text(str(lane)) == lane
    form = lane.variant_of(Variant())
    assert (form.optimizer, form.root_every, form.factors) == ("shampoo", 20, "sum")
    for wrong in ("shampoo:root_every=0", "shampoo:root_block=x", "shampoo:factors=most"):
        with pytest.raises(UsageError):
            LaneSpec.from_text(wrong)


def test_other_optimizers_have_no_choice_of_factors() -> None:
    for variant, reason in ((Variant(), NO_CHANGE), (SHAMPOO, "")):
        found = {c.value: c.reason for c in all_choices(plan_of(variant)) if c.field == "factors"}
        assert found == {"mean": "", "sum": reason}


@pytest.mark.gpu
def test_a_recording_runs_again_to_the_same_bits_from_any_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "a.session"
    options = (*FORM, "--lr", "0.05", "--adamw", "lr=3e-3")
    ran = document(
        capsys, "run", SMALL, "--steps", "5", "--stats", "full", *options, "--save", str(saved), "--capture", "all"
    )  # fmt: skip
    assert (ran["variant"]["root_block"], ran["variant"]["root_every"]) == (32, 2)
    kernels = [{k["name"] for k in step["kernels"]} for step in ran["steps"]]
    assert ["shampoo_eigenvalue" in names for names in kernels] == [True, True, False, True, False]
    for first in ((), ("--from", "3"), ("--from", "5")):
        assert document(capsys, "replay", str(saved), "--verify", *first)["bit_exact"] is True
    with Session.open(saved) as session:
        assert [recorded_plan(session, session.step(t)).between for t in range(1, 6)] == [
            False, False, True, False, True,
        ]  # fmt: skip
        name = "h.0.attn.qkv.weight"
        root = session.param_state("left_root", 2, name)
        assert root.shape == (1, 2, 16, 16)
        # Taken as it is in step 3, worked out anew in step 4.
        assert np.array_equal(root, session.param_state("left_root", 3, name))
        assert not np.array_equal(root, session.param_state("left_root", 4, name))


@pytest.mark.gpu
def test_a_state_file_goes_on_and_one_of_other_blocks_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, again = str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors")
    document(capsys, "run", SMALL, "--steps", "2", *FORM, "--out", out)
    assert document(capsys, "run", out, "--steps", "1", *FORM, "--out", again)["steps"][0]["step"] == 3
    told = problem(capsys, "run", out, "--steps", "1", "--optimizer", "shampoo", "--root-block", "8")
    assert "another model, optimizer or form" in told


@pytest.mark.gpu
def test_bench_tells_steps_between_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inspector.gpu.bench.copy_gbps", lambda gpu, **_: 10.0)
    words = ("bench", "--elements", "5000", *FORM, "--samples", "3", "--seconds", "0")
    shown: list[dict[str, Any]] = []
    show = bench.show
    monkeypatch.setattr(bench, "show", lambda report: (shown.append(report), show(report)))
    assert run(words) == 0
    assert "steps between, which go without what only some do" in capsys.readouterr().out
    (found,) = shown
    full, between = ({k["name"] for k in of["kernels"]} for of in (found, found["between"]))
    assert full - between == {f"{name} wd" for name in (
        "shampoo_eigenvalue", "shampoo_start", "shampoo_turn", "symmetric_product",
    )}  # fmt: skip
    assert between < full
    assert found["between"]["step"]["dispatches"] < found["step"]["dispatches"]
    assert "between" not in document(capsys, "bench", "--elements", "600", "--samples", "3", "--seconds", "0")


def test_every_line_of_its_update_is_lit_in_its_wgsl() -> None:
    plan = plan_of(SHAMPOO)
    code = update_code(plan, next(d for d in plan.dispatches if d.entry_point == "shampoo_update"))
    one = np.ones(1, np.float32)
    done = optimizer("shampoo").element_wise()(
        one, one, one, one, scale=1.0, hyper=Hyper(), step=1, decays=True
    )
    member = ("grad", "m", "v", "m_hat", "v_hat", "denominator", "ratio", "decay", "change", "w")
    for line in done.lines:
        shown, lit = code.of(line.name)
        files = {shown.unit.place(at).partition(":")[0] for at in lit}
        assert files == {"optimizers/shampoo/shampoo.wgsl"}, line.name
        text = shown.unit.text.splitlines()
        assert all(f"to.{member[LINE_SLOTS[line.name]]} =" in text[at - 1] for at in lit)


@pytest.mark.gpu
def test_the_microscope_waits_for_the_matrix(gpu: Gpu) -> None:
    w, g, *_ = normal_state(PARAMS)
    engine = make_engine(gpu, PARAMS, g, w=w, variant=SHAMPOO)
    engine.begin()
    last = next(d.index for d in engine.stepper.plan.dispatches if d.label.startswith("shampoo_scatter h"))
    looked = Microscope()
    looked.ask("h.weight", 5)
    engine.run_again_to(last)
    looked.refresh(engine, running=False)
    assert looked.picture is not None
    assert f"up to dispatch {last + 1} of this step (shampoo_scatter h.weight" in looked.picture.missing
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
