"""Moves, of files and of folders."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from noclobber.disk import renames
from tests.conftest import AtStep, sha256
from tests.mcp.conftest import Call, Connect, events


def test_a_move_between_roots_is_checked_and_a_refusal_leaves_both_as_they_were(
    connect: Connect, tmp_path: Path
) -> None:
    """009-FR-003 across roots: the source must be what was seen, and a refusal leaves both as they were."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    call = connect(one, two)
    source = one / "a.sh"
    source.write_bytes(b"v1")
    source.chmod(0o755)
    call("read_text_file", path=str(source))
    source.write_bytes(b"v2")

    refused = call("move_file", source=str(source), destination=str(two / "a.sh"))
    assert refused.is_error
    assert source.read_bytes() == b"v2"
    assert not (two / "a.sh").exists()

    call("read_text_file", path=str(source))
    assert not call("move_file", source=str(source), destination=str(two / "a.sh")).is_error
    assert not source.exists()
    assert (two / "a.sh").read_bytes() == b"v2"
    assert (two / "a.sh").stat().st_mode & 0o777 == 0o755


def test_moving_a_folder_is_on_record(call: Call, root: Path) -> None:
    """A folder has no hash, but where it went is written down."""
    (root / "part").mkdir()

    call("move_file", source="part", destination="piece")

    [event] = events(root)
    assert event["payload"]["destination"] == "piece"


def test_strict_holds_for_a_move_between_roots(connect: Connect, tmp_path: Path) -> None:
    """N-mcp, `--strict`: the copy must not be made, and must not stand in for what the caller has to say."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    (one / "a.md").write_bytes(b"v1")
    call = connect(one, two, strict=True)
    names = {"source": str(one / "a.md"), "destination": str(two / "a.md")}
    call("read_text_file", path=names["source"])

    refused = call("move_file", **names)

    assert refused.structured["error_type"] == "UNREAD_FILE"
    assert [event["action_type"] for event in events(one)] == ["MUTATION_REFUSED"]
    assert not (two / ".noclobber").exists()
    assert not (two / "a.md").exists()
    assert not call("move_file", **names, expected_hash=sha256(b"v1")).is_error
    assert (two / "a.md").read_bytes() == b"v1"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("create_directory", {"path": "src/new"}),
        ("move_file", {"source": "docs/part", "destination": "src/other"}),
        ("move_file", {"source": "src/part", "destination": "docs/other"}),
    ],
)
def test_folders_outside_the_write_scope_are_left_alone(
    connect: Connect, root: Path, tool: str, arguments: dict[str, str]
) -> None:
    """K-WRITE-1: the rules are asked about folders as well, and the refusal is recorded."""
    (root / "noclobber.toml").write_text('write_scope = ["docs"]\n')
    for folder in ("docs/part", "src/part"):
        (root / folder).mkdir(parents=True)

    refused = connect()(tool, **arguments)

    assert refused.structured["error_type"] == "OUTSIDE_SCOPE"
    assert sorted(str(path.relative_to(root)) for path in root.glob("*/*") if path.parent.name[0] != ".") == [
        "docs/part",
        "src/part",
    ]
    assert [event["action_type"] for event in events(root)] == ["MUTATION_REFUSED"]


def test_a_folder_in_a_locked_one_is_not_created_and_that_is_recorded(connect: Connect, root: Path) -> None:
    """REQ-LOCK-013, N-ledger: every refusal is on record, also where no file is concerned."""
    (root / "part").mkdir()
    holder, other = connect(), connect()
    holder("lock_acquire", path="part")

    refused = other("create_directory", path="part/new")

    assert refused.structured["error_type"] == "LOCK_CONTENTION"
    assert not (root / "part/new").exists()
    assert [event["action_type"] for event in events(root)] == ["MUTATION_REFUSED"]


@pytest.mark.parametrize("name", [".lock", ".lock-ledger.jsonl", ".LOCK", ".lock.take.1", ".lock.new.x"])
def test_no_folder_gets_the_name_of_a_locks_file(call: Call, root: Path, name: str) -> None:
    """finding S20: such a folder stopped all locking beside it, also if it came with a folder below it."""
    (root / "part").mkdir()
    (root / "empty").mkdir()

    refused = [
        call("create_directory", path=f"part/{name}"),
        call("create_directory", path=f"part/{name}/below/it"),
        call("move_file", source="empty", destination=f"part/{name}"),
    ]

    assert [one.structured["error_type"] for one in refused] == ["RESERVED_FILE"] * 3
    assert list((root / "part").iterdir()) == []
    assert not call("lock_acquire", path="part").is_error


@pytest.fixture
def two_roots(connect: Connect, tmp_path: Path) -> tuple[Call, Path, Path]:
    """A connection with two roots."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    return connect(one, two), one, two


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o755, 0o777])
@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_a_file_that_moves_between_roots_never_has_a_wider_mode(
    two_roots: tuple[Call, Path, Path], at_step: AtStep, mode: int, umask: int
) -> None:
    """finding S16: a private file was readable by everybody for a moment. It has its mode from the start."""
    call, one, two = two_roots
    source = one / "key"
    source.write_bytes(b"secret")
    source.chmod(mode)
    modes: list[int] = []

    def look() -> None:
        found = [*(two / ".noclobber" / "swap").iterdir(), *two.glob("key")]
        modes.extend(stat.S_IMODE(path.stat().st_mode) for path in found)

    at_step("creating", look)
    before = os.umask(umask)
    try:
        moved = call("move_file", source=str(source), destination=str(two / "key"))
    finally:
        os.umask(before)

    assert not moved.is_error
    assert modes == [mode & ~umask]
    assert stat.S_IMODE((two / "key").stat().st_mode) == mode
    assert not source.exists()


