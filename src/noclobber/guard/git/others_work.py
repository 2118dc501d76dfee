"""
git commands that reach too far: what they would take away from others, or sweep up into a commit.

Asked before a guarded command lands (`guard/landing.RULES`). Decided from what the command did, not from its
text, so that a script is judged as a typed command is:

- *Taken away*: a file had uncommitted changes of somebody else, and the command put a committed version in
  its place or removed it (stash, checkout, restore, reset, clean).
- *Swept up*: a commit or an index that the command made has uncommitted changes of somebody else (commit -a,
  add -A).

Somebody else is another agent or session, by the ledger, however long ago, or an outsider. What this agent
has seen as it is now is its own to change, and so is what its subagents wrote. Of outsiders nothing is said
about a caller that has no memory at all: then any change in an editor is a stranger's, one's own, too.
Nor about a file that a `git add` or `git commit` in the command's text names: a command of its own may have
written it, which nobody can tell, and a binary or deleted file it cannot read.

`git clean` leaves no trace in the repository, so for it alone the text counts: the command's, or that of a
script that it names.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.clock import iso8601
from noclobber.disk import hashing
from noclobber.disk.reading import open_path
from noclobber.errors import ABSENT, DELETED, CannotCommitError, NoclobberError, OthersWorkError
from noclobber.guard.git.lineage import OUTSIDER, WrittenBy, author_of
from noclobber.guard.git.reading import quiet_git
from noclobber.guard.git.repository import GitEntry, GitFailedError, Repository
from noclobber.ledger.history import landed_writes
from noclobber.shell.changes import DELETE, FILE, TreeChange, TreeChanges
from noclobber.shell.git_folders import top_around
from noclobber.text.merge import split_lines
from noclobber.text.visible import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.landing import CommandRun
    from noclobber.guard.turn import Turn
    from noclobber.ledger.history import LandedWrite

MOST_NAMED = 20
TO_SECONDS = len("2026-01-01T00:00:00")
MOST_SCRIPT_BYTES = 1 << 20
_CLEAN = re.compile(r"\bgit\b[^\n;|&]*\bclean\b")
TAKEN, SWEPT = "taken away", "swept up"


class OthersFile(NamedTuple):
    """A file with uncommitted changes of somebody else."""

    path: str
    owner: WrittenBy
    what: str = ""
    """`taken away` or `swept up`."""


def rule(command: CommandRun, changes: TreeChanges, turn: Turn | CommandTurn) -> NoclobberError | None:
    """Refuse a command that takes others' uncommitted work away, or sweeps it up; None: it may land."""
    files: dict[str, TreeChange] = {}
    git_files: dict[str, TreeChange] = {}
    for each in (changes, *changes.beside):
        for change in each.files():
            if each is not changes or "/.git/" in f"/{change.path}/":
                git_files[f"{each.root}/{change.path}"] = change
            elif change.kind == FILE:
                files[f"{each.root}/{change.path}"] = change
    is_clean = bool(files) and _names_clean(command)
    if not git_files and not is_clean:
        return None
    from noclobber.guard.git.literal import named_files  # It stands on this module.

    named = named_files(shlex.join(command.argv), command.cwd)
    found = []
    for top, inside in _by_work_tree(changes.root, files, git_files).items():
        try:
            repository = Repository(top)
            reach = _Reach(repository, inside, git_files, is_clean=is_clean)
            found += reach.found(strangers_of(command.expect, turn, repository), named)
        except (GitFailedError, CannotCommitError):
            continue  # Not a repository, or a broken one: nothing of git's can be said.
    return refusal_for(found, changes.root, author_in(turn), command.cwd)


def author_in(turn: Turn | CommandTurn) -> WrittenBy:
    """Return who acts in a turn."""
    return WrittenBy(turn.context.agent_id, turn.context.session_id)


def _by_work_tree(
    root: str, files: dict[str, TreeChange], git_files: Iterable[str]
) -> dict[str, dict[str, TreeChange]]:
    """Return every work tree that a command reaches, each with the files in it: those of nested ones, too."""
    if "GIT_DIR" in os.environ:
        return {root: files}  # git asks nothing else.
    found: dict[str, dict[str, TreeChange]] = {}
    tops: dict[str, str] = {}
    for path, change in files.items():
        folder = os.path.dirname(path)
        if folder not in tops:
            tops[folder] = top_around(folder)
        if tops[folder]:
            found.setdefault(tops[folder], {})[path] = change
    for git_folder in {_git_folder_around(os.path.dirname(path)) for path in git_files} - {""}:
        if top := _work_tree_of(git_folder):
            found.setdefault(top, {})
    return found


