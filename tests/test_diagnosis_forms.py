"""Rules over 8-bit state, half precision, plans and own kernels; and how findings are told once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from diagnosis_steps import PARAMS, Run, one, rules

from inspector.codecs import CODECS, decode, encode
from inspector.coding_error import coded_once
from inspector.diagnosis.diagnosis import Diagnosis, step_findings
from inspector.diagnosis.facts import AfterStep, OwnDifference
from inspector.diagnosis.onsets import Onsets
from inspector.diagnosis.rules.eight_bit import largest_error
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Binding, Plan, Variant
from inspector.statistics import buffer_stats

EIGHT = (Param("a.weight", (64, 64)), Param("b.weight", (64, 64)), Param("norm", (64,)))


# --- 8-bit state


@pytest.mark.parametrize(
    ("codec", "share", "severity"),
    [("linear", 0.09, None), ("linear", 0.11, "info"), ("linear", 0.91, "warning"),
     ("dynamic", 0.04, None), ("dynamic", 0.06, "warning"), ("sqrt", 0.06, "warning")],
)  # fmt: skip
def test_v_that_rounded_to_0(codec: str, share: float, severity: str | None) -> None:
    run = Run(EIGHT, variant=Variant(kernel="8bit", codec=codec))  # type: ignore[arg-type]
    run.warm(500)
    run.v["b.weight"][: round(share * 4096)] = 0
    found = [f for f in step_findings(run.look(run.gradients())) if f.rule == "zeroed-second-moment"]
    assert [f.severity for f in found] == [severity] * (severity is not None)
    if found:
        assert (found[0].param, found[0].evidence["elements"]) == ("b.weight", round(share * 4096))


def test_a_block_with_an_outlier() -> None:
    """Of normal numbers the median is 0.67 of their spread: 300 spreads are 450 medians, 500 are 740. As many as a row
    that is in use has are no outliers."""
    for times, count, told in ((200, 1, []), (600, 1, ["block-outlier"]), (600, 64, [])):
        run = Run(EIGHT, variant=Variant(kernel="8bit"))
        run.warm(500)
        run.m["b.weight"][300 : 300 + count] = 1e-4 * times
        facts = run.look(run.gradients())
        coding = [coded_once(n, "linear", run.m[n], run.v[n]) for n in ("a.weight", "b.weight")]
        found = [f for f in step_findings(replace(facts, coding=coding)) if f.rule == "block-outlier"]
        assert rules(found) == told
        if told:
            assert (found[0].param, found[0].index, found[0].evidence["block"]) == ("b.weight", 256, 1)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("lane", ["m", "v"])
def test_the_largest_error_of_a_codec(codec: str, lane: str) -> None:
    """Over a fine grid of values of one block's scale no error is larger, and one comes near."""
    grid = np.linspace(0, 1, 256 * 400, dtype=np.float32).reshape(400, 256)
    grid[:, 0] = 1.0
    values = grid.reshape(-1)
    coded = encode(codec, lane, values)  # type: ignore[arg-type]
    back = decode(codec, lane, coded.codes, coded.scales, np.float64)[: values.size]  # type: ignore[arg-type]
    worst = float(np.abs(back - values).max())
    bound = largest_error(codec, lane)  # type: ignore[arg-type]
    assert 0.95 * bound < worst <= bound * (1 + 1e-5)


def test_an_error_of_coding_beyond_the_codec() -> None:
    run = Run(EIGHT, variant=Variant(kernel="8bit"))
    run.warm(500)
    facts = run.look({s.name: np.zeros(s.numel, np.float32) for s in run.layout})
    m, v = np.float32(0.9) * run.m["a.weight"], np.float32(0.999) * run.v["a.weight"]
    right = coded_once("a.weight", "linear", m, v)
    assert "coding-error-too-large" not in rules(step_findings(replace(facts, coding=[right])))
    off = replace(right, m=replace(right.m, largest=1.01 * float(np.abs(m).max()) / 254))
    found = one(step_findings(replace(facts, coding=[off])), "coding-error-too-large")
    assert (found.param, found.severity, found.evidence["lane"]) == ("a.weight", "error", "m")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1e-8, 1e-6, 1e-5, 1e-4])
