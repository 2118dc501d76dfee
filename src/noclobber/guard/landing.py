"""
Land what a command changed: one compare-and-swap over all of its files.

    change set → facts → policies → rules for commands → commit (`disk/commit/trees`) → snapshot → ledger

Nothing lands if anybody changed one of the files since the command began, or since the agent last saw it.
How that is known, for each file that the command changed:

- The agent has seen it, or the caller says what it expects: the hash of what is there now must be that one.
- Otherwise its ctime must be older than the command's beginning (`runs.RunFolder`). Then its hash, taken now,
  is what the commit expects. A file that came out of a moved folder has an old ctime; so the folders above it
  are asked as well.
- A file that the command created must not be there.
- What the command moved away must not be gone: somebody else has moved it, or removed it.
- A name in the command that led over a link to a file which it wrote must lead there still (`named_links`).

With `on_stale = "merge"` what others changed while the command ran is merged with what the command did to the
same file, if that loses nothing (`merging_commands`).

No scan is made beforehand, and nothing is hashed that the command did not change.

`RULES` is the seam for rules about whole commands, such as those of git. A rule is asked before the commit.
It returns the refusal, or None.

Not promised: a file that was there when the command began, which the command replaced under the same name and
which somebody deleted meanwhile, is created again.
"""

from __future__ import annotations

import os
import stat

from noclobber.core.actions import DELETE, WRITE, Action
from noclobber.core.values import WHOLE, Coverage
from noclobber.disk.commit.flushing import UnflushedError
from noclobber.disk.commit.staged_things import make_ready, strip, strip_folders
from noclobber.disk.commit.trees import ReliedOn, TreeRow, expected_of, hash_and_status
from noclobber.disk.hashing import is_hash
from noclobber.errors import (
    ABSENT,
    DELETED,
    UNKNOWN,
    UNREADABLE,
    AccessDeniedError,
    FileBusyError,
    NoclobberError,
    StaleFileError,
)
from noclobber.guard.claims import retrying
from noclobber.guard.facts import gather
from noclobber.guard.git.rule import git_rule
from noclobber.guard.judge import admit
from noclobber.guard.policies import decide
from noclobber.shell import changes as tree
from noclobber.shell.changes import FILE, FOLDER, LINK, ChangeSet, TreeChange, lstat
from noclobber.shell.git_locks import GitBusyError, GitLocks, locks_for
from noclobber.shell.named_links import first_link, leads_to
from noclobber.shell.runs import folder_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import NamedTuple

    from noclobber.core.values import ToolCall, WriteResult
    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.facts import Facts
    from noclobber.guard.merging_commands import MergedFile
    from noclobber.guard.recording import LandedEvent
    from noclobber.guard.turn import Turn
else:
    from noclobber.core.light.named_tuples import NamedTuple


class CommandRun(NamedTuple):
    """A command that has ended, and what is known of it."""

    argv: tuple[str, ...]
    cwd: str
    run_id: str
    began_ns: int
    """The ctime that everything changed since its beginning has reached."""
    exit_code: int
    expect: Mapping[str, str]
    """What the caller says of files: canonical paths to hashes, or `ABSENT`."""
    text: str = ""
    """The command as the agent wrote it, where that is known: a text for a shell."""
    links: Collection[tuple[str, str]] = ()
    """Names in it that led over a link when it began, and where to (`shell.named_links`)."""


class FileChange(NamedTuple):
    """One file of a change set, judged."""

    change: TreeChange
    path: str
    before: str
    """A hash, `ABSENT`, or the print of what is no file."""
    after: str


def unchecked_rule(
    command: CommandRun, changes: ChangeSet, turn: Turn | CommandTurn
) -> NoclobberError | None:
    """Refuse what is forbidden in folders whose files are not compared."""
    unchecked = [change for change in changes.changes if not change.is_checked]
    if not unchecked:
        return None
    from noclobber.guard.unchecked_rule import refusal_of  # Here: most commands have none.

    return refusal_of(turn, changes.root, unchecked)


RULES: list[Callable[[CommandRun, ChangeSet, Turn | CommandTurn], NoclobberError | None]] = [
    unchecked_rule,
    git_rule,
]
"""Asked in order, before anything lands. The first refusal counts."""

