"""The text of the built-in kernels as the compiler gets it: what they share, then their own file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

SHARED = {
    "adamw_8bit_update": ("common", "codecs", "coded_adam"),
    "encode_8bit": ("common", "codecs"),
    "decode_8bit": ("common", "codecs"),
    "explain": ("common", "codecs", "coded_adam"),
    "coding_error": ("common", "codecs"),
    "param_stats": ("common", "codecs", "coded_adam"),
    **dict.fromkeys(
        (f"optimizers/matrix/products_{each}" for each in ("64", "128", "two_floats")),
        ("common", "optimizers/matrix/two_floats", "optimizers/matrix/tiles"),
    ),
    "optimizers/muon/normalise": ("common", "optimizers/matrix/two_floats"),
    "map_cells": ("common", "map_cell", "map_quantity"),
    "map_levels": ("common", "map_cell"),
    "map_pixels": ("common", "map_cell", "map_quantity", "map_view"),
    "map_cell_pixels": ("common", "map_cell", "map_view"),
    "map_hash": ("common", "map_age"),
    "map_changed": ("common", "map_age"),
}
"""What stands before a kernel's own text; "common" alone where it is not named here."""


OPTIMIZERS = "optimizers/"
"""What the names of kernels in an optimizer's folder begin with."""
MATRIX = "matrix"
"""The folder of kernels on matrices, which are no optimizer's own."""


def shared(kernel: str) -> tuple[str, ...]:
    """The files that stand before a kernel's own: of one in an optimizer's folder the update of that name."""
    folder = kernel.split("/")[1] if kernel.startswith(OPTIMIZERS) else MATRIX
    return SHARED.get(
        kernel, ("common",) if folder == MATRIX else ("common", f"{OPTIMIZERS}{folder}/{folder}")
    )


def shader_source(name: str) -> str:
    """The text of inspector/shaders/NAME.wgsl, or of inspector/NAME.wgsl of an optimizer's folder."""
    if name.startswith(OPTIMIZERS):
        return resources.files("inspector").joinpath(f"{name}.wgsl").read_text(encoding="utf-8")
    return resources.files("inspector").joinpath("shaders", f"{name}.wgsl").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class ShaderUnit:
    """What is compiled as one: `text`, and of which file each part is, by the line of `text` it begins at, from 1."""

    text: str
    files: tuple[tuple[int, str], ...]

    def place(self, line: int) -> str:
        """File and line in it of a line of the text, as in "common.wgsl:84"."""
        start, name = max(part for part in self.files if part[0] <= line)
        return f"{name}:{line - start + 1}"


@cache
def unit(kernel: str, before: tuple[str, ...] | None = None) -> ShaderUnit:
    """A built-in kernel with all that stands before it; `before` in place of what usually does."""
    parts, files, line = [], [], 1
    for name in (*(shared(kernel) if before is None else before), kernel):
        source = shader_source(name)
        parts.append(source)
        files.append((line, f"{name}.wgsl"))
        line += source.count("\n") + 1
    return ShaderUnit("\n".join(parts), tuple(files))
