"""
One event of a coding agent, as a turn that the judge understands.

A hook is a process for each event. What the agent saw comes from its session's memory; the project was
settled by the session's first event.

Parts are loaded when they are first asked for: the end of a turn needs only claims, a read needs neither
the fence nor the recorder. Each module that is not loaded saves about 0.1 ms of an answer.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.values import ToolCall
from noclobber.errors import HookFailedError, LedgerError
from noclobber.hook.session_memory import SessionMemory
from noclobber.hook.session_notes import settle_project
from noclobber.hook.settings import options_of, project_of

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.core.options import Options
    from noclobber.core.values import WriteResult
    from noclobber.disk.file_guard import FileGuard
    from noclobber.guard.fence import WriteFence
    from noclobber.guard.outside import Outside
    from noclobber.guard.recording import Recorder
    from noclobber.hosts.event import Event
    from noclobber.ledger.protocol import LedgerWriter


class HookTurn:
    """What the judge has to know about the agent of an event."""

    confined_to = None  # A host's tools may write anywhere; every write is checked.
    outside_level = "hook"
    is_command_guarded = False
    """Set if the command of this event is to run in the guarded shell."""
    to_tell = ""
    """Set if the agent is to hear something about the command of this event that is no error."""
    asked_by = 0
    """The process that asks, where it is not our parent (`standby`)."""
    # Claude Code and Codex ask about a write when its turn comes, and carry out one at a time. Others ask
    # about all calls of a message first, and a permission dialogue may be open for any of them.
    SERIAL_HOSTS = ("claude-code", "codex")
    PARALLEL_S = 600.0

    def __init__(self, event: Event, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self.root = settle_project(event.host, event.session_id, lambda: project_of(event.cwd))
        if event.cwd and not event.cwd.startswith("/"):
            raise HookFailedError(event.cwd, "The host named a working directory that is not absolute.")
        self.folder = event.cwd or self.root
        self.parallel_s = 0.0 if event.host in self.SERIAL_HOSTS else self.PARALLEL_S
        self.owner = f"{event.host}/{event.session_id}/{event.agent_id}"
        self._event = event
        self._options: Options | None = None
        self._memory: SessionMemory | None = None
        self._fence: WriteFence | None = None
        self._recorder: Recorder | None = None
        self.guard: FileGuard
        """Set where we write in the host's place (`replaced_tool`)."""
        self.merges: list[WriteResult] = []

    @property
    def options(self) -> Options:
        """The project's rules; `ConfigError` if they cannot be read. A refusal is recorded without them."""
        if self._options is None:
            found = options_of(self.root)
            more = self._event.formatters
            self._options = found._replace(formatters=(*found.formatters, *more)) if more else found
        return self._options

    @property
    def write_scope(self) -> tuple[str, ...] | None:
        """Canonical folders, or None for anywhere."""
        return self.options.write_scope

    @property
    def memory(self) -> SessionMemory:
        """What this agent saw; opened when first asked for."""
        if self._memory is None:
            event, options = self._event, self.options
            self._memory = SessionMemory(
                event.host,
                event.session_id,
                event.agent_id,
                root=self.root,
                turn_id=event.turn_id if options.scope == "turn" else None,
                rebaseline=options.rebaseline,
                parent_agent_id=event.parent_agent_id,
            )
        return self._memory

    @property
    def fence(self) -> WriteFence:
        """Claims and locks that may stop a write of this agent."""
        if self._fence is None:
            from noclobber.guard.fence import WriteFence

            self._fence = WriteFence(self.root, owner=self.owner, clock=self.clock)
        return self._fence

    @property
    def recorder(self) -> Recorder:
        """What puts events on record."""
        if self._recorder is None:
            from noclobber.guard.recording import Recorder

            self._recorder = Recorder(self.root, self._ledger())
        return self._recorder

    def _ledger(self) -> LedgerWriter:
        from noclobber.core.project import COORDINATOR, ledger_path

        if COORDINATOR in os.environ:
            from noclobber.ledger.chosen import ledger_of

            return ledger_of(self.root)
        from noclobber.ledger.open_file import LightLedger

        return LightLedger(ledger_path(self.root))

    def ledger_trouble(self) -> LedgerError | None:
        """Return why events cannot be recorded now, None if they can. Makes the state folder if need be."""
        try:
            self.recorder.prepare()
        except LedgerError as error:
            return error
        return None

    def call(self) -> ToolCall:
        """Return the event's call, for the record."""
        event = self._event
        return ToolCall(
            event.tool or event.name,
            {},
            agent_id=event.agent_id,
            session_id=event.session_id or None,
            turn_id=event.turn_id,
            call_id=event.call_id,
            host=event.host,
        )

    def outside(self) -> Outside:
        """Return the check before, and the comparison after, the call that the event is about."""
        from noclobber.guard.outside import Outside

        event = self._event
        if not self.parallel_s and (event.kind == "pre" or not event.writes):
            self.end()  # Calls come one at a time here, so those before this one are over.
        moment = event.result.happened_at
        delivery = f"{event.kind}:{event.call_id or ''}:{moment}" if event.call_id or moment else ""
        can_rewrite = event.given is not None
        return Outside(self, self.call(), event.actions, delivery, can_rewrite=can_rewrite)

    def reopen(self) -> SessionMemory:
        """Return the memory once more, after it was closed."""
        self._memory = None
        return self.memory

    def forget_memory(self) -> None:
        """Have the memory opened again by the next one who asks: its `with` has closed it."""
        self._memory = None

    def begin_watch(self, key: str) -> tuple[str, int] | None:
        """Make the mark of a watch; None if none can be made, and then nothing is watched."""
        if self._event.is_command:
            return None  # It may write the file many times: no version can be told for a stranger's.
        import os

        from noclobber.disk.processes import host_of
        from noclobber.hook.session_notes import make_mark

        if self.asked_by and not os.path.exists(f"/proc/{self.asked_by}"):
            return None  # Its host has ended it, and writes nothing. Nor could it be told whom to end with.
        event = self._event
        mark = make_mark(event.host, event.session_id, event.agent_id, key)
        return None if mark is None else (mark, host_of(self.asked_by or os.getppid()))

    def end_watch(self, key: str) -> None:
        """Remove the mark: the process that looks on ends."""
        from noclobber.hook.session_notes import remove_mark

        remove_mark(self._event.host, self._event.session_id, self._event.agent_id, key)

    def last_command(self) -> tuple[float, float] | None:
        """Return when the session's last shell command began and ended."""
        from noclobber.hook.session_notes import last_command

        return last_command(self._event.host, self._event.session_id)

    def end(self) -> None:
        """End every claim of the agent: none of its calls is running any more."""
        from noclobber.guard import claims

        claims.release_all(self.root, self.owner)

    def end_watches(self) -> None:
        """End every watch of the agent. What was saved meanwhile and overwritten is kept and recorded."""
        from noclobber.hook.session_notes import remove_marks

        event = self._event
        if not remove_marks(event.host, event.session_id, event.agent_id):
            return
        from noclobber.guard.outside import Outside

        self.parallel_s = 0.0
        with self.memory as memory:
            paths = memory.pending_paths()
        self.forget_memory()
        Outside(self, self.call(), ()).settle(paths)
