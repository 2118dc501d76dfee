"""
What every observer must do, so that it can be given to a workspace or a lock.

A new implementation adds a file with a class that inherits `ObserverSuite` and gives it two fixtures:
`observer`, and `count`, a function that says how many events have arrived where the observer passes them on.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest

from noclobber import Observer

EVENTS: dict[str, dict[str, Any]] = {
    "landed": {
        "seq": 1,
        "time": "2027-01-15T08:00:00.000000Z",
        "action_type": "MUTATION",
        "payload": {
            "tool_name": "write_file",
            "target_file": "docs/100%.md",
            "before_hash": "ABSENT",
            "after_hash": f"sha256:{'a' * 64}",
            "level": "create",
        },
        "result": {"status": "APPLIED"},
        "identity": {"agent_id": "builder-1", "session_id": "s", "turn_id": "t", "call_id": "c"},
        "workspace_id": "0" * 32,
        "prev_hash": f"sha256:{'0' * 64}",
        "hash": f"sha256:{'1' * 64}",
    },
    "refused": {
        "seq": 2,
        "time": "2027-01-15T08:00:01.000000Z",
        "action_type": "MUTATION_CONFLICT",
        "payload": {
            "tool_name": "write_file",
            "target_file": "a\x1b[2J\n.md",
            "baseline_hash": f"sha256:{'a' * 64}",
            "current_hash": "DELETED",
        },
        "result": {"status": "DENIED", "error_type": "STALE_FILE"},
        "identity": {},
    },
    "lock": {
        "seq": 3,
        "action_type": "LOCK_ACQUIRED",
        "payload": {"deliverable_id": "q3", "folder": "/w/q3", "pid": 7},
        "result": {"status": "ACQUIRED"},
        "identity": {"agent_id": "ana", "host": None},
    },
    "kept": {"action_type": "VERSION_KEPT", "payload": {"kept": ["x"]}, "result": {"status": "KEPT_ASIDE"}},
    "unknown": {"action_type": "SOMETHING_NEW"},
}


class ObserverSuite:
    """The contract of `ledger.observer.Observer`."""

    @pytest.fixture
    def observer(self) -> Observer:
        """One observer."""
        raise NotImplementedError

    @pytest.fixture
    def count(self) -> Callable[[], int]:
        """How many events have arrived."""
        raise NotImplementedError

    @pytest.mark.parametrize("kind", EVENTS)
    def test_it_takes_every_kind_of_event_and_changes_none(
        self, observer: Observer, count: Callable[[], int], kind: str
    ) -> None:
        """N-observer: also kinds and members that it does not know."""
        event = copy.deepcopy(EVENTS[kind])
        observer.observe(event)
        assert event == EVENTS[kind]
        assert count() == 1

    def test_threads_may_tell_it_at_once(self, observer: Observer, count: Callable[[], int]) -> None:
        """N-observer: writers in several threads share it; none of their events is lost."""
        gate = threading.Barrier(8)

        def tell() -> None:
            gate.wait()
            for _ in range(50):
                for event in EVENTS.values():
                    observer.observe(event)

        threads = [threading.Thread(target=tell) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert count() == 8 * 50 * len(EVENTS)
