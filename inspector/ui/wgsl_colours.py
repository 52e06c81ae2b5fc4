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
_PARTS = re.compile(
    rf"(?P<accent>\b(?:{'|'.join(_WORDS.split())})\b)|(?P<info>\b(?:{'|'.join(_TYPES.split())})\b|@\w+)"
    r"|(?P<ok>\b(?:0x[0-9a-fA-F]+|\d[\d.]*(?:[eE][-+]?\d+)?)[uifh]?\b)|(?P<mark>//|/\*|\*/)"
)
"""Named by the colours of the theme, but for what begins and ends comments."""
_MARKS = re.compile(r"(?P<mark>/\*|\*/)")
_DEEPEST = 255
MOST_LINES = 5000
"""Of a longer text no line is coloured: a tenth of a millisecond each is felt when it is opened."""


class WgslColours(QSyntaxHighlighter):
    """Colours a document line by line; the state of a line is how deep its end stands in block comments."""

    def highlightBlock(self, text: str) -> None:
        """Colour one line."""
        if self.document().blockCount() > MOST_LINES:
            return
        colours = theme.colours()
        depth, begins, at = max(self.previousBlockState(), 0), 0, 0
        while (found := (_MARKS if depth else _PARTS).search(text, at)) is not None:
            at = found.end()
            if found.lastgroup != "mark":
                ink: QColor = getattr(colours, found.lastgroup or "text")
                self.setFormat(found.start(), at - found.start(), ink)
            elif found[0] == "//":
                self.setFormat(found.start(), len(text) - found.start(), colours.muted)
                break
            elif found[0] == "/*":
                begins = begins if depth else found.start()
                depth = min(depth + 1, _DEEPEST)
            elif depth:
                depth -= 1
                if not depth:
                    self.setFormat(begins, at - begins, colours.muted)
        if depth:
            self.setFormat(begins, len(text) - begins, colours.muted)
        self.setCurrentBlockState(depth)
