"""Settings of params as data: what they are of each param, what a change does to them, and how they cut a plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plan_interpreter import interpret
from test_plan import any_limits, any_params, assert_legal, variants_of

from inspector.errors import UsageError
from inspector.hyper import Hyper, adam_hp_uniform, bias_uniform, scheduled, with_settings_of, with_value
from inspector.layout import Param, make_layout
from inspector.optimizers import optimizer, plan_step
from inspector.param_hyper import columns, param_step, segment_classes
from inspector.plan import KERNELS, DispatchForm, Limits, Variant, layout_for
from inspector.settings import IDLE, ParamSettings, Settings

A = Settings(1e-3, 0.9, 0.999, 1e-8, 0.1)
B = Settings(3e-4, 0.8, 0.95, 1e-6, 0.0, behind=2)
OFF = replace(A, behind=4, idle=True)
PARAMS = (
    Param("w0", (8, 8)), Param("n0", (8,)), Param("w1", (8, 8), group=1), Param("n1", (8,), group=1),
    Param("w2", (8, 8)),
)  # fmt: skip


# --- settings


def test_a_param_has_the_settings_of_its_class() -> None:
    shared = Hyper(lr=2e-3, weight_decay=0.3)
    layout = make_layout(PARAMS)
    assert shared.of_param(0, decays=True) == Settings(2e-3, 0.9, 0.999, 1e-8, 0.3)
    assert shared.of_param(1, decays=False).weight_decay == 0
    own = replace(shared, max_grad_norm=0.5, per_param=ParamSettings((A, B, OFF), (0, 0, 1, 1)))
    assert [own.of_param(i, decays=True) for i in range(4)] == [A, A, B, B]
    # Not there yet.
    assert own.of_param(4, decays=True).idle
    # In numbers of the source, wherever they lie: w2 lies before w1.
    assert [s.name for s in layout] == ["w0", "w2", "w1", "n0", "n1"]
    assert layout.given == PARAMS
    got = param_step(own, layout, "n1", 9)
    assert (got.hyper, got.step, got.decays, got.idle) == (
        Hyper(3e-4, 0.8, 0.95, 1e-6, 0.0, 0.5),
        7,
        True,
        False,
    )
    assert param_step(shared, layout, "n1", 9).decays is False
    assert param_step(own, layout, "w2", 9).idle


def test_the_step_count_of_an_idle_param_is_that_of_its_last_step() -> None:
    # By hand: trained in steps 1 and 2, idle in 3 to 5, again in 6, which is its third.
    for step, behind, idle, t in ((2, 0, False, 2), (3, 0, True, 2), (5, 2, True, 2), (6, 3, False, 3)):
        assert replace(A, behind=behind, idle=idle).t(step) == t


def test_a_changed_rate_scales_every_class_and_other_settings_replace_the_old_value() -> None:
    own = Hyper(lr=1e-3, per_param=ParamSettings((A, B), (0, 1)))
    rate = with_value(own, "lr", 2e-3)
    assert [c.lr for c in rate.per_param.classes] == [2e-3, 6e-4]  # type: ignore[union-attr]
    beta = with_value(own, "beta2", 0.5)
    # The run's was 0.999, which A has and B has not.
    assert [c.beta2 for c in beta.per_param.classes] == [0.5, 0.95]  # type: ignore[union-attr]
    decay = with_value(replace(own, weight_decay=0.1), "weight_decay", 0.2)
    assert [c.weight_decay for c in decay.per_param.classes] == [0.2, 0.0]  # type: ignore[union-attr]
    # From 0 there is no ratio.
    still = with_value(replace(own, lr=0.0), "lr", 5e-4)
    assert [c.lr for c in still.per_param.classes] == [5e-4, 5e-4]  # type: ignore[union-attr]
    assert with_value(own, "max_grad_norm", 9.0).per_param is own.per_param
    assert with_value(own, "lr", 1e-3) == own


def test_a_change_that_is_taken_back_leaves_what_was() -> None:
    own = Hyper(lr=1e-3, per_param=ParamSettings((A, replace(B, lr=0.7e-3)), (0, 1)))
    there = with_value(own, "lr", 3.3e-3)
    assert with_settings_of(own, replace(there, lr=1e-3)) == own


def test_a_schedule_multiplies_every_rate() -> None:
    own = Hyper(lr=1e-3, per_param=ParamSettings((A, B), (0, 1)))
    half = scheduled(own, 0.5)
    assert half.lr == 5e-4
    assert [c.lr for c in half.per_param.classes] == [5e-4, 1.5e-4]  # type: ignore[union-attr]


def test_columns_have_what_each_param_has() -> None:
    layout = make_layout(PARAMS)
    names = [s.name for s in layout]
    own = Hyper(per_param=ParamSettings((A, B, OFF), (0, 2, 1, 1)))
    got = columns(own, layout, names, 9)
    assert got.lr.tolist() == [1e-3, 1e-3, 3e-4, 1e-3, 3e-4]
    assert got.weight_decay.tolist() == [0.1, 0.0, 0.0, 0.1, 0.0]
    # w2 is not there yet.
    assert got.t.tolist() == [9, 0, 7, 4, 7]
    assert got.idle.tolist() == [False, True, False, True, False]
    shared = columns(Hyper(weight_decay=0.2), layout, names, 9)
    assert shared.weight_decay.tolist() == [0.2, 0.2, 0.2, 0.0, 0.0]
    assert (float(shared.lr), int(shared.t)) == (1e-3, 9)


# --- layout


def test_params_of_a_group_lie_next_to_each_other() -> None:
    params = [Param(f"p{i}", (4, 4) if i % 3 else (4,), group=i % 2) for i in range(8)]
    layout = make_layout(params)
    got = [(s.block, s.param.group, s.name) for s in layout]
    assert got == [
        ("wd", 0, "p2"), ("wd", 0, "p4"), ("wd", 1, "p1"), ("wd", 1, "p5"), ("wd", 1, "p7"),
        ("no_wd", 0, "p0"), ("no_wd", 0, "p6"), ("no_wd", 1, "p3"),
    ]  # fmt: skip
    assert layout.numbers == (2, 4, 1, 5, 7, 0, 6, 3)
    assert layout.number_of("p7") == 7
    assert layout.given == tuple(params)


# --- plan


@st.composite
def any_classes(draw: st.DrawFn, params: int) -> ParamSettings:
    count = draw(st.integers(1, 3))
    idle = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    classes = tuple(replace(A, lr=1e-3 * (i + 1), idle=off) for i, off in enumerate(idle))
    of = draw(st.lists(st.integers(0, count - 1), min_size=max(params - 1, 0), max_size=params))
    return ParamSettings(classes, tuple(of))


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_every_element_is_updated_once_with_the_settings_of_its_param(data: st.DataObject) -> None:
    params = [replace(p, group=data.draw(st.integers(0, 2))) for p in data.draw(any_params())]
    limits = data.draw(any_limits())
    variant = data.draw(st.sampled_from(KERNELS).flatmap(variants_of))
    own = data.draw(any_classes(len(params)))
    try:
        layout = layout_for(params, limits, variant, alone=True)
    except UsageError:
        assume(False)
    classes = segment_classes(layout, Hyper(per_param=own))
    assert classes is not None
    filled = {of for s, of in zip(layout, classes, strict=True) if s.numel}
    assume(filled)
    try:
        plan_step(layout, limits, variant)
    except UsageError:
        # Too small a device, or a form that does not go together.
        assume(False)
    if variant.dispatch == "single" and len(filled) > 1:
        with pytest.raises(UsageError, match="One dispatch has one learning rate"):
            plan_step(layout, limits, variant, classes)
        return
    plan = plan_step(layout, limits, variant, classes)
    assert_legal(plan)
    gradients = np.zeros(layout.padded_elements)
    for s, of in zip(layout, classes, strict=True):
        if of != IDLE:
            gradients[s.offset : s.stop] = 1 + s.offset % 7
    run = interpret(plan, gradients)
    assert run.norm_sq == np.sum(gradients**2)
    for s, of in zip(layout, classes, strict=True):
        here = slice(s.offset, s.stop)
        assert (run.of[here] == of).all()
        assert (run.updated[here] == (of != IDLE)).all()
        assert (run.zeroed[here] == (of != IDLE)).all()
        # An idle one is not touched at all.
        assert (run.decayed[here] == (of != IDLE)).all()


def plan_of(
    own: ParamSettings, dispatch: DispatchForm = "two-block", kernel: str = "f32"
) -> list[tuple[str, str, str]]:
    variant = Variant(dispatch=dispatch, kernel=kernel)  # type: ignore[arg-type]
    layout = layout_for(PARAMS, Limits(), variant)
    plan = plan_step(layout, Limits(), variant, segment_classes(layout, Hyper(per_param=own)))
    keys = {u.offset: u.key for u in plan.uniforms}
    found = []
    for d in plan.dispatches:
        if d.updates:
            hp, bias = (next(keys[b.offset] for b in d.bindings if b.name == name) for name in ("hp", "bias"))
            found.append((d.label.removeprefix("adamw_update "), hp, bias))
    return found


def test_ranges_are_cut_where_neighbours_differ() -> None:
    # In memory: w0 w2 w1 | n0 n1.
    assert plan_of(ParamSettings((A, B), (0, 0, 1, 1, 0))) == [
        ("wd group 0", "hp:0", "bias:0"), ("wd group 1", "hp:1", "bias:1"),
        ("no-wd group 0", "hp:0", "bias:0"), ("no-wd group 1", "hp:1", "bias:1"),
    ]  # fmt: skip
    assert plan_of(ParamSettings((A,), (0,) * 5)) == [
        ("wd groups 0, 1", "hp:0", "bias:0"), ("no-wd groups 0, 1", "hp:0", "bias:0"),
    ]  # fmt: skip
    # w2 sits out: w0 and w1 do not meet.
    assert plan_of(ParamSettings((A, OFF), (0, 0, 0, 0, 1))) == [
        ("wd group 0", "hp:0", "bias:0"), ("wd group 1", "hp:0", "bias:0"), ("no-wd groups 0, 1", "hp:0", "bias:0"),
    ]  # fmt: skip
    assert plan_of(ParamSettings((A, B), (0, 0, 1, 1, 0)), "per-tensor") == [
        ("w0 (group 0)", "hp:0", "bias:0"), ("w2 (group 0)", "hp:0", "bias:0"), ("w1 (group 1)", "hp:1", "bias:1"),
        ("n0 (group 0)", "hp:0", "bias:0"), ("n1 (group 1)", "hp:1", "bias:1"),
    ]  # fmt: skip
    assert plan_of(ParamSettings((A, OFF), (1,) * 5)) == []


def test_one_dispatch_is_refused_where_settings_differ() -> None:
    assert plan_of(ParamSettings((A, B), (0,) * 5), "single") == [("all groups 0, 1", "hp:0", "bias:0")]
    with pytest.raises(UsageError, match=r"2 kinds of settings: run with --dispatch two-block or per-tensor"):
        plan_of(ParamSettings((A, B), (0, 0, 1, 1, 0)), "single")
    with pytest.raises(UsageError, match=r"1 kinds of settings, and some are idle"):
        plan_of(ParamSettings((A, OFF), (0, 0, 1, 1, 0)), "single")


def test_coded_state_that_cannot_be_bound_alone_is_refused() -> None:
    params = [Param("a", (100, 64)), Param("b", (100, 64))]
    variant = Variant(kernel="8bit")
    classes = (0, 1)
    with pytest.raises(UsageError, match=r"8-bit state of b cannot be bound by itself"):
        plan_step(layout_for(params, Limits(), variant), Limits(), variant, classes)
    alone = layout_for(params, Limits(), variant, alone=True)
    assert len([d for d in plan_step(alone, Limits(), variant, classes).dispatches if d.updates]) == 2
    assert layout_for([params[0], replace(params[1], group=1)], Limits(), variant).placement.bound_alone


def test_the_uniforms_are_those_of_each_class_at_its_own_step() -> None:
    own = Hyper(max_grad_norm=0.25, per_param=ParamSettings((A, B, OFF), (0, 1, 2, 0, 0)))
    got = optimizer("adamw").uniforms(own, 9, "precise")
    assert sorted(got) == ["bias:0", "bias:1", "hp:0", "hp:1", "max_grad_norm"]
    one = Hyper(B.lr, B.beta1, B.beta2, B.eps, B.weight_decay)
    assert got["hp:1"].tolist() == adam_hp_uniform(one, 7, decays=True).tolist()
    assert got["bias:1"].tolist() == bias_uniform(one, 7, "precise").tolist()
    # By hand: 1 / (1 - 0.8⁷).
    assert got["bias:1"][0] == np.float32(1 / (1 - 0.8**7))
    assert got["hp:0"][:4].tolist() == np.float32([1e-3, 0.9, 0.999, 0.1]).tolist()
    assert got["max_grad_norm"].tolist() == [0.25]


def test_classes_of_equal_settings_are_one() -> None:
    twin = ParamSettings((A, B, A, OFF), (0, 1, 2, 2, 0))
    layout = make_layout(PARAMS)
    # In memory: w0 w2 w1 | n0 n1.
    assert segment_classes(layout, Hyper(per_param=twin)) == (0, 0, 0, 1, 0)
    later = twin.each(lambda each: replace(each, lr=each.lr / 2))
    assert twin.cuts_like(later)
    # As soon as they part, the plan does.
    apart = ParamSettings((A, B, replace(A, behind=1), OFF), twin.of)
    assert not twin.cuts_like(apart)
    assert segment_classes(layout, Hyper(per_param=apart)) == (0, 0, 2, 1, 2)