def _git_folder_around(folder: str) -> str:
    """Return the git folder that a folder is in, or is; empty if it is in none."""
    while folder and not (
        os.path.lexists(f"{folder}/HEAD")
        and (os.path.isdir(f"{folder}/objects") or os.path.lexists(f"{folder}/commondir"))
    ):
        folder = folder.rpartition("/")[0]
    return folder


def _work_tree_of(git_folder: str) -> str:
    """Return the work tree of a git folder: a clone's, a linked one, a submodule's. Empty: none."""
    above, _, name = git_folder.rpartition("/")
    if name == ".git":
        return above
    if said := content_of(f"{git_folder}/gitdir"):  # A linked one.
        return os.path.dirname(os.fsdecode(said).strip())
    said = (quiet_git(git_folder, "config", "--file", f"{git_folder}/config", "core.worktree") or b"").strip()
    return os.path.realpath(os.path.join(git_folder, os.fsdecode(said))) if said else ""


def refusal_for(found: Iterable[OthersFile], root: str, me: WrittenBy, cwd: str) -> NoclobberError | None:
    """Return the refusal that names files, owners and a way out; None if there are no files."""
    listed = sorted(found)
    if not listed:
        return None
    named = [
        f"{plain(os.path.relpath(each.path, root))} ({plain(each.owner.who)})" for each in listed[:MOST_NAMED]
    ]
    more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
    what = " and ".join(sorted({each.what for each in listed}))
    return OthersWorkError(
        listed[0].path,
        f"Uncommitted changes of others would be {what}: {', '.join(named)}{more}. Nothing was changed. "
        f"{_ways_out(listed, me, cwd)}What you have read as it is now counts as yours.",
        files=", ".join(plain(os.path.relpath(each.path, root)) for each in listed[:MOST_NAMED]) + more,
        owners="; ".join(sorted({plain(each.owner.who) for each in listed})[:MOST_NAMED]),
    )


def _ways_out(listed: Sequence[OthersFile], me: WrittenBy, cwd: str) -> str:
    """Return which commands commit what the agent means to commit, if that is what it was about."""
    swept = [each for each in listed if each.what == SWEPT]
    said = ""
    if swept and (me.session_id or me.agent_id):
        who = ("--session", me.session_id) if me.session_id else ("--agent", me.agent_id or "")
        said += f"To commit your own changes: `noclobber commit --mine {shlex.join(who)} -m MESSAGE`. "
    unknown = [os.path.relpath(each.path, cwd) for each in swept if each.owner == OUTSIDER]
    # A name that cannot be shown as it is cannot be part of a command that is shown.
    if unknown := [name for name in unknown if name.isprintable()]:
        names = shlex.join(unknown[:MOST_NAMED])
        words = f"git add -- {names} && git commit -m MESSAGE -- {names}"
        said += f"To commit files that a command of yours wrote: `{words}`. "
    return said


def strangers_of(
    expect: Mapping[str, str], turn: Turn | CommandTurn, repository: Repository
) -> Callable[[str, str, bool], WrittenBy | None]:
    """Return what tells which stranger made the present version of a file (`Strangers.owner`)."""

    def known(path: str) -> str | None:
        if path in expect:
            return expect[path]
        with turn.memory as memory:
            return memory.recall(path, path)[0].last_for(path, path)

    with turn.memory as memory:
        has_memory = bool(expect) or bool(memory.paths())
    return Strangers(turn.root, author_in(turn), known, repository, has_memory=has_memory).owner


