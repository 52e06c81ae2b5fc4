"""The plan of a Shampoo step: the norm, the factors, in some steps their roots, what these make of m̂, all updates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from inspector.errors import UsageError
from inspector.layout import F32_BYTES, Layout, Segment
from inspector.optimizers.matrix.products import ProductPlan, Work
from inspector.optimizers.matrix.stacks import Stack
from inspector.optimizers.planning.assembly import VEC
from inspector.optimizers.planning.update import UpdateRange
from inspector.optimizers.shampoo.batches import Batch, batches
from inspector.optimizers.shampoo.blocks import (
    LEFT,
    LEFT_ROOT,
    RIGHT,
    RIGHT_ROOT,
    check_block,
    states,
    takes,
)
from inspector.optimizers.shampoo.oracle import NOTHING, POWER_ITERATIONS, RIDGE
from inspector.param_hyper import Classes
from inspector.plan import Access, Binding, Limits, Plan, Variant
from inspector.stores import Lane

SHAMPOO = "shampoo"
"""The kind of ranges that it updates itself; all others are AdamW's."""
FOLDER = "optimizers/shampoo/"
STACKED_ELEMENTS = 16 << 20
"""Of blocks that are worked on together, in scratch buffers of at most 64 MiB each: 256 blocks of 256 by 256, three
tiles of 128 in each, are several workgroups for every multiprocessor of a large GPU."""


def plan_shampoo(layout: Layout, limits: Limits, variant: Variant, classes: Classes | None = None) -> Plan:
    """Lay the dispatches out, those of the roots included; see `plan_step`."""
    return _planner(layout, limits, variant, classes).build()


def plan_without_roots(
    layout: Layout, limits: Limits, variant: Variant, classes: Classes | None = None
) -> Plan:
    """The same dispatches over the same buffers without those that work out roots."""
    planner = _planner(layout, limits, variant, classes)
    plan = planner.build()
    left = [d for d in plan.dispatches if d.index not in planner.of_roots]
    return replace(plan, dispatches=tuple(replace(d, index=i) for i, d in enumerate(left)))


def _planner(layout: Layout, limits: Limits, variant: Variant, classes: Classes | None) -> ShampooPlan:
    check_block(variant)
    return ShampooPlan(layout, limits, variant, classes, states=states(variant.root_block))


@cache
def iterations(side: int) -> int:
    """Newton iterations that bring any eigenvalue of a factor of that side within float32 of 1.

    The least is the ridge by the Frobenius norm, which is up to √side times the largest; each iteration makes x to
    x·(1.25-0.25x)⁴. One more takes off what the rounding of those before has left.
    """
    x, count = 2.5 * RIDGE / side**0.5, 0
    while abs(x - 1) > 1e-7:
        x, count = x * (1.25 - 0.25 * x) ** 4, count + 1
    return count + 1


@dataclass(frozen=True, slots=True)
class _Side:
    """The left or the right factors of a batch: their names in labels, where they and their roots lie."""

    name: str
    factors: Stack
    roots: Stack


