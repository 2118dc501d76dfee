"""
Files that a command names by a way over a symbolic link, and where that led when the command began.

A command that writes through a link changes the file behind it, and that is all that its private view shows.
Whoever puts a file in the link's place meanwhile changes another name. So both would land, and the command's
change would be in a file that nobody looks at any more. What a command names is known before it begins: a
write to a file behind such a name is refused if the name leads elsewhere when the command has ended.

Only names in the command's own words are known; a script may follow others.

Light to import: every guarded command loads it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

MOST_WORDS = 200
MOST_LETTERS = 1 << 14
_BETWEEN = str.maketrans(dict.fromkeys("\n\t;|&<>()'\"`={}\\", " "))


def named_links(words: Iterable[str], cwd: str, root: str) -> set[tuple[str, str]]:
    """Return the absolute paths in a command that lead over a link into the project, and where to."""
    found: set[tuple[str, str]] = set()
    for name in names_in(words):
        path = os.path.normpath(f"{cwd}/{name}") if not name.startswith("/") else os.path.normpath(name)
        target = leads_to(path)
        if target is not None and target != path and target.startswith(f"{root}/"):
            found.add((path, target))
    return found


def leads_to(path: str) -> str | None:
    """Return the canonical path of what a path leads to; None if there is nothing."""
    if sys.platform != "linux":
        try:
            return os.path.realpath(path, strict=True)
        except (OSError, ValueError):
            return None
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None
    finally:
        os.close(descriptor)


def first_link(path: str) -> str | None:
    """Return the first link on the way along a path; None if there is none."""
    at = ""
    for part in path.strip("/").split("/"):
        at += f"/{part}"
        if os.path.islink(at):
            return at
    return None


def names_in(words: Iterable[str]) -> dict[str, None]:
    """
    Return what may be a name in a command's words, once each; a word may be a script.

    First the words of the script's commands, then the parts of words, then the text of heredocs that a
    program gets. Options and numbers are looked up in vain, which costs little.
    """
    names: dict[str, None] = {}
    texts: list[str] = []
    documents: list[str] = []
    for given in words:
        given = given[:MOST_LETTERS]
        names[given] = None
        if given.translate(_BETWEEN).split() == [given]:
            continue
        from noclobber.shell.syntax import parse  # Here: most words are plain.

        script = parse(given)
        for one in script.commands:
            told = (*one.words, *one.assignments, *(each.target for each in one.redirections))
            texts += [word.text for word in told]
            documents += [each.document or "" for each in one.redirections if one.name != "cat"]
        documents += [] if script.is_whole else [given]
    names.update(dict.fromkeys(texts))
    for text in (*texts, *documents):
        if len(names) >= MOST_WORDS:
            break
        names.update(dict.fromkeys(text.translate(_BETWEEN).split()))
    return dict.fromkeys([*names][:MOST_WORDS])
