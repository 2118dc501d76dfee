"""What the process that looks on makes of one file that it holds open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noclobber.guard.lookout import OpenFile


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
