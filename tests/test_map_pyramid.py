"""The cells and pixels of the map against numpy: ends of params, gaps, pages, codes, and what is not finite."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from gpu_helpers import F32, make_stepper, normal_state, smaller, whole
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector.gpu.device import Gpu
from inspector.gpu.map_pyramid import CELL_BYTES, MAX_CELL, Levels, Stale
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Layout, Param
from inspector.mapping import CELL, MapPixels, MapRequest, Quantity
from inspector.plan import Kernel, Limits, Variant
from inspector.settings import ParamSettings, Settings
from inspector.stepping import HostGradients
from inspector.stores import Lane
from inspector.ui.map_geometry import whole as whole_view

HYPER = Hyper(lr=1e-2, max_grad_norm=1e9)
# Ends in the middle of cells and of vec4s, one longer than a workgroup looks at, and gaps of several lengths.
SIZES = (70, 1, 4097, 64, 3, 9000, 130, 12_289)


def params() -> list[Param]:
    return [Param(f"p{i}", (n,), decay=i % 2 == 0) for i, n in enumerate(SIZES)]


def made(gpu: Gpu, variant: Variant | None = None, **limits: int) -> GpuStepper:
    """A run before its first step, with gradients in place."""
    w, g, m, v = normal_state(params())
    stepper = make_stepper(gpu, params(), variant, w=w, m=m, v=v, **limits)  # type: ignore[arg-type]
    stepper.begin_step(HostGradients(g))
    return stepper


def inside(layout: Layout) -> np.ndarray:
    """True where an element of the mega-buffer belongs to a param."""
    out = np.zeros(layout.padded_elements, bool)
    for s in layout:
        out[s.offset : s.stop] = True
    return out


def reduced(values: F32, layout: Layout, edges: Sequence[int], data: F32 | None = None) -> np.ndarray:
    """Least, largest, mean magnitude, finite and non-finite elements of each run [edge, next edge), in float64.

    `values` are the quantity, `data` the lane.
    """
    data = values if data is None else data
    of_param = inside(layout)
    rows = []
    for low, high in itertools.pairwise(edges):
        mask = of_param[low:high]
        lane, shown = data[low:high][mask], values[low:high][mask].astype(np.float64)
        good = shown[np.isfinite(lane) & np.isfinite(shown)]
        figures = (good.min(), good.max(), np.abs(good).mean()) if len(good) else (0.0, 0.0, 0.0)
        rows.append((*figures, len(good), np.count_nonzero(~np.isfinite(lane))))
    return np.array(rows)


def read_cells(stepper: GpuStepper, lane: Lane, quantity: Quantity = "value") -> list[np.ndarray]:
    """The cells of each level, [cells, 5]."""
    pyramid = stepper.mapper.refreshed(lane, quantity)
    raw = stepper.gpu.read(pyramid.cells, 0, pyramid.levels.cells * CELL_BYTES).view(np.uint32)
    words = raw.reshape(-1, 5)
    out = np.concatenate((words[:, :3].view(np.float32), words[:, 3:]), axis=1, dtype=np.float64)
    starts = pyramid.levels.starts
    return [out[a : a + n] for a, n in zip(starts, pyramid.levels.counts, strict=True)]


def check_cells(stepper: GpuStepper, lane: Lane) -> None:
    """Every level of a lane's cells against numpy."""
    values, layout = whole(stepper, lane), stepper.layout
    end = max(s.stop for s in layout)
    levels = Levels.over(end, stepper.gpu.limits)
    for size, cells in zip(levels.sizes, read_cells(stepper, lane), strict=True):
        wanted = reduced(values, layout, [*range(0, end, size), end])
        np.testing.assert_array_equal(cells[:, [0, 1, 3, 4]], wanted[:, [0, 1, 3, 4]])
        np.testing.assert_allclose(cells[:, 2], wanted[:, 2], rtol=2e-6)


PAGES = {"max_buffer": 4 * 8192}
BINDINGS = {"max_binding": 4 * 4160}


