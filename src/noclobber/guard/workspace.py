"""
Workspace: a folder in which agents and people write. What most callers use.

    ws = Workspace("path/to/project")
    with ws.turn(agent_id="builder-1") as turn:
        ...

State is kept in `<root>/.noclobber/`: the ledger, and what commits need meanwhile. It is made by the first
write and ignores itself in git; a workspace that is only read leaves nothing behind.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

import noclobber.ledger.root  # noqa: F401 - `recording` loads it late, for hooks; a forked child must not.
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.options import DEFAULTS, load_options, options
from noclobber.core.project import find_project
from noclobber.disk import signals
from noclobber.disk.version_keeper import VersionKeeper
from noclobber.errors import BadRequestError, TurnClosedError
from noclobber.guard.catalogue import Catalogue
from noclobber.guard.hook_engine import HookEngine
from noclobber.guard.replaced_paths import origin_in
from noclobber.guard.snapshot import TurnContext
from noclobber.guard.state import WorkspaceState
from noclobber.guard.turn import Turn
from noclobber.guard.who_commits import guard_class
from noclobber.ledger.chosen import end_sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Unpack

    from noclobber.core.clock import Clock
    from noclobber.core.options import Options, OptionValues
    from noclobber.core.values import Reach, ToolCall
    from noclobber.disk.file_guard import FileGuard
    from noclobber.errors import LedgerError
    from noclobber.guard.git.commit import CommitMade
    from noclobber.guard.notices import ChangeNotice
    from noclobber.guard.recording import Recorder
    from noclobber.guard.undo import UndoPlan
    from noclobber.ledger.observer import Observer
    from noclobber.ledger.protocol import Ledger
    from noclobber.lock.lock import DeliverableLock

# With the last of them the sessions on a coordinator's server are closed.
_open_workspaces: weakref.WeakSet[Workspace] = weakref.WeakSet()


class Workspace:
    """
    A folder in which agents and people write.

    docs/options.md explains the options; a file in the root may set them, and with `read_config=False` that
    file is not read. An `observer` is told every event that this workspace records.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        clock: Clock = SYSTEM_CLOCK,
        read_config: bool = True,
        observer: Observer | None = None,
        **given: Unpack[OptionValues],
    ) -> None:
        self.clock = clock
        self.root = os.path.realpath(root)
        self.on_changes: Callable[[Turn, list[ChangeNotice]], object] | None = None
        """If set: called with a turn and what has changed, before each guarded call of turns begun since."""
        self.options = options(given, load_options(self.root) if read_config else DEFAULTS)
        self._guards: dict[tuple[bool, float, str, str], FileGuard] = {}
        self._keeper = (
            VersionKeeper(self.root, self.options, clock, origin_in(self.root))
            if self.options.versions == "on"
            else None
        )
        self.guard = self._guard(self.options)
        self.catalogue = Catalogue()
        self.engine = HookEngine(self)
        self._state = WorkspaceState(self.root, clock=clock, durable=self.options.durable, observer=observer)
        self._is_closed = False
        _open_workspaces.add(self)
        weakref.finalize(self, self._state.turns.close)

    @classmethod
    def find(
        cls,
        start: str | os.PathLike[str] = ".",
        *,
        host_folder: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer | None = None,
        **given: Unpack[OptionValues],
    ) -> Workspace:
        """
        Return the workspace of the project that a folder belongs to, as the command line and hooks find it.

        `core.project` has the rule; `host_folder` is used where nothing marks a project.
        """
        return cls(find_project(start, host_folder=host_folder), clock=clock, observer=observer, **given)

    @property
    def ledger(self) -> Ledger:
        """The record of this workspace."""
        return self._state.ledger

    @property
    def recorder(self) -> Recorder:
        """What puts events on record."""
        return self._state.recorder

    @property
    def reach(self) -> Reach:
        """
        Whose guarded writes exclude each other: `machine`, `volume` (every machine that has it mounted), or
        `mount`: then those on other mounts and machines may lose updates, and make others lose them.
        """
        return self.guard.reach()

    @property
    def state_folder(self) -> str:
        """Where noclobber keeps its own files."""
        return self._state.folder

    @signals.whole
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
        if self._is_closed:
            raise TurnClosedError("", "The workspace is closed. Make a new one.", root=self.root)
        chosen = options(overrides, self.options)
        if any(name.startswith("versions") for name in overrides):
            raise BadRequestError("", "Versions are kept for a whole workspace. Give this option to it.")
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
        scope = chosen.write_scope
        folders = None if scope is None else tuple(self._scope_folder(folder) for folder in scope)
        if lock is not None:
            folders = (
                (lock.folder,) if folders is None else tuple(f for f in folders if is_inside(f, lock.folder))
            )
        turn = Turn(
            self._state,
            self.catalogue,
            context,
            self._guard(chosen),
            chosen,
            folders,
            lock,
            host,
            intent_id,
        )
        if (tell := self.on_changes) is not None:
            turn.on_changes = lambda changes: tell(turn, changes)
        return turn

    def open_turn(self, call: ToolCall) -> Turn:
        """Return the turn that a call belongs to: by its id, or the agent's only one."""
        return self._state.turns.find(call)

    def end_session(self, session_id: str | None = None, *, agent_id: str | None = None) -> None:
        """Forget what a session's agents, or one of them, saw in earlier turns (`scope = "session"`)."""
        self._state.sessions.forget(session_id, agent_id)

    def remembers(self, session_id: str | None, agent_id: str) -> bool:
        """True if this process still knows what an agent saw in earlier turns of a session."""
        return self._state.sessions.knows(session_id, agent_id)

    def undo(
        self,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        turn_id: str | None = None,
        call_id: str | None = None,
        path: str | os.PathLike[str] | None = None,
        but: Iterable[str | os.PathLike[str]] = (),
        dry_run: bool = False,
    ) -> UndoPlan:
        """
        Take back what one agent, session, turn or call wrote, and leave everybody else's changes alone.

        All of it or nothing: `CannotUndoError` names what is in the way; `but` leaves such files as they are.
        With `dry_run` nothing is changed, and the plan says what would be.
        """
        from noclobber.guard import undo  # Here: few programs need it.

        chosen = undo.Selection(agent_id, session_id, turn_id, call_id, None)
        if not any(chosen):
            raise BadRequestError("", "Say whose writes: agent_id, session_id, turn_id or call_id.")
        if path is not None:
            chosen = chosen._replace(path=self.guard.locate(path))
        chosen = chosen._replace(but=frozenset(map(self.guard.locate, but)))
        return undo.undo(self, chosen, dry_run=dry_run)

    def commit_mine(
        self,
        message: str,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        paths: Iterable[str | os.PathLike[str]] | None = None,
        dry_run: bool = False,
        verify: bool = True,
    ) -> CommitMade:
        """
        Make a git commit of exactly what one agent or session wrote, and nothing of anybody else.

        `CannotCommitError` names what is in the way, and nothing is changed then. `commit` of the answer is
        None if there is nothing to commit, and with `dry_run`; its plan says what would be committed.
        """
        from noclobber.guard.git.commit import commit_mine  # Here: few programs need it.
        from noclobber.guard.git.mine import Mine

        mine = Mine((agent_id,) if agent_id else (), (session_id,) if session_id else ())
        if not any(mine):
            raise BadRequestError("", "Say whose changes: agent_id or session_id.")
        only = None if paths is None else [self.guard.locate(path) for path in paths]
        return commit_mine(self.root, mine, message, paths=only, dry_run=dry_run, verify=verify)

    def ledger_trouble(self) -> LedgerError | None:
        """Return why events cannot be recorded now, None if they can. Makes the state folder if need be."""
        return self._state.ledger_trouble()

    @property
    def is_closed(self) -> bool:
        """True after `close()`."""
        return self._is_closed

    @signals.whole
    def close(self) -> None:
        """End every open turn, and close every file that is open here. A closed workspace opens no turn."""
        self._is_closed = True
        for turn in self._state.turns:
            turn.end()
        self._state.close()
        while self._guards:
            self._guards.popitem()[1].close()
        if self._keeper is not None:
            self._keeper.close()
        _open_workspaces.discard(self)
        if not _open_workspaces:
            end_sessions()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Workspace {self.root!r}{' closed' if self._is_closed else ''}>"

    def _guard(self, options: Options) -> FileGuard:
        key = (options.durable, options.wait_s, options.hard_links, options.busy)
        guard = self._guards.get(key)
        if guard is None:
            guard = self._guards[key] = guard_class(self.root)(
                self.root,
                durable=options.durable,
                wait_s=options.wait_s,
                hard_links=options.hard_links == "write",
                busy=options.busy,
                keeper=self._keeper,
                clock=self.clock,
            )
        return guard

    def _scope_folder(self, folder: str) -> str:
        lexical = self.guard.lexical(folder)
        return self.root if lexical == self.root else self.guard.locate(lexical)


def is_inside(folder: str, other: str) -> bool:
    """True if a folder is another one, or somewhere in it."""
    return folder == other or folder.startswith(other.rstrip("/") + "/")
