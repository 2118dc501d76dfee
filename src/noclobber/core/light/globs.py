"""
Names against patterns without `fnmatch`, which imports `re`; the package's docstring has the figures.

Most patterns have stars and nothing else. The others are left to `fnmatch`.
"""

from __future__ import annotations


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
