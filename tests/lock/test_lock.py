"""The protocol: acquire, renew, release, recover, retire. One process, a clock that is told the time."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noclobber.core.clock import iso8601
from noclobber.disk import filesystems, mutex
from noclobber.disk.processes import identify
from noclobber.errors import (
    BadEventError,
    BadRequestError,
    FileBusyError,
    LedgerError,
    LockContention,
    LockLost,
    NoclobberError,
    StorageError,
)
from noclobber.lock import heartbeat
from noclobber.lock import lock_file as lock_file_module
from noclobber.lock.backend import list_locks, status_of
from noclobber.lock.limits import MAX_LEASE_S, MIN_LEASE_S
from noclobber.lock.lock import DeliverableLock
from noclobber.lock.lock_file import LockFile, _HeldMutex
from noclobber.lock.record import read as read_record
from tests.rigs.locks import T0_S, ToldClock, dead_process, events, finish, put_record, python


@pytest.fixture
def clock() -> ToldClock:
    return ToldClock()


def lock_of(folder: Path | str, clock: ToldClock, holder: str = "a", **options: Any) -> DeliverableLock:
    return DeliverableLock(folder, holder=holder, clock=clock, heartbeat=False, **options)


def test_a_second_holder_is_refused_and_the_folder_is_free_after_release(
    tmp_path: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-003, REQ-LOCK-005, REQ-LOCK-007: immediate refusal is the default."""
    first = lock_of(tmp_path, clock).acquire()
    with pytest.raises(LockContention) as refused:
        lock_of(tmp_path, clock, "b").acquire()
    assert refused.value.details["holder"] == "a"
    assert clock.slept_s == []
    assert first.release() is True
    with lock_of(tmp_path, clock, "b"):
        pass


