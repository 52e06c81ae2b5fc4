"""Each planted fault is named right at the first step where the numbers allow it; healthy runs stay without alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

from incidents.healthy import HEALTHY, LONG
from incidents.incident import ALARMING, Healthy, Incident, run_healthy, run_incident
from incidents.suite import INCIDENTS
from inspector.gpu.device import Gpu

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.name)
def test_a_planted_fault_is_named(gpu: Gpu, incident: Incident, tmp_path: Path) -> None:
    outcome = run_incident(gpu, incident, tmp_path)
    told = "\n".join(f"{f.step} {f.severity} {f.rule} {f.param}: {f.message}" for f in outcome.findings)
    assert not outcome.wrong, f"{outcome.wrong}; found:\n{told}"
    assert not outcome.false_alarms, f"false alarms among:\n{told}"


@pytest.mark.parametrize("healthy", HEALTHY, ids=lambda healthy: healthy.name)
def test_a_healthy_run_gives_no_alarm(gpu: Gpu, healthy: Healthy, tmp_path: Path) -> None:
    found = run_healthy(gpu, healthy, tmp_path)
    assert [(f.step, f.rule, f.message) for f in found if f.severity in ALARMING] == []


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("healthy", LONG, ids=lambda healthy: healthy.name)
def test_a_long_healthy_run_gives_no_alarm(gpu: Gpu, healthy: Healthy, tmp_path: Path) -> None:
    test_a_healthy_run_gives_no_alarm(gpu, healthy, tmp_path)


def test_the_suite_is_as_large_as_it_should_be() -> None:
    """At least 40 incidents and 10 healthy runs, each of a name of its own."""
    assert len(INCIDENTS) >= 40
    assert len(HEALTHY) >= 10
    names = [each.name for each in (*INCIDENTS, *HEALTHY, *LONG)]
    assert len(set(names)) == len(names)
