"""Listings, whatever the names are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.mcp.conftest import Call


def test_a_file_name_that_is_not_utf8_is_listed(call: Call, root: Path) -> None:
    """N-mcp, N-input."""
    os.close(os.open(os.fsencode(root) + b"/bad\xff", os.O_CREAT | os.O_WRONLY))

    assert "bad\ufffd" in call("list_directory", path=".").content[0]["text"]
    assert "bad\ufffd" in call("search_files", path=".", pattern="*").content[0]["text"]
    json.dumps(call("directory_tree", path=".").structured).encode()


def test_lock_files_and_our_records_are_in_no_listing(call: Call, root: Path) -> None:
    """finding D7, REQ-LOCK-010: a lock's file may hold what is for its holder alone."""
    (root / "part").mkdir()
    call("lock_acquire", path="part")
    call("write_file", path="part/plan.md", content="x")
    (root / "part" / ".Noclobber").mkdir()
    for name in (".LOCK", ".lock.take.1", ".lock.new.2", ".lock.aside.3"):  # Beside .lock and its ledger.
        (root / "part" / name).write_text("{}")
    (root / "link").symlink_to("part/.lock")

    shown = [
        call("list_directory", path="part").content[0]["text"],
        call("list_directory_with_sizes", path="part").content[0]["text"],
        call("directory_tree", path=".").content[0]["text"],
        call("search_files", path=".", pattern="**").content[0]["text"],
        call("search_files", path=".", pattern="**/.l*").content[0]["text"],
    ]

    assert [".lock" in text.casefold() or ".noclobber" in text.casefold() for text in shown] == [False] * 5
    assert all("plan.md" in text for text in shown[:4])


@pytest.mark.parametrize("path", ["part/.lock", "part/.lock-ledger.jsonl", ".noclobber", "link", "records"])
@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("get_file_info", {}),
        ("list_directory", {}),
        ("list_directory_with_sizes", {}),
        ("directory_tree", {}),
        ("search_files", {"pattern": "**"}),
        ("read_text_file", {}),
        ("read_media_file", {}),
    ],
)
def test_what_may_not_be_read_may_not_be_described(
    call: Call, root: Path, tool: str, more: dict[str, str], path: str
) -> None:
    """finding D7: by its name, or by a link to it."""
    (root / "part").mkdir()
    call("lock_acquire", path="part")
    call("write_file", path="part/plan.md", content="x")
    (root / "link").symlink_to("part/.lock")
    (root / "records").symlink_to(".noclobber")

    refused = call(tool, path=path, **more)

    assert refused.is_error
    assert refused.structured["error_type"] in ("RESERVED_FILE", "OUTSIDE_WORKSPACE")
