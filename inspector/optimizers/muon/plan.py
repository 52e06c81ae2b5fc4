"""The plan of a Muon step: the norm, the directions, each batch of matrices orthogonalised, then all updates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from inspector.errors import UsageError
from inspector.layout import F32_BYTES, Layout, Segment
from inspector.optimizers.matrix.products import ProductPlan, Work
from inspector.optimizers.matrix.stacks import Batch, Stack, batches
from inspector.optimizers.muon.hidden import takes
from inspector.optimizers.muon.oracle import COEFFICIENTS, EPS, ITERATIONS, shape_factor
from inspector.optimizers.planning.assembly import VEC
from inspector.optimizers.planning.update import UpdateRange
from inspector.param_hyper import Classes
from inspector.plan import WORKGROUP_SIZE, Access, Binding, Limits, Plan, Variant
from inspector.stores import Lane

MUON = "muon"
"""The kind of ranges that it updates itself; all others are AdamW's."""
STACKED_ELEMENTS = 40 << 20
"""Of matrices that are orthogonalised together, in scratch buffers of at most 320 MiB: enough to fill a large GPU, on
which XXᵀ of four matrices of 768 by 4,096 ran at 8 TFLOP/s and of twelve at 24 (an H200)."""
IN_TWO_FLOATS = 2
"""How many of the first iterations are worked out in two floats a number.

Each iteration raises small singular values by 3.4445, and as much what rounding left where a matrix has no rank: 485
times in all what was lost at the start, 141 times what the first one lost, 41 times the second, 12 times the third.
"""
PARTS = 64
"""Most sums of squares of a matrix, which every workgroup that divides by their norm adds up for itself."""


def plan_muon(layout: Layout, limits: Limits, variant: Variant, classes: Classes | None = None) -> Plan:
    """Lay the dispatches out; see `plan_step`."""
    return MuonPlan(layout, limits, variant, classes).build()


