"""Who wrote what is there: beside refusals, merges, and in the status (ruling 21)."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from noclobber import StaleFileError, Workspace
from tests.rigs.commands import run

SEEN = b"one\ntwo\nthree\nfour\nfive\nsix\n"


def test_a_refusal_says_who_wrote_what_is_there(root: Path) -> None:
    """ruling 21, N-who: an agent where the ledger knows, else an outsider and when; never inside the object."""
    path = root / "plan.md"
    path.write_bytes(SEEN)
    with Workspace(root) as workspace, workspace.turn(agent_id="ana") as turn:
        turn.read_file("plan.md")
        with workspace.turn(agent_id="bob\n<b>", session_id="0123456789") as other:
            other.write_file("plan.md", b"bob's\n")
        with pytest.raises(StaleFileError) as refused:
            turn.write_file("plan.md", b"mine\n")
        by_agent = refused.value.written_by or ""
        assert by_agent.startswith("the agent bob??b? (session 01234567) at 20")
        assert "bob" not in json.dumps(refused.value.to_agent()) + json.dumps(refused.value.to_controller())
        assert pickle.loads(pickle.dumps(refused.value)).written_by == by_agent

        path.write_bytes(b"a person's\n")
        with pytest.raises(StaleFileError) as refused:
            turn.write_file("plan.md", b"mine\n")
        assert (refused.value.written_by or "").startswith("an outsider, at 20")
        path.unlink()
        with pytest.raises(StaleFileError) as refused:
            turn.write_file("plan.md", b"mine\n")
        assert refused.value.written_by is None


def test_a_merge_says_whose_changes_it_was_merged_with(root: Path) -> None:
    """ruling 21, N-merge."""
    (root / "plan.md").write_bytes(SEEN)
    with Workspace(root, on_stale="merge") as workspace, workspace.turn(agent_id="ana") as turn:
        turn.read_file("plan.md")
        with workspace.turn(agent_id="bob") as other:
            other.write_file("plan.md", SEEN.replace(b"two", b"TWO"))
        done = turn.write_file("plan.md", SEEN.replace(b"five", b"FIVE"))

    assert done.merged is not None
    assert done.merged.by.startswith("the agent bob at 20")


def test_the_status_says_who_wrote_what_is_in_a_refused_file(root: Path) -> None:
    """ruling 21, N-who."""
    with Workspace(root) as workspace, workspace.turn(agent_id="ana") as turn:
        turn.write_file("plan.md", b"ana's\n")
        with workspace.turn(agent_id="bob") as other:
            other.write_file("plan.md", b"bob's\n")
        with pytest.raises(StaleFileError):
            turn.write_file("plan.md", b"mine\n")

    done = run("status", "--root", str(root))

    (row,) = (line for line in done.out.splitlines() if "STALE_FILE" in line)
    assert (done.code, row.split()[1], row.split()[-1]) == (0, "ana", "bob")
