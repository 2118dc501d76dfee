"""Observers: told what is on record, and unable to change it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from noclobber import (
    AgentTraceLedger,
    DeliverableLock,
    LedgerError,
    LockContention,
    LoggingObserver,
    NoclobberError,
    Observer,
    StaleFileError,
    ToolCall,
    Workspace,
    replace_if_unchanged,
)
from noclobber.core.clock import SystemClock
from noclobber.errors import ABSENT
from noclobber.mcp.connection import ClientConnection, Workspaces
from noclobber.mcp.dispatch import call as mcp_call
from noclobber.mcp.roots import Roots
from tests.ledger.observer_suite import EVENTS, ObserverSuite
from tests.rigs.ledgers import recorded


class _Counting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


class TestLoggingObserver(ObserverSuite):
    """`LoggingObserver`."""

    @pytest.fixture
    def handler(self) -> Iterator[_Counting]:
        """Where its lines arrive."""
        handler, logger = _Counting(), logging.getLogger("noclobber.events")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        yield handler
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)

    @pytest.fixture
    def observer(self, handler: _Counting) -> Observer:
        return LoggingObserver()

    @pytest.fixture
    def count(self, handler: _Counting) -> Callable[[], int]:
        return lambda: len(handler.lines)

    def test_refusals_are_warnings_and_the_rest_is_information(
        self, observer: Observer, handler: _Counting
    ) -> None:
        """N-observer: a line has what happened, to what, by whom."""
        for event in EVENTS.values():
            observer.observe(event)
        assert handler.lines == [
            ("INFO", "MUTATION APPLIED docs/100%.md by builder-1"),
            ("WARNING", "MUTATION_CONFLICT STALE_FILE a\x1b[2J\n.md by -"),
            ("INFO", "LOCK_ACQUIRED ACQUIRED /w/q3 by ana"),
            ("WARNING", "VERSION_KEPT KEPT_ASIDE ['x'] by -"),
            ("INFO", "SOMETHING_NEW None - by -"),
        ]


class Listening:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []

    def observe(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)


class BrokenError(Exception):
    """What a broken observer raises."""


class Broken:
    """Fails at every event, and tries to do harm."""

    def __init__(self) -> None:
        self.count = 0

    def observe(self, event: Mapping[str, Any]) -> None:
        self.count += 1
        event["payload"].clear()
        raise BrokenError("no such exporter")


def on_record(root: Path) -> list[dict[str, Any]]:
    return list(AgentTraceLedger(root / ".noclobber" / "agent_trace.jsonl").events())


def _library(root: Path, observer: Observer) -> None:
    with Workspace(root, observer=observer) as ws, ws.turn() as turn:
        turn.read_file("a.md")
        (root / "a.md").write_bytes(b"theirs\n")
        with pytest.raises(StaleFileError):
            turn.write_file("a.md", b"mine\n")
        turn.read_file("a.md")
        turn.write_file("a.md", b"merged\n")
        with pytest.raises(NoclobberError):
            turn.write_file("/etc/passwd", b"x")


def _engine(root: Path, observer: Observer) -> None:
    def executor(call: ToolCall) -> str:
        (root / call.params["path"]).write_text(call.params["content"])
        return "ok"

    def failing(call: ToolCall) -> str:
        raise BrokenError

    with Workspace(root, observer=observer) as ws, ws.turn(agent_id="x", turn_id="t") as turn:
        turn.read_file("a.md")
        write = ToolCall("write_to_file", {"path": "a.md", "content": "x"}, agent_id="x", turn_id="t")
        ws.engine.execute(write, executor)
        with pytest.raises(BrokenError):
            ws.engine.execute(write, failing)
        (root / "a.md").write_bytes(b"theirs\n")
        assert not ws.engine.pre_tool_use(write).allowed


def _mcp(root: Path, observer: Observer) -> None:
    workspaces = Workspaces(observer=observer)
    connection = ClientConnection(workspaces, Roots([str(root)]), is_session=True, is_process=True)
    for tool, given in (
        ("write_file", {"path": "b.md", "content": "1"}),
        ("write_file", {"path": "a.md", "content": "2", "expected_hash": "0" * 64}),
        ("move_file", {"source": "b.md", "destination": "c.md"}),
    ):
        mcp_call(connection, tool, given, lambda *_: None)
    connection.close()
    workspaces.close()


WAYS = {"library": _library, "engine": _engine, "mcp": _mcp}


@pytest.mark.parametrize("way", WAYS)
def test_an_observer_is_told_what_is_on_record_whoever_wrote(root: Path, way: str) -> None:
    """N-observer: the library, the engine around another executor, and MCP tell the same."""
    (root / "a.md").write_bytes(b"v1\n")
    observer = Listening()
    WAYS[way](root, observer)
    assert observer.events == on_record(root)
    kinds = {event["action_type"] for event in observer.events}
    assert {"MUTATION", "MUTATION_CONFLICT"} <= kinds


@pytest.mark.parametrize("way", WAYS)
def test_a_broken_observer_changes_nothing_and_is_reported(
    root: Path, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    """N-observer: results, refusals and record are what they would be without it."""
    (root / "a.md").write_bytes(b"v1\n")
    observer = Broken()
    WAYS[way](root, observer)
    assert observer.count == len(on_record(root)) == len(caplog.records)
    assert all(event["payload"] for event in on_record(root))
    assert "Broken failed to observe event 1" in caplog.records[0].getMessage()
    assert "no such exporter" in (caplog.records[0].exc_text or "")


def test_what_is_not_on_record_is_not_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-observer, ruling 13: the writer is told that its write landed and is not on record."""
    observer = Listening()
    with Workspace(root, observer=observer) as ws, ws.turn() as turn:

        def full(event: Mapping[str, Any]) -> None:
            raise LedgerError(ws.ledger.path, "disk full")

        monkeypatch.setattr(ws.ledger, "append", full)
        with pytest.raises(LedgerError):
            turn.write_file("a.md", b"v2")
    assert observer.events == []


