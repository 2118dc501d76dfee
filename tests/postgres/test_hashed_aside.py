"""Hashes of new versions, made beside other work."""

from __future__ import annotations

import hashlib
import threading

import pytest

from noclobber.errors import ABSENT
from noclobber.postgres.hashed_aside import LARGE_BYTES, HashedAside


@pytest.mark.parametrize("size", [0, 1, LARGE_BYTES - 1, LARGE_BYTES, 3 * LARGE_BYTES + 7])
def test_every_version_has_its_own_hash_in_its_own_place(size: int) -> None:
    """N-machines: what the server is told about a file is the hash of what is staged for it."""
    contents = [b"a" * size, None, b"b" * size]
    hashed = HashedAside(contents)
    expected = [hashlib.sha256(b"a" * size).hexdigest(), ABSENT, hashlib.sha256(b"b" * size).hexdigest()]
    assert hashed.all() == expected
    assert hashed.all() == expected  # Asked again by whoever gives second names.


def test_nothing_to_hash_is_no_hash() -> None:
    """N-machines: a section without files asks for nothing."""
    assert HashedAside([]).all() == []


def test_without_room_for_a_thread_it_is_hashed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-machines: at the limit of a container's threads, large writes ended with an internal error."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    content = b"a" * LARGE_BYTES
    assert HashedAside([content]).all() == [hashlib.sha256(content).hexdigest()]
