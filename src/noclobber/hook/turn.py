"""
One event of a coding agent, as a turn that the judge understands.

A hook is a process per event. What the agent saw comes from its session's memory, the project and its
options from the session's first event, and the ledger is loaded only if something is recorded.
"""

from __future__ import annotations

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.project import ledger_path
from noclobber.core.values import ToolCall
from noclobber.errors import LedgerError
from noclobber.guard import claims
from noclobber.guard.fence import WriteFence
from noclobber.guard.judge import Outside
from noclobber.guard.recording import Recorder
from noclobber.hook.session_memory import SessionMemory, settle_project
from noclobber.hook.settings import options_of, project_of
from noclobber.ledger.open_file import LightLedger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.core.options import Options
    from noclobber.hosts.event import Event


class HookTurn:
    """What the judge has to know of the agent that an event is about."""

    confined_to = None  # A host's tools go where they like; what they write there is checked all the same.
    outside_level = "hook"

    def __init__(self, event: Event, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self.root = settle_project(event.host, event.session_id, lambda: project_of(event.cwd))
        self.folder = event.cwd or self.root
        self.owner = f"{event.host}/{event.session_id}/{event.agent_id}"
        self.fence = WriteFence(self.root, owner=self.owner, clock=clock)
        self.recorder = Recorder(self.root, LightLedger(ledger_path(self.root)))
        self._event = event
        self._options: Options | None = None
        self._memory: SessionMemory | None = None

    @property
    def options(self) -> Options:
        """The project's rules; `ConfigError` if they cannot be read. A refusal is recorded without them."""
        if self._options is None:
            self._options = options_of(self.root)
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
            )
        return self._memory

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
        """Return what stands around the call that the event is about."""
        event = self._event
        moment = event.result.happened_at
        delivery = f"{event.kind}:{event.call_id or ''}:{moment}" if event.call_id or moment else ""
        return Outside(self, self.call(), event.actions, delivery)

    def end(self) -> None:
        """End every claim of the agent: no call of its is under way."""
        claims.release_all(self.root, self.owner)
