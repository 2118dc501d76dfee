"""
Land what a command changed: one compare-and-swap over all of its files.

    change set → facts → policies → rules for commands → commit (`disk/commit/change_set`) → snapshot → ledger

What the agent saw is asked, and told, by the interface that hooks and turns use (`memory.Memory`).

Nothing lands if anybody changed one of the files since the command began, or since the agent last saw it.
How that is known, for each file that the command changed:

- The agent has seen it, or the caller says what it expects: the hash of what is there now must be that one.
  What must be read again (`UNKNOWN`, lost memory) is refused. With `partial = "deny"`, so is a change of a
  file that was read in part, unless every line that was not read is in the result. Nothing of this is asked
  about `.git`.
- Otherwise its ctime must be older than the command's beginning (`runs.RunFolder`). Then its hash, taken now,
  is what the commit expects. A file that came out of a moved folder has an old ctime; so the folders above it
  must be the ones that the command saw (`shell.origins`).
- What the command made must not be there, and what it removed, moved or changed must not be gone: then
  somebody else has made it, moved it or removed it (`TreeChanges.overtaken`).
- A folder that goes must hold what it held: each thing in it is asked for its ctime.

What the command's version holds plays no part in this. A file that it wrote is judged also if the result is
what is there already (`TreeChanges.same`).
- A name in the command that led over a link to a file which it wrote must lead there still (`named_links`).

With `on_stale = "merge"` a whole file whose text is in the command merges as any other whole-file write
(`merging_commands`).

No scan is made beforehand, and nothing is hashed that the command did not change.

`RULES` is the seam for rules about whole commands, such as those of git. A rule is asked before the commit.
It returns the refusal, or None. A file that is stale is told as stale all the same (ruling 18): its agent has
to read it, whatever else is wrong with the command.

Not promised: a file that was there when the command began, which the command removed and made anew under the
same name and which somebody deleted meanwhile, is created again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.actions import DELETE, EDIT, WRITE, Action
from noclobber.core.options import DEFAULTS
from noclobber.core.switches import places_of
from noclobber.core.values import WHOLE
from noclobber.disk.commit.change_set import ReliedOn, TreeRow, expected_of, hash_and_status
from noclobber.disk.commit.flushing import UnflushedError
from noclobber.disk.commit.staged_things import make_ready, strip, strip_folders
from noclobber.disk.hashing import is_hash, of_bytes
from noclobber.disk.reading import look_at
from noclobber.errors import (
    ABSENT,
    DELETED,
    NOT_A_FILE,
    UNKNOWN,
    UNREADABLE,
    AccessDeniedError,
    FileBusyError,
    NoclobberError,
    StaleFileError,
)
from noclobber.guard.change_set import Verdict
from noclobber.guard.claims import retrying
from noclobber.guard.facts import gather
from noclobber.guard.git.rule import git_rule, is_only_refreshed
from noclobber.guard.judge import refusal_of, stale_since_began
from noclobber.guard.snapshot import NOTHING_SEEN, TurnContext
from noclobber.shell import changes as tree
from noclobber.shell.changes import FILE, FOLDER, LINK, TreeChange, TreeChanges, lstat
from noclobber.shell.git_folders import changed_since
from noclobber.shell.git_locks import GitBusyError, GitLocks, locks_for
from noclobber.shell.named_links import first_link, leads_to
from noclobber.shell.origins import is_replaced
from noclobber.shell.runs import folder_of

if TYPE_CHECKING:
    from noclobber.core.values import ToolCall, WriteResult
    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.facts import Facts
    from noclobber.guard.memory import Memory
    from noclobber.guard.merging_commands import MergedFile
    from noclobber.guard.recording import LandedEvent
    from noclobber.guard.turn import Turn
    from noclobber.shell.own_text import OwnText


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
    index_fd: int = -1
    """git's index when it began, if the root has one."""


class CommandFile(NamedTuple):
    """One file of a change set, judged."""

    change: TreeChange
    path: str
    before: str
    """A hash, `ABSENT`, or the print of what is no file."""
    after: str
    folder_mode: int = 0
    """Of what goes together with its folder: that folder's mode, to make it again."""


def unchecked_rule(
    command: CommandRun, changes: TreeChanges, turn: Turn | CommandTurn
) -> NoclobberError | None:
    """Refuse what is forbidden in folders whose files are not compared."""
    unchecked = [change for change in changes.changes if not change.is_checked]
    if not unchecked:
        return None
    from noclobber.guard.unchecked_rule import refusal_of  # Here: most commands have none.

    return refusal_of(turn, changes.root, unchecked)


