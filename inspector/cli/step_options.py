"""Options that say how a step is taken: those that commands have in common, what they add up to, what does nothing."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from inspector import plan
from inspector.adamw_settings import AdamwSettings
from inspector.adamw_settings import parse as parse_adamw
from inspector.cli import options as o
from inspector.cli.shaders import with_shaders
from inspector.errors import UsageError
from inspector.hyper import HYPER_NAMES, Hyper, check_value, with_values
from inspector.optimizers import OPTIMIZERS, optimizer, runs_as
from inspector.own_kernels import NO_OWN_KERNELS
from inspector.race import LaneSpec
from inspector.sources.base import Source, is_seeded
from inspector.sources.open import form_of


@dataclass(frozen=True, slots=True)
class OptimizerOptions:
    """Which optimizer runs, and how its state is kept."""

    optimizer: o.Optimizer = "adamw"
    kernel: o.Kernel = "f32"
    codec: o.CodecName = "linear"
    small_state: o.SmallState = "f32"
    no_muon: o.NoMuon = ""
    root_block: o.RootBlock = plan.DEFAULT_ROOT_BLOCK
    root_every: o.RootEvery = plan.DEFAULT_ROOT_EVERY
    factors: o.FactorsName = "mean"


@dataclass(frozen=True, slots=True)
class FormOptions:
    """How its step is rounded and cut into dispatches."""

    numerics: o.Numerics = "published"
    reduce: o.Reduce = "two-pass"
    dispatch: o.DispatchForm = "two-block"
    unfused: o.Unfused = False


@dataclass(frozen=True, slots=True)
class SettingOptions:
    """The hyper-parameters that were typed, None for the source's own."""

    lr: o.Lr = None
    beta1: o.Beta1 = None
    beta2: o.Beta2 = None
    eps: o.Eps = None
    weight_decay: o.WeightDecay = None
    max_grad_norm: o.MaxGradNorm = None


def make_variant(
    chosen: OptimizerOptions, form: FormOptions, shaders: Path | None = None, *, grid: plan.Grid = "capped"
) -> plan.Variant:
    """The variant that the options name, with the own kernels of `shaders`."""
    rest = o.as_dict(form)
    fused = not rest.pop("unfused")
    return with_shaders(plan.Variant(**o.as_dict(chosen), **rest, fused=fused, grid=grid), shaders)


def how_to_step(
    context: typer.Context,
    source: Source,
    variant: plan.Variant,
    settings: SettingOptions,
    adamw: str | None = None,
) -> tuple[Hyper, plan.Variant]:
    """The settings and the form that `source` is stepped with: its own, with what was typed in their place.

    What of that does nothing is told.
    """
    changed = make_hyper(source, **o.as_dict(settings))
    variant = form_for(context, source, variant)
    changed = with_adamw(changed, source, variant, adamw)
    note_idle(context, variant, source)
    return changed, variant


def note_idle(context: typer.Context, variant: plan.Variant, source: Source | None = None) -> None:
    """One line on standard error for each part of what was asked for that holds for another optimizer or form; and
    where the optimizer takes no param of `source`, what steps them. A seed holds for what is drawn of it."""
    settings = [name for name in HYPER_NAMES if context.params.get(name) is not None]
    tell_idle(variant, settings, given_form(context, variant))
    if source is not None:
        if context.params.get("seed") is not None:
            tell_seeds(["--seed does nothing"], source)
        tell_runs_as(variant.optimizer, variant, source)


def tell_seeds(sentences: Iterable[str], source: Source) -> None:
    """A line each where nothing of `source` is drawn: what a seed that was asked for comes to."""
    for sentence in () if is_seeded(source) else sentences:
        print(f"inspector: {sentence}: nothing of {source.name} is drawn.", file=sys.stderr)


def tell_runs_as(name: str, variant: plan.Variant, source: Source) -> None:
    """One line where the optimizer of what is called `name` takes no param of `source`: what steps them all."""
    if stepped := runs_as(variant, source.params):
        print(f"inspector: {name} steps {source.name} {stepped}.", file=sys.stderr)


def tell_idle(variant: plan.Variant, settings: Iterable[str], form: Mapping[str, Any]) -> None:
    """The same of hyper-parameters by name and of parts of the form, those that were typed."""
    for sentence in idle_sentences(variant, settings, form):
        print(f"inspector: {sentence}", file=sys.stderr)


