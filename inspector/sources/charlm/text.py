"""The text that the model trains on, as tokens: one a character."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inspector.errors import UsageError

Tokens = npt.NDArray[np.uint8]

VOCABULARY = "\n" + "".join(map(chr, range(0x20, 0x7F))) + "\N{REPLACEMENT CHARACTER}"
"""A token is an index into this: newline, printable ASCII, and one symbol for every other character."""

UNKNOWN = len(VOCABULARY) - 1
"""The token of every character that is no other."""

_TOKEN_OF_BYTE = np.full(256, UNKNOWN, dtype=np.uint8)
_TOKEN_OF_BYTE[[ord(c) for c in VOCABULARY[:UNKNOWN]]] = np.arange(UNKNOWN)

TEXT_BYTES = 4_000_000
"""As much text is read; 1,500 default steps see a fifth of it."""

_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "__pycache__", "site-packages", "dist-packages"}


def encode(text: bytes) -> Tokens:
    """UTF-8 text as tokens, one a character, without carriage returns: line ends are the same anywhere."""
    raw = np.frombuffer(text, dtype=np.uint8)
    continues_a_character = (raw & 0xC0) == 0x80
    tokens: Tokens = _TOKEN_OF_BYTE[raw[~continues_a_character & (raw != ord("\r"))]]
    return tokens


def decode(tokens: Tokens) -> str:
    """Tokens as text."""
    return "".join(VOCABULARY[token] for token in tokens)


def python_files(folder: Path) -> list[Path]:
    """The Python source files under `folder` in a fixed order, without tests and installed packages."""
    found: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS]
        found += (Path(parent, name) for name in names if name.endswith(".py"))
    return sorted(found, key=lambda path: path.relative_to(folder).parts)


def read_text(folder: Path, seed: int, limit: int = TEXT_BYTES) -> Tokens:
    """The source files under `folder`, shuffled by `seed` and joined up to `limit` bytes, as tokens."""
    files = python_files(folder)
    parts: list[bytes] = []
    missing = limit
    for index in np.random.default_rng(seed).permutation(len(files)):
        if missing <= 0:
            break
        try:
            part = files[index].read_bytes()[:missing]
        except OSError as error:
            raise UsageError(f"charlm cannot read its text: {error}. Make the file readable.") from error
        parts.append(part)
        missing -= len(part)
    return encode(b"".join(parts))