@pytest.mark.parametrize("align", [16, 64, 256], ids=["16 B", "64 B", "256 B"])
@pytest.mark.parametrize("limits", [{}, PAGES, BINDINGS], ids=["one page", "pages", "small bindings"])
def test_cells_are_what_numpy_makes_of_their_elements(gpu: Gpu, align: int, limits: dict[str, int]) -> None:
    stepper = made(gpu, align_bytes=align, **limits)
    for lane in ("w", "g", "m", "v"):
        check_cells(stepper, lane)


@pytest.mark.parametrize("limits", [{}, {"max_buffer": 4 * 65_536}], ids=["one page", "pages"])
def test_cells_of_codes_are_those_of_the_values_they_stand_for(gpu: Gpu, limits: dict[str, int]) -> None:
    stepper = made(gpu, Variant(kernel="8bit"), **limits)
    stepper.run_to_end(HYPER)
    assert any(s.state == "8bit" for s in stepper.layout)
    assert any(s.state == "f32" for s in stepper.layout)
    for lane in ("m", "v"):
        check_cells(stepper, lane)


def test_what_is_not_finite_is_counted_and_kept_out_of_the_figures(gpu: Gpu) -> None:
    w, g, m, v = normal_state(params())
    g["p2"][[0, 17, 4096]] = np.nan, np.inf, -np.inf
    g["p3"][:] = np.nan
    g["p4"][0] = 3e38
    stepper = make_stepper(gpu, params(), w=w, m=m, v=v)
    stepper.begin_step(HostGradients(g))
    check_cells(stepper, "g")
    top = read_cells(stepper, "g")[-1]
    assert top[0, 4] == 3 + 64
    assert top[0, 1] == np.float32(3e38)


def test_a_mean_of_magnitudes_does_not_overflow(gpu: Gpu) -> None:
    big = {"p0": np.full(5000, -3e38, np.float32)}
    stepper = make_stepper(gpu, [Param("p0", (5000,))], w=big)
    for cells in read_cells(stepper, "w"):
        np.testing.assert_allclose(cells[:, 2], np.float64(np.float32(3e38)), rtol=1e-6)


def test_what_lies_in_gaps_belongs_to_no_param(gpu: Gpu) -> None:
    """An own kernel may write there."""
    stepper = made(gpu)
    gap = stepper.layout["p0"].stop
    stepper.gpu.write(stepper._memory.buffers["w"], 4 * gap, np.array([np.nan, 1e9, -1e9], np.float32))
    stepper.mapper.wrote_lane("w")
    top = read_cells(stepper, "w")[-1]
    assert top[0, 4] == 0
    assert top[0, 1] < 10


@pytest.mark.parametrize("kernel", ["f32", "8bit"])
def test_cells_follow_every_dispatch_and_every_way_back(gpu: Gpu, kernel: Kernel) -> None:
    """Codes of params with decay and of those without lie in one buffer, before and behind what is in float32."""
    stepper = made(gpu, Variant(dispatch="per-tensor", kernel=kernel))
    for lane in ("w", "g", "m", "v"):
        check_cells(stepper, lane)
    while not stepper.cursor.at_end:
        stepper.run_dispatch(HYPER)
        for lane in ("w", "g", "m", "v"):
            check_cells(stepper, lane)
    stepper.undo_dispatch()
    check_cells(stepper, "w")
    stepper.rewind_step()
    check_cells(stepper, "v")
    _, g, _, _ = normal_state(params(), seed=5)
    stepper.run_to_end(HYPER)
    stepper.begin_step(HostGradients(g))
    check_cells(stepper, "g")
    stepper.restore(stepper.state())
    for lane in ("w", "g"):
        check_cells(stepper, lane)


def test_only_what_was_written_is_worked_out_anew(gpu: Gpu) -> None:
    stepper = made(gpu, Variant(dispatch="per-tensor"))
    pyramid = stepper.mapper.refreshed("w")
    while not pyramid.stale:
        stepper.run_dispatch(HYPER)
    ranges = pyramid.stale.take()
    first = next(s for s in stepper.layout if s.numel)
    assert len(ranges) == 1
    low, high = ranges[0]
    assert low <= first.offset
    assert first.stop <= high < first.stop + 256, "the rest of the lane stands as it was"
    # What has been taken is not worked out again: the cells keep what they had.
    before = read_cells(stepper, "w")[0].copy()
    np.testing.assert_array_equal(read_cells(stepper, "w")[0], before)