RULES: list[Callable[[CommandRun, TreeChanges, Turn | CommandTurn], NoclobberError | None]] = [
    unchecked_rule,
    git_rule,
]
"""Asked in order, before anything lands. The first refusal counts."""

MOST_TEXT_BYTES = 8 << 20
TOLD_BY_COMMIT = ""  # Instead of a hash: the commit says it, which has to take it anyway.
MERGE_TRIES = 5  # How often others may change a file again between its merge and the commit.
KINDS = {FILE: stat.S_IFREG, LINK: stat.S_IFLNK, FOLDER: stat.S_IFDIR, tree.SPECIAL: stat.S_IFIFO}
STALE_ACTIONS = {tree.WRITE: EDIT, tree.CREATE: WRITE, tree.DELETE: DELETE, tree.MODE: EDIT}
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # The hash of no bytes.
MOST_HELD = 500  # Files of one command whose bytes the session's memory holds.


def land(
    turn: Turn | CommandTurn,
    call: ToolCall,
    command: CommandRun,
    changes: TreeChanges,
    *,
    owed: TreeRow | None = None,
    beside: Callable[[], None] | None = None,
) -> tuple[WriteResult, ...]:
    """
    Land a change set, all of it or nothing. Refusals are exceptions and go on record, once a command.

    Of several stale files the error is about the first; `error.others` has the rest. `owed`: a row of our own
    that lands together with the others, if there are any (`shell.owed`).
    `beside` lands what is in git folders outside of the root.
    """
    try:
        if (trouble := turn.ledger_trouble()) is not None:
            raise trouble
        for rule in RULES:
            if (refusal := rule(command, changes, turn)) is not None:
                with turn.memory as memory:
                    _Judging(
                        turn, command, changes, memory
                    ).files()  # Ruling 18: what is stale is told first.
                raise refusal
        with _git_locks(turn, command, changes):
            for tries_left in reversed(range(MERGE_TRIES)):
                for each in changes.beside:
                    for path in changed_since(each, command.began_ns):
                        raise stale_since_began(path, expected_of(path))
                with turn.memory as memory:
                    judged = _Judging(turn, command, changes, memory)
                    files = judged.files()
                try:
                    rows = judged.rows()
                    turn.guard.keep_landed(  # Links that go: afterwards nobody knows where they led.
                        (file.path, file.before)
                        for file in files
                        if file.change.kind == LINK and file.change.action == tree.DELETE
                    )
                    if rows and owed is not None:
                        rows = [*rows, owed]  # The last one: the record looks at the first.
                    results = _committed(turn, rows, judged.relied_on())
                    if beside is not None:
                        beside()
                    break
                except UnflushedError as error:
                    if beside is not None:
                        beside()
                    _noted(turn, call, files, list(error.commits), judged, flushed=False)
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
            _note_refused(turn, error)
            turn.recorder.refusal(call, error)
        raise
    return _noted(turn, call, files, results, judged, flushed=True)


def _git_locks(turn: Turn | CommandTurn, command: CommandRun, changes: TreeChanges) -> GitLocks:
    """Return git's locks for these changes, to be held from the check to the commit."""
    folder = f"{folder_of(changes.root)}/{command.run_id}"
    return GitLocks(folder, locks_for(changes), turn.options.wait_s)


def _committed(
    turn: Turn | CommandTurn, rows: list[TreeRow], relied_on: ReliedOn | None
) -> list[WriteResult]:
    turn.recorder.prepare(len(rows))
    return retrying(
        lambda: turn.guard.commit(rows, fence=turn.fence, relied_on=relied_on),
        turn.options.wait_s,
        turn.clock,
    )


