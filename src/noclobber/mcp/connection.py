"""
One client's connection: where it may go, what it has seen, which locks it holds.

Where the transport is a session (stdio: the process is one; HTTP with a session id), every read of the
connection is remembered, and a write that does not say what it expects is checked against what this
connection last saw of the file. So a client that knows nothing of hashes is protected, too.

The protocol of 2026 has no sessions over HTTP. There, reads are remembered only so that an observation id can
be looked up; a write is checked against what it says itself, and against nothing if it says nothing.

With `strict` every change of an existing file has to say what it expects, on any transport (the option
`explicit = "require"`). One connection may serve several subagents, and only they know which of them read
what.

Nothing is judged or recorded here: the turn is given what the caller said, and the engine does the rest.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core import options_file
from noclobber.errors import BadRequestError, NoclobberError
from noclobber.guard.fence import WriteFence
from noclobber.guard.workspace import Workspace
from noclobber.lock.lock import DeliverableLock
from noclobber.lock.locked_folder import locked_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Unpack

    from noclobber.core.options import OptionValues
    from noclobber.guard.turn import Turn
    from noclobber.mcp.roots import ClientPath, Roots

HOST = "mcp"

EXPECTATIONS = ("expected_hash", "observation_id")
"""The parameters by which a caller says what it expects."""
_OTHER = "The observation_id is of another file, or of another version than expected_hash."


class Workspaces:
    """The workspaces that all connections share, one for each root. Created when first needed."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._by_root: dict[str, Workspace] = {}
        self._lock = threading.Lock()

    def at(self, root: str) -> Workspace:
        """Return the workspace of a root (a real path)."""
        with self._lock:
            found = self._by_root.get(root)
            if found is None:
                found = self._by_root[root] = Workspace(root, **self._defaults(root), **self._options)
            return found

    @staticmethod
    def _defaults(root: str) -> OptionValues:
        """
        Return the options that differ from the library's unless the root's options file sets them.

        A client is confined to its roots, and another name of a hard-linked file may be outside of them
        (finding S20).
        """
        return {} if "hard_links" in options_file.load(root).given else {"hard_links": "refuse"}

    def close(self) -> None:
        """End every turn and close the ledgers."""
        with self._lock:
            for workspace in self._by_root.values():
                workspace.close()
            self._by_root.clear()


class PreparedWrite(NamedTuple):
    """The turn that makes a change, and what the file is expected to be."""

    turn: Turn
    expected: dict[str, str]
    """`expected_hash` or `observation_id`, or nothing, as the turn's tools take them."""