def test_where_one_binding_cannot_hold_the_cells_they_are_larger() -> None:
    end = 1_000_000
    assert Levels.over(end, Limits()).sizes[0] == CELL
    tight = Levels.over(
        end, Limits(max_storage_buffer_binding_size=CELL_BYTES * 4000, max_buffer_size=1 << 30)
    )
    assert tight.sizes[0] == CELL * 8
    assert tight.cells <= 4000
    assert Levels.over(end, Limits(max_storage_buffer_binding_size=1024)).sizes[0] == MAX_CELL
    assert tight.counts[-1] == 1


@pytest.mark.parametrize("cell_bytes", [CELL_BYTES * 100, CELL_BYTES * 20])
def test_larger_cells_are_right_as_well(gpu: Gpu, cell_bytes: int) -> None:
    """Cells of 512 and of 4096 elements, reduced by 32 and by 256 threads."""
    stepper = made(gpu)
    stepper.mapper._levels = Levels.over(stepper._memory.end, smaller(gpu, max_binding=cell_bytes).limits)
    end = stepper._memory.end
    values = whole(stepper, "m")
    levels = stepper.mapper._levels
    assert levels.sizes[0] > CELL
    for size, cells in zip(levels.sizes, read_cells(stepper, "m"), strict=True):
        wanted = reduced(values, stepper.layout, [*range(0, end, size), end])
        np.testing.assert_array_equal(cells[:, [0, 1, 3, 4]], wanted[:, [0, 1, 3, 4]])
        np.testing.assert_allclose(cells[:, 2], wanted[:, 2], rtol=2e-6)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=60))
def test_stale_ranges_cover_what_was_added(ranges: list[tuple[int, int]]) -> None:
    stale, wanted = Stale(), np.zeros(400, bool)
    for start, stop in ranges:
        stale.add(start, stop)
        wanted[start:stop] = True
    got = np.zeros(400, bool)
    taken = stale.take()
    for start, stop in taken:
        assert not got[start:stop].any()
        got[start:stop] = True
    assert np.all(got >= wanted)
    assert len(taken) <= 32
    assert not stale


# --- pixels


def pixels(stepper: GpuStepper, lane: Lane, request: MapRequest) -> MapPixels:
    found = stepper.mapper.pixels([request])
    assert found is not None
    assert found.reason == ""
    return found.pixels[0][lane]


def check_pixels(stepper: GpuStepper, lane: Lane, request: MapRequest) -> None:
    """Every pixel against numpy over the elements that `MapRequest.under` names."""
    got, values = pixels(stepper, lane, request), whole(stepper, lane)
    of_param = inside(stepper.layout)
    for row in range(request.height):
        for column in range(request.width):
            low, high = request.under(row, column, got.cell, got.end)
            (wanted,) = reduced(values, stepper.layout, [low, high]) if low < high else [np.zeros(5)]
            have = [float(p[row, column]) for p in (got.low, got.high, got.mean, got.finite, got.nonfinite)]
            if not of_param[low:high].any():
                assert np.all(np.isnan(have[:3]))
                continue
            assert (have[0], have[1], have[3], have[4]) == tuple(wanted[[0, 1, 3, 4]])
            assert have[2] == pytest.approx(wanted[2], rel=2e-6)


@pytest.mark.parametrize(
    ("start", "per_pixel", "height"),
    [(0, 1700.3, 20), (0, 900, 3), (5000.5, 64, 1), (11, 33.7, 7), (70, 1.7, 3), (60.25, 0.37, 4), (20_000, 40, 1)],
    ids=["cells", "large cells", "one cell", "elements", "fewer than rows", "parts of one", "the end"],
)  # fmt: skip
@pytest.mark.parametrize(
    "limits", [{}, PAGES, {**PAGES, "align_bytes": 16}], ids=["one page", "pages", "pages, params 16 B apart"]
)
def test_pixels_are_what_numpy_makes_of_the_elements_under_them(
    gpu: Gpu, start: float, per_pixel: float, height: int, limits: dict[str, int]
) -> None:
    stepper = made(gpu, **limits)
    check_pixels(stepper, "g", MapRequest(start, per_pixel, 16, height, "value"))