def test_waiting_ends_when_the_holder_lets_go(
    tmp_path: Path, clock: ToldClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REQ-LOCK-007: timeout waits with jittered backoff."""
    first = lock_of(tmp_path, clock).acquire()
    sleep = clock.sleep

    def let_go_after_a_while(seconds: float) -> None:
        sleep(seconds)
        if clock.time_s > T0_S + 1 and first.held:
            first.release()

    monkeypatch.setattr(clock, "sleep", let_go_after_a_while)
    second = lock_of(tmp_path, clock, "b").acquire(timeout_s=5)
    assert 1 < clock.time_s - T0_S < 1.2, "noticed at once, and not after the whole timeout"
    assert len(set(clock.slept_s)) > len(clock.slept_s) // 2, "no jitter"
    second.release()


def test_waiting_ends_with_the_refusal_after_the_timeout(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-007: and is recorded once, however often it looked."""
    with lock_of(tmp_path, clock), pytest.raises(LockContention):
        lock_of(tmp_path, clock, "b").acquire(timeout_s=2)
    assert 2 <= clock.time_s - T0_S < 2.2
    assert len(events(tmp_path, "LOCK_CONTENTION")) == 1


def test_an_expired_lease_is_noticed_by_the_next_attempt(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-004, REQ-LOCK-006: at the very moment, with no delay of its own."""
    first = lock_of(tmp_path, clock, lease_duration_s=60).acquire()
    clock.time_s = T0_S + 59.999
    with pytest.raises(LockContention):
        lock_of(tmp_path, clock, "b").acquire()
    clock.time_s = T0_S + 60
    second = lock_of(tmp_path, clock, "b").acquire()
    with pytest.raises(LockLost, match="taken over by b"):
        first.release()
    assert second.status().holder == "b"
    (event,) = events(tmp_path, "LOCK_RECOVERED")
    assert event["payload"]["recovery_reason"] == "lease_expired"
    assert event["payload"]["previous_holder"] == "a"
    assert event["payload"]["previous_acquired"] == "2027-01-15T08:00:00.000000Z"
    second.release()


@pytest.mark.parametrize("lease", [0, -1, MAX_LEASE_S + 1, 1.5, "60", True])
def test_a_lease_out_of_bounds_is_refused_and_the_bounds_are_named(tmp_path: Path, lease: Any) -> None:
    """REQ-LOCK-004: 1 to 86 400 whole seconds; outside a ValueError that names them."""
    with pytest.raises(ValueError, match=r"1 to 86400"):
        DeliverableLock(tmp_path, lease_duration_s=lease)


@pytest.mark.parametrize("lease", [MIN_LEASE_S, MAX_LEASE_S])
def test_the_bounds_themselves_are_leases(tmp_path: Path, clock: ToldClock, lease: int) -> None:
    """REQ-LOCK-004: the shortest and the longest."""
    with lock_of(tmp_path, clock, lease_duration_s=lease) as lock:
        assert lock.status().lease_remaining_s == lease


def renewed_lease_s() -> int:
    """Of a lock that a heartbeat renews. A server cannot see that another machine's process died."""
    return 60 if os.environ.get("NOCLOBBER_COORDINATOR") else 1800


def test_a_lease_that_nobody_named_is_short_where_only_its_end_shows_a_death(
    tmp_path: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-004, N-machines: half an hour, and a minute with a coordinator; the heartbeat renews it."""
    lock = DeliverableLock(tmp_path, clock=clock)
    assert lock.lease_duration_s == renewed_lease_s()
    with lock:
        assert lock.status().lease_remaining_s == renewed_lease_s()
        clock.time_s += renewed_lease_s() / 2
        lock.beat()
        assert lock.status().lease_remaining_s == renewed_lease_s()
    assert DeliverableLock(tmp_path, clock=clock, lease_duration_s=None).lease_duration_s == renewed_lease_s()
    assert (
        DeliverableLock(tmp_path, clock=clock, lease_only=True, heartbeat=True).lease_duration_s
        == renewed_lease_s()
    )


@pytest.mark.parametrize("options", [{"lease_only": True}, {"heartbeat": False}, {"pid": os.getpid()}])
def test_a_lock_that_nobody_renews_lasts_for_half_an_hour_everywhere(
    tmp_path: Path, clock: ToldClock, options: dict[str, Any]
) -> None:
    """REQ-LOCK-004, N-machines: an agent in a shell cannot renew every minute."""
    with DeliverableLock(tmp_path, clock=clock, **options) as lock:
        assert (lock.lease_duration_s, lock.status().lease_remaining_s) == (1800, 1800)


@pytest.mark.parametrize("options", [{}, {"lease_only": True}, {"heartbeat": False}])
@pytest.mark.parametrize("lease_s", [60, 90, 1800])
def test_a_lease_that_was_named_counts(
    tmp_path: Path, clock: ToldClock, options: dict[str, Any], lease_s: int
) -> None:
    """REQ-LOCK-004: with and without a heartbeat, and for whoever gets the id."""
    lock = DeliverableLock(tmp_path, clock=clock, lease_duration_s=lease_s, **options).acquire()
    assert (lock.lease_duration_s, lock.status().lease_remaining_s) == (lease_s, lease_s)
    attached = DeliverableLock.attach(tmp_path, lock.detach(), clock=clock, lease_duration_s=None)
    assert (attached.lease_duration_s, attached.status().lease_remaining_s) == (lease_s, lease_s)
    attached.release()


def test_a_lock_whose_heartbeat_ends_gets_the_lease_of_one_that_nobody_renews(
    tmp_path: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-004, N-machines: whoever gets the id has as long as whoever acquired without a heartbeat."""
    lock = DeliverableLock(tmp_path, clock=clock).acquire()
    lock_id = lock.detach()
    assert status_of(str(tmp_path), clock).lease_remaining_s == 1800
    assert lock.lease_duration_s == renewed_lease_s(), "of the next one that this object acquires"
    attached = DeliverableLock.attach(tmp_path, lock_id, clock=clock)
    assert attached.lease_duration_s == 1800
    attached.release()
    lock.acquire().renew(90)
    attached = DeliverableLock.attach(tmp_path, lock.detach(), clock=clock)
    assert attached.lease_duration_s == 90, "a renewal named it"
    attached.release()


def test_a_killed_holder_is_recovered_at_once(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-006: its lease has long to run, but its process is gone."""
    record = put_record(tmp_path, dead_process(), holder="killed")
    assert status_of(str(tmp_path), clock).state == "dead"
    with lock_of(tmp_path, clock):
        pass
    (event,) = events(tmp_path, "LOCK_RECOVERED")
    assert event["payload"]["recovery_reason"] == "pid_dead"
    assert event["payload"]["previous_lock_id"] == record.lock_id


def test_a_reused_pid_does_not_count_as_alive(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-006: the pid runs, but it is not the process that took the lock."""
    me = identify()
    put_record(tmp_path, me._replace(started=(me.started or 0) - 1))
    assert status_of(str(tmp_path), clock).state == "dead"


@pytest.mark.parametrize("where", ["host", "pid_namespace"])
def test_elsewhere_only_the_lease_counts(tmp_path: Path, clock: ToldClock, where: str) -> None:
    """REQ-LOCK-006: foreign hosts and pid namespaces number their processes differently."""
    another: Any = {where: "another"}
    put_record(tmp_path, dead_process()._replace(**another))
    assert status_of(str(tmp_path), clock).state == "live"
    clock.time_s += 1800
    assert status_of(str(tmp_path), clock).state == "expired"


@pytest.mark.parametrize(
    "kind", ["empty", "cut", "not JSON", "wrong types", "huge", "symlink", "FIFO", "directory"]
)
def test_a_corrupt_lock_is_recovered_and_nothing_of_others_is_lost(
    tmp_path: Path, clock: ToldClock, kind: str
) -> None:
    """
    REQ-LOCK-006: every kind of corruption; the record says so, and a link's target or a folder's content
    stays.
    """
    folder = tmp_path / "d"
    folder.mkdir()
    put_corruption(folder, kind)
    with lock_of(folder, clock) as lock:
        assert lock.status().state == "live"
    (event,) = events(folder, "LOCK_RECOVERED")
    assert event["payload"]["recovery_reason"] == "corrupt"
    assert event["payload"]["previous_holder"] is None
    if kind == "symlink":
        assert (folder / "target").read_text() == "mine"
    if kind == "directory":
        (aside,) = folder.glob(".lock.aside.*")
        assert (aside / "notes").read_text() == "mine"


def put_corruption(folder: Path, kind: str) -> None:
    path = folder / ".lock"
    if kind == "symlink":
        (folder / "target").write_text("mine")
        path.symlink_to(folder / "target")
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
        (path / "notes").write_text("mine")
    else:
        path.write_bytes(
            {"empty": b"", "cut": b'{"holder": "a', "not JSON": b"\x80", "wrong types": b'{"pid": "x"}',
             "huge": b"x" * 5_000_000}[kind]
        )  # fmt: skip
        os.utime(path, (0, 0))  # Long ago: nobody is still writing it.


def test_manual_and_automatic_recovery_write_the_same_event(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-006: the same keys, the same facts; only who and how differ."""
    for name, act in (("by hand", lambda lock: lock.recover()), ("by acquire", lambda lock: lock.acquire())):
        folder = tmp_path / name
        folder.mkdir()
        put_record(folder, dead_process(), holder="killed")
        lock = lock_of(folder, clock)
        act(lock)
        lock.release()
    by_hand, by_acquire = (events(tmp_path / name, "LOCK_RECOVERED")[0] for name in ("by hand", "by acquire"))
    for part in ("payload", "result", "identity"):
        assert by_hand[part].keys() == by_acquire[part].keys()
    for fact in ("recovery_reason", "previous_holder", "previous_acquired"):
        assert by_hand["payload"][fact] == by_acquire["payload"][fact]


def test_recover_refuses_a_live_lock_and_has_nothing_to_do_for_a_free_one(
    tmp_path: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-006: a person cannot take a working agent's folder away either."""
    assert lock_of(tmp_path, clock).recover() is None
    with lock_of(tmp_path, clock), pytest.raises(LockContention):
        lock_of(tmp_path, clock, "person").recover()


def test_renewal_extends_the_lease_and_leaves_acquired_alone(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-013: acquired + lease_duration_s is always the true expiry."""
    with lock_of(tmp_path, clock, lease_duration_s=60) as lock:
        before = lock.status()
        clock.time_s += 45
        lock.renew()
        after = lock.status()
        assert after.acquired == before.acquired
        assert after.lease_duration_s == 105
        assert after.lease_remaining_s == 60
        assert after.public_id == before.public_id
        with pytest.raises(ValueError, match="86400"):
            lock.renew(MAX_LEASE_S + 1)


def test_a_live_holder_may_renew_after_its_lease_ran_out_while_its_id_stands(
    tmp_path: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-013: the machine slept; nobody came."""
    with lock_of(tmp_path, clock, lease_duration_s=60) as lock:
        clock.time_s += 3600
        assert lock.status().state == "expired"
        lock.renew()
        assert lock.status().lease_remaining_s == 60


def test_a_holder_whose_lock_was_taken_is_told_everywhere_and_changes_nothing(
    tmp_path: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-005, REQ-LOCK-013: renew, check and release say LockLost; the successor's lock stands."""
    losers = [lock_of(tmp_path, clock, lease_duration_s=60).acquire()]
    clock.time_s += 60
    successor = lock_of(tmp_path, clock, "b").acquire()
    before = (tmp_path / ".lock").read_bytes()
    (loser,) = losers
    for call in (loser.renew, loser.assert_held, loser.release):
        with pytest.raises(LockLost) as lost:
            call()
        assert lost.value.code == "LOCK_LOST"
    assert (tmp_path / ".lock").read_bytes() == before
    assert loser.held is False
    assert loser.lost is not None
    successor.release()


def test_leaving_the_block_says_that_the_lock_was_lost(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-013: work that was done without the lock is not passed off as done with it."""

    def work_too_long() -> None:
        with lock_of(tmp_path, clock, lease_duration_s=60):
            clock.time_s += 60
            lock_of(tmp_path, clock, "b").acquire().detach()

    with pytest.raises(LockLost):
        work_too_long()


def test_an_error_in_the_block_is_not_hidden_by_the_loss(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-005: the error goes on, with a note about the lock."""

    def fail() -> None:
        with lock_of(tmp_path, clock):
            (tmp_path / ".lock").unlink()
            raise KeyError("the real one")

    with pytest.raises(KeyError, match="the real one") as error:
        fail()
    assert any("lost" in note for note in error.value.__notes__)


def test_the_heartbeat_renews_at_a_third_and_catches_up_after_a_suspend(
    tmp_path: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-013: `beat` is what the thread calls; what is due is decided by the lock's own clock."""
    lock = lock_of(tmp_path, clock, lease_duration_s=60).acquire()
    clock.time_s += 19.9
    lock.beat()
    assert events(tmp_path, "LOCK_RENEWED") == []
    clock.time_s += 0.2
    lock.beat()
    assert len(events(tmp_path, "LOCK_RENEWED")) == 1
    clock.time_s += 7200  # The lid was closed.
    lock.beat()
    assert lock.status().lease_remaining_s in (60, 61)  # Whole seconds after `acquired`, rounded up.
    lock.release()


def test_a_lock_lost_during_a_suspend_is_reported_and_not_taken_again(
    tmp_path: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-013: survives a suspended machine honestly."""
    told: list[LockLost] = []
    lock = lock_of(tmp_path, clock, lease_duration_s=60, on_lost=told.append).acquire()
    clock.time_s += 7200
    successor = lock_of(tmp_path, clock, "b").acquire()
    lock.beat()
    assert [error.details["taken_by"] for error in told] == ["b"]
    lock.beat()
    assert len(told) == 1, "told again and again"
    assert successor.status().holder == "b"
    successor.release()


def test_a_clock_set_back_by_a_day_neither_shortens_nor_blocks(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-004: the holder goes on; a killed holder is still found out at once."""
    lock = lock_of(tmp_path, clock, lease_duration_s=60).acquire()
    clock.time_s -= 86_400
    assert lock.status().state == "live"
    lock.renew()
    lock.assert_held()
    lock.beat()
    lock.release()
    put_record(tmp_path, dead_process())
    with lock_of(tmp_path, clock):
        pass


def test_a_clock_set_forward_by_a_day_expires_and_the_holder_may_renew(
    tmp_path: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-004: by the one clock that judges, the lease is over; the id still stands."""
    lock = lock_of(tmp_path, clock, lease_duration_s=60).acquire()
    clock.time_s += 86_400
    assert lock.status().state == "expired"
    lock.assert_held()
    assert lock.status().lease_remaining_s == 60
    clock.time_s -= 86_400
    lock.renew()
    lock.release()


def test_a_moved_folder_stays_locked_by_its_holder(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-012: moving keeps the lock valid, renewable and releasable, and its ledger goes along."""
    folder, elsewhere = tmp_path / "here", tmp_path / "there"
    folder.mkdir()
    lock = lock_of(folder, clock).acquire()
    folder.rename(elsewhere)
    lock.assert_held()
    lock.renew()
    assert lock.folder == str(elsewhere)
    assert status_of(str(elsewhere), clock).state == "live"
    assert lock.release() is True
    assert [event["action_type"] for event in events(elsewhere)] == [
        "LOCK_ACQUIRED", "LOCK_RENEWED", "LOCK_RELEASED",
    ]  # fmt: skip
    assert not folder.exists()


@pytest.mark.parametrize("recreate", [False, True])
def test_deleting_the_folder_ends_the_lock_without_an_unhandled_error(
    tmp_path: Path, clock: ToldClock, recreate: bool
) -> None:
    """REQ-LOCK-012: the holder learns it at its next renewal or check."""
    for call in ("renew", "assert_held", "release"):
        folder = tmp_path / call
        folder.mkdir()
        lock = lock_of(folder, clock).acquire()
        shutil.rmtree(folder)
        if recreate:
            folder.mkdir()
        with pytest.raises(LockLost, match="the folder was deleted"):
            getattr(lock, call)()
        if recreate:
            with lock_of(folder, clock, "b"):
                pass


def test_a_recreated_folder_with_a_new_holder_is_not_touched_by_the_old_one(
    tmp_path: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-012: the same path is not the same folder."""
    folder = tmp_path / "d"
    folder.mkdir()
    old = lock_of(folder, clock).acquire()
    shutil.rmtree(folder)
    folder.mkdir()
    new = lock_of(folder, clock, "b").acquire()
    with pytest.raises(LockLost):
        old.release()
    new.assert_held()
    new.release()


def test_a_lock_that_was_removed_by_hand_and_taken_by_another_is_not_released(
    tmp_path: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-005: with all of its lease left, too; what stands there is not what it published."""
    first = lock_of(tmp_path, clock).acquire()
    (tmp_path / ".lock").unlink()
    second = lock_of(tmp_path, clock, "b").acquire()
    with pytest.raises(LockLost, match="taken over by b"):
        first.release()
    second.assert_held()
    second.release()


def test_a_copied_folder_does_not_carry_the_lock(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-012: the copy is free to be taken, the original stays locked."""
    if not filesystems.keeps_inodes(str(tmp_path)):
        pytest.skip(f"on {filesystems.filesystem_type(str(tmp_path))} inode numbers are not known to last")
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    lock = lock_of(original, clock).acquire()
    shutil.copytree(original, copy)
    assert status_of(str(copy), clock).state == "corrupt"
    with pytest.raises(LockLost, match="copy"):
        DeliverableLock.attach(copy, lock.lock_id or "", clock=clock)
    with lock_of(copy, clock, "b"):
        lock.assert_held()
    lock.release()


def test_where_inode_numbers_change_a_live_lock_is_not_taken_for_a_copy(
    tmp_path: Path, clock: ToldClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REQ-LOCK-012: on FUSE and overlay it waits for the lease rather than give two holders."""
    put_record(tmp_path, folder_inode=1)
    monkeypatch.setattr(filesystems, "filesystem_type", lambda _: "fuse.something")
    with pytest.raises(LockContention):
        lock_of(tmp_path, clock).acquire()


def test_retire_refuses_while_in_use_and_clears_an_orphan(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-012: before a folder is deleted or archived."""
    lock = lock_of(tmp_path, clock).acquire()
    with pytest.raises(LockContention):
        lock_of(tmp_path, clock, "archivist").retire()
    lock.release()
    put_record(tmp_path, dead_process(), holder="killed")
    recovery = lock_of(tmp_path, clock, "archivist").retire()
    assert recovery is not None
    assert recovery.previous_holder == "killed"
    assert not (tmp_path / ".lock").exists()
    assert len(events(tmp_path, "LOCK_RETIRED")) == 1


WATCHED = """
import os, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from noclobber import DeliverableLock, LockContention
from noclobber.lock.backend import list_locks
folder = sys.argv[1]
with DeliverableLock(folder, lease_duration_s=60) as lock:
    lock.renew()
    lock.status()
    lock.assert_held()
    try:
        DeliverableLock(folder, holder="b").acquire()
    except LockContention:
        pass
held = DeliverableLock(folder).acquire().detach()
if os.fork() == 0:
    DeliverableLock(folder + "/below", held_ids=[held]).acquire().detach()
    os._exit(0)
os.wait()
DeliverableLock(folder + "/below").recover()
DeliverableLock(folder + "/below").retire()
list(list_locks(folder))
print(sum(folder in name or name.startswith(".lock") for name in opened), *opened, sep="\\n")
"""


def test_the_lifecycle_file_is_never_opened(tmp_path: Path) -> None:
    """REQ-LOCK-009, K-STATUS-1: by no operation; an audit hook, which a process never gets rid of, sees every open()."""
    (tmp_path / "below").mkdir()
    for folder in (tmp_path, tmp_path / "below"):
        (folder / "_STATUS.md").write_text("IN_PROGRESS")
    code, out, complaints = finish(python(WATCHED, tmp_path))
    assert (code, complaints) == (0, "")
    count, *opened = out.splitlines()
    assert int(count) > 10, "the hook saw nothing"
    assert not [name for name in opened if "_STATUS" in name]
    assert (tmp_path / "_STATUS.md").read_text() == "IN_PROGRESS"


def test_no_lock_is_taken_that_cannot_be_recorded(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-006, ruling 13: a broken ledger is reported and leaves the folder free."""
    (tmp_path / ".lock-ledger.jsonl").mkdir()
    lock = lock_of(tmp_path, clock)
    with pytest.raises(LedgerError, match="Move it away or delete it"):  # finding S20: the remedy is told.
        lock.acquire()
    assert lock.held is False
    assert not (tmp_path / ".lock").exists()


def test_a_refusal_stands_even_if_it_cannot_be_recorded(tmp_path: Path, clock: ToldClock) -> None:
    """Ruling 13: and says so."""
    put_record(tmp_path)
    (tmp_path / ".lock-ledger.jsonl").mkdir()
    with pytest.raises(LockContention) as refused:
        lock_of(tmp_path, clock).acquire()
    assert any("could not be recorded" in note for note in refused.value.__notes__)


def test_a_ledger_of_the_callers_gets_the_events_instead(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-008: unless a caller passes a ledger of its own."""
    seen: list[dict[str, object]] = []

    class Ledger:
        def append(self, event: dict[str, object]) -> None:
            seen.append(event)

    with lock_of(tmp_path, clock, ledger=Ledger()):
        pass
    assert [event["action_type"] for event in seen] == ["LOCK_ACQUIRED", "LOCK_RELEASED"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("holder", ["builder", 'a "quoted" \\ one\n', "Ünïcode \U0001f512 \x7f"])
def test_both_ledgers_hold_the_same_events(tmp_path: Path, clock: ToldClock, holder: str) -> None:
    """REQ-LOCK-008: one spelling; what the chained file says is what a caller's ledger is told."""
    told: list[dict[str, object]] = []

    class Ledger:
        def append(self, event: dict[str, object]) -> None:
            told.append(event)

    for options in ({}, {"ledger": Ledger()}):
        with lock_of(tmp_path, clock, holder, deliverable_id=holder * 2, **options) as lock:
            lock.renew()
    own = [
        {name: event[name] for name in ("action_type", "payload", "result", "identity")}
        for event in events(tmp_path)
    ]
    for event in (*own, *told):
        assert len(event["payload"].pop("lock_id")) == 32
        event["payload"].pop("acquired")
    assert told == own
    assert [(event["action_type"], event["result"]) for event in own] == [
        ("LOCK_ACQUIRED", {"status": "ACQUIRED"}),
        ("LOCK_RENEWED", {"status": "RENEWED"}),
        ("LOCK_RELEASED", {"status": "RELEASED"}),
    ]
    assert own[0]["identity"] == {"agent_id": holder, "host": os.uname().nodename}
    assert own[0]["payload"] == {
        "deliverable_id": holder * 2,
        "folder": str(tmp_path),
        "lease_duration_s": lock.lease_duration_s,
        "pid": os.getpid(),
    }
    assert "pid" not in own[2]["payload"]


def test_a_folder_whose_path_is_no_text_is_not_locked(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-008: it could not be recorded."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(folder)
    with pytest.raises(BadEventError, match="UTF-8"):
        lock_of(folder, clock).acquire()
    assert ".lock" not in os.listdir(folder)


def test_an_id_is_enough_to_renew_and_release_but_not_to_release_twice(
    tmp_path: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-005: only the owner's lock_id releases; a former one changes nothing and says so."""
    lock_id = lock_of(tmp_path, clock, lease_only=True, lease_duration_s=60).acquire().detach()
    assert status_of(str(tmp_path), clock).state == "live"
    with pytest.raises(LockLost):
        DeliverableLock.attach(tmp_path, "0" * 32, clock=clock)
    attached = DeliverableLock.attach(tmp_path, lock_id, clock=clock)
    clock.time_s += 30
    attached.renew()
    assert attached.status().lease_remaining_s == 60, (
        "a renewal lasts as long as the lease that was asked for"
    )
    with attached:
        pass
    assert status_of(str(tmp_path), clock).state == "live", "leaving a block releases only what it acquired"
    assert attached.release() is True
    with pytest.raises(LockLost):
        DeliverableLock.attach(tmp_path, lock_id, clock=clock)


def test_a_lock_bound_to_another_process_ends_with_it(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-006: `pid` names it."""
    import subprocess

    process = subprocess.Popen(["sleep", "1000"])
    try:
        lock_of(tmp_path, clock, pid=process.pid).acquire().detach()
        assert status_of(str(tmp_path), clock).state == "live"
    finally:
        process.kill()
        process.wait()
    assert status_of(str(tmp_path), clock).state == "dead"
    with pytest.raises(ProcessLookupError):
        lock_of(tmp_path, clock, pid=process.pid).acquire()


def test_an_object_is_not_held_twice_and_not_released_twice(tmp_path: Path, clock: ToldClock) -> None:
    """Not re-entrant, and a second release is nothing."""
    lock = lock_of(tmp_path, clock).acquire()
    with pytest.raises(RuntimeError, match="already held"):
        lock.acquire()
    assert lock.release() is True
    assert lock.release() is False
    for call in (lock.renew, lock.assert_held):
        with pytest.raises(LockLost, match="not held"):
            call()


@pytest.mark.parametrize("bad", ["", "x" * 5000, "\ud800", 7])
def test_names_that_no_record_can_hold_are_refused(tmp_path: Path, bad: Any) -> None:
    """REQ-LOCK-002: strings, not empty, not endless, Unicode."""
    with pytest.raises(BadRequestError):
        DeliverableLock(tmp_path, holder=bad)
    with pytest.raises(BadRequestError):
        DeliverableLock(tmp_path, deliverable_id=bad)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_makes_no_sense_is_refused(
    tmp_path: Path, clock: ToldClock, timeout: float | int
) -> None:
    """REQ-LOCK-007."""
    with pytest.raises(ValueError, match="timeout_s"):
        lock_of(tmp_path, clock).acquire(timeout)


def test_a_folder_that_is_missing_or_none_gives_a_clear_error(tmp_path: Path, clock: ToldClock) -> None:
    """X-003: never a traceback of the operating system's own."""
    (tmp_path / "file").write_text("")
    for name, words in (("missing", "Create it"), ("file", "not a folder"), ("file/below", "not a folder")):
        for call in (lambda lock: lock.acquire(), lambda lock: lock.recover(), lambda lock: lock.status()):
            with pytest.raises(NoclobberError, match=words) as refused:
                call(lock_of(tmp_path / name, clock))
            assert refused.value.code in ("FILE_NOT_FOUND", "NOT_A_FILE")


def test_errors_survive_pickling() -> None:
    """A report that crosses processes keeps its facts."""
    error = LockContention(
        "/d", "locked", deliverable_id="D", holder="a", lease_remaining_s=3, contention_time=iso8601(T0_S)
    )
    assert pickle.loads(pickle.dumps(error)).to_report() == error.to_report()


def test_an_interrupted_take_over_leaves_neither_lock_nor_bid(
    tmp_path: Path, clock: ToldClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    REQ-LOCK-005: Ctrl-C between bid and rename; a bid that stayed would look live for as long as we
    run.
    """
    put_record(tmp_path, dead_process())

    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lock_of(tmp_path, clock).acquire()
    monkeypatch.undo()
    assert list(tmp_path.glob(".lock.take.*")) == []
    with lock_of(tmp_path, clock, "b"):
        pass


@pytest.mark.parametrize("mutex_works", [True, False])
def test_a_holder_that_renews_at_the_last_moment_is_not_taken_over(
    tmp_path: Path, clock: ToldClock, monkeypatch: pytest.MonkeyPatch, mutex_works: bool
) -> None:
    """
    REQ-LOCK-013: judged expired, then renewed under the same id; with the mutex, and where it excludes
    nobody.
    """
    holder = lock_of(tmp_path, clock, lease_duration_s=60).acquire()
    clock.time_s += 60
    renewals: list[bool] = []

    def renew_first(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: object, **options: object) -> object:
            if not renewals:
                renewals.append(True)
                holder.renew()
            return original(*arguments, **options)

        return step

    if mutex_works:  # Between the look without the mutex and the one with it.
        monkeypatch.setattr(_HeldMutex, "__enter__", renew_first(_HeldMutex.__enter__))
    else:  # Between the judgement and the bid.
        monkeypatch.setattr(mutex, "hold", lambda *_, **__: True)
        monkeypatch.setattr(LockFile, "_bid", renew_first(LockFile._bid))
    with pytest.raises(LockContention):
        lock_of(tmp_path, clock, "b").acquire()
    monkeypatch.undo()
    assert renewals
    holder.assert_held()
    holder.release()


def test_leftovers_of_killed_processes_are_swept_by_recover(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-006: none of them blocks anybody, and they do not pile up."""
    record = put_record(tmp_path, dead_process())
    (tmp_path / ".lock").rename(tmp_path / f".lock.take.{record.lock_id}")
    with lock_of(tmp_path, clock) as lock:
        (tmp_path / ".lock.new.0011").write_text("cut")
        mine = f".lock.take.{lock.status().public_id}"
        assert not (tmp_path / mine).exists()
    lock_of(tmp_path, clock).recover()
    assert [path.name for path in tmp_path.iterdir()] == [".lock-ledger.jsonl"]


def test_a_recovery_that_was_not_recorded_is_recorded_by_the_next(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-006: the recoverer was killed between taking the lock and writing the event."""
    origin = {"recovery_reason": "lease_expired", "previous_holder": "first", "previous_acquired": "then",
              "previous_lock_id": "f" * 32, "detail": "…"}  # fmt: skip
    put_record(tmp_path, dead_process(), holder="second", recovered_from=origin)
    with lock_of(tmp_path, clock, "third"):
        pass
    recovered = events(tmp_path, "LOCK_RECOVERED")
    assert [event["payload"]["previous_holder"] for event in recovered] == ["first", "second"]
    assert [event["result"]["recovered_by"] for event in recovered] == ["second", "third"]


def test_a_folder_held_by_a_stopped_process_is_refused_and_not_waited_for(
    tmp_path: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-007: within the patience of a section; the report names the process."""
    store = LockFile(str(tmp_path))
    with store.section():
        with pytest.raises(LockContention, match=f"process {os.getpid()}"):
            lock_of(tmp_path, clock).acquire()
        with pytest.raises(FileBusyError):
            lock_of(tmp_path, clock).recover()
    store.close()
    assert 2 <= clock.time_s - T0_S < 10


def test_list_shows_every_lock_below_a_root_with_its_state(tmp_path: Path, clock: ToldClock) -> None:
    """REQ-LOCK-010: holder, age, remaining lease and state, without touching anything."""
    for name in ("a", "b/c", "d", "e", ".git/x", "free"):
        (tmp_path / name).mkdir(parents=True)
    live = lock_of(tmp_path / "a", clock, lease_duration_s=100).acquire()
    put_record(tmp_path / "b/c", dead_process())
    (tmp_path / "d/.lock").write_text("")
    os.utime(tmp_path / "d/.lock", (0, 0))
    put_record(tmp_path / "e", lease_duration_s=1)
    put_record(tmp_path / ".git/x")
    (tmp_path / "loop").symlink_to(tmp_path)
    clock.time_s += 10
    found = {os.path.relpath(s.folder, tmp_path): s for s in list_locks(str(tmp_path), clock)}
    assert {name: status.state for name, status in found.items()} == {
        "a": "live", "b/c": "dead", "d": "corrupt", "e": "expired",
    }  # fmt: skip
    assert (found["a"].age_s, found["a"].lease_remaining_s, found["a"].holder) == (10, 90, "a")
    live.release()


def test_a_lock_and_its_status_say_what_they_are_and_not_their_id(tmp_path: Path) -> None:
    """finding U13: useful in a log; the id is the right to release, and stays out of it."""
    lock = DeliverableLock(tmp_path, deliverable_id="D-1", holder="builder-1")
    assert repr(lock.status()) == f"<LockStatus {tmp_path}: free (not locked)>"
    with lock:
        left = f"live by 'builder-1', {renewed_lease_s()} s left (held)"
        assert repr(lock.status()) == f"<LockStatus {tmp_path}: {left}>"
        other = DeliverableLock.attach(tmp_path, str(lock.lock_id))
        assert str(lock.lock_id) not in repr(lock) + repr(lock.status()) + repr(other)
    with pytest.raises(LockLost):
        other.assert_held()
    assert repr(other) == f"<DeliverableLock '{tmp_path}' by 'builder-1', lost>"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "cannot create a lock here: permission denied. The folder belongs to "),
        (errno.EROFS, "the filesystem is mounted read-only. Mount it writable"),
        (errno.ENOSPC, "the disk is full. Free some space"),
        (errno.EIO, "Input/output error. Check the disk"),
    ],
)
def test_a_lock_that_cannot_be_created_says_why_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    """finding U9: the true reason and the remedy, and no sentence without an object."""
    opened = os.open

    def failing(path: Any, flags: int, *more: Any, **others: Any) -> int:
        if flags & os.O_CREAT or path == ".":
            raise OSError(number, os.strerror(number))
        return opened(path, flags, *more, **others)

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(NoclobberError) as refused:
        DeliverableLock(tmp_path, holder="a").acquire()
    monkeypatch.undo()
    assert said in str(refused.value)
    assert "counts as locked" not in str(refused.value)
    assert os.listdir(tmp_path) == []


def test_no_lock_is_taken_that_no_heartbeat_can_renew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R7: no thread to be had: the reason is told, nothing is locked; without a heartbeat it works."""

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(heartbeat, "_pulse", heartbeat._Pulse())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    lock = DeliverableLock(tmp_path, holder="first")
    with pytest.raises(StorageError, match="can't start new thread") as refused:
        lock.acquire()
    assert "heartbeat=False" in str(refused.value)
    assert lock.held is False
    assert not (tmp_path / ".lock").exists()
    with DeliverableLock(tmp_path, holder="second", heartbeat=False) as second:
        second.assert_held()
    monkeypatch.undo()
    with DeliverableLock(tmp_path, holder="third"):
        pass


def test_a_lock_whose_longer_heartbeat_cannot_start_is_still_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R7: a thread that already runs looks after a second lock, when no other can be had."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with DeliverableLock(tmp_path / "a"):
        monkeypatch.setattr(threading.Thread, "start", lambda _: pytest.fail("a second thread"))
        with DeliverableLock(tmp_path / "b") as second:
            assert id(second) in heartbeat._pulse.locks


def test_renewing_for_less_time_never_ends_a_lease_earlier(tmp_path: Path, clock: ToldClock) -> None:
    """finding D13, REQ-LOCK-013: renewal extends; the shorter lease counts from when it ends later."""
    with lock_of(tmp_path, clock, lease_duration_s=600) as lock:
        lock.renew(60)
        assert lock.status().lease_remaining_s == 600
        clock.time_s += 590
        lock.renew()
        assert lock.status().lease_remaining_s == 60


def test_the_holder_retires_its_own_deliverable(tmp_path: Path, clock: ToldClock) -> None:
    """finding D13, REQ-LOCK-012: and holds nothing afterwards."""
    lock = lock_of(tmp_path, clock).acquire()
    assert lock.retire() is None
    assert (lock.held, lock.release()) == (False, False)
    assert [event["action_type"] for event in events(tmp_path)] == ["LOCK_ACQUIRED", "LOCK_RETIRED"]


IN_ANOTHER_TIME = """
import sys
from noclobber.lock.lock import DeliverableLock
with DeliverableLock(sys.argv[1], holder="elsewhen"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_live_holder_in_another_time_namespace_is_not_dead(tmp_path: Path) -> None:
    """finding R10: its start time counts from another boot; once it is gone, the pid says so."""
    unshare = ["unshare", "--time", "--boottime", "864000", "--fork", "--kill-child", sys.executable, "-c"]
    holder = subprocess.Popen(
        [*unshare, IN_ANOTHER_TIME, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != "held\n":
            pytest.skip("time namespaces cannot be made here")
        status = status_of(str(tmp_path))
        assert status.state == "live"
        with pytest.raises(LockContention, match="elsewhen"):
            DeliverableLock(tmp_path, holder="here").acquire()
        assert status.pid is not None
        os.kill(status.pid, 9)
        holder.wait()
        assert status_of(str(tmp_path)).state == "dead"
    finally:
        holder.kill()
        holder.communicate()


def test_a_record_that_another_machine_has_replaced_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R3: on NFS a name leads to a file that is gone (ESTALE) until it is asked for anew."""
    lock_file = LockFile(str(tmp_path))
    really, left = read_record, [3]

    def stale(name: str, descriptor: int) -> object:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return really(name, descriptor)

    monkeypatch.setattr(lock_file_module, "read", stale)
    assert lock_file.read() is None
    lock_file.close()
