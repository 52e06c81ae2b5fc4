"""Products of stacked matrices as dispatches of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.errors import UsageError
from inspector.layout import BlockName
from inspector.optimizers.matrix.stacks import Stack
from inspector.optimizers.planning.update import UpdatePlan

TILE, LARGE_TILE = 64, 128
ENOUGH_TILES = 96
"""Workgroups from which on the larger tile, which loads half as much, is worth it: fewer leave a large GPU idle."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a dispatch on matrices is for: `name` says it, of `count` elements among [start, stop) of the lanes."""

    name: str
    elements: tuple[int, int]
    count: int
    block: BlockName | None = None


class ProductPlan(UpdatePlan):
    """A plan with products of matrices in it, all factors and the result of one in float32, or all in two floats."""

    runs: bool = False
    """Whether long sums are added up in short ones, which rounds less and takes a third longer on a large GPU."""

    def stack(self, buffer: str, count: int, rows: int, columns: int, *, parts: int = 1) -> Stack:
        """Room for so many matrices in a scratch buffer, which is as large as the largest stack that it is for."""
        stack = Stack(buffer, count, rows, columns, parts=parts)
        limit = self.limits.max_storage_buffer_binding_size
        if stack.nbytes > limit:
            raise UsageError(
                f"A matrix of {rows:,} by {columns:,} takes {stack.nbytes:,} bytes{' in two floats' * (parts - 1)}, "
                f"over this device's binding limit of {limit:,}: run it with --optimizer adamw, or use another adapter."
            )
        self.workspace(buffer, stack.elements)
        return stack

    def gram(self, result: Stack, of: Stack, work: Work, *, transposed: bool = False) -> None:
        """result = of · ofᵀ; with `transposed` ofᵀ · of."""
        inner = of.rows if transposed else of.columns
        as_is = float(not transposed)
        self._product(
            "gram", result, of, of, of, inner, work, {"LEFT_AS_IS": as_is, "RIGHT_TRANSPOSED": as_is}
        )

    def symmetric_product(
        self,
        result: Stack,
        left: Stack,
        right: Stack,
        work: Work,
        *,
        alpha: float,
        beta: float,
        addend: Stack,
    ) -> None:
        """result = alpha · left · right + beta · addend, all symmetric: left and right have to commute."""
        self._product(
            "symmetric_product", result, left, right, addend, left.rows, work, {"ALPHA": alpha, "BETA": beta}
        )

    def product(
        self,
        result: Stack,
        left: Stack,
        right: Stack,
        work: Work,
        *,
        alpha: float,
        beta: float,
        addend: Stack,
        left_symmetric: bool = False,
    ) -> None:
        """result = alpha · left · right + beta · addend, of any shapes that fit; a symmetric left is read faster."""
        constants = {} if left_symmetric else {"LEFT_AS_IS": 1.0}
        constants |= {"ALPHA": alpha, "BETA": beta}
        self._product("product", result, left, right, addend, left.columns, work, constants)

    def _product(
        self,
        entry_point: str,
        result: Stack,
        left: Stack,
        right: Stack,
        addend: Stack,
        inner: int,
        work: Work,
        constants: dict[str, float],
    ) -> None:
        symmetric = entry_point != "product"
        kernel, tile = f"products_{TILE}", TILE
        if left.parts > 1:
            kernel, entry_point = "products_two_floats", f"{entry_point}_two_floats"
        else:
            if _tiles(result, LARGE_TILE, symmetric=symmetric) >= ENOUGH_TILES:
                kernel, tile = f"products_{LARGE_TILE}", LARGE_TILE
            constants |= {"RUNS": 1.0} if self.runs else {}
        bindings = (
            left.bound(0, "left", "read"),
            right.bound(1, "right", "read"),
            addend.bound(2, "addend", "read"),
            result.bound(3, "result", "read_write", one_way=True),
            self.size(4, "rows", result.rows),
            self.size(5, "columns", result.columns),
            self.size(6, "inner", inner),
        )
        groups = (-(-result.columns // tile), -(-result.rows // tile), result.count)
        self.add(
            f"optimizers/matrix/{kernel}",
            work.block,
            work.elements,
            groups,
            bindings,
            work.name,
            constants=tuple(constants.items()),
            entry_point=entry_point,
            count=work.count,
            operations=_operations(result, inner, symmetric=symmetric),
        )


def _tiles(stack: Stack, tile: int, *, symmetric: bool) -> int:
    """How many tiles of the results are worked out."""
    across, down = -(-stack.columns // tile), -(-stack.rows // tile)
    return stack.count * (down * (down + 1) // 2 if symmetric else across * down)


def _operations(result: Stack, inner: int, *, symmetric: bool) -> int:
    """Two for each product that is added up; of a symmetric result only those on one side of the diagonal and on it."""
    n = result.rows
    elements = n * (n + 1) // 2 if symmetric else n * result.columns
    return 2 * result.count * elements * inner
