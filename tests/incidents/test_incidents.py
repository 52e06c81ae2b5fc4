"""Each planted fault is named right at the first step where the numbers allow it; healthy runs stay without alarm."""

from __future__ import annotations

from pathlib import Path

import pytest
from incidents.incident import Incident, run_incident
from incidents.suite import INCIDENTS

from inspector.gpu.device import Gpu

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.name)
def test_a_planted_fault_is_named(gpu: Gpu, incident: Incident, tmp_path: Path) -> None:
    outcome = run_incident(gpu, incident, tmp_path)
    told = "\n".join(f"{f.step} {f.severity} {f.rule} {f.param}: {f.message}" for f in outcome.findings)
    assert not outcome.wrong, f"{outcome.wrong}; found:\n{told}"
    assert not outcome.false_alarms, f"false alarms among:\n{told}"
