"""Capture policies: what a person may write, which steps they mean, and how large the recording becomes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import PARAMS, about, record

from inspector.errors import UsageError
from inspector.layout import make_layout
from inspector.plan import Limits, Variant, layout_for
from inspector.preset import gpt_116m_params
from inspector.session.policy import ALL, Policy, Wanted, gradient_bytes, keyframe_bytes
from inspector.session.recorder import Recorder, check_room


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("stats", Policy()),
        (" grads:10 ", Policy(gradients_every=10)),
        ("keyframes:100+grads:1", Policy(1, 100)),
        ("flight:8", Policy(flight=8)),
        ("stats+flight:8+grads:2", Policy(2, None, 8)),
        ("all", ALL),
        ("all+flight:3", Policy(1, 1, 3)),
    ],
)
def test_what_a_person_writes(text: str, policy: Policy) -> None:
    assert Policy.from_text(text) == policy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a capture policy: write stats, grads:N"),
        ("grad:1", "'grad:1' is not a capture policy"),
        ("grads", "is not a capture policy"),
        ("all:1", "is not a capture policy"),
        ("grads:1+", "is not a capture policy"),
        ("grads:0", "'0' in the capture policy 'grads:0' is not a number of steps"),
        ("flight:-1", "'-1' in"),
        ("flight:1_0", "'1_0' in"),
        ("keyframes:٣", "is not a number of steps"),
        ("grads:99999999999", "from 1 to 1,000,000,000"),
        ("grads:1+grads:2", "gives grads twice"),
        ("grads:2+grads:2", "gives grads twice"),
        ("all+grads:2", "gives grads twice"),
    ],
)
def test_bad_text_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        Policy.from_text(text)
    assert words in str(caught.value)


every = st.none() | st.integers(1, 10**9)


@given(gradients=every, keyframes=every, flight=every)
def test_its_text_reads_back(gradients: int | None, keyframes: int | None, flight: int | None) -> None:
    policy = Policy(gradients, keyframes, flight)
    assert Policy.from_text(str(policy)) == policy


def test_which_steps_are_captured() -> None:
    policy = Policy.from_text("grads:3+keyframes:4")
    wanted = {step: policy.wants(step, start=5) for step in range(5, 13)}
    assert [s for s, w in wanted.items() if w.gradients] == [6, 9, 12]
    # The state that the recording starts from is always one to go on from.
    assert [s for s, w in wanted.items() if w.keyframe] == [5, 8, 12]
    assert not Policy().wants(0, 0).keyframe
    assert Policy(flight=4).stores(4, 0) == Wanted()
    assert Policy(flight=4).wants(4, 0) == Wanted(gradients=True, keyframe=True)


def test_bytes_of_the_reference_layout() -> None:
    layout = layout_for(gpt_116m_params(), Limits(max_buffer_size=4 << 30), Variant())
    assert gradient_bytes(layout) == pytest.approx(4 * 116_017_920, rel=1e-3)
    assert keyframe_bytes(layout) == pytest.approx(12 * 116_017_920, rel=1e-3)
    coded = layout_for(gpt_116m_params(), Limits(max_buffer_size=4 << 30), Variant(kernel="8bit"))
    assert keyframe_bytes(coded) == pytest.approx((4 + 2 + 8 / 256) * 116_017_920, rel=1e-3)
    assert Policy().expected_bytes(layout, 100, stats="light") == 100 * 260
    assert Policy(10, 50).expected_bytes(layout, 100, stats="light") == (
        100 * 260 + 10 * gradient_bytes(layout) + 3 * keyframe_bytes(layout)
    )
    assert Policy(10).expected_bytes(layout, 10, stats="light", start=95) == (
        10 * 260 + gradient_bytes(layout) + keyframe_bytes(layout)
    )
    assert Policy(flight=4).memory_bytes(layout) == 2 * (4 * gradient_bytes(layout) + keyframe_bytes(layout))
    assert Policy().memory_bytes(layout) == 0


@pytest.mark.parametrize("policy", ["stats", "grads:2", "all"])
def test_the_size_that_is_told_is_about_what_is_written(tmp_path: Path, policy: str) -> None:
    path = tmp_path / "run.session"
    record(path, 400, policy)
    size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    expected = Policy.from_text(policy).expected_bytes(make_layout(PARAMS), 400)
    assert 0.5 * size < expected < 2 * size


def test_a_recording_that_will_not_fit_is_refused_before_it_starts(tmp_path: Path) -> None:
    check_room(tmp_path / "run.session", 10**9, free=lambda folder: 10**10)
    with pytest.raises(UsageError, match=r"would take 50\.0 GB, and the disk has 10\.0 GB left"):
        check_room(tmp_path / "run.session", 50 * 10**9, free=lambda folder: 10**10)
    with pytest.raises(
        UsageError, match=r"would take 5\.00 MB, and the disk has 68\.0 MB left, of which 67\.1 MB stay free"
    ):
        check_room(tmp_path / "run.session", 5 * 10**6, free=lambda folder: 68 * 10**6)
    with pytest.raises(UsageError, match="is not a capture policy"):
        Recorder.create(tmp_path / "run.session", about("everything"))
    assert not list(tmp_path.iterdir())
