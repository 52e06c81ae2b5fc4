"""The plan of an Adam step: reduce_norm_sq → finalize_grad_stats → the update over the blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, repeat
from typing import Literal

from inspector.codecs import BLOCK, CODEC_NUMBER, blocks
from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.hyper import Hyper, Numerics, bias_uniform, hp_uniform, max_grad_norm_uniform
from inspector.layout import F32_BYTES, BlockName, Layout, Segment, StateType
from inspector.optimizers.update_form import UpdateForm
from inspector.param_hyper import Classes, alone
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
    binding_elements,
    required_placement,
    split_grid,
)
from inspector.settings import IDLE
from inspector.stores import GIVEN, MOMENTS, Lane, page_buffer, pieces, store_at, stores

REDUCE_GROUPS = 512
"""Most workgroups of one norm dispatch: enough to fill a large GPU, few enough to add up in one more pass."""
REDUCE_ELEMENTS_PER_GROUP = WORKGROUP_SIZE * 16
"""Four vec4 a thread and turn of the loop."""
VEC = 4
F16_BYTES = 2


@dataclass(frozen=True, slots=True)
class _Range:
    """What one update works on: elements [start, stop) of one type of state; `block` None where it is of both."""

    block: BlockName | None
    state: StateType
    start: int
    stop: int
    name: str
    of: int | None = None
    """The class of its params where they have settings of their own."""


def uniforms(hyper: Hyper, step: int, numerics: Numerics) -> Mapping[str, F32Array]:
    """The values that change from step to step, float32, by the keys used in the plan.

    Those of classes of params end in the number of the class; an idle one has none, since nothing of it runs.
    """
    if hyper.per_param is not None:
        values = {"max_grad_norm": max_grad_norm_uniform(hyper)}
        for i, each in enumerate(hyper.per_param.classes):
            # What no param is of may well be set for a time before the run.
            if not each.idle and (each.t(step) >= 1 or i in hyper.per_param.of):
                own = alone(hyper, each)
                values[f"hp:{i}"] = hp_uniform(own, decays=True)
                values[f"bias:{i}"] = bias_uniform(own, each.t(step), numerics)
        return values
    return {
        "max_grad_norm": max_grad_norm_uniform(hyper),
        "hp:wd": hp_uniform(hyper, decays=True),
        "hp:no_wd": hp_uniform(hyper, decays=False),
        "bias": bias_uniform(hyper, step, numerics),
    }


def plan_adamw(layout: Layout, limits: Limits, variant: Variant, classes: Classes | None = None) -> Plan:
    """Lay the dispatches out; see `plan_step`."""
    return _Builder(layout, limits, variant, classes, l2=False).build()


def plan_adam_l2(layout: Layout, limits: Limits, variant: Variant, classes: Classes | None = None) -> Plan:
    """The same with weight decay in the gradient."""
    return _Builder(layout, limits, variant, classes, l2=True).build()


def plan_element_wise(
    layout: Layout, limits: Limits, variant: Variant, classes: Classes | None, form: UpdateForm
) -> Plan:
    """The same for an update of another optimizer, with its own kernel and moments; float32 only."""
    return _Builder(layout, limits, variant, classes, l2=False, form=form).build()


class _Builder:
    def __init__(
        self,
        layout: Layout,
        limits: Limits,
        variant: Variant,
        classes: Classes | None,
        *,
        l2: bool,
        form: UpdateForm | None = None,
    ) -> None:
        self.l2 = l2
        self.form = form
        self.moments = MOMENTS if form is None else form.moments
        self.classes = classes
        self.layout = layout
        self.limits = limits
        self.variant = variant
        self.published = variant.grid == "published"
        self._check_variant()
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
        self.partials: dict[str, int] = {}
        """Elements taken in each buffer of partial sums."""
        self.partial_align = max(limits.min_storage_buffer_offset_alignment, F32_BYTES) // F32_BYTES

    def _check_variant(self) -> None:
        variant = self.variant
        if self.form is not None and variant.kernel != "f32":
            raise UsageError(
                f"--kernel {variant.kernel} is there for AdamW, Adam and Adam with L2: run {variant.optimizer} with "
                "--kernel f32."
            )
        if self.form is not None and variant.own.get("adamw_update") is not None:
            raise UsageError(
                f"An own adamw_update takes the place of AdamW's: run it without --optimizer {variant.optimizer}."
            )
        if self.published and variant.reduce != "atomic":
            raise UsageError("The published grid goes with --reduce atomic.")
        if self.published and (variant.kernel != "f32" or not variant.fused):
            raise UsageError("The published grid is there for the fused float32 kernel only.")
        if self.published and (variant.dispatch == "single" or variant.optimizer != "adamw"):
            raise UsageError("The published grid is there for AdamW with dispatches by block or by tensor.")
        self._check_places()

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

    def build(self) -> Plan:
        if self.layout.segments:
            if self.variant.reduce == "two-pass":
                self._two_pass_norm()
            else:
                self._atomic_norm()
            self._finalize()
            ranges = tuple(self._update_ranges())
            if not self.variant.fused:
                self._passes("scale", "g", [(r.start, r.stop) for r in ranges])
            for each in ranges:
                self._update(each)
            if not self.variant.fused:
                if self.variant.kernel == "f16":
                    self._casts()
                self._passes("fill_zero", "g", [(r.start, r.stop) for r in ranges])
        return Plan(
            self.layout,
            self.limits,
            self.variant,
            tuple(self.dispatches),
            tuple(self._buffers()),
            tuple(self.uniform_specs.values()),
            self.classes,
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

    def _update_ranges(self) -> Iterator[_Range]:
        """What each update works on: runs of one type of state, cut to what can be bound."""
        for whole in self._whole_ranges():
            chunk = self._chunk_of(whole)
            parts = tuple(pieces(self.layout, "m", whole.start, whole.stop, chunk))
            for i, (_, start, stop) in enumerate(parts, start=1):
                name = f"{whole.name} [{i}/{len(parts)}]" if len(parts) > 1 else whole.name
                yield replace(whole, start=start, stop=stop, name=name)

    def _whole_ranges(self) -> Iterator[_Range]:
        layout = self.layout
        if self.classes is not None:
            yield from self._class_ranges(self.classes)
            return
        if self.variant.dispatch == "per-tensor":
            for s in layout.segments:
                yield _Range(s.block, s.state, s.offset, s.stop, s.name)
            return
        if self.variant.dispatch == "two-block":
            for run in layout.runs:
                yield _Range(run.block, run.state, run.start, run.stop, run.block.replace("_", "-"))
            return
        for state, group in groupby(layout.runs, key=lambda run: run.state):
            runs = tuple(group)
            yield _Range(None, state, runs[0].start, runs[-1].stop, "all")

    def _class_ranges(self, classes: Classes) -> Iterator[_Range]:
        """The same where params have settings of their own; nothing of those that are idle."""
        parts = [
            (s, of)
            for s, of in zip(self.layout.segments, classes, strict=True)
            # What is empty has no settings to keep apart.
            if s.numel or self.variant.dispatch == "per-tensor"
        ]
        if self.variant.dispatch == "per-tensor":
            for s, of in parts:
                if of != IDLE:
                    yield _Range(s.block, s.state, s.offset, s.stop, f"{s.name} ({_group_words([s])})", of)
            return
        if self.variant.dispatch == "single":
            found = {of for _, of in parts}
            if len(found) > 1:
                what = f"{len(found - {IDLE})} kinds of settings" + (
                    ", and some are idle" if IDLE in found else ""
                )
                raise UsageError(
                    f"One dispatch has one learning rate, and params of this step have {what}: "
                    "run with --dispatch two-block or per-tensor."
                )
        single = self.variant.dispatch == "single"
        for (block, state, of), group in groupby(
            parts, key=lambda part: (None if single else part[0].block, part[0].state, part[1])
        ):
            run = [s for s, _ in group]
            if state == "8bit" and run[0].offset % self.layout.placement.coded_align:
                raise UsageError(
                    f"The 8-bit state of {run[0].name} cannot be bound by itself, as a learning rate or step count of "
                    "its own needs: lay the params out anew, with --dispatch per-tensor."
                )
            if of != IDLE:
                where = "all" if block is None else block.replace("_", "-")
                yield _Range(block, state, run[0].offset, run[-1].stop, f"{where} {_group_words(run)}", of)

    def _chunk_of(self, whole: _Range) -> int:
        """The most elements of a range that one update can bind."""
        if whole.state == "f32":
            return self.chunk
        chunk = binding_elements(self.layout, self.limits, coded=True)
        # What is bound whole need not end where another binding may start.
        uncut = self.limits.max_storage_buffer_binding_size // (F32_BYTES * VEC) * VEC
        if not chunk and whole.stop - whole.start > uncut:
            apart = self.layout.placement.coded_align * F32_BYTES
            raise UsageError(
                f"A binding limit of {self.limits.max_storage_buffer_binding_size} bytes is too small for 8-bit state, "
                f"whose bindings start {apart} bytes of float32 apart on this device: raise the limit "
                "or use another adapter."
            )
        return chunk or uncut

    def _update(self, range_: _Range) -> None:
        block, start, stop = range_.block, range_.start, range_.stop
        n = stop - start
        coded = range_.state == "8bit"
        mirrored = self.variant.kernel == "f16" and self.variant.fused
        threads = n if self.published else -(-n // VEC)
        storage: list[Binding] = [
            self._lane(slot, lane, lane, start, stop, "read_write") for slot, lane in enumerate(GIVEN)
        ]
        if not self.variant.fused:
            # Read only: setting it to zero is left to a pass of its own.
            storage[1] = replace(storage[1], one_way=True)
        if coded:
            storage += self._codes(len(storage), start, stop)
        else:
            storage += [
                self._lane(slot, lane, lane, start, stop, "read_write")
                for slot, lane in enumerate(self.moments, len(storage))
            ]
        if mirrored:
            storage.append(self._mirror(len(storage), start, stop))
        slot = len(storage)
        bindings = (
            *storage,
            Binding(slot, "grad_stats", "grad_stats", 0, 2 * F32_BYTES, "read"),
            self._size(slot + 1, "size", n),
            self._value(slot + 2, "hp", self._hp_key(range_), "vec4<f32>"),
            self._value(slot + 3, "bias", "bias" if range_.of is None else f"bias:{range_.of}", "vec4<f32>"),
        )
        kernel = "adamw_8bit_update" if coded else "adamw_update_f16" if mirrored else "adamw_update"
        path = f"published/{kernel}" if self.published else kernel
        if self.form is not None:
            path, kernel = self.form.kernel, self.form.entry_point
        self._add(
            path,
            block,
            (start, stop),
            self._grid(threads),
            bindings,
            f"{kernel} {range_.name}",
            constants=self._update_constants(range_),
        )

    @staticmethod
    def _hp_key(range_: _Range) -> str:
        if range_.of is not None:
            return f"hp:{range_.of}"
        return "hp:no_wd" if range_.block == "no_wd" else "hp:wd"

    def _update_constants(self, range_: _Range) -> tuple[tuple[str, float], ...]:
        constants = {"PRECISE": float(self.variant.numerics == "precise"), "L2": float(self.l2)}
        if self.published:
            del constants["L2"]
        if not self.variant.fused:
            constants["FUSED"] = 0.0
        if range_.state == "8bit":
            constants["CODEC"] = float(CODEC_NUMBER[self.variant.codec])
        if range_.block is None:
            wd = self.layout.block("wd")
            # With settings of their own λ counts as it stands, in either block.
            decayed = (
                (wd.stop if wd else 0) - range_.start if range_.of is None else range_.stop - range_.start
            )
            constants["WD_ELEMENTS"] = float(min(max(decayed, 0), range_.stop - range_.start))
        return tuple(constants.items())

    def _passes(self, kernel: str, lane: Lane, ranges: Iterable[tuple[int, int]]) -> None:
        """A pass over ranges of one lane: scale or fill_zero."""
        for start, stop in ranges:
            bindings = [self._lane(0, "data", lane, start, stop, "read_write")]
            if kernel == "scale":
                bindings.append(Binding(1, "grad_stats", "grad_stats", 0, 2 * F32_BYTES, "read"))
            bindings.append(self._size(len(bindings), "n", stop - start))
            grid = self._grid(-(-(stop - start) // VEC))
            self._add(kernel, None, (start, stop), grid, tuple(bindings), kernel)

    def _casts(self) -> None:
        for segment, of in zip(self.layout.segments, self.classes or repeat(0), strict=False):
            if of == IDLE:
                # As it was.
                continue
            for start, stop in self.layout.pieces(segment.offset, segment.stop, self.chunk):
                bindings = (
                    self._lane(0, "data", "w", start, stop, "read"),
                    self._mirror(1, start, stop),
                    self._size(2, "n", stop - start),
                )
                grid = self._grid(-(-(stop - start) // VEC))
                self._add(
                    "cast_f32_to_f16", None, (start, stop), grid, bindings, f"cast_f32_to_f16 {segment.name}"
                )

    def _grid(self, threads: int) -> tuple[int, int, int]:
        return split_grid(-(-threads // WORKGROUP_SIZE), self.limits.max_compute_workgroups_per_dimension)

    def _mirror(self, slot: int, start: int, stop: int) -> Binding:
        """The half-precision mirror, only written: the place in bytes is half that of the float32 lanes."""
        w = self._lane(slot, "w_f16", "w", start, stop, "read_write")
        return replace(
            w,
            buffer="w_f16" + w.buffer[1:],
            offset=w.offset // 2,
            size=w.size // 2,
            one_way=True,
            item_bytes=F16_BYTES,
        )

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
            )
        )

    def _lane(self, slot: int, name: str, lane: Lane, start: int, stop: int, access: Access) -> Binding:
        store = store_at(self.layout, lane, start)
        offset = store.offset(start)
        return Binding(slot, name, store.buffer, offset, store.offset(stop) - offset, access)

    def _codes(self, slot: int, start: int, stop: int) -> list[Binding]:
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
        sizes: dict[str, int] = {}
        for lane in (*GIVEN, *self.moments):
            for store in stores(self.layout, lane):
                sizes[store.buffer] = max(sizes.get(store.buffer, 0), store.nbytes)
                if store.scales is not None:
                    sizes[store.scales] = max(sizes.get(store.scales, 0), store.scale_bytes)
        if self.variant.kernel == "f16":
            for page in self.layout.pages:
                sizes[page_buffer("w_f16", self.layout, page.index)] = (page.stop - page.start) * F16_BYTES
        for name, size in sizes.items():
            yield BufferSpec(name, size, "state")
        yield BufferSpec("norm_sq", F32_BYTES, "scratch")
        yield BufferSpec("grad_stats", 2 * F32_BYTES, "scratch")
        for buffer, elements in self.partials.items():
            yield BufferSpec(buffer, elements * F32_BYTES, "scratch")
        if self.uniform_specs:
            size = self._next_uniform()
            # Plans of other steps differ in their classes: they fit in one buffer more often than not.
            yield BufferSpec(
                "uniforms", size if self.classes is None else 1 << (size - 1).bit_length(), "uniform"
            )


def _group_words(segments: Sequence[Segment]) -> str:
    """The groups of settings that params are of, in words."""
    groups = sorted({s.param.group for s in segments})
    shown = ", ".join(map(str, groups[:3])) + (", …" if len(groups) > 3 else "")
    return f"group{'s' if len(groups) > 1 else ''} {shown}"
