"""Reads of every kind count, whole or in part; and what changed since can be shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import sha256
from tests.mcp.conftest import Call


@pytest.mark.parametrize("part", [{"head": 1}, {"tail": 1}])
def test_a_part_of_a_file_is_enough_to_notice_that_the_file_changed(
    call: Call, root: Path, part: dict[str, int]
) -> None:
    """Ruling 11: every read stamps the whole file's hash."""
    plan = root / "plan.md"
    plan.write_bytes(b"a\nb\nc\n")
    seen = call("read_text_file", path="plan.md", **part)
    assert seen.structured["sha256"] == sha256(b"a\nb\nc\n")
    plan.write_bytes(b"a\nX\nc\n")

    assert call("write_file", path="plan.md", content="mine").is_error


def test_reads_of_every_kind_count(call: Call, root: Path) -> None:
    """Media files and files read several at once are seen, too."""
    for name in ("one.md", "two.png"):
        (root / name).write_bytes(b"v1")
    call("read_multiple_files", paths=["one.md"])
    call("read_media_file", path="two.png")
    for name in ("one.md", "two.png"):
        (root / name).write_bytes(b"v2")

    assert call("write_file", path="one.md", content="x").is_error
    assert call("write_file", path="two.png", content="x").is_error


def test_changes_since_read_shows_what_happened_and_does_not_count_as_a_read(call: Call, root: Path) -> None:
    """N-diff: to write, the agent has to read."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\ntwo\n")
    call("read_text_file", path="plan.md")
    same = call("changes_since_read", path="plan.md")
    plan.write_bytes(b"one\nTWO\n")

    changed = call("changes_since_read", path="plan.md")

    assert same.content[0]["text"] == ""
    assert "-two\n+TWO\n" in changed.content[0]["text"]
    assert changed.structured["sha256"] == sha256(b"one\nTWO\n")
    assert call("write_file", path="plan.md", content="x").is_error


def test_changes_since_read_of_a_file_that_nobody_read_is_a_clear_refusal(call: Call, root: Path) -> None:
    """There is nothing to compare with."""
    (root / "plan.md").write_bytes(b"x")

    refused = call("changes_since_read", path="plan.md")

    assert refused.structured["error_type"] == "UNREAD_FILE"


def test_a_fifo_is_refused_and_never_waited_for(call: Call, root: Path) -> None:
    """N-mcp, N-input: the reference server hangs on one."""
    os.mkfifo(root / "fifo")

    for tool, more in (("read_text_file", {}), ("write_file", {"content": "x"}), ("read_media_file", {})):
        refused = call(tool, path="fifo", **more)
        assert refused.structured["error_type"] == "NOT_A_FILE"


def test_lock_files_and_our_own_records_cannot_be_read_or_written(call: Call, root: Path) -> None:
    """REQ-LOCK-010; and an agent cannot edit its own record."""
    (root / "part").mkdir()
    call("lock_acquire", path="part")
    call("write_file", path="a.md", content="x")

    for path in ("part/.lock", ".noclobber/agent_trace.jsonl"):
        assert call("read_text_file", path=path).is_error
        assert call("write_file", path=path, content="x").is_error
    assert ".noclobber" not in call("list_directory", path=".").content[0]["text"]
    assert ".noclobber" not in call("search_files", path=".", pattern="**").content[0]["text"]
