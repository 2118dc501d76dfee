"""
What an agent saw in earlier turns of its session (`scope = "session"`).

A model that remembers a file from two questions ago writes it without reading it again. Its turns then
start from the baselines that its last turn ended with. Initial hashes do not go along: those are of
the turn. Kept apart by session *and* agent, because one agent has not seen what another one read.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noclobber.guard.snapshot import Remembered, TurnContext


class EarlierTurns:
    """Baselines of one workspace's sessions, between turns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str | None, str], tuple[dict[str, Remembered], dict[str, str]]] = {}

    def begin(self, context: TurnContext) -> None:
        """Let a new turn start from what its agent saw before."""
        with self._lock:
            files, names = self._known.get((context.session_id, context.agent_id), ({}, {}))
            context.inherit(files, names)

    def finish(self, context: TurnContext) -> None:
        """Keep what a turn learnt. Of two turns at once, each adds what it saw itself."""
        learnt_files, learnt_names = context.remember()
        with self._lock:
            files, names = self._known.setdefault((context.session_id, context.agent_id), ({}, {}))
            files.update(learnt_files)
            names.update(learnt_names)

    def forget(self, session_id: str | None, agent_id: str | None = None) -> None:
        """Forget a session, or one agent of it: it is over, or its model has lost its memory."""
        with self._lock:
            for key in [key for key in self._known if key[0] == session_id]:
                if agent_id in (None, key[1]):
                    del self._known[key]

    def knows(self, session_id: str | None, agent_id: str) -> bool:
        """True if an earlier turn of this agent in this session is remembered."""
        with self._lock:
            return (session_id, agent_id) in self._known
