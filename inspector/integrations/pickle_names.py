"""What a pickle would call as it is loaded, read from its opcodes without loading it."""

from __future__ import annotations

import io
import pickletools
import zipfile
from pathlib import Path

MAX_BYTES = 64 << 20
_TAKEN = ("torch.", "collections.OrderedDict", "_codecs.encode", "__builtin__.set", "builtins.set")
"""What PyTorch's weights-only loader takes, as far as files in use have it; the loader alone decides."""


def foreign_names(path: Path) -> list[str]:
    """Classes and functions, as module.name, that are none of PyTorch's; [] where none can be told."""
    try:
        content = _pickle(path)
    except (OSError, zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError):
        return []
    found: dict[str, None] = {}
    stream = io.BytesIO(content)
    strings: list[str] = []
    try:
        # Files of before PyTorch 1.6 are several pickles, one after the other.
        while stream.tell() < len(content):
            for opcode, argument, _ in pickletools.genops(stream):
                if opcode.name == "GLOBAL":
                    found[str(argument).replace(" ", ".", 1)] = None
                elif opcode.name == "STACK_GLOBAL" and len(strings) > 1:
                    found[".".join(strings[-2:])] = None
                elif isinstance(argument, str):
                    strings = [*strings[-1:], argument]
    except (ValueError, IndexError, UnicodeDecodeError, OverflowError):
        # Raw tensors follow the last pickle, or it is cut off: what was found until then stands.
        pass
    return [name for name in found if not name.startswith(_TAKEN)]


def _pickle(path: Path) -> bytes:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith("data.pkl"))
            with archive.open(name) as file:
                return file.read(MAX_BYTES)
    with path.open("rb") as file:
        return file.read(MAX_BYTES)
