"""Random histories of commands and an undo: a short run of `make torture-undo`."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber.shell.roots import why_not
from torture import undo


@pytest.mark.parametrize("seed", range(5))
def test_an_undo_takes_back_all_of_one_agent_and_nothing_of_others(
    root: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings G1, G5: others' bytes are intact, and every repository is sound."""
    if (reason := why_not(str(root))) is not None:
        pytest.skip(reason)
    for name in undo.IDENTITY:
        monkeypatch.setenv(name, "")  # So that what a history sets is gone afterwards.

    tally = undo.history(str(root), seed)

    assert (tally.lost, tally.broken, tally.left, tally.not_back) == (0, 0, 0, 0)
    assert tally.commands