TOLD_BY_COMMIT = ""  # Instead of a hash: the commit says it, which has to take it anyway.
MERGE_TRIES = 5  # How often others may change a file again between its merge and the commit.
MOST_NAMED = 100  # Files beside a refusal.
STALE_ACTIONS = {tree.WRITE: WRITE, tree.CREATE: WRITE, tree.DELETE: DELETE, tree.MODE: WRITE}


def land(
    turn: Turn | CommandTurn,
    call: ToolCall,
    command: CommandRun,
    changes: ChangeSet,
    *,
    is_last: bool = False,
    owed: TreeRow | None = None,
) -> tuple[WriteResult, ...]:
    """
    Land a change set, all of it or nothing. Refusals are exceptions and go on record, once a command.

    Of several stale files the error is about the first; `error.others` has the rest. `is_last`: the turn ends
    with this command, so what it wrote need not be remembered. `owed`: a row of our own that lands together
    with the others, if there are any (`shell.owed`).
    """
    try:
        if (trouble := turn.ledger_trouble()) is not None:
            raise trouble
        for rule in RULES:
            if (refusal := rule(command, changes, turn)) is not None:
                raise refusal
        with _git_locks(turn, command, changes):
            for tries_left in reversed(range(MERGE_TRIES)):
                judged = _Judging(turn, command, changes)
                files = judged.files()
                try:
                    rows = judged.rows()
                    if rows and owed is not None:
                        rows = [*rows, owed]  # The last one: the record looks at the first.
                    results = _committed(turn, rows, judged.relied_on())
                    break
                except UnflushedError as error:
                    commits = list(error.commits)
                    _noted(turn, call, files, commits, judged.merged, flushed=False, is_last=is_last)
                    error.has_landed = True
                    raise
                except StaleFileError as error:
                    # What was merged with has changed once more. Merge again, with what is there now.
                    if not tries_left or error.path not in judged.merged:
                        raise
    except GitBusyError as busy:
        refusal = FileBusyError(
            str(busy),
            "a git process has this lock, so nothing of the command landed. Run it again when git has ended."
            " If none is running, one was killed: remove the file.",
        )
        turn.recorder.refusal(call, refusal)
        raise refusal from None
    except NoclobberError as error:
        if not error.has_landed:
            turn.recorder.refusal(call, error)
        raise
    return _noted(turn, call, files, results, judged.merged, flushed=True, is_last=is_last)


def _git_locks(turn: Turn | CommandTurn, command: CommandRun, changes: ChangeSet) -> GitLocks:
    """Return git's locks for these changes, to be held from the check to the commit."""
    folder = f"{folder_of(changes.root)}/{command.run_id}"
    return GitLocks(folder, locks_for(changes), turn.options.wait_s)


def _committed(
    turn: Turn | CommandTurn, rows: list[TreeRow], relied_on: ReliedOn | None
) -> list[WriteResult]:
    return retrying(
        lambda: turn.guard.land(rows, fence=turn.fence, relied_on=relied_on), turn.options.wait_s, turn.clock
    )


