"""Versions that the ledger has on record and a power cut took away."""

from __future__ import annotations

from pathlib import Path

import pytest

import noclobber
from noclobber.cli import main
from noclobber.ledger.lost_versions import find_lost_versions


def write(workspace: noclobber.Workspace, name: str, text: str) -> None:
    with workspace.turn(agent_id="ana") as turn:
        if (Path(workspace.root) / name).exists():
            turn.read_file(name)
        turn.write_file(name, text)


def test_a_file_that_went_back_to_the_version_before_is_named_with_its_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """finding R1: the ledger does not vouch for what a cut took away."""
    with noclobber.Workspace(tmp_path) as workspace:
        write(workspace, "plan.md", "one\n")
        write(workspace, "plan.md", "two\n")
        write(workspace, "other.md", "other\n")
    assert main(["ledger", "verify", "--files", "--root", str(tmp_path)]) == 0
    (tmp_path / "plan.md").write_text("one\n")
    assert main(["ledger", "verify", "--files", "--root", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "event 2" in said
    assert "plan.md" in said
    assert "other.md" not in said
    main(["doctor", str(tmp_path)])
    assert "plan.md has a version before the one that event 2 recorded" in capsys.readouterr().out


def test_a_created_file_that_is_not_there_and_a_move_that_was_undone_are_lost(tmp_path: Path) -> None:
    """finding R1: creations, moves and deletes can be taken away as well."""
    with noclobber.Workspace(tmp_path) as workspace:
        write(workspace, "created", "x\n")
        write(workspace, "deleted", "y\n")
        write(workspace, "moved", "z\n")
        with workspace.turn(agent_id="ana") as turn:
            for name in ("deleted", "moved"):
                turn.read_file(name)
            turn.delete_file("deleted")
            turn.move_file("moved", "there")
        events = list(workspace.ledger.events())
        assert find_lost_versions(events, str(tmp_path)) == []
        (tmp_path / "created").unlink()
        (tmp_path / "deleted").write_text("y\n")
        (tmp_path / "there").rename(tmp_path / "moved")
        lost = find_lost_versions(events, str(tmp_path))
    assert sorted(each.path for each in lost) == ["created", "deleted", "moved", "there"]


def test_what_somebody_else_wrote_since_is_no_loss(tmp_path: Path) -> None:
    """finding R1: a version that the ledger has never seen supersedes what it recorded."""
    with noclobber.Workspace(tmp_path) as workspace:
        write(workspace, "plan.md", "one\n")
        write(workspace, "plan.md", "two\n")
        (tmp_path / "plan.md").write_text("three\n")
        assert find_lost_versions(workspace.ledger.events(), str(tmp_path)) == []


def test_a_path_that_leads_out_of_the_workspace_is_not_read(tmp_path: Path) -> None:
    """finding R1: a ledger that comes with a folder is untrusted input."""
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "secret").write_text("secret\n")
    hashes = {"before_hash": "ABSENT", "after_hash": "DELETED"}
    event = {"seq": 1, "action_type": "MUTATION", "payload": {"target_file": "../secret", **hashes}}
    broken = {"seq": "x", "action_type": "MUTATION", "payload": {"target_file": "a\0b", "after_hash": 1}}
    assert find_lost_versions([event, broken, {"payload": []}], str(root)) == []
