"""From what a person types as SOURCE to the source it names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from inspector.errors import UsageError
from inspector.files import anything_at, named_files
from inspector.plan import Variant
from inspector.preset import GPT_116M
from inspector.schedule import Schedule
from inspector.sources.base import HasForm, Source
from inspector.sources.checkpoint.files import LoadPickled
from inspector.sources.kinds import is_dump, is_state_file
from inspector.tensor_tree import TensorDocument

FORMS = (
    "charlm, gpt-116m, synthetic:N (N elements), surface:NAME (two elements), or the path of a state file, a "
    "checkpoint (several files joined by +), a dump or a recording"
)


def _no_loader(path: Path) -> TensorDocument:
    raise UsageError(f"{path} was saved by PyTorch, which is needed to read it.")


def files_of(spec: str) -> tuple[Path, ...]:
    """The files that a SOURCE names, () for one that is made here."""
    kind = spec.partition(":")[0]
    made = kind in ("charlm", "synthetic") or spec == GPT_116M
    if made or (kind == "surface" and not anything_at(Path(spec))):
        return ()
    return named_files(spec)


def open_source(
    spec: str,
    *,
    schedule: Schedule | None = None,
    seed: int | None = None,
    load_pickled: LoadPickled = _no_loader,
) -> Source:
    """The source named by `spec`; UsageError, naming what there is, for anything else.

    `load_pickled` reads what PyTorch saved.
    """
    if not spec.strip():
        raise UsageError(f"No source was named: give {FORMS}.")
    # Imported where they are used: opening a state file should not load the live model.
    kind, _, argument = spec.partition(":")
    if kind == "charlm":
        from inspector.sources.charlm.config import CharLmConfig
        from inspector.sources.charlm.source import CharLm

        config = CharLmConfig.from_text(argument)
        return CharLm(config if seed is None else replace(config, seed=seed), schedule=schedule)
    if spec == GPT_116M:
        from inspector.sources.synthetic import Synthetic

        return Synthetic.gpt_116m(seed=seed or 0, schedule=schedule)
    if kind == "synthetic":
        from inspector.sources.synthetic import Synthetic

        return Synthetic.of_size(_elements(argument, spec), seed=seed or 0, schedule=schedule)
    if kind == "surface" and not anything_at(Path(spec)):
        from inspector.sources.surface import SurfaceSource

        return SurfaceSource.from_text(spec, seed=seed or 0, schedule=schedule)
    paths = named_files(spec)
    if not paths:
        missing = [part for part in spec.split("+") if not anything_at(Path(part))]
        if missing and len(missing) < len(spec.split("+")):
            raise UsageError(f"{spec!r} names {missing[0]!r}, which does not exist.")
        raise UsageError(f"{spec!r} is no source: give {FORMS}.")
    from inspector.sources.recording import Recording, is_recording

    if len(paths) == 1 and is_recording(paths[0]):
        return Recording(paths[0], schedule=schedule)
    if len(paths) == 1 and is_dump(paths[0]):
        from inspector.sources.dump import Dump

        return Dump(paths[0], schedule=schedule)
    if len(paths) == 1 and is_state_file(paths[0]):
        from inspector.sources.statefile import StateFile

        return StateFile(paths[0], schedule=schedule)
    from inspector.sources.checkpoint.source import Checkpoint

    return Checkpoint(spec, paths, load_pickled, seed=seed or 0, schedule=schedule)


def form_of(source: Source) -> Variant | None:
    """The form in which a source goes on as it was: a recording as it began, a checkpoint as its optimizer."""
    from inspector.sources.recording import Recording

    if isinstance(source, Recording):
        return source.recorded_variant(source.first_step)
    return source.form if isinstance(source, HasForm) else None


def _elements(text: str, spec: str) -> int:
    try:
        return int(text.replace("_", "").replace(",", ""))
    except ValueError:
        raise UsageError(f"{spec!r} is no source: write synthetic:N with N a number of elements.") from None
