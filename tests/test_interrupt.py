"""Ctrl-C at any moment: the process ends, without a traceback.

But for the first tenth of a second, in which Python itself starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inspector.gpu.bench import bench
from inspector.gpu.device import Gpu
from inspector.layout import Param
from inspector.plan import Variant

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(os.name != "posix", reason="signals")]


def interrupted(words: list[str], delay_s: float, home: Path, number: signal.Signals) -> tuple[int, str]:
    environment = {
        **os.environ,
        "QT_QPA_PLATFORM": "offscreen",
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "inspector", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        time.sleep(delay_s)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
        return process.returncode, told


@pytest.mark.parametrize("delay_s", [0.2, 0.35, 0.5, 0.7, 1.2, 2.5])
def test_the_window_ends_at_ctrl_c_from_the_first_moment(tmp_path: Path, delay_s: float) -> None:
    code, told = interrupted(["charlm"], delay_s, tmp_path, signal.SIGINT)
    assert code in (0, -signal.SIGINT), told
    assert "Traceback" not in told


@pytest.mark.parametrize("delay_s", [0.3, 0.8, 1.5, 2.5])
def test_a_run_ends_at_ctrl_c_and_says_so(tmp_path: Path, delay_s: float) -> None:
    code, told = interrupted(["run", "charlm", "--steps", "100000"], delay_s, tmp_path, signal.SIGINT)
    assert code in (130, -signal.SIGINT), told
    assert "Traceback" not in told
    assert code != 130 or told.strip() == "inspector: Stopped."


@pytest.mark.parametrize("more", [[], ["--all", "--csv", "t.csv"]])
@pytest.mark.parametrize("delay_s", [0.3, 1.5, 3.0, 6.0])
def test_a_bench_ends_at_ctrl_c_and_says_so(tmp_path: Path, delay_s: float, more: list[str]) -> None:
    table = tmp_path / "t.csv"
    words = ["bench", "--elements", "100000", "--samples", "100000", *more]
    words = [str(table) if word == "t.csv" else word for word in words]
    code, told = interrupted(words, delay_s, tmp_path, signal.SIGINT)
    while code != 130 and 6 <= delay_s < 60:
        # Only while the imports go on does the signal itself end it, which may be longer on a machine that is busy.
        delay_s *= 2
        code, told = interrupted(words, delay_s, tmp_path, signal.SIGINT)
    assert code in (130, -signal.SIGINT), told
    assert code == 130 or delay_s < 6
    assert code != 130 or told.strip() == "inspector: Stopped."
    assert not table.exists()


@pytest.mark.parametrize("calls", [1, 5])
def test_measuring_the_copy_can_be_ended(gpu: Gpu, calls: int) -> None:
    def check() -> None:
        nonlocal calls
        calls -= 1
        if not calls:
            raise KeyboardInterrupt

    before = gpu.memory_bytes
    with pytest.raises(KeyboardInterrupt):
        bench(gpu, (Param("p", (100,)),), Variant(), progress=lambda done, of: check())
    assert calls == 0
    assert gpu.memory_bytes == before


def test_an_interrupt_waits_for_the_end_of_a_step() -> None:
    from inspector.cli.options import interruptible

    before = signal.getsignal(signal.SIGINT)
    with interruptible() as check:
        check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGINT) is before
