"""Looking at a run: elements as dispatches were given them, over steps, where values lie, matrices as images."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_helpers import PUBLISHED_GRID, make_stepper, normal_state, smaller, variant_name

from inspector.explaining import dispatch_of
from inspector.gpu.device import Gpu
from inspector.gpu.find import AT_ONCE
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.looking import MatrixRequest, Moment
from inspector.plan import Variant
from inspector.stepping import HostGradients
from inspector.stores import LANES, Lane
from inspector.value_search import matches, parse_query

pytestmark = pytest.mark.gpu

HYPER = Hyper(lr=1e-2, weight_decay=0.1)
PARAMS = [Param("a", (40, 50)), Param("b", (70,)), Param("c", (3, 5, 7)), Param("d", (90, 71))]
EIGHT_BIT = Variant(kernel="8bit", small_state="8bit")
FORMS = [
    Variant(), Variant(dispatch="per-tensor"), Variant(fused=False, numerics="precise"), PUBLISHED_GRID,
    EIGHT_BIT, Variant(kernel="8bit", codec="dynamic"),
]  # fmt: skip
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, 1.0, -1.0, 3.4e38]


def form_name(variant: Variant) -> str:
    return f"{variant_name(variant)} {variant.kernel} {variant.codec} {variant.fused}"


def stepped(gpu: Gpu, variant: Variant, steps: int = 0, **limits: int) -> GpuStepper:
    w, g, m, v = normal_state(PARAMS)
    stepper = make_stepper(gpu, PARAMS, variant, w=w, m=m, v=v, **limits)  # type: ignore[arg-type]
    for t in range(1, steps + 1):
        stepper.begin_step(HostGradients({n: x * np.float32(t) for n, x in g.items()}))
        stepper.run_to_end(HYPER)
    return stepper


def begin(stepper: GpuStepper, t: int) -> None:
    g = normal_state(PARAMS)[1]
    stepper.begin_step(HostGradients({n: x * np.float32(t) for n, x in g.items()}))


def seen(stepper: GpuStepper, element: int) -> dict[Lane, bytes]:
    return {lane: stepper.read(lane, element, 1).tobytes() for lane in LANES}


@pytest.mark.parametrize("variant", FORMS, ids=form_name)
def test_an_element_is_as_each_dispatch_was_given_it(gpu: Gpu, variant: Variant) -> None:
    stepper = stepped(gpu, variant, 1)
    begin(stepper, 2)
    element = stepper.layout["a"].offset + 1301
    given = []
    for _ in stepper.plan.dispatches:
        given.append(seen(stepper, element))
        stepper.run_dispatch(HYPER)
    for number, wanted in enumerate(given):
        found = stepper.looker.element(element, given_to=number)
        assert found is not None
        assert {lane: array.tobytes() for lane, array in found.as_arrays().items()} == wanted
    now = stepper.looker.element(element)
    assert now is not None
    assert {lane: array.tobytes() for lane, array in now.as_arrays().items()} == seen(stepper, element)
    codes = stepper.state_of("a")
    assert (now.codes is None) == (codes is None)
    if codes is not None and now.codes is not None:
        assert (now.codes.m, now.codes.v) == (codes.m.codes[1301], codes.v.codes[1301])
        assert (now.codes.m_scale, now.codes.v_scale) == (codes.m.scales[5], codes.v.scales[5])


def test_what_memory_does_not_reach_is_not_known(gpu: Gpu) -> None:
    w, g, m, v = normal_state(PARAMS)
    stepper = make_stepper(gpu, PARAMS, w=w, m=m, v=v, undo_bytes=0)
    stepper.begin_step(HostGradients(g))
    stepper.run_to_end(HYPER)
    assert stepper.looker.element(0, given_to=0) is None
    assert stepper.looker.element(0) is not None
    assert list(stepper.looker.trail(0).states) == [1]


@pytest.mark.parametrize("variant", FORMS, ids=form_name)
def test_an_element_over_the_steps_in_memory(gpu: Gpu, variant: Variant) -> None:
    stepper = stepped(gpu, variant)
    # Of the block that is updated first, so that it has been while the step still goes on.
    element = stepper.layout["a"].offset + 69
    update = dispatch_of(stepper.plan, element)
    assert update is not None
    states = {0: [seen(stepper, element)[lane] for lane in ("w", "m", "v")]}
    gradients = {}
    for t in range(1, 5):
        begin(stepper, t)
        gradients[t] = seen(stepper, element)["g"]
        stepper.run_to_end(HYPER)
        states[t] = [seen(stepper, element)[lane] for lane in ("w", "m", "v")]
    begin(stepper, 5)
    gradients[5] = seen(stepper, element)["g"]
    for dispatch in range(len(stepper.plan.dispatches) + 1):
        found = stepper.looker.trail(element)
        assert {
            s: [np.float32(x).tobytes() for x in each] for s, each in found.states.items() if s < 5
        } == states
        assert {s: np.float32(x).tobytes() for s, x in found.gradients.items()} == gradients
        assert (5 in found.states) == (dispatch > update.index)
        if dispatch < len(stepper.plan.dispatches):
            stepper.run_dispatch(HYPER)
    assert 5 in found.states
    later = stepper.looker.trail(element, since=3)
    assert (sorted(later.states), sorted(later.gradients)) == ([3, 4, 5], [3, 4, 5])


@pytest.mark.parametrize("variant", FORMS, ids=form_name)
def test_statistics_ahead_are_those_to_come_and_leave_no_trace(gpu: Gpu, variant: Variant) -> None:
    stepper = stepped(gpu, variant, 1)
    begin(stepper, 2)
    scratch = [spec.name for spec in stepper.plan.buffers if spec.kind == "scratch"]

    def all_bytes() -> list[bytes]:
        buffers = stepper._memory.buffers
        return [gpu.read(buffers[n], 0, buffers[n].size // 4 * 4).tobytes() for n in (*scratch, "w", "g")]

    found = []
    for dispatch in stepper.plan.dispatches:
        before = all_bytes()
        found.append(stepper.looker.stats_ahead(HYPER))
        assert all_bytes() == before
        stepper.run_dispatch(HYPER)
        if dispatch.updates:
            break
    wanted = stepper.grad_stats()
    if variant.reduce == "two-pass":
        assert found == [wanted] * len(found)
    else:
        assert [f.grad_norm for f in found] == pytest.approx([wanted.grad_norm] * len(found), rel=1e-5)


@pytest.mark.parametrize("variant", [Variant(), EIGHT_BIT, Variant(dispatch="single")], ids=form_name)
@pytest.mark.parametrize(
    "limits", [{}, {"max_buffer": 20_480, "max_binding": 5_120}], ids=["one page", "pages"]
)
def test_values_are_found_where_numpy_finds_them(gpu: Gpu, variant: Variant, limits: dict[str, int]) -> None:
    w, g, m, v = normal_state(PARAMS)
    for name in ("a", "c"):
        w[name][7 : 7 + len(SPECIAL)] = SPECIAL
        g[name][-len(SPECIAL) :] = SPECIAL
    if variant.kernel == "8bit" and limits:
        limits = {"max_buffer": 65_536, "max_binding": 65_536}
    device = smaller(gpu, **limits) if limits else gpu
    stepper = make_stepper(device, PARAMS, variant, w=w, m=m, v=v)
    stepper.begin_step(HostGradients(g))
    stepper.run_until(HYPER, len(stepper.plan.dispatches) - 1)
    end = stepper.layout.segments[-1].stop
    inside = stepper.layout["d"]
    ranges = [
        (0, end),
        *((s.offset, s.stop) for s in stepper.layout),
        (inside.offset + 1301, inside.stop - 7),
    ]
    texts = (
        "NaN",
        "inf",
        "nonfinite",
        "1",
        "> 0",
        "|x| < 1e-40",
        "-0.5..0.5",
        "0.1 ± 1000000",
        "0x80000000",
        "changed",
    )
    for lane in LANES:
        now, before = stepper.read(lane, 0, end), stepper.read(lane, 0, end, before=True)
        for text in texts:
            query = parse_query(text)
            for start, stop in ranges:
                where = np.flatnonzero(matches(query, now[start:stop], before[start:stop])) + start
                for at in (None, start, int(where[0]) if len(where) else stop - 1, stop - 1):
                    hits = stepper.looker.find(lane, query, start, stop, at)
                    after = where[where > at] if at is not None else where
                    earlier = where[where < at] if at is not None else where[:0]
                    wanted = (
                        len(where), *(int(w[i]) if len(w) else None for w, i in
                        ((where, 0), (where, -1), (after, 0), (earlier, -1))),
                    )  # fmt: skip
                    found = (hits.count, hits.first, hits.last, hits.next, hits.previous)
                    assert found == wanted, (lane, text, start, stop, at)


def test_a_search_can_be_ended_between_its_parts(gpu: Gpu) -> None:
    count = AT_ONCE + 5
    stepper = make_stepper(gpu, [Param("p", (count,))], w={}, undo_bytes=0)
    told = []

    def progress(done: int, of: int) -> None:
        told.append((done, of))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stepper.looker.find("w", parse_query("0"), 0, count, None, progress)
    assert told == [(AT_ONCE, count)]
    assert stepper.looker.find("w", parse_query("0"), 0, count).count == count


@pytest.mark.parametrize("variant", [Variant(), EIGHT_BIT], ids=form_name)
@pytest.mark.parametrize("moment", ["after", "before", "difference"])
def test_a_matrix_as_pixels_is_the_largest_element_under_each(
    gpu: Gpu, variant: Variant, moment: Moment
) -> None:
    w, g, m, v = normal_state(PARAMS)
    w["a"][77], w["c"][100] = np.nan, np.inf
    stepper = make_stepper(gpu, PARAMS, variant, w=w, m=m, v=v)
    stepper.begin_step(HostGradients(g))
    stepper.run_to_end(HYPER)
    for param, columns in (("a", 50), ("a", 7), ("c", 7), ("b", 70), ("b", 16)):
        segment = stepper.layout[param]
        rows = -(-segment.numel // columns)
        for lane in LANES:
            now, old = (stepper.read(lane, segment.offset, segment.numel, before=b) for b in (False, True))
            for left, top, across, down, width, height in (
                (0.0, 0.0, columns / 9, rows / 4, 9, 4), (0.0, 0.0, 1.0, 1.0, columns, rows),
                (1.5, 0.25, 0.5, 0.25, 5, 3), (0.0, 0.0, float(columns), float(rows), 1, 1),
            ):  # fmt: skip
                request = MatrixRequest(
                    param, lane, moment, columns, left, top, float(np.float32(across)), float(np.float32(down)),
                    width, height,
                )  # fmt: skip
                pixels = stepper.looker.matrix_pixels(request)
                wanted, bad = reduced(request, now, old, rows)
                np.testing.assert_array_equal(pixels.values, wanted)
                np.testing.assert_array_equal(pixels.nonfinite, bad)


def reduced(
    request: MatrixRequest, now: np.ndarray, old: np.ndarray, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """The pixels, element by element."""
    values, bad = (
        np.zeros((request.height, request.width), np.float32),
        np.zeros((request.height, request.width)),
    )
    for y in range(request.height):
        for x in range(request.width):
            for row in covered(request.top, request.down, y, rows):
                for column in covered(request.left, request.across, x, request.columns):
                    i = row * request.columns + column
                    if i >= len(now):
                        continue
                    one = old[i] if request.moment == "before" else now[i]
                    if not np.isfinite(one):
                        bad[y, x] += 1
                        continue
                    with np.errstate(all="ignore"):
                        one = one - old[i] if request.moment == "difference" else one
                    if np.isfinite(one) and abs(one) > abs(values[y, x]):
                        values[y, x] = one
    return values, bad


def covered(start: float, each: float, at: int, limit: int) -> range:
    if each <= 1:
        one = int(start) + int(np.floor(np.float32(start % 1) + np.float32(at + 0.5) * np.float32(each)))
        return range(one, min(one + 1, limit))
    low, high = (
        int(np.floor(np.float32(start % 1) + np.float32(k) * np.float32(each))) for k in (at, at + 1)
    )
    return range(int(start) + low, min(int(start) + max(high, low + 1), limit))


def test_codes_and_halves_as_they_lie(gpu: Gpu) -> None:
    stepper = stepped(gpu, EIGHT_BIT, 1)
    was = stepper.state_of("a")
    begin(stepper, 2)
    stepper.run_to_end(HYPER)
    state = stepper.state_of("a")
    assert state is not None
    assert was is not None
    start = stepper.layout["a"].offset
    for low, count in ((0, 2000), (3, 11), (255, 2), (1999, 1)):
        for lane, coded in (("m", state.m), ("v", state.v)):
            found = stepper.looker.codes(lane, start + low, count)  # type: ignore[arg-type]
            np.testing.assert_array_equal(found, coded.codes[low : low + count].astype(np.int16))
    assert stepper.looker.codes("w", start, 4) is None
    # The last dispatch that wrote a is that of its block; the block without decay came after it.
    stepper.undo_dispatch()
    np.testing.assert_array_equal(
        stepper.looker.codes("m", start + 5, 9, before=True), was.m.codes[5:14].astype(np.int16)
    )
    half = stepped(gpu, Variant(kernel="f16"), 1)
    mirror = half.half_weights()["a"]
    for low, count in ((0, 2000), (3, 4), (1999, 1)):
        found = half.looker.half(half.layout["a"].offset + low, count)
        np.testing.assert_array_equal(found, mirror[low : low + count].view(np.uint16))
    assert stepper.looker.half(0, 1) is None
