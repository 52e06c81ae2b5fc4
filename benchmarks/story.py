"""What the findings view, a report and the policies cost: 10,000 findings, 100,000 steps, 116 M elements.

    python benchmarks/story.py [--elements N]

Needs no GPU. Times are the best of several, on one core.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from inspector.findings import Finding
from inspector.hyper import Hyper
from inspector.policies import Tensor, weigh
from inspector.report import Plot, Report, render
from inspector.runtime.snapshots import Snapshot
from inspector.svg_plot import Line
from inspector.ui.findings_view import FindingsView

FINDINGS, RULES, STEPS = 10_000, 40, 100_000


def best_ms(act: Callable[[], object], times: int = 5) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        found.append(1e3 * (time.perf_counter() - began))
    return min(found)


def findings() -> tuple[Finding, ...]:
    severities = ("info", "warning", "error")
    return tuple(
        Finding(
            f"rule-{i % RULES}", severities[i % 3], 1 + i // 2, f"What was found in step {1 + i // 2}.", "Look.",
            param=f"h.{i % 48}.attn.qkv.weight", index=i, evidence={"grad_norm": float(i)},
        )
        for i in range(FINDINGS)
    )  # fmt: skip


def view_costs() -> None:
    app = QApplication.instance() or QApplication([])
    view = FindingsView()
    view.resize(500, 300)
    view.show()
    many = findings()
    grown = [
        (*many, *(Finding("rule-1", "error", 6000, f"m{k}", "") for k in range(n + 1))) for n in range(9)
    ]

    def show(found: tuple[Finding, ...]) -> None:
        view.show_snapshot(Snapshot(0, "paused", "x", findings=found))
        app.processEvents()

    print(f"{FINDINGS:,} findings at once       {best_ms(lambda: show(many), 1):8.2f} ms")
    print(f"the same list made anew     {best_ms(lambda: show((*many,))):8.2f} ms")
    print(f"one more                    {min(best_ms(lambda f=f: show(f), 1) for f in grown):8.2f} ms")

    def typed() -> None:
        view.bar.words.setText("qkv step 77")
        app.processEvents()
        view.bar.words.clear()
        app.processEvents()

    print(f"a filter typed and cleared  {best_ms(typed):8.2f} ms")


def report_cost() -> None:
    rng = np.random.default_rng(1)
    steps = np.arange(1, STEPS + 1)
    plots = tuple(
        Plot(f"metric {i}", (Line("a", steps, np.exp(rng.normal(size=STEPS))),), log=True) for i in range(4)
    )
    report = Report("run", "summary", findings(), plots)
    size = len(render(report).encode())
    print(f"a page of {STEPS:,} steps     {best_ms(lambda: render(report), 3):8.2f} ms, {size:,} bytes")


def policies_cost(elements: int) -> None:
    rng = np.random.default_rng(2)
    part = {lane: rng.normal(size=1 << 19).astype(np.float32) * np.float32(0.01) for lane in "wmvg"}
    part["v"] = np.abs(part["v"])
    began = time.perf_counter()
    weigh(
        [Tensor("w", elements, True)],
        lambda lane, name, start, stop: part[lane][: stop - start],
        hyper=Hyper(),
        step=10,
    )
    print(f"policies, {elements:,} elements {time.perf_counter() - began:8.2f} s")


def main() -> None:
    """Print all of it."""
    options = argparse.ArgumentParser()
    options.add_argument("--elements", type=int, default=116_017_920)
    given = options.parse_args()
    view_costs()
    report_cost()
    policies_cost(given.elements)


if __name__ == "__main__":
    main()
