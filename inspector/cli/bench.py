"""`inspector bench`: what each kernel costs on this GPU, and one form of the step beside another."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from inspector.cli.options import as_dict, interruptible, make_console, make_table
from inspector.cli.shaders import form_of, shaders_of
from inspector.cli.step_options import tell_runs_as
from inspector.comparison import BenchReport, Comparison, StepCosts
from inspector.cost import costs_csv
from inspector.errors import UsageError
from inspector.files import check_writable, write_text
from inspector.floats import significant
from inspector.gpu.bench import bench, compare, drift
from inspector.gpu.device import Gpu
from inspector.plan import Variant
from inspector.preset import GPT_116M
from inspector.sources.synthetic import Synthetic
from inspector.trace_export import Track, chrome_trace

NA = "n/a"


@dataclass(frozen=True, slots=True)
class Request:
    """What to measure. With `every`, the variants that differ from `variant` in one factor as well."""

    preset: str | None
    elements: int | None
    variant: Variant
    samples: int
    seconds: float
    seed: int | None
    adapter: str | None
    every: bool = False
    drift_steps: int = 0
    csv: Path | None = None
    perfetto: Path | None = None


def measure(request: Request) -> dict[str, Any]:
    """Measure, write the files asked for, and return the document of --json. Ctrl-C ends it before the next step."""
    with interruptible() as check:
        return _measure(request, check)


def _measure(request: Request, check: Callable[[], None]) -> dict[str, Any]:
    source = _source(request)
    _check_files(request)
    if request.drift_steps and not request.every:
        raise UsageError("--drift-steps compares variants: give --all with it.")
    variant = request.variant
    tell_runs_as(variant.optimizer, variant, source)
    gpu = Gpu(request.adapter)
    seed = request.seed or 0
    try:
        with _progress("timing") as told:
            timing = compare if request.every else bench
            made = timing(
                gpu, source.params, variant,
                seed=seed, samples=request.samples, seconds=request.seconds, progress=_also(check, told),
            )  # fmt: skip
        reports = made.reports if isinstance(made, Comparison) else (made,)
        common = {
            "device": {"name": gpu.info.name, "backend": gpu.info.backend, "software": gpu.info.software},
            "source": source.name,
            "elements": reports[0].elements,
            "params": reports[0].params,
        }
        documents = [_document(common, report) for report in reports]
        if isinstance(made, Comparison):
            for document, report in zip(documents, reports, strict=True):
                document |= {"name": report.name, "ratio": made.ratio(report)}
            result = common | {
                "copy_gbps": reports[0].copy_gbps,
                "variants": documents,
                "skipped": [as_dict(each) for each in made.skipped],
                "drift": _drifts(gpu, source, reports, request.drift_steps, seed, check),
            }
        else:
            result = documents[0]
    finally:
        gpu.close()
    check()
    if request.csv is not None:
        write_text(request.csv, costs_csv((r.name, (*r.kernels, r.step)) for r in reports))
    if request.perfetto is not None:
        tracks = [Track(r.name, r.plan.dispatches, r.last_steps) for r in reports]
        facts = {"source": source.name, "elements": common["elements"], "copy_gbps": reports[0].copy_gbps}
        write_text(request.perfetto, chrome_trace(tracks, device=gpu.info.name, facts=facts))
    return result


def _source(request: Request) -> Synthetic:
    preset, elements = request.preset, request.elements
    if preset is not None and elements is not None:
        raise UsageError("Give either --preset or --elements, not both.")
    if preset is None and elements is None:
        preset = GPT_116M
    if preset not in (None, GPT_116M):
        raise UsageError(f"There is no preset {preset!r}: there is {GPT_116M}.")
    return Synthetic.gpt_116m() if elements is None else Synthetic.of_size(elements)


def _check_files(request: Request) -> None:
    paths = [check_writable(path) for path in (request.csv, request.perfetto) if path is not None]
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError(f"{paths[0]} cannot hold both the table and the trace: name two files.")


def _document(common: dict[str, Any], report: BenchReport) -> dict[str, Any]:
    document = common | {
        "variant": form_of(report.variant),
        "shaders": shaders_of(report.variant),
        "copy_gbps": report.copy_gbps,
        **_costs(report),
    }
    return document if report.between is None else document | {"between": _costs(report.between)}


def _costs(of: BenchReport | StepCosts) -> dict[str, Any]:
    return {
        "kernels": [as_dict(kernel) for kernel in of.kernels],
        "step": as_dict(of.step),
        "span_ms": of.span_ms,
        "through_ms": of.through_ms,
    }


def _drifts(
    gpu: Gpu,
    source: Synthetic,
    reports: Sequence[BenchReport],
    steps: int,
    seed: int,
    check: Callable[[], None],
) -> list[dict[str, Any]]:
    """How far the weights of the variants with other numerics are from the first one's after `steps` steps."""
    base = reports[0].variant
    others = [r for r in reports if r.variant == dataclasses.replace(base, numerics=r.variant.numerics)][1:]
    found = []
    for report in others if steps else ():
        with _progress(f"drift of {report.name}") as told:
            apart = drift(
                gpu, source.params, base, report.variant,
                steps=steps, seed=seed, progress=_also(check, told),
            )  # fmt: skip
        found.append({"name": report.name, **as_dict(apart)})
    return found


