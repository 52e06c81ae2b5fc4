"""What kernels cost: hand-worked times, bytes and shares; variants that take turns; files of it."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ui_helpers import small_layout, small_plan

from inspector.cli import run
from inspector.cost import (
    CSV_COLUMNS,
    KernelCost,
    Work,
    costs_csv,
    floor_ms,
    kernel_cost,
    kernels_of,
    span_ms,
    step_costs,
    works_of,
)
from inspector.drift import drift_between
from inspector.errors import OutOfMemoryError, UsageError
from inspector.files import check_writable, write_text
from inspector.gpu.bench import MIN_SAMPLES, bench, compare, drift
from inspector.gpu.copying import copy_gbps
from inspector.gpu.device import Gpu
from inspector.gpu.opener import device_layout
from inspector.gpu.stepper import GpuStepper
from inspector.gpu.timing import spans_ms
from inspector.hyper import Hyper
from inspector.layout import Layout, Param, make_layout
from inspector.optimizers import OPTIMIZERS, plan_step
from inspector.plan import (
    DISPATCH_FORMS,
    KERNELS,
    REDUCES,
    Binding,
    Kernel,
    Limits,
    Plan,
    Variant,
    layout_for,
    required_placement,
)
from inspector.preset import drawn_gradients, drawn_state
from inspector.stepping import KernelTime
from inspector.variants import changes, comparable

PARAMS = (Param("a", (40, 50)), Param("b", (7,)))
# A multiple of every kernel's alignment, so that no gap blurs the bytes an element.
EVEN_PARAMS = (Param("a", (64, 64)), Param("b", (64, 16)), Param("c", (1024,)))
EVEN = make_layout(EVEN_PARAMS, align_bytes=4096)


def even_plan(variant: Variant) -> Plan:
    layout = make_layout(EVEN_PARAMS, align_bytes=4096, placement=required_placement(variant))
    return plan_step(layout, Limits(), variant)


def update_bytes(variant: Variant) -> float:
    """Bytes an element that the update has to move."""
    dispatches = [d for d in even_plan(variant).dispatches if d.updates]
    lanes = sum(b.moved_bytes for d in dispatches for b in d.bindings if b.name != "grad_stats")
    return lanes / EVEN.elements


def times(*ms: float | None, cold: bool = False) -> tuple[KernelTime, ...]:
    dispatches = small_plan().dispatches
    return tuple(
        KernelTime(d.entry_point, d.block, t, "gpu", cold) for d, t in zip(dispatches, ms, strict=True)
    )


# --- bytes


def test_bytes_are_those_of_the_kernels() -> None:
    """The published table: the norm reads 4 bytes an element, the update moves 32, 34 with the mirror."""
    norm = even_plan(Variant()).dispatches[0]
    assert norm.bindings[0].moved_bytes == 4 * EVEN.elements
    assert update_bytes(Variant()) == 32
    assert update_bytes(Variant(kernel="f16")) == 34
    # Codes of m and v, 2 bytes read and written each, and two scales a block: 20 bytes and a sixteenth.
    assert update_bytes(Variant(kernel="8bit", small_state="8bit")) == 20 + 16 / 256
    assert update_bytes(Variant(dispatch="single")) == 32
    assert update_bytes(Variant(fused=False)) == 28  # g is read, and left to fill_zero


def test_what_a_binding_moves() -> None:
    assert Binding(0, "data", "g", 0, 100, "read").moved_bytes == 100
    assert Binding(0, "w", "w", 0, 100, "read_write").moved_bytes == 200
    assert Binding(0, "w_f16", "w_f16", 0, 50, "read_write", one_way=True).moved_bytes == 50
    assert Binding(0, "hp", "uniforms", 0, 16, "uniform").moved_bytes == 0


# --- costs


def test_times_bytes_and_shares_worked_by_hand() -> None:
    update = [d for d in small_plan().dispatches if d.updates]
    nbytes = sum(d.moved_bytes for d in update)
    warm = np.array([4.0, 1.0, math.nan, 2.0, 3.0, 5.0])
    cost = kernel_cost("update", Work.of(update), warm, cold=3, copy_gbps=100.0, step_ms=6.0)
    assert (cost.dispatches, cost.samples, cost.cold_samples) == (2, 5, 3)
    assert (cost.last_ms, cost.min_ms, cost.median_ms, cost.p95_ms) == (5.0, 1.0, 3.0, pytest.approx(4.8))
    assert cost.elements == sum(d.elements[1] - d.elements[0] for d in update)
    assert cost.bytes_per_element * cost.elements == pytest.approx(nbytes)
    assert cost.gbps == pytest.approx(nbytes / 3e-3 / 1e9)
    assert cost.share == pytest.approx(cost.gbps / 100)
    assert cost.share_of_step == 0.5


def test_products_of_matrices_are_counted_in_operations() -> None:
    # 64 x 64 · 64 x 344 of two matrices, and of the same the symmetric X·Xᵀ: half the products, and the diagonal.
    params = [Param(f"h.{i}.weight", (64, 344)) for i in range(2)]
    variant = Variant(optimizer="muon")
    plan = plan_step(layout_for(params, Limits(), variant), Limits(), variant)
    # Two of five iterations are in two floats a number, whose products count as of one.
    for ending, iterations in (("_two_floats", 2), ("", 3)):
        products, grams = (works_of(plan)[f"{name}{ending} wd"] for name in ("product", "gram"))
        assert products.operations == iterations * 2 * (2 * 64 * 344 * 64)
        assert grams.operations == iterations * 2 * (2 * 344 * 64 * 65 // 2)
        assert products.elements == iterations * 2 * 64 * 344
    cost = kernel_cost("product", products, np.array([4.0]), cold=0)
    assert cost.gflops == pytest.approx(products.operations / 4e-3 / 1e9)
    assert math.isnan(kernel_cost("update", works_of(plan)["muon_update wd"], np.array([4.0]), cold=0).gflops)


def test_nothing_measured_is_not_a_number_and_never_zero() -> None:
    update = small_plan().dispatches[-1:]
    for warm in (np.array([]), np.array([math.nan, math.nan])):
        cost = kernel_cost("update", Work.of(update), warm, cold=0)
        assert cost.samples == 0
        for name in ("last_ms", "min_ms", "median_ms", "p95_ms", "gbps", "share", "share_of_step"):
            assert math.isnan(getattr(cost, name))
        assert cost.bytes_per_element == pytest.approx(32, rel=0.05)
    assert math.isnan(kernel_cost("update", Work.of(update), np.array([0.0]), cold=0, copy_gbps=1.0).gbps)
    assert math.isnan(kernel_cost("update", Work.of(update), np.array([1.0]), cold=0).share)


def test_a_step_is_the_sum_of_its_kernels_and_leaves_out_cold_and_unusable_ones() -> None:
    taken = [
        times(90, 90, 90, 90, cold=True),
        times(1.0, 1.0, 6.0, 2.0),
        times(1.0, 1.0, None, 2.0),
        times(3.0, 1.0, 6.0, 2.0),
    ]
    kernels, step = step_costs(small_plan(), taken, copy_gbps=50.0)
    by_name = {k.name: k for k in kernels}
    assert list(by_name) == list(kernels_of(small_plan()))
    assert (step.median_ms, step.samples, step.cold_samples, step.share_of_step) == (11.0, 2, 1, 1.0)
    assert (by_name["adamw_update wd"].samples, by_name["reduce_norm_sq"].samples) == (2, 3)
    assert by_name["reduce_norm_sq"].median_ms == 1.0
    assert by_name["adamw_update wd"].share_of_step == pytest.approx(6 / 11)
    assert step.elements == small_layout().elements


def test_the_floor_is_bytes_over_the_copy_bandwidth() -> None:
    # 116,017,920 elements of 36 bytes at 3,000 GB/s.
    assert floor_ms(116_017_920 * 36, 3000) == pytest.approx(1.392, abs=1e-3)
    assert math.isnan(floor_ms(36, math.nan))
    assert math.isnan(floor_ms(36, 0))


def test_the_span_takes_in_what_lies_between_dispatches() -> None:
    began = [10.0, 12.0, 13.0, 20.0]
    step = tuple(dataclasses.replace(t, began_ms=b) for t, b in zip(times(1, 0.1, 5, 2), began, strict=True))
    cold = tuple(dataclasses.replace(t, cold=True, ms=99.0) for t in step)
    assert span_ms([cold, step]) == 12.0
    assert math.isnan(span_ms([times(1, 1, 1, 1)]))
    assert math.isnan(span_ms([]))


def test_a_pair_that_reads_zero_or_ends_before_it_starts_is_not_available() -> None:
    pairs = [(1000, 3000), (0, 5000), (4000, 0), (5000, 4000), (7000, 7000)]
    assert spans_ms(pairs, 10.0, 1000) == [(0.0, 0.02), (None, None), (None, None), (None, None), (0.06, 0.0)]


# --- variants


def test_every_factor_is_changed_one_at_a_time() -> None:
    found, skipped = comparable(Variant(), even_plan)
    assert found[0].variant == Variant()
    assert skipped == ()
    assert len({v.name for v in found}) == len(found)
    for value, field in (
        *((k, "kernel") for k in KERNELS),
        *((r, "reduce") for r in REDUCES),
        *((d, "dispatch") for d in DISPATCH_FORMS),
        *((o, "optimizer") for o in OPTIMIZERS),
        ("precise", "numerics"), ("published", "grid"), (False, "fused"), ("sqrt", "codec"), ("dynamic", "codec"),
        ("8bit", "small_state"),
    ):  # fmt: skip
        assert any(getattr(v.variant, field) == value for v in found), (field, value)
    for each in found[1:]:
        differing = [
            f.name
            for f in dataclasses.fields(Variant)
            if getattr(each.variant, f.name) != getattr(Variant(), f.name)
        ]
        # The published grid goes with the atomic sum only, codecs and types of state with 8-bit state.
        assert len(differing) == 1 or differing in (
            ["reduce", "grid"], ["kernel", "codec"], ["kernel", "small_state"],
        )  # fmt: skip
        assert each.name == changes(Variant(), each.variant)
    assert {"unfused", "reduce atomic, grid published", "kernel f16"} <= {v.name for v in found}


def test_what_cannot_run_is_named_with_its_reason() -> None:
    found, skipped = comparable(Variant(kernel="f16"), even_plan)
    assert "kernel f32" in [v.name for v in found]
    assert [s.name for s in skipped] == ["grid published"]
    assert "--reduce atomic" in skipped[0].reason


def test_the_one_compared_with_is_the_default_only_where_it_is() -> None:
    assert comparable(Variant(), even_plan)[0][0].name == "default"
    for base in (Variant(kernel="f16"), Variant(reduce="atomic", grid="published")):
        assert comparable(base, even_plan)[0][0].name == "as given"


@pytest.mark.parametrize("kernel", ["f32", "f16"])
def test_8_bit_state_that_no_param_would_have_is_not_measured(kernel: Kernel) -> None:
    def small(variant: Variant) -> Plan:
        return plan_step(layout_for(PARAMS, Limits(), variant), Limits(), variant)

    found, skipped = comparable(Variant(kernel=kernel), small)
    assert "kernel 8bit" not in [v.name for v in found]
    assert {s.name: s.reason for s in skipped}["kernel 8bit"] == (
        "No param has 4,096 elements, so none would have 8-bit state."
    )
    assert "kernel 8bit, small_state 8bit" in [v.name for v in found]
    assert "kernel 8bit" in [v.name for v in comparable(Variant(), even_plan)[0]]


def test_a_value_that_changes_nothing_is_left_out() -> None:
    """As the codec of an 8-bit state would be under the float32 kernel."""

    def plan(variant: Variant) -> Plan:
        return even_plan(dataclasses.replace(variant, numerics="published"))

    found, skipped = comparable(Variant(), plan)
    assert all(v.variant.numerics == "published" for v in found)
    assert skipped == ()


# --- drift


def test_drift_worked_by_hand() -> None:
    f32 = np.float32
    start = {"a": f32([1, 1]), "b": f32([0, 0])}
    one = {"a": f32([1, 1]), "b": f32([3, 4])}
    other = {"a": f32([1, 1.5]), "b": f32([3, 3])}
    found = drift_between(start, one, other, 7)
    assert (found.steps, found.max_abs, found.param, found.index) == (7, 1.0, "b", 1)
    assert found.relative == pytest.approx(math.sqrt(1.25 / 27))
    assert found.relative_to_path == pytest.approx(math.sqrt(1.25) / 5)
    same = drift_between(start, start, start, 1)
    assert same.max_abs == 0
    assert math.isnan(same.relative_to_path)
    broken = drift_between(start, one, {"a": f32([math.nan, 1]), "b": f32([math.inf, 0])}, 1)
    assert math.isnan(broken.max_abs)
    assert (broken.param, broken.index) == ("a", 0)


@pytest.mark.gpu
def test_numerics_drift_apart_and_a_variant_does_not_from_itself(gpu: Gpu) -> None:
    apart = drift(gpu, PARAMS, Variant(), Variant(numerics="precise"), steps=5)
    assert 0 < apart.max_abs < 1e-4
    assert 0 < apart.relative_to_path < 1e-3
    assert drift(gpu, PARAMS, Variant(), Variant(), steps=5).max_abs == 0
    with pytest.raises(UsageError):
        drift(gpu, PARAMS, Variant(), Variant(), steps=0)


# --- on the device


@pytest.mark.gpu
def test_variants_take_turns_and_the_first_step_of_a_turn_is_left_out(gpu: Gpu) -> None:
    before = gpu.memory_bytes
    told: list[tuple[int, int]] = []
    made = compare(gpu, PARAMS, Variant(), samples=4, copy=10.0, progress=lambda *at: told.append(at))
    assert [s.name for s in made.skipped] == ["kernel 8bit"]
    wanted, _ = comparable(Variant(), lambda v: plan_step(device_layout(gpu, PARAMS, v), gpu.limits, v))
    assert [r.name for r in made.reports] == [v.name for v in wanted]
    for report in made.reports:
        assert report.step.samples == 4
        # Four samples in rounds of one: each turn began with a step that settles.
        # Steps between are none of them, so that a turn may end before it has one.
        if report.between is None:
            assert report.step.cold_samples == 4 or (not gpu.info.software and report.step.cold_samples > 4)
        assert report.plan.variant == report.variant
        assert report.step.dispatches == len(report.plan.dispatches)
        assert len(report.last_steps) == 4
        assert all(k.share_of_step > 0 for k in report.kernels)
        assert report.span_ms >= 0.9 * report.step.min_ms or math.isnan(report.span_ms)
        assert 0 < report.through_ms < math.inf
    assert told[-1] == (4 * len(made.reports), 4 * len(made.reports))
    assert gpu.memory_bytes - before < 1 << 20


@pytest.mark.gpu
@pytest.mark.parametrize(
    "variant",
    [Variant(), Variant(reduce="atomic"), Variant(fused=False), Variant(optimizer="shampoo", root_block=8)],
)
def test_a_step_that_is_run_through_does_what_its_dispatches_do_one_by_one(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, variant: Variant
) -> None:
    def one_step(gpu: Gpu, record: Callable[[Any, int], None], *rest: Any) -> float:
        encoder = gpu.encoder()
        record(encoder, 1)
        gpu.submit(encoder)
        return 0.25

    monkeypatch.setattr("inspector.gpu.measures.seconds_each", one_step)
    weights = []
    for through in (False, True):
        stepper = GpuStepper(gpu, device_layout(gpu, PARAMS, variant), variant, drawn_state(PARAMS, 3))
        start = stepper.weights()
        stepper.begin_step(drawn_gradients(PARAMS, 3, 1))
        if through:
            # Its uniforms are those of the first dispatch.
            stepper.run_dispatch(Hyper(lr=0.1))
            assert stepper.through_ms(stepper.plan, 1.0, lambda: None) == 250.0
        else:
            stepper.run_to_end(Hyper(lr=0.1))
        weights.append(stepper.weights())
        stepper.release()
    for name, values in weights[0].items():
        assert values.tobytes() == weights[1][name].tobytes()
        assert (values != start[name]).any()


@pytest.mark.gpu
def test_a_variant_that_the_device_cannot_run_is_left_out_and_the_others_are_measured(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small(GpuStepper):
        def __init__(self, gpu: Gpu, layout: Layout, variant: Variant, *rest: Any, **more: Any) -> None:
            if variant.kernel != "f32":
                raise OutOfMemoryError("The GPU ran out of memory.")
            super().__init__(gpu, layout, variant, *rest, **more)

        def set_variant(self, variant: Variant) -> None:
            if not variant.fused:
                raise UsageError("Not here.")
            super().set_variant(variant)

    monkeypatch.setattr("inspector.gpu.bench.GpuStepper", Small)
    made = compare(gpu, PARAMS, Variant(), samples=1, copy=10.0)
    assert {"kernel f16": "The GPU ran out of memory.", "unfused": "Not here."}.items() <= {
        s.name: s.reason for s in made.skipped
    }.items()
    names = [r.name for r in made.reports]
    assert names[0] == "default"
    assert "reduce atomic" in names
    assert not {"kernel f16", "unfused"} & set(names)
    with pytest.raises(OutOfMemoryError):
        bench(gpu, PARAMS, Variant(kernel="f16"), samples=1, copy=10.0)


@pytest.mark.gpu
def test_time_that_is_over_ends_a_run_but_not_before_a_few_samples(gpu: Gpu) -> None:
    report = bench(gpu, PARAMS, Variant(), samples=10_000, seconds=0.0, copy=10.0)
    assert MIN_SAMPLES <= report.step.samples < 10_000
    with pytest.raises(UsageError):
        bench(gpu, PARAMS, Variant(grid="published"), copy=10.0)


@pytest.mark.gpu
def test_a_copy_gives_its_memory_back(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inspector.gpu.copying.COPY_BYTES", {True: 1 << 20, False: 1 << 20})
    monkeypatch.setattr("inspector.gpu.copying.WARM_UP_S", 0.0)
    before = gpu.memory_bytes
    assert copy_gbps(gpu, seconds=0.01) > 0
    assert gpu.memory_bytes == before


# --- files


def test_the_table_as_csv_reads_back() -> None:
    assert set(CSV_COLUMNS) == {f.name for f in dataclasses.fields(KernelCost)} - {"name"}
    kernels, step = step_costs(small_plan(), [times(1.0, 1.0, 6.0, None)], copy_gbps=50.0)
    rows = list(csv.DictReader(costs_csv([("a, b", kernels), ('"c"', [step])]).splitlines()))
    assert [(r["variant"], r["kernel"]) for r in rows] == [
        *(("a, b", k.name) for k in kernels),
        ('"c"', "step"),
    ]
    assert float(rows[2]["median_ms"]) == 6.0
    assert float(rows[2]["GB_per_s"]) == kernels[2].gbps
    assert rows[3]["median_ms"] == rows[4]["share_of_copy_bandwidth"] == "n/a"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    write_text(check_writable(path), "ü\n")
    assert path.read_bytes() == "ü\n".encode()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left"):
        write_text(path, "new")
    assert path.read_bytes() == "ü\n".encode()
    assert os.listdir(tmp_path) == ["t.csv"]


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, square_elements: None) -> Call:
    monkeypatch.setattr("inspector.gpu.bench.copy_gbps", lambda gpu, **_: 10.0)

    def run_it(*words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(
            [
                "bench",
                "--elements",
                "5000",
                "--samples",
                "2",
                "--seconds",
                "0",
                *(str(word) for word in words),
            ]
        )
        return (code, *capfd.readouterr())

    return run_it


@pytest.mark.gpu
def test_all_variants_in_one_document_and_two_files(call: Call, tmp_path: Path) -> None:
    table, trace = tmp_path / "t.csv", tmp_path / "t.json"
    code, out, err = call("--all", "--json", "--drift-steps", 2, "--csv", table, "--perfetto", trace)
    assert (code, err) == (0, "")
    report: Any = json.loads(out)
    variants = report["variants"]
    assert [v["name"] for v in variants] == [v.name for v in comparable(Variant(), even_plan)[0]]
    code, out, _ = call("--json")
    assert set(json.loads(out)) | {"name", "ratio"} == set(variants[0])
    assert variants[0]["ratio"] == 1
    assert variants[1]["ratio"] == pytest.approx(
        variants[1]["step"]["median_ms"] / variants[0]["step"]["median_ms"]
    )
    assert {k["name"] for k in variants[0]["kernels"]} >= {"reduce_norm_sq", "adamw_update wd"}
    assert [(d["name"], d["steps"]) for d in report["drift"]] == [("numerics precise", 2)]
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == sum(len(v["kernels"]) + 1 for v in variants)
    names = [
        e["args"]["name"]
        for e in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
        if e["name"] == "thread_name" and not e["args"]["name"].endswith("(overlapping)")
    ]
    assert names == [v["name"] for v in variants]


@pytest.mark.gpu
def test_the_table_for_people_has_every_variant_and_its_kernels(call: Call) -> None:
    code, out, err = call("--all")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    for name in ("default", "unfused", "reduce atomic, grid published", "  adamw_update_f16 wd"):
        assert any(line.startswith(f" {name}") for line in lines), out
    assert "ratio" in out
    # The default beside itself, in the last column.
    assert next(line for line in lines if line.startswith(" default")).split()[-1] == "1.00"
    assert len(next(line for line in lines if line.startswith(" default")).split()) == 14
    code, out, err = call()
    assert (code, err) == (0, "")
    assert "from the first dispatch to the end of the last" in out


@pytest.mark.gpu
def test_the_published_grid_takes_the_sum_it_goes_with_and_refuses_the_other(call: Call) -> None:
    code, out, err = call("--grid", "published", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["variant"]["reduce"] == "atomic"
    assert call("--grid", "published", "--reduce", "two-pass") == (
        2, "", "inspector: The published grid goes with --reduce atomic.\n",
    )  # fmt: skip
    code, out, err = call("--json")
    assert json.loads(out)["variant"]["reduce"] == "two-pass"


@pytest.mark.parametrize(
    "words",
    [
        ["--csv", "DIR"], ["--csv", "DIR/none/t.csv"], ["--perfetto", "/dev/urandom"],
        ["--perfetto", "DIR/" + "x" * 300],
        ["--csv", "DIR/t", "--perfetto", "DIR/t"], ["--drift-steps", "5"], ["--all", "--drift-steps", "-1"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_cannot_be_written_is_told_before_anything_is_measured(
    call: Call, tmp_path: Path, words: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inspector.cli.bench.Gpu", lambda name: pytest.fail("opened a device"))
    code, out, err = call(*(word.replace("DIR", str(tmp_path)) for word in words))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("inspector: ")
    assert os.listdir(tmp_path) == []