def test_small_gradients_are_coded_no_worse_than_the_codec_can(codec: str, size: float) -> None:
    """v of gradients of 1e-5 is below 127 times 1e-12, the least scale of linear codes, and rounds to 0 by it."""
    run = Run(EIGHT, variant=Variant(kernel="8bit", codec=codec))  # type: ignore[arg-type]
    g = {s.name: run._normal(s.param, size) for s in run.layout}
    facts = run.look(g)
    run.update(g, facts)
    coding = [coded_once(n, codec, run.m[n], run.v[n]) for n in ("a.weight", "b.weight")]  # type: ignore[arg-type]
    assert "coding-error-too-large" not in rules(step_findings(replace(facts, coding=coding)))
    # Beyond half the least scale it is told.
    off = [replace(each, v=replace(each.v, largest=1e-6)) for each in coding]
    assert one(step_findings(replace(facts, coding=off)), "coding-error-too-large").evidence["lane"] == "v"


def test_state_that_is_not_of_the_type_asked_for() -> None:
    small = Run(PARAMS, variant=Variant(kernel="8bit"))
    assert one(small.go(), "wrong-state-type").evidence["least"] == 4096
    right = Run(EIGHT, variant=Variant(kernel="8bit"))
    facts = right.look(right.gradients())
    assert "wrong-state-type" not in rules(step_findings(facts))
    found = one(step_findings(replace(facts, variant=Variant())), "wrong-state-type")
    assert found.param == "a.weight"
    assert "kept in 8 bits" in found.message


def test_leaving_linear_codes_for_a_form_without_their_limit() -> None:
    for codec, told in (("linear", True), ("dynamic", False)):
        run = Run(EIGHT, variant=Variant(kernel="8bit", codec=codec))  # type: ignore[arg-type]
        run.warm(500)
        run.go()
        run.v["a.weight"][:10] = 0
        found = run.go(variant=Variant())
        assert ("left-linear-codes" in rules(found)) == told


# --- half precision


def test_weights_beyond_half_precision() -> None:
    for kernel in ("f16", "f32"):
        run = Run(variant=Variant(kernel=kernel))  # type: ignore[arg-type]
        run.w["b.weight"][5] = 70000.0
        found = rules(run.go())
        assert ("f16-overflow" in found) == (kernel == "f16")


def test_weights_that_half_precision_takes_for_0() -> None:
    """Five of 512 are below one percent, six are above."""
    for count, told in ((5, False), (6, True)):
        run = Run(hyper=Hyper(lr=1e-12, max_grad_norm=np.inf), variant=Variant(kernel="f16"))
        run.w["b.weight"][:count] = 1e-9
        assert ("f16-underflow" in rules(run.go())) == told


# --- plans


def changed(plan: Plan, dispatch: int, **changes: object) -> Plan:
    """The plan with something else in one of its dispatches."""
    dispatches = list(plan.dispatches)
    dispatches[dispatch] = replace(dispatches[dispatch], **changes)  # type: ignore[arg-type]
    return replace(plan, dispatches=tuple(dispatches))


def moved(bindings: tuple[Binding, ...], name: str, **changes: object) -> tuple[Binding, ...]:
    return tuple(replace(b, **changes) if b.name == name else b for b in bindings)  # type: ignore[arg-type]


def test_plans_as_they_are_made_are_sound() -> None:
    for form in (
        Variant(),
        Variant(dispatch="per-tensor"),
        Variant(dispatch="single", fused=False),
        Variant("adam-l2"),
    ):
        run = Run(variant=form)
        assert step_findings(run.look(run.gradients())) == []


