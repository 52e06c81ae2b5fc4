"""What a WGSL compiler says, as one line with file, line and column instead of boxes around the code."""

from __future__ import annotations

import re

_HEAD = re.compile(r"^Shader\b.*?\berror: (.*)$", re.MULTILINE)
_PLACE = re.compile(r"┌─ .*?:(\d+):(\d+)\s*$", re.MULTILINE)
_NOTE = re.compile(r"^\s*= (?:note: )?(.*)$")
_BOX = " \t│╭╰─┆╯^-'|·"
_PREAMBLE = ("Validation Error", "Caused by:")
_OWN_WORDS = ("naga::", "Let Naga maintainers")
"""How lines begin that speak of the compiler's insides, not of the program."""
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
    parts = [head[1].strip()]
    place = None
    for each in text[head.end() :].splitlines():
        if place is None and (place := _PLACE.search(each)) is not None:
            continue
        note = _NOTE.match(each)
        part = note[1] if note else _label(each)
        if part and not part.startswith(_OWN_WORDS) and not any(part in before for before in parts):
            parts.append(part)
    said_text = _plain("; ".join(parts))
    if place is None:
        return f"{file}{f':{line}' if line else ''}: {said_text}."
    number, column = int(place[1]), int(place[2])
    code = source.split("\n")
    shown = code[number - 1].strip()[:MAX_SHOWN] if 0 < number <= len(code) else ""
    return f"{file}:{number}:{column}: {said_text}{f', at: {shown}' if shown else ''}"


def _label(line: str) -> str:
    """What is written below a line of code, "" for the code itself and for frames."""
    before, frame, after = line.partition("│")
    if not frame or before.strip():
        return ""
    return after.strip(_BOX)


def _plain(text: str) -> str:
    text = re.sub(r"\b(Function|Entry point|Type|Constant|Global variable) \[\d+\]", r"\1", text)
    return re.sub(r"`([^`]*)`", r"'\1'", text)