@settings(max_examples=300)
@given(
    st.integers(1, 1 << 32),
    st.integers(1, 4000),
    st.integers(1, 300),
    st.sampled_from([1, 64, 512, 4096]),
    st.floats(1, 1e6),
)
def test_pixels_up_to_the_end_share_all_elements(
    total: int, width: int, height: int, cell: int, zoom: float
) -> None:
    """Wherever rounding falls: none is missed at the end, none is under two."""
    near = whole_view(total, width).zoomed(zoom, width / 3)
    for view in (near.panned(1e12), near.panned(-1e12), near):
        request = view.request(height, "value", 1.0)
        if request.each <= 1 or cell > request.each:
            continue
        count = request.rows * width
        edges = request.edges(max(count - 50, 0), count, cell, total)
        assert np.all(np.diff(edges) > 0)
        assert view.start > 0 or request.edges(0, 0, cell, total)[0] == 0
        assert view.stop < total * (1 - 1e-9) or edges[-1] == total


def test_a_lone_nan_is_seen_however_far_out_one_is(gpu: Gpu) -> None:
    for place in (0, 69, 4096, sum(SIZES[:3]) - 1, -1):
        w, g, m, v = normal_state(params())
        flat = np.concatenate([g[p.name] for p in params()])
        flat[place] = np.nan
        parts = np.split(flat, np.cumsum(SIZES)[:-1])
        stepper = make_stepper(gpu, params(), w=w, m=m, v=v)
        stepper.begin_step(HostGradients({f"p{i}": part for i, part in enumerate(parts)}))
        end = stepper.layout.padded_elements
        for width, height in ((1, 1), (7, 1), (320, 5), (1900, 40)):
            got = pixels(stepper, "g", MapRequest(0.0, end / width, width, height, "magnitude"))
            assert np.count_nonzero(got.nonfinite) >= 1
            if end / width / height > 1:
                assert got.nonfinite.sum() == 1
        other = stepper.mapper.pixels([MapRequest(0.0, end, 1, 1, "age")])
        assert other is not None
        assert other.pixels[0]["g"].nonfinite[0, 0] == 1, "in every colouring"


# --- quantities


def element_pixels(stepper: GpuStepper, lane: Lane, quantity: Quantity) -> F32:
    """A quantity of every element; 0 in gaps."""
    end = stepper.layout.padded_elements
    got = pixels(stepper, lane, MapRequest(0.0, 1.0, end, 1, quantity))
    return np.nan_to_num(got.extreme[0])


def test_the_change_since_the_step_began_is_that_of_all_its_dispatches(gpu: Gpu) -> None:
    stepper = made(gpu, Variant(dispatch="per-tensor"))
    lanes: tuple[Lane, ...] = ("w", "g", "m", "v")
    before = {lane: whole(stepper, lane) for lane in lanes}
    assert not element_pixels(stepper, "w", "step_change").any()
    for count in (3, 7, stepper.cursor.count):
        stepper.run_until(HYPER, count)
        for lane in lanes:
            wanted = whole(stepper, lane) - before[lane]
            np.testing.assert_array_equal(element_pixels(stepper, lane, "step_change"), wanted)
            read = read_cells(stepper, lane, "step_change")[-1][0]
            assert read[1] == wanted.max()
    assert np.any(element_pixels(stepper, "w", "step_change"))
    _, g, _, _ = normal_state(params(), seed=9)
    stepper.begin_step(HostGradients(g))
    assert not element_pixels(stepper, "g", "step_change").any(), "a new step begins"


