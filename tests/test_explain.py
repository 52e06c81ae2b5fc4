"""One element's update line by line: the GPU's lines, the float64 lines, and where the element is worked on."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from gpu_helpers import PUBLISHED_GRID, make_stepper, normal_state, params_of, variant_name

from inspector.cli.explain import flat_index
from inspector.errors import UsageError
from inspector.gpu.device import Gpu
from inspector.gpu.explain import Explanation, explain_element
from inspector.hyper import NUMERICS, Hyper
from inspector.layout import Param
from inspector.plan import Variant
from inspector.stepping import HostGradients

pytestmark = pytest.mark.gpu

NAMES = ["gradNorm", "clipScale", "g'", "m", "v", "m̂", "v̂", "denominator", "ratio", "decay", "update", "w"]
HYPER = Hyper(weight_decay=0.1)


def lines(found: Explanation) -> dict[str, float]:
    return {line.name: line.f64 for line in found.lines}


@pytest.mark.parametrize(
    "variant",
    [Variant(numerics=n, dispatch=d) for n in NUMERICS for d in ("two-block", "per-tensor")]
    + [PUBLISHED_GRID],
    ids=variant_name,
)
def test_the_lines_are_those_of_the_kernel_bit_for_bit_and_near_the_truth(gpu: Gpu, variant: Variant) -> None:
    params = [Param("a", (40, 50)), Param("b", (70,))]
    w, g, m, v = normal_state(params)
    for name, index in (("a", 0), ("a", 1999), ("b", 69), ("a", 1023)):
        stepper = make_stepper(gpu, params, variant, w=w, m=m, v=v, finished_steps=4)
        stepper.begin_step(HostGradients(g))
        found = explain_element(stepper, HYPER, name, index)
        assert [line.name for line in found.lines] == NAMES
        assert found.agrees
        assert (found.step, stepper.cursor.at_end) == (5, True)
        element = stepper.layout[name].offset + index
        assert found.element == element
        after = {lane: stepper.read(lane, element, 1)[0] for lane in "wmv"}
        by_name = {line.name: line for line in found.lines}
        for lane in "wmv":
            assert by_name[lane].f32.tobytes() == after[lane].tobytes()
        assert found.before["g"] == g[name][index]
        for line in found.lines:
            # A subtraction in w and additions of either sign in m may lose digits; the rest may not.
            bound = 64 if line.name in ("m", "m̂", "ratio", "update", "w") else 8
            assert line.ulp <= bound, line
            assert line.ulp == pytest.approx(
                abs(float(line.f32) - line.f64) / float(np.spacing(np.float32(abs(line.f64)))),
                rel=1e-6,
                abs=1e-6,
            )
        decays = name == "a"
        assert by_name["decay"].f64 == pytest.approx(0.1 * float(w[name][index]) if decays else 0, rel=1e-6)
        assert found.dispatch.block == ("wd" if decays else "no_wd")


def test_a_step_worked_by_hand(gpu: Gpu) -> None:
    stepper = make_stepper(gpu, params_of(2), Variant(numerics="precise"), w={"p0": np.float32([1, 1])})
    stepper.begin_step(HostGradients({"p0": np.float32([3, 4])}))
    found = lines(explain_element(stepper, Hyper(max_grad_norm=1.0), "p0", 1))
    assert found["gradNorm"] == 5.0
    assert found["clipScale"] == 0.2
    expected = {
        "g'": 0.8,
        "m": 0.08,
        "v": 0.00064,
        "m̂": 0.8,
        "v̂": 0.64,
        "denominator": 0.80000001,
        "decay": 0.0,
    }
    assert {k: found[k] for k in expected} == pytest.approx(expected, rel=1e-12)
    assert found["w"] == pytest.approx(1 - 1e-3 * 0.8 / 0.80000001, rel=1e-14)


@pytest.mark.parametrize(
    ("grid", "index", "group", "thread", "lane"),
    [
        ("capped", 0, (0, 0, 0), 0, 0),
        ("capped", 1023, (0, 0, 0), 255, 3),
        ("capped", 1024, (1, 0, 0), 0, 0),
        ("capped", 9_999, (4, 1, 0), 195, 3),
        ("published", 1023, (3, 0, 0), 255, 0),
        ("published", 9_999, (7, 4, 0), 15, 0),
    ],
)
def test_thread_group_and_lane_are_those_that_work_on_the_element(
    gpu: Gpu, grid: str, index: int, group: tuple[int, int, int], thread: int, lane: int
) -> None:
    """10,000 elements on a device of 8 groups a dimension: 10 groups in rows of 5, or 40 in rows of 8."""
    variant = Variant(grid=grid, reduce="atomic")
    params = params_of(10_000)
    w, g, _, _ = normal_state(params)
    stepper = make_stepper(gpu, params, variant, w=w, groups=8)
    stepper.begin_step(HostGradients(g))
    found = explain_element(stepper, HYPER, "p0", index)
    assert found.dispatch.groups == ((5, 2, 1) if grid == "capped" else (8, 5, 1))
    assert (found.workgroup, found.thread, found.lane) == (group, thread, lane)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_shows_as_zero(gpu: Gpu, bad: float) -> None:
    stepper = make_stepper(gpu, params_of(3), w={"p0": np.ones(3, np.float32)})
    stepper.begin_step(HostGradients({"p0": np.float32([3, bad, 4])}))
    found = explain_element(stepper, Hyper(), "p0", 1)
    assert found.agrees
    assert lines(found)["g'"] == 0.0
    assert lines(found)["gradNorm"] == 5.0
    assert {line.name: line.ulp for line in found.lines}["w"] == 0.0


def test_lines_that_are_not_finite_are_compared_without_a_fuss(gpu: Gpu) -> None:
    stepper = make_stepper(gpu, params_of(2), w={"p0": np.ones(2, np.float32)})
    stepper.begin_step(HostGradients({}))
    found = explain_element(stepper, Hyper(eps=0.0), "p0", 0)
    by_name = {line.name: line for line in found.lines}
    assert np.isnan(by_name["ratio"].f32)
    assert by_name["ratio"].ulp == 0.0
    assert by_name["w"].f32 == 1.0
    assert found.agrees


def test_an_element_that_is_not_there_is_refused(gpu: Gpu) -> None:
    stepper = make_stepper(gpu, params_of(3), w={})
    stepper.begin_step(HostGradients({}))
    with pytest.raises(UsageError, match="0 to 2"):
        explain_element(stepper, Hyper(), "p0", 3)
    assert stepper.cursor.dispatch == 0


@pytest.mark.parametrize(
    ("text", "shape", "flat"),
    [
        ("0", (3,), 0),
        ("2", (3,), 2),
        ("1,2", (3, 4), 6),
        ("[2, 3]", (3, 4), 11),
        ("11", (3, 4), 11),
        ("0", (), 0),
    ],
)
def test_an_index_is_read_flat_or_one_a_dimension(text: str, shape: tuple[int, ...], flat: int) -> None:
    assert flat_index(text, Param("p", shape)) == flat


@pytest.mark.parametrize("text", ["3", "-1", "1,1", "a", "", "1.5"])
def test_an_index_outside_or_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--index"):
        flat_index(text, Param("p", (3,)))


def test_the_explanation_is_data() -> None:
    assert dataclasses.is_dataclass(Explanation)
