"""
The few things that a commit needs of git, by its plumbing commands.

Always git itself, never its files: attributes, worktrees and the format of the index are its business. Paths
are relative to the top of the work tree, as git spells them, and are taken literally.

`run` reads, by `reading.GitReader`. `committing` is git as the user would call it, with hooks and filters.
Nothing but a commit that somebody asked for uses it, in a `Repository` that was made for one.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from noclobber.errors import CannotCommitError
from noclobber.guard.git.reading import PATIENCE_S, GitReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FILE, EXECUTABLE, LINK, SUBMODULE = "100644", "100755", "120000", "160000"
MOST_WORDS = 500
_ABOUT_CONTENT = ("text", "eol", "crlf", "filter", "ident", "working-tree-encoding")

_IN_PROGRESS = (
    ("MERGE_HEAD", "A merge", "git merge --abort"),
    ("rebase-merge", "A rebase", "git rebase --abort"),
    ("rebase-apply", "A rebase or `git am`", "git rebase --abort"),
    ("CHERRY_PICK_HEAD", "A cherry-pick", "git cherry-pick --abort"),
    ("REVERT_HEAD", "A revert", "git revert --abort"),
)


class GitEntry(NamedTuple):
    """One path in a tree or an index: its mode and the object's name."""

    mode: str
    oid: str


class GitFailedError(Exception):
    """git said no; the message is its own."""


def in_one_line(said: bytes) -> str:
    """Return what git said, as a part of a sentence: messages are one line, and a line feed would show."""
    lines = said.decode("utf-8", "backslashreplace").splitlines()
    return "; ".join(line.strip() for line in lines if line.strip())


def _printed(words: tuple[str, ...], done: subprocess.CompletedProcess[bytes]) -> bytes:
    if done.returncode != 0:
        raise GitFailedError(in_one_line(done.stderr) or f"git {words[0]} ended with {done.returncode}")
    return done.stdout


