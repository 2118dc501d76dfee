"""Whatever happens inside a call, the client gets an answer that it can read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from bench.mcp_peer import our_command

from noclobber.mcp.tools import TOOLS
from tests.conftest import sha256
from tests.mcp.conftest import Call, Connect
from tests.rigs.mcp import CheckedPeer


def test_a_bug_of_ours_is_answered_and_does_not_end_the_server(
    call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-mcp, N-input: one sentence to the client, the traceback on stderr."""

    def broken(*_: object) -> Any:
        raise ZeroDivisionError("a secret")

    monkeypatch.setitem(TOOLS, "read_file", TOOLS["read_file"]._replace(run=broken))

    told = call("read_file", path="a")

    assert told.is_error
    assert "ZeroDivisionError" in told.content[0]["text"]
    assert "a secret" not in told.content[0]["text"]
    assert "ZeroDivisionError: a secret" in capsys.readouterr().err


def test_lock_contention_is_one_flat_object_in_text_and_structured_content(
    connect: Connect, root: Path
) -> None:
    """finding D4, REQ-LOCK-007: for an acquire and for a write; the output schema admits it."""
    (root / "part").mkdir()
    holder, other = connect(), connect()
    holder("lock_acquire", path="part", holder="builder-1", deliverable_id="part-7", lease_duration_s=60)

    refusals = [
        other("lock_acquire", path="part", deliverable_id="part-7"),
        other("write_file", path="part/a.md", content="x"),
    ]

    for refused in refusals:
        assert refused.is_error
        assert set(refused.structured) == {
            "error_type",
            "deliverable_id",
            "holder",
            "lease_remaining_s",
            "contention_time",
        }
        assert refused.structured["error_type"] == "LOCK_CONTENTION"
        assert refused.structured["holder"] == "builder-1"
        assert refused.structured["deliverable_id"] == "part-7"
        assert json.loads(refused.content[0]["text"]) == refused.structured


def test_a_refusal_that_names_a_file_that_is_not_utf8_can_be_sent(root: Path) -> None:
    """N-mcp, N-input: such a name ended the server, because the protocol cannot encode it."""
    (root / os.fsdecode(b"bad\xff")).write_bytes(b"v1")
    (root / "link").symlink_to(os.fsdecode(b"bad\xff"))
    (root / "plain").write_bytes(b"v1")

    with CheckedPeer([*our_command(), str(root)]) as peer:
        stale = peer.call("write_file", path="link", content="x", expected_hash=sha256(b"v0"))
        mismatch = peer.call("edit_file", path="plain", edits=[{"oldText": "a\ud800", "newText": "b"}])
        media = peer.call("read_media_file", path="link")

    assert stale["structuredContent"]["file_path"] == f"{root}/bad\ufffd"
    assert mismatch["structuredContent"]["error_type"] == "EDIT_MISMATCH"
    assert media["content"][0]["resource"]["uri"].endswith("/bad%FF")


def test_a_deleted_file_is_told_beside_the_object(root: Path, connect: Connect) -> None:
    """009-edge-deleted, finding D13, ruling 3: the object as ever, and the specification's two words after it."""
    call = connect()
    (root / "a.md").write_text("v1")
    call("read_text_file", path="a.md")
    (root / "a.md").unlink()

    refused = call("write_file", path="a.md", content="v2")

    told = [block["text"] for block in refused.content]
    assert json.loads(told[0])["details"]["current_disk_hash"] == "DELETED"
    assert told[1:] == ["Target missing: it was deleted."]
    assert refused.structured["actual_hash"] == "DELETED"
