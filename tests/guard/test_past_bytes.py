"""Bytes of past versions, wherever they still are."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber import StaleFileError, Workspace

LINES = "".join(f"line {number}\n" for number in range(12))


def test_a_base_that_the_turn_let_go_is_found_among_the_versions(root: Path) -> None:
    """N-merge, N-versions: another agent's guarded write has put it there."""
    (root / "plan.md").write_text(LINES)
    with Workspace(root, on_stale="merge", retained_file_bytes=10) as workspace, workspace.turn() as turn:
        turn.read_file("plan.md")
        assert turn.baseline_bytes("plan.md") is None
        with workspace.turn(agent_id="other") as other:
            other.read_file("plan.md")
            other.write_file("plan.md", LINES.replace("line 9", "theirs 9"))
        done = turn.write_file("plan.md", LINES.replace("line 2", "LINE 2"))
    assert done.merged is not None
    assert (root / "plan.md").read_text() == LINES.replace("line 9", "theirs 9").replace("line 2", "LINE 2")


def test_a_base_that_nobody_has_any_more_is_refused(root: Path) -> None:
    """N-merge: an outsider wrote over it, and there is no git."""
    (root / "plan.md").write_text(LINES)
    with Workspace(root, on_stale="merge", retained_file_bytes=10) as workspace, workspace.turn() as turn:
        turn.read_file("plan.md")
        (root / "plan.md").write_text(LINES.replace("line 9", "theirs 9"))
        with pytest.raises(StaleFileError) as refused:
            turn.write_file("plan.md", LINES.replace("line 2", "LINE 2"))
    assert refused.value.not_merged == "What you read is not kept any more."
    assert (root / "plan.md").read_text() == LINES.replace("line 9", "theirs 9")
