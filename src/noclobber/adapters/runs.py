"""
Who calls a tool, as a framework tells it, and the turn that the call belongs to.

A run has one turn. What was seen goes on counting in the next run of the same session if it is certain that
the model still knows it; the option `scope = "session"` makes it count where the framework does
not say. In every other case it is forgotten, and *strictly*: a session that may have a past must read an
existing file before it changes it (`UNREAD_FILE`), because a model that was resumed may write what it
remembers of a version that nobody here can name.

| situation | what was seen | files that were not read |
|---|---|---|
| a new run without a session | nothing yet | as the option `unread` says |
| a session, the model's messages are all there | kept | refused if its past is not known here |
| a session, a message is gone (rewound, forked, summarised) | forgotten | refused |
| a session, the framework shows no messages | forgotten at the end of the run | refused |

`Caller.memory` and `Caller.mark` say what the model still knows. A framework that keeps conversations can go
back to an earlier point of one (a checkpoint, a fork, a retry), in this process or in another. Then our
snapshot knows versions of files that this model never saw, and a write made from an older one would pass. So
an adapter that can see the model's messages passes the ids of those that it has now, and notes each call
under the id of the message that asked for it. If a noted message is no longer there, the model has lost what
it saw with it.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Set
    from typing import Unpack

    from noclobber.core.options import OptionValues
    from noclobber.guard.turn import Turn
    from noclobber.guard.workspace import Workspace

MOST_RUNS = 256  # Agents whose turns are kept at once; the one that called longest ago is ended first.
MOST_FORGOTTEN = 100_000


class Caller(NamedTuple):
    """Who calls; an adapter makes one for every tool call. None for what the framework does not say."""

    agent_id: str = "agent"
    """The agent's name. A subagent's instance or a parallel branch has one of its own (`branch`)."""
    session_id: str | None = None
    """The conversation or thread, if the run belongs to one. It may have a past in another process."""
    run_id: str | None = None
    """This run of the agent."""
    call_id: str | None = None
    """The id that the model gave to its call."""
    branch: str = ""
    """What tells a subagent's instance or a parallel branch from others of that name; empty: the main one."""
    memory: Set[str] | None = None
    """Ids of the messages that the model has now; None if the framework does not show them."""
    mark: str | None = None
    """The id, among those, of the message that this call belongs to."""

    step: str | None = None
    """What tells the model's message that asked for this call from others, if `mark` does not."""

    @property
    def name(self) -> str:
        """The agent as the ledger names it: unique within the session."""
        return f"{self.agent_id}/{self.branch[:12]}" if self.branch else self.agent_id


class RunTurns:
    """The open turns of one workspace's agents in one framework. Safe to share between threads and tasks."""

    def __init__(self, workspace: Workspace, host: str, **options: Unpack[OptionValues]) -> None:
        self.workspace, self.host, self.options = workspace, host, options
        self._runs: OrderedDict[tuple[str, str], _AgentRun] = OrderedDict()
        self._forgotten: deque[tuple[str, str]] = deque(maxlen=MOST_FORGOTTEN)
        """Agents whose turns were ended to make room. They have a past that is not known here."""
        self._nameless = os.urandom(8).hex()
        """The session of calls that come from no run at all: a program that calls a tool directly."""
        self._lock = threading.Lock()

    def turn(self, caller: Caller) -> Turn:
        """Return the turn that a call belongs to. It stays open until its run ends, or others need room."""
        key = self._key(caller)
        with self._lock:
            run = self._runs.pop(key, None)
            if run is None or not run.continues(caller):
                run = self._begin(key, caller, run)
            self._runs[key] = run
            if caller.mark is not None:
                run.marks.add(caller.mark)
            if len(self._runs) > MOST_RUNS:
                oldest, pushed_out = self._runs.popitem(last=False)
                self._forget(oldest, pushed_out)
        return run.turn

    @contextmanager
    def call(self, caller: Caller) -> Iterator[Turn]:
        """Yield the turn for one call of the caller's; within, the ledger has the call's id."""
        turn = self.turn(caller)
        with turn.called(caller.call_id, step=caller.step or caller.mark):
            yield turn

    def end(self, caller: Caller) -> None:
        """The run is over. What was seen is kept for the session's next run, if that may count on it."""
        with self._lock:
            run = self._runs.get(self._key(caller))
        if run is not None:
            run.turn.end()

    def end_run(self, run_id: str) -> None:
        """A run is over, with every agent that took part in it."""
        with self._lock:
            over = [run.turn for run in self._runs.values() if run.run_id == run_id]
        for turn in over:
            turn.end()

    def forget_session(self, session_id: str | None) -> None:
        """Forget what every agent of a session saw: its model's memory is gone."""
        with self._lock:
            for key in [key for key in self._runs if key[0] == session_id]:
                self._forget(key, self._runs.pop(key))

    def close(self) -> None:
        """End every turn, and forget what was seen."""
        with self._lock:
            while self._runs:
                self._forget(*self._runs.popitem())

    def _key(self, caller: Caller) -> tuple[str, str]:
        return caller.session_id or caller.run_id or self._nameless, caller.name

    def _begin(self, key: tuple[str, str], caller: Caller, before: _AgentRun | None) -> _AgentRun:
        """Begin a run: with what the one before it saw, if the model still knows that."""
        session_id, agent_id = key
        keeps = before is not None and before.is_known_to(caller, self.workspace.options.scope)
        if before is not None:
            before.turn.end()
        if not keeps:
            self.workspace.end_session(session_id, agent_id=agent_id)
        options: OptionValues = {**self.options, "scope": "session"}
        if not keeps and (_has_past(caller) or key in self._forgotten or before is not None):
            options["unread"] = "deny"
        turn = self.workspace.turn(
            agent_id=agent_id, session_id=session_id, host=self.host, intent_id=caller.run_id, **options
        )
        return _AgentRun(turn, caller.run_id, before.marks if before is not None and keeps else set())

    def _forget(self, key: tuple[str, str], run: _AgentRun) -> None:
        run.turn.end()
        self.workspace.end_session(key[0], agent_id=key[1])
        self._forgotten.append(key)


class _AgentRun:
    """One agent's run: its turn, and the messages in which it called."""

    def __init__(self, turn: Turn, run_id: str | None, marks: set[str]) -> None:
        self.turn, self.run_id, self.marks = turn, run_id, marks

    def continues(self, caller: Caller) -> bool:
        """True if a call is of this run, and its model knows what the run saw."""
        return self.turn.context.is_open and self.run_id == caller.run_id and self._has_marks(caller)

    def is_known_to(self, caller: Caller, scope: str) -> bool:
        """True if a later run may count on what this one saw."""
        if caller.memory is None:
            return scope == "session"
        return bool(self.marks) and self._has_marks(caller)

    def _has_marks(self, caller: Caller) -> bool:
        return caller.memory is None or self.marks <= caller.memory


def _has_past(caller: Caller) -> bool:
    """True if the model may remember files from before, in this process or in another."""
    if caller.memory is None:
        return caller.session_id is not None
    return bool(caller.memory - {caller.mark})
