"""
Workspace: puts the rooms together. What most callers use.

    ws = Workspace("path/to/project")
    with ws.turn(agent_id="builder-1") as turn:
        ...

State lives in `<root>/.noclobber/`: the ledger, and what commits need meanwhile. It is made by the
first write and ignores itself in git; a workspace that is only read leaves nothing behind.
"""

from __future__ import annotations

import os
import weakref

import noclobber.ledger.root  # noqa: F401 - `recording` loads it late, for hooks; a forked child must not.
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.options import DEFAULTS, load_options, options
from noclobber.core.project import find_project, ledger_path, state_folder
from noclobber.disk.optimistic_guard import OptimisticGuard
from noclobber.errors import LedgerError, TurnClosedError
from noclobber.guard import open_turns
from noclobber.guard.catalogue import Catalogue
from noclobber.guard.engine import HookEngine
from noclobber.guard.fence import WriteFence
from noclobber.guard.recording import Recorder
from noclobber.guard.sessions import SessionMemory
from noclobber.guard.snapshot import TurnContext
from noclobber.guard.turn import Turn
from noclobber.ledger import AgentTraceLedger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from noclobber.core.clock import Clock
    from noclobber.core.options import OptionValues
    from noclobber.core.values import ToolCall
    from noclobber.lock.lock import DeliverableLock


