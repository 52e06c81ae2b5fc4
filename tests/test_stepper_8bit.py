"""A stepper over 8-bit state: every form, undo, views and state, against the codecs and the float64 step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from gpu_helpers import everything, make_stepper, normal_state, whole
from harness_8bit import Outcome
from test_kernels_8bit import assert_stepped

from inspector.codecs import CODECS, Codec, ambiguous, encode, pack, state_bytes
from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.explain import explain_element
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import NUMERICS, Hyper, Numerics
from inspector.layout import Param, make_layout
from inspector.mapping import MapRequest, Quantity
from inspector.optimizers import plan_step
from inspector.plan import DISPATCH_FORMS, STATE_TYPES, DispatchForm, Limits, Variant, required_placement
from inspector.preset import gpt_116m_params
from inspector.statistics import buffer_stats
from inspector.stepping import HostGradients
from inspector.stores import LANES, MOMENTS, Lane

pytestmark = pytest.mark.gpu

HYPER = Hyper(weight_decay=0.1, lr=1e-2, beta2=0.95)
UNCLIPPED = replace(HYPER, max_grad_norm=math.inf)
"""Where params lie elsewhere the norm is added up in another order; without a limit that makes no difference."""
PARAMS = [
    Param("small.weight", (40, 33)),
    Param("a", (97, 64)),
    Param("norm", (300,)),
    Param("b", (5000,)),
    Param("c", (64, 64)),
    Param("odd", (4097,), True),
    Param("empty", (0, 3)),
    Param("one", (1,), True),
]
CODED = {"a", "b", "c", "odd"}
PAGES = {"max_buffer": 49_152, "max_binding": 16_384}
each_codec = pytest.mark.parametrize("codec", CODECS)


def form(
    codec: Codec = "linear",
    dispatch: DispatchForm = "two-block",
    numerics: Numerics = "published",
    fused: bool = True,
    small: str = "f32",
    optimizer: str = "adamw",
) -> Variant:
    return Variant(
        optimizer=optimizer, kernel="8bit", codec=codec, dispatch=dispatch, numerics=numerics, fused=fused,
        small_state=small,  # type: ignore[arg-type]
    )  # fmt: skip


def started(gpu: Gpu, variant: Variant, **limits: int) -> GpuStepper:
    w, _, m, v = normal_state(PARAMS)
    return make_stepper(gpu, PARAMS, variant, w=w, m=m, v=v, finished_steps=4, **limits)


def gradients(seed: int) -> dict[str, F32Array]:
    g = normal_state(PARAMS, seed=seed)[1]
    g["a"][5], g["norm"][0] = np.nan, np.inf
    return g


def run(stepper: GpuStepper, steps: int = 1, seed: int = 1) -> None:
    for step in range(steps):
        stepper.begin_step(HostGradients(gradients(seed + step)))
        stepper.run_to_end(UNCLIPPED)


def kept(stepper: GpuStepper) -> dict[str, bytes]:
    """Bytes of w and of the state as it is kept, by param."""
    state = stepper.state()
    out = {}
    for name, w in state.w.items():
        coded = state.coded.get(name)
        moments = (state.m[name], state.v[name])
        if coded is not None:
            moments = (pack(coded.m.codes), coded.m.scales, pack(coded.v.codes), coded.v.scales)  # type: ignore[assignment]
        out[name] = b"".join(x.tobytes() for x in (w, *moments))
    return out


def assert_gaps_zero(stepper: GpuStepper) -> None:
    used = np.zeros(stepper.layout.padded_elements, bool)
    for segment in stepper.layout:
        used[segment.offset : segment.stop] = True
    for lane in LANES:
        assert not whole(stepper, lane)[~used].any(), lane


@pytest.mark.parametrize(("codec", "limits"), [("linear", {}), ("sqrt", PAGES), ("dynamic", PAGES)], ids=str)
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "passes"])
@pytest.mark.parametrize("dispatch", DISPATCH_FORMS)
@pytest.mark.parametrize("small", STATE_TYPES)
def test_every_form_gives_the_same_bits(
    gpu: Gpu, small: str, dispatch: DispatchForm, fused: bool, limits: dict[str, int], codec: Codec
) -> None:
    stepper = started(gpu, form(codec, dispatch, fused=fused, small=small), **limits)
    plain = started(gpu, form(codec, small=small))
    assert (len(stepper.layout.pages) > 1) == bool(limits)
    for each in (stepper, plain):
        run(each, 3)
    assert kept(stepper) == kept(plain)
    assert_gaps_zero(stepper)


@each_codec
@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("optimizer", ["adamw", "adam-l2"])
def test_a_step_is_the_oracles(gpu: Gpu, optimizer: str, numerics: Numerics, codec: Codec) -> None:
    stepper = started(gpu, form(codec, numerics=numerics, optimizer=optimizer))
    before = stepper.state()
    g = gradients(7)
    stepper.begin_step(HostGradients(g))
    stepper.run_to_end(HYPER)
    scale = stepper.grad_stats().clip_scale
    after = stepper.state()
    assert set(before.coded) == CODED
    for name, codes in before.coded.items():
        new = after.coded[name]
        got = Outcome(after.w[name], np.zeros_like(g[name]), new, (pack(new.m.codes), pack(new.v.codes)))
        assert_stepped(
            got, before.w[name], g[name], codes, hyper=HYPER, step=5, scale=scale,
            decays=stepper.layout[name].block == "wd", numerics=numerics, l2=optimizer == "adam-l2",
        )  # fmt: skip


def test_small_params_go_on_in_float32_bit_for_bit(gpu: Gpu) -> None:
    stepper, plain = started(gpu, form("dynamic")), started(gpu, Variant())
    for each in (stepper, plain):
        run(each, 3)
    coded, exact = stepper.state(), plain.state()
    for segment in stepper.layout:
        same = all(
            lane[segment.name].tobytes() == other[segment.name].tobytes()
            for lane, other in ((coded.w, exact.w), (coded.m, exact.m), (coded.v, exact.v))
        )
        assert segment.state == ("8bit" if segment.name in CODED else "f32")
        assert same == (segment.state == "f32") or segment.numel == 0, segment.name


@pytest.mark.parametrize("limits", [{}, PAGES], ids=["one page", "pages"])
@each_codec
def test_a_float32_state_is_loaded_as_the_codec_codes_it(
    gpu: Gpu, codec: Codec, limits: dict[str, int]
) -> None:
    _, _, m, v = normal_state(PARAMS)
    stepper = started(gpu, form(codec, small="8bit"), **limits)
    state = stepper.state()
    for segment in stepper.layout:
        if not segment.numel:
            continue
        coded = state.coded[segment.name]
        for which, got, values in (("m", coded.m, m[segment.name]), ("v", coded.v, v[segment.name])):
            wanted = encode(codec, which, values)  # type: ignore[arg-type]
            np.testing.assert_allclose(got.scales, wanted.scales, rtol=5e-7)
            differ = got.codes != wanted.codes
            assert not (differ & ~ambiguous(codec, which, values, wanted.scales, 8)).any()  # type: ignore[arg-type]


@each_codec
def test_a_state_saved_as_codes_goes_on_byte_for_byte(gpu: Gpu, codec: Codec) -> None:
    first = started(gpu, form(codec))
    run(first, 2)
    state = first.state()
    again = make_stepper(
        gpu, PARAMS, form(codec, "per-tensor"),
        w=state.w, m=state.m, v=state.v, finished_steps=state.finished_steps, coded=state.coded,
    )  # fmt: skip
    assert kept(first) == kept(again)
    for each in (first, again):
        run(each, 2, seed=9)
    assert kept(first) == kept(again)


def test_a_state_in_other_codes_is_coded_anew(gpu: Gpu) -> None:
    first = started(gpu, form("dynamic"))
    state = first.state()
    again = make_stepper(
        gpu, PARAMS, form("sqrt"), w=state.w, m=state.m, v=state.v, finished_steps=4, coded=state.coded
    )
    for name, coded in again.state().coded.items():
        wanted = encode("sqrt", "v", state.v[name])
        assert np.mean(coded.v.codes == wanted.codes) > 0.99


@pytest.mark.parametrize("limits", [{}, PAGES], ids=["one page", "pages"])
@pytest.mark.parametrize("dispatch", DISPATCH_FORMS)
@each_codec
def test_undo_takes_every_byte_back(
    gpu: Gpu, codec: Codec, dispatch: DispatchForm, limits: dict[str, int]
) -> None:
    stepper = started(gpu, form(codec, dispatch), **limits)
    run(stepper)
    stepper.begin_step(HostGradients(gradients(3)))
    pictures = [(everything(stepper), {lane: whole(stepper, lane) for lane in LANES})]
    while not stepper.cursor.at_end:
        stepper.run_dispatch(HYPER)
        before = {lane: stepper.read(lane, 0, stepper.layout.padded_elements, before=True) for lane in LANES}
        for lane in LANES:
            assert before[lane].tobytes() == pictures[-1][1][lane].tobytes()
        pictures.append((everything(stepper), {lane: whole(stepper, lane) for lane in LANES}))
    while len(pictures) > 1:
        pictures.pop()
        assert stepper.undo_dispatch()
        assert everything(stepper) == pictures[-1][0]


def pixels(stepper: GpuStepper, lane: Lane, quantity: Quantity) -> F32Array:
    """A lane as the map has it, an element a pixel; 0 where nothing is."""
    wide = stepper.layout.padded_elements
    requests = [MapRequest(float(at), 1.0, min(1024, wide - at), 1, quantity) for at in range(0, wide, 1024)]
    found = stepper.mapper.pixels(requests)
    assert found is not None
    return np.nan_to_num(np.concatenate([lanes[lane].extreme[0] for lanes in found.pixels]))


@pytest.mark.parametrize("limits", [{}, PAGES], ids=["one page", "pages"])
@each_codec
def test_what_is_looked_at_is_what_the_codes_stand_for(
    gpu: Gpu, codec: Codec, limits: dict[str, int]
) -> None:
    stepper = started(gpu, form(codec), **limits)
    run(stepper)
    stepper.begin_step(HostGradients(gradients(3)))
    stepper.run_to_end(HYPER)
    state = stepper.state()
    wide = stepper.layout.padded_elements
    values: Mapping[Lane, Mapping[str, F32Array]] = {"w": state.w, "m": state.m, "v": state.v}
    for lane in MOMENTS:
        for segment in stepper.layout:
            if segment.numel:
                wanted = buffer_stats(values[lane][segment.name])
                got = stepper.stats(lane, segment.name)
                assert (got.zeros, got.max_abs) == (wanted.zeros, wanted.max_abs)
                np.testing.assert_array_equal(got.exponents, wanted.exponents)
        everything_ = np.concatenate([values[lane][s.name] for s in stepper.layout])
        assert stepper.counts(lane).zeros == buffer_stats(everything_).zeros
        np.testing.assert_array_equal(pixels(stepper, lane, "value"), whole(stepper, lane))
    changed = set()
    while stepper.undo_dispatch() and stepper.cursor.dispatch:
        for lane in {"w", "m", "v"}.intersection(stepper.changed_lanes()):
            difference = whole(stepper, lane) - stepper.read(lane, 0, wide, before=True)
            np.testing.assert_array_equal(pixels(stepper, lane, "change"), difference)
            changed |= {lane} if difference.any() else set()
    assert changed == {"w", "m", "v"}


@each_codec
@pytest.mark.parametrize(("param", "index"), [("a", 77), ("b", 4999), ("odd", 4096), ("norm", 7)])
def test_explain_agrees_with_the_dispatch(gpu: Gpu, param: str, index: int, codec: Codec) -> None:
    stepper = started(gpu, form(codec))
    stepper.begin_step(HostGradients(gradients(3)))
    found = explain_element(stepper, HYPER, param, index)
    assert found.agrees
    assert max(line.ulp for line in found.lines) < 8
    assert found.lines[-1].f32 == stepper.state().w[param][index]
    assert len(found.coded) == (2 if param in CODED else 0)
    for line in found.coded:
        assert line.stored == stepper.read(line.lane, found.element, 1)[0]
        assert line.value == next(each.f32 for each in found.lines if each.name == line.lane)


def test_another_codec_or_type_of_state_asks_for_a_new_layout(gpu: Gpu) -> None:
    stepper = started(gpu, form("linear"))
    assert stepper.can_take(form("linear", "single", fused=False, numerics="precise"))
    for other in (form("sqrt"), form("linear", small="8bit"), Variant(), form("linear", "per-tensor")):
        assert not stepper.can_take(other)
        with pytest.raises(UsageError, match="lay them out anew"):
            stepper.set_variant(other)
    assert not started(gpu, Variant()).can_take(form())


def test_the_memory_is_what_the_codes_take(gpu: Gpu) -> None:
    """w and g 4 bytes each, m and v 2 and 8 bytes a block of 256 where coded, 8 where not."""
    stepper = started(gpu, form())
    sizes = {spec.name: spec.size for spec in stepper.plan.buffers}
    state = sum(size for name, size in sizes.items() if name[0] in "mv")
    least = sum(state_bytes(s.numel) if s.state == "8bit" else 8 * s.numel for s in stepper.layout)
    assert sum(s.state_bytes for s in stepper.layout) == least
    # Gaps up to where a binding may start; and the codes' buffers have room for the elements between.
    assert least <= state <= least + 10 * 3584


def test_the_reference_model_saves_three_quarters_of_its_state() -> None:
    """116,017,920 elements, 19,200 of them small: 8 bytes an element become 2 and a scale a block."""
    layout = make_layout(gpt_116m_params(), placement=required_placement(form()))
    plan = plan_step(layout, Limits(max_buffer_size=1 << 30), form())
    state = sum(spec.size for spec in plan.buffers if spec.name[0] in "mv")
    small = 25 * 768
    assert state == sum(s.state_bytes for s in layout)
    assert state == 2 * (116_017_920 - small) + 8 * (116_017_920 - small) // 256 + 8 * small
    assert state < 0.26 * 8 * 116_017_920


def test_moments_of_a_zero_state_stay_exactly_zero_under_no_gradient(gpu: Gpu) -> None:
    zeros: dict[str, F32Array] = {p.name: np.full(p.numel, 0.5, np.float32) for p in PARAMS}
    for codec in CODECS:
        stepper = make_stepper(gpu, PARAMS, form(codec), w=zeros)
        for _ in range(2):
            stepper.begin_step(HostGradients({}))
            stepper.run_to_end(Hyper(weight_decay=0.0))
        state = stepper.state()
        for name, w in state.w.items():
            assert w.tobytes() == zeros[name].tobytes()
            assert not state.m[name].any()
            assert not state.v[name].any()
