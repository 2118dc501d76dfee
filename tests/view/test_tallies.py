"""Counting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noclobber.view.shown_events import Authors, shown
from noclobber.view.tallies import MOST_KINDS, RECENT_EVENTS, Tallies, facts_of
from tests.view.ledgers import HOSTILE, ledger_of, refused, written

MERGED = {
    "base_hash": "sha256:" + "0" * 64,
    "theirs_hash": "sha256:" + "1" * 64,
    "ours_hash": "sha256:" + "2" * 64,
}


def test_a_line_is_counted_from_its_bytes_as_from_its_json(root: Path) -> None:
    """N-view: both ways agree, for every kind, also if a name looks like a member."""
    ledger = ledger_of(root)
    ledger.append(written("a", "ABSENT", "1"))
    ledger.append(written('"merged":{"base_hash":"', "1", "2"))
    ledger.append(written("a", "1", "2", merged=MERGED))
    ledger.append(refused("a", "1", "2"))
    for line in Path(ledger.path).read_bytes().splitlines():
        event = json.loads(line)
        # In another order it is parsed.
        other = json.dumps({"action_type": event["action_type"], **event}).encode()
        assert facts_of(line) == facts_of(other)
    kinds = [facts_of(line) for line in Path(ledger.path).read_bytes().splitlines()]
    assert [(each.kind, each.is_merge, each.error_type) for each in kinds if each] == [
        ("MUTATION", False, ""),
        ("MUTATION", False, ""),
        ("MUTATION", True, ""),
        ("MUTATION_CONFLICT", False, "STALE_FILE"),
    ]


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"null", b'{"time":1}', b"\0\0", b"[" * 5000])
def test_a_line_that_is_no_event_is_counted_as_that(line: bytes) -> None:
    """N-view, bad input."""
    tallies = Tallies()
    tallies.count(line, "")
    assert tallies.totals()["bad_lines"] == 1


def test_kinds_without_end_are_counted_together() -> None:
    """N-view, bad input: a new kind in each line takes no more memory."""
    tallies = Tallies()
    for number in range(1000):
        tallies.count(json.dumps({"time": "2027", "action_type": f"{HOSTILE}{number}"}).encode(), "")
    assert len(tallies.kinds) <= MOST_KINDS + 1
    assert tallies.totals()["events"] == 1000


def test_the_hottest_files_are_those_of_the_last_events() -> None:
    """N-view: older events leave the count again."""
    tallies, authors = Tallies(), Authors()
    for _ in range(10):
        tallies.saw(shown(written("old.md", "ABSENT", "1"), "/p", authors))
    for number in range(RECENT_EVENTS):
        tallies.saw(shown(written(f"{number % 3}.md", "ABSENT", "1"), "/p", authors))
    assert [row["file"] for row in tallies.hottest()] == ["0.md", "1.md", "2.md"]


def test_only_the_last_minutes_are_kept_apart() -> None:
    """N-view: a ledger of years takes no more memory."""
    tallies = Tallies()
    for minute in ("2027-01-01T10:00", "2027-01-01T10:01", "2026-01-01T10:00"):
        line = f'{{"seq":1,"time":"{minute}:00.000000Z","action_type":"MUTATION"'
        tallies.count(line.encode() + b"}", "2027-01-01T10:00")
    shown_minutes = tallies.minutes(["2027-01-01T10:01", "2027-01-01T10:02"])
    assert [minute["write"] for minute in shown_minutes] == [1, 0]
    assert tallies.totals()["events"] == 3
