"""Turns and deliverable locks together: who may write in a locked folder, and until when."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import noclobber
from noclobber import Workspace
from noclobber.disk import steps
from noclobber.guard import claims
from tests.conftest import sha256


@pytest.fixture
def ws(root: Path) -> Iterator[Workspace]:
    for folder in ("del-1", "del-1/sub", "del-2"):
        (root / folder).mkdir()
    (root / "del-1/a.md").write_bytes(b"v1")
    (root / "del-1/sub/b.md").write_bytes(b"v1")
    (root / "del-2/a.md").write_bytes(b"v1")
    (root / "free.md").write_bytes(b"v1")
    with noclobber.Workspace(root) as workspace:
        yield workspace


def lock_on(ws: Workspace, folder: str, **more: Any) -> noclobber.DeliverableLock:
    return noclobber.DeliverableLock(f"{ws.root}/{folder}", deliverable_id="DEL-1", holder="agent-1", **more)


@pytest.mark.parametrize("path", ["del-1/a.md", "del-1/sub/b.md", "del-1/new.md", "del-1/sub/deep/new.md"])
def test_a_locked_folder_is_closed_to_everybody_but_the_holder(ws: Workspace, path: str) -> None:
    """REQ-LOCK-003, REQ-LOCK-007: refused with the contention object, whatever the tool; nothing changes."""
    before = sorted(os.listdir(f"{ws.root}/del-1"))
    with lock_on(ws, "del-1"), ws.turn(agent_id="other") as turn:
        with pytest.raises(noclobber.LockContention) as refused:
            turn.write_file(path, b"intruder")
        report = json.loads(noclobber.to_json(refused.value))
        jsonschema.validate(report, noclobber.schema("lock-contention"))
        assert report["holder"] == "agent-1"
        with pytest.raises(noclobber.LockContention):
            turn.write_files({path: b"intruder", "free.md": b"x"})
    assert (ws.guard.read("free.md")).content == b"v1"
    assert {name for name in os.listdir(f"{ws.root}/del-1") if not name.startswith(".lock")} == set(before)


def test_edits_deletes_and_moves_are_fenced_too(ws: Workspace) -> None:
    """REQ-LOCK-007: every way to change a file, into the folder and out of it."""
    with lock_on(ws, "del-1"), ws.turn(agent_id="other") as turn:
        for attempt in (
            lambda: turn.edit_file("del-1/a.md", [noclobber.Edit("v1", "v2")]),
            lambda: turn.delete_file("del-1/a.md"),
            lambda: turn.move_file("del-1/a.md", "mine.md"),
            lambda: turn.move_file("free.md", "del-1/theirs.md"),
        ):
            with pytest.raises(noclobber.LockContention):
                attempt()
    assert (ws.guard.read("del-1/a.md")).content == b"v1"
    kinds = [event["result"].get("error_type") for event in ws.ledger.events()]
    assert kinds == ["LOCK_CONTENTION"] * 4


def test_the_holders_turn_writes_in_its_folder_and_nowhere_else(ws: Workspace) -> None:
    """K-WRITE-1, REQ-LOCK-008: the lock is the write scope."""
    with lock_on(ws, "del-1") as lock, ws.turn(agent_id="agent-1", lock=lock) as turn:
        turn.read_file("del-1/a.md")
        turn.write_file("del-1/a.md", b"v2")
        turn.write_file("del-1/sub/deep/new.md", b"new")
        for path in ("del-2/a.md", "free.md"):
            with pytest.raises(noclobber.OutsideScopeError):
                turn.write_file(path, b"x")
        assert turn.read_file("del-2/a.md").content == b"v1"
    assert ws.guard.read("del-1/a.md").content == b"v2"


def test_a_former_holders_writes_are_refused(ws: Workspace) -> None:
    """REQ-LOCK-013: a holder that lost its lock is told, and its guarded writes are refused."""
    lock = lock_on(ws, "del-1")
    lock.acquire()
    with ws.turn(agent_id="agent-1", lock=lock) as turn:
        turn.write_file("del-1/a.md", b"v2")
        lock.release()
        with pytest.raises(noclobber.LockLost):
            turn.write_file("del-1/a.md", b"v3")
    assert ws.guard.read("del-1/a.md").content == b"v2"


ZOMBIE = """
import os, signal, sys
import noclobber
from noclobber.guard import claims
from noclobber.guard import claims
from noclobber.disk import steps
root = sys.argv[1]
lock = noclobber.DeliverableLock(root + "/del-1", deliverable_id="DEL-1", holder="zombie", lease_duration_s=1)
lock.acquire()
ws = noclobber.Workspace(root)
with ws.turn(agent_id="zombie", lock=lock) as turn:
    print("ready", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        turn.write_file("del-1/a.md", b"zombie")
    except noclobber.NoclobberError as error:
        print(error.code, flush=True)
"""


def test_a_zombie_that_wakes_up_after_its_lease_changes_nothing(ws: Workspace) -> None:
    """REQ-LOCK-004, REQ-LOCK-006: stopped past its lease, overtaken, continued, made to write: refused."""
    child = subprocess.Popen([sys.executable, "-c", ZOMBIE, ws.root], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        lock = lock_on(ws, "del-1", lease_duration_s=60).acquire(timeout_s=10)
        with lock, ws.turn(agent_id="agent-1", lock=lock) as turn:
            turn.write_file("del-1/a.md", b"successor")
            os.kill(child.pid, signal.SIGCONT)
            assert child.stdout.readline() == "LOCK_LOST\n"
    finally:
        child.kill()
        child.communicate()
    assert ws.guard.read("del-1/a.md").content == b"successor"


def test_nobody_takes_over_between_the_holders_check_and_its_write(ws: Workspace) -> None:
    """REQ-LOCK-006: ownership is checked in the critical section that the replacement is made in."""
    tried: list[Any] = []

    def rob(step: str) -> None:
        if step == "before-exchange" and not tried:
            rival = lock_on(ws, "del-1")
            try:
                rival.acquire()
                tried.append("taken")
            except noclobber.NoclobberError as error:
                tried.append(error.code)

    with lock_on(ws, "del-1") as lock, ws.turn(agent_id="agent-1", lock=lock) as turn:
        steps.observer = rob
        try:
            turn.write_file("del-1/a.md", b"v2", expected_hash=sha256(b"v1"))
        finally:
            steps.observer = None
    assert tried == ["LOCK_CONTENTION"]


def test_a_folder_that_gets_locked_during_a_commit_below_it_refuses(ws: Workspace) -> None:
    """REQ-LOCK-003: the look right before the replacement sees a lock that was not there at the first."""

    lock = lock_on(ws, "del-1")

    def take(step: str) -> None:
        if step == "noted":
            steps.observer = None
            lock.acquire()

    with ws.turn(agent_id="other") as turn:
        steps.observer = take
        try:
            with pytest.raises(noclobber.LockContention):
                turn.write_file("del-1/sub/b.md", b"x")
        finally:
            steps.observer = None
    lock.release()
    assert ws.guard.read("del-1/sub/b.md").content == b"v1"


def test_a_dead_holders_lock_does_not_keep_writers_out(ws: Workspace) -> None:
    """REQ-LOCK-006: the write recovers it, and that is on record in the folder's own ledger."""
    code = (
        "import os, sys, noclobber\n"
        "noclobber.DeliverableLock(sys.argv[1], deliverable_id='D', holder='dead').acquire()\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, f"{ws.root}/del-1"], check=True)
    assert os.path.exists(f"{ws.root}/del-1/.lock")
    with ws.turn(agent_id="other") as turn:
        turn.write_file("del-1/a.md", b"v2")
    assert not os.path.exists(f"{ws.root}/del-1/.lock")
    events = noclobber.AgentTraceLedger(f"{ws.root}/del-1/.lock-ledger.jsonl").events()
    assert "pid_dead" in json.dumps(list(events))


def test_a_file_that_a_hook_has_claimed_waits_and_is_then_busy(ws: Workspace) -> None:
    """N-claim: between a hook's check and its host's write other guarded writers keep out."""
    with ws.turn(agent_id="first") as turn:
        turn.write_file("del-2/a.md", b"so that there is a state folder")
    claims.acquire(ws.root, f"{ws.root}/free.md", "claude-code/session-1", "call-1")
    with ws.turn(agent_id="other", wait_s=0.0) as turn:
        with pytest.raises(noclobber.FileBusyError, match="Another agent"):
            turn.write_file("free.md", b"x")
        turn.write_file("del-2/a.md", b"another file is free")
        assert claims.release(ws.root, f"{ws.root}/free.md", "claude-code/session-1")
        turn.write_file("free.md", b"x")
    assert ws.guard.read("free.md").content == b"x"


def test_lock_files_are_kept_out_of_git_when_a_workspace_is_set_up(root: Path) -> None:
    """REQ-LOCK-010: a lock that is committed would lock every clone."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / "a.md").write_bytes(b"v1")
    with noclobber.Workspace(root) as ws, ws.turn(agent_id="a") as turn:
        turn.write_file("a.md", b"v2")
    (root / "del").mkdir()
    with noclobber.DeliverableLock(root / "del", deliverable_id="D", holder="h"):
        shown = subprocess.run(
            ["git", "-C", str(root), "status", "--porcelain", "-uall"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert shown.stdout == "?? a.md\n"


@pytest.mark.parametrize("name", [".lock", ".lock-ledger.jsonl", ".lock.take.1", ".lock.new.x", ".LOCK"])
def test_guarded_tools_serve_no_lock_files(ws: Workspace, name: str) -> None:
    """REQ-LOCK-010: neither read nor written, whatever stage of a lock they belong to."""
    with ws.turn(agent_id="a") as turn:
        with pytest.raises(noclobber.ReservedFileError):
            turn.read_file(f"del-1/{name}")
        with pytest.raises(noclobber.ReservedFileError):
            turn.write_file(f"del-1/{name}", b"x")