def test_the_update_over_the_learning_rate_is_each_param_s_own(gpu: Gpu) -> None:
    """Three steps of Adam from m = v = 0 with the same gradient: m̂/√v̂ is its sign. Odd params at a tenth of lr."""
    own = Settings(1e-2, 0.9, 0.999, 0.0, 0.0), Settings(1e-3, 0.9, 0.999, 0.0, 0.0)
    hyper = Hyper(lr=1e-2, eps=0.0, weight_decay=0.0, max_grad_norm=1e9)
    apart = tuple(i % 2 for i in range(len(SIZES)))
    hyper = Hyper(1e-2, 0.9, 0.999, 0.0, 0.0, 1e9, per_param=ParamSettings(own, apart))
    g = {f"p{i}": np.full(n, 0.5, np.float32) for i, n in enumerate(SIZES)}
    w = {f"p{i}": np.zeros(n, np.float32) for i, n in enumerate(SIZES)}
    stepper = make_stepper(gpu, params(), Variant(numerics="precise"), w=w)
    assert "No update" in stepper.mapper.reasons()["update"]
    for _ in range(3):
        stepper.begin_step(HostGradients(g), hyper)
        stepper.run_to_end(hyper)
    got = element_pixels(stepper, "w", "update")
    np.testing.assert_allclose(got[inside(stepper.layout)], 1.0, rtol=1e-4)
    found = stepper.mapper.pixels([MapRequest(0.0, 100.0, 10, 1, "update")])
    assert found is not None
    assert list(found.pixels[0]) == ["w"], "of w alone"


def test_an_update_of_which_memory_has_only_a_part_is_not_shown(gpu: Gpu) -> None:
    """What of a step of many dispatches was dropped would look as if it had not moved."""
    w, g, m, v = normal_state(params())
    stepper = make_stepper(gpu, params(), Variant(dispatch="per-tensor"), w=w, m=m, v=v, undo_bytes=60_000)
    stepper.begin_step(HostGradients(g))
    known = []
    while not stepper.cursor.at_end:
        stepper.run_dispatch(HYPER)
        known.append("update" not in stepper.mapper.reasons())
    first = next(d.index for d in stepper.plan.dispatches if d.updates)
    assert known[first], "all of it is there"
    assert not known[-1], "the first updates have been dropped"


def test_ages_count_the_steps_since_a_cell_changed(gpu: Gpu) -> None:
    """p2 and p5 get a gradient in every third step, without decay, so that w stands still between."""
    hyper = Hyper(lr=1e-2, beta1=0.0, beta2=0.0, weight_decay=0.0, max_grad_norm=1e9)
    names = [f"p{i}" for i in range(len(SIZES))]
    rng = np.random.default_rng(4)
    w, _, _, _ = normal_state(params())
    stepper = make_stepper(gpu, params(), w=w)

    def step(t: int) -> None:
        values = {n: rng.standard_normal(SIZES[i]).astype(np.float32) for i, n in enumerate(names)}
        if t % 3:
            for n in ("p2", "p5"):
                values[n][:] = 0.0
        stepper.begin_step(HostGradients(values), hyper)
        stepper.run_to_end(hyper)

    def age(lane: Lane, name: str) -> set[float]:
        s = stepper.layout[name]
        return set(element_pixels(stepper, lane, "age")[s.offset : s.stop].tolist())

    step(1)
    assert age("w", "p0") == {0.0}, "counted from here on"
    for t in range(2, 6):
        step(t)
    assert age("w", "p0") == {0.0}
    assert age("w", "p2") == age("w", "p5") == {2.0}, "changed in step 3, after which two went by"
    # The gradient of step 3 was the last that differed from the one before, but for that of step 4, which was 0 again.
    assert age("g", "p5") == {1.0}
    assert age("g", "p1") == {0.0}
    found = stepper.mapper.pixels([MapRequest(0.0, 100.0, 10, 1, "age")])
    assert found is not None
    assert found.since == 1
    step(6)
    assert age("w", "p2") == {0.0}
    assert stepper.rewind_to(4)
    assert age("w", "p2") == {0.0}, "changed by step 4 at the latest: in which is not known any more"
    assert age("w", "p0") == {0.0}
    step(5)
    assert age("w", "p2") == {1.0}
    assert age("w", "p0") == {0.0}
    # Another quantity ends the counting and gives its memory back.
    held = stepper.mapper.nbytes
    element_pixels(stepper, "w", "value")
    assert stepper.mapper.nbytes < held


