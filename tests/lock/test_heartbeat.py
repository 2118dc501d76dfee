"""A holder whose server is away stops by its own clock, also while it waits for an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noclobber.errors import CoordinatorUnavailableError, LockLost
from noclobber.lock import file_arbiter
from noclobber.lock.lock import BEAT_PATIENCE_S, DeliverableLock
from noclobber.lock.record import hash_of
from noclobber.postgres import arbiter as rows
from noclobber.postgres.arbiter import PostgresArbiter
from noclobber.postgres.coordinator import _connection
from tests.rigs import postgres

LONG_S = 60.0  # Only a test that fails waits for so long.


class Silence:
    """A server that takes the heartbeat's questions and does not answer until it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_asked, self.may_answer = threading.Event(), threading.Event()
        self._check = PostgresArbiter.check
        monkeypatch.setattr(PostgresArbiter, "check", lambda arbiter, holding: self.check(arbiter, holding))

    def check(self, arbiter: PostgresArbiter, holding: Any) -> float:
        """Wait, and then ask."""
        self.is_asked.set()
        assert self.may_answer.wait(LONG_S)
        return self._check(arbiter, holding)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose lock the server decides about."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
    (tmp_path / "p/.noclobber").mkdir(parents=True)
    (tmp_path / "p/report").mkdir()
    yield tmp_path / "p/report"
    _connection.cache_clear()


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let this machine's clock be ahead."""
    now_s = file_arbiter.boot_time_s
    for module in (file_arbiter, rows):
        monkeypatch.setattr(module, "boot_time_s", lambda: now_s() + seconds)


def test_a_holder_is_told_at_the_end_of_its_lease_and_not_when_the_server_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: a heartbeat that waited for the server told `lock run` seconds after another machine had the lock."""
    silence, told = Silence(monkeypatch), threading.Event()
    losses: list[LockLost] = []

    def on_lost(error: LockLost) -> None:
        losses.append(error)
        told.set()

    lock = DeliverableLock(folder, holder="cut off", lease_duration_s=1, on_lost=on_lost).acquire()
    assert silence.is_asked.wait(LONG_S)
    assert told.wait(LONG_S), "told while the heartbeat still waits for its answer"
    assert not silence.may_answer.is_set()
    assert not lock.held
    with DeliverableLock(folder, holder="next", lease_duration_s=60).acquire(timeout_s=LONG_S):
        silence.may_answer.set()
        with pytest.raises(LockLost):
            lock.assert_held()
        with pytest.raises(LockLost):
            lock.release()
    assert len(losses) == 1
    lock.acquire(timeout_s=LONG_S)  # It may be taken again.
    assert lock.release()


def test_who_was_told_that_it_is_lost_does_not_have_it_back_by_a_late_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: the renewal was under way when the lease ended; what it renewed is given back."""
    lock = DeliverableLock(folder, holder="cut off", heartbeat=False).acquire()
    renew = PostgresArbiter.renew

    def slow(arbiter: PostgresArbiter, *arguments: Any, **options: Any) -> Any:
        with monkeypatch.context() as patch:
            later(patch, lock.lease_duration_s * 0.96)
            lock.end_in_time()
        return renew(arbiter, *arguments, **options)

    monkeypatch.setattr(PostgresArbiter, "renew", slow)
    with pytest.raises(LockLost, match="does not answer"):
        lock.renew()
    assert not lock.held
    assert lock.status().state == "free"


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let time pass here and on the server."""
    later(monkeypatch, seconds)
    postgres.pass_time(postgres.coordinator(), seconds)


def test_a_renewal_whose_answer_got_lost_is_asked_for_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    N-machines, REQ-LOCK-013: the server had renewed it and said so at every look, so nobody asked again, and
    at the end of the first lease the holder took its lock for lost.
    """
    lock = DeliverableLock(folder, holder="a", lease_duration_s=60, heartbeat=False).acquire()
    renew = PostgresArbiter.renew

    def lose(arbiter: PostgresArbiter, *arguments: Any, **options: Any) -> Any:
        renew(arbiter, *arguments, **options)
        raise CoordinatorUnavailableError("server", "the answer got lost")

    with monkeypatch.context() as patch:
        patch.setattr(PostgresArbiter, "renew", lose)
        pass_time(monkeypatch, 25)
        lock.beat()
    assert (lock.status().lease_remaining_s or 0) > 55, "the server has renewed it"
    pass_time(monkeypatch, 10)
    lock.beat()
    assert (lock.ends_in_s() or 0) > 50
    assert lock.release()


def test_a_server_that_takes_a_while_to_renew_is_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines, REQ-LOCK-013: with a slow disk or a far standby every renewal was given up after 0.25 s."""
    monkeypatch.setattr(rows, "RENEWAL_S", LONG_S, raising=False)
    lock = DeliverableLock(folder, holder="a", lease_duration_s=60, heartbeat=False).acquire()
    pass_time(monkeypatch, 25)
    with psycopg.connect(postgres.coordinator()) as busy:
        row = "SELECT FROM noclobber.lock WHERE secret_sha256 = %s FOR UPDATE"
        busy.execute(row, (hash_of(lock.lock_id or ""),))
        beating = threading.Thread(target=lock.beat)
        beating.start()
        beating.join(BEAT_PATIENCE_S * 4)
        assert beating.is_alive(), "it was given up"
        busy.commit()
        beating.join()
    assert (lock.ends_in_s() or 0) > 50
    assert lock.release()


def test_a_process_that_was_stopped_keeps_a_lock_that_nobody_took(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: it is no holder in its own eyes until it has asked."""
    lock = DeliverableLock(folder, holder="sleeper", heartbeat=False).acquire()
    with monkeypatch.context() as patch:
        later(patch, lock.lease_duration_s * 2.0)
        assert not lock.held
        lock.end_in_time()
    assert lock.lost is None
    lock.renew()
    assert lock.release()


def test_a_lock_that_somebody_else_renews_does_not_end_by_our_clock(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: the command of `lock run` speaks for a lock whose heartbeat is in another process."""
    lock = DeliverableLock(folder, holder="owner").acquire()
    attached = DeliverableLock.attach(folder, lock.lock_id or "")
    with monkeypatch.context() as patch:
        later(patch, lock.lease_duration_s * 2.0)
        assert attached.held
    assert lock.release()
