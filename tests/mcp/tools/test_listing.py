"""Listings, whatever the names are."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.mcp.conftest import Call


def test_a_file_name_that_is_not_utf8_is_listed(call: Call, root: Path) -> None:
    """N-mcp, N-input."""
    os.close(os.open(os.fsencode(root) + b"/bad\xff", os.O_CREAT | os.O_WRONLY))

    assert "bad\ufffd" in call("list_directory", path=".").content[0]["text"]
    assert "bad\ufffd" in call("search_files", path=".", pattern="*").content[0]["text"]
    json.dumps(call("directory_tree", path=".").structured).encode()
