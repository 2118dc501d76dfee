"""Values: what they look like in a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber import (
    Attempt,
    DeliverableLock,
    OptimisticGuard,
    StaleFileError,
    TurnClosedError,
    Workspace,
    aio,
)
from tests.conftest import sha256


def test_a_repr_says_what_matters_and_shows_no_content(root: Path) -> None:
    """finding U13: short enough for a log, and a log is no place for what a file holds."""
    path, secret = root / "a.md", b"secret\nsecret\n"
    path.write_bytes(secret)
    digest = sha256(secret)[:12]
    with Workspace(root) as workspace, workspace.turn(agent_id="ana", turn_id="t1") as turn:
        whole, part = turn.read_file("a.md"), turn.read_file("a.md", end_line=1)
        assert repr(whole) == f"<ReadResult '{path}' sha256 {digest}, 14 bytes>"
        assert repr(part) == f"<ReadResult '{path}' sha256 {digest}, 7 bytes, a part>"
        written = turn.write_file("a.md", b"new")
        expected = f"<WriteResult '{path}' {digest} -> {sha256(b'new')[:12]}, level '{written.level}'>"
        assert repr(written) == expected
        assert repr(written._replace(kept=("/k",))) == f"{expected[:-1]}, kept ['/k']>"
        assert repr(OptimisticGuard(root).read("a.md")) == (
            f"<FileRead '{path}' sha256 {sha256(b'new')[:12]}, 3 bytes>"
        )
        assert repr(workspace) == f"<Workspace '{root}'>"
        assert repr(turn) == f"<Turn 't1' of 'ana' in '{root}', open>"
        conflict = StaleFileError(str(path), whole.sha256, written.sha256)
        for value in (part, Attempt(2, whole, conflict, "-secret\n+other\n"), turn, turn.context):
            assert "secret" not in repr(value)
            assert len(repr(value)) < 600
    assert repr(workspace) == f"<Workspace '{root}' closed>"
    assert repr(turn) == f"<Turn 't1' of 'ana' in '{root}', ended>"


def test_a_lock_and_the_twins_say_what_they_are(root: Path) -> None:
    """finding U13: and never the id of a lock, because whoever has it may release the lock."""
    lock = DeliverableLock(root, holder="ana")
    assert repr(lock) == f"<DeliverableLock '{root}' by 'ana', not held>"
    with lock:
        assert repr(lock) == f"<DeliverableLock '{root}' by 'ana', held>"
        assert lock.lock_id is not None
        assert lock.lock_id not in repr(lock)
    twin = aio.Workspace(root)
    assert repr(twin) == f"<aio.Workspace '{root}'>"
    assert repr(twin.turn(turn_id="t1")) == f"<aio.Turn 't1' of 'agent' in '{root}', open>"
    assert (
        repr(aio.DeliverableLock(root, holder="ana")) == f"<aio.DeliverableLock '{root}' by 'ana', not held>"
    )
    twin.sync.close()


def test_a_closed_workspace_opens_no_turn(root: Path) -> None:
    """finding U13: on either side."""
    workspace = Workspace(root)
    workspace.close()
    workspace.close()
    with pytest.raises(TurnClosedError, match="The workspace is closed"):
        workspace.turn()
    twin = aio.Workspace(root)
    twin.sync.close()
    with pytest.raises(TurnClosedError, match="The workspace is closed"):
        twin.turn()
