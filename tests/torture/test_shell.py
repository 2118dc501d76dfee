"""A short run of the torture of the guarded shell."""

from __future__ import annotations

from pathlib import Path

import pytest
from torture.shell import play

from tests.shell.test_process import is_available
from torture import colliding

pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")


def test_commands_of_several_agents_lose_nothing(tmp_path: Path) -> None:
    """N-shell: outsiders of every kind, a person with plain git, kill -9, folders and git."""
    found = play(tmp_path / "guarded", seconds=30, commands=48, agents=4, seed=7, kill=0.15)
    assert found.is_clean, found
    assert found.commands["landed"] > 5
    assert found.commands["killed"]


def test_values_that_collide_are_counted_exactly(tmp_path: Path) -> None:
    """finding E1, finding G4: every command that landed counts once, and every exclusive one has one winner."""
    weights = {colliding.SORT: 1}
    found = play(tmp_path / "guarded", seconds=10, commands=48, agents=4, seed=3, kill=0.0, weights=weights)
    assert found.is_clean, found
    assert found.winners == found.rounds > 3


def test_the_same_commands_by_a_plain_shell_lose_updates(tmp_path: Path) -> None:
    """N-shell: so the run above could have found a loss."""
    found = play(tmp_path / "plain", seconds=30, commands=120, agents=8, seed=7, kill=0.0, plain=True)
    assert found.lost or found.mixed, found


def test_values_that_collide_are_lost_by_a_plain_shell(tmp_path: Path) -> None:
    """finding E1: the accounting finds what is lost."""
    weights = {colliding.SORT: 1}
    found = play(
        tmp_path / "plain",
        seconds=10,
        commands=400,
        agents=8,
        seed=3,
        kill=0.0,
        plain=True,
        weights=weights,
    )
    assert found.lost, found
