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
MOST_STARS = 16  # Nobody writes more; git has no such limit.


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
        matches = re.compile(("" if is_anchored else _FOLDERS) + _expression(pattern), re.DOTALL)
    except re.error:
        return None
    return IgnoreRule(matches, is_for_folders, takes_back)


def _expression(pattern: str) -> str:
    """
    Return a pattern of git's as a regular expression that takes no more than quadratic time.

    A pattern comes with a repository, and `*a*a*a*a*b` must not hang whoever writes there. What follows a
    star, up to the next one, is searched from the left and then kept (`(?>…)`): if any place of it leads to a
    match, the first one does. The same holds for the folders between two `**`.
    """
    groups: list[list[str]] = [[]]
    parts = pattern.replace("\\/", "/").split("/")
    for part in parts:
        if part == "**" and len(parts) > 1:
            groups.append([])
        else:
            groups[-1].append(_segment(part))
    if len(groups) == 1:
        return "/".join(groups[0])
    first, *middle, last = ("/".join(group) for group in groups)
    out = f"{first}/" if first else ""
    out += "".join(f"(?>{_FOLDERS}{group}/)" for group in middle if group)
    return out + (f"{_FOLDERS}{last}" if last else ".+")


_FOLDERS = "(?:[^/]+/)*?"


def _segment(part: str) -> str:
    """Return one part of a pattern, between two slashes, as a regular expression."""
    pieces: list[str] = [""]
    at = 0
    while at < len(part):
        character = part[at]
        if character == "*":
            while part[at : at + 1] == "*":
                at += 1
            pieces.append("")
        elif character == "?":
            pieces[-1] += "[^/]"
            at += 1
        elif character == "[":
            found, at = _bracket(part, at)
            pieces[-1] += found
        else:
            at += character == "\\" and at + 1 < len(part)
            pieces[-1] += re.escape(part[at])
            at += 1
    first, *rest = pieces
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle) + f"[^/]*{last}"


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """
    Return a set of characters, and where the pattern goes on.

    Character by character, as git reads it: a `-` is a range only between two characters, a `]` at the
    beginning is a character, and `[:alpha:]` is a class only if its end is there and its name is known.
    """
    at += 1
    is_not = pattern[at : at + 1] in ("!", "^")
    at += is_not
    found: list[str] = []
    before = ""  # What a range begins with; empty after a range or a class.
    is_first = True
    while is_first or pattern[at : at + 1] != "]":
        is_first = False
        is_plain = pattern[at : at + 1] != "\\"
        this, at = _character(pattern, at)
        if is_plain and this == "-" and before and pattern[at : at + 1] not in ("", "]"):
            last, at = _character(pattern, at)
            found += [f"{re.escape(before)}-{re.escape(last)}"] if before <= last else []
            before = ""
        elif is_plain and this == "[" and pattern[at : at + 1] == ":":
            name, end = _class_name(pattern, at + 1)
            if name is None:
                found.append(re.escape(this))
                before = this
            else:
                found.append(name)
                at, before = end, ""
        else:
            found.append(re.escape(this))
            before = this
    inside = "".join(found)
    if is_not:
        return f"[^/{inside}]", at + 1
    return (f"(?!/)[{inside}]" if inside else "(?!)"), at + 1


def _character(pattern: str, at: int) -> tuple[str, int]:
    """Return one character of a set, and where the next one is. A backslash is dropped."""
    at += pattern[at : at + 1] == "\\"
    if at >= len(pattern):
        raise re.error("a set of characters without an end")
    return pattern[at], at + 1


def _class_name(pattern: str, at: int) -> tuple[str | None, int]:
    """Return what a class such as `alpha:]` stands for, and where it ends; None if it is not one."""
    end = pattern.find("]", at)
    if end < 0:
        raise re.error("a set of characters without an end")
    if end == at or pattern[end - 1] != ":":
        return None, at
    name = pattern[at : end - 1]
    if name not in _CLASSES:
        raise re.error("a class of characters that git does not know")
    return _CLASSES[name], end + 1


_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
