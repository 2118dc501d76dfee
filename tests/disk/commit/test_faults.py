"""Every system call of a commit fails once, each in its turn: what must hold whichever it was."""

from __future__ import annotations

import errno
import os
from itertools import cycle
from pathlib import Path

import pytest
from torture.fault_trials import COMMITS, DURABLE, NEW, OLD, prepared, use
from torture.faults import Faults

from noclobber.errors import NoclobberError
from tests.conftest import sha256
from torture import fault_pairs

MOST_CALLS = 300
# One of them at each call, in turn; `make faults` goes on with pairs of them, chosen by chance.
CODES = [errno.EIO, errno.EMFILE, errno.ENOSPC]


@pytest.mark.usefixtures("small_heap")
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors by way of /proc")
@pytest.mark.parametrize("scenario", COMMITS | DURABLE)
def test_whichever_system_call_fails_nothing_is_lost_leaked_or_locked(tmp_path: Path, scenario: str) -> None:
    """N-faults: old or new, as the answer says; no traceback; no descriptor, mutex, mask or rubbish stays."""
    with Faults().installed() as faults:
        for nth, code in zip(range(1, MOST_CALLS), cycle(CODES), strict=False):
            struck, _ = fault_pairs.run(tmp_path, faults, scenario, {nth: code})
            if not struck:
                assert nth > 5
                return
    pytest.fail("a commit should not need so many system calls")


def test_a_rewrite_in_place_that_can_neither_go_on_nor_back_is_undone_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-faults: the copy of the old version outlives a disk that fails in the middle of both."""
    guard = prepared(root / "below")
    path, pwrite, calls = root / "below" / "linked.md", os.pwrite, 0

    def torn(descriptor: int, data: bytes, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 1 or len(data) < 10:
            return pwrite(descriptor, data, offset)  # The copy that is made first.
        if calls == 2:
            return pwrite(descriptor, data[:4], offset)
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(os, "pwrite", torn)
    with pytest.raises(NoclobberError):
        guard.write("linked.md", NEW, expected=sha256(OLD))
    monkeypatch.undo()
    assert path.read_bytes() not in (OLD, NEW)
    assert guard.read("linked.md").content == OLD
    use(guard)
    assert os.listdir(root / "below" / ".noclobber" / "swap") == []
