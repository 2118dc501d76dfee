"""Events of locks in the stream: each locked folder has a ledger of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from noclobber import DeliverableLock, LockContention
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.lock.backend import list_locks
from noclobber.lock.names import LEDGER_NAME, SCRATCH_PREFIX
from noclobber.view import lock_feeds, prometheus
from noclobber.view.live import Cursor, Live
from noclobber.view.lock_feeds import LockFeeds, last_events
from noclobber.view.shown_events import MOST_LETTERS, Authors, shown
from noclobber.view.workspace_state import read_state
from tests.view.ledgers import HOSTILE, ledger_of, written


def ledgers_below(root: Path) -> set[str]:
    """The ledgers that a walk for locks finds."""
    found: set[str] = set()
    list(list_locks(str(root), ledgers=found))
    return found


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """Their kinds."""
    return [event["action_type"] for event in events]


def lock_and_refuse(folder: Path) -> None:
    """One agent locks a folder, another is refused, and the first lets go."""
    folder.mkdir(exist_ok=True)
    with DeliverableLock(folder, holder="ana"), pytest.raises(LockContention):
        DeliverableLock(folder, holder="ben").acquire()


def test_each_event_of_every_folder_is_told_once(root: Path) -> None:
    """finding U10: also of folders that nobody holds any more, and of those that were never locked before."""
    feeds = LockFeeds()
    assert feeds.watch(ledgers_below(root)) == []
    lock_and_refuse(root / "a")
    told = feeds.watch(ledgers_below(root))
    assert kinds(told) == ["LOCK_ACQUIRED", "LOCK_CONTENTION", "LOCK_RELEASED"]
    assert feeds.look() == feeds.watch(ledgers_below(root)) == []
    lock_and_refuse(root / "a")
    assert kinds(feeds.look()) == ["LOCK_ACQUIRED", "LOCK_CONTENTION", "LOCK_RELEASED"]
    lock_and_refuse(root / "b")
    assert feeds.look() == []
    assert {event["payload"]["folder"] for event in feeds.watch(ledgers_below(root))} == {str(root / "b")}


def test_what_doctor_tries_locks_with_concerns_nobody(root: Path) -> None:
    """N-view: its scratch folder is in no list, and its events are in no stream."""
    scratch = root / f"{SCRATCH_PREFIX}x" / "cycle"
    scratch.mkdir(parents=True)
    with DeliverableLock(scratch, holder="doctor"):
        assert read_state(str(root), SYSTEM_CLOCK).locks == []
        assert ledgers_below(root) == set()


def test_only_so_much_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-view: the end of a long ledger, and the ledgers that were written last."""
    for name in ("a", "b", "c"):
        lock_and_refuse(root / name)
        os.utime(root / name / LEDGER_NAME, ns=(0, ord(name)))
    size = (root / "c" / LEDGER_NAME).stat().st_size
    monkeypatch.setattr(lock_feeds, "MOST", 1)
    monkeypatch.setattr(lock_feeds, "FIRST_BYTES", size - 1)
    told = last_events(ledgers_below(root))
    assert [event["payload"]["folder"] for event in told] == [str(root / "c")] * 2
    assert kinds(told) == ["LOCK_CONTENTION", "LOCK_RELEASED"]