class Workspace:
    """
    A folder in which agents and people write.

    docs/options.md explains the options; a file in the root may set them, and with `read_config=False` that
    file is not read.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        clock: Clock = SYSTEM_CLOCK,
        read_config: bool = True,
        **given: Unpack[OptionValues],
    ) -> None:
        self.clock = clock
        self.root = os.path.realpath(root)
        self.options = options(given, load_options(self.root) if read_config else DEFAULTS)
        self._guards: dict[tuple[bool, float], OptimisticGuard] = {}
        self.guard = self._guard(self.options.durable, self.options.wait_s)
        self.state_folder = state_folder(self.root)
        self.ledger = AgentTraceLedger(ledger_path(self.root), clock=clock, durable=self.options.durable)
        self.recorder = Recorder(self.root, self.ledger)
        self.catalogue = Catalogue()
        self.engine = HookEngine(self)
        self._sessions = SessionMemory()
        # Weak: a turn that is dropped without an end must not be kept alive by us.
        self._turns: weakref.WeakValueDictionary[str, Turn] = weakref.WeakValueDictionary()
        self._board: open_turns.Board | None = None
        self._shown: weakref.WeakKeyDictionary[Turn, weakref.finalize[..., Turn]] = (
            weakref.WeakKeyDictionary()
        )

    @classmethod
    def find(
        cls,
        start: str | os.PathLike[str] = ".",
        *,
        host_folder: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **given: Unpack[OptionValues],
    ) -> Workspace:
        """
        Return the workspace of the project that a folder belongs to, as the command line and hooks find it.

        `core.project` has the rule; `host_folder` is used where nothing marks a project.
        """
        return cls(find_project(start, host_folder=host_folder), clock=clock, **given)

    def turn(
        self,
        *,
        agent_id: str = "agent",
        session_id: str | None = None,
        turn_id: str | None = None,
        host: str | None = None,
        intent_id: str | None = None,
        lock: DeliverableLock | None = None,
        **overrides: Unpack[OptionValues],
    ) -> Turn:
        """
        Begin a turn with an empty snapshot. Use it as a context manager, or call `end()`.

        Options given here hold for this turn: `write_scope=["docs"]`, `unread="deny"` and so on. A turn
        that carries a `lock` writes in that deliverable's folder and nowhere else (K-WRITE-1), and only
        for as long as the lock is its own. One without a lock stays out of every folder that is locked.
        """
        chosen = options(overrides, self.options)
        context = TurnContext(
            self.root,
            turn_id=turn_id or os.urandom(8).hex(),
            agent_id=agent_id,
            session_id=session_id,
            rebaseline=chosen.rebaseline,
            retained_file_bytes=chosen.retained_file_bytes,
            retained_turn_bytes=chosen.retained_turn_bytes,
            clock=self.clock,
        )
        context.refuse_resubmitted = chosen.resubmitted == "deny"
        guard = self._guard(chosen.durable, chosen.wait_s)
        scope = chosen.write_scope
        folders = None if scope is None else tuple(self._scope_folder(folder) for folder in scope)
        if lock is not None:
            folders = (
                (lock.folder,) if folders is None else tuple(f for f in folders if is_inside(f, lock.folder))
            )
        if chosen.scope == "session":
            self._sessions.begin(context)
        turn = Turn(
            self.engine,
            context,
            guard,
            chosen,
            folders,
            self._end,
            WriteFence(self.root, lock, clock=self.clock),
            host,
            intent_id,
        )
        self._turns[context.turn_id] = turn
        self._show(turn)
        return turn

    def open_turn(self, call: ToolCall) -> Turn:
        """Return the turn that a call belongs to: by its id, or the agent's only one."""
        if call.turn_id is not None:
            turn = self._turns.get(call.turn_id)
            found = [turn] if turn is not None else []
        else:
            found = [
                turn
                for turn in list(self._turns.values())
                if turn.agent_id == call.agent_id and turn.session_id == call.session_id
            ]
        if len(found) == 1:
            return found[0]
        reason = "has several turns open; say which" if found else "has no such turn open; start one"
        raise TurnClosedError("", f"The agent {call.agent_id!r} {reason}.", turn_id=call.turn_id)

    def end_session(self, session_id: str | None = None) -> None:
        """Forget what a session's agents saw in earlier turns (`scope = "session"`)."""
        self._sessions.forget(session_id)

    def ledger_trouble(self) -> LedgerError | None:
        """Return why events cannot be recorded now, None if they can. Makes the state folder if need be."""
        try:
            is_new = self.recorder.prepare()
        except LedgerError as error:
            return error
        if is_new:
            self._show_all()
        return None

    def close(self) -> None:
        """End every open turn and let go of the ledger."""
        for turn in list(self._turns.values()):
            turn.end()
        self.ledger.close()
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _guard(self, durable: bool, wait_s: float) -> OptimisticGuard:
        guard = self._guards.get((durable, wait_s))
        if guard is None:
            guard = OptimisticGuard(self.root, durable=durable, wait_s=wait_s, clock=self.clock)
            self._guards[durable, wait_s] = guard
        return guard

    def _scope_folder(self, folder: str) -> str:
        lexical = self.guard.lexical(folder)
        return self.root if lexical == self.root else self.guard.locate(lexical)

    def _show(self, turn: Turn) -> None:
        if self._board is None:
            self._board = open_turns.Board(self.state_folder)
            weakref.finalize(self, self._board.close)
        slot = self._board.show(turn.context, turn.host, turn.intent_id, self.clock.now_s())
        if slot >= 0:
            # Hidden also if the turn is dropped without an end.
            self._shown[turn] = weakref.finalize(turn, self._board.hide, slot, os.getpid())

    def _show_all(self) -> None:
        """Show the turns that were open before there was a state folder to show them in."""
        for turn in list(self._turns.values()):
            if turn not in self._shown:
                self._show(turn)
        if self._board is not None:
            self._board.renew()  # Or there was a folder, and somebody deleted it.

    def _end(self, turn: Turn) -> None:
        self._turns.pop(turn.turn_id, None)
        if (hide := self._shown.pop(turn, None)) is not None:
            hide()
        if turn.options.scope == "session":
            self._sessions.finish(turn.context)
        turn.kept = turn.guard.sweep()
        if turn.kept:
            self.recorder.kept(turn.tool_call("end_turn", {}), turn.kept)


def is_inside(folder: str, other: str) -> bool:
    """True if a folder is another one, or somewhere in it."""
    return folder == other or folder.startswith(other.rstrip("/") + "/")
