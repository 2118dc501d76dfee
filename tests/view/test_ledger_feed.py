"""Following a ledger."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.view import ledger_feed
from noclobber.view.ledger_feed import LedgerFeed
from tests.view.ledgers import ledger_of, refused, written


def feed_of(root: Path) -> LedgerFeed:
    """A feed that has looked once."""
    feed = LedgerFeed(str(root), SYSTEM_CLOCK)
    look(feed)
    return feed


def look(feed: LedgerFeed) -> None:
    """Look until nothing is new."""
    while feed.look():
        pass


def test_what_is_appended_is_seen_once(root: Path) -> None:
    """N-view: before the ledger exists, and after."""
    feed = feed_of(root)
    assert not feed.exists
    ledger = ledger_of(root)
    entries = [ledger.append(written("a", "ABSENT", "1")), ledger.append(refused("a", "0", "1"))]
    look(feed)
    assert [event.kind for event in feed.events] == ["MUTATION", "MUTATION_CONFLICT"]
    entries.append(ledger.append(written("a", "1", "2")))
    look(feed)
    assert [event.seq for event in feed.events] == [1, 2, 3]
    assert feed.chain() == {"ok": True, "detail": "", "head": entries[-1].hash}
    assert not feed.look()


def test_the_first_look_is_bounded_and_the_rest_is_counted_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-view: wherever the first look begins, and however large a block is, each line counts once."""
    ledger = ledger_of(root)
    for number in range(60):
        ledger.append(written(f"{number}", "ABSENT", "1") if number % 3 else refused(f"{number}", "0", "1"))
    size = os.path.getsize(ledger.path)
    for first_bytes in (1, 400, 5000, size - 1, size, size + 1):
        for block_bytes in (100, 1000, 1 << 20):
            monkeypatch.setattr(ledger_feed, "FIRST_BYTES", first_bytes)
            monkeypatch.setattr(ledger_feed, "BLOCK_BYTES", block_bytes)
            feed = feed_of(root)
            rounds = 0
            while feed.count_back():
                rounds += 1
            totals = feed.tallies.totals()
            assert (totals["events"], totals["bad_lines"]) == (60, 0), (first_bytes, block_bytes)
            assert totals["groups"] == {"write": 40, "merge": 0, "conflict": 20, "refused": 0, "race": 0}
            assert feed.counted_share == 1.0


def test_a_line_that_is_being_written_is_waited_for(root: Path) -> None:
    """N-view: half a line is no event, and no damage."""
    ledger = ledger_of(root)
    ledger.append(written("a", "ABSENT", "1"))
    whole = Path(ledger.path).read_bytes()
    ledger.append(written("b", "ABSENT", "1"))
    both = Path(ledger.path).read_bytes()
    Path(ledger.path).write_bytes(both[: len(whole) + 50])
    feed = feed_of(root)
    assert feed.seen_count == 1
    with open(ledger.path, "ab") as file:
        file.write(both[len(whole) + 50 :])
    look(feed)
    assert (feed.seen_count, feed.chain()["ok"]) == (2, True)


@pytest.mark.broken_ledger
@pytest.mark.parametrize("damage", [b"nonsense\n", b'{"seq":9}\n', b"x" * 1_200_000 + b"\n"])
def test_a_broken_line_is_said_and_the_rest_is_shown(root: Path, damage: bytes) -> None:
    """N-view, bad input: the banner says what to run; events before and after are there."""
    ledger = ledger_of(root)
    ledger.append(written("a", "ABSENT", "1"))
    feed = feed_of(root)
    with open(ledger.path, "ab") as file:
        file.write(damage)
    ledger.append(written("b", "ABSENT", "1"))
    look(feed)
    assert feed.chain()["ok"] is False
    assert "ledger verify" in str(feed.chain()["detail"])
    assert [event.file for event in feed.events if event.file] == ["a", "b"]


@pytest.mark.broken_ledger
def test_a_line_that_was_changed_or_left_out_breaks_the_chain(root: Path) -> None:
    """N-view: found when it is appended, without reading the ledger again."""
    ledger = ledger_of(root)
    ledger.append(written("a", "ABSENT", "1"))
    feed = feed_of(root)
    ledger.append(written("b", "ABSENT", "1"))
    ledger.append(written("c", "ABSENT", "1"))
    lines = Path(ledger.path).read_bytes().splitlines(keepends=True)
    Path(ledger.path).write_bytes(lines[0] + lines[2])
    look(feed)
    assert "does not follow" in str(feed.chain()["detail"])


def test_a_ledger_that_goes_away_or_is_replaced_is_said(root: Path) -> None:
    """N-view, bad input: the feed begins anew with what is there."""
    ledger = ledger_of(root)
    for _ in range(3):
        ledger.append(written("a", "ABSENT", "1"))
    feed = feed_of(root)
    os.rename(ledger.path, f"{ledger.path}.away")
    look(feed)
    assert "gone" in feed.troubles["ledger"]
    assert not feed.events
    ledger_of(root).append(written("new", "ABSENT", "1"))
    look(feed)
    assert [event.file for event in feed.events] == ["new"]
    assert "ledger" not in feed.troubles


def test_a_ledger_that_is_no_file_is_said(root: Path) -> None:
    """N-view, bad input: a folder in its place."""
    (root / ".noclobber" / "agent_trace.jsonl").mkdir(parents=True)
    feed = LedgerFeed(str(root), SYSTEM_CLOCK)
    assert feed.look()
    assert not feed.look()
    assert feed.troubles["ledger"]


def test_what_was_known_stays_when_the_whole_project_is_gone(root: Path) -> None:
    """N-view, bad input: the folder is moved away and comes back; "nothing is on record" would be wrong."""
    ledger = ledger_of(root)
    ledger.append(written("a", "ABSENT", "1"))
    feed = feed_of(root)
    root.rename(root.with_name("elsewhere"))
    assert not feed.look()
    assert ([event.seq for event in feed.events], feed.troubles) == ([1], {})
    root.with_name("elsewhere").rename(root)
    ledger.append(written("a", "1", "2"))
    look(feed)
    assert ([event.seq for event in feed.events], feed.troubles) == ([1, 2], {})
    os.unlink(feed.path)
    look(feed)
    assert not feed.events
    assert "The ledger is gone" in feed.troubles["ledger"]


def test_a_trouble_that_is_over_is_no_longer_said(root: Path) -> None:
    """N-view: the very same file was put back, so nothing in it is new."""
    ledger = ledger_of(root)
    ledger.append(written("a", "ABSENT", "1"))
    feed = feed_of(root)
    path = Path(feed.path)
    path.rename(path.with_suffix(".aside"))
    path.mkdir()
    look(feed)
    assert "ledger" in feed.troubles
    path.rmdir()
    path.with_suffix(".aside").rename(path)
    look(feed)
    assert "ledger" not in feed.troubles
    assert len(feed.events) == 1
