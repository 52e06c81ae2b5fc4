"""The plan of a step that updates element by element: the norm, then one kernel over ranges of the blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, repeat

from inspector.errors import UsageError
from inspector.layout import F32_BYTES, BlockName, Segment, StateType
from inspector.optimizers.planning.assembly import VEC
from inspector.optimizers.planning.norm import NormPlan
from inspector.param_hyper import Classes
from inspector.plan import Access, Binding, Plan, UniformType, binding_elements
from inspector.settings import IDLE
from inspector.stores import GIVEN, Lane, pieces


@dataclass(frozen=True, slots=True)
class UpdateRange:
    """What one update works on: elements [start, stop) of one type of state; `block` None where it is of both."""

    block: BlockName | None
    state: StateType
    start: int
    stop: int
    name: str
    of: int | None = None
    """The class of its params where they have settings of their own."""
    kind: str = ""
    """Which of several ways the optimizer updates them in."""


class UpdatePlan(NormPlan):
    """The norm, and one kernel that updates the elements of each range; `kernel` and `constants` say which."""

    hp_type: UniformType = "vec4<f32>"
    """Of the `hp` uniform; lr, β₁, β₂ and λ come first in it."""

    runs_adamw: bool = False
    """Whether any of its params are updated by AdamW's kernel, which an own one may take the place of."""

    def check_variant(self) -> None:
        """Of float32 alone, in grids as bounded here: other forms are AdamW's, whose plan says which it has."""
        variant = self.variant
        if variant.kernel != "f32":
            raise UsageError(
                f"--kernel {variant.kernel} is there for AdamW, Adam and Adam with L2: run {variant.optimizer} with "
                "--kernel f32."
            )
        if not self.runs_adamw and variant.own.get("adamw_update") is not None:
            raise UsageError(
                f"An own adamw_update takes the place of AdamW's: run it without --optimizer {variant.optimizer}."
            )
        if self.published:
            raise UsageError("The published grid is there for AdamW with dispatches by block or by tensor.")

    def kernel(self, range_: UpdateRange) -> tuple[str, str]:
        """The WGSL file and the entry point that update a range."""
        raise NotImplementedError

    def kind(self, segment: Segment) -> str:
        """The way in which a param is updated, of an optimizer that has several; a range is of one."""
        return ""

    def access(self, range_: UpdateRange, moment: Lane) -> Access:
        """How the update of a range binds a moment."""
        return "read_write"

    def constants(self, range_: UpdateRange) -> dict[str, float]:
        """The pipeline constants of a range's kernel, in the order in which a plan states them."""
        constants = {"PRECISE": float(self.variant.numerics == "precise"), "L2": 0.0}
        if not self.variant.fused:
            constants["FUSED"] = 0.0
        if range_.block is None:
            wd = self.layout.block("wd")
            # With settings of their own λ counts as it stands, in either block.
            decayed = (
                (wd.stop if wd else 0) - range_.start if range_.of is None else range_.stop - range_.start
            )
            constants["WD_ELEMENTS"] = float(min(max(decayed, 0), range_.stop - range_.start))
        return constants

    def build(self) -> Plan:
        """The dispatches of the step."""
        if self.layout.segments:
            self.add_norm()
            ranges = tuple(self.update_ranges())
            if not self.variant.fused:
                self.passes("scale", "g", [(r.start, r.stop) for r in ranges])
            self.before_updates(ranges)
            for each in ranges:
                self._update(each)
            if not self.variant.fused:
                if self.variant.kernel == "f16":
                    self._casts()
                self.passes("fill_zero", "g", [(r.start, r.stop) for r in ranges])
        return self.plan()

    def before_updates(self, ranges: tuple[UpdateRange, ...]) -> None:
        """What has to run between the norm and the first update."""

    def update_ranges(self) -> Iterator[UpdateRange]:
        """What each update works on: runs of one type of state, cut to what can be bound."""
        for whole in self._whole_ranges():
            chunk = self._chunk_of(whole)
            parts = tuple(pieces(self.layout, "m", whole.start, whole.stop, chunk))
            for i, (_, start, stop) in enumerate(parts, start=1):
                name = f"{whole.name} [{i}/{len(parts)}]" if len(parts) > 1 else whole.name
                yield replace(whole, start=start, stop=stop, name=name)

    def _whole_ranges(self) -> Iterator[UpdateRange]:
        layout = self.layout
        if self.classes is not None:
            yield from self._class_ranges(self.classes)
            return
        if self.variant.dispatch == "per-tensor":
            for s in layout.segments:
                yield UpdateRange(s.block, s.state, s.offset, s.stop, s.name, kind=self.kind(s))
            return
        if self.variant.dispatch == "two-block":
            for (block, state, kind), segments in groupby(
                layout.segments, key=lambda s: (s.block, s.state, self.kind(s))
            ):
                run = tuple(segments)
                yield UpdateRange(
                    block, state, run[0].offset, run[-1].stop, block.replace("_", "-"), kind=kind
                )
            return
        for state, alike in groupby(layout.runs, key=lambda run: run.state):
            runs = tuple(alike)
            yield UpdateRange(None, state, runs[0].start, runs[-1].stop, "all")

    def _class_ranges(self, classes: Classes) -> Iterator[UpdateRange]:
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
                    yield UpdateRange(
                        s.block,
                        s.state,
                        s.offset,
                        s.stop,
                        f"{s.name} ({_group_words([s])})",
                        of,
                        self.kind(s),
                    )
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
        for (block, state, of, kind), group in groupby(
            parts,
            key=lambda part: (
                None if single else part[0].block,
                part[0].state,
                part[1],
                self.kind(part[0]),
            ),
        ):
            run = [s for s, _ in group]
            if state == "8bit" and run[0].offset % self.layout.placement.coded_align:
                raise UsageError(
                    f"The 8-bit state of {run[0].name} cannot be bound by itself, as a learning rate or step count of "
                    "its own needs: lay the params out anew, with --dispatch per-tensor."
                )
            if of != IDLE:
                where = "all" if block is None else block.replace("_", "-")
                yield UpdateRange(
                    block, state, run[0].offset, run[-1].stop, f"{where} {_group_words(run)}", of, kind
                )

    def _chunk_of(self, whole: UpdateRange) -> int:
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

    def _update(self, range_: UpdateRange) -> None:
        block, start, stop = range_.block, range_.start, range_.stop
        n = stop - start
        coded = range_.state == "8bit"
        mirrored = self.variant.kernel == "f16" and self.variant.fused
        threads = n if self.published else -(-n // VEC)
        storage: list[Binding] = [
            self.lane(slot, lane, lane, start, stop, "read_write") for slot, lane in enumerate(GIVEN)
        ]
        if not self.variant.fused:
            # Read only: setting it to zero is left to a pass of its own.
            storage[1] = replace(storage[1], one_way=True)
        if coded:
            storage += self.codes(len(storage), start, stop)
        else:
            storage += [
                self.lane(slot, lane, lane, start, stop, self.access(range_, lane))
                for slot, lane in enumerate(self.moments, len(storage))
            ]
        if mirrored:
            storage.append(self.mirror(len(storage), start, stop))
        slot = len(storage)
        bindings = (
            *storage,
            Binding(slot, "grad_stats", "grad_stats", 0, 2 * F32_BYTES, "read"),
            self.size(slot + 1, "size", n),
            self.hp(slot + 2, range_),
            self.value(slot + 3, "bias", "bias" if range_.of is None else f"bias:{range_.of}", "vec4<f32>"),
        )
        path, kernel = self.kernel(range_)
        self.add(
            path,
            block,
            (start, stop),
            self.grid(threads),
            bindings,
            f"{kernel} {range_.name}",
            constants=tuple(self.constants(range_).items()),
        )

    def hp(self, slot: int, range_: UpdateRange) -> Binding:
        """The settings of a range."""
        return self.value(slot, "hp", self._hp_key(range_), self.hp_type)

    @staticmethod
    def _hp_key(range_: UpdateRange) -> str:
        if range_.of is not None:
            return f"hp:{range_.of}"
        return "hp:no_wd" if range_.block == "no_wd" else "hp:wd"

    def _casts(self) -> None:
        for segment, of in zip(self.layout.segments, self.classes or repeat(0), strict=False):
            if of == IDLE:
                # As it was.
                continue
            for start, stop in self.layout.pieces(segment.offset, segment.stop, self.chunk):
                bindings = (
                    self.lane(0, "data", "w", start, stop, "read"),
                    self.mirror(1, start, stop),
                    self.size(2, "n", stop - start),
                )
                grid = self.grid(-(-(stop - start) // VEC))
                self.add(
                    "cast_f32_to_f16", None, (start, stop), grid, bindings, f"cast_f32_to_f16 {segment.name}"
                )


def _group_words(segments: Sequence[Segment]) -> str:
    """The groups of settings that params are of, in words."""
    groups = sorted({s.param.group for s in segments})
    shown = ", ".join(map(str, groups[:3])) + (", …" if len(groups) > 3 else "")
    return f"group{'s' if len(groups) > 1 else ''} {shown}"
