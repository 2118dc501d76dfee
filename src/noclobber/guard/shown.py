"""
What part of a file an agent was shown, found by comparing what it was given with what is on the disk.

Somebody else read the file, and we look at it a moment later. If what the agent was given is the current
content, the hash of that is what the agent saw. If not, somebody wrote in between, or the host shows files
in a way that we do not know; then the age of the file decides: one that has not changed since before the
call is what was read, however it was shown. Of any other file it is not known which version the agent saw.
"""

from __future__ import annotations

from noclobber.core.values import WHOLE, Coverage
from noclobber.disk import hashing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noclobber.core.actions import Action, CallResult, Shown
    from noclobber.disk.reading import FileState

SLACK_S = 2.0  # A filesystem's clock ticks in steps, and hosts round.
UNTOLD_S = 5.0  # How long a read may have taken, if the host does not say.


def exact_part(looked: FileState, action: Action, result: CallResult) -> Coverage | None:
    """Return what the agent saw, if what it was given is exactly the current content; None if not."""
    if result.content is not None:
        return WHOLE if hashing.of_bytes(result.content) == looked.sha256 else None
    return asked_part(looked, action) if result.sha256 == looked.sha256 else None


def seen_part(looked: FileState, action: Action, result: CallResult, now_s: float) -> Coverage | None:
    """Return what the agent saw of the current content; None if it may have been another version."""
    asked, shown, duration_s = asked_part(looked, action), result.shown, result.duration_s
    if looked.content is not None and shown.text is not None:
        text = _plain(looked.content.decode("utf-8", "replace"))
        given = _plain(shown.text)
        found = _compare(text, given, action, shown, asked)
        if found is not None:
            return found
    age_s = now_s - looked.changed_at_s
    if age_s > (UNTOLD_S if duration_s is None else duration_s + SLACK_S):
        if (shown.is_part and asked.is_whole) or shown.is_mixed:
            # A shell's output that does not hold the file: cut short, perhaps. Nothing of it was seen for
            # certain.
            return Coverage((), max(1, _line_count(looked)))
        return asked
    return None


def _compare(text: str, given: str, action: Action, shown: Shown, asked: Coverage) -> Coverage | None:
    if given == text or (shown.is_mixed and text and text in given):
        return WHOLE
    bare = _without_numbers(given)
    if bare == text:
        return WHOLE
    lines = text.split("\n")
    if shown.is_part or action.first_line is not None or action.line_count is not None:
        first = shown.first_line if shown.is_part else (action.first_line or 1)
        part = bare.split("\n") if bare != given else given.split("\n")
        if not shown.is_mixed and lines[first - 1 : first - 1 + len(part)] == part:
            last = min(first - 1 + len(part), len(lines))
            return Coverage(((first - 1, last),), len(lines))
        if shown.is_mixed and asked.ranges:
            start, end = asked.ranges[0]
            wanted = "\n".join(lines[start:end])
            if wanted and wanted in given:
                return asked
    return None


def asked_part(looked: FileState, action: Action) -> Coverage:
    """Return which lines a call asked for."""
    total = _line_count(looked)
    if action.first_line is None and action.line_count is None:
        return WHOLE
    if action.first_line == 0:  # The last ones.
        start, end = max(0, total - (action.line_count or 0)), total
    else:
        start = min((action.first_line or 1) - 1, total)
        end = total if action.line_count is None else min(start + action.line_count, total)
    return Coverage(((start, end),) if start < end else (), total)


def _line_count(looked: FileState) -> int:
    content = looked.content
    if content is None:
        return 1
    return content.count(b"\n") + (content != b"" and not content.endswith(b"\n"))


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").rstrip("\n")


def _without_numbers(text: str) -> str:
    """Take line numbers away (`12\\t`, `12→`, `12: `, `12. `, `12|`), if every line has the right one."""
    bare: list[str] = []
    number = None
    for line in text.split("\n"):
        left = line.lstrip()
        digits = left[: len(left) - len(left.lstrip("0123456789"))]
        if not digits or len(digits) > 9:
            return text
        if number is not None and int(digits) != number + 1:
            return text
        number = int(digits)
        rest = left[len(digits) :]
        for mark in ("\t", "→", ": ", ". ", "| ", "|", ":", "."):
            if rest.startswith(mark):
                bare.append(rest[len(mark) :])
                break
        else:
            return text
    return "\n".join(bare)
