"""The layers hold: by the import contracts, and by what importing a layer really loads."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import inspector

PROJECT = Path(__file__).parent.parent
QT = ("PySide6", "shiboken6", "pyqtgraph")
GPU = ("wgpu", "inspector.gpu")
COMMANDS = ("inspector.cli", "inspector.__main__", "typer", "rich")
OPTIONAL = ("torch",)

# What importing all of a layer must not load, by itself or through others. A layer is a folder of
# inspector/, or `core`: the modules directly in inspector/ and the folder optimizers/.
NEVER_LOADED = {
    "core": (*QT, *GPU, *COMMANDS, *OPTIONAL, "safetensors", "autograd"),
    "ui": (*GPU, *COMMANDS, *OPTIONAL),
    "runtime": (*QT, *GPU, *COMMANDS, *OPTIONAL, "inspector.ui"),
    "gpu": (*QT, *COMMANDS, *OPTIONAL, "safetensors", "autograd"),
    "sources": (*QT, *GPU, *COMMANDS, *OPTIONAL),
    "session": (*QT, *GPU, *COMMANDS, *OPTIONAL, "autograd"),
    "diagnosis": (*QT, *GPU, *COMMANDS, *OPTIONAL, "safetensors", "autograd"),
    "integrations": (*QT, *GPU, *COMMANDS),
}
CORE_FOLDERS = {"optimizers"}
DATA_FOLDERS = {"shaders"}

IMPORT_AND_REPORT = """
import importlib, sys
modules, forbidden = (part.split() for part in sys.argv[1:])
for name in modules:
    importlib.import_module(name)
    loaded = sorted(m for m in sys.modules if any(m == f or m.startswith(f + ".") for f in forbidden))
    if loaded:
        sys.exit(f"importing {name} loads {', '.join(loaded[:5])}")
"""


def _modules_under(package: str) -> list[str]:
    if not _can_be_imported(package):
        return []
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    found = pkgutil.iter_modules(spec.submodule_search_locations, f"{package}.")
    return [
        package,
        *(
            name
            for module in found
            for name in (_modules_under(module.name) if module.ispkg else [module.name])
        ),
    ]


def _modules_of(layer: str) -> list[str]:
    if layer != "core":
        return [name for name in _modules_under(f"inspector.{layer}") if _can_be_imported(name)]
    files = [
        module.name
        for module in pkgutil.iter_modules(inspector.__path__, "inspector.")
        if not module.ispkg and module.name not in COMMANDS
    ]
    return [
        "inspector",
        *files,
        *(name for each in CORE_FOLDERS for name in _modules_under(f"inspector.{each}")),
    ]


def _can_be_imported(module: str) -> bool:
    """False where it needs an extra that is not installed here."""
    needs_torch = module == "inspector.integrations.torch" or module.startswith(
        "inspector.integrations.torch."
    )
    return not needs_torch or importlib.util.find_spec("torch") is not None


def _folders() -> set[str]:
    return {module.name for module in pkgutil.iter_modules(inspector.__path__) if module.ispkg}


def _lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    lint = [sys.executable, "-c", code, "--no-cache", "--no-logo"]
    wide = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(lint, cwd=project, env=wide, capture_output=True, text=True, check=False)


def test_the_import_contracts_hold() -> None:
    result = _lint_imports(PROJECT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_folder_is_a_layer() -> None:
    assert _folders() <= NEVER_LOADED.keys() | CORE_FOLDERS | DATA_FOLDERS | {"cli"}


@pytest.mark.parametrize("layer", NEVER_LOADED)
def test_importing_a_layer_loads_nothing_above_it(layer: str) -> None:
    if layer != "core" and layer not in _folders():
        pytest.skip(f"inspector/{layer}/ does not exist")
    modules, forbidden = _modules_of(layer), NEVER_LOADED[layer]
    code = [sys.executable, "-c", IMPORT_AND_REPORT, " ".join(modules), " ".join(forbidden)]
    result = subprocess.run(code, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_the_contracts_would_notice(tmp_path: Path) -> None:
    """A project with one import in each forbidden direction: every one is reported."""
    wrong = {
        "ui/view.py": "from inspector.runtime import worker\nimport wgpu",
        "runtime/worker.py": "import inspector.gpu.device",
        "gpu/device.py": "import inspector.session.store",
        "session/store.py": "def later():\n    import inspector.diagnosis.rules",
        "diagnosis/rules.py": "import safetensors",
        "sources/live.py": "import inspector.runtime.worker",
        "integrations/torch.py": "import inspector.sources.live",
        "optimizers/adamw.py": "import autograd",
        "layout.py": "import inspector.cli",
        "cli.py": "import typer, inspector.ui.view, inspector.gpu.device",
        "novel/thing.py": "",
    }
    for name, text in wrong.items():
        file = tmp_path / "inspector" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(text)
    (tmp_path / "pyproject.toml").write_text((PROJECT / "pyproject.toml").read_text())
    (tmp_path / "tools").symlink_to(PROJECT / "tools")
    result = _lint_imports(tmp_path)
    assert result.returncode != 0
    for line in (
        "inspector.ui.view -> wgpu (l.2)",
        "inspector.runtime.worker -> inspector.gpu.device (l.1)",
        "inspector.gpu.device -> inspector.session.store (l.1)",
        "inspector.session.store -> inspector.diagnosis.rules (l.2)",
        "inspector.diagnosis.rules -> safetensors (l.1)",
        "inspector.sources.live -> inspector.runtime.worker (l.1)",
        "inspector.integrations.torch -> inspector.sources.live (l.1)",
        "inspector.optimizers.adamw -> autograd (l.1)",
        "inspector.layout -> inspector.cli (l.1)",
        "inspector.novel",
    ):
        assert line in result.stdout
    assert "commands may not import" not in result.stdout