def idle_sentences(variant: plan.Variant, settings: Iterable[str], form: Mapping[str, Any]) -> Iterator[str]:
    """What of `settings` and `form` a step in the form `variant` does not read."""
    usual = plan.Variant()
    changed = {part: value for part, value in form.items() if value != getattr(usual, part)}
    for name in settings:
        if name not in optimizer(variant.optimizer).settings:
            yield f"{_option(name)} does nothing with --optimizer {variant.optimizer}."
    for each in OPTIMIZERS.values():
        for part in each.form if each.name != variant.optimizer else ():
            if part in changed:
                yield f"{_option(part)} does nothing without --optimizer {each.name}."
    if variant.kernel != "8bit":
        idle = [f"{_option(part)} {changed[part]}" for part in ("codec", "small_state") if part in changed]
        if idle:
            verb = "does" if len(idle) == 1 else "do"
            yield f"{' and '.join(idle)} {verb} nothing without --kernel 8bit."


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def note_idle_lanes(lanes: Sequence[LaneSpec], common: Iterable[str] = ()) -> None:
    """The same of the settings of lanes, and of hyper-parameters by name that were typed for all of them."""
    for name in common:
        readers = [lane for lane in lanes if name in optimizer(lane.optimizer).settings]
        if all(name in lane.hyper for lane in readers):
            why = "each lane that uses it has its own" if readers else "no lane uses it"
            print(f"inspector: {_option(name)} does nothing: {why}.", file=sys.stderr)
    for lane in lanes:
        if idle := lane.idle_words(plan.Variant()):
            print(f"inspector: {idle}.", file=sys.stderr)


_FORM_OPTIONS = {
    "optimizer": "optimizer", "kernel": "kernel", "codec": "codec", "small_state": "small_state",
    "no_muon": "no_muon", "root_block": "root_block", "root_every": "root_every", "factors": "factors",
    "numerics": "numerics", "reduce": "reduce", "dispatch": "dispatch", "unfused": "fused",
}  # fmt: skip
"""The parameters of a command that say in which form a step runs, and the part of the variant each gives."""


def left_out(context: typer.Context, parameter: str) -> bool:
    """True where a parameter has its default, not something typed."""
    return getattr(context.get_parameter_source(parameter), "name", "DEFAULT") == "DEFAULT"


def refuse_all_but(context: typer.Context, used: Sequence[str], why: str) -> None:
    """UsageError with `why`, in which {option} stands for the option, where one was typed that is none of `used`."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in context.params and name not in used and not left_out(context, name):
            raise UsageError(why.format(option=parameter.opts[0]))


def given_form(context: typer.Context, variant: plan.Variant) -> dict[str, Any]:
    """The parts of `variant` that were typed, not left at their default; with own kernels all that they ask for."""
    typed = {
        part
        for parameter, part in _FORM_OPTIONS.items()
        if parameter in context.params and not left_out(context, parameter)
    }
    given = {part: getattr(variant, part) for part in typed}
    if context.params.get("shaders") is not None:
        given |= variant_changes(dataclasses.replace(variant, own=NO_OWN_KERNELS), variant)
    return given


def variant_changes(old: plan.Variant, new: plan.Variant) -> dict[str, Any]:
    """The parts of `new` that are not as in `old`."""
    return {name: value for name, value in o.as_dict(new).items() if value != getattr(old, name)}


def form_for(context: typer.Context, source: Source, variant: plan.Variant) -> plan.Variant:
    """`variant`, or the form that a recording or a checkpoint comes with, with what was typed in its place."""
    glob = plan.unnamed_glob(variant.no_muon, (param.name for param in source.params))
    if glob is not None:
        raise UsageError(
            f"--no-muon {glob!r} names none of the {len(source.params):,} params of {source.name}."
        )
    recorded = form_of(source)
    if recorded is None:
        return variant
    typed = dataclasses.replace(recorded, **given_form(context, variant))
    return with_shaders(typed, context.params.get("shaders"))


def make_hyper(source: Source, **given: float | None) -> Hyper:
    """The source's hyper-parameters with those given in their place. Only what was typed is checked."""
    return with_values(source.hyper, checked(given))


def adamw_settings(variant: plan.Variant, text: str | None) -> AdamwSettings | None:
    """What --adamw says, for a run in that form."""
    return None if text is None else AdamwSettings(parse_adamw(text), variant)


def with_adamw(settings: Hyper, source: Source, variant: plan.Variant, text: str | None) -> Hyper:
    """`settings` with those of --adamw for the params that Muon leaves to AdamW."""
    own = adamw_settings(variant, text)
    return settings if own is None else own.of(settings, source.params)


def checked(given: Mapping[str, float | None]) -> dict[str, float]:
    """The hyper-parameters that were typed; UsageError for a value that nobody can mean."""
    changes = {name: value for name, value in given.items() if value is not None}
    for name, value in changes.items():
        check_value(name, value)
    return changes
