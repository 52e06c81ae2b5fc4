"""Rules over hand-made numbers: what each finds, with which evidence, and where it stays silent."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from inspector.diagnosis.diagnosis import step_findings
from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.findings import Finding
from inspector.diagnosis.rules import multi_index
from inspector.diagnosis.rules.rule import are, weights_of
from inspector.hyper import Hyper
from inspector.layout import Param, make_layout
from inspector.statistics import buffer_stats

LAYOUT = make_layout([Param("h.0.weight", (3, 40)), Param("h.0.norm", (40,))])


def facts(g: list[float] | None = None, **changes: object) -> StepFacts:
    """A healthy step, but for what is given; `g` are gradients from the start of the mega-buffer."""
    values = np.float32([0.5, -0.25] if g is None else g)
    healthy = StepFacts(7, LAYOUT, Hyper(), buffer_stats(values), grad_norm=0.56, clip_scale=1.0, loss=2.3)
    return replace(healthy, **changes)  # type: ignore[arg-type]


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1
    assert found[0].step == 7
    assert found[0].message
    assert found[0].advice.endswith(".")
    return found[0]


def test_a_healthy_step_has_no_findings() -> None:
    assert step_findings(facts()) == []
    assert step_findings(facts([0.0] * 8, grad_norm=0.0)) == []
    assert step_findings(facts(hyper=Hyper(max_grad_norm=math.inf))) == []
    assert step_findings(facts(grad_norm=None, clip_scale=None, loss=None)) == []


def test_a_gradient_that_is_not_finite_is_found_by_param_and_element() -> None:
    """pytorch/pytorch#46849."""
    g = [0.0] * 128 + [0.0, 1.0, math.nan, math.inf, -math.inf, math.nan]
    found = only(step_findings(facts(g)))
    assert (found.rule, found.severity, found.param, found.index) == (
        "nonfinite-gradient",
        "error",
        "h.0.norm",
        2,
    )
    assert found.evidence == {"nan": 2, "posinf": 1, "neginf": 1, "elements": 134, "share": 4 / 134}
    assert "4 of 134" in found.message
    assert "h.0.norm[2]" in found.message


def test_the_element_is_told_in_the_shape_of_its_param() -> None:
    found = only(step_findings(facts([0.0] * 83 + [math.nan])))
    assert (found.param, found.index) == ("h.0.weight", 83)
    assert "h.0.weight[2, 3]" in found.message


def test_an_infinite_norm_of_finite_gradients_is_an_overflow() -> None:
    found = only(step_findings(facts([1e20], grad_norm=math.inf, clip_scale=0.0)))
    assert (found.rule, found.severity) == ("norm-overflow", "error")
    assert found.evidence["largest_gradient"] == pytest.approx(1e20, rel=1e-7)
    assert "1e20" in found.message


def test_a_norm_of_zero_with_gradients_is_an_underflow() -> None:
    """gpuweb/gpuweb#349."""
    found = only(step_findings(facts([1e-25, -1e-26], grad_norm=0.0)))
    assert (found.rule, found.severity) == ("norm-underflow", "warning")
    assert found.evidence["largest_gradient"] == pytest.approx(1e-25, rel=1e-6)


@pytest.mark.parametrize(
    ("limit", "words"),
    [(0.0, "every update is 0"), (-1.0, "change their sign"), (math.nan, "undefined")],
)
def test_a_clip_limit_that_cannot_be_meant_is_an_error(limit: float, words: str) -> None:
    """strands-labs/robots PR#2028, huggingface/open-r1#609."""
    found = only(step_findings(facts(hyper=Hyper(max_grad_norm=limit), clip_scale=limit / 0.56)))
    assert (found.rule, found.severity) == ("invalid-max-grad-norm", "error")
    assert words in found.message


