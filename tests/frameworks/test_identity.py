"""Who wrote: the ledger has the agent, the thread, the run and the call, in the framework's own names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.driver import Received, Script, read, write
from tests.frameworks.drivers import driver
from tests.rigs.ledgers import recorded

pytestmark = pytest.mark.wrong_errors


def _events(root: Path) -> list[dict[str, Any]]:
    return list(recorded(root / ".noclobber" / "agent_trace.jsonl"))


def test_the_ledger_names_the_agent_the_thread_and_the_call(framework: str, root: Path) -> None:
    """N-frameworks, R-hook: agent, session, run and call id reach the record."""
    kind = driver(framework)
    playing = kind(root, guarded=True)
    asked: list[str] = []

    class Noting(Script):
        def ask(self, results: Any) -> Any:
            calls = super().ask(results)
            asked.extend(call_id for call_id, _ in calls)
            return calls

    try:
        playing.run(
            Noting(lambda _: [read("plan.md")], lambda _: [write("plan.md", "- one\n")]),
            agent="writer",
            thread="thread-1",
        )
    finally:
        playing.close()
    [event] = _events(root)
    identity = event["identity"]
    assert event["action_type"] == "MUTATION"
    if "agent" not in kind.untold:
        assert identity["agent_id"].startswith("writer")
    if "thread" not in kind.untold:
        assert identity["session_id"] == "thread-1"
    if "call" not in kind.untold:
        assert identity["call_id"] == asked[1]
    assert identity.get("host") == (None if framework == "tools" else kind.host or framework)


def test_two_agents_are_two_in_the_ledger(framework: str, root: Path) -> None:
    """N-frameworks: subagents and parallel branches are told apart."""
    playing = driver(framework)(root, guarded=True)

    def writes(name: str) -> Script:
        def step(_: list[Received]) -> list[Any]:
            return [write(name, "x\n")]

        return Script(step, name=name[0])

    try:
        playing.run_together([writes("a.md"), writes("b.md")])
    finally:
        playing.close()
    events = _events(root)
    who = {(event["identity"].get("session_id"), event["identity"]["agent_id"]) for event in events}
    assert len(events) == 2
    assert len(who) == 2
