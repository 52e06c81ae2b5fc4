"""Which line of WGSL computes which line of the update: held against what the compiled shader does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import own_wgsl
import pytest
from gpu_helpers import PUBLISHED_GRID

from inspector import shader_lines
from inspector.explaining import ElementValues
from inspector.gpu.device import Gpu
from inspector.gpu.element import element_lines
from inspector.gpu.pipelines import Pipelines
from inspector.hyper import Hyper, adam_hp_uniform, bias_uniform
from inspector.layout import Param
from inspector.optimizers import plan_step
from inspector.optimizers.adamw.oracle import update
from inspector.own_kernels import OwnKernel
from inspector.own_shaders import load_own_kernels
from inspector.plan import Limits, Plan, Variant, layout_for
from inspector.shader_lines import CONDITIONS, FINALIZED, GIVEN, UPDATED, update_code
from inspector.shader_text import shader_source, unit
from inspector.wgsl_tokens import tokens

PARAMS = (Param("a", (40, 50)), Param("b", (70,)))
FORMS = {
    "published": Variant(),
    "precise": Variant(numerics="precise"),
    "l2": Variant(optimizer="adam-l2"),
    "f16": Variant(kernel="f16"),
    "unfused": Variant(fused=False),
    "scalar grid": PUBLISHED_GRID,
    "precise scalar grid": replace(PUBLISHED_GRID, numerics="precise"),
    "precise l2": Variant(numerics="precise", optimizer="adam-l2"),
    "precise 8bit linear": Variant(numerics="precise", kernel="8bit", small_state="8bit"),
    "8bit linear": Variant(kernel="8bit", small_state="8bit"),
    "8bit dynamic": Variant(kernel="8bit", small_state="8bit", codec="dynamic"),
    "8bit l2": Variant(kernel="8bit", small_state="8bit", optimizer="adam-l2"),
}
NAMES = [line.name for line in update(*np.ones((4, 1)), scale=1, hyper=Hyper(), step=1, decays=True).lines]


def plan_of(variant: Variant) -> Plan:
    return plan_step(layout_for(PARAMS, Limits(), variant), Limits(), variant)


def test_every_line_of_the_update_has_its_line_of_wgsl_in_every_form() -> None:
    for variant in FORMS.values():
        plan = plan_of(variant)
        for dispatch in plan.dispatches:
            if not dispatch.updates:
                continue
            code = update_code(plan, dispatch)
            assert code.note == ""
            for name in ("gradNorm", "clipScale", *NAMES):
                shown, lit = code.of(name)
                assert lit, (variant, name)
                assert shown.unit is unit(dispatch.kernel if name in NAMES else "finalize_grad_stats")
                text = shown.unit.text.splitlines()
                assert all("=" in text[line - 1] for line in lit)
            if not dispatch.kernel.startswith("published/"):
                text = unit(dispatch.kernel).text.splitlines()
                for name, target in GIVEN.items():
                    lit = code.of(name)[1]
                    assert lit, (variant, name)
                    assert f"{target} = " in text[lit[-1] - 1]


@pytest.mark.parametrize(
    "form",
    [
        "published",
        "precise",
        "l2",
        "precise l2",
        "8bit linear",
        "8bit dynamic",
        "8bit l2",
        "precise 8bit linear",
    ],
)
@pytest.mark.gpu
def test_a_slip_in_the_line_that_is_lit_shows_in_that_line_first(gpu: Gpu, form: str) -> None:
    """Each lit line in turn is made to give twice its value: its own line of the update changes, and none before it."""
    variant = FORMS[form]
    plan = plan_of(variant)
    dispatch = next(d for d in plan.dispatches if d.updates)
    code = update_code(plan, dispatch)
    text = unit("explain").text.splitlines()
    own = unit(dispatch.kernel)
    coded = variant.kernel == "8bit"
    values = ElementValues(*np.float32([0.7, 0.3, 0.02, 0.04]))
    constants = {"PRECISE": 0.0, "L2": 0.0, "CODEC": 0.0, **dict(dispatch.constants), "CODED": float(coded)}
    constants = {k: v for k, v in constants.items() if k != "WD_ELEMENTS"}

    def computed(lines: list[str]) -> np.ndarray:
        class Changed(Pipelines):
            def _module(self, kernel: str, before: tuple[str, ...]) -> object:
                return self._gpu.device.create_shader_module(label=kernel, code="\n".join(lines))

        hyper = Hyper(lr=0.1, weight_decay=0.5)
        return element_lines(
            gpu, Changed(gpu), values, clip_scale=0.75, hp=adam_hp_uniform(hyper, 3, decays=True),
            bias=bias_uniform(hyper, 3, variant.numerics), constants=tuple(constants.items()),
        )  # fmt: skip

    right = computed(text)
    # The order in which the kernel assigns them, not that of the rows.
    order = ["decay", "g'", "m", "v", "m̂", "v̂", "denominator", "ratio", "update", "w"]
    for name in NAMES:
        lit = code.of(name)[1]
        # The last of them has the last word.
        place, target = own.place(lit[-1]), UPDATED[name]
        at = next(i for i in range(1, len(text) + 1) if unit("explain").place(i) == place)
        assert text[at - 1].strip().startswith(target)
        wrong = computed([*text[:at], f"    {target} = 2.0 * {target};", *text[at:]])
        changed = [n for n, a, b in zip(NAMES, right, wrong, strict=True) if a.tobytes() != b.tobytes()]
        assert name in changed
        assert min(order.index(n) for n in changed) == order.index(name), (name, changed)


def test_conditions_of_the_kernels_are_those_that_are_known() -> None:
    """Another condition on a pipeline constant would light lines of a branch that does not run."""
    constants = {"PRECISE", "L2", "CODEC", "CODED"}
    found = set()
    for name in ("common", "coded_adam", "published/adamw_update", "finalize_grad_stats"):
        words = [t.text for t in tokens(shader_source(name))]
        for i, word in enumerate(words):
            if word == "if":
                condition = words[i + 1 : words.index("{", i)]
                if constants & set(condition):
                    found.add("".join(condition))
    assert found == set(CONDITIONS)


def test_of_an_own_kernel_only_the_lines_that_store_are_known(tmp_path: Path) -> None:
    source = own_wgsl.UPDATE
    variant = Variant(own=load_own_kernels(own_wgsl.write(tmp_path, own=source)))
    plan = plan_of(variant)
    dispatch = next(d for d in plan.dispatches if d.updates)
    code = update_code(plan, dispatch)
    assert "adamw_update is your own" in code.note
    text = source.splitlines()
    known = {name: [text[i - 1].strip() for i in code.of(name)[1]] for name in NAMES}
    assert {name for name, lit in known.items() if lit} == {"w", "m", "v"}
    from inspector.wgsl import parse

    bound = {r.slot: r.name for r in parse(source).resources}
    for slot, name in ((0, "w"), (2, "m"), (3, "v")):
        assert all(f"{bound[slot]}[i] = " in line for line in known[name])
    assert code.of("gradNorm")[1]


def test_no_line_is_lit_where_a_kernel_stores_through_a_helper() -> None:
    source = (
        "@group(0) @binding(0) var<storage, read_write> w: array<f32>;\nfn put() { w[0] = 1.0; }\n"
        "@compute @workgroup_size(1)\nfn adamw_update() { put(); }"
    )
    own = OwnKernel("adamw_update", "own.wgsl", 4, source, 1, "items", 1, ())
    shown = shader_lines._own(own, "adamw_update")
    assert dict(shown.lines) == {}


def test_the_norm_and_the_clip_scale_are_lit_in_finalize() -> None:
    plan = plan_of(Variant())
    code = update_code(plan, next(d for d in plan.dispatches if d.updates))
    for name, words in {"gradNorm": "sqrt(sums[0])", "clipScale": "min(1.0, max_grad_norm"}.items():
        shown, lit = code.of(name)
        assert name in FINALIZED
        assert [words in shown.unit.text.splitlines()[i - 1] for i in lit] == [True]
