"""
Would git run a program that a repository names, where a command only asks it something (finding S30)?

`git status` starts a monitor of the work tree, filters and a hook if the repository's own configuration
says so, and an agent may have written that. Such a command is not plainly read-only: it runs guarded.

This looks at the files and asks nobody, so it says "yes" a little too often: for whatever looks like the name
of a program, for configuration that is elsewhere, for objects that have to be fetched, and for another
repository inside, which git would ask in its turn.

Not looked at: the user's own configuration.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.disk import small_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SIGNS = (
    *(b"fsmonitor", b"hookspath", b"filter", b"textconv", b"external", b"command", b"program", b"pager"),
    *(b"include", b"promisor"),
)
_GITLINK = b"\0\0\xe0\0"  # The mode of another repository, as the index has it.
_MOST_BYTES = 64 << 20
_MOST_FOLDERS = 64


def may_run(cwd: str, words: Iterable[str]) -> bool:
    """True if a command with these words, begun in a folder, may make git run a repository's program."""
    if "GIT_DIR" in os.environ:
        return True
    folders = {cwd}
    for word in words:  # `cd sub && git -C ../other status`: each may lead on from each.
        led = {os.path.join(here, word) for here in folders}
        folders |= {folder for folder in led if os.path.isdir(folder)}
        if len(folders) > _MOST_FOLDERS:
            return True
    places = {place for folder in folders for place in _git_folders(os.path.realpath(folder))}
    return any(map(_names_one, places))


def _git_folders(folder: str) -> Iterator[str]:
    """Yield the git folders of the repositories around a folder."""
    while True:
        if os.path.lexists(f"{folder}/HEAD"):
            yield folder  # A bare one.
        if os.path.isdir(git := f"{folder}/.git"):
            yield git
        elif os.path.lexists(git):
            try:
                named = small_file.read(git).partition(b"gitdir: ")[2].strip()
            except OSError:
                named = b""
            # Of a linked work tree the configuration is where the others' is, two folders up.
            git = os.path.join(folder, os.fsdecode(named))
            yield from (git, os.path.dirname(os.path.dirname(git)))
        if folder == "/":
            return
        folder = os.path.dirname(folder)


def _names_one(git: str) -> bool:
    if os.path.lexists(f"{git}/hooks/post-index-change"):
        return True
    for name in ("config", "config.worktree"):
        text = _content(f"{git}/{name}")
        if text is None or any(sign in text.lower() for sign in _SIGNS):
            return True
    if any(name.startswith("sharedindex.") for name in _names(git)):
        return True  # An index in two files.
    index = _content(f"{git}/index")
    return index is None or _GITLINK in index


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _content(path: str) -> bytes | None:
    """Return a file's bytes, none if there is no file; None if they are not known."""
    try:
        return small_file.read(os.path.realpath(path), most_bytes=_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError:
        return None