@contextmanager
def _failures(words: tuple[str, ...]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise GitFailedError(f"git cannot be run: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise GitFailedError(f"git {words[0]} did not end within {PATIENCE_S} s") from error


class Repository:
    """The repository around a folder, and that work tree of it."""

    def __init__(self, folder: str, *, to_commit: bool = False) -> None:
        self._reader, self._to_commit = GitReader(folder), to_commit
        try:
            found = self.run(
                *("rev-parse", "--show-object-format", "--show-toplevel", "--absolute-git-dir"),
                *("--git-path", "index", "--git-common-dir"),
            )
        except GitFailedError as error:
            raise CannotCommitError(folder, f"This is not in a work tree of git: {error}") from None
        kind, top, self.git_folder, *names = found.decode("utf-8", "surrogateescape").splitlines()
        self.top = os.path.realpath(top)
        self.index, common = (os.path.normpath(os.path.join(folder, name)) for name in names)
        self.common_folder = common
        """Where branches and objects are; a linked work tree has a git folder of its own inside of it."""
        self.no_commit = "0" * (64 if kind == "sha256" else 40)
        """How git spells that there is no commit."""
        self._reader = GitReader(self.top)
        self._settings: dict[str, str] | None = None
        self._hooks: str | None = None

    def run(
        self,
        *words: str,
        stdin: bytes = b"",
        index: str | None = None,
        more: Mapping[str, str] | None = None,
    ) -> bytes:
        """Ask git something and return what it printed. `GitFailedError` if it fails."""
        return _printed(words, self.ended(*words, stdin=stdin, index=index, more=more))

    def ended(
        self,
        *words: str,
        stdin: bytes = b"",
        index: str | None = None,
        more: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Ask git something, and return its process when it has ended. `more` goes into its environment."""
        with _failures(words):
            return self._reader.ended(*words, stdin=stdin, more=self._changed(index) | {**(more or {})})

    def committing(self, *words: str, stdin: bytes = b"", index: str | None = None) -> bytes:
        """Run git as the user would, for a commit: it obeys the repository's configuration."""
        return _printed(words, self.committed(*words, stdin=stdin, index=index))

    def committed(
        self, *words: str, stdin: bytes = b"", index: str | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git as the user would, and return its process when it has ended."""
        with _failures(words), self.begun(*words, index=index) as process:
            try:
                printed, said = process.communicate(stdin, PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            return subprocess.CompletedProcess(words, process.returncode, printed, said)

    def begun(
        self, *words: str, index: str | None = None, more: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start git as the user would, for a commit."""
        if not self._to_commit:
            raise AssertionError("this repository is only read")
        return subprocess.Popen(
            ["git", *words],
            cwd=self.top,
            env=os.environ | self._changed(index) | {**(more or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @staticmethod
    def _changed(index: str | None) -> dict[str, str]:
        """
        What is another in git's environment: paths are no patterns, and the index is a given one.

        Without optional locks: comparing a submodule would write that one's index, and a command that commits
        there would find that somebody else has changed it since it began.
        """
        changed = {"GIT_LITERAL_PATHSPECS": "1", "GIT_OPTIONAL_LOCKS": "0"}
        return changed if index is None else {**changed, "GIT_INDEX_FILE": index}

    # -- what is there ----------------------------------------------------------------------------------

    def head(self) -> str | None:
        """Return the commit that HEAD is at; None on a branch without one."""
        done = self.ended("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def is_set(self, name: str) -> bool:
        """Return whether one of the settings that matter here is in force."""
        if self._settings is None:
            done = self.ended("config", "--null", "--get-regexp", r"^(core\.autocrlf|commit\.gpgsign)$")
            pairs = (each.partition("\n") for each in done.stdout.decode("utf-8", "replace").split("\0"))
            self._settings = {key: value.lower() if mark else "true" for key, mark, value in pairs}
        return self._settings.get(name, "") not in ("", "false", "no", "off", "0")

    def has_hook(self, name: str) -> bool:
        """Return whether there is a hook of this name, where the repository's configuration has its hooks."""
        if self._hooks is None:
            found = self.committing("rev-parse", "--git-path", "hooks").decode("utf-8", "surrogateescape")
            self._hooks = os.path.join(self.top, found.rstrip("\n"))
        return os.access(f"{self._hooks}/{name}", os.X_OK)

    def refuse_in_progress(self) -> None:
        """Raise if git is in the middle of something that a commit would end or disturb."""
        for name, what, remedy in _IN_PROGRESS:
            if os.path.lexists(f"{self.git_folder}/{name}"):
                raise CannotCommitError(
                    self.top, f"{what} is in progress. Finish it first, or give it up: {remedy}."
                )
        if unmerged := self.run("ls-files", "--unmerged", "-z"):
            name = unmerged.split(b"\0")[0].partition(b"\t")[2].decode("utf-8", "surrogateescape")
            raise CannotCommitError(
                f"{self.top}/{name}", "It has conflicts of a merge. Resolve them and `git add` it first."
            )

    def tree(self, commit: str | None, paths: Iterable[str]) -> dict[str, GitEntry]:
        """Return what a commit has at these paths."""
        if commit is None:
            return {}
        found: dict[str, GitEntry] = {}
        for some in _portions(paths):
            listed = self.run("ls-tree", "-z", "--full-tree", commit, "--", *some)
            for entry in listed.split(b"\0")[:-1]:
                about, _, name = entry.partition(b"\t")
                mode, _, oid = about.decode().split(" ")
                found[name.decode("utf-8", "surrogateescape")] = GitEntry(mode, oid)
        return found

    def staged(self, paths: Iterable[str], index: str | None = None) -> dict[str, GitEntry]:
        """Return what the index has at these paths."""
        found: dict[str, GitEntry] = {}
        for some in _portions(paths):
            listed = self.run("ls-files", "--stage", "-z", "--", *some, index=index)
            for entry in listed.split(b"\0")[:-1]:
                about, _, name = entry.partition(b"\t")
                mode, oid, _ = about.decode().split(" ")
                found[name.decode("utf-8", "surrogateescape")] = GitEntry(mode, oid)
        return found

    def head_at(self, head: str | None, time: str) -> str | None:
        """Return the commit that the branch was at, at a time, by the times that its commits carry."""
        if head is None or not time:
            return head
        words = ("rev-list", "--first-parent", "--max-count=1", f"--before={time}")
        return self.run(*words, head).decode().strip() or None

    def file_at(self, head: str | None, time: str, path: str) -> bytes | None:
        """Return what the branch had at a path, at a time; None if no file."""
        entry = self.tree(self.head_at(head, time), [path]).get(path)
        return self.blob(entry.oid) if entry is not None and entry.mode in (FILE, EXECUTABLE) else None

    def changed_since(self, commit: str | None, names: Iterable[str] | None = None) -> set[str]:
        """Return the files, of these or of all, that differ from a commit, and perhaps some that do not."""
        if commit is None:
            return set()
        words = ("diff-index", "--name-only", "--no-renames", "-z", commit, "--")
        portions = _portions(names) if names is not None else iter([[]])
        listed = b"".join(self.run(*words, *some) for some in portions)
        return {name.decode("utf-8", "surrogateescape") for name in listed.split(b"\0")[:-1]}

    def untracked(self) -> set[str]:
        """Return the files that git neither has nor ignores."""
        listed = self.run("ls-files", "--others", "--exclude-standard", "-z")
        return {name.decode("utf-8", "surrogateescape") for name in listed.split(b"\0")[:-1]}

    def is_as_committed(self, name: str, content: bytes | None, committed: GitEntry | None) -> bool:
        """True if a file only looks changed to git: its times are others than in the index."""
        if content is None or committed is None:
            return False
        return self.cleaner(name)(content) == self.blob(committed.oid)

    def blob(self, oid: str) -> bytes:
        """Return the content of an object, as it is in the repository."""
        return self.run("cat-file", "blob", oid)

    def blobs(self, oids: Iterable[str]) -> dict[str, bytes]:
        """Return the content of several objects, by one process."""
        every = list(dict.fromkeys(oids))
        if not every:
            return {}
        said = self.run("cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in every).encode())
        found, at = {}, 0
        for oid in every:
            about, _, _ = said[at : at + 200].partition(b"\n")
            words = about.split()
            if len(words) != 3 or words[1] != b"blob":
                raise GitFailedError(f"{about.decode('ascii', 'replace')}: this is no content of a file")
            begin = at + len(about) + 1
            at = begin + int(words[2]) + 1
            found[oid] = said[begin : at - 1]
        return found

    def ignored(self, paths: Iterable[str]) -> set[str]:
        """Return those that git ignores. `check-ignore` would take names for patterns."""
        words = ("ls-files", "--others", "--ignored", "--exclude-standard", "-z", "--")
        listed = b"".join(self.run(*words, *some) for some in _portions(paths))
        return {name.decode("utf-8", "surrogateescape") for name in listed.split(b"\0")[:-1]}

    def is_nested(self, path: str) -> bool:
        """True if a path is in another repository below this one: a submodule, or a clone in a clone."""
        folder = os.path.dirname(path)
        while folder:
            if os.path.lexists(f"{self.top}/{folder}/.git"):
                return True
            folder = os.path.dirname(folder)
        return False

    def below_top(self, path: str) -> str | None:
        """Return how git calls a file; None if it is not in this work tree."""
        return path[len(self.top) + 1 :] if path.startswith(f"{self.top}/") else None

    # -- content ----------------------------------------------------------------------------------------

    def cleaner(self, path: str) -> Cleaner:
        """Return what turns a file's bytes into what git would keep of them."""
        return self.cleaners([path])[path]

    def cleaners(self, paths: Iterable[str]) -> dict[str, Cleaner]:
        """Return one for each of several files, by one process."""
        every = list(paths)
        names = b"".join(path.encode("utf-8", "surrogateescape") + b"\0" for path in every)
        said = self.run("check-attr", "--stdin", "-z", *_ABOUT_CONTENT, stdin=names) if every else b""
        values = said.split(b"\0")[2::3]
        count = len(_ABOUT_CONTENT)
        found = {}
        for at, path in enumerate(every):
            about = values[at * count : (at + 1) * count]
            is_plain = all(value in (b"unspecified", b"unset") for value in about)
            found[path] = Cleaner(self, path, is_plain=is_plain and not self.is_set("core.autocrlf"))
        return found

    def cleaned(self, path: str, content: bytes) -> bytes:
        """Return what git would keep of a file. Its filters are run for a commit, and for nothing else."""
        git = self.committing if self._to_commit else self.run
        words = ("hash-object", "-w", f"--path={path}", "--stdin")
        return self.blob(git(*words, stdin=content).decode().strip())

    def keep(self, content: bytes) -> str:
        """Put content into the repository as it is; return the object's name."""
        return self.run("hash-object", "-w", "--no-filters", "--stdin", stdin=content).decode().strip()

    @contextmanager
    def private_index(self) -> Iterator[str]:
        """An index of our own, in the repository's folder; it is gone afterwards."""
        path = f"{self.git_folder}/noclobber-index-{os.urandom(8).hex()}"
        try:
            yield path
        finally:
            for name in (path, f"{path}.lock"):
                try:
                    os.unlink(name)
                except FileNotFoundError:
                    pass

    def put_into(self, index: str, entries: dict[str, GitEntry | None]) -> None:
        """Set or remove some paths of an index."""
        gone = GitEntry("0", self.no_commit)
        lines = b"".join(
            f"{(entry or gone).mode} {(entry or gone).oid}\t".encode()
            + path.encode("utf-8", "surrogateescape")
            + b"\0"
            # Removals first: a folder may become a file.
            for path, entry in sorted(entries.items(), key=lambda item: (item[1] is not None, item[0]))
        )
        self.run("update-index", "-z", "--index-info", stdin=lines, index=index)


class Cleaner:
    """What git makes of one path's bytes before it keeps them: line endings, filters, encodings."""

    def __init__(self, repository: Repository, path: str, *, is_plain: bool) -> None:
        self._repository, self._path, self.is_plain = repository, path, is_plain
        self._known: dict[bytes, bytes] = {}

    def __call__(self, content: bytes) -> bytes:
        """Return what git would keep."""
        if self.is_plain:
            return content
        if content not in self._known:
            self._known[content] = self._repository.cleaned(self._path, content)
        return self._known[content]


def _portions(paths: Iterable[str]) -> Iterator[list[str]]:
    """As many paths as fit a command line."""
    every = list(paths)
    for start in range(0, len(every), MOST_WORDS):
        yield every[start : start + MOST_WORDS]