def test_a_binding_that_is_not_aligned() -> None:
    run = Run()
    update = run.plan.dispatches[-1]
    plan = changed(run.plan, update.index, bindings=moved(update.bindings, "m", offset=128))
    found = one(step_findings(run.look(run.gradients(), plan=plan)), "misaligned-binding")
    assert (found.dispatch, found.evidence["offset"], found.evidence["align"]) == (update.index, 128, 256)


def test_bindings_that_overlap() -> None:
    run = Run()
    update = next(d for d in run.plan.dispatches if d.updates)
    m = next(b for b in update.bindings if b.name == "m")
    plan = changed(
        run.plan, update.index, bindings=moved(update.bindings, "v", buffer=m.buffer, offset=m.offset)
    )
    found = one(step_findings(run.look(run.gradients(), plan=plan)), "overlapping-bindings")
    assert found.dispatch == update.index
    twice = changed(run.plan, update.index + 1, elements=update.elements)
    told = rules(step_findings(run.look(run.gradients(), plan=twice)))
    assert told == ["overlapping-bindings", "unwritten-elements"]


def test_elements_that_no_dispatch_updates() -> None:
    run = Run()
    update = next(d for d in run.plan.dispatches if d.updates)
    plan = changed(run.plan, update.index, elements=(0, run.layout["b.weight"].offset + 500))
    found = one(step_findings(run.look(run.gradients(), plan=plan)), "unwritten-elements")
    assert (found.param, found.index, found.evidence["elements"]) == ("b.weight", 500, 12)


# --- what own kernels leave


def test_what_own_kernels_leave_behind() -> None:
    run = Run()
    facts = run.look(run.gradients())
    clean = AfterStep(buffer_stats(np.zeros(1088, np.float32)))
    assert step_findings(replace(facts, after=clean)) == []
    left = AfterStep(buffer_stats(np.float32([0.0] * 1085 + [1.0, np.nan, -2.0])), {"w": 3})
    found = step_findings(replace(facts, after=left))
    assert rules(found) == ["gradients-not-zeroed", "padding-not-zero"]
    assert found[0].evidence == {"elements": 3, "largest": 2.0}
    assert found[1].evidence == {"elements": 3, "w": 3}
    differs = OwnDifference("b.weight", "w", 33, 1.0, 0.5, 0.5, 0.1, "m̂")
    found = step_findings(replace(facts, after=replace(clean, differs=differs)))
    assert (found[0].rule, found[0].param, found[0].index) == ("own-kernel-differs", "b.weight", 33)
    assert "w of b.weight[1, 1] is 1 by your kernel and 0.5" in found[0].message
    assert "does not fit is m̂." in found[0].message
    near = replace(differs, own=0.32090002, built_in=0.32090005)
    found = step_findings(replace(facts, after=replace(clean, differs=near)))
    assert "is 0.32090002 by your kernel and 0.32090005 by" in found[0].message


# --- told once, and again


def told(pattern: str) -> str:
    """What is told of a condition that holds in the steps marked x: T where it is."""
    onsets = Onsets()
    out = ""
    for step, mark in enumerate(pattern, 1):
        hit = np.array([mark != "."])
        size = np.array([{"x": 1.0, "y": 9.0, "z": 10.0, "w": 99.0, "v": 100.0}.get(mark, 0.0)])
        out += "T" if onsets.look(step, (), hit, size).any() else "-"
    return out


def test_a_condition_is_told_when_it_begins_and_when_it_comes_back() -> None:
    assert told("..xxxx....x..") == "--T-------T--"


def test_one_that_comes_and_goes_is_told_less_and_less() -> None:
    assert told("x.x.x.x.x..x..x....x") == "T-T--------T-------T"


def test_one_that_is_ten_times_as_bad_is_told_again() -> None:
    assert told("xxyyzzwwvv") == "T---T---T-"


def test_the_finding_says_since_when() -> None:
    run = Run()
    g = run.gradients()
    g["a.weight"][0] = np.nan
    assert rules(run.go(3, g=g)) == ["nonfinite-gradient"]
    more = {k: v.copy() for k, v in g.items()}
    more["a.weight"][:10] = np.nan
    found = one(run.go(g=more), "nonfinite-gradient")
    assert found.evidence["since"] == 1
    assert "since step 1" in found.message
    assert [(o.rule, o.param, o.since, o.last_seen) for o in run.diagnosis.ongoing()] == [
        ("nonfinite-gradient", "a.weight", 1, 4)
    ]