class _Judging:
    """Finds out, file by file, whether a change set may land."""

    def __init__(
        self, turn: Turn | CommandTurn, command: CommandRun, changes: TreeChanges, memory: Memory
    ) -> None:
        self._turn, self._command, self._changes, self._memory = turn, command, changes, memory
        self._is_lost = memory.is_lost
        self._git_options = turn.options._replace(
            unread=DEFAULTS.unread, explicit=DEFAULTS.explicit, explicit_hash=DEFAULTS.explicit_hash
        )
        self._texts = texts_of(command)
        self.own: dict[str, bytes] = {}
        """Files whose whole new content, or what was added to it, is in the command's text: their bytes."""
        self._folders: dict[str, bool] = {}
        self._switch_places = places_of(changes.root)
        self._run_folder = f"{folder_of(changes.root)}/{command.run_id}"
        self._made_files: set[str] = set()
        self._ways: dict[str, str] = {}
        self._behind: dict[str, tuple[str, os.stat_result]] = {}
        self._led_by: dict[str, list[str]] = {}
        for name, target in command.links:
            self._led_by.setdefault(target, []).append(name)
        self._verdict = Verdict()
        self._rows: list[TreeRow] = []
        self.merged: dict[str, MergedFile] = {}
        """Files whose command's version was merged with what others changed."""

    def rows(self) -> list[TreeRow]:
        return self._rows

    def files(self) -> list[CommandFile]:
        """Judge every file; raise the first refusal, with the others beside it."""
        judged: list[CommandFile] = []
        checked = self._changes.checked
        self._made_files = {each.path for each in checked if each.action == tree.CREATE and each.kind == FILE}
        for change in checked:
            path = f"{self._changes.root}/{change.path}"
            if change.kind == FOLDER and change.action in (tree.CREATE, tree.DELETE):
                judged += self._folder(change, path)
            else:
                judged.append(self._one(change, path))
        for change in self._changes.same:
            self._judge_same(change, f"{self._changes.root}/{change.path}")
        for name, is_made in self._changes.overtaken:
            path = f"{self._changes.root}/{name}"
            expected = self._known(path) or (ABSENT if is_made else UNKNOWN)
            self._verdict.refuse(stale_since_began(path, _found_at(path), expected))
        self._verdict.enforce()
        return judged

    def _one(self, change: TreeChange, path: str) -> CommandFile:
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
        return CommandFile(change, path, now, after)

    def _folder(self, change: TreeChange, path: str) -> list[CommandFile]:
        """A folder that comes or goes is one row. Each file in it is judged."""
        is_gone = change.action == tree.DELETE
        # The print first: what changes after it, the commit sees. What changed before, the times show.
        print_ = expected_of(path) if is_gone else None
        inside: list[CommandFile] = []
        for inner in TreeChanges(self._changes.root, (change,)).files():
            full = f"{self._changes.root}/{inner.path}"
            now = self._judged(inner, full, comes_with=path)
            after = DELETED if is_gone else _made(inner)
            above = lstat(os.path.dirname(full)) if is_gone else None
            inside.append(CommandFile(inner, full, now, after, 0 if above is None else above.st_mode))
        # After the files in it, which are named to the agent rather than their folder.
        if is_gone and not self._verdict.refusals:
            # Somebody has put something into it, or taken it out. What was moved there has old times in it.
            for folder, _, _ in os.walk(path):
                if not self._is_old(folder):
                    self._verdict.refuse(stale_since_began(folder, NOT_A_FILE))
                    break
            if not self._is_in_place(path):
                self._verdict.refuse(stale_since_began(path, NOT_A_FILE))
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

    def _judged(self, change: TreeChange, path: str, *, comes_with: str | None = None) -> str:
        """Ask the policies about one file; return what is there now, and note if it is stale."""
        turn, command = self._turn, self._command
        kind = STALE_ACTIONS[change.action]
        if path in self._texts and change.kind == FILE and change.upper:
            kind = self._kind_by_text(change, path)
        now, status = self._looked_at(change, path)
        if now == UNREADABLE:
            raise AccessDeniedError(
                path,
                "this user may not read it, so nobody can tell what the command would replace. Change its"
                " mode first (chmod u+r).",
            )
        is_git = in_git(path)
        if (
            turn.options.partial == "deny"
            and change.action == tree.WRITE
            and self._drops_unseen(change, path)
        ):
            kind = WRITE
        action = Action(kind, path, expected_hash=command.expect.get(path))
        facts = gather(
            action,
            self._snapshot(path),
            path,  # As the root is, it is canonical: a command has no other name for it.
            path,
            options=self._git_options if is_git else turn.options,
            actual=DELETED if now == ABSENT else now,
            write_scope=turn.write_scope,
            is_memory_lost=self._is_lost and not is_git,
            names=0 if now == ABSENT else None if status is None else status.st_nlink,
        ).facts
        facts = facts._replace(
            switch_places=self._switch_places, is_around=change.kind != FILE, comes_with=comes_with
        )
        # Also of a file whose hash is known: what the command read may be another version, or the agent's own
        # of another command that ran at the same time.
        if not self._is_as_it_began(change, path, now, status):
            actual = facts.actual if change.kind == FILE or now == ABSENT else NOT_A_FILE
            facts = facts._replace(is_changed=True, actual=actual)
        refusal = refusal_of(facts)
        if isinstance(refusal, StaleFileError):
            if self._is_merged(change, facts, refusal):
                return self.merged[path].made_for
            self._verdict.refuse(refusal)
        elif refusal is not None:
            raise refusal
        elif change.kind == LINK and change.path in self._made_files:
            self._look_behind(path)
        return now

    def _known(self, path: str) -> str | None:
        """Return what the caller expects of a file, or what the agent last saw; None: nothing is known."""
        return self._command.expect.get(path) or self._snapshot(path).last_for(path, path)

    def _snapshot(self, path: str) -> TurnContext:
        """Return what the agent knows of a file. Of git's own it knows nothing: nobody reads those."""
        if in_git(path):
            return TurnContext(self._changes.root, turn_id="")
        return self._memory.recall(path, path)[0]

    def _kind_by_text(self, change: TreeChange, path: str) -> str:
        """Return whether the command's text replaces a file, as a tool's write does, or only changes it."""
        text = self._texts[path]
        if not len(text.content) <= os.lstat(change.upper).st_size <= MOST_TEXT_BYTES:
            return STALE_ACTIONS[change.action]
        with open(change.upper, "rb") as file:
            content = file.read()
        if content == text.content:
            self.own[path] = content
            return STALE_ACTIONS[change.action] if text.is_added else WRITE
        if text.is_added and content.endswith(text.content):
            self.own[path] = content
        return STALE_ACTIONS[change.action]

    def _drops_unseen(self, change: TreeChange, path: str) -> bool:
        """True if a command takes away a line that an agent, which read only a part, has not seen."""
        snapshot = self._snapshot(path)
        seen = snapshot.coverage_for(path, path)
        if seen is None or seen.is_whole or snapshot.left_for(path, path) is not None:
            return False
        if os.lstat(path).st_size > MOST_TEXT_BYTES or change.size > MOST_TEXT_BYTES:
            return True
        with open(path, "rb") as old, open(change.upper, "rb") as new:
            lines, kept = old.read().split(b"\n"), iter(new.read().split(b"\n"))
        for first, last in seen.ranges:
            lines[first:last] = [b""] * (min(last, len(lines)) - first)
        return not all(line in kept for line in lines if line)

    def _judge_same(self, change: TreeChange, path: str) -> None:
        """Note as stale what the command wrote with the result that is there, if it was made for another."""
        now, status = self._looked_at(change, path)
        known = self._known(path)
        if known not in (None, now) or not self._is_as_it_began(change, path, now, status):
            actual = now if change.kind == FILE else NOT_A_FILE
            stale = stale_since_began(path, DELETED if now == ABSENT else actual, known)
            if self._turn.options.on_stale == "merge" and is_hash(now):
                from noclobber.guard.merging import already_so  # Here: few projects merge.

                stale.not_merged = already_so(self._turn.root, path, now)
                stale.add_note(f"It was not merged: {stale.not_merged}")
            self._verdict.refuse(stale)

    def _is_as_it_began(self, change: TreeChange, path: str, now: str, status: os.stat_result | None) -> bool:
        """True if nobody else has changed, made, removed or moved something since the command began."""
        if now == ABSENT:
            return change.old is None and self._is_in_place(path, is_new=True)
        if self._is_old(path, change.old, status) and self._is_in_place(path):
            return True
        return path == f"{self._changes.root}/.git/index" and is_only_refreshed(self._command.index_fd, path)

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
        merged = merged_file(
            self._turn,
            self._command,
            change,
            facts,
            number,
            error,
            self._memory,
            is_text=facts.path in self.own,
        )
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
            self._verdict.refuse(stale_since_began(path, NOT_A_FILE))
        elif target.startswith(f"{self._changes.root}/"):
            self._behind[path] = (target, status)

    def _look_at_way(self, name: str, path: str) -> None:
        """Note as stale a name by which the command wrote to a file, if it leads elsewhere by now."""
        now = leads_to(name)
        if now != path:
            self._verdict.refuse(stale_since_began(name, DELETED if now is None else expected_of(now)))
        else:
            self._ways[name] = path

    def is_all_known(self, snapshot: TurnContext, file: CommandFile, data: bytes) -> bool:
        """True if an agent knows all of a file that has its command's text: alone, or behind what it saw."""
        text = self._texts[file.path]
        if len(data) == len(text.content):
            return True
        if of_bytes(data[: -len(text.content)]) != file.before:
            return False
        seen = snapshot.part_of(file.path, file.path, file.before)
        return seen is not None and seen.is_whole

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
                raise stale_since_began(name, NOT_A_FILE)
        for path, (target, seen) in self._behind.items():
            now = lstat(target)
            if now is None or (now.st_ino, now.st_ctime_ns) != (seen.st_ino, seen.st_ctime_ns):
                raise stale_since_began(path, NOT_A_FILE)

    def _is_in_place(self, path: str, *, is_new: bool = False) -> bool:
        """
        False if a folder above a path is another one than when the command looked at it.

        The files in it have old times then. Where the filesystem cannot tell (`origins`), the times of the
        folders have to: one that was moved has a newer ctime than mtime, and its own folder has a newer
        mtime. Ordinary saves in both look the same, so this refuses a little too often; and of a file that is
        new (`is_new`) it is not asked.
        """
        root, above = self._changes.root, os.path.dirname(path)
        while above != root and above.startswith(root):
            is_other = self._folders.get(above)
            if is_other is None:
                below = above[len(root) :]
                told = is_replaced(f"{self._run_folder}/upper{below}", above)
                is_other = _was_moved(above, self._command.began_ns) and not is_new if told is None else told
                if told is not None or not is_new:
                    self._folders[above] = is_other
            if is_other:
                return False
            above = os.path.dirname(above)
        return True


