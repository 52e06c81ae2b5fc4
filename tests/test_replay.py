"""A recording runs again bit for bit; a bit that was changed is found where it is; other settings do as they would."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import replays
from replays import (
    PARAMS,
    constant,
    flip,
    gradients,
    in_form,
    pipelines_of,
    record,
    run_step,
    start,
    stepper_of,
)
from safetensors.numpy import load_file

from inspector.codecs import CODECS
from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.opener import StepperMaker, suits
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import KERNELS_REVISION, Hyper, Numerics
from inspector.layout import Layout, Param
from inspector.plan import Variant, layout_for
from inspector.session.archive import pack
from inspector.session.reader import Session
from inspector.sources.open import open_source
from inspector.sources.recording import Recording, Stretch
from inspector.stepping import HostState
from inspector.stores import LANES

pytestmark = pytest.mark.gpu

Call = Any
FORMS = [
    Variant(),
    Variant(kernel="f16", numerics="precise"),
    *(Variant(kernel="8bit", codec=codec) for codec in CODECS),
    Variant(kernel="8bit", small_state="8bit", dispatch="per-tensor"),
    Variant(dispatch="single"),
    Variant(dispatch="per-tensor", fused=False),
    Variant(optimizer="adam-l2", fused=False, kernel="f16"),
]


def document(result: tuple[int, str, str], code: int = 0) -> Any:
    got, out, err = result
    assert got == code, err
    return json.loads(out)


def name_of(variant: Variant) -> str:
    return " ".join(str(getattr(variant, n)) for n in ("optimizer", "kernel", "codec", "dispatch", "fused"))


@pytest.fixture(autouse=True)
def shared_device(request: pytest.FixtureRequest, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays on the one device of the tests, with its compiled kernels, so that they take a moment each."""

    class Shared(GpuStepper):
        def close(self) -> None:
            self.release()

    class Maker:
        def __init__(self, adapter: str | None = None, undo_bytes: int | None = None) -> None:
            self.undo_bytes = undo_bytes or 0

        def make(
            self, params: tuple[Param, ...], variant: Variant, state: HostState, layout: Layout | None = None
        ) -> GpuStepper:
            if layout is None or not suits(gpu, layout, variant):
                layout = layout_for(params, gpu.limits, variant)
            return Shared(
                gpu, layout, variant, state, undo_bytes=self.undo_bytes, pipelines=pipelines_of(gpu)
            )

    for name in ("replay", "run", "at_step"):
        monkeypatch.setattr(import_module(f"inspector.cli.{name}"), "StepperMaker", Maker)


# --- as recorded


@pytest.mark.parametrize("variant", FORMS, ids=name_of)
def test_every_form_replays_bit_for_bit(gpu: Gpu, call: Call, tmp_path: Path, variant: Variant) -> None:
    path = tmp_path / "run.session"
    record(gpu, path, 5, settings=constant(variant))
    report = document(call("replay", path, "--verify", "--json"))
    assert report["bit_exact"]
    assert report["as_expected"]
    assert report["max_ulp"] == 0
    assert report["first_difference"] is None
    assert report["compared"] == {"steps": 5, "statistics": 5, "keyframes": 5}
    assert [s["step"] for s in report["steps"]] == [1, 2, 3, 4, 5]
    assert report["variant"]["kernel"] == variant.kernel


