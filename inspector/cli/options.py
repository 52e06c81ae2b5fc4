"""Options shared by the commands, and what they add up to."""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inspector import codecs, hyper, plan
from inspector.errors import UsageError
from inspector.floats import to_json
from inspector.layout import StateType
from inspector.optimizers import OPTIMIZERS, optimizer
from inspector.schedule import Schedule
from inspector.sources.base import Source, remarks_of
from inspector.sources.open import open_source
from inspector.statistics import StatsLevel

if TYPE_CHECKING:
    # Only for what is printed: the window starts without.
    from rich.console import Console
    from rich.table import Table


def _known(name: str | None) -> str | None:
    """The name of an optimizer that there is, or none; UsageError for another."""
    return None if name is None else optimizer(name).name


OPTIMIZER_OPTION: dict[str, Any] = {"callback": _known, "metavar": "|".join(OPTIMIZERS)}
"""What makes an option that of an optimizer; which there are stands in one place."""

SourceArgument = Annotated[
    str,
    typer.Argument(
        help="charlm, gpt-116m, synthetic:N, surface:NAME, or the path of a state file, a checkpoint (files joined by "
        "+), a dump, or a recording.",
        metavar="SOURCE",
    ),
]
SessionArgument = Annotated[
    Path, typer.Argument(help="A recorded session: its folder, or a zip file of it.", metavar="SESSION")
]
Optimizer = Annotated[str, typer.Option(**OPTIMIZER_OPTION, help="Which optimizer runs.")]
Kernel = Annotated[plan.Kernel, typer.Option(help="Form of the update kernel.")]
CodecName = Annotated[
    codecs.Codec, typer.Option("--codec", help="With --kernel 8bit: how m and v become codes.")
]
SmallState = Annotated[
    StateType, typer.Option(help="With --kernel 8bit: state of params below 4,096 elements.")
]
Numerics = Annotated[
    hyper.Numerics, typer.Option(help="1-β in float32 as published, or precise: rounded as by PyTorch.")
]
Reduce = Annotated[
    plan.Reduce, typer.Option(help="How the norm is added up; two-pass gives the same bits every run.")
]
ReduceOrNone = Annotated[
    plan.Reduce | None,
    typer.Option(help="As for run; two-pass if left out, atomic with --grid published.", show_default=False),
]
DispatchForm = Annotated[
    plan.DispatchForm, typer.Option("--dispatch", help="Update dispatches: one a block, or one a tensor.")
]
Grid = Annotated[plan.Grid, typer.Option(help="Grids as bounded here, or ceil(n/256) groups as published.")]
Unfused = Annotated[bool, typer.Option("--unfused", help="Clip, zero and mirror in passes of their own.")]
Stats = Annotated[
    StatsLevel | None,
    typer.Option(
        help="What is counted each step: off (non-finite gradients read 0), light (the gradients), full (params too). "
        "Light if left out, full with --save."
    ),
]
SavePath = Annotated[
    Path | None, typer.Option("--save", help="Record the run to this session, as NAME.session.")
]
Capture = Annotated[
    str | None,
    typer.Option(
        "--capture",
        help="Tensors that --save records: stats (none), grads:N, keyframes:N, flight:K or all, joined by +.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the session of --save from its last keyframe.")
]
Break = Annotated[
    list[str] | None,
    typer.Option(
        "--break",
        metavar="CONDITION",
        help="Stop where this holds: METRIC OP NUMBER, as in 'nonfinite > 0', with @PARAM-GLOB after the metric, or "
        "finding:RULE; with ', hit N' behind it from the Nth hit on. May be given several times.",
    ),
]
Lr = Annotated[float | None, typer.Option(help="Learning rate.")]
Beta1 = Annotated[float | None, typer.Option(help="Decay of the first moment, in [0, 1); of momentum its μ.")]
Beta2 = Annotated[float | None, typer.Option(help="Decay of the second moment, in [0, 1).")]
Eps = Annotated[float | None, typer.Option(help="ε, added to √v̂.")]
WeightDecay = Annotated[float | None, typer.Option(help="Decoupled weight decay λ of the wd block.")]
MaxGradNorm = Annotated[
    float | None, typer.Option(help="Clip limit of the global gradient norm; inf for none.")
]
AdamwText = Annotated[
    str | None,
    typer.Option(
        "--adamw",
        metavar="NAME=NUMBER,…",
        help="With --optimizer muon or shampoo: settings of the params left to AdamW, as in lr=3e-4,beta1=0.9.",
    ),
]
NoMuon = Annotated[
    str,
    typer.Option(
        metavar="GLOB,…",
        help="With --optimizer muon: names of matrices that it is to leave to AdamW as well.",
    ),
]
RootBlock = Annotated[
    int,
    typer.Option(
        help="With --optimizer shampoo: most rows and columns of a block, a multiple of 8 up to 1024."
    ),
]
RootEvery = Annotated[
    int,
    typer.Option(help="With --optimizer shampoo: steps from one time that roots are worked out to the next."),
]
FactorsName = Annotated[
    plan.Factors,
    typer.Option(
        "--factors", help="With --optimizer shampoo: factors as averages, or as sums as in its paper."
    ),
]
ScheduleText = Annotated[
    str | None,
    typer.Option("--schedule", help="constant, warmup:STEPS or cosine:TOTAL[:warmup=N][:floor=F]."),
]
Seed = Annotated[int | None, typer.Option(help="Seed of weights, batches and drawn gradients.", min=0)]
Adapter = Annotated[
    str | None, typer.Option(help="Part of the adapter's name; 'inspector doctor' lists them.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Lockstep = Annotated[
    codecs.Codec | None,
    typer.Option("--lockstep", help="Run 8-bit state by this codec beside, on the same gradients."),
]
UndoMb = Annotated[
    int | None, typer.Option("--undo-mb", help="MB (10⁶ bytes) of GPU memory for going back.", min=0)
]


def make_source(spec: str, schedule: str | None = None, seed: int | None = None) -> Source:
    """The source, with the schedule and seed given instead of its own."""
    from inspector.integrations.torch_files import load_pickled

    made = None if schedule is None else Schedule.from_text(schedule)
    return open_source(spec, schedule=made, seed=seed, load_pickled=load_pickled)


def open_told(
    spec: str, schedule: str | None = None, seed: int | None = None, *, steps: bool = True
) -> Source:
    """The same, and on standard error what a person should know of how it was read; of its `steps` too."""
    made = make_source(spec, schedule, seed)
    for remark in remarks_of(made, steps=steps):
        print(f"inspector: {remark}", file=sys.stderr)
    return made


def whole_number(name: str, value: int) -> int:
    """`value`, or UsageError where it is negative."""
    if value < 0:
        raise UsageError(f"{name} {value} is negative: give a whole number of 0 or more.")
    return value


def print_json(document: Any) -> None:
    """One JSON document to standard output, numbers that are not finite as strings."""
    sys.stdout.write(json.dumps(to_json(document), ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Within the block Ctrl-C waits: calling what it gives raises KeyboardInterrupt if there was one.

    So an interrupt comes between steps, not in the middle of one or of writing a file.
    """
    asked: list[int] = []

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    except ValueError:
        # Not on the main thread, which alone may set handlers: nothing to wait for there.
        yield check
        return
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def make_console() -> Console:
    """Standard output; wide where it is no terminal, so that nothing is folded in a file."""
    from rich.console import Console

    # Names and paths are shown as they are, brackets and colons included.
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False, emoji=False)


def visible(text: str) -> str:
    """`text` with control characters other than the end of a line written out."""
    return "".join(c if c == "\n" or c.isprintable() else ascii(c)[1:-1] for c in text)


def make_table(*left: str, right: Sequence[str] = (), title: str | None = None) -> Table:
    """A plain table: text columns to the left, numbers flush right."""
    from rich import box

    from inspector.cli.plain_table import PlainTable

    table = PlainTable(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for heading in left:
        table.add_column(heading, overflow="fold")
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def as_dict(value: Any) -> dict[str, Any]:
    """A dataclass as a dictionary, one level deep."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
