"""Conditions: read from text and written back, refused in one sentence, judged by numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.coding_error import coded_once
from inspector.diagnosis.findings import Finding
from inspector.diagnosis.metrics import METRICS
from inspector.diagnosis.rules import RULE_NAMES, RULES
from inspector.diagnosis.stopping import Stopping, parse_breakpoint
from inspector.diagnosis.watchpoints import (
    OPERATORS,
    Condition,
    Moment,
    Verdict,
    check_params,
    judge,
    parse_condition,
)
from inspector.errors import UsageError
from inspector.hyper import Hyper
from inspector.layout import Param, make_layout
from inspector.param_statistics import ParamTable, param_stats
from inspector.statistics import buffer_stats

PARAMS = [Param("h.0.attn.w", (4, 3)), Param("h.0.norm", (3,)), Param("empty", (0, 2)), Param("tiny", (1,))]
LAYOUT = make_layout(PARAMS)
NAMES = [s.name for s in LAYOUT.segments]
globs = st.text(st.sampled_from("abh01.*?_[]<>="), min_size=1).map(str.strip).filter(bool)


@st.composite
def conditions(draw: Callable[..., Any]) -> Condition:
    glob = draw(st.none() | globs)
    if draw(st.booleans()):
        return Condition(rule=draw(st.sampled_from(RULE_NAMES)), glob=glob)
    metric = draw(st.sampled_from(list(METRICS.values())))
    number = draw(st.floats(allow_nan=False) | st.integers(-(10**9), 10**9).map(float))
    op = draw(st.sampled_from(list(OPERATORS)))
    return Condition(metric.name, op, number, glob if metric.each is not None else None)


@given(conditions())
def test_what_a_condition_is_written_as_reads_back_as_it(condition: Condition) -> None:
    assert parse_condition(str(condition)) == condition


@given(conditions(), st.booleans(), st.integers(1, 10**6))
def test_when_it_stops_is_written_behind_the_condition(condition: Condition, once: bool, hit: int) -> None:
    stopping = Stopping(once, hit)
    assert parse_breakpoint(f"{condition}{stopping}") == (condition, stopping)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("nan > 0", Stopping()),
        ("nan > 0,once", Stopping(once=True)),
        ("finding:loss-spike , once , hit 4", Stopping(once=True, hit=4)),
        ("w_max@a,once > 1, hit  2", Stopping(hit=2)),
    ],
)
def test_spellings_of_when_it_stops(text: str, means: Stopping) -> None:
    assert parse_breakpoint(text)[1] == means


@pytest.mark.parametrize(
    "text",
    [
        "nan > 0, twice",
        "nan > 0, hit 0",
        "nan > 0, hit -1",
        "nan > 0, hit",
        ", once",
        "nan > 0, hit 2, hit 3",
    ],
)
def test_any_other_ending_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_breakpoint(text)
    assert "\n" not in str(error.value)


@given(conditions(), st.sampled_from(["", " ", "  "]))
def test_the_glob_may_stand_at_the_end_and_spaces_where_they_like(condition: Condition, space: str) -> None:
    if condition.rule is not None:
        glob = "" if condition.glob is None else f"{space}@{space}{condition.glob}"
        assert parse_condition(f" finding{space}:{space}{condition.rule}{glob} ") == condition
        return
    number = str(condition).rsplit(" ", 1)[1]
    at_end = "" if condition.glob is None else f"{space}@{space}{condition.glob}"
    assert parse_condition(f"{condition.metric}{space}{condition.op}{space}{number}{at_end}") == condition
    before = "" if condition.glob is None else f"{space}@{space}{condition.glob}"
    assert parse_condition(f"{condition.metric}{before} {condition.op}{space}{number}") == condition


@given(st.text())
def test_any_other_text_is_refused_in_one_sentence(text: str) -> None:
    told = ""
    try:
        condition = parse_condition(text)
    except UsageError as error:
        told = str(error)
    else:
        assert parse_condition(str(condition)) == condition
    assert not told or told[-1] in ".?"


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("nonfinite>0", Condition("nonfinite", ">", 0.0)),
        ("clipScale < .1", Condition("clip_scale", "<", 0.1)),
        ("gradNorm≥1e3", Condition("grad_norm", ">=", 1000.0)),
        ("loss = 2", Condition("loss", "==", 2.0)),
        ("grad_norm == inf", Condition("grad_norm", "==", math.inf)),
        ("loss < -Infinity", Condition("loss", "<", -math.inf)),
        ("update_ratio@*.attn.* > 0.01", Condition("update_ratio", ">", 0.01, "*.attn.*")),
        ("update_ratio > 0.01 @*.attn.*", Condition("update_ratio", ">", 0.01, "*.attn.*")),
        ("w_norm@a>b > 5", Condition("w_norm", ">", 5.0, "a>b")),
        ("finding:norm-overflow", Condition(rule="norm-overflow")),
    ],
)  # fmt: skip
def test_spellings(text: str, means: Condition) -> None:
    assert parse_condition(text) == means


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "write METRIC OP NUMBER"),
        ("nonfinite", "write METRIC OP NUMBER"),
        ("nonfinite > 0 > 1", "write METRIC OP NUMBER"),
        ("update_ratoi > 1", "did you mean update_ratio"),
        ("zebra > 1", "there are step, lr, loss"),
        ("lr > fast", "'fast' in 'lr > fast' is no number"),
        ("lr > 1_0", "is no number"),
        ("loss == nan", "finding:nonfinite-loss"),
        ("lr@h.* > 1", "belongs to the whole step"),
        ("w_norm@a > 1 @b", "names params twice"),
        ("finding:norm-overflo", "did you mean norm-overflow"),
        ("finding:", "there are misaligned-binding"),
    ],
)
def test_what_is_wrong_is_said_with_what_was_meant(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=r"^[^\n]+$") as caught:
        parse_condition(text)
    assert told in str(caught.value)


def test_a_glob_has_to_match_a_param() -> None:
    check_params(parse_condition("w_norm@h.0.* > 0"), NAMES)
    check_params(parse_condition("w_norm > 0"), NAMES)
    check_params(parse_condition("w_norm@a[0] > 0"), ["a[0]"])
    with pytest.raises(UsageError, match=r"No param matches 'h\.\*\.atn\.\*' .*did you mean h\.0\.attn\.w"):
        check_params(parse_condition("w_norm@h.*.atn.* > 0"), NAMES)
    with pytest.raises(UsageError, match=r"there are h\.0\.attn\.w"):
        check_params(parse_condition("w_norm@zzz > 0"), NAMES)


def test_every_rule_can_be_broken_on() -> None:
    assert len(set(RULE_NAMES)) == len(RULES)
    for rule in RULE_NAMES:
        assert parse_condition(f"finding:{rule}").rule == rule


# --- judging


def moment(gradients: dict[str, np.ndarray] | None = None, **known: Any) -> Moment:
    """The gradients given, 1 elsewhere; NaN in every gap of the buffer, which no count may take in."""
    lane = np.full(LAYOUT.padded_elements, np.nan, np.float32)
    for s in LAYOUT.segments:
        lane[s.offset : s.stop] = (gradients or {}).get(s.name, np.ones(s.numel, np.float32)).reshape(-1)
    parts = [buffer_stats(lane[s.offset : s.stop], start=s.offset) for s in LAYOUT.segments]
    kinds = replace(
        parts[0].nonfinite,
        nan=sum(p.nonfinite.nan for p in parts),
        posinf=sum(p.nonfinite.posinf for p in parts),
        neginf=sum(p.nonfinite.neginf for p in parts),
        first=min((p.nonfinite.first for p in parts if p.nonfinite.first is not None), default=None),
    )
    counts = replace(
        parts[0], count=LAYOUT.elements, zeros=sum(p.zeros for p in parts), nonfinite=kinds,
        max_abs=max(p.max_abs for p in parts),
    )  # fmt: skip
    asked: list[str] = []

    def count(name: str) -> Any:
        asked.append(name)
        s = LAYOUT[name]
        return buffer_stats(lane[s.offset : s.stop], start=s.offset)

    facts: dict[str, Any] = {"lr": 1e-3, "loss": None, **known}
    made = Moment(LAYOUT, 7, counts=counts, count=count, read=lambda a, n: lane[a : a + n], **facts)
    object.__setattr__(made, "asked", asked)
    return made


def told(text: str, at: Moment) -> Verdict | None:
    condition = parse_condition(text)
    return judge(condition, at, [i for i in condition.matches(NAMES) if LAYOUT.segments[i].numel])


def planted(name: str, *places: tuple[int, float]) -> dict[str, np.ndarray]:
    values = np.ones(LAYOUT[name].numel, np.float32)
    for index, value in places:
        values[index] = value
    return {name: values}


def test_numbers_of_the_step_are_judged_once_they_are_known() -> None:
    at = moment(loss=2.5)
    assert told("loss > 2", at) == Verdict(True, 2.5)
    assert told("loss > 2.5", at) == Verdict(False, 2.5)
    assert told("step == 7", at) == Verdict(True, 7.0)
    assert told("lr < 0.001", at) == Verdict(False, 1e-3)
    assert told("grad_norm > 0", at) is None
    assert told("clip_scale < 1", at) is None
    assert told("w_norm > 0", at) is None
    assert told("w_norm@tiny > 0", at) is None
    assert told("m_error > 0", at) is None
    assert told("loss > 2", moment()) is None
    assert told("nonfinite > 0", replace(moment(), counts=None)) is None


def test_what_a_kernel_wrote_is_held_against_the_float32_of_the_number() -> None:
    at = moment(grad_norm=float(np.float32(0.1)), clip_scale=float(np.float32(0.1)))
    assert told("grad_norm == 0.1", at) == Verdict(True, float(np.float32(0.1)))
    assert told("clip_scale > 0.1", at) == Verdict(False, float(np.float32(0.1)))
    assert told("clip_scale < 1e300", at) is not None


def test_nan_satisfies_not_equal_and_nothing_else() -> None:
    at = moment(loss=math.nan)
    for op in OPERATORS:
        verdict = told(f"loss {op} 2", at)
        assert verdict is not None
        assert verdict.holds == (op == "!=")


@pytest.mark.parametrize("name", ["h.0.attn.w", "h.0.norm", "tiny"])
@pytest.mark.parametrize("where", ["first", "middle", "last"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_first_element_of_a_kind_is_named_wherever_it_is(name: str, where: str, value: float) -> None:
    numel = LAYOUT[name].numel
    index = {"first": 0, "middle": numel // 2, "last": numel - 1}[where]
    at = moment(planted(name, (index, value)))
    kind = "nan" if math.isnan(value) else "posinf" if value > 0 else "neginf"
    for metric in ("nonfinite", kind):
        assert told(f"{metric} > 0", at) == Verdict(True, 1.0, name, index)
        assert told(f"{metric}@{name} > 0", at) == Verdict(True, 1.0, name, index)
        assert told(f"{metric}@* >= 1", at) == Verdict(True, 1.0, name, index)
    for other in {"nan", "posinf", "neginf"} - {kind}:
        assert told(f"{other} > 0", at) == Verdict(False, 0.0)
        assert told(f"{other} == 0", at) == Verdict(True, 0.0)


def test_of_several_kinds_the_first_of_the_one_asked_for_is_named() -> None:
    at = moment(planted("h.0.attn.w", (2, math.inf), (5, math.nan), (9, -math.inf)))
    assert told("nonfinite > 2", at) == Verdict(True, 3.0, "h.0.attn.w", 2)
    assert told("nan > 0", at) == Verdict(True, 1.0, "h.0.attn.w", 5)
    assert told("neginf@h.* > 0", at) == Verdict(True, 1.0, "h.0.attn.w", 9)


def test_padding_counts_for_nothing_and_finite_gradients_ask_the_device_nothing() -> None:
    at = moment()
    assert told("nonfinite > 0", at) == Verdict(False, 0.0)
    assert told("nan@* > 0", at) == Verdict(False, 0.0)
    assert at.asked == []  # type: ignore[attr-defined]
    verdict = told("nonfinite@* == 0", at)
    assert verdict is not None
    assert (verdict.holds, verdict.value) == (True, 0.0)
    bad = moment(planted("tiny", (0, math.nan)))
    assert told("nan@h.* > 0", bad) == Verdict(False)
    first = LAYOUT["tiny"].offset
    before = [s.name for s in LAYOUT.segments if s.stop <= first]
    assert not set(bad.asked) & set(before)  # type: ignore[attr-defined]


def full(**changes: Any) -> Moment:
    """Statistics by numpy of two steps' worth of state; the norms below are worked out by hand."""
    lanes = {
        "h.0.attn.w": {"w": np.full(12, 2.0), "g": np.full(12, 0.5), "m": np.zeros(12), "v": np.zeros(12)},
        "h.0.norm": {"w": np.zeros(3), "g": np.array([3.0, 0, 4.0]), "m": np.zeros(3), "v": np.zeros(3)},
        "empty": {lane: np.zeros(0) for lane in "wgmv"},
        "tiny": {"w": np.array([np.nan]), "g": np.array([0.0]), "m": np.zeros(1), "v": np.zeros(1)},
    }
    table = ParamTable.of(
        param_stats(
            s.name, s.block, {k: v.astype(np.float32) for k, v in lanes[s.name].items()}, clip_scale=1.0,  # type: ignore[misc]
            hyper=Hyper(lr=0.1, weight_decay=0.0, eps=1e-8), step=1, start=s.offset,
        )
        for s in LAYOUT.segments
    )  # fmt: skip
    return moment(table=table, whole=table.merged("all"), **changes)


