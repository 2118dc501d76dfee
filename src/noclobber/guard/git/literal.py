"""
The same rules for places without the guarded shell: git commands that can be read for certain, beforehand.

There the command has not run yet, so its text has to do, with what `shell/syntax` finds in it. Git in a
script file or with options that are not known here is passed. What a command would reach is told from its
words and from the work tree as it is now.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk import hashing
from noclobber.errors import ABSENT, CannotCommitError, NoclobberError
from noclobber.guard.git.others_work import SWEPT, TAKEN, OthersFile, Strangers, content_of, refusal_for
from noclobber.guard.git.repository import GitFailedError, Repository
from noclobber.shell.syntax import located, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noclobber.guard.git.lineage import WrittenBy
    from noclobber.shell.syntax import Word

_KEEPS_STASH = ("pop", "apply", "list", "show", "drop", "clear", "branch", "create", "store")
_TAKES_A_VALUE = {
    "commit": (
        *("-m", "-F", "-C", "-c", "-t"),
        *("--message", "--file", "--author", "--date", "--fixup", "--squash"),
    ),
    "stash": ("-m", "--message"),
    "restore": ("-s", "--source"),
    "clean": ("-e", "--exclude"),
}


class GitReach(NamedTuple):
    """What a git command would do to which files."""

    what: str
    paths: tuple[str, ...] | None
    """Absolute; None: everything."""
    tracked: bool = True
    untracked: bool = False


def others_work_before(
    text: str, *, root: str, cwd: str, me: WrittenBy, known: Mapping[str, str]
) -> NoclobberError | None:
    """
    Return the refusal of a command that would take others' uncommitted work away or sweep it up, or None.

    `known` is what the agent has seen: canonical paths to hashes.
    """
    reaches = reaches_of(text, cwd)
    if not reaches:
        return None
    try:
        repository = Repository(cwd if os.path.isdir(cwd) else root)
        found = _Before(repository, Strangers(root, me, known.get, repository, has_memory=bool(known)))
        files = {each.path: each for reach in reaches for each in found.files(reach)}
    except (GitFailedError, CannotCommitError):
        return None
    return refusal_for(files.values(), root, me, cwd)


def named_files(text: str, cwd: str) -> set[str]:
    """Return the files, and folders, that a text names to git for a commit."""
    return {path for reach in reaches_of(text, cwd) if reach.what == SWEPT for path in reach.paths or ()}


def reaches_of(text: str, cwd: str) -> list[GitReach]:
    """Return what the git commands in a text would reach, as far as that can be told."""
    found = []
    for command, below in located(parse(text).commands):
        if command.name == "git":
            folder, words = _after_global_options(command.words[1:], os.path.join(cwd, below or ""))
            reach = _reach(words, folder) if words and all(word.is_bound for word in words) else None
            # Which files are meant can be told only if the shell puts nothing in the place of a word.
            is_told = all(word.is_literal for word in words) or (reach is not None and reach.paths is None)
            found += [reach] if reach is not None and is_told else []
    return found


def _after_global_options(words: tuple[Word, ...], cwd: str) -> tuple[str, tuple[Word, ...]]:
    while words and words[0].text.startswith("-"):
        option = words[0].text
        if option == "-C" and len(words) > 1:
            cwd = os.path.join(cwd, words[1].text)
        if option in ("-C", "-c"):
            words = words[2:]
        elif option in ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"):
            words = words[1:]
        else:
            return cwd, ()  # Another repository, or something that is not known here.
    return cwd, words


def _reach(words: tuple[Word, ...], cwd: str) -> GitReach | None:
    name, rest = words[0].text, [word.text for word in words[1:]]
    options, paths = _split(name, rest)
    letters = "".join(option[1:] for option in options if not option.startswith("--"))
    named = tuple(os.path.normpath(os.path.join(cwd, path)) for path in paths)
    if name == "stash":
        if paths[:1] and paths[0] in _KEEPS_STASH:
            return None
        named = named[1:] if paths[:1] in (["push"], ["save"]) else named
        is_all = any(letter in letters for letter in "ua") or bool(
            {"--include-untracked", "--all"} & {*options}
        )
        return GitReach(TAKEN, named or None, untracked=is_all)
    if name == "reset":
        return GitReach(TAKEN, None) if "--hard" in options else None
    if name in ("checkout", "switch"):
        if "f" in letters or {"--force", "--discard-changes"} & {*options}:
            return GitReach(TAKEN, None)
        places = rest[rest.index("--") + 1 :] if "--" in rest else [path for path in paths if path == "."]
        return (
            GitReach(TAKEN, tuple(os.path.normpath(os.path.join(cwd, path)) for path in places))
            if places
            else None
        )
    if name == "restore":
        is_index_only = bool({"--staged"} & {*options} or "S" in letters) and not (
            "--worktree" in options or "W" in letters
        )
        return GitReach(TAKEN, named) if named and not is_index_only else None
    if name == "clean":
        is_dry = "n" in letters or "--dry-run" in options
        return None if is_dry else GitReach(TAKEN, named or None, tracked=False, untracked=True)
    if name == "commit":
        is_all = "a" in letters or "--all" in options
        return GitReach(SWEPT, None) if is_all else GitReach(SWEPT, named) if named else None
    if name == "add":
        is_update = "u" in letters or "--update" in options
        is_all = is_update or "A" in letters or "--all" in options
        if not named and not is_all:
            return None
        return GitReach(SWEPT, named or None, untracked=not is_update)
    return None


def _split(name: str, words: list[str]) -> tuple[list[str], list[str]]:
    """Return options and the rest. The values of options are neither."""
    options: list[str] = []
    others: list[str] = []
    values = _TAKES_A_VALUE.get(name, ())
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return options, others + words[at + 1 :]
        if word.startswith("-") and word != "-":
            is_cluster = not word.startswith("--") and f"-{word[-1]}" in values
            at += word in values or is_cluster
            options.append(word)
        else:
            others.append(word)
        at += 1
    return options, others


class _Before:
    """The work tree as it is, and whose what is in it."""

    def __init__(self, repository: Repository, strangers: Strangers) -> None:
        self._repository, self._strangers = repository, strangers

    def files(self, reach: GitReach) -> list[OthersFile]:
        """Return the files of others that a command would reach."""
        repository, head = self._repository, self._repository.head()
        names = repository.changed_since(head) if reach.tracked else set()
        names |= repository.untracked() if reach.untracked else set()
        committed = repository.tree(head, sorted(names))
        found = []
        for name in sorted(names):
            path = f"{repository.top}/{name}"
            if reach.paths is not None and not any(
                path == each or path.startswith(f"{each}/") for each in reach.paths
            ):
                continue
            content = content_of(path)
            is_named = reach.what == SWEPT and path in (reach.paths or ())
            sha256 = ABSENT if content is None else hashing.of_bytes(content)
            owner = self._strangers.owner(path, sha256, is_named)
            entry = committed.get(name)
            if owner is None or (content is not None and repository.is_as_committed(name, content, entry)):
                continue
            if content is None and reach.what == TAKEN:
                continue  # What is gone comes back.
            found.append(OthersFile(path, owner, reach.what))
        return found