def test_a_device_of_its_own_gives_the_same_bits(
    gpu: Gpu, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.session"
    record(gpu, path, 3)
    monkeypatch.setattr("inspector.cli.replay.StepperMaker", StepperMaker)
    assert document(call("replay", path, "--verify", "--json"))["bit_exact"]


def changing(step: int) -> tuple[Hyper, Variant]:
    """Settings that change in the middle, and forms that keep the layout and that do not."""
    hyper = Hyper(lr=1e-3 * step, beta2=0.95 if step < 4 else 0.8, max_grad_norm=1.0 if step < 6 else 0.25)
    forms = {1: Variant(), 3: Variant(dispatch="single"), 5: Variant(kernel="8bit", codec="dynamic"),
             7: Variant(kernel="8bit", codec="sqrt"), 8: Variant(kernel="f16")}  # fmt: skip
    return hyper, forms[max(t for t in forms if t <= step)]


def test_settings_that_changed_in_between_replay_exactly_from_any_step(
    gpu: Gpu, call: Call, tmp_path: Path
) -> None:
    path = tmp_path / "run.session"
    record(gpu, path, 9, "grads:1+keyframes:3", changing)
    for first, last in ((1, 9), (4, 9), (7, 8), (9, 9), (1, 2)):
        report = document(call("replay", path, "--verify", "--json", "--from", first, "--to", last))
        assert report["bit_exact"], report["first_difference"]
        assert [s["step"] for s in report["steps"]] == list(range(first, last + 1))
        assert [s["lr"] for s in report["steps"]] == [1e-3 * s["step"] for s in report["steps"]]


def test_a_layout_that_an_earlier_form_asked_for_is_used_again(gpu: Gpu, call: Call, tmp_path: Path) -> None:
    """8-bit state bound tensor by tensor leaves wider gaps, and a form that suits them keeps them."""
    path = tmp_path / "run.session"
    wide = Variant(kernel="8bit", small_state="8bit", dispatch="per-tensor")
    record(
        gpu, path, 6, "grads:1+keyframes:2",
        lambda step: (Hyper(), wide if step < 3 else replace(wide, dispatch="two-block")),
    )  # fmt: skip
    assert document(call("replay", path, "--verify", "--json", "--from", 5))["bit_exact"]


def test_steps_from_a_middle_keyframe_on_where_nothing_else_was_captured(
    gpu: Gpu, call: Call, tmp_path: Path
) -> None:
    path = tmp_path / "run.session"
    record(gpu, path, 12, "grads:4+keyframes:3")
    with Session.open(path) as session:
        source = Recording(path, session=session)
        assert source.stretches == (Stretch(4, 4),)
        assert source.first_step == 4
    report = document(call("replay", path, "--json"))
    assert [s["step"] for s in report["steps"]] == [4]
    assert report["left_out"] == [
        f"Step {step} cannot be rebuilt: its gradients were not captured (policy grads:4+keyframes:3). {more}"
        for step, more in ((1, "So it is up to step 3."), (5, "So it is up to step 12."))
    ]
    code, _, err = call("replay", path, "--from", 8)
    assert code == 2
    assert (
        "Step 8 cannot be rebuilt: no state was captured from which captured gradients lead up to it" in err
    )


def test_what_cannot_be_rebuilt_is_said_in_one_sentence(gpu: Gpu, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(gpu, path, 4, "keyframes:2", stats="light")
    code, out, err = call("replay", path, "--json")
    assert (code, out) == (2, "")
    assert "Step 1 cannot be rebuilt: its gradients were not captured (policy keyframes:2)." in err
    assert "inspector info --check" in err
    for words in (("--from", 9), ("--to", 0)):
        code, _, err = call("replay", path, *words)
        assert code == 2
        assert "it was not recorded, the recording holds steps 1 to 4." in err
    code, _, err = call("run", path, "--steps", 1)
    assert code == 2
    assert "(policy keyframes:2)" in err
    # Where its params lie needs no state.
    assert len(document(call("layout", path, "--json"))["params"]) == len(PARAMS)


# --- what was changed is found


@pytest.mark.parametrize(
    ("variant", "step", "kind", "key", "index", "bit", "buffer"),
    [
        (Variant(), 3, "gradients", "g@3/h.1.mlp.weight", 17, 21, "m"),
        (Variant(), 4, "keyframe", "w@4/head.bias", 4321, 0, "w"),
        (Variant(), 2, "keyframe", "m@2/h.0.attn.weight", 5119, 0, "m"),
        (Variant(dispatch="per-tensor"), 5, "keyframe", "v@5/h.0.norm", 69, 0, "v"),
        (Variant(kernel="8bit", codec="dynamic"), 4, "keyframe", "m_codes@4/h.0.attn.weight", 77, 0, "m_packed"),
        (Variant(kernel="8bit", codec="dynamic"), 4, "keyframe", "v_scales@4/head.bias", 19, 3, "v_scale"),
    ],
)  # fmt: skip
def test_one_changed_bit_is_found_where_it_is(
    gpu: Gpu, call: Call, tmp_path: Path, variant: Variant, step: int, kind: str, key: str, index: int, bit: int,
    buffer: str,
) -> None:  # fmt: skip
    path = tmp_path / "run.session"
    record(gpu, path, 6, settings=constant(variant), stats="light")
    flip(path, step, kind, key, index, bit)
    with Session.open(path) as session:
        assert session.verify() == []
    report = document(call("replay", path, "--verify", "--json"), code=1)
    first = report["first_difference"]
    param = key.split("/")[1]
    if kind == "gradients":
        # The norm over all gradients may take it up first; the state after the step has the place.
        assert first["step"] == step
        with Session.open(path) as session:
            changed = session.gradients(step)[param]
        assert np.flatnonzero(changed != gradients(step)[param]).tolist() == [index]
        assert report["steps"][step - 2]["bit_exact"]
        state = [s for s in report["steps"] if s["keyframe"]["m"]["differing"]]
        assert state[0]["step"] == step
        return
    assert (first["step"], first["buffer"], first["param"], first["index"]) == (step, buffer, param, index)
    assert first["differing"] == 1
    stepper = stepper_of(gpu, variant, start())
    place = stepper.layout[param].offset + index
    dispatch = stepper.plan.dispatches[first["dispatch"]]
    assert dispatch.updates
    assert dispatch.elements[0] <= place < dispatch.elements[1]
    # A keyframe in the middle is not what the steps after it are computed from.
    assert [s["step"] for s in report["steps"] if not s["bit_exact"]] == [step]
    code, out, _ = call("replay", path, "--verify")
    assert code == 1
    assert f"in step {step}, dispatch {first['dispatch']}" in out
    assert f"{param}[{index}]" in out


def test_a_gradient_that_is_changed_alone_moves_its_own_element_alone(
    gpu: Gpu, call: Call, tmp_path: Path
) -> None:
    """With clipping out of play, the first difference is the element itself."""
    path = tmp_path / "run.session"
    record(gpu, path, 4, settings=constant(max_grad_norm=float("inf")), stats="light")
    flip(path, 3, "gradients", "g@3/h.1.mlp.weight", 17, 14)
    report = document(call("replay", path, "--verify", "--json"), code=1)
    assert [s["step"] for s in report["steps"] if not s["bit_exact"]] == [3, 4]
    third = report["steps"][2]
    assert all(third["keyframe"][lane]["differing"] <= 1 for lane in ("w", "m", "v"))
    assert third["keyframe"]["m"]["differing"] == 1
    at = report["max_ulp_at"]
    assert (at["param"], at["index"]) == ("h.1.mlp.weight", 17)


def test_statistics_are_held_against_those_recorded(gpu: Gpu, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(gpu, path, 4, settings=constant(max_grad_norm=float("inf")))
    flip(path, 3, "gradients", "g@3/h.1.mlp.weight", 17, 29)
    first = document(call("replay", path, "--verify", "--json"), code=1)["first_difference"]
    assert (first["step"], first["dispatch"]) == (3, 1)


def test_the_atomic_form_reports_ulp_and_does_not_fail(gpu: Gpu, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(gpu, path, 3, settings=constant(Variant(reduce="atomic")), stats="light")
    flip(path, 2, "keyframe", "w@2/head.bias", 5, 2)
    report = document(call("replay", path, "--verify", "--json"))
    assert not report["bit_exact"]
    assert report["expected"] == "The norm is added up with atomics, in another order each time."
    assert report["max_ulp"] >= 4
    assert report["max_ulp_at"]["step"] >= 2


def test_another_adapter_is_named_and_does_not_fail(gpu: Gpu, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(gpu, path, 3, device=replace(gpu.info, name="Some GPU"))
    flip(path, 2, "keyframe", "w@2/head.bias", 5, 2)
    report = document(call("replay", path, "--verify", "--json"))
    assert report["expected"] == "It was recorded on another adapter, Some GPU (Vulkan)."
    assert (report["max_ulp"], report["first_difference"]["param"]) == (4, "head.bias")


@pytest.mark.parametrize(
    ("optimizer", "numerics", "kernels", "words"),
    [
        ("adamw", "precise", 1, "rounded in another order"),
        ("adamw", "precise", 2, ""),
        ("adamw", "published", 1, ""),
        ("lion", "precise", 1, ""),
        ("shampoo", "published", 2, "ridge of Shampoo's roots was 1e-4"),
        ("shampoo", "published", 3, "sums of matrices were rounded once more"),
        ("muon", "published", 3, "all of Muon's iterations were in float32"),
        ("adamw", "precise", 3, ""),
        ("shampoo", "published", KERNELS_REVISION, ""),
    ],
)
def test_bits_of_kernels_as_they_were_before_are_no_fault(
    gpu: Gpu, call: Call, tmp_path: Path, optimizer: str, numerics: Numerics, kernels: int, words: str
) -> None:
    """Where those of this form have changed since; all others give the bits that they gave."""
    path = tmp_path / "run.session"
    variant = Variant(optimizer=optimizer, numerics=numerics)
    record(gpu, path, 2, settings=constant(variant), kernels=kernels, stats="light")
    assert document(call("replay", path, "--verify", "--json"))["bit_exact"]
    flip(path, 2, "keyframe", "w@2/head.bias", 5, 2)
    report = document(call("replay", path, "--verify", "--json"), code=not words)
    assert words in report["expected"] if words else report["expected"] == "bit-exact"
    assert report["max_ulp"] == 4


def test_nonfinite_gradients_and_nan_payloads_replay_bit_for_bit(
    gpu: Gpu, call: Call, tmp_path: Path
) -> None:
    def odd(step: int) -> dict[str, F32Array]:
        given = gradients(step)
        if step == 2:
            given["h.0.norm"][3] = np.array([0x7F812345], np.uint32).view(np.float32)[0]
            given["head.bias"][8] = -np.inf
        return given

    path = tmp_path / "run.session"
    record(gpu, path, 4, given=odd)
    report = document(call("replay", path, "--verify", "--json"))
    assert report["bit_exact"]
    assert report["steps"][1]["nonfinite"] == {"nan": 1, "posinf": 0, "neginf": 1}


# --- what if


@pytest.mark.parametrize(
    ("words", "hyper", "variant"),
    [
        (("--beta2", 0.5), {"beta2": 0.5}, {}),
        (("--max-grad-norm", "inf", "--lr", 0.01), {"max_grad_norm": float("inf"), "lr": 0.01}, {}),
        (("--kernel", "8bit", "--codec", "dynamic"), {}, {"kernel": "8bit", "codec": "dynamic"}),
        (("--optimizer", "adam-l2", "--unfused"), {}, {"optimizer": "adam-l2", "fused": False}),
    ],
)
def test_what_if_is_what_a_run_under_those_settings_does(
    gpu: Gpu, call: Call, tmp_path: Path, words: tuple[object, ...], hyper: dict[str, float], variant: dict[str, Any]
) -> None:  # fmt: skip
    path, saved, direct = tmp_path / "run.session", tmp_path / "if.session", tmp_path / "direct.session"
    settings = constant()
    record(gpu, path, 5, settings=settings, stats="light")
    record(
        gpu, direct, 5, stats="light",
        settings=lambda step: (replace(settings(step)[0], **hyper), replace(settings(step)[1], **variant)),
    )  # fmt: skip
    report = document(call("replay", path, *words, "--save", saved, "--json"))
    assert not report["bit_exact"]
    assert report["expected"].startswith("It ran under other settings: ")
    with Session.open(saved) as got, Session.open(direct) as wanted, Session.open(path) as parent:
        assert got.state == "complete"
        assert got.about.source == str(path)
        assert words[0] is not None
        assert str(path) in got.about.description
        for step in wanted.steps:
            a, b = got.step(step), wanted.step(step)
            assert (a.grad_norm, a.clip_scale, a.hyper, a.variant) == (
                b.grad_norm,
                b.clip_scale,
                b.hyper,
                b.variant,
            )
            for lane in LANES:
                for param in PARAMS:
                    x, y = (s.tensor(lane, step, param.name) for s in (got, wanted))
                    assert x.tobytes() == y.tobytes()
            was = parent.tensor("w", step, "h.0.attn.weight").astype(np.float64)
            now = got.tensor("w", step, "h.0.attn.weight").astype(np.float64)
            assert report["steps"][step - 1]["keyframe"]["w"]["relative"] >= 0
            if step == 5:
                assert np.linalg.norm(now - was) > 0
    # It is a recording like any other.
    assert document(call("replay", saved, "--verify", "--json"))["bit_exact"]


def test_drift_at_keyframes_is_that_of_the_weights(gpu: Gpu, call: Call, tmp_path: Path) -> None:
    path, saved = tmp_path / "run.session", tmp_path / "if.session"
    record(gpu, path, 4, "grads:1+keyframes:2", stats="light")
    report = document(call("replay", path, "--beta1", 0.5, "--save", saved, "--json"))
    assert [s["keyframe"] is not None for s in report["steps"]] == [False, True, False, True]
    with Session.open(path) as was, Session.open(saved) as now:
        w = [
            np.concatenate([s.tensor("w", 4, p.name).reshape(-1) for p in PARAMS]).astype(np.float64)
            for s in (was, now)
        ]
    assert report["steps"][3]["keyframe"]["w"]["relative"] == pytest.approx(
        np.linalg.norm(w[1] - w[0]) / np.linalg.norm(w[0]), rel=1e-9
    )


def test_what_holds_from_the_first_step_asked_for_on_leaves_those_before_it(
    gpu: Gpu, call: Call, tmp_path: Path
) -> None:
    path = tmp_path / "run.session"
    final = record(gpu, path, 4, "grads:1+keyframes:4", stats="light")
    report = document(call("replay", path, "--from", 4, "--beta2", 0.5, "--json"))
    stepper = stepper_of(gpu, Variant(), start())
    for step in range(1, 5):
        hyper, variant = constant()(step)
        stepper = in_form(gpu, stepper, variant)
        _, _, state = run_step(
            stepper, replace(hyper, beta2=0.5) if step == 4 else hyper, gradients(step), False
        )
    change = np.linalg.norm(
        np.concatenate([state.w[p.name].astype(np.float64) - final.w[p.name] for p in PARAMS])
    )
    size = np.linalg.norm(np.concatenate([final.w[p.name].astype(np.float64) for p in PARAMS]))
    assert report["steps"][-1]["keyframe"]["w"]["relative"] == pytest.approx(change / size, rel=1e-9)


def test_wrong_use_is_refused_in_a_sentence(gpu: Gpu, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(gpu, path, 3, "grads:2+keyframes:1", stats="light")
    for words, sentence in (
        (("--verify", "--beta2", 0.5), "--verify compares with what was recorded"),
        (("--beta2", 2), "--beta2 2.0 is outside [0, 1)"),
        (("--save", path), "exists: name another session"),
        (("--capture", "everything", "--save", tmp_path / "x.session"), "is not a capture policy"),
    ):
        code, out, err = call("replay", path, *words)
        assert (code, out) == (2, "")
        assert sentence in err
        assert err.count("\n") == 1
    code, _, err = call("replay", tmp_path / "none.session")
    assert code == 2


def test_an_interrupt_comes_between_steps_and_ends_the_recording_in_order(
    gpu: Gpu, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, saved = tmp_path / "run.session", tmp_path / "if.session"
    record(gpu, path, 6, stats="light")
    asked: list[int] = []

    def check() -> None:
        asked.append(1)
        if len(asked) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr("inspector.cli.replay.interruptible", lambda: nullcontext(check))
    code, out, err = call("replay", path, "--beta2", 0.5, "--save", saved)
    assert (code, out, err) == (130, "", "inspector: Stopped.\n")
    with Session.open(saved) as session:
        assert session.steps == range(1, 4)
        assert session.state == "complete"
        assert session.ended_because == "The run ended with KeyboardInterrupt."
        assert session.verify() == []


# --- a recording as a source


def test_a_recording_opens_as_a_source_wherever_one_is_taken(gpu: Gpu, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(gpu, path, 6, settings=changing)
    for each in (path, pack(path)):
        source = open_source(str(each))
        assert isinstance(source, Recording)
        assert source.last_step == 6
        assert source.params == PARAMS
        report = document(call("run", each, "--steps", 4, "--json"))
        with Session.open(path) as session:
            for got in report["steps"]:
                was = session.step(got["step"])
                assert got["lr"] == was.hyper.lr
                assert np.float32(got["grad_norm"]) == np.float32(was.grad_norm)
        assert [p["name"] for p in document(call("layout", each, "--json"))["params"]]
    code, _, err = call("run", path, "--steps", 7)
    assert code == 2
    assert "Step 7 cannot be rebuilt: it was not recorded, the recording holds steps 1 to 6." in err


def test_a_recording_runs_in_its_own_form_unless_another_is_named(
    gpu: Gpu, call: Call, tmp_path: Path
) -> None:
    path = tmp_path / "run.session"
    record(gpu, path, 2, settings=constant(Variant(kernel="8bit", codec="sqrt")))
    form = document(call("run", path, "--steps", 1, "--json"))["variant"]
    assert (form["kernel"], form["codec"]) == ("8bit", "sqrt")
    form = document(call("run", path, "--steps", 1, "--kernel", "f32", "--json"))["variant"]
    assert (form["kernel"], form["codec"]) == ("f32", "sqrt")


def test_explain_goes_on_from_the_nearest_state(gpu: Gpu, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(gpu, path, 9, "grads:1+keyframes:3", changing)
    for step in (1, 6, 8):
        report = document(
            call("explain", path, "--param", "h.1.mlp.weight", "--index", 9, "--step", step, "--json")
        )
        assert report["step"] == step
        assert report["agrees_with_kernel"]
        if step % 3 == 0:
            with Session.open(path) as session:
                wanted = session.tensor("w", step, "h.1.mlp.weight").reshape(-1)[9]
            assert np.float32(report["after"]["w"]) == wanted
    code, _, err = call("explain", path, "--param", "scalar", "--index", 0, "--step", 10)
    assert code == 2
    assert "Step 10 cannot be rebuilt" in err


def test_a_run_changes_its_form_where_the_recording_did(gpu: Gpu, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    forms = (Variant(), Variant(dispatch="per-tensor", numerics="precise"), Variant(kernel="f16"))
    record(gpu, path, 6, settings=lambda step: (Hyper(), forms[(step - 1) // 2]), stats="light")
    out = tmp_path / "after.safetensors"
    document(call("run", path, "--steps", 6, "--out", out, "--json"))
    with Session.open(path) as session:
        tensors = load_file(out)
        for p in PARAMS:
            assert tensors[f"w/{p.name}"].tobytes() == session.tensor("w", 6, p.name).tobytes()


def test_a_setting_that_is_changed_holds_over_what_was_recorded(gpu: Gpu, tmp_path: Path) -> None:
    from inspector.sources.base import hyper_at

    path = tmp_path / "run.session"
    record(gpu, path, 6, settings=changing)
    source = Recording(path)
    assert hyper_at(source, source.hyper, source.schedule, 5) == changing(5)[0]
    typed = replace(source.hyper, eps=1e-3)
    assert hyper_at(source, typed, source.schedule, 5) == replace(changing(5)[0], eps=1e-3)
    with pytest.raises(UsageError, match="Step 11 cannot be rebuilt"):
        source.starting_for(11)
    assert source.params == replays.PARAMS