def _also(check: Callable[[], None], told: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Tells how far it is, after a look whether it shall end."""

    def both(done: int, of: int) -> None:
        check()
        told(done, of)

    return both


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, where that is a terminal."""
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of or None)


# --- for people


def show(report: dict[str, Any]) -> None:
    """Print the document for people."""
    console = make_console()
    console.print(
        f"{report['source']}: {report['elements']:,} elements in {report['params']:,} params on "
        f"{report['device']['name']}; "
        f"a copy moves {report['copy_gbps']:,.1f} GB/s"
    )
    for name, file in report.get("shaders", report.get("variants", [report])[0]["shaders"]).items():
        console.print(f"own kernel {name} from {file}", soft_wrap=True)
    if "variants" not in report:
        _show_costs(console, report, report["copy_gbps"])
        between = report.get("between")
        if between is not None:
            console.print("steps between, which go without what only some do:")
            _show_costs(console, between, report["copy_gbps"])
        return
    console.print(_variant_table(report["variants"]))
    for skipped in report["skipped"]:
        console.print(f"left out: {skipped['name']}: {skipped['reason']}")
    for each in report["drift"]:
        console.print(
            f"{each['name']} against {report['variants'][0]['name']} after {each['steps']:,} steps: largest |Δw| "
            f"{significant(each['max_abs'], 3)} at {each['param']}[{each['index']}]; ‖Δw‖ is "
            f"{significant(each['relative'], 3)} of ‖w‖ and "
            f"{significant(each['relative_to_path'], 3)} of the way trained"
        )


def _show_costs(console: Console, costs: dict[str, Any], copy_gbps: float) -> None:
    console.print(_kernel_table(costs))
    console.print(f"from the first dispatch to the end of the last: {_figure(costs['span_ms'], '.3f')} ms")
    through, step = costs["through_ms"], costs["step"]
    gbps = step["bytes_per_element"] * step["elements"] / through / 1e6
    console.print(
        f"run through, one step behind the other in a pass each and nothing timed inside: {through:.3f} ms, "
        f"{gbps:,.1f} GB/s, {gbps / copy_gbps:.0%} of the copy, which is measured so",
        soft_wrap=True,
    )


def _kernel_table(report: dict[str, Any]) -> Table:
    right = (
        "calls",
        "min ms",
        "median ms",
        "p95 ms",
        "samples",
        "cold",
        "B/element",
        "GB/s",
        "of copy",
        "of step",
    )
    costs = (*report["kernels"], report["step"])
    products = any(math.isfinite(k["gflops"]) for k in costs)
    table = make_table("kernel", right=(*right, "GFLOP/s") if products else right)
    for k in costs:
        table.add_row(k["name"], *_cells(k), *([_figure(k["gflops"], ",.0f")] if products else []))
    return table


def _variant_table(variants: Sequence[dict[str, Any]]) -> Table:
    """One line a variant, its kernels below it. The span reaches from the first dispatch to the end of the last."""
    right = ("calls", "min ms", "median ms", "p95 ms", "samples", "cold", "B/element", "GB/s", "of copy", "of step",
             "span ms", "through ms", "ratio")  # fmt: skip
    table = make_table("variant, its kernels", right=right)
    for variant in variants:
        whole = tuple(_figure(variant[name], ".3f") for name in ("span_ms", "through_ms"))
        whole += (_figure(variant["ratio"], ".2f"),)
        table.add_row(variant["name"], *_cells(variant["step"]), *whole, style="bold")
        for k in variant["kernels"]:
            table.add_row(f"  {k['name']}", *_cells(k), "", "", "")
        table.add_section()
    return table


def _cells(k: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(k["dispatches"]),
        _figure(k["min_ms"], ".3f"),
        _figure(k["median_ms"], ".3f"),
        _figure(k["p95_ms"], ".3f"),
        str(k["samples"]),
        str(k["cold_samples"]),
        _figure(k["bytes_per_element"], ".1f"),
        _figure(k["gbps"], ",.1f"),
        _figure(k["share"], ".0%"),
        _figure(k["share_of_step"], ".1%"),
    )


def _figure(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else NA
