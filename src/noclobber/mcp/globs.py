"""
Glob patterns over relative paths, with the dialect that the replaced server's clients use.

| pattern | matches |
|---|---|
| `*`, `?` | any characters, one character, within one name; names that begin with a dot, too |
| `**` as a whole name | any number of names, none included; `a/**` is what is below `a`, not `a` |
| `[a-z]`, `[!a]`, `[[:alpha:]]` | one character of a set, not of it, of a class |
| `{a,b}`, `{1..9}`, `{a..e}` | either; braces are expanded first, and nest |
| `?(a|b)` `*(a|b)` `+(a|b)` `@(a|b)` `!(a|b)` | none or one, any number, one or more, one, anything but |
| `!` in front of all | everything that the rest does not match; so no `!(a)` can stand there |
| `#` in front of all | nothing: a comment |

Case counts. An unfinished `[` or `(` stands for itself.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MOST_BRACES = 10_000  # What one pattern may expand to; beyond that the rest stays as it is.
LONGEST_PATTERN = 64 * 1024

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
    """A pattern that is too long to be a pattern."""


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
    expressions = [re.compile(_whole(one), re.S) for one in _expand(bare)]
    return lambda path: any(one.fullmatch(path) for one in expressions) != is_negated


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
    at = 0
    while (at := _find(pattern, "{", at)) >= 0:
        end, commas = _closing(pattern, at)
        if end >= 0 and not pattern.startswith("${", at - 1):
            inner = pattern[at + 1 : end]
            if commas:
                cuts = [at, *commas, end]
                options = [pattern[a + 1 : b] for a, b in pairwise(cuts)]
                return pattern[:at], options, pattern[end + 1 :]
            if sequence := _sequence(inner):
                return pattern[:at], sequence, pattern[end + 1 :]
        at += 1
    return None


def _find(pattern: str, what: str, start: int) -> int:
    at = start
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 2
            continue
        if pattern[at] == what:
            return at
        at += 1
    return -1


def _closing(pattern: str, start: int) -> tuple[int, list[int]]:
    commas: list[int] = []
    depth, at = 0, start
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\":
            at += 1
        elif letter == "{":
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                return at, commas
        elif letter == "," and depth == 1:
            commas.append(at)
        at += 1
    return -1, []


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


def _whole(pattern: str) -> str:
    names = re.split(r"/+", pattern)
    folded = [name for at, name in enumerate(names) if name != "**" or names[at - 1 : at] != ["**"]]
    if folded == ["**"]:
        return r".+"
    out = ""
    for number, name in enumerate(folded):
        is_last = number == len(folded) - 1
        if name != "**":
            out += _name(name) + ("" if is_last else "/")
        elif is_last:
            out += r".+"  # `a/**`: at least one name below.
        else:
            out += r"(?:[^/]+/)*"
    return out


def _name(text: str) -> str:
    """Translate what may stand between two slashes."""
    out, at = "", 0
    if re.fullmatch(r"\*+", text):
        return r"[^/]+"
    while at < len(text):
        letter = text[at]
        if letter in "?*+@!" and text[at + 1 : at + 2] == "(" and (end := _group_end(text, at + 1)) > 0:
            out += _group(letter, text[at + 2 : end], text[end + 1 :])
            at = end + 1
            continue
        if letter == "[" and (found := _set(text, at)):
            expression, at = found
            out += expression
            continue
        if letter == "\\" and at + 1 < len(text):
            at += 1
            out += re.escape(text[at])
        elif letter == "*":
            out += r"[^/]*" if not out.endswith(r"[^/]*") else ""
        elif letter == "?":
            out += r"[^/]"
        else:
            out += re.escape(letter)
        at += 1
    return out


def _group_end(text: str, start: int) -> int:
    depth, at = 0, start
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == "(":
            depth += 1
        elif text[at] == ")":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return -1


def _group(kind: str, inner: str, rest: str) -> str:
    options, depth, last = [], 0, 0
    for at, letter in enumerate(inner):
        depth += (letter == "(") - (letter == ")")
        if letter == "|" and depth == 0:
            options.append(inner[last:at])
            last = at + 1
    options.append(inner[last:])
    either = "|".join(_part(option) for option in options)
    if kind == "!":
        # Anything but: so that what follows the group still has to match, it is looked at here, too.
        return rf"(?!(?:{either}){_part(rest)}(?:/|\Z))[^/]*?"
    return f"(?:{either})" + {"?": "?", "*": "*", "+": "+", "@": ""}[kind]


def _part(text: str) -> str:
    return r"[^/]*" if re.fullmatch(r"\*+", text) else _name(text)


def _set(text: str, start: int) -> tuple[str, int] | None:
    """Translate `[…]`; None if it has no end."""
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
