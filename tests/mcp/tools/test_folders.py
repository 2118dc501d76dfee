"""Moves, of files and of folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import sha256
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
    """Finding S20: such a folder stopped all locking beside it, also if it came with a folder below it."""
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
