"""What the process that looks on makes of one file that it holds open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noclobber.guard.lookout import OpenFile
from noclobber.guard.watch import is_half


def test_a_file_that_was_leased_before_it_was_judged_is_judged(tmp_path: Path) -> None:
    """
    finding H4: a save by rename is held from its first name on.

    The lease may be there before the file has the name that is watched. Nobody writes then, so nothing but this
    look would ever tell what is in it.
    """
    path = tmp_path / "staged"
    path.write_bytes(b"theirs\n")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        file = OpenFile(descriptor)
        try:
            assert file.is_quiet()
        except OSError:
            pytest.skip("no leases here")
        assert file.look() == b"theirs\n"
        assert file.settle(b"theirs\n") == []
        assert file.look() is None
    finally:
        os.close(descriptor)


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
    ],
)
def test_a_reader_whom_the_writer_overtakes_has_seen_nobody_elses_save(
    seen: bytes, is_the_writers: bool
) -> None:
    """finding H4, 009-SC-002: of a large file the first pages were read before the host wrote them, the last after."""
    assert is_half(seen, OLD, NEW) is is_the_writers