class _Judging:
    """Finds out, file by file, whether a change set may land."""

    def __init__(self, turn: Turn | CommandTurn, command: CommandRun, changes: ChangeSet) -> None:
        self._turn, self._command, self._changes = turn, command, changes
        self._folders: dict[str, bool] = {}
        self._above: dict[str, bool] = {}
        self._made_files: set[str] = set()
        self._ways: dict[str, str] = {}
        self._behind: dict[str, tuple[str, os.stat_result]] = {}
        self._led_by: dict[str, list[str]] = {}
        for name, target in command.links:
            self._led_by.setdefault(target, []).append(name)
        self._stale: list[StaleFileError] = []
        self._rows: list[TreeRow] = []
        self.merged: dict[str, MergedFile] = {}
        """Files whose command's version was merged with what others changed."""

    def rows(self) -> list[TreeRow]:
        return self._rows

    def files(self) -> list[FileChange]:
        """Judge every file; raise the first refusal, with the others beside it."""
        judged: list[FileChange] = []
        checked = self._changes.checked
        self._made_files = {each.path for each in checked if each.action == tree.CREATE and each.kind == FILE}
        for change in checked:
            path = f"{self._changes.root}/{change.path}"
            if change.kind == FOLDER and change.action in (tree.CREATE, tree.DELETE):
                judged += self._folder(change, path)
            else:
                judged.append(self._one(change, path))
        # Who moves something that somebody else has moved or removed meanwhile would have it twice, or back.
        if self._changes.gone and any(each.action == tree.CREATE for each in checked):
            for name in self._changes.gone:
                self._stale.append(StaleFileError(f"{self._changes.root}/{name}", UNKNOWN, DELETED))
        if self._stale:
            first, *rest = self._stale
            first.others = tuple(rest[:MOST_NAMED])  # type: ignore[attr-defined]
            raise first
        return judged

    def _one(self, change: TreeChange, path: str) -> FileChange:
        now = self._judged(change, path)
        for name in self._led_by.get(path, ()):
            self._look_at_way(name, path)
        mode = 0 if change.old is None else stat.S_IMODE(change.old.st_mode)
        is_plain = change.kind == FILE and change.action != tree.CREATE
        expected = now if is_plain or change.action == tree.DELETE else None
        merged = self.merged.get(path)
        upper = change.upper if merged is None else merged.source
        if change.action == tree.WRITE:
            tree.separate(upper, 0 if merged else change.names)
        self._rows.append(TreeRow(change.action, change.kind, path, expected, upper, change.mode, mode))
        after = now if change.action == tree.MODE else TOLD_BY_COMMIT
        return FileChange(change, path, now, after)

    def _folder(self, change: TreeChange, path: str) -> list[FileChange]:
        """A folder that comes or goes is one row. Each file in it is judged."""
        is_gone = change.action == tree.DELETE
        if is_gone:
            self._look_above(change, path)
        # The print first: what changes after it, the commit sees. What changed before, the times show.
        print_ = expected_of(path) if is_gone else None
        inside: list[FileChange] = []
        for inner in ChangeSet(self._changes.root, (change,)).files():
            full = f"{self._changes.root}/{inner.path}"
            now = self._judged(inner, full)
            after = DELETED if is_gone else _made(inner)
            inside.append(FileChange(inner, full, now, after))
        if is_gone and not self._is_old(path):
            for folder, names, _ in os.walk(path):
                for name in names:
                    self._is_old(f"{folder}/{name}")
        kept = tuple(
            (file.path[len(path) + 1 :], file.before, file.change.old.st_size)
            for file in inside
            if is_gone and file.change.kind == FILE and file.change.old is not None
        )
        if not is_gone:
            strip_folders(change.upper)
        row = TreeRow(change.action, FOLDER, path, print_, change.upper, inside=kept, is_stripped=not is_gone)
        self._rows.append(row)
        return inside

    def _judged(self, change: TreeChange, path: str) -> str:
        """Ask the policies about one file; return what is there now, and note if it is stale."""
        turn, command = self._turn, self._command
        action = Action(STALE_ACTIONS[change.action], path, expected_hash=command.expect.get(path))
        now, status = self._looked_at(change, path)
        if now == UNREADABLE:
            raise AccessDeniedError(
                path,
                "this user may not read it, so nobody can tell what the command would replace. Change its"
                " mode first (chmod u+r).",
            )
        target = gather(
            action,
            turn.context,
            path,  # As the root is, it is canonical: a command has no other name for it.
            path,
            options=turn.options,
            actual=DELETED if now == ABSENT else now,
            write_scope=turn.write_scope,
            names=0 if now == ABSENT else None if status is None else status.st_nlink,
        )
        facts = target.facts
        if not decide(facts).allowed:
            try:
                facts = admit(turn, facts)  # Looks again, and raises with the reason that counts.
            except StaleFileError as error:
                if self._is_merged(change, facts, error):
                    return self.merged[path].made_for
                self._stale.append(error)
                return now
        known = facts.expected
        if known is not None and known != ABSENT and now == ABSENT:
            self._stale.append(StaleFileError(path, known, DELETED))
        elif known is not None and is_hash(known):
            if now != known:
                stale = StaleFileError(path, known, now)
                if self._is_merged(change, facts, stale):
                    return self.merged[path].made_for
                self._stale.append(stale)
        elif known == ABSENT and now != ABSENT:
            self._stale.append(StaleFileError(path, ABSENT, now))
        elif now != ABSENT and not (
            self._is_old(path, change.old, status) and self._look_above(change, path)
        ):
            actual = now if change.kind == FILE else "NOT_A_FILE"
            self._stale.append(StaleFileError(path, UNKNOWN, actual))
        elif change.kind == LINK and change.path in self._made_files:
            self._look_behind(path)
        return now

    def _looked_at(self, change: TreeChange, path: str) -> tuple[str, os.stat_result | None]:
        """Return what is at a path now; of a file also its status, from after it was read."""
        if change.old is None:
            return ABSENT, None
        seen = hash_and_status(path, change.old.st_size) if stat.S_ISREG(change.old.st_mode) else None
        return seen or (expected_of(path), None)

    def _is_merged(self, change: TreeChange, facts: Facts, error: StaleFileError) -> bool:
        """True if a stale file's changes, the command's and the others', were merged."""
        if self._turn.options.on_stale != "merge" or change.kind != FILE or change.action != tree.WRITE:
            return False
        from noclobber.guard.merging_commands import merged_file  # Here: few projects merge.

        number = len(self.merged)
        merged = merged_file(self._turn, self._command, change, facts, number, error)
        if merged is None:
            return False
        self.merged[facts.path] = merged
        return True

    def _is_old(
        self, path: str, seen: os.stat_result | None = None, now: os.stat_result | None = None
    ) -> bool:
        """True if what is at a path (its status may be given) has not changed since the command began."""
        now, began_ns = now or lstat(path), self._command.began_ns
        if now is None or (seen is not None and (seen.st_ino != now.st_ino or seen.st_ctime_ns >= began_ns)):
            return False
        return now.st_ctime_ns < began_ns

    def _look_behind(self, path: str) -> None:
        """
        Note a link that becomes a file as stale if it leads to a file that was changed since.

        What the command made of it is of the version before: the link is old, and what it led to is not.
        """
        target = leads_to(path)
        status = None if target is None else lstat(target)
        if target is None or status is None or not stat.S_ISREG(status.st_mode):
            return
        if status.st_ctime_ns >= self._command.began_ns:
            self._stale.append(StaleFileError(path, UNKNOWN, "NOT_A_FILE"))
        elif target.startswith(f"{self._changes.root}/"):
            self._behind[path] = (target, status)

    def _look_at_way(self, name: str, path: str) -> None:
        """Note as stale a name by which the command wrote to a file, if it leads elsewhere by now."""
        now = leads_to(name)
        if now != path:
            self._stale.append(StaleFileError(name, UNKNOWN, DELETED if now is None else expected_of(now)))
        else:
            self._ways[name] = path

    def relied_on(self) -> ReliedOn | None:
        """
        Return the links that the command wrote through, and the files behind links that it replaced.

        Of two commands, one that writes through a link and one that replaces it, each holds the folders of
        both, and the second one finds what the first has done.
        """
        if not self._ways and not self._behind:
            return None
        folders = {os.path.dirname(link) for name in self._ways if (link := first_link(name)) is not None}
        folders |= {os.path.dirname(target) for target, _ in self._behind.values()}
        root = self._changes.root
        return ReliedOn(
            sorted(each for each in folders if f"{each}/".startswith(f"{root}/")), self._look_again
        )

    def _look_again(self) -> None:
        for name, path in self._ways.items():
            if leads_to(name) != path:
                raise StaleFileError(name, UNKNOWN, "NOT_A_FILE")
        for path, (target, seen) in self._behind.items():
            now = lstat(target)
            if now is None or (now.st_ino, now.st_ctime_ns) != (seen.st_ino, seen.st_ctime_ns):
                raise StaleFileError(path, UNKNOWN, "NOT_A_FILE")

    def _look_above(self, change: TreeChange, path: str) -> bool:
        """
        False if a folder above a path may have been put there since the command began.

        The files in it have old times then. A folder that was moved has a newer ctime than mtime, or its own
        folder has a newer mtime. Ordinary saves in both look the same, so this refuses a little too often.
        """
        folder = path.rpartition("/")[0]
        known = self._above.get(folder)
        if known is None:
            known = self._above[folder] = self._are_in_place(folder)
        return known

    def _are_in_place(self, above: str) -> bool:
        root, began_ns = self._changes.root, self._command.began_ns
        while above != root and above.startswith(root):
            known = self._folders.get(above)
            if known is None:
                status, around = lstat(above), lstat(os.path.dirname(above))
                known = (
                    status is not None
                    and around is not None
                    and stat.S_ISDIR(status.st_mode)
                    and (
                        status.st_ctime_ns < began_ns
                        or (status.st_ctime_ns == status.st_mtime_ns and around.st_mtime_ns < began_ns)
                        or not _was_moved(status, around, began_ns)
                    )
                )
                self._folders[above] = known
            if not known:
                return False
            above = os.path.dirname(above)
        return True


