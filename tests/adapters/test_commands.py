"""Commands of a framework's agent, where there can be no private view."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber import BadRequestError, ShellUnavailableError, Workspace
from noclobber.adapters import commands


def test_a_command_that_cannot_be_guarded_is_not_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-frameworks, N-shell: a model is told that a command lands whole or not at all, so none is only watched."""
    monkeypatch.setenv("HOME", str(root))
    with Workspace(root).turn() as turn, pytest.raises(ShellUnavailableError, match="commands='plain'"):
        commands.run(turn, "touch ran")
    assert not (root / "ran").exists()


def test_a_choice_that_does_not_exist_is_named() -> None:
    """N-frameworks: with what there is to choose from."""
    with pytest.raises(BadRequestError, match="'guarded' or 'plain', not 'free'"):
        commands.checked_choice("free")
