"""
Take back what one agent, session, turn or call wrote, and leave everybody else's changes alone.

Each write is reversed by a merge: from what it left to what it found, applied to what is there now. The
newest goes first. Where somebody has changed the same lines since, or the bytes are not kept any more,
nothing at all is touched, and the obstacles are named (ruling 19).

An undo is a guarded write like any other: a compare-and-swap on what was looked at, on record, with the
events that it takes back. So it can be taken back itself, and a second undo does not take a write back twice.

Files that were created, deleted or moved are taken back in the same commit. A file that comes back has the
mode that is on record, and is private to its owner if there is none; one that was moved keeps what it has.
Folders, links and modes are taken back around that commit (`undo_beside`).

What is git's is not taken back file by file (`git.refs_back`): branches and tags are moved back by git, after
the files, and everything else in a repository stays, which the plan says.

Calling sequence: `plan()`, which changes nothing, then `carry_out()`.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.values import WriteResult
from noclobber.disk import hashing
from noclobber.disk.git_folders import GitFolders
from noclobber.disk.hashing import is_hash
from noclobber.disk.paths import check_inside
from noclobber.disk.version_keeper import link_text
from noclobber.errors import (
    ABSENT,
    DELETED,
    BadRequestError,
    CannotUndoError,
    MissingFileError,
    NoclobberError,
    NotAFileError,
)
from noclobber.guard import engine, requests
from noclobber.guard.blame import blame
from noclobber.guard.git.refs_back import LeftAlone, RefUndo, move_back, plan_refs, ref_hashes
from noclobber.guard.past_bytes import find_bytes
from noclobber.guard.undo_beside import (
    LinkText,
    folder_result,
    make_folders,
    mode_of,
    remove_folders,
    set_links_and_modes,
)
from noclobber.ledger.history import History, LandedWrite, all_landed
from noclobber.text.edit_script import shortest
from noclobber.text.merge import merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from noclobber.core.values import ToolCall
    from noclobber.guard.turn import Turn
    from noclobber.guard.workspace import Workspace
    from noclobber.text.merge import Conflict

    Share = Callable[[int, int], None]
    """Told how much is done, and of how much."""

AGENT_ID = "noclobber-undo"  # In plain letters, as agents are named in sentences and tables.
MOST_NAMED = 5
PRIVATE = 0o600
_EMPTY = hashing.of_bytes(b"")


class Selection(NamedTuple):
    """Whose writes are meant. What is None is not asked about."""

    agent_id: str | None = None
    session_id: str | None = None
    turn_id: str | None = None
    call_id: str | None = None
    path: str | None = None
    but: frozenset[str] = frozenset()
    """Files that stay as they are."""

    def has(self, write: LandedWrite) -> bool:
        """True if a write is meant. Of a session the beginning is enough: people are shown that."""
        return (
            self.agent_id in (None, write.agent_id)
            and (self.session_id is None or (write.session_id or "").startswith(self.session_id))
            and self.turn_id in (None, write.turn_id)
            and self.call_id in (None, write.call_id)
            and self.path in (None, write.path, write.destination)
            and self.but.isdisjoint((write.path, write.destination))
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
    mode: int | None = None
    """The permissions that it gets; None: those that it has."""
    is_folder: bool = False
    """A folder, of which only the mode changes."""


class UndoPlan(NamedTuple):
    """What an undo would do. If there is an obstacle, it would do nothing."""

    files: tuple[FileUndo, ...]
    obstacles: tuple[UndoObstacle, ...]
    writes: tuple[LandedWrite, ...]
    """What is taken back, the newest first."""
    refs: tuple[RefUndo, ...] = ()
    """Branches and tags that git moves back."""
    left: tuple[LeftAlone, ...] = ()
    """What stays as it is: because it is git's, or because others have changed it in another way."""
    folders: tuple[tuple[str, int | None], ...] = ()
    """Folders that come back, with their modes; with None, those that go if they are empty."""


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
    landed = list(all_landed(turn.root))
    active = active_writes(landed)
    git = GitFolders(turn.root, [write.path for write in active])
    refs, left = plan_refs(write for write in active if selection.has(write) and git.has(write.path))
    active = [write for write in active if not git.has(write.path)]
    chosen = tuple(write for write in active if selection.has(write))
    tree = _Tree(turn, _moves(chosen))
    obstacles: list[UndoObstacle] = []
    stays: dict[str, LeftAlone] = {}
    reversed_count = 0
    moved_by_others: dict[str, str] = {}
    for write in active:
        if not selection.has(write):
            if write.destination is not None:
                moved_by_others[write.path] = write.destination
            tree.others[write.path] = tree.others.get(write.path) or _is_made(write)
            tree.removed_by_others |= {write.path} if write.after in (ABSENT, DELETED) else set()
            continue
        # What is at its name now, if anything, is not the file that was written.
        gone_to = moved_by_others.get(write.destination or write.path)
        reason = tree.reverse(write) if gone_to is None else f"Others have moved it to {gone_to} since."
        if isinstance(reason, LeftAlone):
            stays[write.entry] = reason
        elif reason is not None:
            obstacles.append(UndoObstacle(write.path, reason, write))
        reversed_count += 1
        share(reversed_count, 2 * len(chosen))
    files = tree.changes()
    if not obstacles:
        history = History(write for write in landed if not git.has(write.path))
        for number, each in enumerate(files):
            if each.path not in tree.exact or each.path in tree.others:
                obstacles += _what_others_lose(turn.root, each, files, chosen, history)
            share(len(files) + number + 1, 2 * len(files))
    of_refs = tuple(write for ref in refs for write in ref.writes)
    done = tuple(write for write in chosen if write.entry not in stays)
    left = (*dict.fromkeys(stays.values()), *left)
    return UndoPlan(files, tuple(obstacles), done + of_refs, refs, left, tuple(tree.folders.items()))


