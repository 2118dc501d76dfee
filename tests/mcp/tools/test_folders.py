"""Moves, of files and of folders."""

from __future__ import annotations

from pathlib import Path

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
