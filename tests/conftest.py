"""What every test gets: fixed seeds, numpy errors raised, no thread left behind; and --soak."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partialmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

# The module inspector.cli.run takes this name's place in the package as soon as a command has imported it.
from inspector.cli import run

if TYPE_CHECKING:
    from inspector.gpu.device import Gpu

SEED = 20140612
THREAD_GRACE_S = 20.0
PATIENCE_MS = 60_000
# wgpu keeps one thread a device that waits for the GPU; it lives as long as the device object.
THREADS_OF_LIBRARIES = ("PollThread",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="also run the long forms, marked soak")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--soak"):
        return
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.skip(reason="a long form: run with --soak"))


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tell a failure when it happens: a run that is ended from outside never gets to its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        sys.stdout.write(f"\n{report.nodeid} failed ({report.when}):\n{report.longreprtext[-2000:]}\n")


@pytest.fixture(scope="session")
def gpu() -> Iterator[Gpu]:
    """One device for all tests that need one; a stepper made on it is dropped, not closed, since that ends it."""
    from inspector.gpu.device import Gpu

    device = Gpu()
    yield device
    device.close()


@pytest.fixture
def qtbot(qapp: Any, request: pytest.FixtureRequest) -> Any:
    """pytest-qt's, which gives what is waited for a minute and not five seconds: CI may stand still for that long."""
    from pytestqt.qtbot import QtBot

    from inspector.ui.garbage import collect_here

    collect_here(qapp)

    class Patient(QtBot):
        pass

    for name in ("waitUntil", "waitSignal", "waitSignals", "waitExposed", "waitActive"):
        setattr(Patient, name, partialmethod(getattr(QtBot, name), timeout=PATIENCE_MS))
    return Patient(request)


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command; its exit code, standard output and standard error."""

    def run_it(*words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return run_it


@pytest.fixture
def square_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--elements` gives 5,000 in a square matrix, so that what takes roots of its sides is quick on a CPU."""
    from inspector.layout import Param
    from inspector.sources.synthetic import Synthetic

    params = (Param("layer.0.weight", (64, 64)), Param("bias", (904,)))
    monkeypatch.setattr(Synthetic, "of_size", lambda elements: Synthetic("synthetic:5000", params))


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - for libraries; the project passes its generators


@pytest.fixture(autouse=True)
def numpy_errors_raised() -> Iterator[None]:
    """Raise on overflow, division by zero and invalid values; code that means them says so itself.

    Underflow stays silent: a squared small gradient underflows by design.
    """
    with np.errstate(over="raise", divide="raise", invalid="raise", under="ignore"):
        yield


@pytest.fixture(autouse=True)
def garbage_looked_for() -> Iterator[None]:
    """Once there has been a window nobody else looks for garbage in a test without one."""
    yield
    if "inspector.ui.garbage" in sys.modules and not gc.isenabled():
        from PySide6.QtCore import QCoreApplication

        from inspector.ui.garbage import collect_here

        if (app := QCoreApplication.instance()) is not None:
            collect_here(app).collect_if_due()


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    """Fail a test that leaves a Python thread running, after a moment's grace for it to end."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + THREAD_GRACE_S
    while (leaked := _leaked_threads(before)) and time.monotonic() < deadline:
        leaked[0].join(timeout=0.05)
    assert not leaked, f"the test left threads running: {[thread.name for thread in leaked]}"


def _leaked_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    return [
        thread
        for thread in set(threading.enumerate()) - before
        # A dummy stands for a thread of Qt or the driver that once called into Python.
        if not isinstance(thread, threading._DummyThread)
        and type(thread).__name__ not in THREADS_OF_LIBRARIES
    ]
