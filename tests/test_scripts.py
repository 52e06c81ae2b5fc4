"""Scripts that no type checker reads find what they import of the program."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(
    path for folder in ("benchmarks", "sessions", "docs") for path in (ROOT / folder).glob("*.py")
)


def imported(script: Path) -> list[tuple[str, str]]:
    """Each (module, name) of `from inspector... import name`."""
    nodes = ast.walk(ast.parse(script.read_text(encoding="utf-8")))
    return [
        (node.module, alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and node.module.startswith("inspector")
        for alias in node.names
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_what_a_script_imports_is_there(script: Path) -> None:
    for module, name in imported(script):
        if "torch" in module and importlib.util.find_spec("torch") is None:
            continue
        found = importlib.import_module(module)
        assert hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}") is not None, (
            module,
            name,
        )


def test_scripts_are_found() -> None:
    assert ROOT / "sessions" / "make.py" in SCRIPTS
    assert imported(ROOT / "sessions" / "make.py")
