"""What a finding is: something wrong with a step, with the numbers that show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`step` counts from 1; `dispatch` is the index in the plan; `index` an element of `param`, flat."""

    rule: str
    severity: Severity
    step: int
    message: str
    advice: str
    dispatch: int | None = None
    param: str | None = None
    index: int | None = None
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)
    source: str = ""
    """Where the threshold comes from: a paper, a library's default, or what was measured on healthy runs."""
