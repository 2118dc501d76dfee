"""
The turn of one command that a process of its own runs: `noclobber run`.

It judges and lands what the command changed, and ends. It reads nothing, edits nothing and outlives nothing,
so it has no tools, no catalogue and no engine, and loads none of them: a command waits for it. What a
landing asks of a turn is here, made from the same parts as in `workspace` and `turn`. What the agent saw is
in its session's memory, if it has one: the landing asks that, and tells it what the command made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.options import load_options
from noclobber.core.values import ToolCall
from noclobber.disk.version_keeper import VersionKeeper
from noclobber.errors import LedgerError
from noclobber.guard.fence import WriteFence
from noclobber.guard.memory import TurnMemory
from noclobber.guard.recording import Recorder
from noclobber.guard.replaced_paths import origin_in
from noclobber.guard.snapshot import TurnContext
from noclobber.guard.who_commits import guard_class
from noclobber.ledger.chosen import ledger_of

if TYPE_CHECKING:
    from noclobber.core.options import Options
    from noclobber.core.values import WriteResult
    from noclobber.guard.memory import Memory

    OpenMemory = Callable[[Options], Memory]


class CommandTurn:
    """One command of one agent. Use it as a context manager."""

    def __init__(
        self,
        root: str,
        *,
        agent_id: str,
        session_id: str | None = None,
        turn_id: str | None = None,
        host: str | None = None,
        options: Options | None = None,
        open_memory: OpenMemory | None = None,
    ) -> None:
        """`open_memory`: opens what the agent's session remembers; None: nothing does."""
        self.root = self.confined_to = self.folder = os.path.realpath(root)
        self.clock, self.host, self.named_turn = SYSTEM_CLOCK, host, turn_id
        self.options = load_options(self.root) if options is None else options
        self.context = TurnContext(
            self.root, turn_id=turn_id or os.urandom(8).hex(), agent_id=agent_id, session_id=session_id
        )
        self.owner = f"{host or 'library'}/{session_id or ''}/{agent_id}/{self.context.turn_id}"
        self.fence = WriteFence(self.root, owner=self.owner)
        self._keeper = (
            VersionKeeper(self.root, self.options, self.clock, origin_in(self.root))
            if self.options.versions == "on"
            else None
        )
        self.guard = guard_class(self.root)(
            self.root,
            durable=self.options.durable,
            wait_s=self.options.wait_s,
            hard_links=self.options.hard_links == "write",
            busy=self.options.busy,
            keeper=self._keeper,
        )
        self._ledger = ledger_of(self.root, durable=self.options.durable)
        self.recorder = Recorder(self.root, self._ledger)
        scope = self.options.write_scope
        self.merges: list[WriteResult] = []
        self._open_memory, self._own_memory = open_memory, TurnMemory(self.context)
        self.write_scope = None if scope is None else tuple(self._scope_folders(scope))

    def _scope_folders(self, scope: Sequence[str]) -> list[str]:
        lexical = [self.guard.lexical(folder) for folder in scope]
        return [self.root if folder == self.root else self.guard.locate(folder) for folder in lexical]

    @property
    def memory(self) -> Memory:
        """What the agent saw: opened anew for each `with`."""
        if self._open_memory is None:
            return self._own_memory
        return self._open_memory(self.options)

    def tool_call(self, tool: str, params: dict[str, object], *, call_id: str | None = None) -> ToolCall:
        """Return the command, as the record names it."""
        context = self.context
        return ToolCall(
            tool,
            params,
            agent_id=context.agent_id,
            session_id=context.session_id,
            turn_id=context.turn_id,
            call_id=call_id or f"{context.turn_id}/1",
            host=self.host,
        )

    def ledger_trouble(self) -> LedgerError | None:
        """Return why events cannot be recorded now, None if they can."""
        try:
            self.recorder.prepare()
        except LedgerError as error:
            return error
        return None

    def __enter__(self) -> CommandTurn:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            kept = self.guard.sweep()
            if kept:
                self.recorder.kept(self.tool_call("end_turn", {}), kept)
        finally:
            self.context.end()
            self._ledger.close()
            self.guard.close()
            if self._keeper is not None:
                self._keeper.close()
