"""Who is at work now."""

from __future__ import annotations

from typing import Any

from noclobber.core.clock import iso8601
from noclobber.view.at_work import LATELY_S, at_work
from noclobber.view.session_memories import LastRead
from noclobber.view.shown_events import Authors, shown
from noclobber.view.workspace_state import WorkspaceView
from tests.view.ledgers import HOSTILE, refused, written

NOW_S = 1_800_000_000.0


def state(turns: list[dict[str, Any]], claims: list[dict[str, Any]]) -> WorkspaceView:
    """A workspace with these turns and claims, and nothing else."""
    return WorkspaceView("/p", iso8601(NOW_S), turns, [], claims, [], [], [], [], {}, {}, [])


def turn(agent: str, before_s: float) -> dict[str, Any]:
    """An open turn."""
    return {"agent_id": agent, "host": None, "session_id": None, "started": iso8601(NOW_S - before_s)}


def test_an_agent_is_shown_once_with_the_latest_that_is_known_of_it() -> None:
    """N-view: a turn, then what it read, then what it wrote; a claim before all: it is writing now."""
    event = {**written("a.md", "ABSENT", "1", "ada"), "time": iso8601(NOW_S - 5)}
    events = [shown(event, "/p", Authors())]
    read = LastRead("ada", "codex", "ada-session", "/p/b.md", iso8601(NOW_S - 60))
    rows = at_work(state([], []), [read], events, NOW_S)
    assert [(row.agent, row.session, row.doing, row.file) for row in rows] == [
        ("ada", "ada-sess", "wrote", "a.md")
    ]
    claim = {"path": "/p/c.md", "holder": "codex/ada-session/ada", "call_id": "c", "remaining_s": 28}
    rows = at_work(state([], [claim]), [read], events, NOW_S)
    assert [(row.doing, row.file, row.since) for row in rows] == [("writing", "c.md", iso8601(NOW_S - 2))]


def test_who_did_nothing_lately_is_not_at_work_but_an_open_turn_is() -> None:
    """N-view: ten minutes; a refused one is called that."""
    old = {**written("a.md", "ABSENT", "1", "ada"), "time": iso8601(NOW_S - LATELY_S - 1)}
    new = {**refused("a.md", "0", "1", "ben"), "time": iso8601(NOW_S - 1)}
    events = [shown(event, "/p", Authors()) for event in (old, new)]
    rows = at_work(state([turn("cy", 4000)], []), [], events, NOW_S)
    assert [(row.agent, row.doing) for row in rows] == [("ben", "refused"), ("cy", "turn open")]


def test_a_claim_with_a_hostile_or_short_owner_is_shown_harmlessly() -> None:
    """N-view, bad input: it comes from a file that anybody in the project may write."""
    claims = [
        {"path": HOSTILE, "holder": owner, "call_id": "", "remaining_s": 1}
        for owner in (HOSTILE, "", "a/b", "?")
    ]
    rows = at_work(state([], claims), [], [], NOW_S)
    assert all(text.isprintable() for row in rows for text in row)
