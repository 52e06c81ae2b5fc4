"""The dispatches that work out the norm of the gradients and the clip scale, for any optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from inspector.errors import UsageError
from inspector.layout import F32_BYTES
from inspector.optimizers.planning.assembly import Assembly
from inspector.plan import WORKGROUP_SIZE, Binding, split_grid

REDUCE_GROUPS = 512
"""Most workgroups of one norm dispatch: enough to fill a large GPU, few enough for finalize_grad_stats to add up."""
REDUCE_ELEMENTS_PER_GROUP = WORKGROUP_SIZE * 16
"""Four vec4 a thread and turn of the loop."""


FINALIZE, FINAL_PASS = "finalize_grad_stats", "reduce_norm_sq_final"


class NormPlan(Assembly):
    """reduce_norm_sq over everything, then finalize_grad_stats, which adds up what parts of the sum there are."""

    def add_norm(self) -> None:
        """The norm, in the way that the variant has it, and the clip scale."""
        if self.variant.reduce == "atomic":
            self._finalize(self._atomic_sum())
            return
        parts, own = self._partial_sums(), self.variant.own
        # A finalize_grad_stats of a person's is given one number, and a pass of theirs has to run.
        if own.get(FINALIZE) is not None or own.get(FINAL_PASS) is not None:
            total = self._total()
            self._add_partials(parts, total)
            parts = total
        self._finalize(parts)

    def _norm_pieces(self) -> Iterator[tuple[int, int]]:
        """The whole mega-buffer: the gaps inside are zero and add nothing."""
        end = max((s.stop for s in self.layout.segments), default=0)
        return self.layout.pieces(0, end, self.chunk)

    def _total(self) -> Binding:
        """Where the sum is written as one number."""
        self.workspace("norm_sq", 1)
        return Binding(1, "result", "norm_sq", 0, F32_BYTES, "read_write")

    def _partial_sums(self) -> Binding:
        """Add up shares of the squares; the range that holds them all, with zeros between."""
        if self.chunk <= self.scratch_align and self.layout.padded_elements > self.chunk:
            # Partial sums lie an alignment apart, so that adding up a binding of them would leave as many.
            raise UsageError(
                f"A binding limit of {self.limits.max_storage_buffer_binding_size} bytes is too small to "
                f"add up the norm of {self.layout.elements:,} elements: raise it, or lay out with a smaller "
                "alignment."
            )
        regions: list[tuple[int, int]] = []
        buffer = "partials"
        for start, stop in self._norm_pieces():
            groups = min(-(-(stop - start) // REDUCE_ELEMENTS_PER_GROUP), REDUCE_GROUPS)
            groups = min(groups, self.limits.max_compute_workgroups_per_dimension)
            regions.append(self.reserve(buffer, groups))
            result = Binding(
                1, "result", buffer, regions[-1][0] * F32_BYTES, groups * F32_BYTES, "read_write"
            )
            self._reduce("reduce_norm_sq", start, stop, result, (groups, 1, 1))
        # Partials of all pieces lie one after the other (zeros between them), so they add up as one run.
        count = regions[-1][0] + regions[-1][1]
        level = 0
        while count > self.chunk:
            level += 1
            # A buffer of its own for each level: none may be bound to read and to write at once.
            data, buffer, regions = buffer, f"partials[{level}]", []
            for at in range(0, count, self.chunk):
                n = min(self.chunk, count - at)
                regions.append(self.reserve(buffer, 1))
                result = Binding(1, "result", buffer, regions[-1][0] * F32_BYTES, F32_BYTES, "read_write")
                self._add_partials(Binding(0, "data", data, at * F32_BYTES, n * F32_BYTES, "read"), result)
            count = regions[-1][0] + 1
        return Binding(0, "data", buffer, 0, count * F32_BYTES, "read")

    def _add_partials(self, parts: Binding, result: Binding) -> None:
        start, n = parts.offset // F32_BYTES, parts.items
        bindings = (parts, result, self.size(2, "n", n))
        self.add(FINAL_PASS, None, (start, start + n), (1, 1, 1), bindings, "reduce_norm_sq (final)")

    def _atomic_sum(self) -> Binding:
        result = self._total()
        for start, stop in self._norm_pieces():
            n = stop - start
            if self.published:
                kernel = "published/reduce_norm_sq"
                groups = split_grid(-(-n // WORKGROUP_SIZE), self.limits.max_compute_workgroups_per_dimension)
            else:
                kernel = "reduce_norm_sq_atomic"
                count = min(-(-n // REDUCE_ELEMENTS_PER_GROUP), REDUCE_GROUPS)
                groups = (min(count, self.limits.max_compute_workgroups_per_dimension), 1, 1)
            first = not self.dispatches
            self._reduce(kernel, start, stop, result, groups, clears=(result,) if first else ())
        return result

    def _reduce(
        self,
        kernel: str,
        start: int,
        stop: int,
        result: Binding,
        groups: tuple[int, int, int],
        clears: tuple[Binding, ...] = (),
    ) -> None:
        data = self.lane(0, "data", "g", start, stop, "read")
        bindings = (data, result, self.size(2, "n", stop - start))
        self.add(kernel, None, (start, stop), groups, bindings, "reduce_norm_sq", clears=clears)

    def _finalize(self, parts: Binding) -> None:
        bindings = (
            Binding(0, "norm_sq", parts.buffer, parts.offset, parts.size, "read", exact=True),
            Binding(1, "grad_stats", "grad_stats", 0, 2 * F32_BYTES, "read_write"),
            self.value(2, "max_grad_norm", "max_grad_norm", "f32"),
        )
        self.add(FINALIZE, None, (0, 0), (1, 1, 1), bindings, FINALIZE)
