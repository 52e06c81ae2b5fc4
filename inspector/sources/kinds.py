"""Which kind of file a path is, told by its first bytes and by the names in it."""

from __future__ import annotations

from pathlib import Path

from inspector.errors import UsageError
from inspector.session.tensorfile import TensorFile
from inspector.sources.checkpoint.files import INDEX_SUFFIX, is_pickled


def is_dump(path: Path) -> bool:
    """True for the layout file of a dump: any JSON file but the index of shards."""
    return path.suffix == ".json" and not path.name.endswith(INDEX_SUFFIX) and not path.is_dir()


def is_state_file(path: Path) -> bool:
    """True for a safetensors file that names weights or gradients as state files do, or nothing at all.

    True as well for what cannot be read, since that is explained as a state file is read.
    """
    if path.is_dir() or path.name.endswith(INDEX_SUFFIX) or is_pickled(path):
        return False
    try:
        names = TensorFile(path).entries
    except UsageError:
        return True
    return not names or any(name.startswith(("w/", "g/", "g@")) for name in names)
