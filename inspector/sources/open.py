"""From what a person types as SOURCE to the source it names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from inspector.errors import UsageError
from inspector.files import anything_at
from inspector.plan import Variant
from inspector.preset import GPT_116M
from inspector.schedule import Schedule
from inspector.sources.base import Source

FORMS = "charlm, gpt-116m, synthetic:N (N elements), or the path of a state file or a recording"


def open_source(spec: str, *, schedule: Schedule | None = None, seed: int | None = None) -> Source:
    """The source named by `spec`; UsageError, naming what there is, for anything else."""
    if not spec.strip():
        raise UsageError(f"No source was named: give {FORMS}.")
    # Imported where they are used: opening a state file should not load the live model.
    kind, _, argument = spec.partition(":")
    if kind == "charlm":
        from inspector.sources.charlm import CharLm, CharLmConfig

        config = CharLmConfig.from_text(argument)
        return CharLm(config if seed is None else replace(config, seed=seed), schedule=schedule)
    if spec == GPT_116M:
        from inspector.sources.synthetic import Synthetic

        return Synthetic.gpt_116m(seed=seed or 0, schedule=schedule)
    if kind == "synthetic":
        from inspector.sources.synthetic import Synthetic

        return Synthetic.of_size(_elements(argument, spec), seed=seed or 0, schedule=schedule)
    path = Path(spec)
    if not anything_at(path):
        raise UsageError(f"{spec!r} is no source: give {FORMS}.")
    from inspector.sources.recording import Recording, is_recording

    if is_recording(path):
        return Recording(path, schedule=schedule)
    from inspector.sources.statefile import StateFile

    return StateFile(path, schedule=schedule)


def recorded_form(spec: str) -> Variant | None:
    """The form in which the steps of a recording begin; None where `spec` names none."""
    from inspector.sources.recording import Recording, is_recording

    path = Path(spec)
    if not spec.strip() or not anything_at(path) or not is_recording(path):
        return None
    source = Recording(path)
    return source.recorded_variant(source.first_step)


def _elements(text: str, spec: str) -> int:
    try:
        return int(text.replace("_", "").replace(",", ""))
    except ValueError:
        raise UsageError(f"{spec!r} is no source: write synthetic:N with N a number of elements.") from None
