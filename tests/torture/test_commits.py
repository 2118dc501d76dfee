"""Agents that commit what they wrote, on one clone: a short run of `make torture-commits`."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from torture.commits import ENVIRONMENT, _change, run

from noclobber import Workspace


@pytest.fixture(autouse=True)
def _same_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run sets git's identity; it is put back."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def test_no_commit_has_a_foreign_line_and_no_line_is_lost(root: Path) -> None:
    """N-shell: and git's own check is clean, and nothing is left staged or locked."""
    tally = run(str(root), agents=3, commits=10)
    assert tally.trouble == ()
    assert (tally.foreign, tally.lost) == (0, 0)
    assert tally.commits >= 10


def test_a_number_that_all_count_up_is_as_high_as_they_were_told(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding E3, U14: equal values of several agents, and commits of them; each success counts once."""
    monkeypatch.setenv("COUNTS", "0.5")
    tally = run(str(root), agents=3, commits=6)
    assert tally.trouble == ()
    assert tally.counted > 5


def test_an_agent_goes_on_however_much_a_person_has_typed(root: Path) -> None:
    """N-shell: a slow machine gives the person time for many lines; the agents' own part of a file is kept."""
    (root / "shared-0.md").write_text("a\nb\n" + "".join(f"person {at}\n" for at in range(90)))
    (root / "shared-1.md").write_text("".join(f"line {at}\n" for at in range(9)))
    with Workspace(root) as workspace:
        for seed in range(12):
            _change(workspace, random.Random(seed), "agent-2", seed, 3, io.StringIO())
    lines = (root / "shared-0.md").read_text().splitlines()
    assert sum(line.startswith("person") for line in lines) == 90