def test_a_ledger_that_is_written_again_does_not_tell_everything_once_more(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-view: with more ledgers than are followed, one leaves and comes back."""
    monkeypatch.setattr(lock_feeds, "MOST", 1)
    feeds = LockFeeds()
    for name in ("a", "b"):
        lock_and_refuse(root / name)
    os.utime(root / "a" / LEDGER_NAME, ns=(0, 5))
    assert {event["payload"]["folder"] for event in feeds.watch(ledgers_below(root))} == {str(root / "b")}
    for name, number in (("a", 3), ("b", 3), ("a", 3)):
        lock_and_refuse(root / name)
        other = {"a": "b", "b": "a"}[name]
        os.utime(root / other / LEDGER_NAME, ns=(0, 5))
        told = feeds.watch(ledgers_below(root)) + feeds.look()
        assert [event["payload"]["folder"] for event in told] == [str(root / name)] * number


@pytest.mark.broken_ledger
def test_ledgers_that_are_wrong_are_passed_over(root: Path, tmp_path: Path) -> None:
    """N-view: a folder, a link, a pipe, no JSON, half a line, another folder's name, events of another kind."""
    for name in ("folder", "link", "pipe", "garbage", "liar"):
        (root / name).mkdir()
    (root / "folder" / LEDGER_NAME).mkdir()
    (tmp_path / "elsewhere").write_text('{"action_type":"LOCK_ACQUIRED"}\n')
    (root / "link" / LEDGER_NAME).symlink_to(tmp_path / "elsewhere")
    os.mkfifo(root / "pipe" / LEDGER_NAME)
    (root / "garbage" / LEDGER_NAME).write_bytes(b'\xff\n[1]\n{"action_type": 3}\n' + b"[" * 9000 + b"\n{")
    lies = [
        {"action_type": "LOCK_ACQUIRED", "payload": {"folder": "/etc"}, "time": 3},
        {"action_type": "MUTATION", "payload": {"target_file": "a"}},
        {"action_type": "LOCK_ACQUIRED", "payload": 5},
    ]
    (root / "liar" / LEDGER_NAME).write_text("".join(f"{json.dumps(lie)}\n" for lie in lies))
    told = last_events(ledgers_below(root))
    assert [event["payload"]["folder"] for event in told] == [str(root / "liar")] * 2


def test_the_stream_has_them_at_their_time_and_then_as_they_come(root: Path) -> None:
    """finding U10: the page gets the whole list again if older ones are found, and else only the new ones."""
    ledger, live, cursor = ledger_of(root), Live(str(root), with_doctor=False), Cursor()
    lock_and_refuse(root / "a")
    ledger.append(written("x.md", "ABSENT", "1"))
    live.start()
    try:
        live.look_at_state()
        first = _until(live, cursor, 4)
        assert [event["group"] for event in first] == ["write", "lock", "lock", "lock"]
        sentences = [event["text"].replace(f" ({os.uname().nodename})", "") for event in first]
        assert sentences[1:] == [
            "ana released a",
            "ben was refused the lock of a: ana holds it",
            "ana locked a",
        ]
        lock_and_refuse(root / "a")
        ledger.append(written("x.md", "1", "2"))
        new = _until(live, cursor, 4)
        assert sorted(event["kind"] for event in new) == [
            *("LOCK_ACQUIRED", "LOCK_CONTENTION", "LOCK_RELEASED", "MUTATION")
        ]
        # They are in no total: that is the project's own ledger.
        assert live.snapshot()["totals"]["events"] == 2
        assert {row["agent"] for row in live.snapshot()["at_work"]} == {"builder-1"}
        # Contention is counted from the server's start.
        assert "noclobber_lock_waits_total 1\n" in prometheus.spelled(live.gauges())
    finally:
        live.stop()


def _until(live: Live, cursor: Cursor, count: int) -> list[dict[str, Any]]:
    """What a page has after it was told of so many events, the newest first."""
    shown: list[dict[str, Any]] = []
    deadline_s = SYSTEM_CLOCK.monotonic_s() + 60
    while len(shown) < count:
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, shown
        told = live.news(cursor, 1.0).get("events")
        if told is not None:
            shown = told["newest_first"] + ([] if told["from_start"] else shown)
    return shown


@pytest.mark.broken_ledger
def test_hostile_events_of_locks_are_short_and_printable(root: Path) -> None:
    """N-view: names in a ledger are other people's text."""
    (root / "a").mkdir()
    said = HOSTILE + "x" * 100_000
    kinds_of_lock = ("LOCK_ACQUIRED", "LOCK_CONTENTION", "LOCK_RECOVERED", f"LOCK_{said}")
    lines = [
        {
            "action_type": kind,
            "time": said,
            "payload": {"deliverable_id": said, "previous_holder": said, "recovery_reason": said},
            "result": {"holder": said, "status": said},
            "identity": {"agent_id": said, "host": said},
        }
        for kind in kinds_of_lock
    ]
    (root / "a" / LEDGER_NAME).write_text("".join(f"{json.dumps(line)}\n" for line in lines)[-60_000:])
    for event in [*lines, *last_events(ledgers_below(root))]:
        made = shown(event, str(root), Authors())
        assert len(made.text) < 4 * MOST_LETTERS
        assert made.text.isprintable()


def test_status_has_the_refused_locks_of_folders_below(root: Path) -> None:
    """finding U10: among the last refusals, with the holder as who was in the way."""
    ledger_of(root).append(written("x.md", "ABSENT", "1"))
    lock_and_refuse(root / "a")
    refusal = read_state(str(root), SYSTEM_CLOCK).refusals[-1]
    assert (refusal["error_type"], refusal["agent_id"]) == ("LOCK_CONTENTION", "ben")
    assert (refusal["path"], refusal["written_by"]) == (str(root / "a"), "ana")
