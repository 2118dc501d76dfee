"""
What a connection has seen, and so what its writes are checked against.

Where the transport is a session (stdio: the process is one; HTTP with a session id), every read of the
connection is remembered, and a write that says nothing about what it expects is checked against the last
thing that this connection saw of the file. A client that has never heard of hashes is protected that way.

The protocol of 2026 has no sessions over HTTP. There, reads are remembered only so that an observation id can
be looked up; a write is checked against what it says itself, and against nothing if it says nothing.

`strict` asks every change of an existing file to say what it expects, on any transport. One connection may
serve several subagents, and only they know which of them saw what.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from typing import NamedTuple

from noclobber.errors import ABSENT, DELETED, BadRequestError, NoclobberError, UnreadFileError
from noclobber.guard.catalogue import FORMS, Tool
from noclobber.guard.fence import WriteFence
from noclobber.guard.workspace import Workspace
from noclobber.lock.lock import DeliverableLock
from noclobber.lock.locked_folder import locked_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from noclobber.guard.turn import Turn
    from noclobber.mcp.roots import Located, Roots

HOST = "mcp"
_PLAN_FORM = "plan"
FORMS[_PLAN_FORM] = lambda data, params, path: params["plan"].apply(data, path)

_OTHER = "That observation is of another file, or of another hash."
_SAY_WHAT = (
    "This server runs with --strict: a change of an existing file must say which version it is made from. "
    "Read the file and pass the sha256 that you get as expected_hash."
)


class House:
    """The workspaces that connections share, one a root. Made when first needed."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._workspaces: dict[str, Workspace] = {}
        self._lock = threading.Lock()

    def workspace(self, root: str) -> Workspace:
        """Return the workspace of a root (a real path)."""
        with self._lock:
            found = self._workspaces.get(root)
            if found is None:
                found = self._workspaces[root] = Workspace(root, **self._options)
                # A model's edits are spelled in the replaced server's way.
                found.catalogue.register(Tool("edit_file", "edit", form=_PLAN_FORM))  # type: ignore[arg-type]
            return found

    def close(self) -> None:
        """End every turn and let go of the ledgers."""
        with self._lock:
            for workspace in self._workspaces.values():
                workspace.close()
            self._workspaces.clear()


class Writing(NamedTuple):
    """The turn that a write goes through, and what it is to expect."""

    turn: Turn
    expected: dict[str, str]
    """`expected_hash` or `observation_id`, or nothing, as the turn's tools take them."""


