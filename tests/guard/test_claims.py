"""Claims: what a hook lays on a file between its check and its host's write."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from noclobber.disk.commit.committer import Committer
from noclobber.guard import claims
from noclobber.guard.fence import WriteFence
from tests.conftest import sha256


def test_a_claim_is_seen_from_every_workspace_above_and_below(root: Path) -> None:
    """Workspaces inside workspaces: the claim lies in one, and the commit happens in another."""
    inner = root / "packages" / "one"
    inner.mkdir(parents=True)
    (root / ".noclobber").mkdir()
    file = inner / "a.txt"
    file.write_bytes(b"")

    claims.acquire(str(root), str(file), "owner", "call")
    (inner / ".noclobber").mkdir()

    assert claims.check(str(inner), str(file)).owner == "owner"
    assert claims.check(str(inner), str(file), "owner") is None
    with pytest.raises(claims.ClaimedError):
        claims.refuse_if_claimed(str(inner), str(file))
    assert claims.release(str(inner), str(file), "somebody else") is False
    assert claims.release(str(inner), str(file), "owner") is True
    claims.refuse_if_claimed(str(inner), str(file))


def test_a_commit_of_the_library_waits_for_a_claim_or_gives_up(root: Path) -> None:
    """N-claim: inside the commit's own critical section, so that neither slips past the other."""
    file = root / "a.txt"
    file.write_bytes(b"old")
    (root / ".noclobber").mkdir()
    committer = Committer(str(root))
    fence = WriteFence(str(root))

    def commit() -> Any:
        return committer.replace(str(file), sha256(b"old"), b"new", fence=fence)

    claims.acquire(str(root), str(file), "agent", "call")
    with pytest.raises(claims.ClaimedError) as refused:
        claims.retrying(commit, 0.05)
    assert refused.value.resolution == "RETRY_LATER"
    assert file.read_bytes() == b"old"

    timer = threading.Timer(0.05, claims.release, (str(root), str(file), "agent"))
    timer.start()
    assert claims.retrying(commit, 10.0).sha256 == sha256(b"new")
    timer.join()


def test_a_claim_that_nobody_made_costs_one_look_for_each_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-claim: every guarded write of the library asks, so it opens, lists and reads nothing."""
    deep = root / "a" / "b" / "c" / "d" / "file.txt"
    looks: list[str] = []
    others: list[Any] = []
    access = os.access
    with monkeypatch.context() as patched:

        def look(path: str, mode: int) -> bool:
            looks.append(path)
            return access(path, mode)

        patched.setattr(os, "access", look)
        for name in ("open", "stat", "lstat", "listdir", "scandir"):
            patched.setattr(os, name, lambda *given, **_: others.append(given))
        found = claims.check(str(root), str(deep))
    above = len(deep.parents) - 1  # A claim may stand in any folder above it, but not in the root of all.
    assert (found, len(looks), others) == (None, above, [])
