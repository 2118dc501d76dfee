"""The last refusals, and who was in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber import StaleFileError, Workspace
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.view import workspace_state
from noclobber.view.workspace_state import read_state
from tests.view.ledgers import ledger_of, refused, written


def in_the_way(root: Path) -> list[str | None]:
    """Who `status` says was in the way, of each refusal."""
    return [refusal["written_by"] for refusal in read_state(str(root), SYSTEM_CLOCK).refusals]


def test_it_is_who_wrote_the_version_that_was_met_and_not_who_wrote_last(root: Path) -> None:
    """ruling 21: the refused agent read again and wrote; status named that agent as the cause of its refusal."""
    (root / "plan.md").write_text("one\n")
    with (
        Workspace(root) as workspace,
        workspace.turn(agent_id="ana") as ana,
        workspace.turn(agent_id="ben") as ben,
    ):
        ben.read_file("plan.md")
        ana.read_file("plan.md")
        ana.write_file("plan.md", b"two\n")
        with pytest.raises(StaleFileError):
            ben.write_file("plan.md", b"three\n")
        ben.read_file("plan.md")
        ben.write_file("plan.md", b"three\n")
        (root / "plan.md").write_text("by hand\n")
        with pytest.raises(StaleFileError):
            ana.write_file("plan.md", b"four\n")
    first, second = in_the_way(root)
    assert (first or "").startswith("the agent ana at 20")
    assert (second or "").startswith("an outsider, at 20")
    (root / "plan.md").write_text("again\n")
    assert in_the_way(root)[1] == "an outsider"  # When, nobody knows any more.
    (root / "plan.md").unlink()
    assert in_the_way(root)[1] == "an outsider"


def test_nobody_is_named_if_the_record_was_not_read_to_its_beginning(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ruling 21: the write may be further back than was looked; "an outsider" would be a guess."""
    ledger = ledger_of(root)
    ledger.append(written("a.md", "ABSENT", "1", "ana"))
    ledger.append(refused("a.md", "0", "1"))
    assert (in_the_way(root)[0] or "").startswith("the agent ana")
    monkeypatch.setattr(workspace_state, "EVENTS_LOOKED_AT", 1)
    assert in_the_way(root) == [None]


@pytest.mark.broken_ledger
def test_a_refusal_that_nobody_caused_names_nobody(root: Path) -> None:
    """ruling 21: outside the scope, deleted, and events that hold anything."""
    ledger = ledger_of(root)
    ledger.append(refused("a.md", "1", "DELETED"))
    ledger.append({"action_type": "MUTATION_REFUSED", "payload": {"target_file": "../../etc/passwd"}})
    ledger.append({"action_type": "MUTATION_CONFLICT", "payload": {"target_file": 3, "current_hash": []}})
    ledger.append({"action_type": "LOCK_CONTENTION", "payload": 7, "result": {"holder": {}}})
    assert in_the_way(root) == [None] * 4


def test_who_wrote_the_same_bytes_later_was_not_in_the_way(root: Path) -> None:
    """ruling 21: the refused agent itself may write them again, and was named as the cause of its refusal."""
    ledger = ledger_of(root)
    ledger.append(written("a.md", "ABSENT", "1", "ana"))
    ledger.append(refused("a.md", "1", "2"))
    ledger.append(written("a.md", "2", "3", "ben"))
    ledger.append(written("a.md", "3", "2", "ben"))
    assert in_the_way(root) == ["an outsider"]
