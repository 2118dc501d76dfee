"""A short run of the torture of the guarded shell."""

from __future__ import annotations

from pathlib import Path

import pytest
from torture.shell import play

from tests.shell.test_process import is_available

pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")


def test_commands_of_several_agents_lose_nothing(tmp_path: Path) -> None:
    """N-shell: outsiders of every kind, a person with plain git, kill -9, folders and git."""
    found = play(tmp_path / "guarded", seconds=30, commands=48, agents=4, seed=7, kill=0.15)
    assert found.is_clean, found
    assert found.commands["landed"] > 5
    assert found.commands["killed"]


def test_the_same_commands_by_a_plain_shell_lose_updates(tmp_path: Path) -> None:
    """N-shell: so the run above could have found a loss."""
    found = play(tmp_path / "plain", seconds=30, commands=120, agents=8, seed=7, kill=0.0, plain=True)
    assert found.lost or found.mixed, found
