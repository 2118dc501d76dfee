"""The live view of a project whose record is on the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noclobber
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.errors import CoordinatorUnavailableError
from noclobber.ledger.chosen import ledger_of
from noclobber.postgres.coordinator import _connection
from noclobber.view import server_feed
from noclobber.view.live import Cursor, Live
from noclobber.view.server_feed import ServerFeed
from tests.rigs import postgres
from tests.view.ledgers import refused, written


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose record is on the server."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
    monkeypatch.setattr(server_feed, "EVERY_S", 0.0)
    (tmp_path / "p/.noclobber").mkdir(parents=True)
    yield tmp_path / "p"
    _connection.cache_clear()


def look(feed: ServerFeed) -> None:
    """Ask and look until nothing is new."""
    feed.fetch()
    while feed.look():
        feed.fetch()


def test_writes_and_locks_of_all_machines_are_in_the_stream(project: Path) -> None:
    """N-view, N-machines: what is there at the start, and what comes; one chain has both."""
    (project / "part").mkdir()
    with noclobber.Workspace(project) as workspace, workspace.turn(agent_id="ana") as turn:
        turn.write_file("plan.md", "one\n")
        live, cursor = Live(str(project), with_doctor=False), Cursor()
        live.start()
        try:
            assert [event["kind"] for event in _until(live, cursor, 1)] == ["MUTATION"]
            with noclobber.DeliverableLock(project / "part", holder="ben"):
                turn.write_file("plan.md", "two\n")
            kinds = [event["kind"] for event in _until(live, cursor, 3)]
            assert kinds == ["LOCK_RELEASED", "MUTATION", "LOCK_ACQUIRED"]
            told = live.snapshot()
            assert (told["totals"]["events"], told["chain"]["ok"], told["feed_troubles"]) == (4, True, [])
            assert told["chain"]["head"] == workspace.ledger.head
            texts = [event["text"] for event in told["events"]["newest_first"]]
            assert any(text.startswith("ben") and "locked part" in text for text in texts), texts
        finally:
            live.stop()


def _until(live: Live, cursor: Cursor, count: int) -> list[dict[str, Any]]:
    """The next events that a page is told, the newest first."""
    shown: list[dict[str, Any]] = []
    deadline_s = SYSTEM_CLOCK.monotonic_s() + 60
    while len(shown) < count:
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, shown
        told = live.news(cursor, 1.0).get("events")
        shown = (told["newest_first"] if told else []) + shown
    return shown


def test_the_first_look_is_bounded_and_the_rest_is_counted_later(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-view, N-machines: each event counts once, in pages."""
    ledger = ledger_of(str(project))
    ledger.append_all([written(f"{number}", "ABSENT", "1") for number in range(20)])
    ledger.append_all([refused("x", "0", "1")] * 3)
    monkeypatch.setattr(server_feed, "FIRST_LINES", 5)
    monkeypatch.setattr(server_feed, "OLDER_LINES", 4)
    feed = ServerFeed(str(project), SYSTEM_CLOCK)
    look(feed)
    assert [event.seq for event in feed.events] == [19, 20, 21, 22, 23]
    assert feed.counted_share == 0.0
    ledger.append(written("late", "ABSENT", "1"))
    pages = 1
    feed.fetch_older()
    while feed.count_back():
        feed.fetch_older()
        pages += 1
    look(feed)
    assert (pages, feed.counted_share) == (5, 1.0)
    totals = feed.tallies.totals()
    assert totals["kinds"] == {"MUTATION": 21, "MUTATION_CONFLICT": 3}
    assert feed.chain()["ok"]


def test_a_server_that_does_not_answer_is_said_and_followed_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-view, N-machines, bad input: what was known stays, and nothing is shown twice."""
    ledger = ledger_of(str(project))
    ledger.append(written("a", "ABSENT", "1"))
    feed = ServerFeed(str(project), SYSTEM_CLOCK)
    look(feed)

    def away(_: object) -> None:
        raise CoordinatorUnavailableError("", "the server does not answer.")

    with monkeypatch.context() as patched:
        patched.setattr(ServerFeed, "_ledger", away)
        look(feed)
        assert "does not answer" in feed.troubles["server"]
        assert [event.seq for event in feed.events] == [1]
        feed.fetch_older()
        assert not feed.count_back()
    ledger.append(written("a", "1", "2"))
    look(feed)
    assert ([event.seq for event in feed.events], feed.troubles) == ([1, 2], {})
