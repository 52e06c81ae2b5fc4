"""Random actions on each example recording end without an exception, a leak or a stuck worker."""

from __future__ import annotations

from pathlib import Path

import pytest
from monkey import Monkey

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "sessions").glob("*.session.zip"))
FEW, MANY = 150, 10_000
ROUND = 500
GROWTH = 40
"""Objects that may have been made in the meantime and are kept for the next time, as a menu once opened is."""

pytestmark = [pytest.mark.gpu, pytest.mark.qt]


def run(path: Path, actions: int, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is exported or recorded lies there.
    monkeypatch.chdir(folder)
    monkey = Monkey(path, seed)
    try:
        monkey.reopen()
        counted = []
        for i in range(actions):
            monkey.act()
            if i % ROUND == ROUND - 1:
                assert monkey.answers(), f"the worker is stuck after {monkey.log}"
                monkey.reopen()
                counted.append(monkey.counts())
            assert not monkey.problems, "\n".join(monkey.problems[:3])
        assert monkey.answers(), f"the worker is stuck after {monkey.log}"
        assert len(monkey.done) >= 6, "of most kinds of action there were some"
        monkey.reopen()
        counted.append(monkey.counts())
        # The first rounds may open what is made once; from then on nothing grows.
        for name, last in counted[-1].items():
            earlier = max(count[name] for count in counted[: max(len(counted) // 2, 1)])
            grown = (monkey.kinds[-1] - monkey.kinds[len(counted) // 2]).most_common(8)
            assert last <= earlier + GROWTH, f"{name}: {[count[name] for count in counted]}, most of {grown}"
    finally:
        monkey.end()
    assert not monkey.problems, "\n".join(monkey.problems[:3])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name.split(".")[0])
def test_a_few_random_actions(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(path, FEW, 20_140_612, tmp_path, monkeypatch)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name.split(".")[0])
def test_ten_thousand_random_actions(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(path, MANY, 7, tmp_path, monkeypatch)
