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
from noclobber.guard.git.digest import LedgerNeededError, begin_again, read_recorded
from noclobber.guard.git.lineage import OUTSIDER, UNKNOWN_WRITER, chain, links_of, steps
from noclobber.guard.git.repository import EXECUTABLE, FILE, LINK, GitEntry
from noclobber.guard.git.woven_file import BlockedError, WovenFile, go_on, version_lines
from noclobber.guard.past_bytes import find_bytes, find_kept
from noclobber.text.merge import is_binary
from noclobber.text.weave import Weave

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from noclobber.guard.git.digest import Recorded
    from noclobber.guard.git.lineage import Earlier, Lineage, VersionChain, VersionLink, WrittenBy
    from noclobber.guard.git.repository import Cleaner, Repository
    from noclobber.text.merge import LineRange

FIRST_TRIES = ((8, False), (8, True), (64, True))
"""How many versions back the search goes at first, and whether on top of a commit: what is open is young."""
LOOKS_INTO_GIT = 3


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
    behind: int = 0
    """How many landed writes had to be read because the digest does not have them, ..."""
    was_whole: bool = True
    """... and whether the digest was of no use."""


def plan(root: str, repository: Repository, mine: Mine, paths: Iterable[str] | None = None) -> MinePlan:
    """Work out a commit on the present HEAD. `paths` are canonical: only these files, or files in them."""
    wanted = None if paths is None else tuple(paths)
    recorded = read_recorded(root)
    try:
        return _planned(root, repository, mine, wanted, recorded)
    except LedgerNeededError:
        recorded = read_recorded(root, is_whole=True)._replace(behind=recorded.behind)
        return _planned(root, repository, mine, wanted, recorded)


def _planned(
    root: str, repository: Repository, mine: Mine, wanted: tuple[str, ...] | None, recorded: Recorded
) -> MinePlan:
    head = repository.head()
    chosen: dict[str, Lineage] = {}
    skipped: list[tuple[str, str]] = []
    for file in recorded.files:
        if not any(map(mine.has, file.authors)) or not _is_asked_for(file, wanted):
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
            except BlockedError as blocked:
                obstacles.append(CommitObstacle(file.name, blocked.reason, blocked.lines, blocked.owners))
    authors = {author for file in chosen.values() for author in file.authors if mine.has(author)}
    return MinePlan(
        head,
        tuple(files),
        tuple(obstacles),
        tuple(skipped),
        tuple(sorted(authors, key=str)),
        recorded.behind,
        recorded.is_whole,
    )


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
        # Of the likely ones by one process each; the others are asked about one by one.
        likely = [name for name in chosen if name in self._differs or name not in self._tree]
        self._cleaners = repository.cleaners(likely)
        entries = (self._tree[name] for name in likely if name in self._tree)
        self._blobs = repository.blobs(entry.oid for entry in entries if entry.mode in (FILE, EXECUTABLE))

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
            raise BlockedError(f"In the last commit it is {what}; commit it with git.")
        cleaner = self._cleaners.get(name) or self._repository.cleaner(name)
        in_head = None if old is None else self._blobs.get(old.oid)
        if old is not None and in_head is None:
            in_head = self._repository.blob(old.oid)
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
            raise BlockedError(
                "It was moved by you and by others since it was committed; commit the move with git first.",
                owners=[rename.by for rename in later],
            )
        if committed is not None and committed in self._names:
            raise BlockedError(f"It was moved here, and there is another file at {committed} now.")
        return name, committed

    def _in_work_tree(self, path: str) -> tuple[bytes | None, str]:
        """Return what is at a path now, and the mode that git has for it."""
        try:
            descriptor = open_path(path)  # Somebody's commit may have it for a moment.
        except (FileNotFoundError, NotADirectoryError):
            return None, FILE
        except OSError as error:
            raise BlockedError(f"It cannot be read: {error.strerror}") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise BlockedError("It is not a plain file any more; commit it with git.")
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
        looks_left = LOOKS_INTO_GIT if file.earlier is None else 0
        links = links_of(file, content)
        known: dict[str, bytes | None] = {} if content is None else {hashing.of_bytes(content): content}

        def find(sha256: str) -> bytes | None:
            nonlocal looks_left
            if sha256 == head_sha256:
                return in_head
            if sha256 in known:
                return known[sha256]
            found = find_kept(self._kept, self._root, file.name, sha256)
            if found is None and looks_left:
                looks_left -= 1  # Dozens of processes; and where one is not found, more are not, as a rule.
                found = find_bytes(self._root, file.name, sha256)[0]
            known[sha256] = found
            return found

        if file.earlier is not None:
            return self._behind(file.earlier, links, find, in_head, cleaner)
        unknown: WovenFile | None = None
        for count, is_from_git in (*FIRST_TRIES, (len(links), True), (len(links), False)):
            versions = chain(links, count, find, self._mine.has)
            woven = self._woven(versions, committed, in_head, cleaner, is_from_git=is_from_git)
            present = woven.present()
            if present is not None and not woven.has_unknown(present):
                return woven.after(present)
            unknown = woven if present is not None else unknown
        return (unknown or woven).merged()

    def _behind(
        self,
        earlier: Earlier,
        links: list[VersionLink],
        find: Callable[[str], bytes | None],
        in_head: bytes | None,
        cleaner: Cleaner,
    ) -> tuple[bytes | None, tuple[str, ...]]:
        """The same, from what the digest has of the file and the few versions behind that."""
        versions = steps(links, find)
        weave = begin_again(earlier, self._repository) if cleaner.is_plain else None
        contents = [in_head] if versions is None else [in_head, *(each.content for each in versions)]
        if versions is None or weave is None or any(is_binary(each) for each in contents if each is not None):
            raise LedgerNeededError
        go_on(weave, versions, cleaner)
        woven = WovenFile(weave, version_lines(in_head), self._mine.has)
        present = woven.present()
        if present is None:
            raise LedgerNeededError  # HEAD went back, or has lines from elsewhere.
        return woven.after(present)

    def _woven(
        self,
        chain: VersionChain,
        committed: str,
        in_head: bytes | None,
        cleaner: Cleaner,
        *,
        is_from_git: bool,
    ) -> WovenFile:
        """
        Weave the versions of a chain.

        `is_from_git`: on top of what was committed when the first of the versions was there. What that one
        had besides is somebody's from before, whoever wrote then.
        """
        first, *later = chain.versions
        kept = [cleaner(each.content) for each in chain.versions if each.content is not None]
        is_whole = any(is_binary(each) for each in (*kept, in_head) if each is not None)
        if is_from_git:
            before = self._repository.file_at(self._head, first.time, committed)
            weave = Weave(version_lines(before, is_whole=is_whole))
            is_perhaps_mine = any(map(self._mine.has, chain.cut_off))
            by = UNKNOWN_WRITER if is_perhaps_mine else OUTSIDER
            go_on(weave, [first._replace(by=by)], cleaner, is_whole=is_whole)
        else:
            content = None if first.content is None else cleaner(first.content)
            weave = Weave(version_lines(content, is_whole=is_whole))
        go_on(weave, later, cleaner, is_whole=is_whole)
        return WovenFile(weave, version_lines(in_head, is_whole=is_whole), self._mine.has, chain.cut_off)
