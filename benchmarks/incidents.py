"""What the diagnosis finds in runs with one planted fault each, and what it tells of healthy ones.

    python benchmarks/incidents.py [--long] [--jobs 2] [--write]

The runs are those of tests/incidents, through the engine with full statistics. `--long` adds the long healthy runs,
charlm for 5,000 steps among them; `--write` puts every run into incidents.md and the sums into README.md, both beside
this file; otherwise the sums are printed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from incidents.healthy import HEALTHY, LONG  # noqa: E402
from incidents.incident import ALARMING, run_healthy, run_incident  # noqa: E402
from incidents.suite import INCIDENTS, KINDS  # noqa: E402

from inspector.findings import Finding  # noqa: E402
from inspector.gpu.device import Gpu  # noqa: E402

HEADING = "## Incidents"
YES, NO = "yes", "**no**"


@dataclass(frozen=True, slots=True)
class Planted:
    """What a run with a fault came to. `after` is how many steps after the fault acts it was named."""

    name: str
    fault: str
    rule: str
    planted: int
    after: int | None
    wrong: str
    alarms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Calm:
    """What was told of a healthy run: alarms, and the rules that made a note."""

    name: str
    what: str
    steps: int
    alarms: tuple[str, ...]
    notes: tuple[str, ...]


@cache
def the_gpu() -> Gpu:
    """One device a process."""
    return Gpu()


def run_planted(at: int) -> Planted:
    """Run an incident, by its place in INCIDENTS."""
    incident = INCIDENTS[at]
    print(incident.name, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        o = run_incident(the_gpu(), incident, Path(folder))
    return Planted(
        incident.name, incident.fault, incident.wanted.rule, incident.planted, o.steps_until_named, o.wrong,
        tuple(map(_place, o.false_alarms)),
    )  # fmt: skip


def run_calm(at: int) -> Calm:
    """Run a healthy run, by its place in HEALTHY and LONG."""
    run = (*HEALTHY, *LONG)[at]
    print(run.name, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        found = run_healthy(the_gpu(), run, Path(folder))
    alarms = tuple(_place(f) for f in found if f.severity in ALARMING)
    notes = tuple(sorted({f.rule for f in found if f.severity not in ALARMING}))
    return Calm(run.name, run.what, run.steps, alarms, notes)


def _place(finding: Finding) -> str:
    return f"`{finding.rule}` in step {finding.step:,}"


def section(planted: Sequence[Planted], calm: Sequence[Calm]) -> Iterator[str]:
    """The sums, as a section of README.md."""
    yield HEADING
    yield ""
    yield (
        "`incidents.py`: runs with one planted fault each, those of `tests/incidents`, through the engine with full\n"
        "statistics on the software adapter; [incidents.md](incidents.md) has them one by one. Named right is rule,\n"
        "step, param, index, dispatch and numbers as worked out beforehand from what was planted. What is named later\n"
        "than it acts has to last first (8, 16, 32 or 128 steps), shows in what the next step begins with, or in what\n"
        "comes of it. A false alarm is a warning or an error that the fault does not bring about; on healthy runs any."
    )
    yield ""
    yield "| faults | runs | found | named right | in the same step | 1 to 15 steps later | 16 to 127 | false alarms |"
    yield "|---|---|---|---|---|---|---|---|"
    for kind, rows in (*by_kind(planted), ("all", planted)):
        within = [
            sum(row.after is not None and low <= row.after < high for row in rows)
            for low, high in ((0, 1), (1, 16), (16, 128))
        ]
        counts = [
            len(rows), sum(row.after is not None for row in rows), sum(not row.wrong for row in rows), *within,
            sum(len(row.alarms) for row in rows),
        ]  # fmt: skip
        yield f"| {kind} | {' | '.join(map(str, counts))} |"
    yield ""
    steps, alarms = sum(run.steps for run in calm), sum(len(run.alarms) for run in calm)
    longest = max(calm, key=lambda run: run.steps)
    yield (
        f"{len(calm)} healthy runs, {steps:,} steps in all, {longest.name.split(',')[0]} for {longest.steps:,} among "
        f"them: {alarms or 'no'} false alarm{'' if alarms == 1 else 's'}."
    )


def every_run(planted: Sequence[Planted], calm: Sequence[Calm]) -> Iterator[str]:
    """Every run, as a document."""
    yield "# Incidents, run by run"
    yield ""
    yield "Written by `incidents.py`; the sums and what the columns mean are in [README.md](README.md)."
    for kind, rows in by_kind(planted):
        yield ""
        yield f"## {kind[0].upper()}{kind[1:]}"
        yield ""
        yield "| incident | planted | rule | acts in step | named after | found | named right | false alarms |"
        yield "|---|---|---|---|---|---|---|---|"
        for row in rows:
            after, found = ("", NO) if row.after is None else (_steps(row.after), YES)
            right = f"{NO}: {row.wrong}" if row.wrong else YES
            yield (
                f"| {row.name} | {row.fault} | `{row.rule}` | {row.planted:,} | {after} | {found} | {right} | "
                f"{', '.join(row.alarms) or 'none'} |"
            )
    yield ""
    yield "## Healthy runs"
    yield ""
    yield "| run | what | steps | false alarms | notes |"
    yield "|---|---|---|---|---|"
    for run in calm:
        notes = ", ".join(f"`{rule}`" for rule in run.notes)
        yield f"| {run.name} | {run.what} | {run.steps:,} | {', '.join(run.alarms) or 'none'} | {notes} |"


def by_kind(planted: Sequence[Planted]) -> Iterator[tuple[str, Sequence[Planted]]]:
    """The rows of each kind of fault."""
    at = 0
    for kind, incidents in KINDS.items():
        yield kind, planted[at : at + len(incidents)]
        at += len(incidents)


def _steps(count: int) -> str:
    return "the same step" if count == 0 else f"{count} step{'s' if count > 1 else ''}"


def main() -> int:
    """Run all; the exit code is 1 where something was not as it should be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--long", action="store_true", help="also the long healthy runs")
    parser.add_argument(
        "--jobs", type=int, default=1, help="so many processes, each with a device of its own"
    )
    parser.add_argument("--write", action="store_true", help="into incidents.md and README.md")
    options = parser.parse_args()
    count = len(HEALTHY) + (len(LONG) if options.long else 0)
    with ProcessPoolExecutor(options.jobs) as pool:
        # The longest first.
        calm_runs = {at: pool.submit(run_calm, at) for at in reversed(range(count))}
        planted_runs = [pool.submit(run_planted, at) for at in range(len(INCIDENTS))]
        calm = [calm_runs[at].result() for at in range(count)]
        planted = [run.result() for run in planted_runs]
    text = "\n".join(section(planted, calm))
    if options.write:
        (HERE / "incidents.md").write_text("\n".join(every_run(planted, calm)) + "\n", encoding="utf-8")
        readme = HERE / "README.md"
        old = readme.read_text(encoding="utf-8")
        found = re.search(rf"^{HEADING}\n.*?(?=^## |\Z)", old, re.MULTILINE | re.DOTALL)
        before, after = (
            (old.rstrip("\n") + "\n\n", "") if found is None else (old[: found.start()], old[found.end() :])
        )
        readme.write_text(f"{before}{text}\n\n{after}".rstrip("\n") + "\n", encoding="utf-8")
    else:
        print(text)
    return int(any(row.wrong or row.alarms for row in planted) or any(run.alarms for run in calm))


if __name__ == "__main__":
    raise SystemExit(main())
