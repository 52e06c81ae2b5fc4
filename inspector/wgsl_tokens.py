"""WGSL as words, numbers and signs, comments left out (W3C WebGPU Shading Language §3.3 and §3.6)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMMENT = re.compile(r"//|/\*")
_BLOCK_MARK = re.compile(r"/\*|\*/")
_LINE_BREAK = re.compile("[\n\v\f\r\x85\u2028\u2029]")
_TOKEN = re.compile(r"[^\W\d]\w*|(?:0[xX][\da-fA-F.]+|\d[\d.]*(?:[eE][+-]?\d+)?)\w?|\n|[^\s]")


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a number or one sign, and the line it stands in."""

    text: str
    line: int


def tokens(text: str) -> Iterator[Token]:
    """The tokens of `text`, comments left out. A sign of two characters comes as two: so > always closes <."""
    line = 1
    for match in _TOKEN.finditer(without_comments(text)):
        if match[0] == "\n":
            line += 1
        else:
            yield Token(match[0], line)


def without_comments(text: str) -> str:
    """`text` with each comment as a space, and the line breaks in it kept. Block comments nest."""
    out: list[str] = []
    at = 0
    while (begins := _COMMENT.search(text, at)) is not None:
        out += [text[at : begins.start()], " "]
        if begins[0] == "//":
            ends = _LINE_BREAK.search(text, begins.end())
            at = ends.start() if ends else len(text)
        else:
            at = _block_end(text, begins.end())
            out.append("\n" * text.count("\n", begins.start(), at))
    return "".join([*out, text[at:]])


def _block_end(text: str, at: int) -> int:
    depth = 1
    while depth and (mark := _BLOCK_MARK.search(text, at)) is not None:
        depth += 1 if mark[0] == "/*" else -1
        at = mark.end()
    return len(text) if depth else at
