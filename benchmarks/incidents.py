"""What the diagnosis finds in runs with one planted fault each, and what it tells of healthy ones.

    python benchmarks/incidents.py [--long] [--write]

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
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from incidents.healthy import HEALTHY, LONG  # noqa: E402
from incidents.incident import ALARMING, Healthy, Incident, Outcome, run_healthy, run_incident  # noqa: E402
from incidents.suite import KINDS  # noqa: E402

from inspector.findings import Finding  # noqa: E402
from inspector.gpu.device import Gpu  # noqa: E402

HEADING = "## Incidents"
YES, NO = "yes", "**no**"


def run_all(gpu: Gpu, *, long: bool) -> tuple[dict[str, list[Outcome]], list[tuple[Healthy, list[Finding]]]]:
    """Outcomes by kind of fault, and what was found in healthy runs."""
    outcomes = {kind: [_run(gpu, each) for each in incidents] for kind, incidents in KINDS.items()}
    healthy = []
    for each in (*HEALTHY, *(LONG if long else ())):
        print(each.name, file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            healthy.append((each, run_healthy(gpu, each, Path(folder))))
    return outcomes, healthy


def _run(gpu: Gpu, incident: Incident) -> Outcome:
    print(incident.name, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        return run_incident(gpu, incident, Path(folder))


def section(
    outcomes: dict[str, list[Outcome]], healthy: Sequence[tuple[Healthy, list[Finding]]]
) -> Iterator[str]:
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
    total = [0] * 7
    for kind, each in outcomes.items():
        after = [o.steps_until_named for o in each]
        row = [
            len(each),
            sum(bool(o.told) for o in each),
            sum(not o.wrong for o in each),
            *(
                sum(a is not None and low <= a < high for a in after)
                for low, high in ((0, 1), (1, 16), (16, 128))
            ),
            sum(len(o.false_alarms) for o in each),
        ]
        total = [a + b for a, b in zip(total, row, strict=True)]
        yield f"| {kind} | {' | '.join(map(str, row))} |"
    yield f"| all | {' | '.join(map(str, total))} |"
    yield ""
    steps = sum(each.steps for each, _ in healthy)
    alarms = sum(f.severity in ALARMING for _, found in healthy for f in found)
    longest = max(healthy, key=lambda pair: pair[0].steps)[0]
    yield (
        f"{len(healthy)} healthy runs of {steps:,} steps in all, the longest {longest.name.split(',')[0]} for "
        f"{longest.steps:,}: {alarms or 'no'} false alarm{'' if alarms == 1 else 's'}."
    )
    yield ""


def every_run(
    outcomes: dict[str, list[Outcome]], healthy: Sequence[tuple[Healthy, list[Finding]]]
) -> Iterator[str]:
    """Every run, as a document."""
    yield "# Incidents, run by run"
    yield ""
    yield "Written by `incidents.py`; the sums and what the columns mean are in [README.md](README.md)."
    for kind, each in outcomes.items():
        yield ""
        yield f"## {kind[0].upper()}{kind[1:]}"
        yield ""
        yield "| incident | planted | rule | acts in step | named after | found | named right | false alarms |"
        yield "|---|---|---|---|---|---|---|---|"
        for o in each:
            i = o.incident
            after = "" if o.steps_until_named is None else _steps(o.steps_until_named)
            right = YES if not o.wrong else f"{NO}: {o.wrong}"
            alarms = ", ".join(f"{f.rule} in step {f.step:,}" for f in o.false_alarms) or "none"
            found = YES if o.told else NO
            yield (
                f"| {i.name} | {i.fault} | `{i.wanted.rule}` | {i.planted:,} | {after} | {found} | {right} | {alarms} |"
            )
    yield ""
    yield "## Healthy runs"
    yield ""
    yield "| run | what | steps | false alarms | notes |"
    yield "|---|---|---|---|---|"
    for run, found in healthy:
        alarms = ", ".join(f"{f.rule} in step {f.step:,}" for f in found if f.severity in ALARMING) or "none"
        notes = ", ".join(sorted({f"`{f.rule}`" for f in found if f.severity not in ALARMING}))
        yield f"| {run.name} | {run.what} | {run.steps:,} | {alarms} | {notes} |"


def _steps(count: int) -> str:
    return "the same step" if count == 0 else f"{count} step{'s' if count > 1 else ''}"


def main() -> int:
    """Run all; the exit code is 1 where something was not as it should be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--long", action="store_true", help="also the long healthy runs")
    parser.add_argument("--write", action="store_true", help="into incidents.md and README.md")
    options = parser.parse_args()
    gpu = Gpu()
    try:
        outcomes, healthy = run_all(gpu, long=options.long)
    finally:
        gpu.close()
    text = "\n".join(section(outcomes, healthy))
    if options.write:
        (HERE / "incidents.md").write_text("\n".join(every_run(outcomes, healthy)) + "\n", encoding="utf-8")
        readme = HERE / "README.md"
        old = readme.read_text(encoding="utf-8")
        found = re.search(rf"^{HEADING}\n.*?(?=^## |\Z)", old, re.MULTILINE | re.DOTALL)
        new = (
            old.rstrip("\n") + f"\n\n{text}"
            if found is None
            else old[: found.start()] + text + "\n" + old[found.end() :]
        )
        readme.write_text(new.rstrip("\n") + "\n", encoding="utf-8")
    else:
        print(text)
    wrong = any(o.wrong or o.false_alarms for each in outcomes.values() for o in each)
    return int(wrong or any(f.severity in ALARMING for _, found in healthy for f in found))


if __name__ == "__main__":
    raise SystemExit(main())