class MuonPlan(ProductPlan):
    """Hidden matrices by the orthogonalised direction, which stands in v's place; the rest as AdamW."""

    hp_type = "array<vec4<f32>, 2>"
    runs_adamw = True
    runs = True

    def check_variant(self) -> None:
        super().check_variant()
        variant = self.variant
        if not variant.fused:
            raise UsageError("Muon has no unfused form: run it without --unfused.")
        if variant.dispatch == "single":
            raise UsageError(
                "Muon updates hidden matrices and other params with different kernels, so one dispatch cannot do for "
                "all: run it with --dispatch two-block or per-tensor."
            )

    def kind(self, segment: Segment) -> str:
        return MUON if takes(segment.param, self.variant) else ""

    def kernel(self, range_: UpdateRange) -> tuple[str, str]:
        if range_.kind == MUON:
            return "optimizers/muon/muon_update", "muon_update"
        return "adamw_update", "adamw_update"

    def access(self, range_: UpdateRange, moment: Lane) -> Access:
        return "read" if range_.kind == MUON and moment == "v" else "read_write"

    def before_updates(self, ranges: tuple[UpdateRange, ...]) -> None:
        """The direction of every hidden matrix, then batch by batch what is left of it on the way to orthogonal."""
        for range_ in ranges:
            if range_.kind == MUON:
                self._direction(range_)
        for batch, range_ in self._batches(ranges):
            self._orthogonalise(batch, range_)

    def _batches(self, ranges: tuple[UpdateRange, ...]) -> Iterator[tuple[Batch, UpdateRange]]:
        """Matrices of one shape and one class, in the order of the first of each, with a range of their settings."""
        limit = self.limits.max_storage_buffer_binding_size // F32_BYTES
        # They are stacked in two floats at first.
        stacked = min(STACKED_ELEMENTS, limit // 2)
        # The grid counts matrices along z.
        most = self.limits.max_compute_workgroups_per_dimension
        # μ is the same in both blocks: matrices of one class are worked on together also where they lie in either.
        settings = {r.of: r for r in ranges if r.kind == MUON}
        found = [
            (batch, range_)
            for of, range_ in settings.items()
            for batch in batches(
                self.layout, self._matrices(of), "v", bound=limit, stacked=stacked, most=most
            )
        ]
        yield from sorted(found, key=lambda pair: pair[0].start)

    def _matrices(self, of: int | None) -> list[Segment]:
        classes = self.classes or (None,) * len(self.layout.segments)
        pairs = zip(self.layout.segments, classes, strict=True)
        return [s for s, own in pairs if own == of and self.kind(s) == MUON]

    def _direction(self, range_: UpdateRange) -> None:
        start, stop = range_.start, range_.stop
        bindings = (
            self.lane(0, "g", "g", start, stop, "read"),
            self.lane(1, "m", "m", start, stop, "read"),
            replace(self.lane(2, "v", "v", start, stop, "read_write"), one_way=True),
            Binding(3, "grad_stats", "grad_stats", 0, 2 * F32_BYTES, "read"),
            self.size(4, "size", stop - start),
            self.hp(5, range_),
        )
        self.add(
            "optimizers/muon/muon_direction",
            range_.block,
            (start, stop),
            self.grid(-(-(stop - start) // VEC)),
            bindings,
            f"muon_direction {range_.name}",
            constants=tuple(self.constants(range_).items()),
        )

    def _orthogonalise(self, batch: Batch, range_: UpdateRange) -> None:
        rows, columns = batch.shape
        count, side = len(batch.segments), min(rows, columns)
        x, other = (self.stack(name, count, rows, columns, parts=2) for name in ("stacked", "stacked_next"))
        self._normalise(batch, x, range_)
        a, b, c = COEFFICIENTS
        tall = rows > columns
        for i in range(1, ITERATIONS + 1):
            parts = 2 if i <= IN_TWO_FLOATS else 1
            x, other = replace(x, parts=parts), replace(other, parts=parts)
            gram, polynomial = (
                self.stack(name, count, side, side, parts=parts) for name in ("gram", "polynomial")
            )
            done = f"newton_schulz {i}/{ITERATIONS}"
            self.gram(gram, x, self._work(batch, f"{done} {'XᵀX' if tall else 'XXᵀ'}"), transposed=tall)
            self.symmetric_product(
                polynomial, gram, gram, self._work(batch, f"{done} bA + cA²"), alpha=c, beta=b, addend=gram
            )
            work = self._work(batch, f"{done} aX + {'XB' if tall else 'BX'}")
            if tall:
                self.product(other, x, polynomial, work, alpha=1.0, beta=a, addend=x)
            else:
                self.product(other, polynomial, x, work, alpha=1.0, beta=a, addend=x, left_symmetric=True)
            x, other = other, x
        self._unstack(batch, x)

    def _work(self, batch: Batch, what: str) -> Work:
        first = batch.segments[0]
        return Work(
            f"{what} {batch.name}", (batch.start, batch.stop), len(batch.segments) * first.numel, first.block
        )

    def _pieces(self, batch: Batch) -> list[tuple[int, int]]:
        """Elements [start, stop) of the lanes that hold it: a matrix alone may lie on two pages, or be too large."""
        if len(batch.segments) > 1:
            return [(batch.start, batch.stop)]
        return list(self.layout.pieces(batch.start, batch.stop, self.chunk))

    def _normalise(self, batch: Batch, x: Stack, range_: UpdateRange) -> None:
        pieces = self._pieces(batch)
        numel = batch.segments[0].numel
        # Those of several pieces have to begin where a binding may.
        parts = PARTS if len(pieces) > 1 else min(-(-numel // (WORKGROUP_SIZE * 16)), PARTS)
        nbytes = x.count * parts * F32_BYTES
        self.workspace("squares", x.count * parts * len(pieces))
        for i, (start, stop) in enumerate(pieces):
            work = self._work(batch, "sum_squares")
            self.add(
                "optimizers/matrix/sum_squares",
                work.block,
                (start, stop),
                (parts, 1, x.count),
                (
                    self._lane(0, "data", "v", batch, start, stop, "read"),
                    Binding(1, "result", "squares", i * nbytes, nbytes, "read_write", one_way=True),
                    self.size(2, "size", min(numel, stop - start)),
                    self.size(3, "apart", batch.apart),
                ),
                work.name,
                count=min(work.count, stop - start),
            )
        for start, stop in pieces:
            work = self._work(batch, "normalise")
            self.add(
                "optimizers/muon/normalise",
                work.block,
                (start, stop),
                self.grid(x.rows * x.width // VEC, x.count),
                (
                    self._lane(0, "g", "g", batch, start, stop, "read"),
                    self._lane(1, "m", "m", batch, start, stop, "read"),
                    Binding(2, "grad_stats", "grad_stats", 0, 2 * F32_BYTES, "read"),
                    Binding(3, "squares", "squares", 0, nbytes * len(pieces), "read"),
                    Binding(4, "stacked", x.buffer, 0, x.nbytes, "read_write", one_way=True),
                    self.hp(5, range_),
                    *self._placed(6, batch, start, stop),
                ),
                work.name,
                constants=(
                    ("PARTS", float(parts * len(pieces))),
                    ("EPS", EPS),
                    ("PRECISE", float(self.variant.numerics == "precise")),
                ),
                count=min(work.count, stop - start),
            )

    def _unstack(self, batch: Batch, x: Stack) -> None:
        for start, stop in self._pieces(batch):
            work = self._work(batch, "unstack")
            # No param between the matrices is written.
            written = tuple(
                self.lane(1, "data", "v", max(s.offset, start), min(s.stop, stop), "read_write")
                for s in batch.segments
            )
            self.add(
                "optimizers/matrix/unstack",
                work.block,
                (start, stop),
                self.grid(min(stop - start, x.rows * x.columns), x.count),
                (
                    Binding(0, "stacked", x.buffer, 0, x.nbytes, "read"),
                    replace(self._lane(1, "data", "v", batch, start, stop, "read_write"), one_way=True),
                    *self._placed(2, batch, start, stop),
                ),
                work.name,
                constants=(("SCALE", float(shape_factor(x.rows, x.columns))),),
                written=written,
                count=min(work.count, stop - start),
            )

    def _lane(
        self, slot: int, name: str, lane: Lane, batch: Batch, start: int, stop: int, access: Access
    ) -> Binding:
        numel = batch.segments[0].numel
        used = F32_BYTES * min(stop - start, len(batch.segments) * numel)
        return replace(self.lane(slot, name, lane, start, stop, access), used=used)

    def _placed(self, slot: int, batch: Batch, start: int, stop: int) -> tuple[Binding, ...]:
        """Shape and place of the matrices that elements [start, stop) hold, or of the piece of one that they are."""
        rows, columns = batch.shape
        return (
            self.size(slot, "rows", rows),
            self.size(slot + 1, "columns", columns),
            self.size(slot + 2, "apart", batch.apart),
            self.size(slot + 3, "first", start - batch.start),
            self.size(slot + 4, "size", min(stop - start, rows * columns)),
        )
