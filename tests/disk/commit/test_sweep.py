"""Orphans: swap files of commits that are over."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from noclobber.disk import forks
from noclobber.disk.commit import sweep
from noclobber.disk.commit.committer import Committer
from tests.conftest import sha256


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EROFS])
def test_an_orphan_that_cannot_be_opened_at_the_moment_is_not_kept_for_a_person(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """N-faults: found by two faults in a row; the next sweep removes it, as it should have been."""
    committer = Committer(str(root))
    committer.replace("a.md", None, b"x")
    store = committer.open_store()
    assert store is not None
    orphan = root / ".noclobber/swap" / f"swap-0123456789ab-{sha256(b'old')}~a.md"
    orphan.write_bytes(b"old")
    later_s = time.time() + 2 * sweep.YOUNG_S

    def failing(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(forks, "open_tracked", failing)
        assert sweep.adopt_orphans(store, later_s) == []
    assert orphan.exists()
    assert sweep.adopt_orphans(store, later_s) == []
    assert not orphan.exists()
    assert os.listdir(root / ".noclobber/kept") == []


def test_a_link_among_the_swap_files_is_kept_for_a_person(root: Path) -> None:
    """N-faults: somebody has put it there, and nobody else knows what it is."""
    committer = Committer(str(root))
    committer.replace("a.md", None, b"x")
    store = committer.open_store()
    assert store is not None
    (root / ".noclobber/swap" / f"swap-0123456789ab-{'0' * 64}~a.md").symlink_to("/nowhere")
    assert len(sweep.adopt_orphans(store, time.time() + 2 * sweep.YOUNG_S)) == 1
