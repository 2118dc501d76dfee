"""
A few lines that show what changed: for a reader who must go on, not for a patch.

One piece, from the first line that differs to the last. Bounded in lines and letters, whatever the files
hold. `diff` makes real diffs; this one is quick to load and to make, because a host waits for it.
"""

from __future__ import annotations

MOST_LINES = 12  # Of each side.
MOST_LETTERS = 120  # Of a line.


def short_diff(before: bytes, after: bytes) -> str:
    """Return what changed between two versions, empty for files that are not text."""
    if b"\0" in before or b"\0" in after:
        return ""
    old, new = (data.decode("utf-8", "replace").splitlines() for data in (before, after))
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if not old and not new:
        return ""
    return "\n".join([f"@@ from line {start + 1} @@", *_side("-", old), *_side("+", new)])


def bounded(diff: str) -> str:
    """Return the first lines of a unified diff, without the names above it, and how many more there are."""
    lines = [line for line in diff.splitlines() if not line.startswith(("--- ", "+++ "))]
    shown = [_short(line) for line in lines[: 2 * MOST_LINES]]
    more = len(lines) - len(shown)
    return "\n".join([*shown, f"… {more} more lines"] if more > 0 else shown)


def _side(sign: str, lines: list[str]) -> list[str]:
    shown = [f"{sign}{_short(line)}" for line in lines[:MOST_LINES]]
    more = len(lines) - MOST_LINES
    return [*shown, f"{sign}… {more} more lines"] if more > 0 else shown


def _short(line: str) -> str:
    plain = "".join(
        letter if letter.isprintable() or letter == "\t" else "\ufffd" for letter in line[:MOST_LETTERS]
    )
    return plain if len(line) <= MOST_LETTERS else f"{plain}…"
