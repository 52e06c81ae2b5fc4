"""docs/extending.md followed in a copy of the program: what it adds is there, works, and passes the tests it names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "pictures", "incidents", "*.zip", ".*")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with all that the page adds."""
    made = tmp_path_factory.mktemp("copy")
    for folder in ("inspector", "tests"):
        shutil.copytree(ROOT / folder, made / folder, ignore=LEFT_OUT)
    shutil.copy(ROOT / "pyproject.toml", made)
    # A file in full stands below its name.
    files = re.findall(
        r"^`([\w/.]+)`[^\n]*(?:\n[^\n`]+)?\n\n```\w+\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE
    )
    assert len(files) == 10
    for name, text in files:
        path = made / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    optimizers = made / "inspector" / "optimizers" / "__init__.py"
    _edit(optimizers, r"\nOPTIMIZERS", "\nfrom inspector.optimizers.signum import SIGNUM\n\nOPTIMIZERS")
    _edit(optimizers, r"\(\s*ADAMW,(.*?),?\s*\)", r"(ADAMW,\1, SIGNUM)")
    _edit(made / "tests" / "test_optimizers.py", r"NEW = \((.*?)\)", r'NEW = (\1, "signum")')
    table = made / "inspector" / "diagnosis" / "rules" / "table.py"
    _edit(table, r"    half,\n", "    half,\n    high_rate,\n")
    _edit(table, r"\n\)\n(?!.*\n\)\n)", f"\n{_block('    Rule(')})\n")
    docks = made / "inspector" / "ui" / "docks.py"
    _edit(docks, r'\("plots", "board", ', '("plots", "loss", "board", ')
    _edit(docks, r"TAB_TITLES = \{\n", 'TAB_TITLES = {\n    "loss": "Loss",\n')
    _edit(
        made / "inspector" / "ui" / "app.py",
        r"KINDS = \{\n",
        'KINDS = {\n    "loss": "loss_view.LossView",\n',
    )
    _edit(made / "inspector" / "cli" / "commands" / "window.py", r'VIEWS = \(\n?\s*"', r"\g<0>loss, ")
    source = made / "inspector" / "sources" / "open.py"
    _edit(
        source,
        r"    paths = named_files\(spec\)\n",
        f"{_block('    if kind ==')}    paths = named_files(spec)\n",
    )
    return made


def _block(first: str) -> str:
    blocks = re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return next(block for block in blocks if block.startswith(first))


def _edit(path: Path, pattern: str, text: str) -> None:
    before = path.read_text(encoding="utf-8")
    after, count = re.subn(pattern, text, before, count=1, flags=re.DOTALL)
    assert count == 1, f"{path}: {pattern}"
    path.write_text(after, encoding="utf-8")


def run(copy: Path, *words: str) -> str:
    """What a command in the copy prints."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        check=False,
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_optimizer_of_the_page_trains(copy: Path) -> None:
    words = ("inspector", "run", "charlm", "--steps", "12", "--optimizer", "signum", "--lr", "1e-3", "--json")
    document = json.loads(run(copy, *words))
    assert document["variant"]["optimizer"] == "signum"
    losses = [step["loss"] for step in document["steps"]]
    assert losses[-1] < losses[0]


def test_the_tests_of_the_page_pass_in_the_copy(copy: Path) -> None:
    tests = ("tests/test_high_rate.py", "tests/test_loss_view.py", "tests/test_bowl.py")
    assert " passed" in run(copy, "pytest", "-q", "-p", "no:cacheprovider", *tests)
    # Of those that take whatever there is. Two steps by hand are for whoever adds an optimizer to work out.
    others = ("tests/test_optimizers.py", "tests/test_views_alone.py")
    chosen = ("-k", "(signum and not by_hand) or loss")
    assert " passed" in run(copy, "pytest", "-q", "-p", "no:cacheprovider", *others, *chosen)
