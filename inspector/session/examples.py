"""The recorded examples that come with the inspector: where they lie, and what each of them shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
FOLDERS = (PACKAGE / "examples", PACKAGE.parent / "sessions")
"""Where they lie: within an installed package, beside it in a checkout."""


@dataclass(frozen=True, slots=True)
class Example:
    """A recording, and in one line what it shows."""

    name: str
    shows: str

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.session.zip"

    @property
    def path(self) -> Path | None:
        """Where it lies; None where this installation came without it."""
        return next((folder / self.file for folder in FOLDERS if (folder / self.file).is_file()), None)


EXAMPLES = (
    Example("healthy", "48 steps as they should be: the loss falls, every step can be rebuilt and replayed"),
    Example(
        "nan-gradient",
        "three gradients of one tensor are NaN at step 30, and training goes on as if nothing were",
    ),
    Example(
        "diverges", "β₂ 0.3 under β₁ 0.98: updates outgrow lr from step 4 on, the loss blows up at step 29"
    ),
)