def _made(change: TreeChange) -> str:
    """Return the hash, or the print, of what the command has made in a new folder, and make it ready."""
    seen = hash_and_status(change.upper, change.size, make_ready) if change.kind == FILE else None
    if seen is None and change.kind == FILE:
        strip(change.upper)
    return seen[0] if seen else expected_of(change.upper)


def texts_of(command: CommandRun) -> dict[str, OwnText]:
    """Return by path what the command's text writes to files."""
    if ">" not in command.text and "tee" not in command.text:
        return {}
    from noclobber.shell.own_text import own_texts  # Here: most commands that are no text write none.

    found = own_texts(command.text)
    return {os.path.realpath(os.path.join(command.cwd, text.path)): text for text in found}


def in_git(path: str) -> bool:
    """True for what is in a git folder: that is git's, and no agent reads or writes it by itself."""
    return "/.git/" in f"{path}/"


def _found_at(path: str) -> str:
    """Return what is at a path now, as a refusal says it."""
    status = lstat(path)
    if status is None:
        return DELETED
    return expected_of(path) if stat.S_ISREG(status.st_mode) else NOT_A_FILE


def _was_moved(folder: str, began_ns: int) -> bool:
    """
    True if a folder may have been renamed since a moment, by the times of it and of the one around it.

    A save in it changes its mtime and its ctime alike; a rename changes its ctime alone.
    """
    status, around = lstat(folder), lstat(os.path.dirname(folder))
    if status is None or around is None or not stat.S_ISDIR(status.st_mode):
        return True
    is_since = status.st_ctime_ns >= began_ns and around.st_mtime_ns >= began_ns
    return is_since and status.st_ctime_ns != status.st_mtime_ns


