"""One reader of files: what is at a path, for the library, a hook and the MCP server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noclobber.disk import reading
from noclobber.disk.file_guard import FileGuard
from noclobber.disk.reading import look_at
from noclobber.errors import (
    DELETED,
    NOT_A_FILE,
    MissingFileError,
    NotAFileError,
    OutsideWorkspaceError,
)
from tests.conftest import sha256


def make(root: Path, what: str) -> Path:
    path = root / "x"
    if what == "file":
        path.write_bytes(b"v1")
    elif what == "link":
        (root / "y").write_bytes(b"v1")
        path.symlink_to("y")
    elif what == "folder":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "broken link":
        path.symlink_to("gone")
    elif what == "below a file":
        path.write_bytes(b"")
        return path / "z"
    return path


@pytest.mark.parametrize(
    ("what", "state", "leads_to"),
    [
        ("file", sha256(b"v1"), "x"),
        ("link", sha256(b"v1"), "y"),
        ("folder", NOT_A_FILE, "x"),
        ("fifo", NOT_A_FILE, "x"),
        ("nothing", DELETED, "x"),
        ("broken link", DELETED, "gone"),
        ("below a file", NOT_A_FILE, "x/z"),
    ],
)
def test_a_hook_and_the_guard_see_the_same(root: Path, what: str, state: str, leads_to: str) -> None:
    """finding C1: one reader, so a hook and the library cannot come to different answers."""
    path = make(root, what)
    looked = look_at(str(path), keep=True)
    guard = FileGuard(root)
    assert (looked.path, looked.sha256) == (str(root / leads_to), state)
    assert guard.digest(path) == state
    if state != NOT_A_FILE:
        assert guard.locate(path) == looked.path
    if state == DELETED:
        with pytest.raises(MissingFileError):
            guard.read(path)
    elif state == NOT_A_FILE:
        with pytest.raises(NotAFileError):
            guard.read(path)
    else:
        seen = guard.read(path)
        assert (seen.path, seen.content, seen.sha256) == (looked.path, looked.content, looked.sha256)


def test_content_beyond_the_bound_is_hashed_and_not_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-speed: a large file does not fill a hook's memory."""
    monkeypatch.setattr(reading, "KEPT_BYTES", 3)
    (root / "x").write_bytes(b"1234")
    looked = look_at(str(root / "x"), keep=True)
    assert (looked.sha256, looked.content) == (sha256(b"1234"), None)
    (root / "x").write_bytes(b"123")
    assert look_at(str(root / "x"), keep=True).content == b"123"
    assert look_at(str(root / "x")).content is None


def test_what_is_outside_the_root_is_refused_and_not_read(root: Path) -> None:
    """009-FR-001: only without a root does it look anywhere."""
    assert look_at("/etc/passwd").content is None
    with pytest.raises(OutsideWorkspaceError):
        look_at("/etc/passwd", str(root))


def test_a_scan_begins_again_if_a_link_on_the_way_was_changed(root: Path) -> None:
    """finding C1: the whole-file read and the MCP server's head and tail share this rule."""
    for name in ("one", "two"):
        (root / name).write_bytes(name.encode())
    (root / "link").symlink_to("one")
    seen = []

    def consume(descriptor: int, path: str) -> bytes:
        seen.append(path)
        if len(seen) == 1:
            (root / "new").symlink_to("two")
            os.replace(root / "new", root / "link")
        return reading.read_all(descriptor)

    assert FileGuard(root).scan("link", consume) == (str(root / "two"), b"two", ())
    assert seen == [str(root / "one"), str(root / "two")]