class Strangers:
    """Whose the present version of a file is, from one agent's point of view."""

    def __init__(
        self,
        root: str,
        me: WrittenBy,
        known: Callable[[str], str | None],
        repository: Repository,
        *,
        has_memory: bool,
    ) -> None:
        self._root, self._me, self._known, self._has_memory = root, me, known, has_memory
        self._repository = repository
        self._writes: dict[str, list[LandedWrite]] | None = None

    def owner(self, path: str, sha256: str, is_named: bool) -> WrittenBy | None:
        """
        Return the stranger who made this version, or with `ABSENT` who removed the file; None: nobody.

        `is_named`: the command's text names the file for a commit.
        """
        if self._known(path) == sha256:
            return None
        write = self._last_to_leave(path, sha256)
        if write is None:
            return OUTSIDER if self._has_memory and not is_named else self._underneath(path)
        return self._if_stranger(author_of(write))

    def _if_stranger(self, author: WrittenBy) -> WrittenBy | None:
        return None if self._me.owns(author) else author

    def _underneath(self, path: str) -> WrittenBy | None:
        """
        Return the stranger on whose uncommitted version somebody unknown has built.

        That somebody may be the caller, and their part its own; what is below it is not.
        """
        writes = (self._writes or {}).get(path)
        stranger = self._if_stranger(author_of(writes[-1])) if writes else None
        if stranger is None or not writes:
            return None
        name = self._repository.below_top(path)
        done = self._repository.ended("log", "-1", "--format=%ct", "HEAD", "--", name or path)
        committed_s = int(done.stdout.strip() or b"0") if done.returncode == 0 else 0
        # In the same second it cannot be told which came first.
        return None if iso8601(committed_s)[:TO_SECONDS] > writes[-1].time[:TO_SECONDS] else stranger

    def _last_to_leave(self, path: str, sha256: str) -> LandedWrite | None:
        if self._writes is None:
            self._writes = {}
            for write in landed_writes(self._root):
                self._writes.setdefault(write.destination or write.path, []).append(write)
        for write in reversed(self._writes.get(path, ())):
            left = write.before if write.destination is not None else write.after
            if left == sha256 or (sha256 == ABSENT and left in (ABSENT, DELETED)):
                return write
        return None


