"""
Glob patterns over relative paths, in the dialect of the replaced server (JavaScript's minimatch).

| pattern | matches |
|---|---|
| `*`, `?` | any characters, one character, within one name; names that begin with a dot, too |
| `**` as a whole name | any number of names, none included; `a/**` is what is below `a`, not `a` |
| `[a-z]`, `[!a]`, `[[:alpha:]]` | one character of a set, not of it, of a class |
| `{a,b}`, `{1..9}`, `{a..e}` | either; braces are expanded first, and nest |
| `?(a|b)` `*(a|b)` `+(a|b)` `@(a|b)` `!(a|b)` | none or one, any number, one or more, one, anything but |
| `!` in front of all | everything that the rest does not match; so a pattern cannot begin with `!(a)` |
| `#` in front of all | nothing: a comment |

Case matters. An unfinished `[` or `(` matches itself. Every pattern is matched in polynomial time: patterns
come from a model, and one that took for ever would stop the server. (That is why this is not `wcmatch`; see
docs/decisions/mcp-server.md.)
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from noclobber.mcp.reference import extglob

if TYPE_CHECKING:
    from collections.abc import Callable

STAR = extglob.STAR
MOST_BRACES = 10_000  # The most patterns that braces expand to; the rest stays as it is.
LONGEST_PATTERN = 4096  # No path is longer.

_CLASSES = {
    "alnum": r"^\W_",
    "alpha": r"^\W\d_",
    "ascii": r"\x00-\x7f",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": r"0-9",
    "graph": r"!-~",
    "lower": r"a-zß-öø-ÿ",
    "print": r" -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": r"A-ZÀ-ÖØ-Þ",
    "word": r"\w",
    "xdigit": r"0-9A-Fa-f",
}


class BadPatternError(ValueError):
    """A pattern that is too long, or too deep, to be a pattern."""


@lru_cache(maxsize=256)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether a relative path matches."""
    if len(pattern) > LONGEST_PATTERN:
        raise BadPatternError("pattern is too long")
    if pattern.startswith("#"):
        return lambda _: False
    bare = pattern.lstrip("!")
    is_negated = (len(pattern) - len(bare)) % 2 == 1
    if not bare:
        return lambda path: is_negated and path != ""
    try:
        tests = [_one(option) for option in _expand(bare)]
    except RecursionError:
        raise BadPatternError("pattern is nested too deeply") from None
    return lambda path: any(test(path) for test in tests) != is_negated


# -- braces ------------------------------------------------------------------------------------------


def _expand(pattern: str) -> list[str]:
    found = [pattern]
    done: list[str] = []
    while found and len(found) + len(done) <= MOST_BRACES:
        one = found.pop(0)
        parts = _first_braces(one)
        if parts is None:
            done.append(one)
        else:
            before, options, after = parts
            found = [f"{before}{option}{after}" for option in options] + found
    return done + found


def _first_braces(pattern: str) -> tuple[str, list[str], str] | None:
    for at, (end, commas) in sorted(_pairs(pattern).items()):
        if pattern.startswith("${", at - 1):
            continue
        if commas:
            options = [pattern[a + 1 : b] for a, b in pairwise([at, *commas, end])]
            return pattern[:at], options, pattern[end + 1 :]
        if sequence := _sequence(pattern[at + 1 : end]):
            return pattern[:at], sequence, pattern[end + 1 :]
    return None


def _pairs(pattern: str) -> dict[int, tuple[int, list[int]]]:
    """Return where each closed brace ends, and the commas that belong to it; in one pass."""
    found: dict[int, tuple[int, list[int]]] = {}
    waiting: list[tuple[int, list[int]]] = []
    for part in re.finditer(r"\\.|[{},]", pattern, re.S):
        letter, at = part[0], part.start()
        if letter == "{":
            waiting.append((at, []))
        elif letter == "," and waiting:
            waiting[-1][1].append(at)
        elif letter == "}" and waiting:
            start, commas = waiting.pop()
            found[start] = (at, commas)
    return found


