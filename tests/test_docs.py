"""The documents name what is there: every module in ARCHITECTURE.md, every command, rule and key in the others."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from guided import SHOTS
from PySide6.QtGui import QKeySequence
from typer.main import get_command

from inspector.cli import COMMANDS, with_default_command
from inspector.cli.app import app
from inspector.diagnosis.metrics import METRICS
from inspector.diagnosis.rules import RULES, Rule
from inspector.optimizers import OPTIMIZERS
from inspector.optimizers.definition import Optimizer
from inspector.ui.actions import SPECS
from inspector.ui.command_list import presses

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
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
def test_every_command_is_in_the_documents(command: str) -> None:
    assert f"inspector {command}" in TEXT


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_is_in_the_documents(rule: Rule) -> None:
    level = {"light": "", "full": " full"}[rule.needs]
    row = f"| `{rule.name}` | {rule.severity} |{level} | {rule.says} |"
    assert row in TEXT.splitlines()


@pytest.mark.parametrize("each", OPTIMIZERS.values(), ids=lambda each: each.name)
def test_every_optimizer_is_in_the_documents_with_what_it_keeps(each: Optimizer) -> None:
    kept = ", ".join(each.keeps) or "nothing"
    rows = TEXT.splitlines()
    assert any(row.startswith(f"| `{each.name}` |") and f"| {kept} |" in row for row in rows)


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_to_break_on_is_in_the_documents(metric: str) -> None:
    assert f"`{metric}`" in TEXT


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    """What a heading is called in links, as GitHub does it."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_picture_is_shown_on_a_page() -> None:
    shown = set(re.findall(r"pictures/([\w-]+\.png)", TEXT))
    made = {path.name for path in (ROOT / "docs" / "pictures").glob("*.png")}
    assert made == shown
    assert {f"{name}.png" for name in SHOTS} <= made


PLACEHOLDERS = {
    "SOURCE": "charlm", "SESSION": "run.session", "STATE": "a.safetensors", "N": "5", "T": "5", "NAME": "w", "I": "0",
    "A": "a.session", "B": "b.session", "FILE": "a", "DIR": "d", "CONDITION": "nonfinite > 0",
}  # fmt: skip


def commands() -> list[str]:
    """What the documents tell to type, in blocks and in the text, options with their values."""
    # What extending.md adds is not there but in the copy of test_extending.py.
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.name != "extending.md")
    in_blocks = re.findall(r"^inspector [^\n#]+", text, re.MULTILINE)
    in_text = [each.replace("\n", " ") for each in re.findall(r"`(inspector [^`]+)`", text)]
    found = dict.fromkeys(each.strip() for each in (*in_blocks, *in_text))
    return [each for each in found if not re.search(r"[…\[]|COMMAND|--lane …", each)]


@pytest.mark.parametrize("line", commands())
def test_every_command_that_is_written_down_can_be_typed(line: str) -> None:
    """With its options and their values; what a command needs may be left out where it is only named."""
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line)[1:]]
    words = [re.sub(r"^(NAME|FILE)\b", "a", word) for word in words]
    root = get_command(app)
    group = root.make_context("inspector", [], resilient_parsing=True)
    name, *rest = with_default_command(words)
    command = root.commands[name]  # type: ignore[attr-defined]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    assert [w for w in rest if w.startswith("--") and w.partition("=")[0] not in known] == []
    if any(word.startswith("--") for word in rest):
        # Raises for a value that the option does not take. What it is done to may be left out in a sentence.
        needed = [each for each in command.params if each.param_type_name == "argument" and each.required]
        given = rest if not needed or not rest[0].startswith("--") else ["charlm", *rest]
        if "--steps" in known and "--steps" not in rest:
            given = [*given, "--steps", "1"]
        command.make_context(name, list(given), parent=group)


def keys_there_are() -> set[str]:
    """Every key that means something in the window or in one of its panels, as Qt writes it."""
    from inspector.ui.app import make_views
    from inspector.ui.docks import PANELS, TAB_KEYS

    named = [key for spec in SPECS for key in spec.keys]
    named += [panel.key for panel in PANELS] + list(TAB_KEYS.values())
    for view in make_views().values():
        named += [key for written, _ in view.LOCAL_KEYS for key in presses(written)]
    return {QKeySequence(key).toString() for key in named}


@pytest.mark.qt
def test_every_key_that_is_written_down_does_something(qtbot: object) -> None:
    there = keys_there_are() | {"Tab", "Shift+Tab", "Ctrl+C", "Alt+1", "Ctrl+Alt+1"}
    text = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    text = text.replace("Ctrl-C", "").replace("←", "Left").replace("→", "Right")
    written = re.findall(
        r"(?<![\w+])((?:(?:Ctrl|Alt|Shift)\+)+(?:F\d+|Enter|Left|Right|[A-Z0-9,\[\]])|F\d+)(?!\w)", text
    )
    assert len(written) > 60
    gone = {key for key in written if QKeySequence(key.replace("Enter", "Return")).toString() not in there}
    assert gone == set()


def test_every_key_of_the_menus_is_written_down() -> None:
    text = (ROOT / "docs" / "window.md").read_text(encoding="utf-8")
    text = text.replace("Alt+← Alt+→", "Alt+Left Alt+Right")
    missing = [f"{spec.text}: {spec.keys[0]}" for spec in SPECS if spec.keys and spec.keys[0] not in text]
    assert missing == []


def test_the_help_names_every_view() -> None:
    from inspector.cli.commands.window import VIEWS
    from inspector.ui.docks import PANELS

    assert set(re.findall(r"\w+", VIEWS)) - {"or"} == {name for panel in PANELS for name in panel.views}
