"""Is a path what it says? A wrong yes would let a link lead out of a root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noclobber.disk import without_links

pytestmark = pytest.mark.skipif(
    not without_links.leads_somewhere("/"), reason="no openat2 here; then paths are walked"
)


def test_a_file_and_a_folder_without_links_on_the_way_are_there(tmp_path: Path) -> None:
    """N-mcp: the walk from folder to folder is left out for nearly every path."""
    real = tmp_path.resolve()
    (real / "a/b").mkdir(parents=True)
    (real / "a/b/file").write_text("")
    os.mkfifo(real / "a/pipe")  # Is not waited for.

    assert all(without_links.leads_somewhere(f"{real}/{name}") for name in ("a", "a/b/file", "a/pipe"))


def test_a_link_anywhere_on_the_way_or_nothing_at_the_end_is_no(tmp_path: Path) -> None:
    """N-mcp, finding S14: links of a folder, of a file, broken ones, and those of /proc."""
    real = tmp_path.resolve()
    (real / "a").mkdir()
    (real / "a/file").write_text("")
    (real / "folder").symlink_to("a")
    (real / "a/link").symlink_to("file")
    (real / "a/broken").symlink_to("nothing")

    names = ("folder/file", "folder", "a/link", "a/broken", "a/none", "a/file/below")
    assert not any(without_links.leads_somewhere(f"{real}/{name}") for name in names)
    assert not without_links.leads_somewhere(f"/proc/self/root{real}/a/file")
    descriptor = os.open(real, os.O_RDONLY)
    try:
        assert not without_links.leads_somewhere(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
