"""`inspector doctor`: adapters, what is used, and what is missing."""

from __future__ import annotations

from typing import Any

from inspector.byte_sizes import limit_text
from inspector.cli.options import as_dict, make_console, make_table
from inspector.errors import InspectorError
from inspector.floats import significant
from inspector.gpu.copying import copy_gbps
from inspector.gpu.device import USED_FEATURES, Gpu, list_adapters


def examine(adapter: str | None) -> dict[str, Any]:
    """The report: `selected` is None, and `problems` say why, where no adapter can be used."""
    problems: list[str] = []
    reports = [report for _, report in list_adapters()]
    selected: dict[str, Any] | None = None
    period = bandwidth = None
    try:
        gpu = Gpu(adapter)
    except InspectorError as error:
        problems.append(str(error))
    else:
        selected = {"name": gpu.info.name, "backend": gpu.info.backend, "type": gpu.report.type}
        period = gpu.timestamp_period_ns
        try:
            bandwidth = copy_gbps(gpu)
        except InspectorError as error:
            problems.append(str(error))
        if gpu.info.software:
            problems.append(
                "Only a software adapter is in use: times are the CPU's. Install the driver of your GPU to use it."
            )
        problems += [
            f"{gpu.info.name} lacks {feature}: {_WITHOUT[feature]}"
            for feature in USED_FEATURES
            if feature not in gpu.report.features
        ]
        gpu.close()
    adapters = [as_dict(report) | {"usable": report.usable} for report in reports]
    return {
        "adapters": adapters,
        "selected": selected,
        "timestamp_period_ns": period,
        "copy_gbps": bandwidth,
        "problems": problems,
    }


_WITHOUT = {
    "timestamp-query": "kernel times are measured by the CPU's clock and labelled so.",
    "shader-f16": "half-precision arrays are packed in pairs.",
}


def show(report: dict[str, Any]) -> None:
    """Print the report for people."""
    console = make_console()
    table = make_table(
        "adapter", "backend", "type", "usable", "max binding", "max buffer", "timestamps", "f16"
    )
    for adapter in report["adapters"]:
        limits, features = adapter["limits"], adapter["features"]
        table.add_row(
            adapter["name"],
            adapter["backend"],
            adapter["type"],
            "yes" if adapter["usable"] else f"no: {adapter['problem']}",
            limit_text(limits["max_storage_buffer_binding_size"]),
            limit_text(limits["max_buffer_size"]),
            "yes" if "timestamp-query" in features else "no",
            "yes" if "shader-f16" in features else "no",
        )
    console.print(table)
    if report["selected"]:
        console.print(f"In use: {report['selected']['name']} ({report['selected']['backend']})")
        console.print(f"One timestamp tick is {significant(report['timestamp_period_ns'], 6)} ns.")
    if report["copy_gbps"]:
        console.print(f"A buffer copy moves {report['copy_gbps']:,.1f} GB/s (bytes read plus written).")
    for problem in report["problems"]:
        console.print(f"- {problem}", soft_wrap=True)
