"""
Take back what one agent, session, turn or call wrote, and leave everybody else's changes alone.

Each write is reversed by a merge: from what it left to what it found, applied to what is there now. The
newest goes first. Where somebody has changed the same lines since, or the bytes are not kept any more,
nothing at all is touched, and the obstacles are named (ruling 19).

An undo is a guarded write like any other: a compare-and-swap on what was looked at, on record, with the
events that it takes back. So it can be taken back itself, and a second undo does not take a write back twice.

Files that were created, deleted or moved are taken back in the same commit. A file that comes back is private
to its owner, because its mode is not on record; one that was moved keeps what it has.

Calling sequence: `plan()`, which changes nothing, then `carry_out()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk import hashing
from noclobber.disk.hashing import is_hash
from noclobber.errors import (
    ABSENT,
    DELETED,
    BadRequestError,
    CannotUndoError,
    MissingFileError,
    NoclobberError,
)
from noclobber.guard import engine, requests
from noclobber.guard.blame import blame
from noclobber.guard.past_bytes import find_bytes
from noclobber.ledger.history import LandedWrite, landed_writes
from noclobber.text.edit_script import shortest
from noclobber.text.merge import merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from noclobber.core.values import ToolCall, WriteResult
    from noclobber.guard.turn import Turn
    from noclobber.guard.workspace import Workspace
    from noclobber.text.merge import Conflict

    Share = Callable[[int, int], None]
    """Told how much is done, and of how much."""

AGENT_ID = "noclobber-undo"  # In plain letters, as agents are named in sentences and tables.
MOST_NAMED = 5
PRIVATE = 0o600


class Selection(NamedTuple):
    """Whose writes are meant. What is None is not asked about."""

    agent_id: str | None = None
    session_id: str | None = None
    turn_id: str | None = None
    call_id: str | None = None
    path: str | None = None

    def has(self, write: LandedWrite) -> bool:
        """True if a write is meant. Of a session the beginning is enough: people are shown that."""
        return (
            self.agent_id in (None, write.agent_id)
            and (self.session_id is None or (write.session_id or "").startswith(self.session_id))
            and self.turn_id in (None, write.turn_id)
            and self.call_id in (None, write.call_id)
            and self.path in (None, write.path, write.destination)
        )


class UndoObstacle(NamedTuple):
    """Why a write cannot be taken back without losing something."""

    path: str
    reason: str
    write: LandedWrite


class FileUndo(NamedTuple):
    """What an undo makes of one file."""

    path: str
    before: bytes | None
    """What is there now; None: no file."""
    after: bytes | None
    """What will be there; None: no file."""
    moved_from: str | None = None
    """For a file that was moved: where it is now. It goes back from there."""


class UndoPlan(NamedTuple):
    """What an undo would do. If there is an obstacle, it would do nothing."""

    files: tuple[FileUndo, ...]
    obstacles: tuple[UndoObstacle, ...]
    writes: tuple[LandedWrite, ...]
    """What is taken back, the newest first."""


def active_writes(writes: Iterable[LandedWrite]) -> list[LandedWrite]:
    """Return the writes that have not been taken back, the newest first; an undo may be undone, too."""
    undone: set[str] = set()
    active = []
    for write in reversed(list(writes)):
        if write.entry not in undone:
            active.append(write)
            undone.update(write.undoes)
    return active


def plan(turn: Turn, selection: Selection, share: Share | None = None) -> UndoPlan:
    """
    Work out what is to be done. Reads the files through the turn, and changes nothing.

    `share` is told how much of the work is done, and how much there is.
    """
    share = share or (lambda done, total: None)
    active = active_writes(landed_writes(turn.root))
    chosen = tuple(write for write in active if selection.has(write))
    tree = _Tree(turn)
    obstacles: list[UndoObstacle] = []
    reversed_count = 0
    moved_by_others: dict[str, str] = {}
    for write in active:
        if not selection.has(write):
            if write.destination is not None:
                moved_by_others[write.path] = write.destination
            continue
        # What is at its name now, if anything, is not the file that was written.
        gone_to = moved_by_others.get(write.destination or write.path)
        reason = tree.reverse(write) if gone_to is None else f"Others have moved it to {gone_to} since."
        if reason is not None:
            obstacles.append(UndoObstacle(write.path, reason, write))
        reversed_count += 1
        share(reversed_count, 2 * len(chosen))
    files = tree.changes()
    if not obstacles:
        for number, each in enumerate(files):
            obstacles += _what_others_lose(turn.root, each, files, chosen)
            share(len(files) + number + 1, 2 * len(files))
    return UndoPlan(files, tuple(obstacles), chosen)


def _what_others_lose(
    root: str, each: FileUndo, files: tuple[FileUndo, ...], chosen: tuple[LandedWrite, ...]
) -> list[UndoObstacle]:
    """
    Hold the change of a file against what is known of its lines: only lines of the chosen writes may go.

    A merge cannot see that somebody removed a line and another wrote the same one again.
    """
    if each.before is None:
        return []
    entries = {write.entry for write in chosen}
    moved = {other.moved_from: other.after for other in files if other.moved_from is not None}
    write = next(write for write in chosen if each.path in (write.path, write.destination))
    lines = blame(root, each.path, each.before)
    for at in _removed(each._replace(after=moved.get(each.path, each.after))):
        author = lines[at].author
        # What an undo put back is whose it was before.
        is_theirs = author.write is None or not (author.write.entry in entries or author.write.undoes)
        if author.kind != "agent" or is_theirs:
            return [UndoObstacle(each.path, f"Line {at + 1} would go, and others wrote it.", write)]
    return []


def _removed(each: FileUndo) -> list[int]:
    """Which lines of what is there now an undo takes away."""
    before = (each.before or b"").splitlines(keepends=True)
    if each.after is None:
        return list(range(len(before)))
    edits = shortest(before, each.after.splitlines(keepends=True))
    if edits is None:
        return list(range(len(before)))
    return [edit.old_at for edit in edits if edit.mark == "-"]


def carry_out(turn: Turn, planned: UndoPlan) -> list[WriteResult]:
    """Do it: all files or none, in one commit. `CannotUndoError` if the plan has an obstacle."""
    if planned.obstacles:
        first = planned.obstacles[0]
        more = f" (and {len(planned.obstacles) - 1} more)" if len(planned.obstacles) > 1 else ""
        raise CannotUndoError(first.path, f"{first.reason}{more} Nothing was changed.")
    call = turn.tool_call("undo")._replace(undoes=tuple(write.entry for write in planned.writes))
    files = planned.files
    if not files:
        return []
    if len(files) == 1 and files[0].after is None:
        return [engine.delete(turn, call, requests.delete(files[0].path, _hash(files[0].before)))]
    if len(files) == 1 and files[0].before is None:
        # Its mode is not on record. Nobody must be able to read it who could not before.
        action = requests.write(files[0].path, files[0].after, ABSENT)._replace(mode=PRIVATE)
        return [engine.write(turn, call, action)]
    if any(each.before is None or each.after is None for each in files):
        return _carry_out_mixed(turn, call, files)
    actions = requests.write_many(
        {each.path: each.after for each in files}, {each.path: _hash(each.before) for each in files}
    )
    return list(engine.write_many(turn, call, actions).values())


def _carry_out_mixed(turn: Turn, call: ToolCall, files: tuple[FileUndo, ...]) -> list[WriteResult]:
    actions = [
        requests.delete(each.path, _hash(each.before))
        if each.after is None
        else requests.write(each.path, each.after, _hash(each.before))
        for each in files
    ]
    moved = {each.path: each.moved_from for each in files if each.moved_from is not None}
    try:
        return engine.write_and_delete(turn, call, actions, moved)
    except BadRequestError as error:
        raise CannotUndoError(
            files[0].path,
            "Files come or go here together with others, and this filesystem cannot do that in one step "
            f"({error.message}) Take them back one by one: --file. Nothing was changed.",
        ) from error


def undo(workspace: Workspace, selection: Selection, *, dry_run: bool = False) -> UndoPlan:
    """Plan and, unless it is a `dry_run`, carry out, in a turn of its own."""
    # Not merged with what comes in between: what was planned is what is done.
    with workspace.turn(agent_id=AGENT_ID, on_stale="refuse") as turn:
        planned = plan(turn, selection)
        if not dry_run:
            carry_out(turn, planned)
        return planned


class _Tree:
    """The files as they are, and as they become while writes are reversed one by one."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._first: dict[str, bytes | None] = {}
        self._now: dict[str, bytes | None] = {}
        self._from: dict[str, str] = {}  # Where what will be at a path is now, if a move is taken back.

    def changes(self) -> tuple[FileUndo, ...]:
        """What differs from what is there."""
        return tuple(
            FileUndo(path, self._first[path], after, self._moved_from(path))
            for path, after in self._now.items()
            if after != self._first[path]
        )

    def _moved_from(self, path: str) -> str | None:
        """A move that ends in a new name, from one that is free afterwards."""
        source = self._from.get(path)
        is_move = source is not None and self._first[path] is None and self._now[source] is None
        return source if is_move else None

    def reverse(self, write: LandedWrite) -> str | None:
        """Take one write back; return why that cannot be done."""
        try:
            current = self._content(write.path)
            if write.destination is not None:
                return self._move_back(write, write.destination, current)
        except NoclobberError as error:
            return f"It cannot be read: {error}"
        if is_hash(write.before) and is_hash(write.after):
            return self._take_out(write, current)
        if is_hash(write.after) and write.before == ABSENT:
            return self._uncreate(write, current)
        if is_hash(write.before) and write.after in (ABSENT, DELETED):
            return self._undelete(write, current)
        return "The ledger does not say what this write did."

    def _content(self, path: str) -> bytes | None:
        if path not in self._now:
            try:
                content = self._turn.read_file(path).content
            except MissingFileError:
                content = None
            self._first[path] = self._now[path] = content
        return self._now[path]

    def _take_out(self, write: LandedWrite, current: bytes | None) -> str | None:
        if current is None:
            return "It has been deleted since."
        left, found = self._bytes(write, write.after), self._bytes(write, write.before)
        if left is None or found is None:
            return "What was written or what was there before is not kept any more."
        merged = merge(left, found, current)
        if merged.content is None:
            return (
                f"Others have changed these lines since, or those next to them: {_lines(merged.conflicts)}."
            )
        self._now[write.path] = merged.content
        return None

    def _move_back(self, write: LandedWrite, destination: str, current: bytes | None) -> str | None:
        """Whatever others have changed in it since goes with it."""
        moved = self._content(destination)
        if moved is None:
            return f"It was moved to {destination}, and has been deleted there since."
        if current is not None:
            return f"It was moved to {destination}, and there is another file at its name now."
        self._now[write.path], self._now[destination] = moved, None
        self._from[write.path] = self._from.pop(destination, destination)
        return None

    def _uncreate(self, write: LandedWrite, current: bytes | None) -> str | None:
        if current is not None and _hash(current) != write.after:
            return "It was created by this write, and others have changed it since."
        self._now[write.path] = None
        return None

    def _undelete(self, write: LandedWrite, current: bytes | None) -> str | None:
        if current is not None:
            return "It was deleted by this write, and there is another file at its name now."
        content = self._bytes(write, write.before)
        if content is None:
            return "It was deleted by this write, and its bytes are not kept any more."
        self._now[write.path] = content
        return None

    def _bytes(self, write: LandedWrite, sha256: str) -> bytes | None:
        for known in (*self._first.values(), *self._now.values()):
            if known is not None and _hash(known) == sha256:
                return known
        return find_bytes(self._turn.root, write.path, sha256)[0]


def _hash(content: bytes | None) -> str:
    return ABSENT if content is None else hashing.of_bytes(content)


def _lines(conflicts: tuple[Conflict, ...]) -> str:
    named = [
        f"{start + 1}" if end - start <= 1 else f"{start + 1}-{end}"
        for start, end in (conflict.theirs for conflict in conflicts[:MOST_NAMED])
    ]
    return ", ".join(named) + (" and more" if len(conflicts) > MOST_NAMED else "")
