"""`inspector diff`: what two recordings differ in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from inspector.cli.options import as_dict, interruptible, make_console, make_table, print_json
from inspector.floats import significant
from inspector.session.compare import Difference
from inspector.session.diff import diff as diff_sessions
from inspector.session.diff_report import difference_words, value_text
from inspector.session.differences import METRICS, STATE, SessionDiff, histogram
from inspector.session.reader import Session

SHOWN_ROWS = 20


def diff(a: Path, b: Path, *, json: bool) -> int:
    """Compare and print; 0 whether they differ or not, as both is an answer."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with (
        interruptible() as check,
        Session.open(a) as mine,
        Session.open(b) as other,
        Progress(
            *columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
        ) as bar,
    ):
        task = bar.add_task("comparing", total=1.0)
        found = diff_sessions(
            mine, other, check=check, progress=lambda share: bar.update(task, completed=share)
        )
        document = describe(found, mine, other)
    print_json(document) if json else _show(document)
    return 0


def describe(found: SessionDiff, a: Session, b: Session) -> dict[str, Any]:
    """The document of --json."""
    return {
        "a": _session(a),
        "b": _session(b),
        "steps": [
            {
                "step": step,
                **{
                    name: {
                        "a": _known(found.a[name][i]),
                        "b": _known(found.b[name][i]),
                        "ulp": _ulp(found.ulp[name][i]),
                    }
                    for name in METRICS
                },
            }
            for i, step in enumerate(found.steps)
        ],
        "same": found.same,
        "first_difference": None if found.first is None else _first(found.first),
        "settings": [
            {"step": s.step, "name": s.name, "a": _plain(s.a), "b": _plain(s.b)} for s in found.settings
        ],
        "params": [
            {
                "name": p.name,
                "tensors": {
                    lane: [
                        {"step": step, "relative": value, "max_ulp": p.ulps[lane][step]}
                        for step, value in values.items()
                    ]
                    for lane, values in p.tensors.items()
                },
                "norms": {
                    what: [{"step": step, "relative": value} for step, value in values.items()]
                    for what, values in p.norms.items()
                },
            }
            for p in found.params
        ],
        "keyframes": [
            {
                "step": step,
                **{
                    lane: {"differing": d.differing, "max_ulp": d.max_ulp, "relative": d.relative}
                    for lane, d in lanes.items()
                },
            }
            for step, lanes in found.keyframes.items()
        ],
        "ulp_histogram": histogram(found) if found.keyframes else None,
        "ulp_histograms": {
            **({lane: histogram(found, lane) for lane in STATE} if found.keyframes else {}),
            **({"g": histogram(found, "g")} if found.gradients else {}),
        },
        "timings": [{"kernel": t.kernel, "a_ms": t.a, "b_ms": t.b, "ratio": t.ratio} for t in found.timings],
    }


def _session(session: Session) -> dict[str, Any]:
    about = session.about
    steps = session.steps
    return {
        "path": str(session.path),
        "source": about.source,
        "device": about.device.name,
        "first": steps.start,
        "last": steps.stop - 1,
    }


def _known(value: float) -> float | None:
    return None if value != value else float(value)


def _ulp(value: int) -> int | None:
    return None if value < 0 else int(value)


def _plain(value: object) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def _first(first: Difference) -> dict[str, Any]:
    return as_dict(first)


def _show(document: dict[str, Any]) -> None:
    console = make_console()
    a, b = document["a"], document["b"]
    console.print(f"a: {a['path']}, steps {a['first']:,} to {a['last']:,}", soft_wrap=True)
    console.print(f"b: {b['path']}, steps {b['first']:,} to {b['last']:,}", soft_wrap=True)
    for s in document["settings"]:
        console.print(
            f"From step {s['step']:,} on: {s['name']} is {s['a']} in a, {s['b']} in b.", soft_wrap=True
        )
    steps = [s for s in document["steps"] if any(s[name]["ulp"] for name in METRICS)]
    if steps:
        shown = steps[:SHOWN_ROWS]
        titles = [t for name in METRICS for t in (f"{name} a", "b", "ULP")]
        table = make_table("step", right=titles, title=f"{len(shown)} of {len(steps):,} steps that differ")
        for s in shown:
            cells = [value_text(s[name][part]) for name in METRICS for part in ("a", "b", "ulp")]
            table.add_row(str(s["step"]), *cells)
        console.print(table)
    if document["keyframes"]:
        table = make_table(
            "step", right=("‖Δw‖/‖w‖", "w differ", "max ULP"), title="Captured weights, the last first"
        )
        for k in document["keyframes"][: -SHOWN_ROWS - 1 : -1]:
            w = k["w"]
            table.add_row(
                str(k["step"]), significant(w["relative"], 3), f"{w['differing']:,}", f"{w['max_ulp']:,}"
            )
        console.print(table)
        _show_params(document)
    if document["timings"]:
        table = make_table("kernel", right=("a (ms)", "b (ms)", "b / a"), title="Medians of warm samples")
        for t in document["timings"]:
            table.add_row(t["kernel"], *(_short(t[name]) for name in ("a_ms", "b_ms", "ratio")))
        console.print(table)
    console.print(_summary(document), soft_wrap=True)


def _show_params(document: dict[str, Any]) -> None:
    """The params whose weights are furthest apart at the last common keyframe."""
    last = [
        (p["tensors"]["w"][-1]["relative"], p["name"]) for p in document["params"] if p["tensors"].get("w")
    ]
    worst = sorted((each for each in last if each[0]), reverse=True)[:SHOWN_ROWS]
    if worst:
        table = make_table(
            "param",
            right=("‖Δw‖/‖w‖",),
            title=f"{len(worst)} of {len(last)} params, furthest apart at the end",
        )
        for relative, name in worst:
            table.add_row(name, significant(relative, 3))
        make_console().print(table)


def _summary(document: dict[str, Any]) -> str:
    count = len(document["steps"])
    first = document["first_difference"]
    if first is None:
        return f"{count:,} steps that both hold: every number and tensor in both has the same bits."
    words = difference_words(Difference(**first))
    return f"{count:,} steps that both hold; the first difference is {words}."


def _short(value: float) -> str:
    return "n/a" if value != value else f"{value:.3f}"