def _moves(writes: Iterable[LandedWrite]) -> dict[str, LandedWrite]:
    """
    Find what `mv` did in a command, which has no event for it: creations, with the deletion of the source.

    One file of a call went and one came, with the same bytes, and no other of that call has them. That two
    files are empty says nothing.
    """
    came: dict[tuple[str | None, ...], list[LandedWrite]] = {}
    went: dict[tuple[str | None, ...], list[LandedWrite]] = {}
    for write in writes:
        who = (write.agent_id, write.session_id, write.turn_id, write.call_id)
        if write.call_id is None or _EMPTY in (write.before, write.after):
            continue
        if _is_made(write) and is_hash(write.after):
            came.setdefault((*who, write.after), []).append(write)
        elif write.after in (ABSENT, DELETED) and is_hash(write.before):
            went.setdefault((*who, write.before), []).append(write)
    return {
        found[0].entry: went[key][0]
        for key, found in came.items()
        if len(found) == 1 and len(went.get(key, ())) == 1
    }


def _is_made(write: LandedWrite) -> bool:
    """True if a write made a file where there was none."""
    return write.before in (ABSENT, DELETED)


def _what_others_lose(
    root: str,
    each: FileUndo,
    files: tuple[FileUndo, ...],
    chosen: tuple[LandedWrite, ...],
    history: History,
) -> list[UndoObstacle]:
    """
    Hold the change of a file against what is known of its lines: only lines of the chosen writes may go.

    A merge cannot see that somebody removed a line and another wrote the same one again.
    """
    if each.before is None or each.before == each.after or isinstance(each.before, LinkText):
        return []
    entries = {write.entry for write in chosen}
    moved = {other.moved_from: other.after for other in files if other.moved_from is not None}
    write = next(write for write in chosen if each.path in (write.path, write.destination))
    lines = blame(root, each.path, each.before, history)
    for at in _removed(each._replace(after=moved.get(each.path, each.after))):
        author = lines[at].author
        # What an undo put back is whose it was before.
        is_theirs = author.write is None or not (author.write.entry in entries or author.write.undoes)
        if author.kind == "unknown":
            reason = "Too much of it differs, or is not kept any more, to tell whose lines would go."
            return [UndoObstacle(each.path, reason, write)]
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
    """
    Do it: all files or none, in one commit, then the refs. `CannotUndoError` if the plan has an obstacle.

    A ref that somebody has moved since the plan was made stays, and has no result.
    """
    if planned.obstacles:
        first = planned.obstacles[0]
        more = f" (and {len(planned.obstacles) - 1} more)" if len(planned.obstacles) > 1 else ""
        raise CannotUndoError(first.path, f"{first.reason}{more} Nothing was changed.")
    of_refs = {write.entry for ref in planned.refs for write in ref.writes}
    entries = (write.entry for write in planned.writes)
    call = turn.tool_call("undo")._replace(
        undoes=tuple(entry for entry in entries if entry not in of_refs),
        modes={each.path: mode_of(each.path) for each in planned.files if each.after is None},
    )
    made = make_folders(turn.root, _folders_needed(planned), dict(_known_modes(planned)))
    try:
        plain = [each for each in planned.files if not _is_beside(each) and each.before != each.after]
        results = _land(turn, call, tuple(plain))
    except BaseException:
        remove_folders(turn.root, made)
        raise
    # Those at whose names there were files until now.
    made += make_folders(
        turn.root, [folder for folder, _ in _known_modes(planned)], dict(_known_modes(planned))
    )
    beside = [folder_result(folder, 0, mode_of(folder)) for folder in made]
    try:
        beside += set_links_and_modes(turn, planned.files)
    except NoclobberError as error:
        raise CannotUndoError(
            planned.files[0].path, f"What is in files was taken back; links and modes were not: {error}"
        ) from error
    gone = remove_folders(turn.root, [folder for folder, mode in planned.folders if mode is None])
    beside += [folder_result(folder, mode, 0) for folder, mode in gone]
    for done, modes in beside:
        own = call._replace(modes=None)
        turn.recorder.landed(own, done.path, done.previous_sha256, done.sha256, done.level, more=modes)
        results.append(done)
    return [*results, *_move_refs(turn, call, planned.refs)]


