"""
The diff that `edit_file` answers with: a patch of two versions of a text, in a fence of backticks.

A shortest edit script by the greedy method (Myers, 1986): for each number of edits, how far every
diagonal can get. Where several scripts are equally short the one is taken that the replaced server
takes: of two ways to reach a diagonal, the removal, unless the addition starts farther on.

Bounded: where versions differ in more than `MOST_EDITS` lines, all between the first and the last
difference is shown as taken out and put in.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CONTEXT_LINES = 4
MOST_EDITS = 1000
_NO_NEWLINE = "\\ No newline at end of file"


def fenced(before: str, after: str, path: str) -> str:
    """Return the patch as the answer's text, in a fence that is longer than any in it."""
    text = unified(before, after, path)
    ticks = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}diff\n{text}{fence}\n\n"


def unified(before: str, after: str, path: str) -> str:
    """Return the patch from one text to another."""
    rule = "=" * 67
    head = f"Index: {path}\n{rule}\n--- {path}\toriginal\n+++ {path}\tmodified\n"
    old, new = _lines(before), _lines(after)
    script = edit_script(old, new)
    return head + "".join(_hunks(script, old, new))


def edit_script(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, str]]:
    """Return every line of both versions once, marked ` `, `-` or `+`; removals before additions."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    body = _shortest(old[start:], new[start:])
    if body is None:
        end = 0
        room = min(len(old), len(new)) - start
        while end < room and old[-1 - end] == new[-1 - end]:
            end += 1
        tail = len(old) - end
        body = [("-", line) for line in old[start:tail]]
        body += [("+", line) for line in new[start : len(new) - end]]
        body += [(" ", line) for line in old[tail:]]
    return [(" ", line) for line in old[:start]] + _removals_first(body)


def _shortest(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, str]] | None:
    """Walk all diagonals, one edit further at a time; None if that takes too many."""
    old_count, new_count = len(old), len(new)
    # Diagonal -> (how many old lines, the chain of edits as nested tuples of (mark, old, new, before)).
    reached: dict[int, tuple[int, _Chain]] = {0: _slide(0, 0, None, old, new)}
    if reached[0][0] >= old_count and reached[0][0] >= new_count:
        return _unrolled(reached[0][1], old, new)
    lowest, highest = -MOST_EDITS, MOST_EDITS
    for edits in range(1, MOST_EDITS + 1):
        for diagonal in range(max(lowest, -edits), min(highest, edits) + 1, 2):
            remove, add = reached.get(diagonal - 1), reached.get(diagonal + 1)
            if remove is not None:
                del reached[diagonal - 1]  # Nobody else comes from there.
            can_add = add is not None and add[0] - diagonal <= new_count
            can_remove = remove is not None and remove[0] < old_count
            if not can_add and not can_remove:
                reached.pop(diagonal, None)
                continue
            if not can_remove or (can_add and remove[0] < add[0]):  # type: ignore[index]
                assert add is not None
                used_old, chain = add[0], ("+", add[0], add[0] - diagonal - 1, add[1])
            else:
                assert remove is not None
                used_old, chain = remove[0] + 1, ("-", remove[0], remove[0] + 1 - diagonal, remove[1])
            reached[diagonal] = _slide(used_old, used_old - diagonal, chain, old, new)
            used_old = reached[diagonal][0]
            if used_old >= old_count and used_old - diagonal >= new_count:
                return _unrolled(reached[diagonal][1], old, new)
            if used_old >= old_count:
                highest = min(highest, diagonal - 1)
            if used_old - diagonal >= new_count:
                lowest = max(lowest, diagonal + 1)
    return None


_Chain = tuple | None  # type: ignore[type-arg]


def _slide(
    used_old: int, used_new: int, chain: _Chain, old: Sequence[str], new: Sequence[str]
) -> tuple[int, _Chain]:
    while used_old < len(old) and used_new < len(new) and old[used_old] == new[used_new]:
        used_old += 1
        used_new += 1
    return used_old, chain


def _unrolled(chain: _Chain, old: Sequence[str], new: Sequence[str]) -> list[tuple[str, str]]:
    edits = []
    while chain is not None:
        mark, at_old, at_new, chain = chain
        edits.append((mark, at_old, at_new))
    script: list[tuple[str, str]] = []
    used = 0
    for mark, at_old, at_new in reversed(edits):
        script += [(" ", line) for line in old[used:at_old]]
        used = at_old
        if mark == "-":
            script.append(("-", old[at_old]))
            used += 1
        else:
            script.append(("+", new[at_new]))
    return script + [(" ", line) for line in old[used:]]


def _removals_first(script: list[tuple[str, str]]) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    added: list[tuple[str, str]] = []
    for mark, line in script:
        if mark == "+":
            added.append((mark, line))
        elif mark == "-":
            out.append((mark, line))
        else:
            out += added
            added.clear()
            out.append((mark, line))
    return out + added


def _lines(text: str) -> list[str]:
    """Split at newlines, which stay; a last line without one is told apart from one with."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _hunks(script: list[tuple[str, str]], old: list[str], new: list[str]) -> list[str]:
    changed = [at for at, (mark, _) in enumerate(script) if mark != " "]
    out: list[str] = []
    at = 0
    while at < len(changed):
        end = at
        while end + 1 < len(changed) and changed[end + 1] - changed[end] - 1 <= CONTEXT_LINES * 2:
            end += 1
        first = max(0, changed[at] - CONTEXT_LINES)
        last = min(len(script), changed[end] + 1 + CONTEXT_LINES)
        out += _hunk(script, first, last)
        at = end + 1
    return out


def _hunk(script: list[tuple[str, str]], first: int, last: int) -> list[str]:
    old_start = sum(mark != "+" for mark, _ in script[:first])
    new_start = sum(mark != "-" for mark, _ in script[:first])
    old_count = sum(mark != "+" for mark, _ in script[first:last])
    new_count = sum(mark != "-" for mark, _ in script[first:last])
    out = [f"@@ -{old_start + bool(old_count)},{old_count} +{new_start + bool(new_count)},{new_count} @@\n"]
    for mark, line in script[first:last]:
        out.append(f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n{_NO_NEWLINE}\n")
    return out