def test_figures_of_params_are_judged_param_by_param_and_over_all() -> None:
    at = full()
    assert told("grad_norm@h.0.norm > 4.9", at) == Verdict(True, 5.0, "h.0.norm")
    assert told("grad_norm@h.0.norm > 5", at) == Verdict(False, 5.0)
    # √12 · 0.5 = 1.732 and 5: the one furthest beyond is named, and how many there are.
    assert told("grad_norm@h.* > 1", at) == Verdict(True, 5.0, "h.0.norm", None, 2)
    below = told("grad_norm@h.* < 9", at)
    assert below is not None
    assert (below.param, below.value) == ("h.0.attn.w", pytest.approx(math.sqrt(3)))
    # All weights that are finite: √(12 · 4) = 6.928.
    assert told("w_norm > 6.9", at) == Verdict(True, pytest.approx(math.sqrt(48)))
    assert told("w_nonfinite > 0", at) == Verdict(True, 1.0, "tiny", 0)
    assert told("w_nonfinite@h.* > 0", at) == Verdict(False)
    assert told("grad_zeros@h.0.norm == 1", at) == Verdict(True, 1.0, "h.0.norm")
    assert told("grad_max@* >= 4", at) == Verdict(True, 4.0, "h.0.norm")


def test_the_first_update_of_adam_is_one_learning_rate_and_its_ratio_follows() -> None:
    """At step 1 from m = v = 0, m̂/√v̂ is the sign of g: each update is lr, and √12·0.1 / √48 = 0.05."""
    at = full()
    ratio = told("update_ratio@*.attn.* > 0.049", at)
    assert ratio is not None
    assert (ratio.holds, ratio.param, ratio.value) == (True, "h.0.attn.w", pytest.approx(0.05, rel=1e-5))
    assert told("update_ratio@*.attn.* > 0.051", at) == Verdict(False, pytest.approx(0.05, rel=1e-5))
    largest = told("update_max@h.0.attn.w > 0.9", at)
    assert largest is not None
    assert (largest.param, largest.value) == ("h.0.attn.w", pytest.approx(1.0, rel=1e-5))
    # Where all weights are 0 the ratio is no number.
    ratio = told("update_ratio@h.0.norm > 0", at)
    assert ratio is not None
    assert not ratio.holds
    assert told("update_ratio@h.0.norm != 0", at).holds  # type: ignore[union-attr]


