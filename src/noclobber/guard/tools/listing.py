"""
Names of files and folders, and lines that match, for tools that show a model what there is.

Entries come sorted by name. A link counts as a file and is never followed, so nothing outside the workspace
is listed. noclobber's own files and those of locks are left out: agents do not read them. Looking here does
not count as reading: no baseline moves.
"""

from __future__ import annotations

import fnmatch
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.project import BESIDE_PREFIX, STATE_FOLDER
from noclobber.disk.paths import is_reserved
from noclobber.errors import (
    AccessDeniedError,
    BadRequestError,
    MissingFileError,
    NoclobberError,
    NotAFileError,
    OutsideWorkspaceError,
)
from noclobber.lock.names import is_lock_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from noclobber.guard.turn import Turn

MOST_ENTRIES = 2000  # Of one answer. A model reads no more.
MOST_MATCHES = 500
MOST_PATTERN_LETTERS = 1000
MOST_OPTIONS = 1000  # What the braces of one pattern stand for, all together.
_FOREIGN = re.compile(r"^!|[+@!]\(|[?*]\([^)]*\||\[\[:|\{[^{},]*\.\.")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
MOST_SEARCHED_BYTES = 8 << 20  # Of one file.
_SKIPPED = {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"}
"""Folders that a walk does not enter, unless it starts in one."""


class ListedEntry(NamedTuple):
    """One file or folder: its path relative to the workspace, with `/`."""

    path: str
    is_folder: bool
    size_bytes: int
    modified_s: float


class MatchedLine(NamedTuple):
    """One line that matches, with the path relative to the workspace and the line's number from 1."""

    path: str
    line: int
    text: str


def entries(turn: Turn, folder: str = ".") -> list[ListedEntry]:
    """Return what is in a folder of the workspace."""
    return entries_in(turn.root, _folder(turn, folder))


def walk(turn: Turn, folder: str = ".") -> Iterator[ListedEntry]:
    """Yield every file below a folder. What cannot be opened is passed over."""
    yield from _walk(turn.root, _folder(turn, folder))


def find(turn: Turn, pattern: str, folder: str = ".") -> list[ListedEntry]:
    """Return the files below a folder whose path fits a pattern: `*.py`, `src/**/*.py`."""
    top = _folder(turn, folder)
    fits = glob_test(pattern)
    return [entry for entry in _walk(turn.root, top) if fits(_below(turn.root, top, entry.path))]


def search(turn: Turn, text: str, folder: str = ".", pattern: str | None = None) -> list[MatchedLine]:
    """Return the lines below a folder that contain a text, at most `MOST_MATCHES`."""
    if not text:
        raise BadRequestError("", "The text to search for is empty.", parameter="text")
    wanted, found = text.encode("utf-8", "surrogateescape"), list[MatchedLine]()
    fits = glob_test(pattern) if pattern else None
    start = turn.guard.locate(folder) if folder not in ("", ".", "/") else turn.root
    candidates: Iterator[str]
    if os.path.isfile(start):
        candidates = iter([os.path.relpath(start, turn.root)])
    else:
        top = _folder(turn, folder)
        listed = _walk(turn.root, top)
        candidates = (e.path for e in listed if fits is None or fits(_below(turn.root, top, e.path)))
    for path in candidates:
        for number, line in _lines_with(turn, path, wanted):
            found.append(MatchedLine(path, number, line))
            if len(found) >= MOST_MATCHES:
                return found
    return found


def glob_test(pattern: str, *, at_any_depth: bool = True) -> Callable[[str], bool]:
    """
    Return a test for paths: `*`, `?`, `[a-z]`, `{py,md}`, and `**`, which crosses folders.

    `at_any_depth`: a pattern without `/` fits in every folder, and not only in the first.
    """
    if not pattern:
        raise BadRequestError("", "The pattern is empty. Send one such as '*.py'.", parameter="pattern")
    if len(pattern) > MOST_PATTERN_LETTERS:
        raise BadRequestError(
            "",
            f"The pattern has {len(pattern)} letters. Send one of at most {MOST_PATTERN_LETTERS}.",
            parameter="pattern",
        )
    if _FOREIGN.search(pattern):
        raise BadRequestError(
            "",
            f"The pattern {pattern!r} is of another dialect (! in front, @(…), [[:…:]] or {{a..b}}). "
            "Use *, **, ?, [a-z], [!a] and {a,b}.",
            parameter="pattern",
        )
    pattern = pattern.replace("[^", "[!")
    options = [_parts(option, at_any_depth) for option in _options(pattern)]
    return lambda path: any(_fits(path.split("/"), parts) for parts in options)


def _options(pattern: str) -> list[str]:
    """Return what the braces of a pattern stand for. The innermost come first, so they may nest."""
    waiting, done = [pattern], list[str]()
    while waiting:
        option = waiting.pop()
        braces = _BRACES.search(option)
        if braces is None:
            done.append(option)
        else:
            start, end = braces.span()
            waiting += [f"{option[:start]}{each}{option[end:]}" for each in braces[1].split(",")]
        if len(waiting) + len(done) > MOST_OPTIONS:
            raise BadRequestError(
                "", f"The braces stand for more than {MOST_OPTIONS} patterns.", parameter="pattern"
            )
    return done


def _parts(pattern: str, at_any_depth: bool) -> list[str]:
    parts = pattern.removeprefix("./").lstrip("/").split("/")
    if len(parts) == 1 and at_any_depth:
        parts.insert(0, "**")
    if parts[-1] == "**":
        parts.append("*")  # `src/**` is every file below `src`.
    return parts


def _fits(names: Sequence[str], parts: Sequence[str]) -> bool:
    """True if the parts fit all names. By the places that each part can end at: `**/**/**` costs no more."""
    reached = {0}
    for part in parts:
        if part == "**":
            reached = set(range(min(reached), len(names)))
        else:
            reached = {at + 1 for at in reached if at < len(names) and fnmatch.fnmatchcase(names[at], part)}
        if not reached:
            return False
    return len(names) in reached


def is_ours(name: str) -> bool:
    """True for names of noclobber's own files and of locks' files, which listings leave out."""
    folded = name.casefold()
    return folded == STATE_FOLDER or folded.startswith(BESIDE_PREFIX) or is_lock_file(name)


def _lines_with(turn: Turn, path: str, wanted: bytes) -> Iterator[tuple[int, str]]:
    try:
        if os.stat(os.path.join(turn.root, path)).st_size > MOST_SEARCHED_BYTES:
            return
        content = turn.guard.read(path).content
    except (OSError, NoclobberError):
        return  # Deleted or made unreadable since it was listed.
    if wanted not in content or b"\0" in content[:8192]:
        return
    for number, line in enumerate(content.splitlines(), 1):
        if wanted in line:
            yield number, line.decode("utf-8", "replace")


def _folder(turn: Turn, given: str) -> str:
    """Return the canonical path of a folder in the workspace."""
    meant = turn.guard.lexical(given) if given not in ("", ".", "/") else turn.root
    real = os.path.realpath(meant)
    if real != turn.root and not real.startswith(turn.root.rstrip("/") + "/"):
        raise OutsideWorkspaceError(meant, f"this is outside the workspace {turn.root}.", root=turn.root)
    if is_reserved(real, turn.root):
        raise OutsideWorkspaceError(meant, "these are noclobber's own records; tools do not touch them.")
    return real


def entries_in(root: str, folder: str) -> list[ListedEntry]:
    """Return what is in a folder of this real path."""
    found = []
    try:
        with os.scandir(folder) as scanned:
            for entry in scanned:
                if is_ours(entry.name):
                    continue
                try:
                    about = entry.stat(follow_symlinks=False)
                    is_folder = entry.is_dir(follow_symlinks=False)
                except OSError:
                    continue  # Deleted since.
                path = os.path.relpath(entry.path, root)
                found.append(ListedEntry(path, is_folder, about.st_size, about.st_mtime))
    except FileNotFoundError:
        raise MissingFileError(folder, "There is no such folder.") from None
    except NotADirectoryError:
        raise NotAFileError(folder, "This is not a folder. Name a folder, or read the file.") from None
    except PermissionError:
        raise AccessDeniedError(folder, "This user may not list the folder.") from None
    return sorted(found)


def _walk(root: str, top: str) -> Iterator[ListedEntry]:
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            listed = entries_in(root, folder)
        except NoclobberError:
            if folder == top:
                raise
            continue  # Deleted or made unreadable since it was listed.
        yield from (entry for entry in listed if not entry.is_folder)
        inner = [entry.path for entry in listed if entry.is_folder]
        waiting += [
            os.path.join(root, path) for path in reversed(inner) if os.path.basename(path) not in _SKIPPED
        ]


def _below(root: str, top: str, path: str) -> str:
    return path if top == root else os.path.relpath(os.path.join(root, path), top)
