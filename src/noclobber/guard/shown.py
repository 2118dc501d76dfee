"""
What part of a file an agent was shown, found by comparing what it was given with what is on the disk.

Somebody else read the file, and we look at it a moment later. If what the agent was given is the current
content, the hash of that is what the agent saw. If not, somebody wrote in between, or the host shows files
in a way that we do not know; then the age of the file decides: one that has not changed since before the
call is what was read, however it was shown. Of any other file it is not known which version the agent saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from noclobber.core.values import WHOLE, Coverage
from noclobber.disk import hashing

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
        given = _folded(shown.text)
        for text in _readings(looked.content):
            found = _compare(_folded(text), given, action, shown, asked)
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


def says_missing(text: str | None, path: str) -> bool:
    """
    True if what the agent was given says that there is no such file: `cat: a.txt: No such file or directory`.

    Otherwise a file that was deleted after the agent had read it would count as one that it knows to be gone.
    Commands name themselves and the file in any language; hosts say it in English.
    """
    name = path.rpartition("/")[2]
    for line in (text or "")[:MESSAGE_LETTERS].split("\n"):
        if name in line:
            words = line.lower()
            if line.startswith(_COMMANDS) or any(phrase in words for phrase in _MISSING):
                return True
    return False


MESSAGE_LETTERS = 4000
_COMMANDS = tuple(f"{name}: " for name in ("cat", "head", "tail", "sed", "nl", "ls", "stat", "less", "more"))
_MISSING = ("no such file", "not found", "does not exist", "enoent")


def _readings(content: bytes) -> Iterator[str]:
    """The text as hosts read it. If it is not UTF-8, some put a mark for each bad byte, or take Latin-1."""
    text = content.decode("utf-8", "replace")
    yield text
    if "\ufffd" in text:
        yield content.decode("latin-1")


def _compare(text: str, given: str, action: Action, shown: Shown, asked: Coverage) -> Coverage | None:
    whole = text.rstrip("\n")
    bare = _without_numbers(given.rstrip("\n"))
    if whole in (given.rstrip("\n"), bare) or (shown.is_mixed and whole and whole in given):
        return WHOLE
    lines = text.removesuffix("\n").split("\n")
    if shown.is_part or action.first_line is not None or action.line_count is not None:
        if not shown.is_mixed:
            first = shown.first_line if shown.is_part else (action.first_line or 1)
            part = (bare if bare != given.rstrip("\n") else given).split("\n")
            found = _matching(lines, first, part, asked)
            if found is not None:
                return found
        if asked.ranges:
            start, end = asked.ranges[0]
            wanted = "\n".join(lines[start:end])
            if wanted.strip() and wanted in given:
                return asked
    return None


def _matching(lines: list[str], first: int, part: list[str], asked: Coverage) -> Coverage | None:
    """Return which lines a part is, from line `first` on; None if the file has other lines there."""
    if lines[first - 1 : first - 1 + len(part)] != part:
        if part[-1] != "":
            return None
        part = part[:-1]  # The newline that ends the last line.
        if not part or lines[first - 1 : first - 1 + len(part)] != part:
            return None
    last = first - 1 + len(part)
    # Hosts drop empty lines at the end. Those that were asked for count as seen: nothing is in them.
    limit = asked.ranges[0][1] if asked.ranges else len(lines)
    while last < limit and not lines[last]:
        last += 1
    return Coverage(((first - 1, last),), len(lines))


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


def _folded(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


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
