"""A kernel's WGSL as a text that is edited: what it starts from, and what is wrong with it line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from inspector.kernel_slots import KERNEL_SLOTS
from inspector.own_kernels import OwnKernel
from inspector.own_shaders import kernel_of_text
from inspector.plan import Dispatch, Plan
from inspector.shader_text import unit

EDITED = " (edited)"
"""How what is called a file ends, of a text that lies in none."""
_OWN_GRID = {"reduce_norm_sq": "published/reduce_norm_sq"}
"""Where an own kernel has to add up in another way than the built-in one: the text that does."""
_PLACE = re.compile(r"^(?P<file>.*?):(?P<line>\d+)(?::(?P<column>\d+))?: (?P<text>.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ShaderMessage:
    """What is wrong at a line of a text, and in which column, from 1; 0 where no place is known."""

    line: int
    column: int
    text: str

    @property
    def place(self) -> str:
        """As in "12:5"; "" without a line."""
        return "" if not self.line else f"{self.line}:{self.column}" if self.column else str(self.line)


def edited_file(entry_point: str) -> str:
    """What the text of a kernel is called while it lies in no file."""
    return f"{entry_point}.wgsl{EDITED}"


def is_edited(kernel: OwnKernel | None) -> bool:
    """True of a kernel whose text was edited here."""
    return kernel is not None and kernel.file.endswith(EDITED)


def read_edited(entry_point: str, text: str) -> tuple[OwnKernel | None, tuple[ShaderMessage, ...]]:
    """The kernel that a text holds, and what is wrong with it as far as it is seen without a compiler."""
    kernel, problems = kernel_of_text(text, entry_point, edited_file(entry_point))
    return kernel, tuple(shader_message(entry_point, each) for each in problems)


def shader_message(entry_point: str, sentence: str) -> ShaderMessage:
    """A sentence about the text of a kernel, as its checks and compilers give it, with its place apart."""
    file = edited_file(entry_point)
    found = _PLACE.match(sentence)
    if found is None or found["file"] != file:
        return ShaderMessage(0, 0, sentence.replace(f"{file}: ", "").rstrip("."))
    # The line itself is in sight.
    text = found["text"].partition(", at: ")[0]
    return ShaderMessage(int(found["line"]), int(found["column"] or 0), text.rstrip("."))


def kernels_of(plan: Plan) -> tuple[Dispatch, ...]:
    """The first dispatch of each kernel of a plan, in the order in which they run."""
    found: dict[str, Dispatch] = {}
    for dispatch in plan.dispatches:
        found.setdefault(dispatch.entry_point, dispatch)
    return tuple(found.values())


def fixed(dispatch: Dispatch) -> str:
    """Why the kernel of a dispatch cannot be replaced, as a sentence; "" where it can."""
    if dispatch.entry_point in KERNEL_SLOTS:
        return ""
    return f"{dispatch.entry_point} is to be read only: own kernels take the place of those of AdamW and its passes."


def running_text(dispatch: Dispatch) -> str:
    """The WGSL that a dispatch runs."""
    return dispatch.own.source if dispatch.own is not None else unit(dispatch.kernel).text


def starting_text(dispatch: Dispatch) -> str:
    """What an edit of its kernel starts from: what it runs, or the form of it that an own kernel may have."""
    if dispatch.own is not None:
        return dispatch.own.source
    return built_in_text(dispatch.entry_point, dispatch.kernel)


def built_in_text(entry_point: str, kernel: str) -> str:
    """The text of a built-in kernel in the form that an own kernel may have; the two-pass sum has another grid."""
    return unit(_OWN_GRID.get(entry_point, kernel)).text