def test_an_observer_may_write_through_the_workspace_it_observes(root: Path) -> None:
    """N-observer: no lock is held while it is told."""

    class Writing:
        turn: Any = None

        def observe(self, event: Mapping[str, Any]) -> None:
            if event["payload"]["target_file"] == "a.md":
                self.turn.write_file("log.md", str(event["seq"]))

    observer = Writing()
    with Workspace(root, observer=observer) as ws, ws.turn() as turn:
        observer.turn = turn
        turn.write_file("a.md", b"v2")
    assert (root / "log.md").read_text() == "1"
    assert [event["payload"]["target_file"] for event in on_record(root)] == ["a.md", "log.md"]


# -- locks ---------------------------------------------------------------------------------------------------


class Earlier(SystemClock):
    """A minute ago."""

    def now_s(self) -> float:
        return super().now_s() - 60


def _use_locks(folder: Path, observer: Observer, **options: Any) -> None:
    with DeliverableLock(folder, holder="ana", observer=observer, **options) as lock:
        lock.renew()
        with pytest.raises(LockContention):
            DeliverableLock(folder, holder="ben", observer=observer, **options).acquire()
    DeliverableLock(folder, holder="ana", observer=observer, **options).retire()


def lock_events(folder: Path) -> list[dict[str, Any]]:
    return recorded(folder / ".lock-ledger.jsonl")


def test_an_observer_of_a_lock_is_told_what_is_on_record(root: Path) -> None:
    """N-observer, REQ-LOCK-008: acquired, renewed, refused, released, retired."""
    observer = Listening()
    _use_locks(root, observer)
    kinds = [event["action_type"] for event in observer.events]
    assert kinds == ["LOCK_ACQUIRED", "LOCK_RENEWED", "LOCK_CONTENTION", "LOCK_RELEASED", "LOCK_RETIRED"]
    assert observer.events == lock_events(root)


def test_an_observer_of_a_lock_is_told_of_events_in_another_ledger(root: Path, tmp_path: Path) -> None:
    """N-observer: a caller may keep lock events elsewhere."""
    observer, ledger = Listening(), AgentTraceLedger(tmp_path / "locks.jsonl")
    _use_locks(root, observer, ledger=ledger)
    assert observer.events == list(ledger.events())
    assert len(observer.events) == 5


def test_a_recovery_is_told_before_the_acquisition_that_made_it(root: Path) -> None:
    """N-observer, REQ-LOCK-006: in the order of the record."""
    DeliverableLock(
        root, holder="gone", lease_duration_s=1, lease_only=True, clock=Earlier()
    ).acquire().detach()
    observer = Listening()
    with DeliverableLock(root, holder="ana", observer=observer):
        pass
    kinds = [event["action_type"] for event in observer.events]
    assert kinds == ["LOCK_RECOVERED", "LOCK_ACQUIRED", "LOCK_RELEASED"]


def test_a_broken_observer_of_a_lock_changes_nothing(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """N-observer: the lock is taken, kept and released as without it."""
    observer = Broken()
    _use_locks(root, observer)
    assert observer.count == len(lock_events(root)) == len(caplog.records) == 5
    assert not (root / ".lock").exists()


def test_an_observer_may_write_in_the_folder_of_the_lock_that_tells_it(root: Path) -> None:
    """N-observer: the folder's own mutex is not held while it is told."""

    class Writing:
        def observe(self, event: Mapping[str, Any]) -> None:
            replace_if_unchanged(root / f"{event['action_type']}.md", ABSENT, b"x")

    with DeliverableLock(root, holder="ana", observer=Writing()):
        pass
    assert (root / "LOCK_ACQUIRED.md").exists()
    assert (root / "LOCK_RELEASED.md").exists()
