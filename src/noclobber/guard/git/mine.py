"""
Work out what a commit of one agent's changes consists of; nothing is changed here.

For every file that the agent wrote: its versions, each with its author, become a weave (`text.weave`). The
version in HEAD says which of the changes are committed already. What is committed next is HEAD's version
with the agent's other changes, and nothing else. Everything is compared as git keeps it, after line endings
and filters.

Where that cannot be done without somebody else's change, or the bytes that would tell are not kept any more,
there is an obstacle with the file, the lines and the owners, and then nothing at all is committed.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk import hashing
from noclobber.disk.reading import open_path, read_all
from noclobber.disk.versions import Versions
from noclobber.guard.git.lineage import (
    OUTSIDER,
    UNKNOWN_WRITER,
    Lineage,
    VersionChain,
    WrittenBy,
    author_of,
    chain,
    lineages,
    links_of,
)
from noclobber.guard.git.repository import EXECUTABLE, FILE, LINK, GitEntry
from noclobber.guard.past_bytes import find_bytes, find_displaced
from noclobber.ledger.history import landed_writes
from noclobber.text.merge import LineRange, is_binary, merge, split_lines
from noclobber.text.weave import Weave

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from noclobber.guard.git.repository import Cleaner, Repository
    from noclobber.text.merge import Conflict

EXISTS = b"\0\n"
"""The first line of every version in a weave: that there is a file. No line of a text is like it."""
FIRST_TRIES = ((8, False), (8, True), (64, True))
"""How many versions back the search goes at first, and whether on top of a commit: what is open is young."""
LOOKS_INTO_GIT = 3
MOST_NAMED = 5


class Mine(NamedTuple):
    """Whose changes are meant: any of these agents, any session that begins so."""

    agents: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()

    def has(self, by: WrittenBy) -> bool:
        """True if this author is meant."""
        if by.kind != "agent":
            return False
        return (by.agent_id is not None and by.agent_id in self.agents) or any(
            (by.session_id or "").startswith(session) for session in self.sessions
        )


class FileCommit(NamedTuple):
    """What becomes of one path. Content is as git keeps it; None: no file."""

    path: str
    """As git calls it."""
    old: GitEntry | None
    before: bytes | None
    after: bytes | None
    mode: str = FILE
    left: tuple[str, ...] = ()
    """Whose changes of this file stay uncommitted."""


class CommitObstacle(NamedTuple):
    """Why a file cannot be committed without taking others' changes along."""

    path: str
    reason: str
    lines: tuple[LineRange, ...] = ()
    """In the file as it is now."""
    owners: tuple[str, ...] = ()


class MinePlan(NamedTuple):
    """What would be committed on top of a commit. If there is an obstacle, nothing is."""

    head: str | None
    files: tuple[FileCommit, ...]
    obstacles: tuple[CommitObstacle, ...]
    skipped: tuple[tuple[str, str], ...]
    """Files that are not committed from here, and why."""
    authors: tuple[WrittenBy, ...]


class _BlockedError(Exception):
    """One file cannot be committed."""

    def __init__(
        self, reason: str, lines: tuple[LineRange, ...] = (), owners: Iterable[Hashable] = ()
    ) -> None:
        super().__init__(reason)
        self.reason, self.lines = reason, lines
        self.owners = tuple(sorted({who.who for who in owners if isinstance(who, WrittenBy)}))


def plan(root: str, repository: Repository, mine: Mine, paths: Iterable[str] | None = None) -> MinePlan:
    """Work out a commit on the present HEAD. `paths` are canonical: only these files, or files in them."""
    head = repository.head()
    wanted = None if paths is None else tuple(paths)
    chosen: dict[str, Lineage] = {}
    skipped: list[tuple[str, str]] = []
    every = lineages(landed_writes(root))
    for file in every:
        if not any(map(mine.has, _authors(file))) or not _is_asked_for(file, wanted):
            continue
        name = repository.below_top(file.name)
        if name is None:
            skipped.append((file.name, "It is not in this work tree of git."))
        elif repository.is_nested(name):
            skipped.append((file.name, "It is in another repository below this one: commit it there."))
        else:
            chosen[name] = file  # The last file of that name, if there were several.
    files, obstacles = [], []
    with _Planner(root, repository, head, mine, chosen) as planner:
        for name, file in chosen.items():
            try:
                if name in planner.ignored:
                    skipped.append((file.name, "git ignores it."))
                else:
                    files += planner.commits(name, file)
            except _BlockedError as blocked:
                obstacles.append(CommitObstacle(file.name, blocked.reason, blocked.lines, blocked.owners))
    authors = {author for file in chosen.values() for author in _authors(file) if mine.has(author)}
    return MinePlan(head, tuple(files), tuple(obstacles), tuple(skipped), tuple(sorted(authors, key=str)))