def _made(change: TreeChange) -> str:
    """Return the hash, or the print, of what the command has made in a new folder, and make it ready."""
    seen = hash_and_status(change.upper, change.size, make_ready) if change.kind == FILE else None
    if seen is None and change.kind == FILE:
        strip(change.upper)
    return seen[0] if seen else expected_of(change.upper)


def _was_moved(status: os.stat_result, around: os.stat_result, began_ns: int) -> bool:
    """
    True if a folder may have been renamed since a moment, by the times of it and of the one around it.

    A save in it changes its mtime and its ctime alike; a rename changes its ctime alone.
    """
    return around.st_mtime_ns >= began_ns and status.st_ctime_ns != status.st_mtime_ns


def _noted(
    turn: Turn | CommandTurn,
    call: ToolCall,
    files: Sequence[FileChange],
    results: Sequence[WriteResult],
    merged: Mapping[str, MergedFile],
    *,
    flushed: bool,
    is_last: bool,
) -> tuple[WriteResult, ...]:
    """Take note of what landed. Whatever fails here, it has landed, and nobody may say that it has not."""
    try:
        return _landed(turn, call, files, results, merged, flushed=flushed, is_last=is_last)
    except NoclobberError as error:
        error.has_landed = True
        raise


def _landed(
    turn: Turn | CommandTurn,
    call: ToolCall,
    files: Sequence[FileChange],
    results: Sequence[WriteResult],
    merged: Mapping[str, MergedFile],
    *,
    flushed: bool,
    is_last: bool,
) -> tuple[WriteResult, ...]:
    """Take note of what landed, file by file, and put it on record."""
    by_path = {(result.path, result.sha256 == DELETED): result for result in results}
    if not results:
        return ()
    landed = []
    for file in files:
        is_gone = file.change.action == tree.DELETE
        result = by_path.get((file.path, is_gone)) or _around(by_path, file.path, is_gone) or results[0]
        after = result.sha256 if file.after == TOLD_BY_COMMIT else file.after
        landed.append(result._replace(path=file.path, sha256=after, previous_sha256=file.before))
    first = True
    for file, done in zip(files, landed, strict=True):  # All of them before the ledger can fail.
        if is_last:
            break
        name = turn.context.name_of(file.path)
        seen = turn.context.coverage_for(name, file.path)
        if done.sha256 == DELETED:
            turn.context.removed(name, file.path)
        elif file.change.kind == FILE:
            is_known = seen is not None and seen.is_whole
            data = merged[file.path].content if file.path in merged else None
            turn.context.wrote(name, file.path, done.sha256, data, WHOLE if is_known else Coverage((), 1))
    for number, done in enumerate(landed):
        if done.path in merged:
            from noclobber.guard.author import author

            note = merged[done.path].note
            by = author(turn.root, done.path, note.theirs_sha256)
            landed[number] = done._replace(merged=note._replace(by=by))
            turn.merges.append(landed[number])
    events: list[LandedEvent] = []
    for done in landed:
        turn.recorder.landed(
            call,
            done.path,
            done.previous_sha256,
            done.sha256,
            done.level,
            kept=done.kept if first else (),
            not_kept=done.not_kept,
            merged=done.merged,
            flushed=flushed,
            together=events,
        )
        first = False
    turn.recorder.together(events)
    turn.recorder.recovered(call, results[0].recovered)
    return tuple(landed)


def _around(by_path: Mapping[tuple[str, bool], WriteResult], path: str, is_gone: bool) -> WriteResult | None:
    """Return the result of the folder that came or went with a file in it."""
    while (path := os.path.dirname(path)) != "/":
        if (path, is_gone) in by_path:
            return by_path[path, is_gone]
    return None
