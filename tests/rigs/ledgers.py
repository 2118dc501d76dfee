"""
What is on record, read as an auditor reads it: the chain is checked, and every event against its schema.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noclobber import AgentTraceLedger
from tests.rigs.schemas import check


def recorded(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the events of a ledger; fails unless the chain is whole and every event is what was promised."""
    if not os.path.exists(path):
        return []
    ledger = AgentTraceLedger(path)
    ledger.verify()
    events = list(ledger.events())
    for event in events:
        check(event, "ledger-event")
    return events


START_S = 1_800_000_000.0  # 2027-01-15T08:00:00Z


class Minutes:
    """A clock that is a minute further at each look."""

    def __init__(self) -> None:
        self.now = START_S - 60

    def now_s(self) -> float:
        self.now += 60
        return self.now

    monotonic_s = now_s

    def sleep(self, seconds: float) -> None:
        pass


def event(kind: str, path: str, agent: str, **payload: Any) -> dict[str, Any]:
    denied = kind in ("MUTATION_CONFLICT", "MUTATION_REFUSED")
    hashes = {
        "MUTATION_CONFLICT": {"baseline_hash": "sha256:" + "a" * 64, "current_hash": "sha256:" + "b" * 64},
        "MUTATION": {"before_hash": "ABSENT", "after_hash": "sha256:" + "c" * 64, "level": "create"},
    }
    error = {"MUTATION_CONFLICT": "STALE_FILE", "MUTATION_REFUSED": "UNREAD_FILE"}
    return {
        "action_type": kind,
        "payload": {"tool_name": "write_file", "target_file": path, **hashes.get(kind, {}), **payload},
        "result": {"status": "DENIED", "error_type": error[kind]} if denied else {"status": "APPLIED"},
        "identity": {"agent_id": agent, "session_id": "s", "turn_id": "t", "call_id": f"c-{path}"},
    }


@contextmanager
def filled_ledger(root: Path, base: str) -> Iterator[AgentTraceLedger]:
    """A ledger with an event of each kind; its paths begin with `base`."""
    (root / ".noclobber").mkdir()
    (root / "docs").mkdir()
    with AgentTraceLedger(root / ".noclobber" / "agent_trace.jsonl", clock=Minutes()) as ledger:
        ledger.append(event("MUTATION", f"{base}docs/plan.md", "ana"))
        ledger.append(event("MUTATION_CONFLICT", f"{base}docs/plan.md", "ben"))
        ledger.append(event("MUTATION_REFUSED", f"{base}src/app.py", "ana"))
        ledger.append(event("MUTATION", f"{base}src/app.py", "ana", destination=f"{base}docs/app.py"))
        ledger.append(
            {
                "action_type": "LOCK_ACQUIRED",
                "payload": {"folder": f"{root}/q3", "pid": 7},
                "result": {"status": "ACQUIRED"},
            }
        )
        yield ledger
