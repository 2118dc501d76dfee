"""Real processes through every interleaving of their named steps; `make explore` runs more of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from torture.explore import Plan, explore

from noclobber.disk import leases
from noclobber.disk.commit.swap import Swap


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan", [Plan(1, 1), Plan(2, 1), Plan(3, 0), Plan(2, 1, kill_at=7), Plan(2, 1, kill_at=8)], ids=str
)
def test_no_interleaving_loses_a_save_or_leaves_something_behind(tmp_path: Path, plan: Plan) -> None:
    """N-proof: with a kill at a step, too; the failure's message has the schedule that repeats it."""
    if not leases.SUPPORTED:
        pytest.skip("needs file leases")
    assert explore(str(tmp_path), plan) > 5


def test_a_commit_without_the_second_look_is_convicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-proof: an exploration that cannot fail proves nothing."""

    def settle(swap: Swap, *_: object) -> None:
        swap.is_settled = True

    monkeypatch.setattr(Swap, "settle", settle)
    with pytest.raises(AssertionError, match=r"repeat with run\("):
        explore(str(tmp_path), Plan(1, 1))
