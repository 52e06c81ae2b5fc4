"""`inspector replay --verify` of a run that another program made: what it computed against what the kernels here do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from inspector.cli.options import make_console, make_table
from inspector.errors import UsageError
from inspector.floats import shortest, significant
from inspector.runtime.reexecution import Reexecution
from inspector.runtime.replay import MakeStepper
from inspector.session.policy import Policy
from inspector.session.records import About
from inspector.session.verdict_summary import Summary, worst_first
from inspector.session.verdicts import WRITTEN, FirstDifference, StepVerdict
from inspector.sources.recording import Recording, Stretch

SHOWN_ROWS = 20


def _nothing_to_compare(about: About) -> str:
    """Why no step can be held against here, and how to record so that one can."""
    policy = Policy.from_text(about.policy)
    every = policy.keyframes_every
    if every is None or policy.gradients_every != 1:
        return (
            "no state after a step was captured together with one before it and the gradients between (policy "
            f"{about.policy}), so there is nothing to hold against; record with --capture all, or keyframes:N+grads:1."
        )
    first = (about.finished_steps // every + 1) * every
    return (
        "the run ended before the state after a step was captured, so there is nothing to hold against: with the "
        f"policy {about.policy} the first is captured once step {first:,} has run."
    )


def reexecute(
    path: Path, source: Recording, found: list[Stretch], left_out: list[str], maker: MakeStepper,
    check: Callable[[], None],
) -> dict[str, Any]:  # fmt: skip
    """Run these stretches again and hold every captured state against here; the document of it."""
    about = source.session.about
    runner = Reexecution(source, maker)
    wanted = [runner.steps(span.first, span.last) for span in found]
    if not any(wanted):
        raise UsageError(f"{path}: {_nothing_to_compare(about)}")
    summary, rows = Summary(), []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    try:
        with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
            pairs = [(span, steps) for span, steps in zip(found, wanted, strict=True) if steps]
            task = progress.add_task("steps", total=sum(steps[-1] - s.first + 1 for s, steps in pairs))
            for span, steps in pairs:
                for verdict in runner.run(span.first, steps[-1], check=check):
                    progress.advance(task)
                    if isinstance(verdict, StepVerdict):
                        summary.take(verdict)
                        rows.append(_step(verdict))
        device, was = runner.device, about.device
        assert device is not None
    finally:
        runner.close()
    return {
        "session": str(path),
        "origin": about.origin,
        "device": {"name": device.name, "backend": device.backend, "software": device.software},
        "recorded_device": {"name": was.name, "backend": was.backend, "software": was.software},
        "steps": rows,
        "compared": {"steps": summary.steps, "anchored": summary.anchored},
        "left_out": left_out,
        "bit_exact": summary.bit_exact,
        "max_ulp": max(summary.max_ulp.values(), default=0.0),
        "max_ulp_in_step": summary.max_ulp_in_step,
        "max_ulp_by_lane": dict(summary.max_ulp),
        "peer_ulp": dict(summary.left),
        "elements": summary.elements,
        "beyond_2_ulp": dict(summary.beyond),
        "first_difference": None if summary.first is None else first_document(summary.first),
        "kinds": [
            {
                "kind": kind.key,
                "words": kind.words,
                "source": kind.source,
                "first_step": kind.first_step,
                "steps": kind.steps,
                "params": dict(kind.params),
            }
            for kind in summary.kinds.values()
        ],
        "by_param": [
            {
                "param": p.param,
                "max_ulp": p.max_ulp,
                "step": p.step,
                "index": p.index,
                "max_bits": p.max_bits,
                "share": p.share,
                "beyond_2_ulp": p.beyond,
                "kinds": p.kinds,
            }
            for p in worst_first(summary.by_param)
        ],
        "parted": _parted(source, [] if summary.agrees else rows),
        "expected": "within 2 ULP, or roundings of a known order",
        "as_expected": summary.agrees,
        "stopped": None,
        "saved": None,
    }


def first_document(first: FirstDifference) -> dict[str, Any]:
    """A first difference as JSON has it."""
    return {
        "step": first.step,
        "dispatch": first.dispatch,
        "buffer": first.buffer,
        "param": first.param,
        "index": first.index,
        "what": first.buffer,
        "recorded": first.recorded,
        "replayed": first.here,
        "float64": first.truth,
        "nearer": first.nearer,
        "ulp": first.ulp,
        "bits": first.bits,
    }


def _parted(source: Recording, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What several processes should have had alike in these steps and had not, the first of each step."""
    parted = ((row["step"], source.session.parted(row["step"])) for row in rows)
    return [
        {"step": step, "rank": p.rank, "param": p.param, "what": p.what, "value": p.value, "others": p.others}
        for step, (p, *_) in ((step, found) for step, found in parted if found)
    ]


def _step(verdict: StepVerdict) -> dict[str, Any]:
    lanes: dict[str, Any] = {}
    for lane in WRITTEN:
        worst = verdict.worst(lane)
        if worst is not None:
            found = worst.lanes[lane]
            lanes[lane] = {"max_ulp": found.max_ulp, "param": worst.param, "index": found.max_index}
    return {
        "step": verdict.step,
        "from": verdict.start,
        **lanes,
        "max_ulp": max((p.max_ulp for p in verdict.params), default=0.0),
        "differing": sum(p.differing for p in verdict.params),
        "kinds": sorted({p.key for p in verdict.params} - {"same"}),
        "bit_exact": not any(p.differing for p in verdict.params),
    }


