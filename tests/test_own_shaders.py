"""A user's own kernels: read from a folder, held against the slots, run in the place of the built-in ones."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import own_wgsl
import pytest
from gpu_helpers import PUBLISHED_GRID, Bytes, everything, lanes, make_stepper, normal_state, whole
from own_wgsl import FILL_ZERO, FINALIZE, NORM, SCALE, UPDATE, UPDATE_F16, write
from test_worker import Opener, Watched

from inspector.cli import run
from inspector.cli.shaders import idle_kernels, with_shaders
from inspector.codecs import CODECS, Codec
from inspector.errors import UsageError
from inspector.gpu.device import Gpu
from inspector.gpu.explain import explain_element
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.kernel_slots import KERNEL_SLOTS
from inspector.layout import Param, make_layout
from inspector.optimizers import plan_step
from inspector.optimizers.adamw.oracle import oracle_step
from inspector.own_shaders import MAX_FILE_BYTES, load_own_kernels
from inspector.plan import Limits, Plan, Variant, required_placement
from inspector.runtime.commands import OpenSource, StepIteration
from inspector.runtime.snapshots import Snapshot
from inspector.shader_text import SHARED, shader_source
from inspector.stepping import HostGradients

UNCLIPPED = Hyper(max_grad_norm=float("inf"), weight_decay=0.1)
"""The clip scale is 1 whatever the last bits of the norm are."""
PARAMS = [Param("a", (30, 50)), Param("b", (71,)), Param("c", (1,))]
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    """Run a command; its exit code, standard output and standard error."""

    def run_it(*words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return run_it


def variant_of(folder: Path, base: Variant | None = None) -> Variant:
    return replace(base or Variant(), own=load_own_kernels(folder))


def plan_of(variant: Variant, limits: Limits | None = None, align: int = 512) -> Plan:
    return plan_step(
        make_layout(PARAMS, align_bytes=align, placement=required_placement(variant)),
        limits or Limits(),
        variant,
    )


def after_steps(
    gpu: Gpu, variant: Variant, steps: int = 3, hyper: Hyper = UNCLIPPED, align: int = 512
) -> GpuStepper:
    w, g, m, v = normal_state(PARAMS)
    stepper = make_stepper(gpu, PARAMS, variant, w=w, m=m, v=v, finished_steps=4, align_bytes=align)
    for _ in range(steps):
        stepper.begin_step(HostGradients(g))
        stepper.run_to_end(hyper)
    return stepper


def refused(folder: Path) -> str:
    with pytest.raises(UsageError) as error:
        load_own_kernels(folder)
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


# --- the folder


def test_kernels_are_found_by_entry_point_whatever_the_file_is_called(tmp_path: Path) -> None:
    folder = write(
        tmp_path, a=UPDATE, b=NORM, other="@compute @workgroup_size(1) fn matmul() {}", lib="const A = 1;"
    )
    (tmp_path / "notes.txt").write_bytes(b"\xff")
    own = load_own_kernels(folder)
    assert own.files == {"reduce_norm_sq": str(folder / "b.wgsl"), "adamw_update": str(folder / "a.wgsl")}
    update = own.get("adamw_update")
    assert update is not None
    assert (update.threads, update.item_elements, update.access) == (
        256, 1, ((0, "read_write"), (1, "read_write"), (2, "read_write"), (3, "read_write"), (4, "read")),
    )  # fmt: skip
    assert UPDATE.split("\n")[update.line - 1].startswith("fn adamw_update")
    assert str(own) == "reduce_norm_sq, adamw_update"
    assert UPDATE not in repr(own)


def test_one_file_may_hold_several_kernels_with_the_same_slots(tmp_path: Path) -> None:
    own = load_own_kernels(write(tmp_path, all=UPDATE + NORM))
    assert {k.entry_point: len(k.access) for k in own.kernels} == {"reduce_norm_sq": 2, "adamw_update": 5}


def test_every_built_in_kernel_has_the_slots_that_are_asked_of_a_users() -> None:
    plans = [
        plan_of(Variant(kernel=kernel, reduce=reduce, fused=fused))
        for kernel in ("f32", "f16")
        for reduce in ("two-pass", "atomic")
        for fused in (True, False)
    ] + [plan_of(Variant(kernel="8bit", small_state="8bit"))]
    dispatches = {d.entry_point: d for plan in plans for d in plan.dispatches}
    assert set(dispatches) <= set(KERNEL_SLOTS)
    for name, dispatch in dispatches.items():
        slots = KERNEL_SLOTS[name].slots
        assert [(b.slot, b.name, b.access) for b in dispatch.bindings] == [
            (s.number, s.name, s.access) for s in slots
        ]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "holds no .wgsl file"),
        ({"a": "  \n"}, "a.wgsl is empty"),
        ({"a": "fn scale() {}"}, "has no compute entry point, none of which is a kernel of the pipeline"),
        ({"a": "@compute @workgroup_size(1) fn mm() {}"}, "name an entry point reduce_norm_sq, "),
        ({"a": UPDATE, "b": UPDATE}, "b.wgsl:14: adamw_update is in "),
        ({"a": "x\n\0"}, "a.wgsl:2: there is a NUL character here"),
        ({"a": UPDATE + "const X = " + "(" * 99 + "1" + ")" * 99 + ";"}, "nested deeper, or longer"),
        ({"a": UPDATE + "const X = " + "1+" * 999 + "1;"}, "nested deeper, or longer"),
        ({"a": UPDATE + "alias X = " + "array<" * 20 + "f32" + ",2>" * 20 + ";"}, "nested deeper, or longer"),
        ({"a": UPDATE + "override LIMIT: f32;"}, "override LIMIT has no default value: give it one"),
        ({"a": UPDATE.replace("@workgroup_size(WG)", "@workgroup_size(N)")}, "of adamw_update cannot be worked"),
    ],
)  # fmt: skip
def test_a_folder_that_cannot_be_used_is_told_in_one_sentence(
    tmp_path: Path, files: Mapping[str, str], says: str
) -> None:
    assert says in refused(write(tmp_path, **files))


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "nosuch")
    (tmp_path / "a.wgsl").write_text(UPDATE)
    assert "is a file: name the folder it is in" in refused(tmp_path / "a.wgsl")


def test_a_file_that_is_not_text_or_too_large(tmp_path: Path) -> None:
    path = tmp_path / "a.wgsl"
    path.write_bytes(b"// one\n// \xff\xfe\n")
    assert f"{path}:2: this is not UTF-8" in refused(tmp_path)
    path.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    assert "1,048,577 bytes" in refused(tmp_path)
    path.unlink()
    path.mkdir()
    assert "is no ordinary file" in refused(tmp_path)


@pytest.mark.skipif(sys.platform == "win32" or not hasattr(os, "geteuid"), reason="permissions of POSIX")
def test_a_file_that_may_not_be_read_or_is_no_file(tmp_path: Path) -> None:
    path = write(tmp_path, a=UPDATE) / "a.wgsl"
    if os.geteuid() != 0:
        path.chmod(0)
        assert "Permission denied" in refused(tmp_path)
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    path.unlink()
    os.mkfifo(path)
    assert "is no ordinary file" in refused(tmp_path)
    path.unlink()
    path.symlink_to(tmp_path / "nosuch")
    assert "cannot be read: No such file" in refused(tmp_path)


def test_a_byte_order_mark_and_windows_line_ends_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "a.wgsl").write_bytes(b"\xef\xbb\xbf" + UPDATE.replace("\n", "\r\n").encode())
    (kernel,) = load_own_kernels(tmp_path).kernels
    assert kernel.line == UPDATE[: UPDATE.index("fn adamw_update")].count("\n") + 1
    assert kernel.source.startswith("fn")


# --- the slots


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("@group(0) @binding(3) var<storage, read_write> v: array<f32>;", "const v = array(0.0);",
         "14: adamw_update has nothing at slot 3: declare '@group(0) @binding(3) var<storage, read_write> v: "
         "array<f32>;'"),
        ("var<storage, read_write> w:", "var<storage, read> w:",
         "2: adamw_update has 'var<storage, read> w: array<f32>' at slot 0, where "
         "'var<storage, read_write> w: array<f32>' is expected"),
        ("var<storage, read> grad_stats", "var<storage, read_write> grad_stats",
         "6: adamw_update has 'var<storage, read_write> grad_stats: array<f32>' at slot 4"),
        ("var<uniform> hp:", "var<storage, read> hp:", "where 'var<uniform> hp: vec4<f32>' is expected"),
        ("g: array<f32>", "g: array<u32>", "3: adamw_update has 'var<storage, read_write> g: array<u32>'"),
        ("m: array<f32>", "m: array<f32, 64>", "at slot 2, where"),
        ("m: array<f32>", "m: array<vec3<f32>>", "at slot 2, where"),
        ("m: array<f32>", "m: nosuch", "at slot 2, where"),
        ("size: u32", "size: f32", "'var<uniform> size: f32' at slot 5, where 'var<uniform> size: u32'"),
        ("@binding(7)", "@binding(9)", "binds 'bias' at slot 9, where nothing is bound: its slots are 0 to 7"),
        ("@binding(7)", "@binding(6)", "has both 'hp' and 'bias' at slot 6"),
        ("@group(0) @binding(2)", "@group(1) @binding(2)", "binds 'm' in group 1: everything is in @group(0)"),
        ("@group(0) @binding(2)", "@binding(2)", "needs both @group(0) and @binding(N), as numbers, on 'm'"),
    ],
)  # fmt: skip
def test_a_slot_that_is_not_as_it_must_be_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    assert old in UPDATE
    text = refused(write(tmp_path, mine=UPDATE.replace(old, new, 1)))
    assert says in text
    assert text.startswith(f"{tmp_path / 'mine.wgsl'}:")


def test_all_that_is_wrong_is_told_at_once_up_to_a_number(tmp_path: Path) -> None:
    text = refused(
        write(tmp_path, mine=UPDATE.replace("array<f32>", "array<i32>").replace("vec4<f32>", "u32"))
    )
    assert text.count("mine.wgsl:") == 5
    assert text.endswith("; and 2 more.")


def test_a_reduction_has_to_add_up_in_an_atomic(tmp_path: Path) -> None:
    text = refused(write(tmp_path, mine=NORM.replace("sum: atomic<u32>", "sum: array<f32>")))
    assert "where 'var<storage, read_write> result: atomic<u32>' is expected" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("hp: vec4<f32>", "hp: Hp"),
        ("size: u32", "size: Size"),
        ("grad_stats: array<f32>", "grad_stats: array<f32, 2>"),
        ("grad_stats: array<f32>", "grad_stats: vec2f"),
        ("w: array<f32>", "w: Weights"),
        ("var<storage, read_write> g:", "var<storage, read> g:"),
        ("var<storage, read> grad_stats", "var<storage> grad_stats"),
        ("@group(0) @binding(4) var<storage, read> grad_stats: array<f32>;", "const grad_stats = array(1.0, 1.0);"),
        ("v: array<f32>;", "v: array<f32>; @group(0) @binding(12) var<uniform> unused: u32;"),
    ],
)  # fmt: skip
def test_a_slot_may_be_declared_in_another_way_that_means_the_same(
    tmp_path: Path, old: str, new: str
) -> None:
    types = (
        "struct Hp { lr: f32, b1: f32, b2: f32, wd: f32 } struct Size { n: u32, pad: u32 }"
        "struct Weights { data: array<f32> }"
    )
    assert old in UPDATE
    assert load_own_kernels(write(tmp_path, mine=types + UPDATE.replace(old, new, 1)))


# --- the plan


def test_an_own_kernel_has_the_published_grid_and_the_others_keep_theirs(tmp_path: Path) -> None:
    plan = plan_of(variant_of(write(tmp_path, mine=UPDATE.replace("WG = 256u", "WG = 64u"))))
    norm, finalize, wd, no_wd = plan.dispatches
    assert (norm.own, norm.kernel) == (None, "reduce_norm_sq")
    assert finalize.own is None
    assert (wd.kernel, wd.label, wd.timing_key) == (
        "own/adamw_update",
        "adamw_update wd (own)",
        "adamw_update wd (own)",
    )
    assert wd.groups == (-(-1500 // 64), 1, 1)
    assert no_wd.groups == (-(-(no_wd.elements[1] - no_wd.elements[0]) // 64), 1, 1)
    assert plan.variant.own


def test_an_own_reduction_adds_up_atomically_in_one_pass_that_begins_at_zero(tmp_path: Path) -> None:
    variant = variant_of(write(tmp_path, mine=NORM))
    plan = plan_of(variant, Limits(max_storage_buffer_binding_size=2048))
    norms = [d for d in plan.dispatches if d.entry_point == "reduce_norm_sq"]
    assert len(norms) > 1
    assert [bool(d.clears) for d in norms] == [True] + [False] * (len(norms) - 1)
    assert all(d.bindings[1].buffer == "norm_sq" for d in norms)
    assert [d.groups for d in norms] == [(-(-(d.elements[1] - d.elements[0]) // 256), 1, 1) for d in norms]
    assert "reduce_norm_sq_final" not in {d.entry_point for d in plan.dispatches}
    assert plan.variant == variant


def test_a_large_grid_has_several_rows_and_items_of_four_elements_need_a_quarter(tmp_path: Path) -> None:
    limits = Limits(max_compute_workgroups_per_dimension=4)
    plan = plan_of(variant_of(write(tmp_path, mine=UPDATE)), limits)
    assert plan.dispatches[-2].groups == (3, 2, 1)
    own = load_own_kernels(write(tmp_path, mine=FILL_ZERO))
    assert (own.kernels[0].threads, own.kernels[0].groups(1025)) == (64, 5)


def test_a_slot_only_read_is_not_among_what_is_written(tmp_path: Path) -> None:
    text = UPDATE.replace("var<storage, read_write> g", "var<storage, read> g").replace("g[i] = 0.0;", "")
    plan = plan_of(variant_of(write(tmp_path, mine=text)))
    assert [b.name for b in plan.dispatches[-1].writes] == ["w", "m", "v"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"numerics": "precise"}, "cannot take --numerics precise: run without it, or declare 'override PRECISE"),
        ({"optimizer": "adam-l2"}, "cannot take --optimizer adam-l2"),
        ({"fused": False}, "cannot take --unfused"),
        ({"dispatch": "single"}, "cannot take --dispatch single"),
    ],
)  # fmt: skip
def test_a_form_that_an_own_kernel_has_no_constant_for_is_refused(
    tmp_path: Path, change: Mapping[str, object], says: str
) -> None:
    variant = replace(variant_of(write(tmp_path, mine=UPDATE)), **change)
    with pytest.raises(UsageError, match=says):
        plan_of(variant)


def test_constants_that_are_declared_are_given(tmp_path: Path) -> None:
    text = "@id(3) override PRECISE: bool = false; override WD_ELEMENTS: u32 = 0u;" + UPDATE
    variant = variant_of(write(tmp_path, mine=text), Variant(numerics="precise", dispatch="single"))
    assert dict(plan_of(variant).dispatches[-1].constants) == {"PRECISE": 1.0, "WD_ELEMENTS": 1500.0}


# --- on the device


pytestmark = pytest.mark.gpu


def test_published_kernels_written_by_hand_give_the_bits_of_the_built_in_published_grid(
    gpu: Gpu, tmp_path: Path
) -> None:
    own = after_steps(gpu, variant_of(write(tmp_path, a=UPDATE, b=NORM, c=FINALIZE)))
    built_in = after_steps(gpu, PUBLISHED_GRID)
    assert {d.own is not None for d in own.plan.dispatches} == {True}
    assert lanes(own) == lanes(built_in)
    assert own.grad_stats().grad_norm == pytest.approx(built_in.grad_stats().grad_norm, rel=1e-6)
    assert all(t.name in KERNEL_SLOTS for t in own.run_to_end(UNCLIPPED))


def test_a_norm_of_one_workgroup_has_the_same_bits_too(gpu: Gpu, tmp_path: Path) -> None:
    params = [Param("a", (255,))]
    w, g, m, v = normal_state(params)
    norms = []
    for variant in (variant_of(write(tmp_path, mine=NORM)), PUBLISHED_GRID):
        stepper = make_stepper(gpu, params, variant, w=w, m=m, v=v)
        for _ in range(2):
            stepper.begin_step(HostGradients(g))
            stepper.run_to_end(Hyper())
        norms.append(stepper.grad_stats())
    assert norms[0] == norms[1]


def test_a_kernel_with_its_betas_swapped_gives_other_weights_and_explain_says_so(
    gpu: Gpu, tmp_path: Path
) -> None:
    wrong = UPDATE.replace("hp.y", "hp.q").replace("hp.z", "hp.y").replace("hp.q", "hp.z")
    own = after_steps(gpu, variant_of(write(tmp_path, mine=wrong)), steps=1)
    right = after_steps(gpu, Variant(), steps=1)
    assert lanes(own)["w"] != lanes(right)["w"]
    assert lanes(own)["g"] == lanes(right)["g"]
    w, g, m, v = normal_state(PARAMS)
    for text, agrees in ((wrong, False), (UPDATE, True)):
        variant = variant_of(write(tmp_path, mine=text))
        stepper = make_stepper(gpu, PARAMS, variant, w=w, m=m, v=v, finished_steps=4)
        stepper.begin_step(HostGradients(g))
        found = explain_element(stepper, UNCLIPPED, "a", 1301)
        assert found.agrees == agrees
        assert (found.workgroup, found.thread, found.lane) == ((1301 // 256, 0, 0), 1301 % 256, 0)
        assert found.after["w"] == stepper.read("w", 1301, 1)[0]


def test_a_mirror_in_f16_is_what_the_built_in_kernel_writes(gpu: Gpu, tmp_path: Path) -> None:
    if "shader-f16" not in gpu.device.features:
        pytest.skip("needs shader-f16")
    own = after_steps(gpu, variant_of(write(tmp_path, mine=UPDATE_F16), Variant(kernel="f16")))
    built_in = after_steps(gpu, Variant(kernel="f16"))
    assert own.plan.dispatches[-1].kernel == "own/adamw_update_f16"
    ours, theirs = own.half_weights(), built_in.half_weights()
    assert all(np.array_equal(ours[p.name], theirs[p.name]) for p in PARAMS)


@pytest.mark.parametrize("codec", CODECS)
def test_an_own_kernel_over_an_8_bit_state_has_a_workgroup_a_block(
    gpu: Gpu, tmp_path: Path, codec: Codec
) -> None:
    text = "\n".join(shader_source(name) for name in (*SHARED["adamw_8bit_update"], "adamw_8bit_update"))
    form = Variant(kernel="8bit", codec=codec, small_state="8bit")
    own = after_steps(gpu, variant_of(write(tmp_path, mine=text), form))
    update = own.plan.dispatches[-2]
    assert (update.kernel, update.groups) == ("own/adamw_8bit_update", (6, 1, 1))
    assert everything(own) == everything(after_steps(gpu, form))


def test_passes_of_their_own_can_be_replaced_as_well(gpu: Gpu, tmp_path: Path) -> None:
    unfused = Variant(fused=False)
    own = after_steps(gpu, variant_of(write(tmp_path, a=SCALE, b=FILL_ZERO), unfused))
    assert {d.entry_point for d in own.plan.dispatches if d.own} == {"scale", "fill_zero"}
    assert lanes(own) == lanes(after_steps(gpu, unfused))


def test_stepping_by_dispatch_and_back_takes_what_an_own_kernel_wrote_back(gpu: Gpu, tmp_path: Path) -> None:
    stepper = after_steps(gpu, variant_of(write(tmp_path, a=UPDATE, b=NORM)), steps=1)
    _, g, _, _ = normal_state(PARAMS)
    stepper.begin_step(HostGradients(g))
    seen: list[Bytes] = []
    for _ in stepper.plan.dispatches:
        seen.append(everything(stepper))
        stepper.run_dispatch(UNCLIPPED)
    assert lanes(stepper)["w"] != seen[0]["w"]
    for before in reversed(seen):
        assert stepper.undo_dispatch()
        assert everything(stepper) == before


def test_a_constant_that_is_declared_reaches_the_kernel(gpu: Gpu, tmp_path: Path) -> None:
    text = "@id(3) override PRECISE: bool = false;" + UPDATE
    folder = write(tmp_path, mine=text.replace("v[i] = v1;", "v[i] = select(v1, 2.0, PRECISE);"))
    own, precise = (
        after_steps(gpu, variant_of(folder, Variant(numerics=each))) for each in ("published", "precise")
    )
    assert lanes(own) == lanes(after_steps(gpu, PUBLISHED_GRID))
    for segment in precise.layout:
        assert (whole(precise, "v")[segment.offset : segment.stop] == 2).all()


def test_an_own_kernel_may_take_what_stands_behind_hp(gpu: Gpu, tmp_path: Path) -> None:
    """1-β₁, 1-lr·λ, lr/(1-β₁ᵗ) and √(1-β₂ᵗ), stored in w; λ is 0 in the other block."""
    text = UPDATE.replace("hp: vec4<f32>", "hp: array<vec4<f32>, 2>").replace("hp.", "hp[0].")
    text = text.replace("    m[i] = m1;", "    if (i < 4u) { w[i] = hp[1][i]; }\n    m[i] = m1;")
    stepper = after_steps(gpu, variant_of(write(tmp_path, mine=text)), steps=1)
    h = UNCLIPPED
    for block, decay in (("wd", h.weight_decay), ("no_wd", 0.0)):
        at = next(s.offset for s in stepper.layout if s.block == block)
        # It ran one step after four.
        wanted = (1 - h.beta1, 1 - h.lr * decay, h.lr / (1 - h.beta1**5), math.sqrt(1 - h.beta2**5))
        assert whole(stepper, "w")[at : at + 4].tolist() == np.float32(wanted).tolist()


def test_the_form_may_change_to_the_built_in_kernels_and_back(gpu: Gpu, tmp_path: Path) -> None:
    own = variant_of(write(tmp_path, mine=UPDATE))
    stepper = after_steps(gpu, own, steps=1)
    for variant in (Variant(), own):
        stepper.set_variant(variant)
        _, g, _, _ = normal_state(PARAMS)
        stepper.begin_step(HostGradients(g))
        stepper.run_to_end(UNCLIPPED)
    assert lanes(stepper) == lanes(after_steps(gpu, Variant(), steps=3))


BROKEN = {
    "a sign that is missing": ("let i = gid.y", "let j = 1\n    let i = gid.y", "18:5: expected ';', found \"let\""),
    "a name that is unknown": ("bias.x, 1e-12", "bias.x, epsilon", "identifier: 'epsilon'; unknown identifier, at:"),
    "a type that does not fit": ("m[i] = m1;", "m[i] = size;", "26:5: automatic conversions cannot convert"),
    "a return that is missing": ("{ return (", "{ let y = (", "1:1: Function 'finite' is invalid; The 'return'"),
    "a value that is fixed": ("m[i] = m1;", "m1 = 1.0;", "line 26: cannot assign to this expression"),
    "a write to what is only read": ("m[i] = m1;", "bias.x = m1;", "26:5: Entry point adamw_update"),
    "an argument too many": ("finite(update)", "finite(update, 1.0)", "Requires 1 arguments, but 2 are provided"),
    "an include": ("const WG", '#include "x"\nconst WG', '11:1: expected global item'),
    "a group that is too large": ("WG = 256u", "WG = 65536u", "mine.wgsl:14: Entry point adamw_update"),
    "an extension that is unknown": (own_wgsl.FINITE, "enable nosuch;" + own_wgsl.FINITE, "1:8: "),
}  # fmt: skip


@pytest.mark.parametrize("old_new_says", BROKEN.values(), ids=BROKEN)
def test_what_the_compiler_says_comes_with_file_line_and_column(
    gpu: Gpu, tmp_path: Path, old_new_says: tuple[str, str, str]
) -> None:
    old, new, says = old_new_says
    assert old in UPDATE
    variant = variant_of(write(tmp_path, mine=UPDATE.replace(old, new, 1)))
    with pytest.raises(UsageError) as error:
        after_steps(gpu, variant)
    text = str(error.value)
    assert text.startswith(f"{tmp_path / 'mine.wgsl'}:")
    assert says in text
    assert not set(text) & set("│┌^\n`\x1b")


def test_a_kernel_that_does_not_compile_is_told_although_this_form_does_not_run_it(
    gpu: Gpu, tmp_path: Path
) -> None:
    variant = variant_of(write(tmp_path, a=UPDATE, b=SCALE.replace("gid.x < n", "gid.x < m")))
    with pytest.raises(UsageError, match=r"b\.wgsl:\d+:\d+: no definition in scope for identifier: 'm'"):
        after_steps(gpu, variant)


def test_a_form_that_does_not_compile_leaves_the_run_as_it_was(gpu: Gpu, tmp_path: Path) -> None:
    stepper = after_steps(gpu, Variant(), steps=1)
    before = everything(stepper)
    with pytest.raises(UsageError, match=r"mine\.wgsl"):
        stepper.set_variant(variant_of(write(tmp_path, mine=UPDATE + "const X = y;")))
    assert everything(stepper) == before
    assert stepper.plan.variant == Variant()
    assert stepper.undo_dispatch()


def test_halves_on_a_device_without_them_are_told(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = variant_of(write(tmp_path, mine=UPDATE_F16), Variant(kernel="f16"))
    monkeypatch.setattr(type(gpu.device), "features", property(lambda self: frozenset()))
    with pytest.raises(UsageError, match=r"mine\.wgsl:1: 'enable f16;' needs the feature shader-f16, which"):
        after_steps(gpu, variant)


# --- the commands


def test_run_says_which_kernels_were_the_users(call: Call, tmp_path: Path) -> None:
    folder = write(tmp_path, a=UPDATE, b=NORM, c=SCALE)
    code, out, _ = call("run", "synthetic:300", "--steps", 2, "--shaders", folder, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["shaders"] == {
        "reduce_norm_sq": str(folder / "b.wgsl"),
        "adamw_update": str(folder / "a.wgsl"),
        "scale": str(folder / "c.wgsl"),
    }
    assert document["variant"]["reduce"] == "atomic"
    assert "own" not in document["variant"]
    code, out, _ = call("run", "synthetic:300", "--steps", 1, "--shaders", folder)
    assert f"own kernel adamw_update from {folder / 'a.wgsl'}:14" in out
    assert ", not run here: goes with --unfused" in out


def test_layout_shows_the_grid_without_a_device(call: Call, tmp_path: Path) -> None:
    folder = write(tmp_path, a=UPDATE)
    code, out, _ = call("layout", "synthetic:5000", "--shaders", folder, "--json")
    update = [d for d in json.loads(out)["dispatches"] if d["kernel"] == "adamw_update"]
    assert code == 0
    assert [d["groups"] for d in update] == [[16, 1, 1], [4, 1, 1]]
    assert {d["file"] for d in update} == {f"{folder / 'a.wgsl'}:14"}


def test_bench_measures_an_own_kernel_beside_the_built_in_one(
    call: Call, tmp_path: Path, square_elements: None
) -> None:
    folder = write(tmp_path, a=UPDATE)
    code, out, _ = call(
        "bench", "--elements", 5000, "--samples", 1, "--all", "--shaders", folder, "--json", "--seconds", 0
    )
    document = json.loads(out)
    assert code == 0
    names = {each["name"]: each for each in document["variants"]}
    assert "adamw_update wd (own)" in [k["name"] for k in names["as given"]["kernels"]]
    assert names["as given"]["shaders"] == {"adamw_update": str(folder / "a.wgsl")}
    assert "adamw_update wd" in [k["name"] for k in names["built-in kernels"]["kernels"]]
    assert names["built-in kernels"]["shaders"] == {}


def test_explain_says_what_the_users_kernel_wrote_instead(call: Call, tmp_path: Path) -> None:
    words = ("explain", "synthetic:5000", "--param", "bias", "--index", 7, "--shaders", tmp_path)
    write(tmp_path, a=UPDATE)
    code, out, _ = call(*words)
    assert code == 0
    assert "wrote w, m and v bit for bit as in these lines" in out
    write(tmp_path, a=UPDATE.replace("w[i] - update", "w[i] + update"))
    code, out, _ = call(*words)
    assert code == 0
    assert f"own kernel adamw_update from {tmp_path / 'a.wgsl'}:14 wrote other bits" in out
    assert "m: " in out
    assert "as here" in out
    code, out, _ = call(*words, "--json")
    document = json.loads(out)
    assert document["own_kernel"] == f"{tmp_path / 'a.wgsl'}:14"
    assert document["agrees_with_kernel"] is False
    assert document["after"]["w"] != document["lines"][-1]["f32"]


@pytest.mark.parametrize("command", ["run", "layout", "explain", "bench", "screenshot", "window"])
def test_every_command_tells_a_bad_folder_in_one_sentence(call: Call, tmp_path: Path, command: str) -> None:
    needed = {
        "run": ("synthetic:10", "--steps", 1), "layout": ("synthetic:10",), "bench": ("--elements", 10),
        "explain": ("synthetic:10", "--param", "bias", "--index", 0),
        "screenshot": ("synthetic:10", "--out", tmp_path / "x.png"), "window": ("synthetic:10",),
    }[command]  # fmt: skip
    code, out, err = call(command, *needed, "--shaders", tmp_path / "nosuch")
    assert (code, out) == (2, "")
    assert err == f"inspector: --shaders {tmp_path / 'nosuch'} does not exist.\n"


def test_a_compiler_message_is_one_line_with_exit_code_2(call: Call, tmp_path: Path) -> None:
    folder = write(tmp_path, mine=UPDATE.replace("m[i] = m1;", "m[i] = mi;"))
    code, out, err = call("run", "synthetic:10", "--steps", 1, "--shaders", folder, "--json")
    assert (code, out) == (2, "")
    assert err == (
        f"inspector: {folder / 'mine.wgsl'}:26:12: no definition in scope for identifier: 'mi'; unknown identifier, "
        "at: m[i] = mi;\n"
    )


def test_a_folder_of_which_nothing_would_run_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, a=UPDATE_F16, b=SCALE)
    with pytest.raises(
        UsageError, match="adamw_update_f16 goes with --kernel f16; scale goes with --unfused"
    ):
        with_shaders(Variant(), folder)
    variant = with_shaders(Variant(kernel="f16"), folder)
    assert [k.entry_point for k in idle_kernels(variant)] == ["scale"]


def test_a_start_of_the_source_takes_the_files_as_they_are_then(tmp_path: Path) -> None:
    folder = write(tmp_path, mine=UPDATE)

    def reread(variant: Variant) -> Variant:
        return replace(variant, own=load_own_kernels(folder))

    def runs(snapshot: Snapshot, text: str) -> bool:
        own = snapshot.plan.variant.own.get("adamw_update") if snapshot.plan else None
        return snapshot.mode == "paused" and own is not None and own.source == text

    watched = Watched(Opener(), variant=Variant(), reread=reread)
    try:
        watched.until(lambda s: runs(s, UPDATE))
        write(tmp_path, mine=UPDATE.replace("w: array<f32>", "w: array<u32>"))
        watched.worker.send(OpenSource("tiny"))
        notice = watched.until(lambda s: s.notice is not None).notice
        assert notice is not None
        assert f"{folder / 'mine.wgsl'}:2: adamw_update has" in notice.text
        # What passes the check of slots and not the compiler ends nothing either.
        write(tmp_path, mine=UPDATE.replace("- update;", "- updat;"))
        watched.worker.send(OpenSource("tiny"))
        notice = watched.until(lambda s: s.notice is not None and "updat" in s.notice.text).notice
        assert notice is not None
        assert f"{folder / 'mine.wgsl'}:" in notice.text
        # What ran before is still there.
        watched.worker.send(StepIteration())
        watched.until(lambda s: runs(s, UPDATE) and s.cursor is not None and s.cursor.at_end)
        edited = write(tmp_path, mine=UPDATE.replace("- update;", "- 2.0 * update;"))
        watched.worker.send(OpenSource("tiny"))
        watched.until(lambda s: runs(s, (edited / "mine.wgsl").read_text(encoding="utf-8")))
    finally:
        assert watched.worker.close(60)


def test_a_whole_step_of_own_kernels_follows_the_oracle(gpu: Gpu, tmp_path: Path) -> None:
    stepper = after_steps(
        gpu, variant_of(write(tmp_path, a=UPDATE, b=NORM, c=FINALIZE)), steps=1, hyper=Hyper()
    )
    w, g, m, v = normal_state(PARAMS)
    exact = oracle_step(stepper.layout, (w, m, v), g, hyper=Hyper(), step=5)
    state = stepper.state()
    for p in PARAMS:
        np.testing.assert_allclose(state.w[p.name], exact.w[p.name], rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(state.m[p.name], exact.m[p.name], rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(state.v[p.name], exact.v[p.name], rtol=1e-5, atol=1e-12)
