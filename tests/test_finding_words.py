"""Findings in words: evidence with units, plain text, grouped by cause, filtered."""

from __future__ import annotations

from inspector.finding_words import Filter, FindingGroups, as_text, cause, evidence_rows, place
from inspector.findings import Finding


def finding(rule: str = "r", step: int = 1, **changes: object) -> Finding:
    settings = {"rule": rule, "severity": "info", "step": step, "message": "m", "advice": "", **changes}
    return Finding(**settings)  # type: ignore[arg-type]


def test_text_has_all_of_a_finding() -> None:
    one = finding(
        "nonfinite-gradient", 1200, severity="error", message="3 are NaN.", advice="Look.", dispatch=0,
        param="h.0.w", index=1234, evidence={"nan": 3, "share": 0.25, "lane": "g"}, source="exact",
    )  # fmt: skip
    assert as_text(one).splitlines() == [
        "error: 3 are NaN.",
        "  step 1,200 · gradients · h.0.w[1234] · rule nonfinite-gradient",
        "  nan = 3 elements",
        "  share = 0.25 of 1",
        "  lane = g",
        "  Advice: Look.",
        "  Threshold: exact",
    ]
    assert place(finding(dispatch=2)) == "step 1 · dispatch 2"
    assert cause("nonfinite-gradient") == "Non-finite gradient"


def test_figures_of_evidence() -> None:
    rows = evidence_rows(
        finding(evidence={"grad_norm": float("inf"), "loss": float("nan"), "z": 7.25, "x": 1e-9})
    )
    assert rows == (
        ("grad norm", "Infinity", ""),
        ("loss", "NaN", "nats"),
        ("z", "7.25", "standard deviations"),
        ("x", "1e−9", ""),
    )


def test_groups_keep_the_worst_the_first_and_each_param_once() -> None:
    groups = FindingGroups(
        [
            finding("b", 3, param="x"),
            finding("a", 4, severity="warning"),
            finding("b", 5, severity="error", param="y"),
            finding("b", 6, severity="info", param="x"),
        ]
    )
    b, a = groups.groups
    assert (b.rule, b.first_step, b.last_step, len(b.findings), b.severity) == ("b", 3, 6, 3, "error")
    assert (b.params, a.severity, a.params) == (("x", "y"), "warning", ())
    groups.add(finding("c", 7))
    assert [g.rule for g in groups.groups] == ["b", "a", "c"]
    assert groups.group_of("c") == 2


def test_many_params_are_counted() -> None:
    (group,) = FindingGroups(finding(param=f"p{i}") for i in range(10)).groups
    assert group.params_text == "p0, p1, p2 and 7 more"


def test_a_filter_takes_words_in_any_order_and_a_severity() -> None:
    some = (
        finding("norm-overflow", 1, severity="error", message="Too large", param="h.0.attn"),
        finding("norm-spike", 2, severity="warning", param="h.1.ffn"),
        finding("warmup", 3),
    )
    assert Filter().of(some) == some
    assert Filter("warning").of(some) == some[:2]
    assert Filter("error").of(some) == some[:1]
    assert Filter("info", "NORM").of(some) == some[:2]
    assert Filter("info", "ffn spike").of(some) == some[1:2]
    assert Filter("error", "spike").of(some) == ()
