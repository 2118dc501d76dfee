"""What is found in a file's pages after somebody has emptied the file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from noclobber.guard import pinned_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages can be held on Linux only")


def held(path: Path) -> int:
    """Hold the pages of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        pipe_fd = pinned_pages.hold(descriptor, path.stat().st_size)
    finally:
        os.close(descriptor)
    assert pipe_fd is not None
    return pipe_fd


@pytest.mark.parametrize("size", [1, 100, 4090, 4096, 10_000, pinned_pages.MOST_BYTES])
def test_what_was_changed_before_the_file_was_emptied_is_found(tmp_path: Path, size: int) -> None:
    """finding H4: nobody has to be awake between the change and the emptying."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * size)
    pipe_fd = held(path)
    with path.open("r+b") as file:
        file.write(b"Y")
    path.write_bytes(b"other text")

    found = pinned_pages.take(pipe_fd)

    assert found.rstrip(b"\0") == b"Y" + b"x" * (size - 1)
    assert path.read_bytes() == b"other text"


def test_a_line_that_was_added_in_the_last_page_is_found(tmp_path: Path) -> None:
    """finding H4: a pipe that ended where the file did would not have it."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"old\n")
    pipe_fd = held(path)
    with path.open("ab") as file:
        file.write(b"a person's line\n")
    path.write_bytes(b"new\n")

    assert pinned_pages.take(pipe_fd).rstrip(b"\0") == b"old\na person's line\n"


@pytest.mark.parametrize("size", [0, pinned_pages.MOST_BYTES + 1])
def test_an_empty_file_and_a_large_one_are_not_held(tmp_path: Path, size: int) -> None:
    """finding H4: there is nothing to hold, or more than a pipe takes."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * size)
    with path.open("rb") as file:
        assert pinned_pages.hold(file.fileno(), size) is None


def test_a_file_that_has_become_shorter_is_not_held(tmp_path: Path) -> None:
    """finding H4: somebody empties it between the look and the hold; nobody may be hurt by that."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"")
    with path.open("rb") as file:
        assert pinned_pages.hold(file.fileno(), 5000) is None
