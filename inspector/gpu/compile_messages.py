"""What a WGSL compiler says, as one line with file, line and column instead of boxes around the code."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HEAD = re.compile(r"^Shader\b.*?\berror: (.*)$", re.MULTILINE)
_PLACE = re.compile(r"┌─ .*?:(\d+):(\d+)\s*$")
_CODE = re.compile(r"^\s*(\d+) │")
_NOTE = re.compile(r"^\s*= (?:note: )?(.*)$")
_FRAME = " \t│┆╭╰├─╯^-'|·"
_PREAMBLE = ("Validation Error", "Caused by:")
_EMPTY_WORDS = ("naga::", "Let Naga maintainers", "see msg")
"""How lines begin that speak of the compiler's insides, or of nothing."""
MAX_SHOWN = 160


def compile_message(text: str, file: str, source: str, *, entry_point: str = "", line: int = 0) -> str:
    """One sentence from what was raised for `source`: "FILE:LINE:COLUMN: what is wrong, at: the line".

    Where the compiler names no place, `line` and `entry_point` say what was compiled. Lines and columns from 1.
    """
    head = _HEAD.search(text)
    if head is None:
        lines = [each.strip() for each in text.splitlines()]
        said = [w for w in lines if w and w not in _PREAMBLE and not w.startswith("In wgpu")]
        where = f"{file}:{line}" if line else file
        return (
            f"{where}: {entry_point + ': ' if entry_point else ''}{_plain(': '.join(said) or 'not valid')}."
        )
    rest = text[head.end() :]
    place = next((found for each in rest.splitlines() if (found := _PLACE.search(each))), None)
    number = int(place[1]) if place else line
    parts = [head[1].strip()]
    for said_at, part in _remarks(rest):
        if not part.startswith(_EMPTY_WORDS) and not any(part in before for before in parts):
            parts.append(part if said_at in (0, number) else f"line {said_at}: {part}")
    message = _plain("; ".join(parts))
    if place is None:
        return f"{file}{f':{number}' if number else ''}: {message}."
    code = source.split("\n")
    shown = code[number - 1].strip()[:MAX_SHOWN] if 0 < number <= len(code) else ""
    return f"{file}:{number}:{place[2]}: {message}{f', at: {shown}' if shown else ''}"


def _remarks(text: str) -> Iterator[tuple[int, str]]:
    """What is written below lines of code, with the line, and notes, with 0. Frames and the code are left out."""
    at, note = 0, ""
    for each in text.splitlines():
        if note and each.strip() and not _NOTE.match(each):
            note += f" {each.strip()}"
            continue
        if note:
            yield 0, note
            note = ""
        if (code := _CODE.match(each)) is not None:
            at = int(code[1])
        elif (found := _NOTE.match(each)) is not None:
            note = found[1].strip()
        elif "│" in each:
            if label := each.partition("│")[2].strip(_FRAME):
                yield at, label
        elif "┌─" not in each and (said := each.strip(_FRAME)):
            yield 0, said
    if note:
        yield 0, note


def _plain(text: str) -> str:
    text = re.sub(r"\b(Function|Entry point|Type|Constant|Global variable) \[\d+\]", r"\1", text)
    return re.sub(r"`([^`]*)`", r"'\1'", text)
