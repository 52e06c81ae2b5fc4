"""Words, types, numbers and comments of WGSL in the colours of the theme."""

from __future__ import annotations

import re

from PySide6.QtGui import QColor, QSyntaxHighlighter

from inspector.ui import theme

_WORDS = (
    "alias break case const const_assert continue continuing default diagnostic discard else enable false fn for if "
    "let loop override requires return struct switch true var while"
)
_TYPES = "array atomic bool f16 f32 i32 u32 ptr vec[234][fhiu]? mat[234]x[234][fh]?"
_RULES = (
    (re.compile(rf"\b(?:{'|'.join(_WORDS.split())})\b"), "accent"),
    (re.compile(rf"\b(?:{'|'.join(_TYPES.split())})\b"), "info"),
    (re.compile(r"@\w+"), "info"),
    (re.compile(r"\b(?:0x[0-9a-fA-F]+|\d[\d.]*(?:[eE][-+]?\d+)?)[uifh]?\b"), "ok"),
)
_MARKS = re.compile(r"//|/\*|\*/")
_DEEPEST = 255


class WgslColours(QSyntaxHighlighter):
    """Colours a document line by line; the state of a line is how deep its end stands in block comments."""

    def highlightBlock(self, text: str) -> None:
        """Colour one line."""
        colours = theme.colours()
        for pattern, name in _RULES:
            ink: QColor = getattr(colours, name)
            for found in pattern.finditer(text):
                self.setFormat(found.start(), found.end() - found.start(), ink)
        depth, begins = max(self.previousBlockState(), 0), 0
        at = 0
        while (mark := _MARKS.search(text, at)) is not None:
            at = mark.end()
            if mark[0] == "//" and not depth:
                self.setFormat(mark.start(), len(text) - mark.start(), colours.muted)
                break
            if mark[0] == "/*":
                begins = begins if depth else mark.start()
                depth = min(depth + 1, _DEEPEST)
            elif mark[0] == "*/" and depth:
                depth -= 1
                if not depth:
                    self.setFormat(begins, mark.end() - begins, colours.muted)
        if depth:
            self.setFormat(begins, len(text) - begins, colours.muted)
        self.setCurrentBlockState(depth)
