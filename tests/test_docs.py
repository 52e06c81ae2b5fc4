"""The documents name what is there: every module in ARCHITECTURE.md, every command and rule in the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inspector.cli import COMMANDS
from inspector.diagnosis.metrics import METRICS
from inspector.diagnosis.rules import RULES, Rule
from inspector.optimizers import OPTIMIZERS
from inspector.optimizers.definition import Optimizer

ROOT = Path(__file__).parent.parent
MODULES = [
    path.relative_to(ROOT / "inspector")
    for path in sorted((ROOT / "inspector").rglob("*.py"))
    if path.name not in ("__init__.py", "__main__.py") and "optimizers" not in path.parts
]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_module_has_its_line_in_the_architecture(module: Path) -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert re.search(rf"`[^`]*\b{re.escape(module.name)}\b[^`]*`", text), f"{module} has no line"


def test_every_module_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([\w/]+\.py)`", text, re.MULTILINE)
    assert named
    assert [name for name in named if not (ROOT / "inspector" / name).exists()] == []


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "window"])
def test_every_command_is_in_the_readme(command: str) -> None:
    assert f"inspector {command}" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_is_in_the_readme(rule: Rule) -> None:
    level = {"light": "", "full": " full"}[rule.needs]
    row = f"| `{rule.name}` | {rule.severity} |{level} | {rule.says} |"
    assert row in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("each", OPTIMIZERS.values(), ids=lambda each: each.name)
def test_every_optimizer_is_in_the_readme_with_what_it_keeps(each: Optimizer) -> None:
    kept = ", ".join(each.keeps) or "nothing"
    rows = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert any(row.startswith(f"| `{each.name}` |") and f"| {kept} |" in row for row in rows)


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_to_break_on_is_in_the_readme(metric: str) -> None:
    assert f"`{metric}`" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_pictures_and_files_that_the_readme_links_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_help_names_every_view() -> None:
    from inspector.cli.app import VIEWS
    from inspector.ui.docks import PANELS

    assert set(re.findall(r"\w+", VIEWS)) - {"or"} == {name for panel in PANELS for name in panel.views}
