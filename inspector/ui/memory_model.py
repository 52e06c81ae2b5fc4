"""The memory bill as rows: one an optimizer and precision, with what each part of it takes."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt

from inspector.byte_sizes import GB, size_text
from inspector.memory_bill import DEVICE_GB, Bill, Part
from inspector.ui import format as fmt
from inspector.ui.tables import AnyIndex, ColumnsModel

OPTIMIZER, PRECISION, TOTAL, ON_EACH, PER_ELEMENT = range(5)
DEVICES = PER_ELEMENT + 1
BAR = DEVICES + len(DEVICE_GB)
SAMPLES = (
    "adamw, adam, adam-l2", "bf16+master+8bit", "88.8 GB", "88.8 GB", "88.88 B", *("8,888",) * len(DEVICE_GB), "",
)  # fmt: skip
"""Text about as wide as any in its column."""


class BillRows(ColumnsModel):
    """Bills in the order they come in, on so many devices in a ZeRO stage."""

    COLUMNS = (
        "optimizer", "precision", "total", "on each", "per element", *(f"{gb} GB" for gb in DEVICE_GB), "parts",
    )  # fmt: skip
    FIGURE_COLUMNS = frozenset(range(TOTAL, BAR))
    MEANS = (
        "Optimizers that keep the same buffers share a row.",
        "In what weights, gradients and the optimizer's state are kept.",
        "Everything once: weights, gradients, state, master copy and mirror. Units are powers of ten.",
        "What lies on each of the devices in the ZeRO stage chosen.",
        "The total over the number of elements of the weights.",
        *(
            f"The fewest devices of {gb} GB (10⁹ bytes) that hold it in the ZeRO stage chosen, activations not "
            "counted; none where no number does."
            for gb in DEVICE_GB
        ),
        "What lies on each device, against the row that takes most.",
    )

    def __init__(self) -> None:
        super().__init__()
        self.bills: tuple[Bill, ...] = ()
        self.devices, self.stage = 1, 3
        self.most = 0
        """Bytes on each device of the row that takes most there: what bars are drawn against."""

    def show(self, bills: tuple[Bill, ...], devices: int, stage: int) -> None:
        """Show these, spread over so many devices."""
        self.beginResetModel()
        self.bills, self.devices, self.stage = bills, devices, stage
        self.most = max((b.on_each(devices, stage) for b in bills), default=0)
        self.endResetModel()

    def parts(self, row: int) -> tuple[tuple[Part, int], ...]:
        """What a row is made of, with the bytes of each part on each device."""
        return tuple((part, part.on_each(self.devices, self.stage)) for part in self.bills[row].parts)

    def row_total(self) -> int:
        """One row a bill."""
        return len(self.bills)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell; its tooltip is exact."""
        bill, column = self.bills[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return "" if column == BAR else self._text(bill, column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role in (Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleTextRole):
            return self._in_full(index.row(), column)
        return None

    def _text(self, bill: Bill, column: int) -> str:
        if column == OPTIMIZER:
            return ", ".join((bill.optimizer, *bill.also))
        if column == PRECISION:
            return bill.precision.name
        if column == TOTAL:
            return size_text(bill.total)
        if column == ON_EACH:
            return size_text(bill.on_each(self.devices, self.stage))
        if column == PER_ELEMENT:
            return f"{fmt.number(bill.total / bill.elements)} B" if bill.elements else fmt.NA
        needed = bill.devices_of(DEVICE_GB[column - DEVICES] * GB, self.stage)
        return "none" if needed is None else fmt.count(needed)

    def _in_full(self, row: int, column: int) -> str:
        bill = self.bills[row]
        if column == PRECISION:
            return f"{bill.precision.name}: {bill.precision.says}"
        if column == TOTAL:
            return f"{bill.total:,} bytes"
        if column == ON_EACH:
            return f"{bill.on_each(self.devices, self.stage):,} bytes on each of {self.devices:,}"
        if column == BAR:
            lines = (f"{part.name} {size_text(nbytes)}" for part, nbytes in self.parts(row))
            return "On each: " + ", ".join(lines)
        if DEVICES <= column < BAR:
            text, capacity = self._text(bill, column), DEVICE_GB[column - DEVICES]
            if text == "none":
                return f"What ZeRO stage {self.stage} leaves whole on each does not fit into {capacity} GB."
            return f"{text} of {capacity} GB at least, activations not counted"
        return self._text(bill, column)
