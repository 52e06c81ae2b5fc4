"""What is read of a WGSL file: declarations however they are written, and nothing that only looks like one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.shader_text import unit
from inspector.wgsl import parse
from inspector.wgsl_tokens import tokens, without_comments
from inspector.wgsl_types import Shape, Types

SHADERS = Path(__file__).parent.parent / "inspector" / "shaders"


def test_a_declaration_may_have_its_attributes_in_any_order_and_over_lines() -> None:
    module = parse("@binding( /* slot */ 3 )\n@group(0)\nvar<storage,\n  read_write>\n m : array< f32 > ;")
    (m,) = module.resources
    assert (m.name, m.group, m.slot, m.space, m.access, m.type) == (
        "m", 0, 3, "storage", "read_write", "array<f32>",
    )  # fmt: skip
    assert m.line == 5
    assert m.declared == "var<storage, read_write> m: array<f32>"


def test_storage_without_an_access_is_read_and_a_uniform_has_none() -> None:
    module = parse(
        "@group(0) @binding(0) var<storage> a: array<u32>; @group(0) @binding(1) var<uniform> b: u32;"
    )
    assert [(r.space, r.access) for r in module.resources] == [("storage", "read"), ("uniform", "")]


def test_what_stands_in_comments_is_not_there() -> None:
    text = "// @group(0) @binding(0) var<storage> a: u32;\n/* fn /* nested */ @compute */\nalias x = u32; // tail"
    assert without_comments(text) == " \n \nalias x = u32;  "
    assert parse(text).resources == ()


def test_an_unfinished_comment_reaches_to_the_end_and_lines_are_kept() -> None:
    assert without_comments("a /* \n /* */ \n b") == "a  \n\n"
    assert [(t.text, t.line) for t in tokens("a /* 1\n2\n*/ b // c\nd")] == [("a", 1), ("b", 3), ("d", 4)]


def test_slots_and_workgroup_sizes_may_be_constants() -> None:
    module = parse(
        "const SLOT = 0x2u; const HALF: u32 = 8u; override WG: u32 = HALF * 2u;\n"
        "@group(0) @binding(SLOT + 1) var<uniform> n: u32;\n"
        "@workgroup_size(WG, HALF,) @compute fn go() { let x = n; }"
    )
    assert module.resources[0].slot == 3
    assert module.entry_points[0].threads == 128
    assert module.entry_points[0].uses == module.resources


@pytest.mark.parametrize("size", ["", "@workgroup_size(N)", "@workgroup_size(0)", "@workgroup_size(4/0)"])
def test_a_size_that_cannot_be_worked_out_is_none(size: str) -> None:
    assert parse(f"@compute {size} fn go() {{}}").entry_points[0].threads is None


def test_an_entry_point_uses_what_its_functions_name() -> None:
    module = parse("""
        @group(0) @binding(0) var<storage, read_write> w: array<f32>;
        @group(0) @binding(1) var<uniform> hp: vec4<f32>;
        @group(0) @binding(0) var<storage> data: array<f32>;
        fn lr() -> f32 { return hp.x; }
        fn step(w: f32) -> f32 { return w * lr(); }
        @compute @workgroup_size(1) fn a() { let x = step(data[0]); }
        @compute @workgroup_size(1) fn b() { w[0] = hp.w; }
        @compute @workgroup_size(1) fn c() { let q = lr(); }
        fn d() {}
    """)
    # A parameter hides the variable of its name, and hp.w is a member.
    used = {e.name: {r.name for r in e.uses} for e in module.entry_points}
    assert used == {"a": {"hp", "data"}, "b": {"w", "hp"}, "c": {"hp"}}


def test_overrides_are_set_by_their_number_where_they_have_one() -> None:
    module = parse("@id(7) override PRECISE: bool = false; override LIMIT: f32; enable f16, subgroups;")
    assert [(o.name, o.key, o.has_default) for o in module.overrides] == [
        ("PRECISE", "7", True),
        ("LIMIT", "LIMIT", False),
    ]
    assert module.enables == {"f16": 1, "subgroups": 1}


@pytest.mark.parametrize(
    ("type_", "shape"),
    [
        ("f32", Shape("f32", 1, 4, 4)),
        ("vec4f", Shape("f32", 4, 16, 16)),
        ("array<f32>", Shape("f32", 1, 4, 4, runtime=True)),
        ("array<vec4<f32>>", Shape("f32", 4, 16, 16, runtime=True)),
        ("array<vec3<f32>>", Shape("f32", 3, 16, 16, runtime=True)),
        ("array<f32,2>", Shape("f32", 2, 8, 4)),
        ("array<f32,N>", Shape("f32", 6, 24, 4)),
        ("array<array<f32,2>>", Shape("f32", 2, 8, 4, runtime=True)),
        ("atomic<u32>", Shape("atomic<u32>", 1, 4, 4)),
        ("array<atomic<u32>>", Shape("atomic<u32>", 1, 4, 4, runtime=True)),
        ("array<f16>", Shape("f16", 1, 2, 2, runtime=True)),
        ("Hyper", Shape("f32", 4, 16, 4)),
        ("Mixed", Shape("", 4, 32, 16)),
        ("Wrapped", Shape("f32", 1, 4, 4, runtime=True)),
        ("real", Shape("f32", 1, 4, 4)),
    ],
)
def test_a_type_is_known_by_what_it_is_made_of(type_: str, shape: Shape) -> None:
    module = parse(
        "alias real = f32; const N = 6;"
        "struct Hyper { lr: real, beta1: f32, beta2: f32, decay: f32, }"
        "struct Mixed { n: u32, rest: vec3<f32> } struct Wrapped { data: array<f32> }"
    )
    assert module.types.shape(type_) == shape


@pytest.mark.parametrize(
    "type_",
    ["", "nosuch", "array<>", "array<nosuch>", "vec5<f32>", "loop", "array<f32,x>", "mat4x4<f32>", "S"],
)
def test_a_type_that_is_not_understood_is_none(type_: str) -> None:
    types = parse("alias loop = loop; struct S { @size(16) x: f32, y: f32 }").types
    assert types.shape(type_) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("256", 256), ("0x10u", 16), ("(2+3)*4", 20), ("1<<8", 256), ("A", 3), ("B", None), ("-1", None),
     ("1.5", None), ("1is2", None), ("9" * 300, None), ("1<<99", None), ("", None), ("u32(7)", 7)],
)  # fmt: skip
def test_constant_expressions(text: str, value: int | None) -> None:
    assert Types(constants={"A": "3", "B": "B"}).number(text) == value


@pytest.mark.parametrize("path", sorted(SHADERS.parent.rglob("*.wgsl")), ids=lambda p: p.stem)
def test_the_kernels_of_the_project_are_understood(path: Path) -> None:
    name = (
        path.relative_to(SHADERS if path.is_relative_to(SHADERS) else SHADERS.parent)
        .with_suffix("")
        .as_posix()
    )
    text = path.read_text(encoding="utf-8")
    # A file that only kernels of its own stand behind has no kernel in it.
    whole = unit(name).text if "@compute" in text else text
    module = parse(whole)
    assert len(module.resources) == whole.count("@binding(")
    assert len(module.entry_points) == whole.count("@compute")
    assert all(entry.threads and entry.uses for entry in module.entry_points)


PIECES = ("@group(0)", "@binding(1)", "var", "<", ">", "storage", "fn", "f", "(", ")", "{", "}", "struct", ":",
          ";", "=", ",", "/*", "*/", "//", "\n", "override", "alias", "const", "1", "β", "@compute", '"')  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=60).map(" ".join) | st.text(max_size=80))
def test_any_text_is_gone_through(text: str) -> None:
    module = parse(text)
    for resource in module.resources:
        module.types.shape(resource.type)
