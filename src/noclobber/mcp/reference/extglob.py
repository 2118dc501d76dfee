"""
Groups in glob patterns: `?(a|b)` `*(a|b)` `+(a|b)` `@(a|b)` `!(a|b)`.

As a regular expression `+(a|aa)` takes exponential time, and Python cannot stop it. So a name with groups is
matched in all possible ways at once: from the set of positions where a piece may begin to the set of
positions where it may end. There are no more positions than characters.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STAR = "*"
OPENING = re.compile(r"[?*+@!]\(")


class Group(NamedTuple):
    """What is in parentheses, and the sign in front of them."""

    sign: str
    options: tuple[tuple[Piece, ...], ...]


Piece = str | Group
"""A regular expression for one character, a star, or a group."""


def group(text: str, at: int) -> tuple[Group, int] | None:
    """Read the group that begins at `at`; None if it is never closed."""
    from noclobber.mcp.reference.globs import pieces

    depth, cuts = 0, [at + 1]
    for part in re.compile(r"\\\\.|[()|]", re.S).finditer(text, at + 1):
        letter = part[0]
        depth += (letter == "(") - (letter == ")")
        if (letter == "|" and depth == 1) or depth == 0:
            cuts.append(part.start())
        if depth == 0:
            options = tuple(tuple(pieces(text[a + 1 : b])) for a, b in pairwise(cuts))
            return Group(text[at], options), part.end()
    return None


def path_matcher(names: Sequence[Sequence[Piece] | None]) -> Callable[[str], bool]:
    """Return a matcher for a whole path: pieces for each name, None for `**`."""
    wanted = [None if name is None else tuple(name) for name in names]

    def matches(path: str) -> bool:
        parts = path.split("/")
        # The names of the pattern that may come next, after each part of the path.
        at = _skipped({0}, wanted)
        for part in parts:
            after = set()
            for number in at:
                if number == len(wanted):
                    continue
                name = wanted[number]
                if name is None:
                    after.add(number)
                    if number == len(wanted) - 1:
                        after.add(len(wanted))
                elif name_matches(name, part):
                    after.add(number + 1)
            at = _skipped(after, wanted)
        return len(wanted) in at

    return matches


def _skipped(at: set[int], wanted: Sequence[object]) -> set[int]:
    """`**` may match no name at all, except as the last one, which needs something below."""
    for number in sorted(at):
        while number < len(wanted) - 1 and wanted[number] is None:
            number += 1
            at.add(number)
    return at


def name_matches(name: tuple[Piece, ...], text: str) -> bool:
    """True if the pieces match all of a name."""
    if name == (STAR,):
        return text != ""
    return len(text) in _ends(name, text, frozenset((0,)))


@lru_cache(maxsize=1 << 15)  # Several `!(…)` in a row ask the same again for each position.
def _ends(pieces: tuple[Piece, ...], text: str, starts: frozenset[int]) -> frozenset[int]:
    """Return where pieces may end that begin at one of `starts`."""
    for number, piece in enumerate(pieces):
        if not starts:
            break
        if piece == STAR:
            starts = frozenset(range(min(starts), len(text) + 1))
        elif isinstance(piece, Group):
            starts = _group_ends(piece, pieces[number + 1 :], text, starts)
        else:
            one = _character(piece)
            starts = frozenset(at + 1 for at in starts if at < len(text) and one.match(text, at))
    return starts


def _group_ends(found: Group, rest: tuple[Piece, ...], text: str, starts: frozenset[int]) -> frozenset[int]:
    if found.sign == "!":
        # Anything but: no option that, with what follows the group, would match the whole name.
        free = [at for at in starts if len(text) not in _either(found, rest, text, frozenset((at,)))]
        return frozenset(range(min(free), len(text) + 1)) if free else frozenset()
    ends = _either(found, (), text, starts)
    if found.sign == "@":
        return ends
    if found.sign == "?":
        return starts | ends
    reached = ends
    while not (ends := _either(found, (), text, ends)) <= reached:
        reached |= ends
    return reached | starts if found.sign == "*" else reached


def _either(found: Group, rest: tuple[Piece, ...], text: str, starts: frozenset[int]) -> frozenset[int]:
    return frozenset().union(*(_ends(option + rest, text, starts) for option in found.options))


@lru_cache(maxsize=1024)
def _character(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.S)