def test_a_move_between_roots_changes_the_mode_of_no_other_file(
    two_roots: tuple[Call, Path, Path], at_step: AtStep, tmp_path: Path
) -> None:
    """finding S16: a link that was put in the destination's place led chmod to another file."""
    call, one, two = two_roots
    source, victim = one / "tool.sh", tmp_path / "victim"
    source.write_bytes(b"#!/bin/sh\n")
    source.chmod(0o777)
    victim.write_bytes(b"private")
    victim.chmod(0o600)

    def put_a_link() -> None:
        (two / "tool.sh").unlink()
        (two / "tool.sh").symlink_to(victim)

    reached = at_step("created", put_a_link)
    call("move_file", source=str(source), destination=str(two / "tool.sh"))

    assert reached == ["created"]
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600
    assert victim.read_bytes() == b"private"


def test_a_copy_does_not_run_as_somebody_else(two_roots: tuple[Call, Path, Path]) -> None:
    """finding S16: the copy belongs to this user, so bits that lend its owner's rights are not copied."""
    call, one, two = two_roots
    (one / "tool").write_bytes(b"x")
    (one / "tool").chmod(0o6755)

    call("move_file", source=str(one / "tool"), destination=str(two / "tool"))

    assert stat.S_IMODE((two / "tool").stat().st_mode) == 0o755


def test_a_move_between_roots_of_a_file_that_was_not_read_deletes_what_was_copied_only(
    two_roots: tuple[Call, Path, Path], at_step: AtStep
) -> None:
    """Findings S10, S16: no hash was named, and still a save in between is not lost."""
    call, one, two = two_roots
    source = one / "a.md"
    source.write_bytes(b"v1")
    at_step("created", lambda: source.write_bytes(b"v2"))

    refused = call("move_file", source=str(source), destination=str(two / "a.md"))

    assert refused.structured["error_type"] == "STALE_FILE"
    assert source.read_bytes() == b"v2"
    assert not (two / "a.md").exists()
    assert not call("move_file", source=str(source), destination=str(two / "a.md")).is_error
    assert (two / "a.md").read_bytes() == b"v2"


@pytest.mark.parametrize("locked", ["part", "part/deep", "part/deep/er"])
@pytest.mark.parametrize("destination", ["away", "other/away"])
def test_a_folder_with_somebody_elses_lock_in_it_is_not_moved(
    connect: Connect, root: Path, locked: str, destination: str
) -> None:
    """finding S7: the locked folder itself, or one in it; its holder would go on at the old place."""
    (root / "part/deep/er").mkdir(parents=True)
    (root / "other").mkdir()
    holder, other = connect(), connect()
    taken = holder("lock_acquire", path=locked, holder="builder-1").structured

    refused = other("move_file", source="part", destination=destination)
    guessed = other("move_file", source="part", destination=destination, lock_id="0" * 32)

    assert refused.structured["error_type"] == "LOCK_CONTENTION"
    assert refused.structured["holder"] == "builder-1"
    assert guessed.structured["error_type"] in ("LOCK_CONTENTION", "LOCK_LOST")
    assert (root / locked / ".lock").exists()
    assert [event["action_type"] for event in events(root)] == ["MUTATION_REFUSED"] * 2
    holder("lock_release", path=locked, lock_id=taken["lock_id"])
    assert not other("move_file", source="part", destination=destination).is_error


def test_a_holder_may_move_its_own_folder_and_keeps_its_lock(connect: Connect, root: Path) -> None:
    """finding S7: asked for the lock, it has it; afterwards the lock is where the folder is."""
    (root / "part/deep").mkdir(parents=True)
    holder, other = connect(), connect()
    holder("lock_acquire", path="part/deep")

    assert not holder("move_file", source="part", destination="piece").is_error
    assert not holder("write_file", path="piece/deep/a.md", content="mine").is_error
    assert other("write_file", path="piece/deep/a.md", content="x").is_error
    holder.connection.close()
    assert connect()("lock_status", path="piece/deep").structured["state"] == "free"


def test_a_lock_that_is_taken_during_the_move_takes_it_back(
    connect: Connect, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding S7: between our look and the rename somebody locked a folder in it."""
    (root / "part/deep").mkdir(parents=True)
    holder, other = connect(), connect()
    rename = renames.move_without_replacing

    def locked_first(*names: Any) -> None:
        monkeypatch.setattr(renames, "move_without_replacing", rename)
        assert not holder("lock_acquire", path="part/deep").is_error
        rename(*names)

    monkeypatch.setattr(renames, "move_without_replacing", locked_first)
    refused = other("move_file", source="part", destination="away")

    assert refused.structured["error_type"] == "LOCK_CONTENTION"
    assert not (root / "away").exists()
    assert not holder("write_file", path="part/deep/a.md", content="mine").is_error
