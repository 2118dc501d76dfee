"""
What changed between two versions of a text: an edit script of lines, and the unified diff that shows it.

Bounded: where `edit_script.shortest` gives up, everything between the first and the last difference is shown
as removed and added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noclobber.text.edit_script import equal_lines, shortest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Script = list[tuple[str, str]]
    """Every line of both versions once, marked ` `, `-` or `+`."""

CONTEXT_LINES = 3
SHOWN_LINES = 60
SHOWN_CHARACTERS = 4000
MOST_LINES = 12  # Of each side of a short diff.
MOST_LETTERS = 120  # Of its lines.
_NO_NEWLINE = "\\ No newline at end of file"


class DiffHunk(NamedTuple):
    """Changes that are shown together. Starts count lines from 0; `text` is the lines with their marks."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    text: str


def unified(before: bytes, after: bytes, path: str, errors: str = "replace") -> str:
    """
    Return the diff from `before` to `after`; empty if they are equal.

    `errors`: what becomes of bytes that are not UTF-8, as in `bytes.decode`. A patch needs `surrogateescape`.
    """
    if before == after:
        return ""
    if b"\0" in before[:8192] or b"\0" in after[:8192]:
        return f"Binary files a{path} and b{path} differ\n"
    old, new = (lines(data.decode("utf-8", errors)) for data in (before, after))
    out = [f"--- a{path}\n", f"+++ b{path}\n"]
    for hunk in hunks(edit_script(old, new), CONTEXT_LINES):
        old_range = _range(hunk.old_start, hunk.old_count)
        new_range = _range(hunk.new_start, hunk.new_count)
        out += (f"@@ -{old_range} +{new_range} @@\n", hunk.text)
    return "".join(out)


def abridged(diff: str, most_lines: int = SHOWN_LINES, most_characters: int = SHOWN_CHARACTERS) -> str:
    """Return the beginning of a diff, and how much was left out: an answer to a model must be short."""
    shown: list[str] = []
    all_lines = diff.splitlines(keepends=True)
    left = most_characters
    for line in all_lines[:most_lines]:
        left -= len(line)
        if left < 0:
            break
        shown.append(line)
    if len(shown) == len(all_lines):
        return diff
    return f"{''.join(shown)}({len(all_lines) - len(shown)} more lines of this diff are not shown.)\n"


def lines(text: str) -> list[str]:
    """Split at newlines, which stay; so a last line without one differs from one with."""
    *ended, last = text.split("\n")
    return [f"{line}\n" for line in ended] + ([last] if last else [])


def hunks(script: Script, context_lines: int) -> Iterator[DiffHunk]:
    """Yield the changes of a script in groups, with unchanged lines around them."""
    spans: list[tuple[int, int]] = []
    for at, (mark, _) in enumerate(script):
        if mark == " ":
            continue
        first, last = max(0, at - context_lines), min(len(script), at + 1 + context_lines)
        if spans and first <= spans[-1][1]:  # Where two of them meet they are shown as one.
            first = spans.pop()[0]
        spans.append((first, last))
    old_start = new_start = done = 0
    for first, last in spans:
        old_between, new_between = _counts(script[done:first])
        old_start, new_start = old_start + old_between, new_start + new_between
        old_count, new_count = _counts(script[first:last])
        text = "".join(_marked(mark, line) for mark, line in script[first:last])
        yield DiffHunk(old_start, old_count, new_start, new_count, text)
        old_start, new_start, done = old_start + old_count, new_start + new_count, last


def _counts(script: Script) -> tuple[int, int]:
    marks = [mark for mark, _ in script]
    return len(marks) - marks.count("+"), len(marks) - marks.count("-")


def _marked(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n{_NO_NEWLINE}\n"


def _range(start: int, count: int) -> str:
    return f"{start + 1}" if count == 1 else f"{start + bool(count)},{count}"


def edit_script(old: Sequence[str], new: Sequence[str]) -> Script:
    """Return how one version becomes the other; removals come before additions."""
    edits = shortest(old, new)
    if edits is None:
        start = equal_lines(old, new, 0, 0)
        end = equal_lines(old[start:][::-1], new[start:][::-1], 0, 0)
        script = [(" ", line) for line in old[:start]]
        script += [("-", line) for line in old[start : len(old) - end]]
        script += [("+", line) for line in new[start : len(new) - end]]
        return script + [(" ", line) for line in old[len(old) - end :]]
    script = []
    used = 0
    for mark, old_at, new_at in edits:
        script += [(" ", line) for line in old[used:old_at]]
        script.append((mark, old[old_at] if mark == "-" else new[new_at]))
        used = old_at + (mark == "-")
    return _removals_first(script + [(" ", line) for line in old[used:]])


def _removals_first(script: Script) -> Script:
    out: Script = []
    added: Script = []
    for mark, line in script:
        if mark == "+":
            added.append((mark, line))
            continue
        if mark == " ":
            out += added
            added.clear()
        out.append((mark, line))
    return out + added


# -- a short one ------------------------------------------------------------------------------------------


def short_diff(before: bytes, after: bytes) -> str:
    """
    Return a few lines that show what changed; empty for files that are not text.

    One piece, from the first line that differs to the last, for a reader who must go on, not for a patch.
    """
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