def test_errors_come_first() -> None:
    run = Run(hyper=Hyper(beta1=0.9, beta2=0.5, max_grad_norm=np.inf))
    g = run.gradients()
    g["a.weight"][0] = np.nan
    found = run.go(g=g)
    assert rules(found) == ["nonfinite-gradient", "unstable-betas"]


# --- back and forth


def test_going_back_and_on_again_finds_the_same() -> None:
    """400 steps with faults, with ways back of 1 to 250 steps in between: every step says what it said before."""
    run = Run()
    steps = []
    for t in range(1, 401):
        g = run.gradients(1e-3 * (100 if t in (150, 260) else 1))
        if t % 50 < 3:
            g["b.weight"][t % 512] = np.nan
        if t > 200:
            g["c.weight"][:] = 0
        facts = run.look(g, loss=3.0 + 4 * (t == 300) + 0.01 * (t % 7))
        steps.append(facts)
        run.update(g, facts)
    straight = Diagnosis()
    wanted = [straight.observe(facts) for facts in steps]
    assert len({f.rule for found in wanted for f in found}) >= 5
    again = Diagnosis()
    rng = np.random.default_rng(0)
    at = 0
    for _ in range(40):
        ahead = min(at + int(rng.integers(1, 60)), 400)
        for i in range(at, ahead):
            assert again.observe(steps[i]) == wanted[i], i + 1
        at = max(ahead - int(rng.integers(0, 250)), 0) if ahead == 400 or rng.random() < 0.3 else ahead
        if rng.random() < 0.5:
            again.truncate(at)
    assert at > 0


def test_what_is_usual_is_of_the_last_128_steps() -> None:
    from inspector.diagnosis.memory import Memory

    run, memory, norms = Run(), Memory({}), []
    for t in range(1, 201):
        g = run.gradients(1e-3 * (1 + t % 5))
        facts = run.look(g)
        memory.take(facts)
        run.update(g, facts)
        norms.append([float(np.linalg.norm(g[s.name].astype(np.float64))) for s in run.layout])
    # Those before the step that is judged.
    assert memory.log2_norms() == pytest.approx(np.log2(norms[71:199]), abs=2e-5)
    assert memory.log2_norms(np.array([False, True, False, False]), 8) == pytest.approx(
        np.log2(norms[191:199])[:, 1:2], abs=2e-5
    )
    # Gone back, nothing is judged yet: all that is known lies before.
    assert memory.truncate(150)
    assert memory.log2_norms() == pytest.approx(np.log2(norms[22:150]), abs=2e-5)


def test_a_step_may_be_looked_at_again_with_more_known() -> None:
    run = Run()
    run.go(50)
    g = run.gradients()
    g["b.weight"] *= 100
    facts = run.look(g)
    early = run.diagnosis.observe(replace(facts, grad_norm=None, clip_scale=None, table=None))
    assert early == []
    late = run.diagnosis.observe(facts)
    assert rules(late) == ["gradient-spike", "param-gradient-spike"]
    assert run.diagnosis.observe(facts) == late


def test_what_came_before_a_later_start_is_asked_for() -> None:
    """The steps before are looked at for what is usual, and what they show is not told."""
    run = Run()
    steps = {}
    for t in range(1, 81):
        g = run.gradients()
        g["a.weight"][0] = np.nan
        if t == 80:
            g["b.weight"] *= 100
        steps[t] = run.look(g)
        run.update(g, steps[t])
    alone = Diagnosis()
    assert rules(alone.observe(steps[80])) == ["nonfinite-gradient"]
    knowing = Diagnosis(steps.get)
    assert rules(knowing.observe(steps[80])) == ["gradient-spike", "param-gradient-spike"]
