"""
Which paths a set of `.gitignore` files leaves out, as git reads them.

Pure: the caller gives the text of each file and the folder that it is in. The last pattern that matches
decides; a pattern of a deeper file comes after those above it; `!` takes back; and what is inside a folder
that is left out stays out, whatever a deeper pattern says.

Unlike git this does not know the index, so a file that is tracked although a pattern matches it counts as
ignored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_PATTERNS = 10_000  # Of one file. It comes with a folder, so it is not trusted to be short.
LONGEST_PATTERN = 1000
MOST_STARS = 16  # Each may try every rest of a path; git has no such limit and gets slow.


class IgnoreRule(NamedTuple):
    """One line of a `.gitignore`."""

    matches: re.Pattern[str]
    """Of the path relative to the file's own folder."""
    is_for_folders: bool
    takes_back: bool


def rules_in(text: str) -> tuple[IgnoreRule, ...]:
    """Return the rules of one file. What git would not understand, or nobody would write, is left out."""
    found = []
    for line in text.splitlines()[:MOST_PATTERNS]:
        rule = _rule(line)
        if rule is not None:
            found.append(rule)
    return tuple(found)


def is_ignored(path: str, rules: Mapping[str, Iterable[IgnoreRule]]) -> bool:
    """
    Return whether a file is left out. `path` is relative to the top, with `/`.

    `rules` are by folder, relative to the top; "" is the top itself.
    """
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        if _verdict("/".join(parts[:count]), rules, is_folder=count < len(parts)):
            return True
    return False


def _verdict(path: str, rules: Mapping[str, Iterable[IgnoreRule]], *, is_folder: bool) -> bool:
    verdict = False
    parts = path.split("/")
    for depth in range(len(parts)):
        folder = "/".join(parts[:depth])
        below = "/".join(parts[depth:])
        for rule in rules.get(folder, ()):
            if (is_folder or not rule.is_for_folders) and rule.matches.fullmatch(below):
                verdict = not rule.takes_back
    return verdict


def _rule(line: str) -> IgnoreRule | None:
    pattern = line.rstrip("\r")
    while pattern.endswith(" ") and not pattern.endswith("\\ "):
        pattern = pattern[:-1]
    if not pattern or pattern.startswith("#") or len(pattern) > LONGEST_PATTERN:
        return None
    takes_back = pattern.startswith("!")
    pattern = pattern[takes_back:]
    is_for_folders = pattern.endswith("/")
    pattern = pattern[: len(pattern) - is_for_folders]
    # A slash at the start or in the middle ties a pattern to the file's own folder.
    is_anchored = "/" in pattern
    pattern = pattern.removeprefix("/")
    if not pattern or pattern.count("*") > MOST_STARS:
        return None
    try:
        matches = re.compile(("" if is_anchored else "(?:.*/)?") + _expression(pattern), re.DOTALL)
    except re.error:
        return None
    return IgnoreRule(matches, is_for_folders, takes_back)


def _expression(pattern: str) -> str:
    """Return a pattern of git's as a regular expression."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
            out.append("(?:.*/)?")
            at += 3
        elif pattern[at:] == "**" and at > 0 and pattern[at - 1] == "/":
            out.append(".+")
            at += 2
        elif character == "*":
            out.append("[^/]*")
            at += 1
            while pattern[at : at + 1] == "*":
                at += 1
        elif character == "?":
            out.append("[^/]")
            at += 1
        elif character == "[":
            found, at = _bracket(pattern, at)
            out.append(found)
        else:
            at += character == "\\" and at + 1 < len(pattern)
            out.append(re.escape(pattern[at]))
            at += 1
    return "".join(out)


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """Return a set of characters, and where the pattern goes on."""
    end = at + 1
    end += pattern[end : end + 1] in ("!", "^")
    end += pattern[end : end + 1] == "]"
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    if end >= len(pattern):
        raise re.error("a set of characters without an end")
    inside = pattern[at + 1 : end]
    is_not = inside[:1] in ("!", "^")
    inside = inside[is_not:].replace("[", "\\[")
    inside = "\\]" + inside[1:] if inside.startswith("]") else inside
    inside = inside.replace("&&", "&\\&").replace("||", "|\\|").replace("~~", "~\\~").replace("--", "-\\-")
    return f"(?!/)[{'^' if is_not else ''}{inside}]", end + 1
