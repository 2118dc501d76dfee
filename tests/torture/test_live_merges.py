"""Agents on shared files that merge: a short run of `make merges`."""

from __future__ import annotations

from pathlib import Path

from torture.live_merges import run


def test_agents_and_a_person_on_shared_files_lose_nothing(root: Path) -> None:
    """N-merge, finding E3, live: every number is the last acknowledged one, every line is there once."""
    tally = run(str(root), agents=3, writes=15, on_stale="merge")

    assert (tally.lost, tally.appended_lost, tally.miscounted) == (0, 0, 0)
    assert tally.writes == 45
