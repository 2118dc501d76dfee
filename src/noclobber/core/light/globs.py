"""
Names against patterns without `fnmatch`, which imports `re`; the package's docstring has the figures.

Most patterns have stars and nothing else. The others are left to `fnmatch`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def fits(name: str, pattern: str) -> bool:
    """Return what `fnmatch.fnmatchcase` returns."""
    if "?" in pattern or "[" in pattern:
        from fnmatch import fnmatchcase

        return fnmatchcase(name, pattern)
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    last = rest.pop()
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    for piece in rest:
        at = name.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


class Globs:
    """Several patterns, to be held against many names: those with a star at one end take one call."""

    __slots__ = ("_ends", "_exact", "_others", "_starts")

    def __init__(self, patterns: Iterable[str]) -> None:
        exact, starts, ends, others = set(), [], [], []
        for pattern in patterns:
            if "?" in pattern or "[" in pattern:
                others.append(pattern)
            elif "*" not in pattern:
                exact.add(pattern)
            elif "*" not in pattern[:-1]:
                starts.append(pattern[:-1])
            elif "*" not in pattern[1:]:
                ends.append(pattern[1:])
            else:
                others.append(pattern)
        self._exact, self._others = frozenset(exact), tuple(others)
        self._starts, self._ends = tuple(starts), tuple(ends)

    def fit(self, name: str) -> bool:
        """True if one of them fits, as `fits()` says."""
        if name in self._exact or name.startswith(self._starts) or name.endswith(self._ends):
            return True
        return any(fits(name, pattern) for pattern in self._others)
