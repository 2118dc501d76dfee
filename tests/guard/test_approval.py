"""The process that watches a file while a host asks for permission and writes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from noclobber.guard import approval
from noclobber.guard.approval import Sight, Watch, WatchedFile, is_half
from noclobber.guard.overwritten import content_of, copies_of
from tests.conftest import sha256
from tests.hook.test_approval_window import MINE, THEIRS, save, until


def watched(root: Path, file: Path, mark: Path, host_pid: int) -> Watch:
    (root / ".noclobber").mkdir(exist_ok=True)
    mark.touch()
    one = WatchedFile(str(file), sha256(file.read_bytes()), (sha256(MINE),))
    return Watch(str(root), "key", str(mark), host_pid, (one,))


@pytest.mark.parametrize("end", ["written", "mark", "host", "age"])
def test_it_ends_by_itself(root: Path, tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """finding H4: when the host has written, when nobody asks any more, when the host is gone, and in time."""
    file, mark = root / "a.txt", tmp_path / "mark"
    file.write_text("old\n")
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    if end == "age":
        monkeypatch.setattr(approval, "LIFE_S", 0.05)
    looking = watched(root, file, mark, gone.pid if end == "host" else os.getpid())
    thread = threading.Thread(target=approval.run, args=(looking,))
    thread.start()
    if end == "written":
        file.write_bytes(MINE)
    elif end == "mark":
        mark.unlink()
    thread.join(60)

    assert not thread.is_alive()


def test_every_version_that_was_saved_is_copied_and_the_checked_one_is_not(
    root: Path, tmp_path: Path
) -> None:
    """finding H4: two saves of a person, one after the other, and the old version once more."""
    file, mark = root / "a.txt", tmp_path / "mark"
    file.write_text("old\n")
    thread = threading.Thread(target=approval.run, args=(watched(root, file, mark, os.getpid()),))
    thread.start()
    for number, text in enumerate(("one\n", "two\n"), 1):
        save(file, text.encode(), "renamed")
        until(lambda: len(copies_of(str(root), "key")) == number)  # noqa: B023
    save(file, b"old\n", "renamed")
    mark.unlink()
    thread.join(60)

    found = [content_of(copy) for copy in copies_of(str(root), "key", str(file))]
    assert found == [b"one\n", b"two\n"]


def found(root: Path) -> list[bytes | None]:
    """What was copied."""
    return [content_of(copy) for copy in copies_of(str(root), "key")]


def sight_of(root: Path, file: Path, old: bytes, new: bytes) -> Sight:
    """A file that was looked at once."""
    file.write_bytes(old)
    (root / ".noclobber").mkdir(exist_ok=True)
    sight = Sight(Watch(str(root), "key", "mark", 0, ()), WatchedFile(str(file), sha256(old), (sha256(new),)))
    assert not sight.look()
    return sight


def test_a_host_in_the_middle_of_its_own_write_is_no_stranger(root: Path) -> None:
    """finding H4: a look may find half of it."""
    file = root / "a.txt"
    sight = sight_of(root, file, b"old text\n", b"new TEXT\n")
    with file.open("r+b", buffering=0) as host:  # It writes over the old text, and does not empty the file.
        for piece in (b"new", b" TE"):
            host.write(piece)
            assert not sight.look()
        host.write(b"XT\n")
    assert sight.look()
    sight.close()

    assert found(root) == []


def test_what_was_saved_and_overwritten_while_the_file_stayed_open_is_no_half(root: Path) -> None:
    """finding H4: two programs have the file open at the same time, and the second overwrites the first."""
    file = root / "a.txt"
    sight = sight_of(root, file, b"old text\n", MINE)
    with file.open("wb", buffering=0) as host:
        file.write_bytes(THEIRS)
        sight.look()
        host.truncate(0)
        host.write(MINE)
    assert sight.look()
    sight.close()

    assert found(root) == [THEIRS]


@pytest.mark.parametrize("how", ["emptied", "over it", "over it and cut", "renamed"])
def test_a_host_that_writes_between_two_looks_is_no_stranger(root: Path, how: str) -> None:
    """finding H4, 009-SC-002: what it replaced was checked."""
    file, old = root / "a.txt", b"hello\nworld\n"
    new = MINE + old[len(MINE) :] if how == "over it" else MINE
    sight = sight_of(root, file, old, new)
    if how == "renamed":
        save(file, new, "renamed")
    else:
        with file.open("wb" if how == "emptied" else "r+b") as host:
            host.write(MINE)
            if how == "over it and cut":
                host.truncate()
    assert sight.look()
    sight.close()

    assert found(root) == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"new", True),
        (b"new t", True),
        (b"new text\nd text\n", False),
        (b"newold\n", False),
        (b"newer\n", False),
        (b"", True),
    ],
)
def test_what_half_of_a_write_is(data: bytes, expected: bool) -> None:
    """finding H4: a beginning of the new text, alone or with the rest of the old."""
    assert is_half(data, b"very old text\n", b"new text\n") is expected
    assert is_half(b"new text\ntext\n", b"very old text\n", b"new text\n")
    for written in (b"", b"new "):  # Its room was asked for first.
        assert is_half(written.ljust(9, b"\0"), b"very old text\n", b"new text\n")
    assert not is_half(b"new \0\0\0", b"very old text\n", b"new text\n")
    assert not is_half(b"new \0\0\0\0x", b"very old text\n", b"new text\n")


OLD = b"".join(b"line %06d\n" % number for number in range(2000))
NEW = OLD.replace(b"line 000007", b"LINE 7")


def with_pages(data: bytes, pages: range, of: bytes) -> bytes:
    """Return some content with pages of another one."""
    start, end = pages.start * 4096, pages.stop * 4096
    return data[:start] + of[start:end].ljust(end - start, b"\0")[: len(data) - start] + data[end:]


@pytest.mark.parametrize(
    ("seen", "is_the_writers"),
    [
        (with_pages(NEW, range(2), b""), True),
        (with_pages(NEW, range(1, 3), b""), True),
        (with_pages(NEW, range(2), OLD), True),
        (with_pages(with_pages(NEW, range(1), OLD), range(2, 3), b""), True),
        (with_pages(NEW, range(1), b"a person's line\n" * 400), False),
        (NEW.replace(b"line 001900", b"LINE 001900"), False),
        (NEW + b"\0\0\0", True),  # Written over a longer one, whose end was just being cut off.
        (NEW.ljust(-(-len(NEW) // 4096) * 4096, b"\0") + b"a person's line\n", False),
        (NEW + b"\0a person's line\n", False),
        (OLD[: 3 * 4096], True),  # The host emptied the file while it was read.
        (OLD[:4096] + NEW[4096 : 4 * 4096], True),  # And had written a part of the new by then.
        (OLD[:4096] + NEW[4096:], True),
        (
            OLD[: 4096 + 4016] + NEW[4096 + 4016 :] + b"\0" * 5,
            True,
        ),  # Overtaken within a page, and not cut off yet.
        (OLD[: 4096 + 4016] + b"x" + NEW[4096 + 4017 :], False),
        (OLD[: 3 * 4096 + 100], False),  # A person has cut the end off.
        (OLD[:4096] + b"a person's line\n" * 256, False),
        (OLD.replace(b"line 001999\n", b""), False),
    ],
)
def test_a_reader_whom_the_writer_overtakes_has_seen_nobody_elses_save(
    seen: bytes, is_the_writers: bool
) -> None:
    """finding H4, 009-SC-002: of a large file the first pages were read before the host wrote them, the last after."""
    assert is_half(seen, OLD, NEW) is is_the_writers