def test_what_a_step_has_changed_before_counting_began_in_it_is_of_that_step(gpu: Gpu) -> None:
    """Counting begins, or begins anew after going back, between the updates of a step."""
    stepper = made(gpu, Variant(dispatch="per-tensor"))
    count = stepper.cursor.count
    stepper.run_until(HYPER, count - 3)
    assert set(element_pixels(stepper, "w", "age").tolist()) == {0.0}
    stepper.run_to_end(HYPER)
    assert set(element_pixels(stepper, "w", "age").tolist()) == {0.0}
    stepper.undo_dispatch()
    assert set(element_pixels(stepper, "w", "age").tolist()) == {0.0}
    stepper.run_to_end(HYPER)
    assert set(element_pixels(stepper, "w", "age").tolist()) == {0.0}
    stepper.rewind_step()
    assert set(element_pixels(stepper, "w", "age").tolist()) == {0.0}
    stepper.run_to_end(HYPER)
    assert set(element_pixels(stepper, "w", "age").tolist()) == {0.0}


def test_errors_of_coding_are_those_of_the_blocks(gpu: Gpu) -> None:
    stepper = made(gpu, Variant(kernel="8bit"))
    found = stepper.mapper.pixels([MapRequest(0.0, 100.0, 10, 1, "coding_error")])
    assert found is not None
    assert "run a step" in found.reason
    while stepper.plan.dispatches[stepper.cursor.dispatch].entry_point != "adamw_8bit_update":
        stepper.run_dispatch(HYPER)
        if stepper.plan.dispatches[stepper.cursor.dispatch].updates:
            break
    stepper.coding_errors(HYPER)
    for k, lane in enumerate(("m", "v")):
        for segment in stepper.layout:
            if segment.state != "8bit":
                continue
            blocks = stepper.block_errors(segment.name)[k]
            got = pixels(
                stepper, lane, MapRequest(float(segment.offset), 1.0, segment.numel, 1, "coding_error")
            )
            np.testing.assert_array_equal(got.extreme[0], np.repeat(blocks, 256)[: segment.numel])
    whole_lane = pixels(
        stepper, "m", MapRequest(0.0, float(stepper.layout.padded_elements), 1, 1, "coding_error")
    )
    coded = [stepper.block_errors(s.name)[0].max() for s in stepper.layout if s.state == "8bit"]
    assert whole_lane.high[0, 0] == max(coded)


def test_what_cannot_be_shown_says_why(gpu: Gpu) -> None:
    w, g, m, v = normal_state(params())
    stepper = make_stepper(gpu, params(), w=w, m=m, v=v, finished_steps=4, undo_bytes=0)
    reasons = stepper.mapper.reasons()
    assert set(reasons) == {"change", "step_change", "update", "coding_error"}
    assert "8-bit kernel" in reasons["coding_error"]
    assert "step 4" in reasons["step_change"]
    stepper.begin_step(HostGradients(g))
    stepper.run_to_end(HYPER)
    assert "step 5" in stepper.mapper.reasons()["step_change"], (
        "with no memory for going back nothing is known"
    )
    shown = stepper.mapper.pixels([MapRequest(0.0, 10.0, 10, 1, "update")])
    assert shown is not None
    assert shown.reason == stepper.mapper.reasons()["update"]
    assert shown.pixels == ({},)


def test_the_memory_of_the_map_is_counted_and_given_back(gpu: Gpu) -> None:
    stepper = made(gpu)
    before = stepper.memory_bytes
    assert stepper.mapper.nbytes == 0
    pixels(stepper, "w", MapRequest(0.0, 1000.0, 20, 3, "value"))
    held = stepper.mapper.nbytes
    cells = sum(
        -(-stepper._memory.end // size) for size in Levels.over(stepper._memory.end, gpu.limits).sizes
    )
    assert held >= 4 * cells * CELL_BYTES
    stepper.mapper.rest()
    assert stepper.mapper.nbytes == 0
    # The staging buffer through which pixels came stays: it is the device's.
    staging = int(stepper.gpu._staging.size)
    assert stepper.memory_bytes <= before + staging
