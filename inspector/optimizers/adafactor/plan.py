"""The plan of an Adafactor step: the norm; then of the params of a range their factors, how far to clip, the update."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from inspector.floats import F32Array
from inspector.hyper import Hyper, Numerics, hp_uniform, max_grad_norm_uniform
from inspector.layout import F32_BYTES, Layout, Segment
from inspector.optimizers.adafactor import tables
from inspector.optimizers.adafactor.oracle import decay_uniform
from inspector.optimizers.adafactor.state import COLUMN, ROW, STATES, VECTOR
from inspector.optimizers.adafactor.tables import Placed
from inspector.optimizers.planning.update import UpdatePlan, UpdateRange
from inspector.param_hyper import Classes, alone
from inspector.plan import Access, Binding, Limits, Plan, Variant, split_grid

FOLDER = "optimizers/adafactor/"


def uniforms(hyper: Hyper, step: int, numerics: Numerics) -> Mapping[str, F32Array]:
    """See `Optimizer.uniforms`; 1-β̂₂ₜ comes from float64 in either numerics."""
    values = {"max_grad_norm": max_grad_norm_uniform(hyper)}
    if hyper.per_param is None:
        decayed, plain = (hp_uniform(hyper, decays=decays) for decays in (True, False))
        return values | {"hp:wd": decayed, "hp:no_wd": plain, "bias": decay_uniform(step)}
    for i, each in enumerate(hyper.per_param.classes):
        if not each.idle and (each.t(step) >= 1 or i in hyper.per_param.of):
            values[f"hp:{i}"] = hp_uniform(alone(hyper, each), decays=True)
            values[f"bias:{i}"] = decay_uniform(each.t(step))
    return values


def plan_adafactor(layout: Layout, limits: Limits, variant: Variant, classes: Classes | None = None) -> Plan:
    """Lay the dispatches out; see `plan_step`."""
    return AdafactorPlan(layout, limits, variant, classes, (), STATES).build()


@dataclass(frozen=True, slots=True)
class _Group:
    """Params of one range that follow each other and are worked on together: all matrices, or all vectors.

    `parts` says where in each scratch buffer the group's elements lie, and how many.
    """

    range: UpdateRange
    factored: bool
    params: tuple[Placed, ...]
    windows: tuple[tuple[int, int], ...]
    parts: Mapping[str, tuple[int, int]]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.segment.name for p in self.params)

    @property
    def elements(self) -> tuple[int, int]:
        return self.params[0].segment.offset, self.params[-1].segment.stop


class AdafactorPlan(UpdatePlan):
    """Per group of params: sums and factors of matrices (of vectors the moments), RMS(u), the scale, the update."""

    def build(self) -> Plan:
        """The dispatches of the step."""
        self._known: dict[tuple[tuple[int, int], int], tuple[Binding, Binding]] = {}
        if self.layout.segments:
            self.add_norm()
            ranges = tuple(self._whole_ranges())
            spans = [span for r in ranges for span in self.layout.pieces(r.start, r.stop, self.chunk)]
            if not self.variant.fused:
                self.passes("scale", "g", spans)
            for each in ranges:
                for group in self._groups(each):
                    self._add_group(group)
            if not self.variant.fused:
                self.passes("fill_zero", "g", spans)
        return self.plan()

    # --- which params go together

    def _groups(self, range_: UpdateRange) -> Iterator[_Group]:
        held = [s for s in self.layout.between(range_.start, range_.stop) if s.numel]
        for factored, run in groupby(held, key=lambda s: len(s.param.shape) >= 2):
            for segments in self._bindable(list(run), factored):
                yield self._group(range_, segments, factored)

    def _bindable(self, segments: Sequence[Segment], factored: bool) -> Iterator[list[Segment]]:
        """Runs of params whose states and sums can each be bound at once."""
        names = (ROW, COLUMN) if factored else (VECTOR,)
        taken: list[Segment] = []
        parts = 0
        for segment in segments:
            parts += tables.most_parts(segment) if factored else 0
            if taken and (parts > self.chunk or not self._adjoin(taken[0], segment, names)):
                yield taken
                taken, parts = [], tables.most_parts(segment) if factored else 0
            taken.append(segment)
        if taken:
            yield taken

    def _adjoin(self, first: Segment, last: Segment, names: Sequence[str]) -> bool:
        """True where the states of all params from one to another can be bound at once."""
        pairs = [(self.state_at[name, first.name], self.state_at[name, last.name]) for name in names]
        return all(a.buffer == b.buffer and b.stop - a.start <= self.chunk for a, b in pairs)

    def _group(self, range_: UpdateRange, segments: Sequence[Segment], factored: bool) -> _Group:
        windows = tuple(self.layout.pieces(segments[0].offset, segments[-1].stop, self.chunk))
        row, column = (ROW, COLUMN) if factored else (VECTOR, VECTOR)
        firsts = [self.state_at[name, segments[0].name].start for name in (row, column)]
        starts = [
            (self.state_at[row, s.name].start - firsts[0], self.state_at[column, s.name].start - firsts[1])
            for s in segments
        ]
        params, sizes = tables.placed(segments, windows, starts, factored=factored)
        names = ("row_parts", "column_parts", "square_parts", "scales")
        wanted = names if factored else names[2:]
        parts = {name: self.reserve(name, n) for name, n in zip(names, sizes, strict=True) if name in wanted}
        return _Group(range_, factored, params, windows, parts)

    # --- the dispatches of a group

    def _add_group(self, group: _Group) -> None:
        if group.factored:
            for window in range(len(group.windows)):
                self._add_sums(group, window)
            self._add_factors(group)
        for window in range(len(group.windows)):
            self._add_rms(group, window)
        self._add_clip(group)
        for window in range(len(group.windows)):
            self._add_update(group, window)

    def _add_sums(self, group: _Group, window: int) -> None:
        bindings = [
            self._window(group, window, 0, "g", "read"),
            self._part(group, 1, "row_parts", "read_write"),
            self._part(group, 2, "column_parts", "read_write"),
            self._grad_stats(3),
        ]
        self._add_tiles("adafactor_sums", group, window, bindings)

    def _add_factors(self, group: _Group) -> None:
        entries = tables.entry_table(group.params)
        bindings = (
            self.state_range(0, ROW, group.names, "read_write"),
            self.state_range(1, COLUMN, group.names, "read_write"),
            self._part(group, 2, "row_parts", "read"),
            self._part(group, 3, "column_parts", "read"),
            self.table(4, "entries", entries),
            self._bias(5, group),
        )
        self._add("adafactor_factors", group, group.elements, len(entries), bindings)

    def _add_rms(self, group: _Group, window: int) -> None:
        bindings = [self._window(group, window, 0, "g", "read")]
        if group.factored:
            bindings += self._states(1, group, "read")
        else:
            bindings.append(self.state_range(1, VECTOR, group.names, "read_write"))
        slot = len(bindings)
        bindings += [self._part(group, slot, "square_parts", "read_write"), self._grad_stats(slot + 1)]
        name = "adafactor_rms" if group.factored else "adafactor_vector_moment"
        self._add_tiles(name, group, window, bindings, bias=not group.factored)

    def _add_clip(self, group: _Group) -> None:
        bindings = (
            # A vector has no rows; something has to be bound there.
            self.state_range(0, ROW if group.factored else VECTOR, group.names, "read"),
            self._part(group, 1, "square_parts", "read"),
            self._part(group, 2, "scales", "read_write"),
            self.table(3, "params", tables.whole_table(group.params, factored=group.factored)),
            self._bias(4, group),
        )
        self._add("adafactor_clip", group, group.elements, len(group.params), bindings)

    def _add_update(self, group: _Group, window: int) -> None:
        g = self._window(group, window, 1, "g", "read_write")
        bindings = [
            self._window(group, window, 0, "w", "read_write"),
            # Read only where setting it to zero is left to a pass of its own.
            g if self.variant.fused else replace(g, one_way=True),
            *self._states(2, group, "read"),
        ]
        slot = len(bindings)
        bindings += [self._part(group, slot, "scales", "read"), self._grad_stats(slot + 1)]
        name = "adafactor_update" if group.factored else "adafactor_vector_update"
        self._add_tiles(name, group, window, bindings, hp=True)

    # --- what they are made of

    def _add_tiles(
        self,
        name: str,
        group: _Group,
        window: int,
        bindings: list[Binding],
        *,
        hp: bool = False,
        bias: bool = False,
    ) -> None:
        """A dispatch with a workgroup a tile of one binding of g."""
        start, stop = group.windows[window]
        slot = len(bindings)
        tiles, matrices = self._tables(group, window)
        bindings += [
            replace(tiles, slot=slot),
            replace(matrices, slot=slot + 1),
            self.size(slot + 2, "size", stop - start),
        ]
        if hp:
            bindings.append(self.value(slot + 3, "hp", self._hp_key(group.range), "vec4<f32>"))
        if bias:
            bindings.append(self._bias(slot + 3, group))
        low, high = group.elements
        workgroups = tiles.items // tables.WORDS
        self._add(name, group, (max(start, low), min(stop, high)), workgroups, tuple(bindings), window)

    def _tables(self, group: _Group, window: int) -> tuple[Binding, Binding]:
        """Tiles and matrices of one binding of g: the same for all dispatches over it, and told once."""
        key = group.elements, window
        known = self._known.get(key)
        if known is None:
            # With settings of their own λ counts as it stands, in either block.
            both = group.range.block is None and group.range.of is None
            decays = [not both or p.segment.block == "wd" for p in group.params]
            tiles = tables.tile_table(group.params, window)
            matrices = tables.matrix_table(group.params, window, group.windows[window][0], decays)
            known = self.table(0, "tiles", tiles), self.table(0, "matrices", matrices)
            self._known[key] = known
        return known

    def _add(
        self,
        name: str,
        group: _Group,
        elements: tuple[int, int],
        workgroups: int,
        bindings: tuple[Binding, ...],
        window: int | None = None,
    ) -> None:
        grid = split_grid(workgroups, self.limits.max_compute_workgroups_per_dimension)
        count = len(group.windows)
        part = f" [{window + 1}/{count}]" if window is not None and count > 1 else ""
        fused = () if self.variant.fused or not any(b.name == "g" for b in bindings) else (("FUSED", 0.0),)
        label = f"{name} {group.range.name}{part}"
        self.add(FOLDER + name, group.range.block, elements, grid, bindings, label, constants=fused)

    def _window(self, group: _Group, window: int, slot: int, lane: str, access: Access) -> Binding:
        return self.lane(slot, lane, "w" if lane == "w" else "g", *group.windows[window], access)

    def _states(self, slot: int, group: _Group, access: Access) -> list[Binding]:
        names = (ROW, COLUMN) if group.factored else (VECTOR,)
        return [self.state_range(slot + i, name, group.names, access) for i, name in enumerate(names)]

    def _part(self, group: _Group, slot: int, name: str, access: Access) -> Binding:
        return self.scratch_range(slot, name, *group.parts[name], access)

    def _grad_stats(self, slot: int) -> Binding:
        return Binding(slot, "grad_stats", "grad_stats", 0, 2 * F32_BYTES, "read")

    def _bias(self, slot: int, group: _Group) -> Binding:
        of = group.range.of
        return self.value(slot, "bias", "bias" if of is None else f"bias:{of}", "vec4<f32>")