def test_errors_of_coding_are_judged_where_there_are_codes() -> None:
    m, v = np.array([1.0, 0.5], np.float32), np.array([1.0, 1e-9], np.float32)
    error = coded_once("h.0.norm", "linear", m, v)
    at = moment(coding=(error,))
    # The second v is 1e-9 of the scale: linear codes make it 0 under an m that is not.
    assert told("v_zeroed > 0", at) == Verdict(True, 1.0)
    assert told("v_zeroed@h.* >= 1", at) == Verdict(True, 1.0, "h.0.norm")
    assert told("v_zeroed@tiny > 0", at) == Verdict(False)
    assert told("m_error > 0.01", at) == Verdict(False, pytest.approx(error.m.relative))


def test_a_finding_is_one_of_the_rule_and_of_the_param() -> None:
    found = Finding("nonfinite-gradient", "error", 7, "m", "a", param="h.0.norm", index=2)
    at = moment(findings=(found,))
    assert told("finding:nonfinite-gradient", at) == Verdict(True, None, "h.0.norm", 2, finding=found)
    assert told("finding:nonfinite-gradient@h.*", at) == Verdict(True, None, "h.0.norm", 2, finding=found)
    assert told("finding:nonfinite-gradient@tiny", at) == Verdict(False)
    assert told("finding:norm-overflow", at) == Verdict(False)


def test_a_glob_of_rules_stands_for_their_warnings_and_errors() -> None:
    note = Finding("lagging-second-moment", "info", 7, "m", "a", param="tiny")
    found = Finding("gradient-spike", "warning", 7, "m", "a")
    at = moment(findings=(note, found))
    assert told("finding:*", at) == told("finding:*-spike", at) == Verdict(True, finding=found)
    assert told("finding:lagging-second-moment", at) == Verdict(True, param="tiny", finding=note)
    assert told("finding:lagging*", at) == told("finding:nonfinite-*", at) == Verdict(False)
    assert told("finding:*@tiny", at) == Verdict(False)
    # They see as much as is counted anyway, and need no 8-bit state.
    condition = parse_condition("finding:*")
    assert (condition.needs, condition.needs_coding, condition.known) == ("light", False, "finalize")
    assert str(parse_condition("finding:loss-?pike@a")) == "finding:loss-?pike@a"
    with pytest.raises(UsageError, match="There is no rule"):
        parse_condition("finding:nothing-*")
