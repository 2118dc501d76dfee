"""Where a path may lead, and what cannot name a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from noclobber.disk.file_guard import FileGuard
from noclobber.errors import (
    BadPathError,
    MissingFileError,
    NotAFileError,
    OutsideWorkspaceError,
)
from tests.conftest import AtStep, sha256


@pytest.mark.parametrize("path", ["../out.md", "/etc/passwd", "sub/../../out.md", "/"])
def test_paths_outside_the_workspace_are_refused(guard: FileGuard, root: Path, path: str) -> None:
    """N-paths: neither read nor written, and nothing is created out there."""
    with pytest.raises((OutsideWorkspaceError, NotAFileError)):
        guard.read(path)
    with pytest.raises((OutsideWorkspaceError, NotAFileError)):
        guard.write(path, b"x", expected=None)
    assert not (root.parent / "out.md").exists()


def test_a_link_out_of_the_workspace_is_not_followed(guard: FileGuard, root: Path, tmp_path: Path) -> None:
    """N-paths: through links too, to files and to folders."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "file").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    for path in ("file", "folder/secret", "folder/new"):
        with pytest.raises(OutsideWorkspaceError):
            guard.read(path)
        with pytest.raises(OutsideWorkspaceError):
            guard.write(path, b"x", expected=None)
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_folder_swapped_for_a_link_in_between_leads_nowhere(
    guard: FileGuard, root: Path, tmp_path: Path, at_step: AtStep
) -> None:
    """N-paths: the folder was pinned before it was judged, so the swap comes too late."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.md").write_bytes(b"v1")
    (root / "sub").mkdir()
    (root / "sub/a.md").write_bytes(b"v1")

    def swap() -> None:
        os.rename(root / "sub", root / "was")
        (root / "sub").symlink_to(outside)

    seen = at_step("entered", swap)
    guard.write("sub/a.md", b"agent", expected=sha256(b"v1"))
    assert seen
    assert (outside / "a.md").read_bytes() == b"v1"
    assert (root / "was/a.md").read_bytes() == b"agent"


@pytest.mark.parametrize("path", [".noclobber/agent_trace.jsonl", ".noclobber/notes/x", "a/.noclobber/x"])
def test_our_own_records_are_out_of_reach(guard: FileGuard, root: Path, path: str) -> None:
    """N-paths: an agent cannot read or edit its own trace."""
    (root / "a").mkdir()
    with pytest.raises((OutsideWorkspaceError, MissingFileError)):
        guard.read(path)
    with pytest.raises(OutsideWorkspaceError):
        guard.write(path, b"x", expected=None)


def test_a_link_into_our_own_records_is_out_of_reach(guard: FileGuard, root: Path) -> None:
    """N-paths."""
    guard.write("a.md", b"x", expected=None)
    (root / "door").symlink_to(".noclobber")
    with pytest.raises(OutsideWorkspaceError):
        guard.write("door/agent_trace.jsonl", b"x", expected=None)


@pytest.mark.parametrize(
    "path",
    ["a\0b", "", "x" * 300, "/".join(["d" * 200] * 30), "bad\udcff.md", b"bytes"],
    ids=["nul", "empty", "long name", "long path", "not utf-8", "bytes"],
)
def test_paths_that_cannot_name_a_file_are_refused_by_name(guard: FileGuard, root: Path, path: Any) -> None:
    """N-paths: the error names the path and the reason, and prints."""
    for call in (guard.read, lambda p: guard.write(p, b"x", expected=None)):
        with pytest.raises((BadPathError, MissingFileError)) as refused:
            call(path)
        assert str(refused.value).encode()
    with pytest.raises(BadPathError):
        guard.write(path, b"x", expected="0" * 64)


def test_links_in_a_circle_are_refused(guard: FileGuard, root: Path) -> None:
    """N-links."""
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    with pytest.raises(BadPathError):
        guard.read("a")
