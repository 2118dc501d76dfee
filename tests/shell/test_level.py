"""Which level shell commands get here."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.shell import level, namespace, runs
from noclobber.shell.level import probe


@pytest.fixture
def prepared(root: Path) -> str:
    with Workspace(root) as workspace:
        workspace.recorder.prepare()
    return str(root)


def test_the_probe_says_what_a_command_gets_and_leaves_nothing(prepared: str) -> None:
    """N-shell: it really makes the view, in a child."""
    found = probe(prepared)
    assert found.name in ("guarded", "watched")
    assert bool(found.why) == (found.name == "watched")
    assert not any(Path(runs.folder_of(prepared)).glob("*-*"))


def test_a_refusal_of_the_kernel_is_the_reason(prepared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-shell: a locked-down container; the reason is told."""

    def refuse(_: object) -> None:
        raise namespace.UnavailableError("unshare: Operation not permitted")

    monkeypatch.setattr(namespace.PrivateView, "enter", refuse)
    assert probe(prepared) == ("watched", "unshare: Operation not permitted")


def test_a_root_that_is_no_project_is_the_reason(prepared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-shell: a home folder."""
    monkeypatch.setenv("HOME", prepared)
    assert probe(prepared).name == "watched"
    assert "home" in probe(prepared).why


def test_a_place_without_the_state_folder_says_so(tmp_path: Path) -> None:
    """N-shell: no exception."""
    assert probe(f"{tmp_path}/gone") == ("watched", "the root cannot be read (No such file or directory)")
    assert level.GUARDED == "guarded"
