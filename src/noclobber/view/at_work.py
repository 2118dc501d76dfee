"""
Who is at work now: the agents of open turns, of claims, of coding agents' sessions, and of the last events.

One row for each agent. What it does is the latest that is known of it: a claim means that it is writing, a
file in its session's memory that it has read that, an event that it wrote or was refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.clock import iso8601
from noclobber.guard.claims import LIFE_S
from noclobber.ledger.root import relative
from noclobber.view.shown_events import CONFLICT, LOCK, RACE, REFUSED, SHORT_SESSION, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noclobber.view.session_memories import LastRead
    from noclobber.view.shown_events import ShownEvent
    from noclobber.view.workspace_state import WorkspaceView

MOST_ROWS = 60
LATELY_S = 600.0
WRITING, READING, WROTE, WAS_REFUSED, OPEN = "writing", "reading", "wrote", "refused", "turn open"


class AtWork(NamedTuple):
    """One agent."""

    agent: str
    host: str
    session: str
    """The beginning of its id."""
    file: str
    doing: str
    """`writing`, `reading`, `wrote`, `refused` or `turn open`."""
    since: str


def at_work(
    state: WorkspaceView, reads: Iterable[LastRead], events: Iterable[ShownEvent], now_s: float
) -> list[AtWork]:
    """Return a row for each agent that did something lately; who is writing first, then the latest."""
    latest: dict[tuple[str, str, str], AtWork] = {}
    lately = iso8601(now_s - LATELY_S)

    def note(row: AtWork) -> None:
        key = (row.agent, row.host, row.session)
        known = latest.get(key)
        if known is None or row.doing == WRITING or (known.doing != WRITING and row.since > known.since):
            latest[key] = row

    for turn in state.turns:
        names = [shortened(turn[name] or "", 60) for name in ("agent_id", "host", "session_id")]
        note(AtWork(names[0], names[1], names[2][:SHORT_SESSION], "", OPEN, str(turn["started"])))
    for read in reads:
        if read.time >= lately:
            file = shortened(relative(state.root, read.path))
            names = [shortened(name, 60) for name in (read.agent, read.host, read.session)]
            note(AtWork(names[0], names[1], names[2][:SHORT_SESSION], file, READING, read.time))
    for event in events:
        if event.time >= lately and event.who.agent and event.file and event.group != LOCK:
            doing = WAS_REFUSED if event.group in (CONFLICT, REFUSED, RACE) else WROTE
            who = event.who
            note(AtWork(who.agent, who.host, who.session[:SHORT_SESSION], event.file, doing, event.time))
    for claim in state.claims:
        note(_claiming(claim, state.root, now_s))
    return sorted(latest.values(), key=lambda row: (row.doing == WRITING, row.since), reverse=True)[
        :MOST_ROWS
    ]


def _claiming(claim: dict[str, Any], root: str, now_s: float) -> AtWork:
    """A claim's owner is `host/session/agent`; that of a program ends with its turn."""
    host, session, agent, *_ = *str(claim["holder"]).split("/"), "", ""
    names = [shortened(name, 60) for name in (agent, "" if host == "library" else host, session)]
    file = shortened(relative(root, str(claim["path"])))
    since = iso8601(now_s - max(0.0, LIFE_S - float(claim["remaining_s"])))
    return AtWork(names[0], names[1], names[2][:SHORT_SESSION], file, WRITING, since)
