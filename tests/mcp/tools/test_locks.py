"""The lock tools, and writes inside a locked folder."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import sha256
from tests.mcp.conftest import Connect


def test_a_lock_is_acquired_shown_renewed_and_released(connect: Connect, root: Path) -> None:
    """REQ-LOCK-001, 005, 007, 013: any connection that has the id may renew and release."""
    (root / "part").mkdir()
    one, two = connect(), connect()

    taken = one("lock_acquire", path="part", holder="builder-1", lease_duration_s=60).structured
    refused = two("lock_acquire", path="part")
    status = two("lock_status", path="part").structured
    renewed = two("lock_renew", path="part", lock_id=taken["lock_id"], lease_duration_s=120)
    released = two("lock_release", path="part", lock_id=taken["lock_id"])
    after = one("lock_status", path="part").structured

    assert refused.is_error
    assert refused.structured["error_type"] == "LOCK_CONTENTION"
    assert refused.structured["holder"] == "builder-1"
    assert (status["state"], status["holder"]) == ("live", "builder-1")
    assert "lock_id" not in status
    assert not renewed.is_error
    assert released.structured["released"] is True
    assert after["state"] == "free"


def test_a_locked_folder_is_written_only_by_the_holder_or_with_the_lock_id(
    connect: Connect, root: Path
) -> None:
    """REQ-LOCK-013: others are refused, and so is a holder that lost its lock."""
    (root / "part").mkdir()
    holder, other = connect(), connect()
    anyone = connect(is_session=False, is_process=False)
    taken = holder("lock_acquire", path="part").structured
    shown = {"lock_id": taken["lock_id"]}

    mine = [
        holder("write_file", path="part/a.md", content="1"),
        holder("write_file", path="elsewhere.md", content="1"),
        holder("create_directory", path="part/in/it"),
        anyone("write_file", path="part/a.md", content="2", **shown),
        anyone("write_files", files=[{"path": "part/b.md", "content": "2"}], **shown),
    ]
    theirs = [
        call(*tool, **arguments)
        for call in (other, anyone)
        for tool, arguments in (
            (("write_file",), {"path": "part/c.md", "content": "x"}),
            (("write_files",), {"files": [{"path": "part/c.md", "content": "x"}]}),
            (("delete_file",), {"path": "part/a.md"}),
            (("create_directory",), {"path": "part/d"}),
            (("move_file",), {"source": "part/in", "destination": "out"}),
        )
    ]

    assert [one.is_error for one in mine] == [False] * 5
    assert [one.structured["error_type"] for one in theirs] == ["LOCK_CONTENTION"] * 10
    assert sorted(path.name for path in (root / "part").iterdir() if path.name[0] != ".") == [
        "a.md",
        "b.md",
        "in",
    ]

    other("lock_release", path="part", lock_id=taken["lock_id"])
    other("lock_acquire", path="part")
    holder("read_text_file", path="part/a.md")
    lost = holder("write_file", path="part/a.md", content="3", expected_hash=sha256(b"2"))
    assert lost.structured["error_type"] == "LOCK_LOST"


def test_a_wrong_lock_id_releases_nothing(connect: Connect, root: Path) -> None:
    """REQ-LOCK-005: only the owner's id."""
    (root / "part").mkdir()
    call = connect()
    call("lock_acquire", path="part")

    refused = call("lock_release", path="part", lock_id="0" * 32)

    assert refused.structured["error_type"] == "LOCK_LOST"
    assert call("lock_status", path="part").structured["state"] == "live"


def test_locks_end_with_a_connection_that_is_a_process(connect: Connect, root: Path) -> None:
    """REQ-LOCK-005: nobody is left to release it."""
    (root / "part").mkdir()
    call = connect()
    call("lock_acquire", path="part")

    call.connection.close()

    assert connect()("lock_status", path="part").structured["state"] == "free"


def test_a_wrong_lock_id_spoils_nothing_but_its_own_call(connect: Connect, root: Path) -> None:
    """finding S7: an id that is passed holds for that call; a wrong one made every later write fail."""
    (root / "part").mkdir()
    holder = connect()
    taken = holder("lock_acquire", path="part").structured

    wrong = [
        holder("write_file", path="part/a.md", content="1", lock_id="zzz"),
        holder("write_file", path="free.md", content="1", lock_id="zzz"),
    ]

    assert [one.structured["error_type"] for one in wrong] == ["LOCK_LOST"] * 2
    assert not holder("write_file", path="part/a.md", content="2").is_error
    assert not holder("write_file", path="part/a.md", content="3", lock_id=taken["lock_id"]).is_error
    assert not holder("write_file", path="part/a.md", content="4").is_error
    assert not holder("write_file", path="free.md", content="2").is_error
