"""Reports: one page that loads nothing, hostile text shown as text, the same bytes each time; and the command."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from recordings import PARAMS, about, recorded, table

from inspector.findings import Finding
from inspector.history import HistoryRecorder
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Variant
from inspector.policies import Tensor, weigh
from inspector.report import MAX_OF_A_CAUSE, Plot, Report, Section, render
from inspector.runtime.reporting import report_of_run, report_of_session
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.stepping import DeviceInfo
from inspector.svg_plot import Line

Call = Callable[..., tuple[int, str, str]]
EXAMPLE = Path(__file__).parent.parent / "sessions" / "nan-gradient.session.zip"
HOSTILE = "<script>alert(1)</script>\"onload='x'&amp;"
VOID = {"meta", "line", "circle", "polyline", "path", "i"}


class Page(HTMLParser):
    """What a page holds: tags, attributes and text; every tag has to be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in ("meta",):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile_report() -> Report:
    line = Line(HOSTILE, np.arange(1, 5), np.array([1, math.nan, math.inf, 2.0]))
    read = {"w": 1.0, "m": 0.0, "v": 0.0, "g": math.nan}
    policies = weigh(
        [Tensor(HOSTILE, 2, True)],
        lambda lane, name, start, stop: np.full(stop - start, read[lane], np.float32),
        hyper=Hyper(),
        step=2,
    )
    finding = Finding(
        HOSTILE,
        "error",
        2,
        HOSTILE,
        HOSTILE,
        param=HOSTILE,
        index=1,
        evidence={HOSTILE: HOSTILE},
        source=HOSTILE,
    )
    return Report(
        HOSTILE,
        HOSTILE,
        (finding,),
        (Plot(HOSTILE, (line, line), note=HOSTILE),),
        (Plot(HOSTILE, (line,), log=True),),
        (policies,),
        (Section(HOSTILE, ((HOSTILE, HOSTILE),)),),
        (HOSTILE,),
    )


def test_hostile_text_is_text() -> None:
    page = Page(render(hostile_report()))
    assert "script" not in page.tags
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert page.text.count(HOSTILE) >= 15


def test_it_loads_nothing_and_forbids_scripts() -> None:
    text = render(hostile_report())
    page = Page(text)
    assert {"script", "link", "img", "iframe", "object", "base"} & set(page.tags) == set()
    links = [value or "" for _, name, value in page.attributes if name in ("src", "href", "style")]
    assert all(link.startswith("#") for link in links)
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text


def test_a_cause_with_many_findings_is_cut() -> None:
    many = tuple(Finding("spike", "warning", i, f"message {i}.", "") for i in range(1, 10_001))
    text = render(Report("t", "s", many))
    assert text.count("<article") == MAX_OF_A_CAUSE
    assert "And 9,950 more, up to step 10,000." in text
    assert len(text) < 100_000


def test_nothing_found_is_said() -> None:
    assert "Nothing was found to be wrong." in render(Report("t", "s"))


def make_session(path: Path, steps: int = 8, params: tuple[Param, ...] = PARAMS) -> Session:
    recorder = Recorder.create(path, about(params=params))
    for t in range(1, steps + 1):
        made = recorded(t, loss=math.nan if t == 4 else None if t == 2 else 3.0 + t)
        found = [Finding("spike", "warning", t, "m", "a", param=params[0].name)] if t == 5 else []
        recorder.offer(made, statistics=table(t), findings=found)
    recorder.close()
    return Session.open(path)


def test_a_recording_is_told_by_its_numbers(tmp_path: Path) -> None:
    with make_session(tmp_path / "a.session") as session:
        report = report_of_session(session)
        expected = [float(session.param_statistics(t)[0].lanes["w"].norm) for t in session.steps]  # type: ignore[index]
        text = render(report)
        assert render(report_of_session(session)) == text
        last = report_of_session(session, last_steps=3)
    loss = next(p for p in report.plots if p.title == "loss").lines[0]
    # A loss that is not known is left out, one that is NaN stays.
    assert loss.steps.tolist() == [1, 3, 4, 5, 6, 7, 8]
    np.testing.assert_array_equal(loss.values, [4, 6, math.nan, 8, 9, 10, 11])
    norms = {line.kind: line for line in report.param_plots[0].lines}
    assert norms["w"].values.tolist() == expected
    assert report.param_plots[0].title == PARAMS[0].name
    assert "8 steps, 1 to 8. Found: 1 warning." in report.summary
    for words in ("made-up", "warmup:10", "0.0003", "inspector 0.1.0", "Device (Vulkan)", "2025-06-15"):
        assert words in text
    assert last.plots[0].lines[0].steps.tolist() == [6, 7, 8]
    assert last.findings == ()


def test_a_run_that_is_open(tmp_path: Path) -> None:
    history = HistoryRecorder()
    for t in range(1, 6):
        history.append(t, {"grad_norm": 1.0 / t, "loss": math.nan if t == 3 else 1.0, "lr": 1e-3})
    finding = Finding("nonfinite-loss", "error", 3, "The loss is NaN.", "Go back.")
    report = report_of_run(
        "charlm", "a model", history.freeze(), [finding], hyper=Hyper(), schedule="constant", variant=Variant(),
        device=DeviceInfo("d", "Vulkan", True, True), marks=[(2, "lr 0.001 → 0.01")],
    )  # fmt: skip
    assert [p.title for p in report.plots] == ["loss", "gradient norm", "learning rate"]
    np.testing.assert_array_equal(report.plots[0].lines[0].values, [1, 1, math.nan, 1, 1])
    text = render(report)
    assert "lr 0.001 → 0.01" in text
    assert 'class="nan"' in text


# --- the command


def test_the_example_with_nan_has_its_policies(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    code, text, err = call("report", EXAMPLE, "--out", out, "--json")
    assert code == 0, err
    document = json.loads(text)
    assert (document["findings"], document["policies"]) == (1, [30])
    page = Page(out.read_text(encoding="utf-8"))
    assert page.tags.count("svg") == 5
    assert "Policies side by side, step 30" in page.text
    assert "15,744" in page.text
    again = tmp_path / "again.html"
    assert call("report", EXAMPLE, "--out", again)[0] == 0
    assert again.read_bytes() == out.read_bytes()


@pytest.mark.gpu
def test_a_source_is_run_and_its_report_is_the_same_each_time(call: Call, tmp_path: Path) -> None:
    pages = []
    for name in ("a.html", "b.html"):
        source = "charlm:width=32,layers=1"
        code, _, err = call("report", source, "--steps", 4, "--out", tmp_path / name)
        assert code == 0, err
        pages.append((tmp_path / name).read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
    assert "4 steps, 1 to 4" in pages[0]
    assert not re.search(r"inspector-report-|/tmp", pages[0])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((EXAMPLE, "--out", "/nowhere/r.html"), "does not exist"),
        ((EXAMPLE, "--out", ".."), "folder"),
        (("nothing", "--out", "r.html"), "is no source"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call("report", *words)
    assert (code, out) == (2, "")
    assert says in err
    assert len([line for line in err.splitlines() if line.startswith("inspector:")]) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_recording_is_told_as_inspector_diagnose_tells_it(call: Call, tmp_path: Path) -> None:
    session = EXAMPLE.with_name("diverges.session.zip")
    out = tmp_path / "r.html"
    assert call("report", session, "--out", out)[0] == 0
    found = json.loads(call("diagnose", session, "--json")[1])["findings"]
    assert found
    text = Page(out.read_text(encoding="utf-8")).text
    assert all(each["message"] in text for each in found)
