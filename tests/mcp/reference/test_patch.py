"""Patches that other programs accept."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noclobber.mcp.reference import patch

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "  x"]), max_size=12)


@pytest.mark.skipif(shutil.which("patch") is None, reason="the program `patch` is not installed")
@settings(max_examples=40, deadline=None)
@given(before=LINES, after=LINES, ends=st.tuples(st.booleans(), st.booleans()))
def test_the_patch_tool_takes_our_patches(
    before: Any, after: Any, ends: tuple[bool, bool], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Counts, contexts and missing last newlines are right for a program that checks them."""
    old, new = (
        "\n".join(lines) + ("\n" if lines and end else "")
        for lines, end in zip((before, after), ends, strict=True)
    )
    folder = tmp_path_factory.mktemp("patch")
    (folder / "f").write_text(old)

    text = patch.unified(old, new, "f")
    if old != new:
        done = subprocess.run(
            ["patch", "-s", "f"], input=text, text=True, cwd=folder, capture_output=True, check=False
        )
        assert done.returncode == 0, (text, done.stdout)
        # patch removes a file that has become empty.
        assert ((folder / "f").read_text() if (folder / "f").exists() else "") == new