def _sequence(inner: str) -> list[str] | None:
    numbers = re.fullmatch(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?", inner)
    letters = re.fullmatch(r"([a-zA-Z])\.\.([a-zA-Z])(?:\.\.(-?\d{1,9}))?", inner)
    found = numbers or letters
    if found is None:
        return None
    first, last = (int(found[1]), int(found[2])) if numbers else (ord(found[1]), ord(found[2]))
    step = max(1, abs(int(found[3] or 1)))
    values = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    if letters:
        return [chr(value) for value in values[:MOST_BRACES]]
    is_padded = any(re.match(r"-?0\d", end) for end in (found[1], found[2]))
    width = max(len(found[1]), len(found[2])) if is_padded else 0
    return [f"{value:0{width}d}" for value in values[:MOST_BRACES]]


# -- one pattern without braces ------------------------------------------------------------------------


def _one(pattern: str) -> Callable[[str], object]:
    names = re.split(r"/+", pattern)
    names = [name for at, name in enumerate(names) if name != "**" or names[at - 1 : at] != ["**"]]
    if any(extglob.OPENING.search(name) for name in names):
        return extglob.path_matcher([None if name == "**" else pieces(name) for name in names])
    return re.compile(_whole(names), re.S).fullmatch


def _whole(names: list[str]) -> str:
    """
    Translate names between slashes into one regular expression.

    What is between two wildcards is matched at the first place where it fits, and the search never goes back
    (`(?>…)`): a later place leaves less for the rest. So no pattern takes exponential time.
    """
    runs: list[list[str]] = [[]]
    for name in names:
        if name == "**":
            runs.append([])
        else:
            runs[-1].append(_name(name))
    first, *middle = runs
    if not middle:
        return "/".join(first)
    out = "".join(f"{name}/" for name in first)
    for run in middle[:-1]:
        out += "(?>(?:[^/]+/)*?" + "".join(f"{name}/" for name in run) + ")"
    last = middle[-1]
    return out + (r"(?:[^/]+/)*" + "/".join(last) if last else r".+")  # `a/**`: at least one name below.


def _name(text: str) -> str:
    """Translate what is between two slashes, if it has no groups."""
    runs: list[str] = [""]
    for piece in pieces(text):
        if piece == STAR:
            runs.append("")
        else:
            assert isinstance(piece, str)
            runs[-1] += piece
    first, *middle = runs
    if not middle:
        return first
    if not any(runs):
        return r"[^/]+"  # A star alone matches a name, and no name is empty.
    return first + "".join(f"(?>[^/]*?{run})" for run in middle[:-1] if run) + r"[^/]*" + middle[-1]


def pieces(text: str) -> list[extglob.Piece]:
    """Cut a name into expressions for one character each, stars, and groups."""
    out: list[extglob.Piece] = []
    at = 0
    while at < len(text):
        letter = text[at]
        if extglob.OPENING.match(text, at) and (found := extglob.group(text, at)):
            group, at = found
            out.append(group)
            continue
        if letter == "[" and (bracket := _set(text, at)):
            expression, at = bracket
            out.append(expression)
            continue
        if letter == "\\" and at + 1 < len(text):
            at += 1
            out.append(re.escape(text[at]))
        elif letter == "*":
            if out[-1:] != [STAR]:
                out.append(STAR)
        else:
            out.append(r"[^/]" if letter == "?" else re.escape(letter))
        at += 1
    return out


def _set(text: str, start: int) -> tuple[str, int] | None:
    """Translate `[…]`; None if it has no end."""
    if text.find("]", start + 2) < 0:
        return None
    at = start + 1
    is_negated = text[at : at + 1] in ("!", "^")
    at += is_negated
    items: list[str] = []
    first = at
    while at < len(text):
        if text[at] == "]" and at > first:
            return _set_of(items, is_negated), at + 1
        if text.startswith("[:", at) and (named := re.match(r"\[:(\w+):\]", text[at:])):
            if named[1] not in _CLASSES:
                return None
            items.append(_CLASSES[named[1]])
            at += named.end()
            continue
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
        low = text[at]
        at += 1
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("", "]"):
            high = text[at + 1]
            at += 2
            if low <= high:
                items.append(f"{re.escape(low)}-{re.escape(high)}")
            continue
        items.append(re.escape(low))
    return None


def _set_of(items: list[str], is_negated: bool) -> str:
    if not items:
        return r"[^/]" if is_negated else r"(?!)"
    plain = [item for item in items if not item.startswith("^")]
    options = [f"[{item}]" for item in items if item.startswith("^")]
    if plain:
        options.append(f"[{''.join(plain)}]")
    either = "|".join(options)
    return rf"(?!{either})[^/]" if is_negated else rf"(?!/)(?:{either})"
