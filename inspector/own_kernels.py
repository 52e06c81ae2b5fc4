"""A user's own kernels as data: what a plan and a pipeline need to know of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from inspector.plan import Access

BLOCK_ELEMENTS = 256
"""What one workgroup of a kernel over an 8-bit state takes."""

GridRule = Literal["items", "blocks", "one"]
"""A thread for each item of slot 0, a workgroup for each block of 256 elements, or a single workgroup."""


@dataclass(frozen=True, slots=True)
class OwnKernel:
    """An entry point of a WGSL file that takes the place of the built-in one of that name."""

    entry_point: str
    file: str
    """The path of its file, as it is shown."""
    line: int
    """Where its entry point begins, from 1."""
    source: str = field(repr=False)
    """The text of the whole file."""
    threads: int
    """Threads of a workgroup."""
    grid: GridRule
    item_elements: int
    """Elements in an item of slot 0: 1 for array<f32>, 4 for array<vec4<f32>>."""
    access: tuple[tuple[int, Access], ...]
    """How each slot that it declares is declared; the layout of a bind group has to say the same."""
    overrides: tuple[tuple[str, str], ...] = ()
    """Its pipeline constants: the name of each and what it is set by."""
    enables: tuple[tuple[str, int], ...] = ()
    """The language extensions it enables, and the line of each."""

    @property
    def place(self) -> str:
        """File and line of the entry point: "own/adamw.wgsl:12"."""
        return f"{self.file}:{self.line}"

    def groups(self, elements: int) -> int:
        """Workgroups of a dispatch over so many elements."""
        if self.grid == "one":
            return 1
        if self.grid == "blocks":
            return -(-elements // BLOCK_ELEMENTS)
        return -(-elements // (self.item_elements * self.threads))


@dataclass(frozen=True, slots=True)
class OwnKernels:
    """The own kernels of a run, by entry point; none by default."""

    kernels: tuple[OwnKernel, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.kernels)

    def __str__(self) -> str:
        return ", ".join(k.entry_point for k in self.kernels) or "none"

    def get(self, entry_point: str) -> OwnKernel | None:
        """The one that takes the place of `entry_point`, None where the built-in kernel stays."""
        return next((k for k in self.kernels if k.entry_point == entry_point), None)

    def with_kernel(self, entry_point: str, kernel: OwnKernel | None) -> OwnKernels:
        """These with another one in the place of `entry_point`; with the built-in one where it is None."""
        others = tuple(k for k in self.kernels if k.entry_point != entry_point)
        return OwnKernels(others if kernel is None else (*others, kernel))

    @property
    def files(self) -> Mapping[str, str]:
        """The file of each by its entry point."""
        return {k.entry_point: k.file for k in self.kernels}


NO_OWN_KERNELS = OwnKernels()
