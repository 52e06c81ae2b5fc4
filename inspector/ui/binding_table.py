"""What one dispatch binds: buffers with offset and size, uniforms with their values."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QTableWidget, QTableWidgetItem, QWidget

from inspector.optimizers import optimizer
from inspector.plan import Binding, Dispatch, Plan, UniformSpec
from inspector.runtime.snapshots import StepRecord
from inspector.ui import format as fmt
from inspector.ui.tables import FIGURES, LEAST_ROWS, WORDS, row_height, set_widths

COLUMNS = ("slot", "name", "buffer", "access", "offset (bytes)", "size (bytes)", "elements")
MEANS = (
    "@binding of group 0 in the WGSL.",
    "What the kernel calls it; of a uniform with the value that it is given.",
    "The buffer that is bound: a lane, or a small one beside them.",
    "Whether the kernel reads it, writes it, or both.",
    "Where the binding begins in its buffer, in bytes.",
    "How much of the buffer is bound, in bytes.",
    "The same in elements; of a uniform its type.",
)
BYTES = "464,071,680"
SAMPLES = (
    "8", "   lr/(1-β₁ᵗ) = 0.00033210332", "grad_stats", "read write", BYTES, BYTES, "array<vec4<f32>, 2>",
)  # fmt: skip
RIGHT = {4, 5, 6}

HP_NAMES = ("lr", "β₁", "β₂", "λ", "1-β₁", "1-lr·λ", "lr/(1-β₁ᵗ)", "√(1-β₂ᵗ)")
"""Of hp; the last four are there for Adam's kernels."""

Line = tuple[str, ...]


class BindingTable(QTableWidget):
    """A few rows: one a binding, and one below it for each component of a vector of uniforms."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(0, len(COLUMNS), parent)
        self.setObjectName("bindings")
        for column, title in enumerate(COLUMNS):
            header = QTableWidgetItem(title)
            header.setTextAlignment(FIGURES if column in RIGHT else WORDS)
            header.setToolTip(MEANS[column])
            self.setHorizontalHeaderItem(column, header)
        self.setEditTriggers(QTableWidget.EditTrigger.NoEditTriggers)
        self.setSelectionMode(QTableWidget.SelectionMode.NoSelection)
        self.setAccessibleName("Bindings of the dispatch")
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setShowGrid(False)
        self.setAlternatingRowColors(True)
        self.setWordWrap(False)
        self.setFrameShape(QTableWidget.Shape.NoFrame)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(row_height())
        self.horizontalHeader().setDefaultAlignment(WORDS)
        self.setHorizontalScrollMode(QTableWidget.ScrollMode.ScrollPerPixel)
        self.setMinimumHeight(LEAST_ROWS * row_height())
        set_widths(self, SAMPLES)
        self._lines: tuple[Line, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        """The texts shown, row by row."""
        return self._lines

    def show_dispatch(
        self,
        plan: Plan | None,
        dispatch: Dispatch | None,
        values: Mapping[str, tuple[float, ...]],
        record: StepRecord | None = None,
    ) -> None:
        """Show what a dispatch binds, `values` being those of the uniforms by key; nothing for None.

        `record` has what the step has produced so far.
        """
        lines: tuple[Line, ...] = ()
        if plan is not None and dispatch is not None:
            lines = binding_lines(plan, dispatch, values, record)
        if lines == self._lines:
            return
        self._lines = lines
        self.setRowCount(len(lines))
        for row, line in enumerate(lines):
            for column, text in enumerate(line):
                item = QTableWidgetItem(text)
                item.setTextAlignment(FIGURES if column in RIGHT else WORDS)
                item.setToolTip(text)
                self.setItem(row, column, item)


def binding_lines(
    plan: Plan,
    dispatch: Dispatch,
    values: Mapping[str, tuple[float, ...]],
    record: StepRecord | None = None,
) -> tuple[Line, ...]:
    """The rows of the table as text, columns as in COLUMNS."""
    lines: list[Line] = []
    bias_names = optimizer(plan.variant.optimizer).bias_names[plan.variant.numerics]
    for binding in dispatch.bindings:
        spec = plan.uniform_at.get(binding.offset) if binding.access == "uniform" else None
        lines += _lines(binding, spec, values, bias_names)
        if binding.buffer == "grad_stats":
            lines += [("", f"   {text}", *("",) * (len(COLUMNS) - 2)) for text in norm_texts(record, " = ")]
    lines += [
        ("", "set to 0 before", b.buffer, "clear", f"{b.offset:,}", f"{b.size:,}", f"{b.items:,}")
        for b in dispatch.clears
    ]
    return tuple(lines)


def norm_texts(record: StepRecord | None, between: str = " ") -> tuple[str, ...]:
    """gradNorm and clipScale of a step; nothing before they have been computed."""
    if record is None or record.grad_norm is None or record.clip_scale is None:
        return ()
    return (
        f"gradNorm{between}{fmt.number(record.grad_norm)}",
        f"clipScale{between}{fmt.number(record.clip_scale)}",
    )


def clipped_texts(record: StepRecord) -> tuple[str, str]:
    """Which norm is on show where another program clipped the gradients before they were recorded, in a line and in
    sentences; "" of others."""
    theirs = record.clipped_by
    if theirs is None:
        return "", ""
    norm, scale = fmt.number(theirs.grad_norm), fmt.number(theirs.clip_scale)
    if (record.grad_norm, record.clip_scale) == (theirs.grad_norm, theirs.clip_scale):
        return (
            "as recorded, before clipping",
            "The program that was recorded clipped the gradients. These are its norm and its clip scale; captured are "
            "the gradients after it, so that the kernels here work out a norm of what was left.",
        )
    return (
        f"before clipping: norm {norm} · scale {scale}",
        f"The program that was recorded clipped the gradients, of norm {norm}, by {scale} before they were captured. "
        "gradNorm is worked out here, of what was left of them.",
    )


def _lines(
    binding: Binding,
    spec: UniformSpec | None,
    values: Mapping[str, tuple[float, ...]],
    bias_names: tuple[str, ...],
) -> list[Line]:
    known = () if spec is None else values.get(spec.key, ())
    if spec is not None and spec.constant is not None:
        known = (spec.constant,)
    name = binding.name
    if spec is not None and len(known) < 2:
        name += f" = {_number(known[0]) if known else '…'}"
    lines: list[Line] = [
        (
            str(binding.slot),
            name,
            binding.buffer,
            binding.access.replace("_", " "),
            f"{binding.offset:,}",
            f"{binding.size:,}",
            f"{binding.items:,}" if spec is None else spec.type,
        )
    ]
    if len(known) > 1:
        names = {"hp": HP_NAMES, "bias": bias_names}.get(binding.name, ("x", "y", "z", "w"))
        rest = ("",) * (len(COLUMNS) - 2)
        lines += [("", f"   {name} = {_number(v)}", *rest) for name, v in zip(names, known, strict=False)]
    return lines


def _number(value: float) -> str:
    # Uniforms are float32 widened, or whole numbers: show what was sent, not its double.
    return fmt.count(value) if isinstance(value, int) else fmt.exact(value)