class ShampooPlan(ProductPlan):
    """Matrices by what the roots of their factors make of m̂, which stands in v's place; the rest as AdamW."""

    hp_type = "array<vec4<f32>, 2>"

    def check_variant(self) -> None:
        variant = self.variant
        if variant.kernel != "f32":
            raise UsageError(
                f"--kernel {variant.kernel} is there for AdamW, Adam and Adam with L2: run shampoo with --kernel f32."
            )
        if self.published:
            raise UsageError("The published grid is there for AdamW with dispatches by block or by tensor.")
        if not variant.fused:
            raise UsageError("Shampoo has no unfused form: run it without --unfused.")
        if variant.dispatch == "single":
            raise UsageError(
                "Shampoo updates matrices and other params with different kernels, so one dispatch cannot do for all: "
                "run it with --dispatch two-block or per-tensor."
            )

    def kind(self, segment: Segment) -> str:
        return SHAMPOO if takes(segment.param, self.variant) else ""

    def kernel(self, range_: UpdateRange) -> tuple[str, str]:
        if range_.kind == SHAMPOO:
            return f"{FOLDER}shampoo_update", "shampoo_update"
        return "adamw_update", "adamw_update"

    def access(self, range_: UpdateRange, moment: Lane) -> Access:
        return "read" if range_.kind == SHAMPOO and moment == "v" else "read_write"

    def before_updates(self, ranges: tuple[UpdateRange, ...]) -> None:
        """Batch by batch the factors, their roots, and what these make of m̂."""
        self.of_roots: set[int] = set()
        """The dispatches that work out roots, by index."""
        self._tables: dict[tuple[int, int], Binding] = {}
        """Where the blocks of a batch lie in a window, by where both begin: the same for all that move them."""
        bound = self.limits.max_storage_buffer_binding_size // F32_BYTES
        for whole in self._whole_ranges():
            if whole.kind == SHAMPOO:
                held = [s for s in self.layout.between(whole.start, whole.stop) if s.numel]
                for batch in batches(
                    self.layout,
                    held,
                    self.variant.root_block,
                    self.state_at,
                    bound=self.chunk,
                    stacked=min(STACKED_ELEMENTS, bound),
                    # The grid counts blocks along z.
                    most=self.limits.max_compute_workgroups_per_dimension,
                ):
                    self._precondition(batch, whole)

    # --- a batch

    def _precondition(self, batch: Batch, of: UpdateRange) -> None:
        count, height, width = batch.count, batch.height, batch.width
        x, other = (self.stack(name, count, height, width) for name in ("stacked", "stacked_next"))
        left = self._side("left", batch, LEFT, LEFT_ROOT, batch.left, height)
        right = self._side("right", batch, RIGHT, RIGHT_ROOT, batch.right, width)
        self._gather("shampoo_gradient", batch, of, x)
        for side in (left, right):
            self._factor(side, batch, of, x)
        for side in (left, right):
            first = len(self.dispatches)
            self._roots(side, batch, of)
            self.of_roots.update(range(first, len(self.dispatches)))
        self._gather("shampoo_direction", batch, of, x)
        # Nothing is added: the addend counts 0 times.
        work = self._work(batch, of, "left_root · m̂")
        self.product(other, left.roots, x, work, alpha=1.0, beta=0.0, addend=x, left_symmetric=True)
        work = self._work(batch, of, "left_root · m̂ · right_root")
        self.product(x, other, right.roots, work, alpha=1.0, beta=0.0, addend=other)
        self._scatter(batch, of, x)

    def _side(self, name: str, batch: Batch, factor: str, root: str, at: tuple[str, int], side: int) -> _Side:
        page, start = at
        return _Side(
            name,
            Stack(factor + page, batch.count, side, side, start),
            Stack(root + page, batch.count, side, side, start),
        )

    def _factor(self, side: _Side, batch: Batch, of: UpdateRange, x: Stack) -> None:
        """The factors after this step's gradient."""
        gram = self.stack("gram", batch.count, side.factors.rows, side.factors.rows)
        right = side.name == "right"
        self.gram(gram, x, self._work(batch, of, "GᵀG" if right else "GGᵀ"), transposed=right)
        self.add(
            f"{FOLDER}shampoo_factor",
            of.block,
            (batch.start, batch.stop),
            self.grid(gram.elements // VEC),
            (
                side.factors.bound(0, "factor", "read_write"),
                gram.bound(1, "gram", "read"),
                self.size(2, "size", gram.elements),
                self.hp(3, of),
                self._bias(4, of),
            ),
            self._work(batch, of, f"shampoo_factor {side.name}").name,
            constants=self._form(),
            count=batch.elements,
        )

    def _roots(self, side: _Side, batch: Batch, of: UpdateRange) -> None:
        """Coupled Newton iterations, X ← X·T and M ← M·T⁴ with T = 1.25 I - 0.25 M: X⁻⁴·M stays, M tends to I.

        T is kept less I, so that the last iterations multiply with small numbers, and what they round is smaller still:
        a tenth to a third of what it is otherwise.
        """
        n, count = side.factors.rows, batch.count
        coupled, coupled_next, turn, square = (
            self.stack(name, count, n, n) for name in ("coupled", "coupled_next", "turn", "gram")
        )
        root, root_next = (self.stack(name, count, n, n) for name in ("root", "root_next"))
        self.workspace("root_scales", 2 * count)
        scales = Binding(1, "scales", "root_scales", 0, 2 * count * F32_BYTES, "read_write", one_way=True)
        self._on_factors(
            "shampoo_eigenvalue",
            side,
            batch,
            of,
            (1, 1, count),
            (side.factors.bound(0, "factor", "read"), scales, self.size(2, "side", n)),
            (("ITERATIONS", float(POWER_ITERATIONS)),),
        )
        grid = self.grid(n * n // VEC, count)
        self._on_factors(
            "shampoo_start",
            side,
            batch,
            of,
            grid,
            (
                side.factors.bound(0, "factor", "read"),
                replace(scales, access="read", one_way=False),
                coupled.bound(2, "coupled", "read_write", one_way=True),
                root.bound(3, "root", "read_write", one_way=True),
                self.size(4, "side", n),
                self._bias(5, of),
            ),
            (*self._form(), ("RIDGE", RIDGE), ("NOTHING", NOTHING)),
        )
        last = iterations(n)
        for i in range(1, last + 1):
            done = f"newton {i}/{last} {side.name}"
            bindings = (
                coupled.bound(0, "coupled", "read"),
                turn.bound(1, "turn", "read_write", one_way=True),
                self.size(2, "side", n),
            )
            self._on_factors("shampoo_turn", side, batch, of, grid, bindings, label=f"{done} E = (I - M)/4")
            target = side.roots if i == last else root_next
            self._times(target, root, turn, 1.0, batch, of, f"{done} X·T = X + X·E")
            if i < last:
                self._times(square, turn, turn, 2.0, batch, of, f"{done} T² - I = 2E + E²")
                self._times(turn, square, square, 2.0, batch, of, f"{done} T⁴ - I")
                self._times(coupled_next, coupled, turn, 1.0, batch, of, f"{done} M·T⁴")
            root, root_next = root_next, root
            coupled, coupled_next = coupled_next, coupled

    def _times(
        self, result: Stack, left: Stack, right: Stack, beta: float, batch: Batch, of: UpdateRange, what: str
    ) -> None:
        """result = left · right + beta · left, of polynomials in one matrix: symmetric as they are."""
        self.symmetric_product(
            result, left, right, self._work(batch, of, what), alpha=1.0, beta=beta, addend=left
        )

    def _on_factors(
        self,
        kernel: str,
        side: _Side,
        batch: Batch,
        of: UpdateRange,
        grid: tuple[int, int, int],
        bindings: tuple[Binding, ...],
        constants: tuple[tuple[str, float], ...] = (),
        label: str = "",
    ) -> None:
        self.add(
            FOLDER + kernel,
            of.block,
            (batch.start, batch.stop),
            grid,
            bindings,
            self._work(batch, of, label or f"{kernel} {side.name}").name,
            constants=constants,
            count=batch.elements,
        )

    # --- between the lanes and stacks

    def _gather(self, kernel: str, batch: Batch, of: UpdateRange, x: Stack) -> None:
        """Blocks of the gradient, or of m̂, from the lanes into a stack."""
        directions = kernel == "shampoo_direction"
        for start, stop in self._windows(batch):
            bindings = [self._window(0, "g", batch, start, stop, "read")]
            if directions:
                bindings.append(self._window(1, "m", batch, start, stop, "read"))
            slot = len(bindings)
            bindings += [
                Binding(slot, "grad_stats", "grad_stats", 0, 2 * F32_BYTES, "read"),
                x.bound(slot + 1, "stacked", "read_write", one_way=True),
                *self._blocks(slot + 2, batch, start, stop),
            ]
            if directions:
                slot = len(bindings)
                bindings += [self.hp(slot, of), self._bias(slot + 1, of)]
            self._move(kernel, batch, of, (start, stop), x, tuple(bindings))

    def _scatter(self, batch: Batch, of: UpdateRange, x: Stack) -> None:
        """A stack of blocks to v's place."""
        for start, stop in self._windows(batch):
            # No param between the matrices is written.
            written = tuple(
                self.lane(1, "data", "v", max(low, start), min(high, stop), "read_write")
                for low, high in batch.runs()
                if low < stop and high > start
            )
            bindings = (
                x.bound(0, "stacked", "read"),
                replace(self._window(1, "v", batch, start, stop, "read_write"), name="data", one_way=True),
                *self._blocks(2, batch, start, stop),
            )
            self._move("shampoo_scatter", batch, of, (start, stop), x, bindings, written)

    def _move(
        self,
        kernel: str,
        batch: Batch,
        of: UpdateRange,
        window: tuple[int, int],
        x: Stack,
        bindings: tuple[Binding, ...],
        written: tuple[Binding, ...] | None = None,
    ) -> None:
        low, high = max(window[0], batch.start), window[1]
        constants = (
            () if kernel == "shampoo_scatter" else (("PRECISE", float(self.variant.numerics == "precise")),)
        )
        self.add(
            FOLDER + kernel,
            of.block,
            (low, high),
            self.grid(x.rows * x.columns, x.count),
            bindings,
            self._work(batch, of, kernel).name,
            constants=constants,
            written=written,
            count=min(batch.elements, high - low),
        )

    def _windows(self, batch: Batch) -> list[tuple[int, int]]:
        """Elements [start, stop) of the lanes to bind for it: a band alone may lie on two pages, or be too large."""
        # From where a binding may begin, which is in the same param.
        low = batch.start // self.layout.align * self.layout.align
        return list(self.layout.pieces(low, batch.stop, self.chunk))

    def _window(self, slot: int, lane: Lane, batch: Batch, start: int, stop: int, access: Access) -> Binding:
        used = F32_BYTES * min(stop - start, batch.elements)
        return replace(self.lane(slot, lane, lane, start, stop, access), used=used)

    def _blocks(self, slot: int, batch: Batch, start: int, stop: int) -> tuple[Binding, ...]:
        """Where the blocks lie in a window, and their size."""
        return (
            self._table(slot, batch, start),
            self.size(slot + 1, "height", batch.height),
            self.size(slot + 2, "width", batch.width),
            self.size(slot + 3, "size", stop - start),
        )

    def _table(self, slot: int, batch: Batch, start: int) -> Binding:
        key = (batch.start, start)
        if key not in self._tables:
            self._tables[key] = self.table(0, "blocks", batch.table(start))
        return replace(self._tables[key], slot=slot)

    def _bias(self, slot: int, of: UpdateRange) -> Binding:
        return self.value(slot, "bias", "bias" if of.of is None else f"bias:{of.of}", "vec4<f32>")

    def _form(self) -> tuple[tuple[str, float], ...]:
        return (
            ("PRECISE", float(self.variant.numerics == "precise")),
            ("SUMMED", float(self.variant.factors == "sum")),
        )

    def _work(self, batch: Batch, of: UpdateRange, what: str) -> Work:
        return Work(f"{what} {batch.name}", (batch.start, batch.stop), batch.elements, of.block)
