"""What the plans of all optimizers are assembled from: dispatches, their bindings, uniforms and buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from inspector.codecs import BLOCK, blocks
from inspector.errors import UsageError
from inspector.layout import F32_BYTES, BlockName, Layout
from inspector.param_hyper import Classes
from inspector.param_state import ParamState, place_states
from inspector.plan import (
    UNIFORM_BYTES,
    WORKGROUP_SIZE,
    Access,
    Binding,
    BufferSpec,
    Dispatch,
    Limits,
    Plan,
    UniformSpec,
    UniformType,
    Variant,
    binding_elements,
    required_placement,
    split_grid,
)
from inspector.stores import GIVEN, MOMENTS, Lane, page_buffer, store_at, stores

VEC = 4
"""Elements a thread of most kernels works on."""
F16_BYTES = 2


class Assembly:
    """A plan in the making.

    `moments` are the lanes of state that the optimizer keeps, an element each; `states` what it keeps in other shapes.
    """

    def __init__(
        self,
        layout: Layout,
        limits: Limits,
        variant: Variant,
        classes: Classes | None,
        moments: tuple[Lane, ...] = MOMENTS,
        states: tuple[ParamState, ...] = (),
    ) -> None:
        self.layout = layout
        self.limits = limits
        self.variant = variant
        self.classes = classes
        self.moments = moments
        self.published = variant.grid == "published"
        self.check_variant()
        self._check_places()
        align_bytes = layout.align * F32_BYTES
        if align_bytes % limits.min_storage_buffer_offset_alignment:
            raise UsageError(
                f"Segments aligned to {align_bytes} bytes cannot be bound on this device, which needs multiples of "
                f"{limits.min_storage_buffer_offset_alignment}: lay out with --align "
                f"{limits.min_storage_buffer_offset_alignment}."
            )
        self.chunk = binding_elements(layout, limits)
        if self.chunk == 0:
            raise UsageError(
                f"A binding limit of {limits.max_storage_buffer_binding_size} bytes is smaller than the alignment of "
                f"{align_bytes} bytes."
            )
        self.dispatches: list[Dispatch] = []
        self.uniform_specs: dict[str, UniformSpec] = {}
        self.scratch: dict[str, int] = {}
        """float32 elements taken in each buffer of what is worked out on the way."""
        self.tables = bytearray()
        """What tables hold, one after the other, each begun where a binding may."""
        self.states = place_states(
            layout,
            states,
            align_bytes=limits.min_storage_buffer_offset_alignment,
            max_buffer_bytes=limits.max_buffer_size,
        )
        self.state_at = {(each.name, each.param): each for each in self.states}
        self.scratch_align = max(limits.min_storage_buffer_offset_alignment, F32_BYTES) // F32_BYTES

    def check_variant(self) -> None:
        """Raise UsageError for a form of the step that the optimizer does not have."""

    def _check_places(self) -> None:
        variant, placement = self.variant, self.layout.placement
        wanted = required_placement(variant, self.limits.min_storage_buffer_offset_alignment)
        if placement.align % wanted.align:
            need = wanted.align * F32_BYTES
            raise UsageError(
                f"The {variant.kernel} kernel needs segments aligned to {need} bytes of float32, they are aligned "
                f"to {placement.align * F32_BYTES}: lay out with --align {need}."
            )
        if not placement.covers(wanted):
            raise UsageError(
                "The params are not laid out for this form of the step: the types of their states, or the places "
                "where a binding of 8-bit state may start, are others. Lay them out anew."
            )

    def plan(self) -> Plan:
        """What has been put together."""
        return Plan(
            self.layout,
            self.limits,
            self.variant,
            tuple(self.dispatches),
            tuple(self._buffers()),
            tuple(self.uniform_specs.values()),
            self.classes,
            self.states,
        )

    def reserve(self, buffer: str, elements: int) -> tuple[int, int]:
        """Take float32 elements of a scratch buffer, begun where a binding may; where they begin and how many."""
        at = -(-self.scratch.get(buffer, 0) // self.scratch_align) * self.scratch_align
        self.scratch[buffer] = at + elements
        return at, elements

    def table(self, slot: int, name: str, words: npt.NDArray[np.uint32]) -> Binding:
        """Bind words that kernels look up, the same in every step: uint32, any shape."""
        align = self.scratch_align * F32_BYTES
        self.tables += bytes(-len(self.tables) % align)
        at = len(self.tables)
        self.tables += np.ascontiguousarray(words, "<u4").tobytes()
        return Binding(slot, name, "tables", at, words.nbytes, "read")

    def scratch_range(self, slot: int, name: str, at: int, n: int, access: Access) -> Binding:
        """Bind `n` float32 elements of the scratch buffer `name` from element `at` on."""
        return Binding(slot, name, name, at * F32_BYTES, n * F32_BYTES, access, one_way=True)

    def state_range(self, slot: int, name: str, params: Sequence[str], access: Access) -> Binding:
        """Bind the state `name` of params that follow each other in the layout and have it in one buffer."""
        first, last = self.state_at[name, params[0]], self.state_at[name, params[-1]]
        assert first.buffer == last.buffer
        size = (last.stop - first.start) * F32_BYTES
        return Binding(slot, name, first.buffer, first.start * F32_BYTES, size, access)

    def workspace(self, buffer: str, elements: int) -> None:
        """Have a scratch buffer of at least so many float32 elements, which its users have one after the other."""
        self.scratch[buffer] = max(self.scratch.get(buffer, 0), elements)

    def passes(self, kernel: str, lane: Lane, ranges: Iterable[tuple[int, int]]) -> None:
        """A pass over ranges of one lane: scale or fill_zero."""
        for start, stop in ranges:
            bindings = [self.lane(0, "data", lane, start, stop, "read_write")]
            if kernel == "scale":
                bindings.append(Binding(1, "grad_stats", "grad_stats", 0, 2 * F32_BYTES, "read"))
            bindings.append(self.size(len(bindings), "n", stop - start))
            grid = self.grid(-(-(stop - start) // VEC))
            self.add(kernel, None, (start, stop), grid, tuple(bindings), kernel)

    def grid(self, threads: int, layers: int = 1) -> tuple[int, int, int]:
        """Workgroups for so many threads, two-dimensional beyond what one dimension has; as many for each layer."""
        most = self.limits.max_compute_workgroups_per_dimension
        across, down, _ = split_grid(-(-threads // WORKGROUP_SIZE), most)
        return across, down, layers

    def mirror(self, slot: int, start: int, stop: int) -> Binding:
        """The half-precision mirror, only written: the place in bytes is half that of the float32 lanes."""
        w = self.lane(slot, "w_f16", "w", start, stop, "read_write")
        return replace(
            w,
            buffer="w_f16" + w.buffer[1:],
            offset=w.offset // 2,
            size=w.size // 2,
            one_way=True,
            item_bytes=F16_BYTES,
        )

    def add(
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
        entry_point: str | None = None,
        written: tuple[Binding, ...] | None = None,
        count: int | None = None,
        operations: int = 0,
    ) -> None:
        """Append a dispatch; the entry point is the last part of `kernel` if not given, an `_atomic` left out."""
        if entry_point is None:
            entry_point = kernel.rpartition("/")[2].removesuffix("_atomic")
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
                written=written,
                count=count,
                operations=operations,
            )
        )

    def lane(self, slot: int, name: str, lane: Lane, start: int, stop: int, access: Access) -> Binding:
        """Elements [start, stop) of a lane, which must lie on one page."""
        store = store_at(self.layout, lane, start)
        offset = store.offset(start)
        return Binding(slot, name, store.buffer, offset, store.offset(stop) - offset, access)

    def codes(self, slot: int, start: int, stop: int) -> list[Binding]:
        """The codes of m and v, then their scales."""
        codes, scales = [], []
        for lane in MOMENTS:
            store = store_at(self.layout, lane, start)
            assert store.scales is not None
            first, low = store.offset(start), store.scale_offset(start)
            # Whole blocks: the last one may be begun only.
            n = blocks(stop - start)
            codes.append(
                Binding(slot, f"{lane}_packed", store.buffer, first, n * BLOCK, "read_write", item_bytes=1)
            )
            scales.append(Binding(slot + 2, f"{lane}_scale", store.scales, low, n * F32_BYTES, "read_write"))
            slot += 1
        return [*codes, *scales]

    def size(self, slot: int, name: str, n: int) -> Binding:
        """A u32 uniform that never changes."""
        return self.uniform(slot, name, UniformSpec(f"{name}={n}", "u32", self.next_uniform(), n))

    def value(self, slot: int, name: str, key: str, type_: UniformType) -> Binding:
        """A uniform whose values come from `Optimizer.uniforms` by `key`."""
        return self.uniform(slot, name, UniformSpec(key, type_, self.next_uniform()))

    def next_uniform(self) -> int:
        """Where the next uniform will lie, in bytes."""
        apart = max(self.limits.min_uniform_buffer_offset_alignment, *UNIFORM_BYTES.values())
        return len(self.uniform_specs) * apart

    def uniform(self, slot: int, name: str, spec: UniformSpec) -> Binding:
        """Bind a uniform, laid out once however often it is bound."""
        spec = self.uniform_specs.setdefault(spec.key, spec)
        return Binding(slot, name, "uniforms", spec.offset, spec.size, "uniform")

    def _buffers(self) -> Iterator[BufferSpec]:
        sizes: dict[str, int] = {}
        for lane in (*GIVEN, *self.moments):
            for store in stores(self.layout, lane):
                sizes[store.buffer] = max(sizes.get(store.buffer, 0), store.nbytes)
                if store.scales is not None:
                    sizes[store.scales] = max(sizes.get(store.scales, 0), store.scale_bytes)
        if self.variant.kernel == "f16":
            for page in self.layout.pages:
                sizes[page_buffer("w_f16", self.layout, page.index)] = (page.stop - page.start) * F16_BYTES
        for state in self.states:
            sizes[state.buffer] = max(sizes.get(state.buffer, 0), max(state.stop, 1) * F32_BYTES)
        for name, size in sizes.items():
            yield BufferSpec(name, size, "state")
        yield BufferSpec("grad_stats", 2 * F32_BYTES, "scratch")
        for buffer, elements in self.scratch.items():
            yield BufferSpec(buffer, elements * F32_BYTES, "scratch")
        if self.tables:
            content = bytes(self.tables)
            yield BufferSpec("tables", len(content), "table", content)
        if self.uniform_specs:
            size = self.next_uniform()
            # Plans of other steps differ in their classes: they fit in one buffer more often than not.
            yield BufferSpec(
                "uniforms", size if self.classes is None else 1 << (size - 1).bit_length(), "uniform"
            )
