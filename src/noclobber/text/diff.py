"""
What changed between two versions of a text: an edit script of lines, and the unified diff that shows it.

The script is a shortest one, found by the greedy method (Myers, 1986): for each number of edits, how far
every diagonal can get. Where several scripts are equally short it is the one that JavaScript's `diff` package
finds, because the server that `noclobber mcp` replaces answers with that: of two ways to reach a diagonal
it takes the removal, unless the addition starts farther on.

Bounded: a search that takes more than `MOST_EDITS` edits or `MOST_STEPS` steps is given up, and everything
between the first and the last difference is shown as removed and added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Script = list[tuple[str, str]]
    """Every line of both versions once, marked ` `, `-` or `+`."""

CONTEXT_LINES = 3
MOST_EDITS = 1000
MOST_STEPS = 2_000_000  # Half a second or so; a line that is walked over is one step.
_NO_NEWLINE = "\\ No newline at end of file"


class DiffHunk(NamedTuple):
    """Changes that are shown together. Starts count lines from 0; `text` is the lines with their marks."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    text: str


def unified(before: bytes, after: bytes, path: str) -> str:
    """Return the diff from `before` to `after`; empty if they are equal."""
    if before == after:
        return ""
    if b"\0" in before[:8192] or b"\0" in after[:8192]:
        return f"Binary files a{path} and b{path} differ\n"
    old, new = (lines(data.decode("utf-8", "replace")) for data in (before, after))
    out = [f"--- a{path}\n", f"+++ b{path}\n"]
    for hunk in hunks(edit_script(old, new), CONTEXT_LINES):
        old_range = _range(hunk.old_start, hunk.old_count)
        new_range = _range(hunk.new_start, hunk.new_count)
        out += (f"@@ -{old_range} +{new_range} @@\n", hunk.text)
    return "".join(out)


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


# -- the edit script -----------------------------------------------------------------------------------


def edit_script(old: Sequence[str], new: Sequence[str]) -> Script:
    """Return how one version becomes the other; removals come before additions."""
    start = _shared(old, new)
    old, new, same = old[start:], new[start:], old[:start]
    script = _shortest(old, new)
    if script is None:
        end = _shared(old[::-1], new[::-1])
        script = [("-", line) for line in old[: len(old) - end]]
        script += [("+", line) for line in new[: len(new) - end]]
        script += [(" ", line) for line in old[len(old) - end :]]
    return [(" ", line) for line in same] + _removals_first(script)


_Chain = tuple | None  # type: ignore[type-arg]
"""Edits, the last one first: (mark, old lines before it, new lines before it, the chain before it)."""


def _shortest(old: Sequence[str], new: Sequence[str]) -> Script | None:
    """Walk all diagonals, one edit further at a time; None if that takes too long."""
    old_count, new_count = len(old), len(new)
    steps_left = MOST_STEPS + old_count + new_count
    reached: dict[int, tuple[int, _Chain]] = {0: (0, None)}
    """By diagonal: how many old lines are used up, and by which edits."""
    if not old_count and not new_count:
        return []
    lowest, highest = -MOST_EDITS, MOST_EDITS
    for edits in range(1, MOST_EDITS + 1):
        for diagonal in range(max(lowest, -edits), min(highest, edits) + 1, 2):
            remove, add = reached.get(diagonal - 1), reached.get(diagonal + 1)
            if remove is not None:
                del reached[diagonal - 1]  # No other diagonal continues from there.
            if remove is not None and remove[0] >= old_count:
                remove = None
            if add is not None and add[0] - diagonal > new_count:
                add = None
            if add is not None and (remove is None or remove[0] < add[0]):
                used_old = add[0]
                chain: _Chain = ("+", used_old, used_old - diagonal - 1, add[1])
            elif remove is not None:
                used_old = remove[0] + 1
                chain = ("-", remove[0], used_old - diagonal, remove[1])
            else:
                reached.pop(diagonal, None)
                continue
            begun, used_new = used_old, used_old - diagonal
            while used_old < old_count and used_new < new_count and old[used_old] == new[used_new]:
                used_old += 1
                used_new += 1
            steps_left -= used_old - begun + 1
            reached[diagonal] = (used_old, chain)
            if used_old >= old_count and used_new >= new_count:
                return _unrolled(chain, old, new)
            if used_old >= old_count:
                highest = min(highest, diagonal - 1)
            if used_new >= new_count:
                lowest = max(lowest, diagonal + 1)
        if steps_left < 0:
            return None
    return None


def _unrolled(chain: _Chain, old: Sequence[str], new: Sequence[str]) -> Script:
    edits = []
    while chain is not None:
        mark, at_old, at_new, chain = chain
        edits.append((mark, at_old, at_new))
    script: Script = []
    used = 0
    for mark, at_old, at_new in reversed(edits):
        script += [(" ", line) for line in old[used:at_old]]
        script.append((mark, old[at_old] if mark == "-" else new[at_new]))
        used = at_old + (mark == "-")
    return script + [(" ", line) for line in old[used:]]


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


def _shared(left: Sequence[str], right: Sequence[str]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