def _is_beside(each: FileUndo) -> bool:
    return isinstance(each.before, LinkText) or isinstance(each.after, LinkText) or each.is_folder


def _folders_needed(planned: UndoPlan) -> list[str]:
    needed = [os.path.dirname(each.path) for each in planned.files if each.after is not None]
    return needed + [folder for folder, _ in _known_modes(planned)]


def _known_modes(planned: UndoPlan) -> Iterator[tuple[str, int]]:
    for folder, mode in planned.folders:
        if mode is not None:
            yield folder, mode


def _move_refs(turn: Turn, call: ToolCall, refs: tuple[RefUndo, ...]) -> list[WriteResult]:
    done = []
    for ref in refs:
        if not move_back(ref):
            continue
        before, after = ref_hashes(ref)
        done.append(WriteResult(ref.path, after, "git", before))
        own = call._replace(undoes=tuple(write.entry for write in ref.writes))
        turn.recorder.landed(own, ref.path, before, after, "git")
    return done


def _land(turn: Turn, call: ToolCall, files: tuple[FileUndo, ...]) -> list[WriteResult]:
    if not files:
        return []
    actions = [
        requests.delete(each.path, _hash(each.before))
        if each.after is None
        # Without a mode on record: nobody must read it who could not before.
        else requests.write(each.path, each.after, _hash(each.before))._replace(
            mode=None if each.before is not None else PRIVATE if each.mode is None else each.mode
        )
        for each in files
    ]
    moved = {each.path: each.moved_from for each in files if each.moved_from is not None}
    try:
        return engine.change(turn, call, actions, moved=moved)
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

    def __init__(self, turn: Turn, moves: dict[str, LandedWrite]) -> None:
        self._turn, self._moves = turn, moves
        self._reversed: set[str] = set()
        self._first: dict[str, bytes | None] = {}
        self._now: dict[str, bytes | None] = {}
        self._from: dict[str, str] = {}  # Where what will be at a path is now, if a move is taken back.
        self._modes: dict[str, int] = {}
        self._folder_modes: dict[str, int] = {}
        self.others: dict[str, bool] = {}
        """Files that others have written since; True: they made it."""
        self.removed_by_others: set[str] = set()
        self.exact: set[str] = set()
        """Files that were exactly what each of the writes had left: nobody's lines are in between."""
        self.folders: dict[str, int | None] = {}
        """Folders that come back, with their modes; with None, those that go."""

    def changes(self) -> tuple[FileUndo, ...]:
        """What differs from what is there."""
        files = [
            FileUndo(path, self._first[path], after, self._moved_from(path), self._modes.get(path))
            for path, after in self._now.items()
            if not _is_same(after, self._first[path]) or path in self._modes
        ]
        folders = [
            FileUndo(path, None, None, mode=mode, is_folder=True)
            for path, mode in self._folder_modes.items()
            if path not in self.folders
        ]
        return (*files, *folders)

    def _moved_from(self, path: str) -> str | None:
        """A move that ends in a new name, from one that is free afterwards."""
        source = self._from.get(path)
        is_move = source is not None and self._first[path] is None and self._now[source] is None
        return source if is_move else None

    def reverse(self, write: LandedWrite) -> str | LeftAlone | None:
        """Take one write back; return why that cannot be done, or need not."""
        if write.entry in self._reversed:
            return None
        self._reversed.add(write.entry)
        kinds = {stat.S_IFMT(mode) for mode in (write.before_mode, write.after_mode) if mode}
        try:
            check_inside(write.path, self._turn.root)
            if stat.S_IFIFO in kinds:
                return LeftAlone(write.path, "It is no file, no link and no folder, and stays.")
            if stat.S_IFDIR in kinds:
                return self._reverse_folder(write)
            current = self._content(write.path)
            if write.destination is not None:
                return self._move_back(write, write.destination, current)
        except NotAFileError:
            return (
                "A file has become a folder here, or a folder a file, and the two cannot be exchanged in one"
                " step. Move what is there away, or leave this file out (--except)."
            )
        except NoclobberError as error:
            return f"It cannot be read: {error}"
        is_same = write.before == write.after
        if write.after_mode and write.before_mode and current is not None:
            left = self._mode_back(write, self._modes)
            if is_same:
                return left
        if is_hash(write.before) and is_hash(write.after):
            return None if is_same else self._take_out(write, current)
        if is_hash(write.after) and write.before == ABSENT:
            return self._uncreate(write, current)
        if is_hash(write.before) and write.after in (ABSENT, DELETED):
            return self._undelete(write, current)
        return "The ledger does not say what this write did."

    def _reverse_folder(self, write: LandedWrite) -> LeftAlone | None:
        """An empty folder that came or went, or a folder's mode."""
        if write.before_mode and write.after_mode:
            return self._mode_back(write, self._folder_modes)
        self.folders[write.path] = write.before_mode or None
        self._leave_folders(write)
        return None

    def _leave_folders(self, write: LandedWrite) -> None:
        """Note the folders that came with a file, or with an empty folder: they go, too."""
        folder, root = os.path.dirname(write.path), self._turn.root
        # A forged line may name any folder: nothing outside the workspace is meant.
        while write.folder and f"{folder}/".startswith(f"{write.folder}/") and folder.startswith(f"{root}/"):
            self.folders[folder] = None
            folder = os.path.dirname(folder)

    def _mode_back(self, write: LandedWrite, modes: dict[str, int]) -> LeftAlone | None:
        if write.path not in modes:
            try:
                modes[write.path] = stat.S_IMODE(os.lstat(write.path).st_mode)
            except OSError:
                return LeftAlone(write.path, "It is not there any more.")
        if modes[write.path] != stat.S_IMODE(write.after_mode):
            return LeftAlone(write.path, "Its mode stays: others have changed it since.")
        modes[write.path] = stat.S_IMODE(write.before_mode)
        return None

    def _content(self, path: str) -> bytes | None:
        if path not in self._now:
            try:
                # Not through a link: what it leads to is another file.
                text = link_text(path)
                content = self._turn.read_file(path).content if text is None else LinkText(text)
            except MissingFileError:
                content = None
            self._first[path] = self._now[path] = content
            self.exact.add(path)
        return self._now[path]

    def _take_out(self, write: LandedWrite, current: bytes | None) -> str | None:
        if current is None:
            return "It has been deleted or renamed since."
        if isinstance(current, LinkText):
            return "There is a link at its name now."
        found = self._bytes(write, write.before)
        if found is not None and _hash(current) == write.after:
            self._now[write.path] = found
            return None
        left = self._bytes(write, write.after)
        if left is None or found is None:
            return "What was written or what was there before is not kept any more."
        self.exact.discard(write.path)
        merged = merge(left, found, current, equal_once=True)
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
        self.exact -= {write.path, destination}
        self._now[write.path], self._now[destination] = moved, None
        self._from[write.path] = self._from.pop(destination, destination)
        return None

    def _uncreate(self, write: LandedWrite, current: bytes | None) -> str | LeftAlone | None:
        if current is None and self._first[write.path] is None and write.path not in self.removed_by_others:
            return LeftAlone(write.path, "It is not there any more: others have renamed or removed it.")
        if self.others.get(write.path):
            # The same bytes, none at all perhaps, and yet another file.
            return None if current is None else "Others have made another file at its name since."
        if current is not None and _hash(current) != write.after:
            source = self._moves.get(write.entry)
            if source is not None and not isinstance(current, LinkText):
                return self._command_move_back(write, source, current)
            return "It was created by this write, and others have changed it since."
        self._now[write.path] = None
        self._modes.pop(write.path, None)
        self._leave_folders(write)
        return None

    def _command_move_back(self, write: LandedWrite, source: LandedWrite, current: bytes) -> str | None:
        """Others have changed it where a command had moved it to: what they changed goes back with it."""
        reason = self.reverse(source)
        if reason is not None:
            why = reason.reason if isinstance(reason, LeftAlone) else reason
            return f"It was moved here from {source.path}: {why}"
        if _hash(self._now[source.path]) != write.after:
            return f"It was moved here from {source.path}, and there is another file at that name now."
        self.exact -= {source.path, write.path}
        self._now[source.path], self._now[write.path] = current, None
        self._from[source.path] = self._from.pop(write.path, write.path)
        self._modes.pop(write.path, None)
        self._leave_folders(write)
        return None

    def _undelete(self, write: LandedWrite, current: bytes | None) -> str | None:
        if current is not None:
            return "It was deleted by this write, and there is another file at its name now."
        content = self._bytes(write, write.before)
        if content is None:
            return "It was deleted by this write, and its bytes are not kept any more."
        is_link = stat.S_ISLNK(write.before_mode)
        self._now[write.path] = LinkText(content) if is_link else bytes(content)
        if write.before_mode and not is_link:
            self._modes[write.path] = stat.S_IMODE(write.before_mode)
        if write.folder_mode:
            self.folders[os.path.dirname(write.path)] = write.folder_mode
        return None

    def _bytes(self, write: LandedWrite, sha256: str) -> bytes | None:
        for known in (*self._first.values(), *self._now.values()):
            if known is not None and _hash(known) == sha256:
                return known
        return find_bytes(self._turn.root, write.path, sha256)[0]


def _is_same(one: bytes | None, other: bytes | None) -> bool:
    return one == other and isinstance(one, LinkText) == isinstance(other, LinkText)


def _hash(content: bytes | None) -> str:
    return ABSENT if content is None else hashing.of_bytes(content)


def _lines(conflicts: tuple[Conflict, ...]) -> str:
    named = [
        f"{start + 1}" if end - start <= 1 else f"{start + 1}-{end}"
        for start, end in (conflict.theirs for conflict in conflicts[:MOST_NAMED])
    ]
    return ", ".join(named) + (" and more" if len(conflicts) > MOST_NAMED else "")
