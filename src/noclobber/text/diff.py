"""
What changed between two versions of a file, as a unified diff that a model or a person can read.

Bounded in time: `difflib` is quadratic where versions differ much, so what both share at either end is set
aside first, and a middle that is still too large is shown as taken out and put in, without search for
likeness inside.
"""

from __future__ import annotations

COMPARED_LINES = 4000
CONTEXT_LINES = 3


def unified(before: bytes, after: bytes, path: str) -> str:
    """Return the diff from `before` to `after`; empty if they are equal."""
    if before == after:
        return ""
    if b"\0" in before[:8192] or b"\0" in after[:8192]:
        return f"Binary files a{path} and b{path} differ\n"
    old, new = _lines(before), _lines(after)
    head = _shared(old, new)
    tail = _shared(old[head:][::-1], new[head:][::-1])
    hunks = [f"--- a{path}\n", f"+++ b{path}\n"]
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(middle_old) + len(middle_new) > COMPARED_LINES:
        groups = [[("replace", 0, len(middle_old), 0, len(middle_new))]]
    else:
        from difflib import SequenceMatcher

        matcher = SequenceMatcher(None, middle_old, middle_new, autojunk=False)
        groups = [list(group) for group in matcher.get_grouped_opcodes(CONTEXT_LINES)]
    for number, group in enumerate(groups):
        # The lines around the middle were set aside; the first and the last hunk get theirs back.
        before_count = min(CONTEXT_LINES, head) if number == 0 and _touches_start(group) else 0
        is_last = number == len(groups) - 1 and group[-1][2] == len(middle_old) and group[-1][0] != "equal"
        after_count = min(CONTEXT_LINES, tail) if is_last else 0
        hunks += _hunk(group, old, new, head, before_count, after_count)
    return "".join(hunks)


def _touches_start(group: list[tuple[str, int, int, int, int]]) -> bool:
    return group[0][0] != "equal" and group[0][1] == 0 and group[0][3] == 0


def _hunk(
    group: list[tuple[str, int, int, int, int]],
    old: list[str],
    new: list[str],
    head: int,
    before_count: int,
    after_count: int,
) -> list[str]:
    old_start, old_end = group[0][1] + head, group[-1][2] + head
    new_start, new_end = group[0][3] + head, group[-1][4] + head
    body = [f" {line}" for line in old[old_start - before_count : old_start]]
    for kind, old_from, old_to, new_from, new_to in group:
        if kind == "equal":
            body += [f" {line}" for line in old[old_from + head : old_to + head]]
            continue
        body += [f"-{line}" for line in old[old_from + head : old_to + head]]
        body += [f"+{line}" for line in new[new_from + head : new_to + head]]
    body += [f" {line}" for line in old[old_end : old_end + after_count]]
    old_range = _range(old_start - before_count, old_end + after_count)
    new_range = _range(new_start - before_count, new_end + after_count)
    return [f"@@ -{old_range} +{new_range} @@\n", *body]


def _range(start: int, end: int) -> str:
    count = end - start
    return f"{start + 1 if count else start},{count}" if count != 1 else f"{start + 1}"


def _lines(data: bytes) -> list[str]:
    lines = data.decode("utf-8", "replace").split("\n")
    last = lines.pop()
    ended = [f"{line}\n" for line in lines]
    return [*ended, f"{last}\n\\ No newline at end of file\n"] if last else ended


def _shared(left: list[str], right: list[str]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