def test_decay_on_vectors_is_found_unless_there_is_no_decay() -> None:
    """ServiceNow/Fast-LLM#542."""
    wrong = make_layout([Param("w", (2, 2)), Param("norm.weight", (2,), decay=True), Param("s", (), True)])
    found = only(step_findings(facts(layout=wrong)))
    assert (found.rule, found.severity, found.param) == (
        "decay-on-norm-or-bias",
        "warning",
        "norm.weight",
    )
    assert found.evidence == {"params": 2, "weight_decay": 0.01}
    assert step_findings(facts(layout=wrong, hyper=Hyper(weight_decay=0.0))) == []


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_an_error(loss: float) -> None:
    found = only(step_findings(facts(loss=loss)))
    assert (found.rule, found.severity) == ("nonfinite-loss", "error")


def test_moments_before_step_1_mean_a_lost_counter() -> None:
    """allenai/OLMo-core PR#317: β₂ = 0.95 makes step 1 take v for 20 times what it is."""
    found = step_findings(facts(step=1, initial_moments=True, hyper=Hyper(beta2=0.95)))
    assert [f.rule for f in found] == ["step-counter-reset"]
    assert "for 20" in found[0].message
    assert step_findings(facts(initial_moments=True)) == []
    assert step_findings(facts(step=1, initial_moments=False)) == []
    odd = step_findings(facts(step=1, initial_moments=True, hyper=Hyper(beta2=1.0)))
    assert [f.rule for f in odd] == ["invalid-setting", "step-counter-reset"]
    assert "infinitely" in odd[1].message


def test_several_faults_are_told_in_the_order_of_the_rules() -> None:
    found = step_findings(
        facts(
            [math.nan, 1e30],
            step=1,
            grad_norm=math.inf,
            clip_scale=0.0,
            loss=math.nan,
            hyper=Hyper(max_grad_norm=0),
            initial_moments=True,
        )
    )
    names = [f.rule for f in found]
    assert names == [
        "nonfinite-loss",
        "nonfinite-gradient",
        "norm-overflow",
        "invalid-max-grad-norm",
        "step-counter-reset",
    ]


@pytest.mark.parametrize(
    ("index", "shape", "text"),
    [(0, (), "[]"), (5, (8,), "[5]"), (83, (3, 40), "[2, 3]"), (7, (2, 2, 2), "[1, 1, 1]")],
)
def test_a_flat_index_is_written_as_people_write_it(index: int, shape: tuple[int, ...], text: str) -> None:
    assert multi_index(index, shape) == text


@pytest.mark.parametrize(
    ("lane", "words"), [("w", "weights"), ("m", "first moments"), ("v", "second moments")]
)
def test_a_state_that_is_not_finite_is_told_with_its_place(lane: str, words: str) -> None:
    values = np.float32([1.0] * 128 + [1.0, math.nan, -math.inf])
    found = only(step_findings(facts(initial_state={lane: buffer_stats(values)})))
    assert (found.rule, found.severity, found.param, found.index) == (
        "nonfinite-state",
        "error",
        "h.0.norm",
        1,
    )
    assert found.evidence == {"lane": lane, "nan": 1, "posinf": 0, "neginf": 1, "elements": 131}
    assert f"2 of 131 {words}" in found.message
    assert "h.0.norm[1]" in found.message
    healthy = np.float32([0.0, 1.0, -1.0])
    assert step_findings(facts(initial_state={lane: buffer_stats(healthy)})) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("lr", -1.0), ("lr", math.nan), ("beta1", 1.0), ("beta2", 2.0), ("beta2", -0.1), ("eps", -1e-8),
     ("weight_decay", math.inf)],
)  # fmt: skip
def test_a_setting_that_adamw_is_not_defined_for_is_told(name: str, value: float) -> None:
    found = only(step_findings(facts(hyper=replace(Hyper(), **{name: value}))))
    assert (found.rule, found.severity) == ("invalid-setting", "warning")
    assert found.message.startswith(f"{name} ")
    assert list(found.evidence) == [name]


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1 weight of b is"), (2, "2 weights of b are"), (1200, "1,200 weights of b are")]
)
def test_one_is_told_as_one(count: int, text: str) -> None:
    assert f"{weights_of(count, 'b')} {are(count)}" == text
