"""The lock tools, and writes inside a locked folder."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_a_client_may_lock_below_its_own_lock(connect: Connect, root: Path) -> None:
    """Ruling 24, finding D3: by its connection, or without a session by the id that it passes; nobody else."""
    (root / "part" / "in").mkdir(parents=True)
    holder, other, anyone = connect(), connect(), connect(is_session=False, is_process=False)
    outer = holder("lock_acquire", path="part").structured

    refused = [
        other("lock_acquire", path="part/in"),
        anyone("lock_acquire", path="part/in"),
        anyone("lock_acquire", path="part/in", lock_id="f" * 32),
    ]
    inner = holder("lock_acquire", path="part/in").structured
    holder("lock_release", path="part/in", lock_id=inner["lock_id"])
    again = anyone("lock_acquire", path="part/in", lock_id=outer["lock_id"])

    assert [one.structured["error_type"] for one in refused] == ["LOCK_CONTENTION"] * 3
    assert inner["lock_id"] != outer["lock_id"]
    assert not again.is_error


def test_a_lock_that_a_client_takes_stays_out_of_git(connect: Connect, root: Path) -> None:
    """finding D7: nothing was written through the server yet, so nobody has set the project up."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / "part").mkdir()

    connect()("lock_acquire", path="part")

    shown = subprocess.run(["git", "-C", str(root), "status", "--porcelain", "-uall"], capture_output=True)
    assert b".lock" not in shown.stdout


def test_nothing_that_others_can_see_is_a_lock_id(connect: Connect, root: Path) -> None:
    """findings S7 and S12: every word of the lock file, the record, the status and a refusal is tried as one."""
    (root / "part").mkdir()
    holder, other = connect(), connect()
    taken = holder("lock_acquire", path="part", holder="builder-1").structured
    holder("lock_renew", path="part", lock_id=taken["lock_id"])
    seen = [path.read_text() for path in (root / "part").iterdir() if path.name.startswith(".lock")]
    seen += [str(other("lock_status", path="part")), str(other("lock_acquire", path="part"))]
    status = subprocess.run(
        [sys.executable, "-m", "noclobber", "lock", "status", str(root / "part"), "--json"],
        capture_output=True,
        text=True,
    )
    seen.append(status.stdout)
    words = {word for text in seen for word in re.findall(r"[A-Za-z0-9_.:/+-]+", text)}
    words |= {part for word in words for part in re.split(r"[^A-Za-z0-9]", word) if part}
    words |= {hashlib.sha256(word.encode()).hexdigest() for word in words}
    assert len(words) > 60

    for word in sorted(words):
        for tool in ("lock_release", "lock_renew"):
            assert other(tool, path="part", lock_id=word).is_error, word
        assert other("write_file", path="part/a.md", content="x", lock_id=word).is_error, word

    assert taken["lock_id"] not in words
    assert other("lock_status", path="part").structured["state"] == "live"
    assert holder("lock_release", path="part", lock_id=taken["lock_id"]).structured["released"] is True