class Memory:
    """One connection: its roots, its turns, its locks."""

    def __init__(
        self,
        house: House,
        roots: Roots,
        *,
        is_session: bool,
        is_process: bool = False,
        strict: bool = False,
        agent_id: str = "mcp-client",
        session_id: str | None = None,
    ) -> None:
        self.house, self.roots, self.strict = house, roots, strict
        self.is_session, self.is_process, self.agent_id = is_session, is_process, agent_id
        self.session_id = session_id or os.urandom(8).hex()
        self.locks: dict[str, str] = {}
        """Folders by the id of the lock that this connection took there, or showed."""
        self.taken: set[str] = set()
        """Ids of the locks that it took itself, and that end with it."""
        self._turns: dict[str, Turn] = {}
        self._lock = threading.Lock()

    # -- reading -----------------------------------------------------------------------------------

    def turn(self, located: Located) -> Turn:
        """Return the turn that remembers what was seen of a path."""
        with self._lock:
            turns = list(self._turns.values())
        for turn in turns:
            # A name that was read in one root and is a link into another by now is still that name.
            if len(turns) > 1 and turn.context.expected_for(located.name, located.name) is not None:
                return turn
        return self._turn_of(self.roots.home_of(located.real))

    def _turn_of(self, root: str) -> Turn:
        with self._lock:
            found = self._turns.get(root)
            if found is None or not found.context.is_open:
                found = self._turns[root] = self._new_turn(root)
            return found

    def _new_turn(self, root: str, held: Mapping[str, str] | None = None) -> Turn:
        turn = self.house.workspace(root).turn(agent_id=self.agent_id, session_id=self.session_id, host=HOST)
        turn.fence = WriteFence(turn.guard.root, held_locks=self.locks if held is None else held)
        return turn

    def forget_lock(self, lock_id: str) -> None:
        """Show a lock no longer: it was given back, or lost."""
        self.locks.pop(lock_id, None)
        self.taken.discard(lock_id)

    # -- writing -----------------------------------------------------------------------------------

    @contextmanager
    def writing(self, tool: str, located: Located, given: Mapping[str, Any]) -> Iterator[Writing]:
        """Let one change happen. `given` may have `expected_hash` and `observation_id`."""
        remembering = self.turn(located)
        turn = self._showing(remembering, self.roots.home_of(located.real), located, given.get("lock_id"))
        try:
            yield Writing(turn, self._expected(tool, remembering, turn, located, given))
        finally:
            if turn is not remembering:
                turn.end()

    @contextmanager
    def writing_many(
        self, files: Sequence[tuple[Located, Mapping[str, Any]]], lock_id: str | None
    ) -> Iterator[tuple[Turn, dict[str, str]]]:
        """Let several files of one root change. Gives the turn, and the hashes that were said, by name."""
        root = self.roots.home_of(files[0][0].real)
        remembering = self._turn_of(root)
        turn = self._showing(remembering, root, files[0][0], lock_id)
        try:
            hashes = {}
            for located, given in files:
                said = self._expected("write_files", remembering, turn, located, given)
                if "observation_id" in said:
                    seen = remembering.context.observation(said["observation_id"])
                    if seen.path != located.real or said.get("expected_hash", seen.sha256) != seen.sha256:
                        raise BadRequestError(located.real, _OTHER)
                    said["expected_hash"] = seen.sha256
                if "expected_hash" in said:
                    hashes[located.name] = said["expected_hash"]
            yield turn, hashes
        finally:
            if turn is not remembering:
                turn.end()

    def _showing(self, remembering: Turn, root: str, located: Located, lock_id: str | None) -> Turn:
        """Return the turn to write with. Who shows a lock's id may write where that lock is."""
        shown = {}
        if lock_id is not None:
            shown = {lock_id: locked_folder(located.real, root) or os.path.dirname(located.real)}
        if not self.is_session:
            return self._new_turn(root, shown)
        self.locks |= shown
        return remembering

    def _expected(
        self, tool: str, remembering: Turn, turn: Turn, located: Located, given: Mapping[str, Any]
    ) -> dict[str, str]:
        expected, observation_id = given.get("expected_hash"), given.get("observation_id")
        if observation_id is not None and turn is not remembering:
            seen = remembering.context.observation(observation_id)
            if seen.path != located.real or expected not in (None, seen.sha256):
                raise BadRequestError(located.real, _OTHER)
            return {"expected_hash": seen.sha256}
        options = {"expected_hash": expected, "observation_id": observation_id}
        said = {key: value for key, value in options.items() if value is not None}
        if said or not self.strict:
            return said
        if turn.guard.digest(located.name) == DELETED:
            return {"expected_hash": ABSENT}
        refusal = UnreadFileError(located.real, _SAY_WHAT)
        workspace = self.house.workspace(self.roots.home_of(located.real))
        if broken := workspace.ledger_trouble():
            raise broken
        workspace.recorder.refusal(turn.tool_call(tool, {}), refusal)
        raise refusal

    def close(self) -> None:
        """End the turns, and the locks that are bound to them: the connection is over."""
        with self._lock:
            turns = list(self._turns.values())
            taken = [(lock_id, self.locks[lock_id]) for lock_id in self.taken & set(self.locks)]
            self._turns.clear()
            self.locks.clear()
        for lock_id, folder in taken if self.is_process else ():
            with suppress(NoclobberError, OSError):  # Released, lost or gone: nothing to end.
                DeliverableLock.attach(folder, lock_id).release()
        for turn in turns:
            turn.end()
