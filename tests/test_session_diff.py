"""Two recordings: the same, or where they differ first and by how much, as numpy has it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recordings
import replays
from recordings import NAMES, about, recorded, state, table, values

from inspector.errors import UsageError
from inspector.floats import F32Array, bits
from inspector.gpu.device import Gpu
from inspector.hyper import Hyper
from inspector.layout import Param, make_layout
from inspector.plan import Limits, Variant
from inspector.session.archive import pack
from inspector.session.compare import CHUNK, ULP_BINS, compare_arrays, state_differences
from inspector.session.diff import diff, histogram
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.records import RecordedLayout
from inspector.stepping import HostState, KernelTime

Call = Any


def document(result: tuple[int, str, str], code: int = 0) -> Any:
    got, out, err = result
    assert got == code, err
    return json.loads(out)


def floats(*numbers: float) -> F32Array:
    return np.array(numbers, np.float32)


# --- arrays


def test_arrays_are_compared_by_their_bits() -> None:
    a = floats(1, 0, np.nan, 2, np.inf)
    assert compare_arrays(a, a.copy()).differing == 0
    b = a.copy()
    b[1] = -0.0
    found = compare_arrays(a, b)
    assert (found.differing, found.first, found.max_ulp) == (1, 1, 0)
    b[3] = np.nextafter(np.nextafter(b[3], floats(9)[0]), floats(9)[0])
    found = compare_arrays(a, b)
    assert (found.differing, found.first, found.max_ulp, found.max_index) == (2, 1, 2, 3)
    quiet, payload = (np.array([raw], np.uint32).view(np.float32) for raw in (0x7FC00000, 0x7FC00001))
    assert compare_arrays(quiet, payload).differing == 1
    assert compare_arrays(quiet, floats(1)).max_ulp == 1 << 32


def test_long_arrays_are_compared_in_chunks_as_in_one() -> None:
    rng = np.random.default_rng(1)
    a = rng.standard_normal(2 * CHUNK + 77).astype(np.float32)
    b = a.copy()
    places = rng.choice(len(a), 1000, replace=False)
    b[places] = (bits(b[places]) ^ (np.uint32(1) << rng.integers(0, 12, 1000).astype(np.uint32))).view(
        np.float32
    )
    found = compare_arrays(a, b)
    apart = np.abs(bits(a).astype(np.int64) - bits(b).astype(np.int64))
    assert (found.differing, found.first) == (1000, places.min())
    assert (found.max_ulp, found.max_index) == (apart.max(), apart.argmax())
    assert found.histogram.sum() == len(a)
    assert found.histogram[:13].tolist() == [
        len(a) - 1000,
        *(int((apart == 1 << i).sum()) for i in range(12)),
    ]
    wide = a.astype(np.float64), b.astype(np.float64)
    assert found.relative == pytest.approx(
        np.linalg.norm(wide[1] - wide[0]) / np.linalg.norm(wide[0]), rel=1e-9
    )


def test_codes_are_compared_byte_for_byte() -> None:
    a, b = state(3, coded=True), state(3, coded=True)
    assert state_differences(a, b, recordings.PARAMS, {})[0] == []
    name = NAMES[0]
    coded = b.coded[name]
    codes = coded.m.codes.copy()
    codes[300] ^= 1
    changed = replace(coded, m=replace(coded.m, codes=codes))
    other = HostState(b.w, {**b.m, name: changed.decoded(320)[0].astype(np.float32)}, b.v, 3, {name: changed})
    (found,), lanes = state_differences(a, other, recordings.PARAMS, {name: 4})
    assert (found.buffer, found.param, found.index, found.dispatch) == ("m_packed", name, 300, 4)
    assert lanes["m"].differing == 1
    assert lanes["w"].differing == 0


# --- sessions, without a device


def write(
    path: Path, steps: int = 8, *, change: Any = None, policy: str = "grads:2+keyframes:4", **facts: Any
) -> None:
    """A made-up recording; `change(step, what, values)` may change what is recorded of a step."""
    change = change or (lambda step, what, value: value)
    with Recorder.create(path, about(policy, **facts)) as recorder:
        if recorder.policy.captures:
            recorder.offer_start(change(0, "state", state(0)))
        for step in range(1, steps + 1):
            wanted = recorder.wants(step)
            recorder.offer(
                change(step, "step", recorded(step)),
                statistics=change(step, "table", table(step)),
                gradients=change(step, "g", values(step, "g")) if wanted.gradients else None,
                keyframe=change(step, "state", state(step)) if wanted.keyframe else None,
            )


def compare(a: Path, b: Path) -> Any:
    with Session.open(a) as x, Session.open(b) as y:
        return diff(x, y)


def test_a_recording_does_not_differ_from_itself_or_from_a_packed_copy(tmp_path: Path, call: Call) -> None:
    path = tmp_path / "a.session"
    write(path)
    for other in (path, pack(path)):
        report = document(call("diff", path, other, "--json"))
        assert report["same"]
        assert report["first_difference"] is None
        assert [s["step"] for s in report["steps"]] == list(range(1, 9))
        assert all(
            s[name]["ulp"] == 0 for s in report["steps"] for name in ("loss", "grad_norm", "clip_scale")
        )
        assert report["ulp_histogram"][0] == 3 * sum(p.numel for p in recordings.PARAMS)
        assert sum(report["ulp_histogram"]) == report["ulp_histogram"][0]
        assert [k["step"] for k in report["keyframes"]] == [0, 4, 8]
        code, out, _ = call("diff", path, other)
        assert code == 0
        assert "8 steps that both hold: every number and tensor in both has the same bits." in out


def one_bit(values: dict[str, F32Array], name: str, index: int) -> dict[str, F32Array]:
    changed = values[name].copy()
    changed.view(np.uint32)[index] ^= 1
    return {**values, name: changed}


@pytest.mark.parametrize(
    ("step", "what", "change", "expected"),
    [
        (4, "g", lambda g: one_bit(g, NAMES[0], 200), (4, "g", NAMES[0], 200)),
        (4, "state", lambda s: replace(s, m=one_bit(s.m, NAMES[1], 6)), (4, "m", NAMES[1], 6)),
        (0, "state", lambda s: replace(s, w=one_bit(s.w, NAMES[3], 0)), (0, "w", NAMES[3], 0)),
        (5, "step", lambda s: replace(s, grad_norm=float(np.nextafter(np.float32(0.2), np.float32(1)))),
         (5, "grad_stats", None, 0)),
        (6, "step", lambda s: replace(s, loss=s.loss + 1e-3), (6, "loss", None, None)),
        (7, "step", lambda s: replace(s, nonfinite=replace(s.nonfinite, nan=9)), (7, "g", None, None)),
        (3, "table", lambda t: table(4), (3, "statistics", NAMES[0], None)),
    ],
)  # fmt: skip
def test_the_first_difference_is_where_it_is(
    tmp_path: Path, call: Call, step: int, what: str, change: Any, expected: tuple[Any, ...]
) -> None:
    a, b = tmp_path / "a.session", tmp_path / "b.session"
    write(a)
    write(b, change=lambda t, kind, value: change(value) if (t, kind) == (step, what) else value)
    report = document(call("diff", a, b, "--json"))
    first = report["first_difference"]
    assert not report["same"]
    assert (first["step"], first["buffer"], first["param"], first["index"]) == expected
    code, out, _ = call("diff", a, b)
    assert code == 0
    assert f"the first difference is in step {step}" in out


def test_elements_of_the_mega_buffer_are_those_of_their_params(tmp_path: Path, call: Call) -> None:
    """Where the params lie otherwise, the same element of a param has another number there, and nothing differs."""
    params = recordings.PARAMS
    laid = [RecordedLayout.of(make_layout(params, align_bytes=n), Limits(), params) for n in (256, 1024)]

    def moved(t: int, kind: str, value: Any) -> Any:
        if kind == "step":
            return replace(value, layout=laid[1], nonfinite=replace(value.nonfinite, first=9))
        if kind == "table":
            return replace(value, update=replace(value.update, largest_at=value.update.largest_at + 64))
        return value

    a, b = tmp_path / "a.session", tmp_path / "b.session"
    write(a, change=lambda t, kind, value: replace(value, layout=laid[0]) if kind == "step" else value)
    write(b, change=moved)
    report = document(call("diff", a, b, "--json"))
    assert report["first_difference"] is None
    assert report["same"]


def test_a_loss_that_one_does_not_know_is_no_distance(tmp_path: Path, call: Call) -> None:
    """As in a replay under other settings: it is no difference, while a loss that is NaN in one is."""
    a, b, c = (tmp_path / f"{name}.session" for name in "abc")
    write(a)
    write(b, change=lambda t, kind, value: replace(value, loss=None) if kind == "step" else value)
    write(c, change=lambda t, kind, value: replace(value, loss=np.nan) if kind == "step" else value)
    report = document(call("diff", a, b, "--json"))
    assert report["same"]
    assert {s["loss"]["ulp"] for s in report["steps"]} == {None}
    code, out, _ = call("diff", a, b)
    assert code == 0
    assert "that differ" not in out
    assert all(s["loss"]["ulp"] for s in document(call("diff", a, c, "--json"))["steps"])


def test_differences_over_time_are_those_of_numpy(tmp_path: Path, call: Call) -> None:
    def changed(step: int, what: str, value: Any) -> Any:
        if what == "state" and step:
            return replace(value, w={**value.w, NAMES[0]: value.w[NAMES[0]] * np.float32(1 + step / 64)})
        if what == "step":
            return replace(value, clip_scale=1 + 2.0**-23 * step)
        return value

    a, b = tmp_path / "a.session", tmp_path / "b.session"
    write(a)
    write(b, change=changed)
    report = document(call("diff", a, b, "--json"))
    assert [s["clip_scale"]["ulp"] for s in report["steps"]] == list(range(1, 9))
    mine = next(p for p in report["params"] if p["name"] == NAMES[0])
    for entry in mine["tensors"]["w"]:
        x, y = (
            s.w[NAMES[0]].astype(np.float64)
            for s in (state(entry["step"]), changed(entry["step"], "state", state(entry["step"])))
        )
        assert entry["relative"] == pytest.approx(np.linalg.norm(y - x) / np.linalg.norm(x), rel=1e-9)
    assert len(mine["norms"]["‖g‖"]) == 8
    found = compare(a, b)
    assert len(histogram(found)) == ULP_BINS
    assert sum(histogram(found)) == 3 * sum(p.numel for p in recordings.PARAMS)
    assert histogram(found)[0] < sum(histogram(found))


def test_settings_and_kernel_times_are_compared(tmp_path: Path, call: Call) -> None:
    def other(step: int, what: str, value: Any) -> Any:
        if what != "step":
            return value
        kernels = tuple(replace(k, ms=None if k.ms is None else 2 * k.ms) for k in value.kernels)
        hyper = replace(value.hyper, beta2=0.9 if step >= 5 else value.hyper.beta2)
        return replace(value, kernels=(*kernels, KernelTime("scale", None, 1.0, "gpu")), hyper=hyper)

    a, b = tmp_path / "a.session", tmp_path / "b.session"
    write(a, policy="stats")
    write(b, policy="stats", change=other)
    report = document(call("diff", a, b, "--json"))
    assert report["settings"] == [{"step": 5, "name": "beta2", "a": 0.999, "b": 0.9}]
    timings = {t["kernel"]: t for t in report["timings"]}
    assert timings["reduce_norm_sq"]["ratio"] == 2
    assert timings["adamw_update wd"]["ratio"] == 2
    assert timings["adamw_update no-wd"]["ratio"] == "NaN"
    assert (timings["scale"]["a_ms"], timings["scale"]["b_ms"]) == ("NaN", 1)
    assert report["same"]
    assert report["ulp_histogram"] is None
    assert call("diff", a, b)[0] == 0


def test_recordings_that_cannot_be_compared_are_refused_in_a_sentence(tmp_path: Path, call: Call) -> None:
    a, b, c, d, e = (tmp_path / f"{name}.session" for name in "abcde")
    write(a, policy="stats")
    first, *rest = recordings.PARAMS
    for path, params in (
        (b, (Param(first.name, (40, 8)), *rest)),
        (c, (first, *rest, Param("more", (2,)))),
        (d, (replace(first, decay=False), *rest)),
    ):
        with Recorder.create(path, about(params=params)) as recorder:
            recorder.offer(recorded(1))
    with Recorder.create(e, about(finished_steps=20)) as recorder:
        recorder.offer(recorded(21))
    for path, sentence in (
        (b, "param 'h.0.attn.weight' has the shape [8, 40] in one, [40, 8] in the other."),
        (c, f"param 'more' is in {c} alone."),
        (d, "param 'h.0.attn.weight' is decayed in one and not in the other."),
        (e, "have no step in common: steps 1 to 8 stand beside steps 21 to 21."),
    ):
        code, out, err = call("diff", a, path, "--json")
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert sentence in err
    with pytest.raises(UsageError):
        compare(a, b)


def test_only_steps_that_both_hold_are_compared(tmp_path: Path) -> None:
    a, b = tmp_path / "a.session", tmp_path / "b.session"
    write(a, 8)
    write(b, 5, policy="keyframes:2")
    found = compare(a, b)
    assert found.steps == range(1, 6)
    assert list(found.keyframes) == [0, 4]
    assert found.same


# --- what a replay saves


@pytest.mark.gpu
def test_a_replay_does_not_differ_and_a_what_if_does_from_its_first_step(
    gpu: Gpu, call: Call, tmp_path: Path
) -> None:
    path, again, other = (tmp_path / f"{name}.session" for name in ("run", "again", "if"))
    replays.record(gpu, path, 5, settings=replays.constant(max_grad_norm=0.5))
    assert call("replay", path, "--verify", "--save", again)[0] == 0
    report = document(call("diff", path, again, "--json"))
    assert report["same"], report["first_difference"]
    assert report["settings"] == []
    made = document(call("replay", path, "--weight-decay", 0.5, "--save", other, "--json"))
    report = document(call("diff", path, other, "--json"))
    first = report["first_difference"]
    # The decay comes in with the update, so gradients and norm are as they were; no-wd params stay.
    assert (first["step"], first["param"]) == (1, "h.0.attn.weight")
    assert report["settings"] == [{"step": 1, "name": "weight_decay", "a": 0.1, "b": 0.5}]
    assert all(s["grad_norm"]["ulp"] == 0 for s in report["steps"])
    drift = {p["name"]: [e["relative"] for e in p["tensors"]["w"]] for p in report["params"]}
    assert drift["head.bias"] == [0] * 6
    assert drift["h.0.attn.weight"] == sorted(drift["h.0.attn.weight"])
    assert drift["h.0.attn.weight"][-1] > 0
    assert [k["w"]["relative"] for k in report["keyframes"][1:]] == pytest.approx(
        [s["keyframe"]["w"]["relative"] for s in made["steps"]], rel=1e-9
    )


@pytest.mark.gpu
def test_two_forms_are_compared_by_what_codes_stand_for(gpu: Gpu, call: Call, tmp_path: Path) -> None:
    a, b = tmp_path / "a.session", tmp_path / "b.session"

    def in_form(form: Variant, step: int) -> tuple[Hyper, Variant]:
        return Hyper(lr=1e-3), form

    for path, variant in ((a, Variant()), (b, Variant(kernel="8bit", codec="dynamic"))):
        replays.record(gpu, path, 3, settings=partial(in_form, variant))
    report = document(call("diff", a, b, "--json"))
    assert {s["name"] for s in report["settings"]} == {"kernel", "codec"}
    assert report["first_difference"]["step"] == 1
    assert 0 < report["keyframes"][-1]["v"]["relative"] < 0.1