def _noted(
    turn: Turn | CommandTurn,
    call: ToolCall,
    files: Sequence[CommandFile],
    results: Sequence[WriteResult],
    judged: _Judging,
    *,
    flushed: bool,
) -> tuple[WriteResult, ...]:
    """Take note of what landed. Whatever fails here, it has landed, and nobody may say that it has not."""
    try:
        return _landed(turn, call, files, results, judged, flushed=flushed)
    except NoclobberError as error:
        error.has_landed = True
        raise


def _landed(
    turn: Turn | CommandTurn,
    call: ToolCall,
    files: Sequence[CommandFile],
    results: Sequence[WriteResult],
    judged: _Judging,
    *,
    flushed: bool,
) -> tuple[WriteResult, ...]:
    """Take note of what landed, file by file, and put it on record."""
    merged = judged.merged
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
    not_told = _tell(turn, files, landed, judged)  # All of them before the ledger can fail.
    for number, done in enumerate(landed):
        if done.path in merged:
            from noclobber.guard.author import author

            note = merged[done.path].note
            by = author(turn.root, done.path, note.theirs_sha256)
            landed[number] = done._replace(merged=note._replace(by=by))
            turn.merges.append(landed[number])
    # Before the record: a person may save over it at once, and undo and blame need its bytes.
    turn.guard.keep_landed(
        (done.path, done.sha256)
        for file, done in zip(files, landed, strict=True)
        if file.change.kind in (FILE, LINK) and is_hash(done.sha256) and file.change.action != tree.MODE
    )
    events: list[LandedEvent] = []
    for file, done in zip(files, landed, strict=True):
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
            more=_for_undo(turn, file, by_path),
        )
        first = False
    turn.recorder.together(events)
    turn.recorder.recovered(call, results[0].recovered)
    if not_told is not None:
        raise not_told
    return tuple(landed)


