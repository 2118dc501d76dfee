"""Agents that commit what they wrote, on one clone: a short run of `make torture-commits`."""

from __future__ import annotations

from pathlib import Path

import pytest
from torture.commits import ENVIRONMENT, run


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
