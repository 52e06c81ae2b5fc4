"""Sizes of the model and of its batches, as text and checked."""

from __future__ import annotations

from dataclasses import dataclass, fields

from inspector.errors import UsageError
from inspector.sources.charlm.text import VOCABULARY

_LARGEST = {
    "width": 4096,
    "layers": 64,
    "heads": 256,
    "context": 4096,
    "rows": 1024,
    "ffn": 16384,
    "seed": 2**63 - 1,
}
_MAX_ELEMENTS = 200_000_000
"""Of all params together, and of all intermediate values of one step: 0.8 GB in float32."""


@dataclass(frozen=True, slots=True)
class CharLmConfig:
    """Sizes of the model and of its batches. Raises UsageError for sizes that make no model.

    `context` is characters a row, `rows` rows a batch, `ffn` the inner width of the feed-forward part.
    `seed` chooses the initial weights, the batches and the order of the text.
    """

    width: int = 64
    layers: int = 2
    heads: int = 4
    context: int = 64
    rows: int = 8
    ffn: int = 172
    seed: int = 0

    def __post_init__(self) -> None:
        for name, limit in _LARGEST.items():
            value, least = getattr(self, name), 0 if name == "seed" else 1
            if not least <= value <= limit:
                raise UsageError(
                    f"charlm cannot have {name}={value}: give a whole number from {least} to {limit}."
                )
        if self.width % self.heads:
            raise UsageError(
                f"charlm cannot share width={self.width} among heads={self.heads}: "
                "make width a multiple of heads."
            )
        if self.head_size % 2:
            raise UsageError(
                f"charlm cannot rotate heads of odd size {self.head_size}: "
                "make width an even multiple of heads."
            )
        elements = max(self.elements, self.intermediates)
        if elements > _MAX_ELEMENTS:
            raise UsageError(
                f"charlm would hold {elements:,} numbers in memory: "
                f"make its sizes smaller, {_MAX_ELEMENTS:,} is the limit."
            )

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    @property
    def elements(self) -> int:
        """Number of elements of all params."""
        layer = 4 * self.width**2 + 3 * self.width * self.ffn + 2 * self.width
        return (len(VOCABULARY) + 1) * self.width + self.layers * layer

    @property
    def intermediates(self) -> int:
        """Roughly the number of intermediate values that one step keeps for its backward pass."""
        layer = 9 * self.width + 3 * self.ffn + self.heads * self.context
        return self.rows * self.context * (self.layers * layer + 2 * len(VOCABULARY))

    @classmethod
    def from_text(cls, text: str) -> CharLmConfig:
        """`width=128,layers=4,…`, any of the fields in any order, empty for the default; else UsageError."""
        values: dict[str, int] = {}
        for option in text.split(",") if text else ():
            key, _, value = (part.strip() for part in option.partition("="))
            if key not in _LARGEST:
                raise UsageError(
                    f"charlm has no option {key!r}: write NAME=NUMBER with one of {', '.join(_LARGEST)}."
                )
            if key in values:
                raise UsageError(f"charlm is given {key} twice: give it once.")
            try:
                values[key] = int(value)
            except ValueError:
                raise UsageError(f"charlm cannot have {key}={value}: give a whole number.") from None
        return cls(**values)

    def __str__(self) -> str:
        """The text that `from_text` reads back: the fields that differ from their default."""
        changed = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        return ",".join(f"{name}={value}" for name, value, default in changed if value != default)