def _authors(file: Lineage) -> set[WrittenBy]:
    return {*map(author_of, file.writes), *(rename.by for rename in file.renames)}


def _is_asked_for(file: Lineage, paths: tuple[str, ...] | None) -> bool:
    if paths is None:
        return True
    names = {file.name, *(rename.source for rename in file.renames)}
    return any(name == path or name.startswith(f"{path}/") for name in names for path in paths)


class _Planner:
    """Plans one file after the other, on one HEAD."""

    def __init__(
        self, root: str, repository: Repository, head: str | None, mine: Mine, chosen: dict[str, Lineage]
    ) -> None:
        self._root, self._repository, self._mine = root, repository, mine
        self._head = head
        try:
            self._kept: Versions | None = Versions(root, make=False)
        except OSError:
            self._kept = None  # None are kept; or they are not ours, and `doctor` says so.
        names = {name for each, file in chosen.items() for name in (each, *self._old_names(file))}
        self._names = set(chosen)
        self._tree = repository.tree(head, sorted(names))
        self._differs = repository.changed_since(head, sorted(names))
        untracked = [name for name in chosen if name not in self._tree]
        self.ignored = repository.ignored(untracked)

    def __enter__(self) -> _Planner:
        return self

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            self._kept.close()

    def _old_names(self, file: Lineage) -> list[str]:
        """Return the names that a file had, the latest first."""
        found = (self._repository.below_top(rename.source) for rename in reversed(file.renames))
        return [name for name in found if name is not None]

    def commits(self, name: str, file: Lineage) -> list[FileCommit]:
        """Return what is to be committed for one file: nothing, one path, or two if it was moved."""
        target, source = self._names_to_commit(name, file)
        is_same_as_head = name == target and source is None and name in self._tree
        if is_same_as_head and name not in self._differs:
            return []
        content, mode = self._in_work_tree(file.name)
        old = self._tree.get(source or target)
        if content is None and old is None:
            return []
        if old is not None and old.mode not in (FILE, EXECUTABLE):
            what = "a symbolic link" if old.mode == LINK else "a submodule"
            raise _BlockedError(f"In the last commit it is {what}; commit it with git.")
        cleaner = self._repository.cleaner(name)
        in_head = None if old is None else self._repository.blob(old.oid)
        after, left = self._after(file, source or target, content, in_head, cleaner)
        if source is not None:  # Moved: here it is new, and gone there.
            if after is None:
                return []
            moved_away = FileCommit(source, old, in_head, None)
            return [moved_away, FileCommit(target, None, None, after, old.mode if old else mode, left)]
        if after == in_head:
            return []
        return [FileCommit(target, old, in_head, after, old.mode if old else mode, left)]

    def _names_to_commit(self, name: str, file: Lineage) -> tuple[str, str | None]:
        """Return under which name it is committed, and which name goes if the agent moved it."""
        old_names = self._old_names(file)
        committed = next((each for each in (name, *old_names) if each in self._tree), None)
        if committed == name or not file.renames:
            return name, None
        count = old_names.index(committed) + 1 if committed is not None else len(file.renames)
        later = file.renames[-count:]
        of_mine = [self._mine.has(rename.by) for rename in later]
        if not any(of_mine) and committed is not None:
            return committed, None  # Where it is now is others' business.
        if not all(of_mine):
            raise _BlockedError(
                "It was moved by you and by others since it was committed; commit the move with git first.",
                owners=[rename.by for rename in later],
            )
        if committed is not None and committed in self._names:
            raise _BlockedError(f"It was moved here, and there is another file at {committed} now.")
        return name, committed

    def _in_work_tree(self, path: str) -> tuple[bytes | None, str]:
        """Return what is at a path now, and the mode that git has for it."""
        try:
            descriptor = open_path(path)  # Somebody's commit may have it for a moment.
        except (FileNotFoundError, NotADirectoryError):
            return None, FILE
        except OSError as error:
            raise _BlockedError(f"It cannot be read: {error.strerror}") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _BlockedError("It is not a plain file any more; commit it with git.")
            return read_all(descriptor), EXECUTABLE if status.st_mode & 0o100 else FILE
        finally:
            os.close(descriptor)

    def _after(
        self,
        file: Lineage,
        committed: str,
        content: bytes | None,
        in_head: bytes | None,
        cleaner: Cleaner,
    ) -> tuple[bytes | None, tuple[str, ...]]:
        """Return HEAD's version with this agent's changes, and who has changed other lines."""
        # `git add` of a plain file: the bytes in HEAD are those of a version.
        head_sha256 = hashing.of_bytes(in_head) if in_head is not None and cleaner.is_plain else None
        looks_left = LOOKS_INTO_GIT
        links = links_of(file, content)
        known: dict[str, bytes | None] = {} if content is None else {links[-1].sha256: content}

        def find(sha256: str) -> bytes | None:
            nonlocal looks_left
            if sha256 == head_sha256:
                return in_head
            if sha256 in known:
                return known[sha256]
            found = self._kept.read(sha256) if self._kept is not None else None
            found = find_displaced(self._root, file.name, sha256) if found is None else found
            if found is None and looks_left:
                looks_left -= 1  # Dozens of processes; and where one is not found, more are not, as a rule.
                found = find_bytes(self._root, file.name, sha256)[0]
            known[sha256] = found
            return found

        def committed_at(time: str) -> bytes | None:
            commit = self._repository.head_at(self._head, time)
            entry = self._repository.tree(commit, [committed]).get(committed)
            is_file = entry is not None and entry.mode in (FILE, EXECUTABLE)
            return self._repository.blob(entry.oid) if entry is not None and is_file else None

        unknown: _FileHistory | None = None
        for count, is_from_git in (*FIRST_TRIES, (len(links), True), (len(links), False)):
            versions = chain(links, count, find, self._mine.has)
            history = _FileHistory(versions, in_head, cleaner, self._mine.has, committed_at)
            present = history.weave(is_from_git=is_from_git)
            if present is not None and not history.has_unknown(present):
                return history.after(present)
            unknown = history if present is not None else unknown
        return (unknown or history).merged()


