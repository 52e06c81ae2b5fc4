"""`inspector bench`: what each kernel costs on this GPU."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from rich.console import Console
from rich.progress import Progress

from inspector.cli.options import as_dict, make_console, make_table
from inspector.errors import UsageError
from inspector.gpu.bench import bench
from inspector.gpu.device import Gpu
from inspector.plan import Grid, Variant
from inspector.preset import GPT_116M
from inspector.sources.synthetic import Synthetic


def measure(
    preset: str | None,
    elements: int | None,
    variant: Variant,
    *,
    grid: Grid,
    samples: int,
    seconds: float,
    seed: int | None,
    adapter: str | None,
) -> dict[str, Any]:
    """The document of --json."""
    if preset is not None and elements is not None:
        raise UsageError("Give either --preset or --elements, not both.")
    if preset is None and elements is None:
        preset = GPT_116M
    if preset not in (None, GPT_116M):
        raise UsageError(f"There is no preset {preset!r}: there is {GPT_116M}.")
    source = Synthetic.gpt_116m() if elements is None else Synthetic.of_size(elements)
    if grid == "published":
        variant = dataclasses.replace(variant, grid=grid, reduce="atomic")
    gpu = Gpu(adapter)
    try:
        with Progress(
            console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
        ) as progress:
            task = progress.add_task("timing", total=samples)
            report = bench(
                gpu, source.params, variant, seed=seed or 0, samples=samples, seconds=seconds,
                progress=lambda done: progress.update(task, completed=done),
            )  # fmt: skip
    finally:
        gpu.close()
    return {
        "device": {"name": gpu.info.name, "backend": gpu.info.backend, "software": gpu.info.software},
        "source": source.name,
        "elements": report.elements,
        "params": report.params,
        "variant": as_dict(variant),
        "copy_gbps": report.copy_gbps,
        "kernels": [as_dict(kernel) for kernel in report.kernels],
        "step": as_dict(report.step),
    }


def show(report: dict[str, Any]) -> None:
    """Print the document for people."""
    console = make_console()
    console.print(
        f"{report['source']}: {report['elements']:,} elements in {report['params']:,} params on "
        f"{report['device']['name']}; "
        f"a copy moves {report['copy_gbps']:,.1f} GB/s"
    )
    right = ("calls", "min ms", "median ms", "p95 ms", "samples", "cold", "B/element", "GB/s", "of copy")
    table = make_table("kernel", right=right)
    for k in (*report["kernels"], report["step"]):
        table.add_row(
            k["name"],
            str(k["dispatches"]),
            f"{k['min_ms']:.3f}",
            f"{k['median_ms']:.3f}",
            f"{k['p95_ms']:.3f}",
            str(k["samples"]),
            str(k["cold_samples"]),
            f"{k['bytes_per_element']:.1f}",
            f"{k['gbps']:,.1f}",
            f"{k['share']:.0%}",
        )
    console.print(table)
