"""A folder whose files the filesystem keeps apart from those around it."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from noclobber.disk import apart
from noclobber.disk.commit.committer import Committer
from noclobber.disk.metadata import GET_FLAGS


def is_marked(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        flags = fcntl.ioctl(descriptor, GET_FLAGS, bytes(8))
    except OSError as error:
        pytest.skip(f"this filesystem has no attributes: {error.strerror}")
    finally:
        os.close(descriptor)
    return bool(int.from_bytes(flags[:4], sys.byteorder) & apart.TOP_OF_A_HIERARCHY)


def marked_at_mkdir(monkeypatch: pytest.MonkeyPatch, state: Path) -> dict[str, bool]:
    """Note for each folder that is made in `state` whether that had the attribute at the time."""
    noted: dict[str, bool] = {}
    really = os.mkdir

    def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            noted[str(path)] = is_marked(state)
        really(path, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", mkdir)
    return noted


def test_only_the_folder_of_swap_files_is_made_apart_and_nothing_of_it_stays(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-speed: where a project has just deleted many files, ext4 takes long to make another one there."""
    noted = marked_at_mkdir(monkeypatch, root / ".noclobber")
    Committer(str(root)).replace("a.md", None, b"x")
    if not noted["swap"]:
        pytest.skip("this filesystem does not have the attribute T")
    assert [name for name, was_marked in noted.items() if was_marked] == ["swap"]
    assert not is_marked(root / ".noclobber")


def test_an_attribute_that_its_owner_has_set_stays(root: Path) -> None:
    """N-speed: ours is for a moment; theirs is not ours to clear."""
    parent = os.open(root, os.O_RDONLY)
    try:
        is_marked(root)  # Skips where there are no attributes.
        if not apart._mark(parent, is_top=True):
            pytest.skip("this filesystem does not have the attribute T")
        apart.make_folder_apart("below", 0o700, parent)
        assert (root / "below").is_dir()
        assert is_marked(root)
        with pytest.raises(FileExistsError):
            apart.make_folder_apart("below", 0o700, parent)
    finally:
        os.close(parent)


def test_where_there_is_no_such_attribute_the_folder_is_made_all_the_same() -> None:
    """N-speed: tmpfs has none."""
    import tempfile

    if not os.path.isdir("/dev/shm"):
        pytest.skip("no tmpfs here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        parent = os.open(folder, os.O_RDONLY)
        apart.make_folder_apart("below", 0o700, parent)
        os.close(parent)
        assert os.path.isdir(f"{folder}/below")
