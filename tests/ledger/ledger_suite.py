"""
What every ledger must do, wherever it keeps its lines.

A new implementation adds a file with a class that inherits `LedgerSuite` and gives it one fixture:
`open_ledger`, a picklable function that opens the same, at first empty, ledger each time it is called.
"""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from noclobber import AgentTraceLedger, BadEventError, BadRequestError, BrokenChainError, schema
from noclobber.ledger import GENESIS, MAX_LINE_BYTES
from noclobber.ledger.protocol import Ledger

Opener = Callable[[], Ledger]
SCHEMA = jsonschema.Draft202012Validator(schema("ledger-event"))
FORK = multiprocessing.get_context("fork")


def numbered(number: int, writer: str = "a") -> dict[str, Any]:
    """An event that can be told from others."""
    return {"action_type": "X", "payload": {"number": number, "writer": writer, "word": "Ü\u2028\x00\x1b"}}


def append_numbers(open_ledger: Opener, writer: str, count: int, start: Any) -> None:
    """What one of several writers does."""
    ledger = open_ledger()
    start.wait()
    for number in range(count):
        ledger.prepare()
        ledger.append(numbered(number, writer))
    ledger.close()


class LedgerSuite:
    """The contract of `ledger.protocol.Ledger`."""

    @pytest.fixture
    def open_ledger(self, tmp_path: Path) -> Opener:
        """Open the one ledger of a test."""
        raise NotImplementedError

    def test_an_empty_ledger_is_an_empty_chain(self, open_ledger: Opener) -> None:
        """R-ledger: nobody has written yet; that is not an error."""
        ledger = open_ledger()
        report = ledger.verify()
        assert (report.event_count, report.head, ledger.head) == (0, GENESIS, GENESIS)
        assert (list(ledger.events()), ledger.last_lines(5)) == ([], [])

    def test_what_was_recorded_is_what_is_read(self, open_ledger: Opener) -> None:
        """R-ledger: in order, chained, in the form that the schema has."""
        ledger = open_ledger()
        entries = [ledger.append(numbered(number)) for number in range(3)]
        found = list(ledger.events())
        for event in found:
            SCHEMA.validate(event)
        assert [event["payload"] for event in found] == [numbered(number)["payload"] for number in range(3)]
        assert [event["seq"] for event in found] == [entry.seq for entry in entries] == [1, 2, 3]
        assert [event["hash"] for event in found] == [entry.hash for entry in entries]
        assert [event["time"] for event in found] == [entry.time for entry in entries]
        assert [entry.prev_hash for entry in entries] == [GENESIS, entries[0].hash, entries[1].hash]
        assert ledger.head == ledger.verify().head == entries[2].hash
        assert ledger.verify().event_count == 3

    def test_all_who_open_it_share_one_chain(self, open_ledger: Opener) -> None:
        """R-ledger: each sees what the others recorded."""
        one, other = open_ledger(), open_ledger()
        first = one.append(numbered(1))
        second = other.append(numbered(2))
        third = one.append(numbered(3))
        assert (second.prev_hash, third.prev_hash) == (first.hash, second.hash)
        assert other.verify().event_count == 3

    @pytest.mark.parametrize(
        "bad",
        [
            {},
            {"action_type": ""},
            {"action_type": 7},
            {"action_type": "X", "seq": 1},
            {"action_type": "X", "hash": "h"},
            {"action_type": "X", "payload": {1: "a"}},
            {"action_type": "X", "payload": {"a set"}},
            {"action_type": "X", "payload": float("nan")},
            {"action_type": "X", "payload": "\ud800"},
            {"action_type": "X", "payload": "x" * MAX_LINE_BYTES},
        ],
        ids=lambda bad: ascii(bad)[:60],  # The same in every worker, so no address of an object.
    )
    def test_what_cannot_be_recorded_is_refused_and_leaves_nothing(
        self, open_ledger: Opener, bad: dict[str, Any]
    ) -> None:
        """R-ledger: and the next event is recorded as if nothing had happened."""
        ledger = open_ledger()
        with pytest.raises(BadEventError):
            ledger.append(bad)
        assert list(ledger.events()) == []
        assert ledger.append(numbered(1)).seq == 1

    def test_preparing_records_nothing_and_keeps_nobody_out(self, open_ledger: Opener) -> None:
        """Ruling 13: a commit comes between `prepare` and `append`, and may take long."""
        one, other = open_ledger(), open_ledger()
        one.prepare()
        one.prepare()
        assert list(one.events()) == []
        other.prepare()
        assert other.append(numbered(1)).seq == 1
        assert one.append(numbered(2)).seq == 2
        assert one.verify().event_count == 2

    def test_the_last_lines_come_from_the_end(self, open_ledger: Opener) -> None:
        """R-ledger: for people who look at what happened last."""
        ledger = open_ledger()
        for number in range(40):
            ledger.append(numbered(number))
        for count in (0, 1, 39, 40, 41):
            lines = ledger.last_lines(count)
            assert [json.loads(line)["seq"] for line in lines] == list(range(41 - min(count, 40), 41))

    def test_its_lines_in_a_file_are_a_file_ledger(self, open_ledger: Opener, tmp_path: Path) -> None:
        """R-ledger: a copy can be checked without the place that it came from."""
        ledger = open_ledger()
        for number in range(5):
            ledger.append(numbered(number))
        copy = tmp_path / "copy.jsonl"
        copy.write_bytes(b"".join(line + b"\n" for line in ledger.last_lines(5)))
        report = AgentTraceLedger(copy).verify(head=ledger.head)
        assert (report.event_count, report.head) == (5, ledger.head)

    def test_a_saved_head_is_found_or_missed(self, open_ledger: Opener) -> None:
        """R-ledger: what shows a tail that was cut off."""
        ledger = open_ledger()
        entries = [ledger.append(numbered(number)) for number in range(3)]
        assert ledger.verify(head=entries[1].hash).saved_head_line == 2
        assert ledger.verify(head=GENESIS).saved_head_line == 0
        with pytest.raises(BrokenChainError) as broken:
            ledger.verify(head=f"sha256:{'f' * 64}")
        assert broken.value.details["event_count"] == 3
        with pytest.raises(BadRequestError):
            ledger.verify(head="nonsense")

    def test_closed_it_opens_again(self, open_ledger: Opener) -> None:
        """R-ledger: closing gives back what is open, no more."""
        ledger = open_ledger()
        ledger.append(numbered(1))
        ledger.close()
        ledger.close()
        assert ledger.append(numbered(2)).seq == 2
        assert ledger.verify().event_count == 2

    @pytest.mark.parametrize("kind", ["threads", "threads of one object", "processes"])
    def test_writers_at_once_lose_nothing_and_fork_nothing(self, open_ledger: Opener, kind: str) -> None:
        """R-ledger: one chain, every event in it once, each writer's own in order."""
        writers, count = 6, 20
        shared = open_ledger()
        given: Opener = (lambda: shared) if kind == "threads of one object" else open_ledger
        runners: list[Any]
        if kind == "processes":
            gate = FORK.Barrier(writers)
            runners = [
                FORK.Process(target=append_numbers, args=(given, str(number), count, gate))
                for number in range(writers)
            ]
        else:
            opened = threading.Barrier(writers)
            runners = [
                threading.Thread(target=append_numbers, args=(given, str(number), count, opened))
                for number in range(writers)
            ]
        for runner in runners:
            runner.start()
        for runner in runners:
            runner.join()

        assert shared.verify().event_count == writers * count
        found = [event["payload"] for event in shared.events()]
        for writer in map(str, range(writers)):
            own = [payload["number"] for payload in found if payload["writer"] == writer]
            assert own == list(range(count))