class _FileHistory:
    """One file's versions against the one in HEAD."""

    def __init__(
        self,
        versions: VersionChain,
        in_head: bytes | None,
        cleaner: Cleaner,
        is_mine: Callable[[WrittenBy], bool],
        committed_at: Callable[[str], bytes | None],
    ) -> None:
        self._is_mine, self._cut_off, self._committed_at = is_mine, versions.cut_off, committed_at
        kept = [None if each.content is None else cleaner(each.content) for each in versions.versions]
        self._is_whole = any(is_binary(each) for each in (*kept, in_head) if each is not None)
        self._versions = [
            (version.by, self._lines(each), version.time)
            for version, each in zip(versions.versions, kept, strict=True)
        ]
        self._head = self._lines(in_head)

    def _lines(self, content: bytes | None) -> list[bytes]:
        if content is None:
            return []
        return [EXISTS, content] if self._is_whole else [EXISTS, *split_lines(content)]

    def weave(self, *, is_from_git: bool) -> set[int] | None:
        """
        Weave the versions, and return which of the changes HEAD has; None if that cannot be told.

        `is_from_git`: on top of what was committed when the first of the versions was there. What that one
        had besides is somebody's from before, whoever wrote then.
        """
        if is_from_git:
            weave = Weave(self._lines(self._committed_at(self._versions[0][2])))
            is_perhaps_mine = any(map(self._is_mine, self._cut_off))
            weave.step(self._versions[0][1], UNKNOWN_WRITER if is_perhaps_mine else OUTSIDER)
        else:
            weave = Weave(self._versions[0][1])
        for by, lines, _ in self._versions[1:]:
            weave.step(lines, by)
        self._weave = weave
        return weave.committed(self._head, in_any_order=(OUTSIDER, UNKNOWN_WRITER))

    def has_unknown(self, present: set[int]) -> bool:
        """True if it is not known whose some of the other changes are, and they may be this agent's."""
        return _has_unknown(self._weave, present)

    def after(self, present: set[int]) -> tuple[bytes | None, tuple[str, ...]]:
        """Return what is to be committed, and who has changed other lines."""
        return self._content(self._picked(self._weave, present)), self._left(self._weave, present)

    def _picked(self, weave: Weave, present: set[int]) -> list[bytes]:
        """Return HEAD's lines with this agent's changes; raise if others are in the way."""
        open_hunks = [hunk for hunk in weave.hunks if hunk.number not in present]
        if _has_unknown(weave, present):
            raise _BlockedError(
                "Several have changed it, you among them, and the versions between are not kept any more. "
                "Commit it with git."
            )
        wanted = {hunk.number for hunk in open_hunks if self._is_own(hunk.author)}
        picked = weave.picked(present, wanted)
        if picked.lines is None:
            # Line numbers without the one that stands for the file itself.
            lines = tuple(LineRange(max(0, start - 1), end - 1) for start, end in picked.blocked)
            names = ", ".join(sorted(who.who for who in picked.by if isinstance(who, WrittenBy)))
            raise _BlockedError(
                f"{_spelled(lines)}: your changes are among uncommitted ones of {names or 'somebody'}. "
                "Let them commit first, or commit both together.",
                lines,
                picked.by,
            )
        if picked.lines and picked.lines[0] != EXISTS:
            creator = weave.lines[0].born
            who = creator.author if creator is not None else OUTSIDER
            name = who.who if isinstance(who, WrittenBy) else "somebody"
            raise _BlockedError(
                f"It was created by {name} and is not committed yet. Let them commit it first, "
                "or commit both together.",
                owners=[who],
            )
        return picked.lines

    def _is_own(self, author: Hashable) -> bool:
        return isinstance(author, WrittenBy) and self._is_mine(author)

    def _left(self, weave: Weave, present: set[int]) -> tuple[str, ...]:
        others = {hunk.author for hunk in weave.hunks if hunk.number not in present}
        return tuple(
            sorted(who.who for who in others if isinstance(who, WrittenBy) and not self._is_mine(who))
        )

    def merged(self) -> tuple[bytes | None, tuple[str, ...]]:
        """HEAD has lines that no version on record had: take this agent's changes over by a merge."""
        weave = self._weave
        if any(map(self._is_mine, self._cut_off)):
            raise _BlockedError(
                "Versions of it from before your changes are not kept any more, so it cannot be told which "
                "of the lines are yours. Commit it with git."
            )
        present = weave.nearest(self._head)
        base, ours = weave.version(present), self._picked(weave, present)
        if base == ours:
            return self._content(self._head), self._left(weave, present)
        if base[:1] != [EXISTS] or ours[:1] != [EXISTS]:
            raise _BlockedError(
                "The version in the last commit is not the one that you deleted. Commit it with git."
            )
        merged = merge(*(b"".join(lines[1:]) for lines in (base, ours, self._head)))
        if merged.content is None:
            raise _BlockedError(
                f"{_spelled_in_head(merged.conflicts)} of the committed version: you changed these, and it "
                "has other lines there than any version on record. Commit it with git."
            )
        return merged.content, self._left(weave, present)

    @staticmethod
    def _content(lines: list[bytes]) -> bytes | None:
        return b"".join(lines[1:]) if lines else None


def _has_unknown(weave: Weave, present: set[int]) -> bool:
    return any(hunk.author == UNKNOWN_WRITER for hunk in weave.hunks if hunk.number not in present)


def _spelled(ranges: tuple[LineRange, ...]) -> str:
    named = [
        f"{start + 1}" if end - start <= 1 else f"{start + 1}-{end}" for start, end in ranges[:MOST_NAMED]
    ]
    word = "Line" if len(named) == 1 and "-" not in named[0] else "Lines"
    return f"{word} {', '.join(named)}{' and more' if len(ranges) > MOST_NAMED else ''}"


def _spelled_in_head(conflicts: tuple[Conflict, ...]) -> str:
    return _spelled(tuple(conflict.theirs for conflict in conflicts))
