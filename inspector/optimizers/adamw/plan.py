"""The plan of an AdamW step: reduce_norm_sq → finalize_grad_stats → adamw_update over the blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.hyper import Hyper, Numerics, bias_uniform, hp_uniform, max_grad_norm_uniform
from inspector.layout import F32_BYTES, BlockName, Layout
from inspector.plan import (
    WORKGROUP_SIZE,
    Access,
    Binding,
    BufferSpec,
    Dispatch,
    Limits,
    Plan,
    UniformSpec,
    Variant,
    page_buffer,
    split_grid,
)

REDUCE_GROUPS = 512
"""Most workgroups of one norm dispatch: enough to fill a large GPU, few enough to add up in one more pass."""
REDUCE_ELEMENTS_PER_GROUP = WORKGROUP_SIZE * 16
"""Four vec4 a thread and turn of the loop."""
VEC = 4


def uniforms(hyper: Hyper, step: int, numerics: Numerics) -> Mapping[str, F32Array]:
    """The values that change from step to step, float32, by the keys used in the plan."""
    return {
        "max_grad_norm": max_grad_norm_uniform(hyper),
        "hp:wd": hp_uniform(hyper, decays=True),
        "hp:no_wd": hp_uniform(hyper, decays=False),
        "bias": bias_uniform(hyper, step, numerics),
    }


def plan_adamw(layout: Layout, limits: Limits, variant: Variant) -> Plan:
    """Lay the dispatches out; see `plan_step`."""
    return _Builder(layout, limits, variant).build()


class _Builder:
    def __init__(self, layout: Layout, limits: Limits, variant: Variant) -> None:
        self.layout = layout
        self.limits = limits
        self.variant = variant
        self.published = variant.grid == "published"
        if self.published and variant.reduce != "atomic":
            raise UsageError("The published grid goes with --reduce atomic.")
        align_bytes = layout.align * F32_BYTES
        if align_bytes % limits.min_storage_buffer_offset_alignment:
            raise UsageError(
                f"Segments aligned to {align_bytes} bytes cannot be bound on this device, which needs multiples of "
                f"{limits.min_storage_buffer_offset_alignment}: lay out with --align "
                f"{limits.min_storage_buffer_offset_alignment}."
            )
        self.chunk = limits.max_storage_buffer_binding_size // align_bytes * layout.align
        if self.chunk == 0:
            raise UsageError(
                f"A binding limit of {limits.max_storage_buffer_binding_size} bytes is smaller than the alignment of "
                f"{align_bytes} bytes."
            )
        self.dispatches: list[Dispatch] = []
        self.uniform_specs: dict[str, UniformSpec] = {}
        self.partials: dict[str, int] = {}
        """Elements taken in each buffer of partial sums."""
        self.partial_align = max(limits.min_storage_buffer_offset_alignment, F32_BYTES) // F32_BYTES

    def build(self) -> Plan:
        if self.layout.segments:
            if self.variant.reduce == "two-pass":
                self._two_pass_norm()
            else:
                self._atomic_norm()
            self._finalize()
            for block, start, stop, part in self._update_ranges():
                self._update(block, start, stop, part)
        return Plan(
            self.layout,
            self.limits,
            self.variant,
            tuple(self.dispatches),
            tuple(self._buffers()),
            tuple(self.uniform_specs.values()),
        )

    # --- norm

    def _norm_pieces(self) -> Iterator[tuple[int, int]]:
        """The whole mega-buffer: the gaps inside are zero and add nothing."""
        end = max((s.stop for s in self.layout.segments), default=0)
        return self.layout.pieces(0, end, self.chunk)

    def _two_pass_norm(self) -> None:
        if self.chunk <= self.partial_align and self.layout.padded_elements > self.chunk:
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
            regions.append(self._reserve_partials(buffer, groups))
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
                regions.append(self._reserve_partials(buffer, 1))
                result = Binding(1, "result", buffer, regions[-1][0] * F32_BYTES, F32_BYTES, "read_write")
                self._add_partials(data, at, n, result)
            count = regions[-1][0] + 1
        self._add_partials(buffer, 0, count, Binding(1, "result", "norm_sq", 0, F32_BYTES, "read_write"))

    def _reserve_partials(self, buffer: str, groups: int) -> tuple[int, int]:
        at = -(-self.partials.get(buffer, 0) // self.partial_align) * self.partial_align
        self.partials[buffer] = at + groups
        return at, groups

    def _add_partials(self, buffer: str, at: int, n: int, result: Binding) -> None:
        data = Binding(0, "data", buffer, at * F32_BYTES, n * F32_BYTES, "read")
        self._add(
            "reduce_norm_sq_final",
            None,
            (at, at + n),
            (1, 1, 1),
            (data, result, self._size(2, "n", n)),
            "reduce_norm_sq (final)",
        )

    def _atomic_norm(self) -> None:
        result = Binding(1, "result", "norm_sq", 0, F32_BYTES, "read_write")
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

    def _reduce(
        self,
        kernel: str,
        start: int,
        stop: int,
        result: Binding,
        groups: tuple[int, int, int],
        clears: tuple[Binding, ...] = (),
    ) -> None:
        data = self._lane(0, "data", "g", start, stop, "read")
        bindings = (data, result, self._size(2, "n", stop - start))
        self._add(kernel, None, (start, stop), groups, bindings, "reduce_norm_sq", clears=clears)

    def _finalize(self) -> None:
        bindings = (
            Binding(0, "norm_sq", "norm_sq", 0, F32_BYTES, "read"),
            Binding(1, "grad_stats", "grad_stats", 0, 2 * F32_BYTES, "read_write"),
            self._value(2, "max_grad_norm", "max_grad_norm", "f32"),
        )
        self._add("finalize_grad_stats", None, (0, 0), (1, 1, 1), bindings, "finalize_grad_stats")

    # --- update

    def _update_ranges(self) -> Iterator[tuple[BlockName, int, int, str]]:
        """Block, elements [start, stop), and which part of how many it is."""
        for block in self.layout.blocks:
            runs = [(block.start, block.stop)]
            if self.variant.dispatch == "per-tensor":
                runs = [(s.offset, s.stop) for s in block.segments]
            for start, stop in runs:
                pieces = tuple(self.layout.pieces(start, stop, self.chunk))
                for i, piece in enumerate(pieces, start=1):
                    yield block.name, *piece, f" [{i}/{len(pieces)}]" if len(pieces) > 1 else ""

    def _update(self, block: BlockName, start: int, stop: int, part: str) -> None:
        n = stop - start
        threads = n if self.published else -(-n // VEC)
        groups = split_grid(-(-threads // WORKGROUP_SIZE), self.limits.max_compute_workgroups_per_dimension)
        lanes = tuple(
            self._lane(slot, name, name, start, stop, "read_write")
            for slot, name in enumerate(("w", "g", "m", "v"))
        )
        bindings = (
            *lanes,
            Binding(4, "grad_stats", "grad_stats", 0, 2 * F32_BYTES, "read"),
            self._size(5, "size", n),
            self._value(6, "hp", f"hp:{block}", "vec4<f32>"),
            self._value(7, "bias", "bias", "vec4<f32>"),
        )
        label = f"adamw_update {block.replace('_', '-')}"
        if self.variant.dispatch == "per-tensor" and (segment := self.layout.at(start)):
            label = f"adamw_update {segment.name}"
        kernel = "published/adamw_update" if self.published else "adamw_update"
        precise = (("PRECISE", float(self.variant.numerics == "precise")),)
        self._add(kernel, block, (start, stop), groups, bindings, label + part, constants=precise)

    # --- shared

    def _add(
        self,
        kernel: str,
        block: BlockName | None,
        elements: tuple[int, int],
        groups: tuple[int, int, int],
        bindings: tuple[Binding, ...],
        label: str,
        *,
        constants: tuple[tuple[str, float], ...] = (),
        clears: tuple[Binding, ...] = (),
    ) -> None:
        entry_point = kernel.removeprefix("published/").removesuffix("_atomic")
        self.dispatches.append(
            Dispatch(
                len(self.dispatches),
                kernel,
                entry_point,
                label,
                block,
                groups,
                bindings,
                elements,
                constants,
                clears,
            )
        )

    def _lane(self, slot: int, name: str, lane: str, start: int, stop: int, access: Access) -> Binding:
        page = start // self.layout.page_elements if self.layout.page_elements else 0
        origin = self.layout.pages[page].start
        buffer = page_buffer(lane, self.layout, page)
        return Binding(slot, name, buffer, (start - origin) * F32_BYTES, (stop - start) * F32_BYTES, access)

    def _size(self, slot: int, name: str, n: int) -> Binding:
        return self._uniform(slot, name, UniformSpec(f"{name}={n}", "u32", self._next_uniform(), n))

    def _value(self, slot: int, name: str, key: str, type_: Literal["f32", "vec4<f32>"]) -> Binding:
        return self._uniform(slot, name, UniformSpec(key, type_, self._next_uniform()))

    def _next_uniform(self) -> int:
        return len(self.uniform_specs) * max(self.limits.min_uniform_buffer_offset_alignment, 16)

    def _uniform(self, slot: int, name: str, spec: UniformSpec) -> Binding:
        spec = self.uniform_specs.setdefault(spec.key, spec)
        return Binding(slot, name, "uniforms", spec.offset, spec.size, "uniform")

    def _buffers(self) -> Iterator[BufferSpec]:
        for lane in ("w", "g", "m", "v"):
            for page in self.layout.pages:
                size = (page.stop - page.start) * F32_BYTES
                yield BufferSpec(page_buffer(lane, self.layout, page.index), size, "state")
        yield BufferSpec("norm_sq", F32_BYTES, "scratch")
        yield BufferSpec("grad_stats", 2 * F32_BYTES, "scratch")
        for buffer, elements in self.partials.items():
            yield BufferSpec(buffer, elements * F32_BYTES, "scratch")
        if self.uniform_specs:
            yield BufferSpec("uniforms", self._next_uniform(), "uniform")
