"""The update kernel of an element-wise optimizer, as a plan needs to know it."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.stores import Lane


@dataclass(frozen=True, slots=True)
class UpdateForm:
    """`kernel` is the WGSL file below inspector/ without its suffix; its stem is the entry point.

    It binds w, g and then `moments`, then grad_stats, the size, hp and bias, as adamw_update does.
    """

    kernel: str
    moments: tuple[Lane, ...]

    @property
    def entry_point(self) -> str:
        """The name of the kernel."""
        return self.kernel.rpartition("/")[2]
