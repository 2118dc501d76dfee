"""Folders and lock files of other users: a clear error, never a traceback, never taken for free (X-003)."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from noclobber.core.clock import iso8601
from tests.rigs.locks import finish, put_record, python

NOBODY = 65534

# Everything is imported before the rights are dropped: the interpreter itself may live in a home that
# the unprivileged user cannot enter.
ACT = """
import json, os, pwd, sys, tempfile
import noclobber.ledger.verify, noclobber.lock.messages, noclobber.disk.filesystems, noclobber.disk.renames
from noclobber.errors import NoclobberError
from noclobber.lock.lock import DeliverableLock
from noclobber.guard.fence import WriteFence
import noclobber.lock.backend
from noclobber.lock.backend import status_of
with tempfile.TemporaryDirectory() as warm:
    with DeliverableLock(warm): status_of(warm)
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
folder, action = sys.argv[1:3]
lock = DeliverableLock(folder, holder="unprivileged")
try:
    if action == "fence":
        with WriteFence(folder).guarding(folder + "/x.md"): pass
    else:
        getattr(lock, action)()
    print(json.dumps({"code": "none", "held": lock.held}))
    if lock.held: lock.release()
except NoclobberError as error:
    print(json.dumps({"code": error.code, "message": str(error), **error.details}))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A deliverable that everybody may reach. Pytest's own folders are for their owner only."""
    if os.geteuid() != 0:
        pytest.skip("another user's files can only be made by root")
    base = Path(tempfile.mkdtemp(prefix="noclobber-access-"))
    base.chmod(0o755)
    deliverable = base / "d"
    deliverable.mkdir()
    deliverable.chmod(0o777)
    yield deliverable
    shutil.rmtree(base)


def act(folder: Path, action: str) -> dict[str, object]:
    """Do something as an unprivileged user."""
    code, said, complaint = finish(python(ACT, folder, action))
    assert code == 0, complaint
    assert "Traceback" not in complaint
    return dict(json.loads(said))


@pytest.mark.parametrize("action", ["acquire", "recover", "retire", "status", "fence"])
def test_an_unreadable_lock_file_is_not_free(folder: Path, action: str) -> None:
    """X-003: path, owner and remedy are named."""
    put_record(folder)
    (folder / ".lock").chmod(0o600)
    answer = act(folder, action)
    assert answer["code"] == "ACCESS_DENIED"
    assert answer["owner"] == "root (uid 0)" if action != "status" else "root" in str(answer["owner"])
    assert str(folder / ".lock") in str(answer["message"])
    assert "counts as locked" in str(answer["message"])


@pytest.mark.parametrize("action", ["acquire", "recover"])
def test_an_orphan_that_may_not_be_removed_stays_and_is_named(folder: Path, action: str) -> None:
    """X-003: a sticky folder, as /tmp is one; the orphan belongs to somebody else."""
    put_record(folder, lease_duration_s=1, acquired="2020-01-01T00:00:00Z")
    folder.chmod(0o1777)
    answer = act(folder, action)
    assert answer["code"] == "ACCESS_DENIED"
    assert "root (uid 0)" in str(answer["message"])
    assert (folder / ".lock").exists()
    assert [path.name for path in folder.iterdir() if "take" in path.name] == [], "its bid stayed"


@pytest.mark.parametrize("action", ["acquire", "retire"])
def test_a_folder_that_may_not_be_written_gives_a_clear_error(folder: Path, action: str) -> None:
    """X-003: acquiring needs the right to create a file in it."""
    folder.chmod(0o755)
    answer = act(folder, action)
    assert answer["code"] == "ACCESS_DENIED"
    assert "root (uid 0)" in str(answer["message"])


def test_a_folder_that_may_not_be_entered_gives_a_clear_error(folder: Path) -> None:
    """X-003."""
    folder.chmod(0o700)
    for action in ("acquire", "status"):
        assert act(folder, action)["code"] == "ACCESS_DENIED"


def test_an_unprivileged_user_locks_a_folder_of_its_own(folder: Path) -> None:
    """REQ-LOCK-008: nothing needs more rights than writing to that folder."""
    os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o700)
    assert act(folder, "acquire") == {"code": "none", "held": True}


def test_another_users_live_process_is_not_taken_for_dead(folder: Path) -> None:
    """REQ-LOCK-006: kill() answers EPERM for it, which means that it runs."""
    put_record(folder, acquired=iso8601(time.time()), lease_duration_s=600)
    answer = act(folder, "acquire")
    assert answer["code"] == "LOCK_CONTENTION"
    assert answer["holder"] == "somebody else"


def test_where_the_ledger_may_not_be_written_nothing_is_locked(folder: Path) -> None:
    """Ruling 13: no lock without its record."""
    (folder / ".lock-ledger.jsonl").write_text("")
    (folder / ".lock-ledger.jsonl").chmod(0o600)
    assert act(folder, "acquire")["code"] == "LEDGER_FAILED"
    assert not (folder / ".lock").exists()