class ClientConnection:
    """One client: its roots, its turns, its locks."""

    def __init__(
        self,
        workspaces: Workspaces,
        roots: Roots,
        *,
        is_session: bool,
        is_process: bool = False,
        strict: bool = False,
        agent_id: str = "mcp-client",
        session_id: str | None = None,
    ) -> None:
        self.workspaces, self.roots, self.strict = workspaces, roots, strict
        self.is_session, self.is_process, self.agent_id = is_session, is_process, agent_id
        self.session_id = session_id or os.urandom(8).hex()
        self._folders_by_lock: dict[str, str] = {}
        """Folders by the id of the lock: acquired here, or passed with a call that is under way."""
        self._passed: Counter[str] = Counter()
        """By lock id, how many calls that pass it are under way."""
        self._acquired: set[str] = set()
        """Ids of the locks that it acquired itself, and that end with it."""
        self._turns: dict[str, Turn] = {}
        self._lock = threading.Lock()

    # -- what was seen -----------------------------------------------------------------------------

    def turn(self, path: ClientPath) -> Turn:
        """Return the turn that remembers what was seen of a path."""
        with self._lock:
            turns = list(self._turns.values())
        for turn in turns:
            # A name that was read in one root and is a link into another by now is still that name.
            if len(turns) > 1 and turn.context.expected_for(path.name, path.name) is not None:
                return turn
        return self._turn_of(self.roots.root_of(path.real))

    def baseline(self, path: ClientPath) -> str | None:
        """Return the hash that this connection last saw of a file, or None."""
        return self.turn(path).context.expected_for(path.name, path.real)

    def _turn_of(self, root: str) -> Turn:
        with self._lock:
            found = self._turns.get(root)
            if found is None or not found.context.is_open:
                found = self._turns[root] = self._new_turn(root)
            return found

    def _new_turn(
        self, root: str, held: Mapping[str, str] | None = None, **more: Unpack[OptionValues]
    ) -> Turn:
        workspace = self.workspaces.at(root)
        # The connection is what remembers. A longer memory would mix what different clients saw.
        # A session counts a hash only if it saw that version (finding S10). Without sessions the hash is all
        # that there is: nobody can tell who read what.
        options: OptionValues = {"scope": "turn", "explicit_hash": "seen" if self.is_session else "any"}
        if self.strict:
            options["explicit"] = "require"
        options |= more
        turn = workspace.turn(agent_id=self.agent_id, session_id=self.session_id, host=HOST, **options)
        held = self._folders_by_lock if held is None else held
        turn.fence = WriteFence(turn.root, owner=turn.owner, held_locks=held, clock=turn.clock)
        return turn

    # -- locks -------------------------------------------------------------------------------------

    def add_lock(self, lock_id: str, folder: str) -> None:
        """Remember a lock that this connection acquired."""
        with self._lock:
            self._folders_by_lock[lock_id] = folder
            self._acquired.add(lock_id)

    def acquired_lock_ids(self) -> tuple[str, ...]:
        """Return the ids of the locks that this connection acquired and still has."""
        with self._lock:
            return tuple(self._acquired)

    def forget_lock(self, lock_id: str) -> None:
        """Stop using a lock: it was released, or lost."""
        with self._lock:
            self._folders_by_lock.pop(lock_id, None)
            self._acquired.discard(lock_id)

    def folder_moved(self, source: str, destination: str) -> None:
        """Find this connection's own locks again that were in a folder which it moved."""
        with self._lock:
            for lock_id, folder in list(self._folders_by_lock.items()):
                if f"{folder}/".startswith(f"{source}/"):
                    self._folders_by_lock[lock_id] = destination + folder[len(source) :]

    @contextmanager
    def _carrying(self, lock_id: str, folder: str) -> Iterator[None]:
        """
        Let writes in a folder use a lock for as long as one call lasts that passes its id.

        Not longer: a wrong id would make every later write of the connection fail with it.
        """
        with self._lock:
            self._passed[lock_id] += 1
            self._folders_by_lock.setdefault(lock_id, folder)
        try:
            yield
        finally:
            with self._lock:
                self._passed[lock_id] -= 1
                if not self._passed[lock_id]:
                    del self._passed[lock_id]
                    if lock_id not in self._acquired:
                        self._folders_by_lock.pop(lock_id, None)

    # -- writing -----------------------------------------------------------------------------------

    def writing(self, path: ClientPath, given: Mapping[str, Any]) -> AbstractContextManager[PreparedWrite]:
        """Prepare one change. `given` may have `expected_hash`, `observation_id` and `lock_id`."""
        if self.is_session and given.get("lock_id") is None:  # Nearly always: then there is nothing to end.
            turn = self.turn(path)
            return nullcontext(PreparedWrite(turn, self._expected(turn, turn, path, given)))
        return self._writing_apart(path, given)

    @contextmanager
    def _writing_apart(self, path: ClientPath, given: Mapping[str, Any]) -> Iterator[PreparedWrite]:
        remembering, root = self.turn(path), self.roots.root_of(path.real)
        with self._writing_turn(remembering, root, path, given.get("lock_id")) as turn:
            yield PreparedWrite(turn, self._expected(remembering, turn, path, given))

    @contextmanager
    def writing_many(
        self, files: Sequence[tuple[ClientPath, Mapping[str, Any]]], lock_id: str | None
    ) -> Iterator[tuple[Turn, dict[str, str]]]:
        """Prepare a change of several files of one root. Yields the turn and the expected hashes by name."""
        root = self.roots.root_of(files[0][0].real)
        remembering = self._turn_of(root)
        with self._writing_turn(remembering, root, files[0][0], lock_id) as turn:
            hashes = {}
            for path, given in files:
                expected = self._expected(remembering, turn, path, given)
                if "observation_id" in expected:
                    expected = self._observed(remembering, path, expected)
                if "expected_hash" in expected:
                    hashes[path.name] = expected["expected_hash"]
            yield turn, hashes

    @contextmanager
    def _writing_turn(
        self, remembering: Turn, root: str, path: ClientPath, lock_id: str | None
    ) -> Iterator[Turn]:
        """Yield the turn to write with. A call that passes a lock's id may write where that lock is."""
        folder = "" if lock_id is None else locked_folder(path.real, root) or os.path.dirname(path.real)
        if self.is_session:
            with nullcontext() if lock_id is None else self._carrying(lock_id, folder):
                yield remembering
            return
        turn = self._new_turn(root, {} if lock_id is None else {lock_id: folder})
        try:
            yield turn
        finally:
            turn.end()

    @contextmanager
    def second_step(self, turn: Turn) -> Iterator[Turn]:
        """
        Yield a turn for a step that we take ourselves after `turn` was let through: it may name any version.

        A client that moves a file between roots without having read it names no version, and the step must
        still be held to the very bytes that were copied.
        """
        step = self._new_turn(turn.root, explicit_hash="any")
        step.fence = turn.fence
        try:
            yield step
        finally:
            step.end()

    def _expected(
        self, remembering: Turn, turn: Turn, path: ClientPath, given: Mapping[str, Any]
    ) -> dict[str, str]:
        """Return what the caller said that it expects, in words that the writing turn understands."""
        expected = {name: given[name] for name in EXPECTATIONS if given.get(name) is not None}
        if "observation_id" in expected and turn is not remembering:
            return self._observed(remembering, path, expected)
        return expected

    @staticmethod
    def _observed(remembering: Turn, path: ClientPath, expected: Mapping[str, str]) -> dict[str, str]:
        """Look an observation id up in the turn that made it; another turn does not know it."""
        seen = remembering.context.observation(expected["observation_id"])
        if seen.path != path.real or expected.get("expected_hash", seen.sha256) != seen.sha256:
            raise BadRequestError(path.real, _OTHER)
        return {"expected_hash": seen.sha256}

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """End the turns. On stdio the locks end, too: nobody is left to release them."""
        with self._lock:
            turns = list(self._turns.values())
            folders = {lock_id: self._folders_by_lock.get(lock_id) for lock_id in self._acquired}
            self._turns.clear()
            self._folders_by_lock.clear()
        for lock_id, folder in folders.items() if self.is_process else ():
            if folder is not None:
                with suppress(NoclobberError, OSError):  # Released, lost or gone: nothing to end.
                    DeliverableLock.attach(folder, lock_id).release()
        for turn in turns:
            turn.end()