def _tell(
    turn: Turn | CommandTurn,
    files: Sequence[CommandFile],
    landed: Sequence[WriteResult],
    judged: _Judging,
) -> NoclobberError | None:
    """
    Tell the agent's memory what its command has made of files; return why that was not possible, if so.

    What was removed is known to be gone. Bytes that are in the command's text are the agent's own, and so is
    a merge, of which the agent was told. Everything else it has not seen (ruling 30).
    """
    try:
        with turn.memory as memory:
            for number, (file, done) in enumerate(zip(files, landed, strict=True)):
                path, is_gone = file.path, done.sha256 == DELETED
                if (
                    in_git(path)
                    or file.change.action == tree.MODE
                    or (file.change.kind != FILE and not is_gone)
                ):
                    continue
                snapshot, notes = memory.recall(path, path)
                data = judged.own.get(path)
                if path in judged.merged:
                    seen = snapshot.coverage_for(path, path)
                    is_whole = seen is not None and seen.is_whole
                    data = judged.merged[path].content
                    snapshot.wrote(path, path, done.sha256, data, WHOLE if is_whole else NOTHING_SEEN)
                elif is_gone:
                    snapshot.removed(path, path)
                elif done.sha256 == EMPTY or (data is not None and judged.is_all_known(snapshot, file, data)):
                    snapshot.wrote(path, path, done.sha256, data or b"")
                else:
                    snapshot.brought(path, path, done.sha256)
                if memory.holds_bytes:
                    notes["wrote"] = [done.sha256, turn.clock.now_s()]
                    if is_gone:
                        del notes["wrote"]
                    elif data is None and number < MOST_HELD:
                        state = look_at(path, keep=True)
                        data = state.content if state.sha256 == done.sha256 else None
                    if data is not None:
                        memory.hold(path, done.sha256, data)
                memory.keep(snapshot, path, path, notes)
    except NoclobberError as error:
        return error
    return None


def _note_refused(turn: Turn | CommandTurn, error: NoclobberError) -> None:
    """Tell the agent's memory which files are stale: a read is due."""
    stale = [each for each in (error, *getattr(error, "others", ())) if isinstance(each, StaleFileError)]
    if not stale:
        return
    try:
        with turn.memory as memory:
            for each in stale:
                snapshot, notes = memory.recall(each.path, each.path)
                if snapshot.last_for(each.path, each.path) == each.expected:
                    snapshot.refused(each.path, each.path, None, each.expected)
                    memory.keep(snapshot, each.path, each.path, notes)
    except NoclobberError:
        pass  # It is refused all the same.


def _for_undo(
    turn: Turn | CommandTurn, file: CommandFile, by_path: Mapping[tuple[str, bool], WriteResult]
) -> dict[str, str]:
    """Return what else goes on record: what an undo cannot tell from hashes. Of most files, nothing."""
    change, more = file.change, {}
    old = 0 if change.old is None else change.old.st_mode
    new = 0 if change.action == tree.DELETE else KINDS.get(change.kind, 0) | change.mode
    if change.action == tree.DELETE or (old and stat.S_IMODE(old) != change.mode):
        more["before_mode"] = f"{old:o}"
    if new and (change.kind != FILE or "before_mode" in more):
        more["after_mode"] = f"{new:o}"
    if file.folder_mode:
        more["folder_mode"] = f"{file.folder_mode:o}"
    is_alone = change.action != tree.CREATE or (file.path, False) in by_path
    if not is_alone and (around := _around(by_path, file.path, False)) is not None:
        more["folder"] = turn.recorder.named(around.path)
    return more


def _around(by_path: Mapping[tuple[str, bool], WriteResult], path: str, is_gone: bool) -> WriteResult | None:
    """Return the result of the folder that came or went with a file in it."""
    while (path := os.path.dirname(path)) != "/":
        if (path, is_gone) in by_path:
            return by_path[path, is_gone]
    return None