class _Reach:
    """What a command's changes mean to a repository, before they land."""

    def __init__(
        self,
        repository: Repository,
        files: dict[str, TreeChange],
        git_files: dict[str, TreeChange],
        *,
        is_clean: bool,
    ) -> None:
        """`files` and `git_files` are by absolute path; of the latter, those of other repositories, too."""
        self._repository = repository
        names = ((repository.below_top(path), change) for path, change in files.items())
        self._files = {name: change for name, change in names if name is not None}
        self._git_files, self._is_clean = git_files, is_clean
        objects = sorted(
            {
                change.upper[: change.upper.rindex("/objects/") + len("/objects")]
                for path, change in git_files.items()
                if "/objects/" in path and change.upper
            }
        )
        # Objects that the command made are in its private layer only.
        self._made = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(objects)} if objects else {}

    def found(
        self, owner: Callable[[str, str, bool], WrittenBy | None], named: Collection[str]
    ) -> list[OthersFile]:
        """Return the files of others that the command takes away, or sweeps up if they are not `named`."""
        repository = self._repository
        old_head, new_head = repository.head(), self._new_head()
        moved = self._differences(old_head, new_head) if new_head not in (None, old_head) else {}
        staged = self._newly_staged()
        dirty = self._dirty(old_head, {*self._files, *moved, *staged})
        if not dirty:
            return []
        committed = repository.tree(old_head, sorted(dirty))
        found = []
        for name in sorted(dirty):
            path = f"{repository.top}/{name}"
            content = content_of(path)
            sha256 = ABSENT if content is None else hashing.of_bytes(content)
            stranger = owner(path, sha256, False)
            if stranger is None or repository.is_as_committed(name, content, committed.get(name)):
                continue
            change = self._files.get(name)
            # What the command left of it, in the order in which it counts: the commit, then the index.
            new = moved.get(name, staged.get(name, _SAME))
            if change is not None and self._is_taken(name, change, committed.get(name), moved.get(name)):
                found.append(OthersFile(path, stranger, TAKEN))
            elif new is not _SAME and self._is_swept(name, content, committed.get(name), new):
                stranger = owner(path, sha256, path in named)
                found += [OthersFile(path, stranger, SWEPT)] if stranger is not None else []
        return found

    def _new_head(self) -> str | None:
        """Return the commit that HEAD is at after the command."""
        if not any(name in path for path in self._git_files for name in ("HEAD", "refs")):
            return self._repository.head()
        text = self._git_text("HEAD")
        if not text.startswith("ref: "):
            return text or None
        ref = text.removeprefix("ref: ").strip()
        if found := self._git_text(ref):
            return found
        for line in self._git_text("packed-refs").splitlines():
            if line.endswith(f" {ref}"):
                return line.split(" ")[0]
        return None

    def _git_text(self, name: str) -> str:
        """Return the text of a file in the repository's folder as the command left it."""
        repository = self._repository
        path = f"{repository.git_folder if name == 'HEAD' else repository.common_folder}/{name}"
        change = self._git_files.get(path)
        if change is not None and change.action == DELETE:
            return ""
        path = change.upper if change is not None else path
        return (content_of(path) or b"").decode("utf-8", "surrogateescape").strip()

    def _differences(self, old: str | None, new: str | None) -> dict[str, GitEntry | None]:
        """Return the paths in which two commits differ, with what the new one has."""
        if new is None:
            return {}
        from_tree = old or self._run("hash-object", "-t", "tree", "/dev/null").decode().strip()
        listed = self._run("diff-tree", "-r", "-z", "--no-renames", from_tree, new).split(b"\0")[:-1]
        found: dict[str, GitEntry | None] = {}
        for about, name in zip(listed[::2], listed[1::2], strict=True):
            _, mode, _, oid, _ = about.decode().split(" ")
            found[name.decode("utf-8", "surrogateescape")] = None if mode == "000000" else GitEntry(mode, oid)
        return found

    def _newly_staged(self) -> dict[str, GitEntry | None]:
        """Return the paths in which the command's index differs from the present one."""
        change = self._git_files.get(self._repository.index)
        if change is None or not change.upper:
            return {}
        old = self._index(self._repository.index)
        new = self._index(change.upper)
        return {path: new.get(path) for path in {*old, *new} if old.get(path) != new.get(path)}

    def _index(self, path: str) -> dict[str, GitEntry]:
        if not os.path.exists(path):
            return {}
        listed = self._run("ls-files", "--stage", "-z", index=path)
        found = {}
        for entry in listed.split(b"\0")[:-1]:
            about, _, name = entry.partition(b"\t")
            mode, oid, _ = about.decode().split(" ")
            found[name.decode("utf-8", "surrogateescape")] = GitEntry(mode, oid)
        return found

    def _dirty(self, head: str | None, names: set[str]) -> set[str]:
        """Return those of the files that are not as they are in the last commit."""
        changed = self._repository.changed_since(head, sorted(names))
        tracked = set(self._repository.tree(head, sorted(names)))
        new = {name for name in names - tracked if os.path.lexists(f"{self._repository.top}/{name}")}
        return changed | (new - self._repository.ignored(sorted(new)))

    def _is_taken(
        self, name: str, change: TreeChange, committed: GitEntry | None, moved: GitEntry | None
    ) -> bool:
        if change.action == DELETE:
            is_stashed = f"{self._repository.common_folder}/refs/stash" in self._git_files
            return self._is_clean or is_stashed or committed is not None
        known = {entry.oid for entry in (committed, moved) if entry is not None}
        oid = self._run("hash-object", f"--path={name}", "--", change.upper).decode().strip()
        return oid in known

    def _is_swept(
        self, name: str, content: bytes | None, committed: GitEntry | None, new: GitEntry | None
    ) -> bool:
        """True if a new blob has some of what the work tree has and the last commit has not."""
        if new is None or content is None:
            return new is None and content is None  # A deletion, if it was not the command's own.
        old = split_lines(b"" if committed is None else self._repository.blob(committed.oid))
        here = split_lines(self._repository.cleaner(name)(content))
        there = split_lines(self._run("cat-file", "blob", new.oid))
        added, added_there = Counter(here) - Counter(old), Counter(there) - Counter(old)
        gone, gone_there = Counter(old) - Counter(here), Counter(old) - Counter(there)
        is_new_file = committed is None and there == here
        return is_new_file or bool(added & added_there) or bool(gone & gone_there)

    def _run(self, *words: str, index: str | None = None) -> bytes:
        return self._repository.run(*words, index=index, more=self._made)


_SAME = GitEntry("", "")


def content_of(path: str) -> bytes | None:
    """Return what a file holds, None if it is not there or cannot be read."""
    try:
        descriptor = open_path(path)  # Somebody's commit may have it for a moment.
        with open(descriptor, "rb") as file:
            return file.read()
    except OSError:
        return None


def _names_clean(command: CommandRun) -> bool:
    """True if the command, or a script that it names, says `git clean`."""
    text = " ".join(command.argv)
    if _CLEAN.search(text):
        return True
    for word in {*command.argv, *text.split()}:
        script = (
            content_of(os.path.join(command.cwd, word)) if "\0" not in word and len(word) < 4096 else None
        )
        if script is not None and _CLEAN.search(script[:MOST_SCRIPT_BYTES].decode("utf-8", "replace")):
            return True
    return False