# --- for people


def show(document: dict[str, Any]) -> None:
    """Print it."""
    console = make_console()
    device = document["device"]
    console.print(
        f"{document['session']}, made by {document['origin']}, again on {device['name']} ({device['backend']})",
        soft_wrap=True,
    )
    for sentence in document["left_out"]:
        console.print(sentence, soft_wrap=True)
    worst = sorted(document["steps"], key=lambda s: -s["max_ulp"])[:SHOWN_ROWS]
    shown = sorted((s for s in worst if not s["bit_exact"]), key=lambda s: s["step"])
    if shown:
        many = "The step" if len(shown) == 1 else f"The {len(shown)} steps"
        which = "Steps" if len(shown) == len(document["steps"]) else f"{many} farthest off"
        table = make_table(
            "step", "from state", right=("w ULP", "m ULP", "v ULP", "differ"), title=f"{which}: largest difference"
        )  # fmt: skip
        for s in shown:
            ulps = (_ulp(s[lane]["max_ulp"]) if lane in s else "n/a" for lane in ("w", "m", "v"))
            table.add_row(f"{s['step']:,}", f"{s['from']:,}", *ulps, f"{s['differing']:,}")
        console.print(table)
    params = [p for p in document["by_param"] if any(p["max_ulp"].values())][:SHOWN_ROWS]
    if params:
        table = make_table(
            "param", right=("w ULP", "m ULP", "v ULP", "w differ", "kind"),
            title="Params: largest difference over all steps",
        )  # fmt: skip
        for p in params:
            ulps = (_ulp(p["max_ulp"].get(lane, 0.0)) for lane in ("w", "m", "v"))
            table.add_row(
                p["param"],
                *ulps,
                f"{significant(100 * p['share'].get('w', 0.0), 3)} %",
                ", ".join(p["kinds"]),
            )
        console.print(table)
    console.print("\n".join(summary(document)), soft_wrap=True)


def summary(document: dict[str, Any]) -> Iterator[str]:
    """What came out of it, in sentences."""
    compared = document["compared"]
    ran_on = compared["steps"] - compared["anchored"]
    yield (
        f"{compared['steps']:,} captured steps were compared, {compared['anchored']:,} from the very state before them"
        + (
            f", {ran_on:,} after running on from an earlier one, over which roundings add up."
            if ran_on
            else "."
        )
    )
    first = document["first_difference"]
    if first is None:
        yield "Every bit is as recorded."
        return
    yield (
        f"The largest difference is {_ulp(document['max_ulp'])} ULP, in units at the larger of the value before the "
        "step and after it."
    )
    beyond = {lane: count for lane, count in document["beyond_2_ulp"].items() if count}
    shares = (
        f"{significant(100 * count / document['elements'], 2)} % of {lane}" for lane, count in beyond.items()
    )
    yield f"More than 2 ULP apart: {', '.join(shares) or 'nothing'}, of {document['elements']:,} elements compared."
    if document["peer_ulp"]:
        left = ", ".join(f"{lane} {_ulp(ulp)}" for lane, ulp in document["peer_ulp"].items())
        yield f"From AdamW in the roundings of the peer named what was recorded is at most so many ULP away: {left}."
    yield f"The first is {first_words(first)}."
    for kind in document["kinds"]:
        params = len(kind["params"])
        yield (
            f"{kind['kind']}, in {kind['steps']:,} step{'' if kind['steps'] == 1 else 's'} and {params:,} "
            f"param{'' if params == 1 else 's'}, first in step {kind['first_step']:,}: {kind['words']}"
        )
    if not document["as_expected"]:
        yield "So the run did not compute what its settings say."
    if document["parted"]:
        part = document["parted"][0]
        of = f" of {part['param']}" if part["param"] else ""
        yield (
            f"Its processes part, first in step {part['step']:,}, where {part['what']}{of} is "
            f"{shortest(part['value'])} in rank {part['rank']} and {shortest(part['others'])} in others: all of it is "
            "run again with the settings of rank 0."
        )


def first_words(first: dict[str, Any]) -> str:
    """A first difference in words, without an end."""
    truth = ""
    if first["float64"] == first["float64"]:
        nearer = {
            "recorded": "what was recorded is nearer",
            "here": "here is nearer",
            "neither": "neither is nearer",
        }
        truth = f", float64 {shortest(first['float64'])} ({nearer[first['nearer']]})"
    at = "" if first["dispatch"] is None else f", dispatch {first['dispatch']}"
    return (
        f"in step {first['step']:,}{at}, {first['buffer']} {first['param']}[{first['index']}]: "
        f"{shortest(first['recorded'])} recorded, {shortest(first['replayed'])} here{truth}, {_ulp(first['ulp'])} ULP "
        f"({first['bits']:,} float32 apart)"
    )


def _ulp(value: float) -> str:
    return significant(value, 2) if value < 10 else f"{value:,.0f}" if value < float("inf") else "not finite"
