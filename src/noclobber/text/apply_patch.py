"""
Patches as Codex and opencode write them: several files in one text, found by context and not by line number.

    *** Begin Patch
    *** Update File: a.txt
    *** Move to: b.txt            (optional)
    @@ def f():                   (optional: look below this line)
     context
    -old
    +new
    *** Add File: new.txt
    +text
    *** Delete File: old.txt
    *** End Patch

`actions()` returns what a patch does to which file. A patch that cannot be read is an error, because what it
writes cannot be checked. `apply()` returns the outcome if the file has the lines exactly as the patch says.
Hosts differ in how loosely they match lines; for anything but an exact match it returns None: unknown.
"""

from __future__ import annotations

from noclobber.core.actions import Action
from noclobber.errors import BadRequestError, EditMismatchError
from noclobber.text.encoding import encode_anyway

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NamedTuple
else:
    from noclobber.core.light.named_tuples import NamedTuple

BEGIN, END = "*** Begin Patch", "*** End Patch"
UPDATE, ADD, DELETE, MOVE = "*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: "
END_OF_FILE = "*** End of File"


class PatchHunk(NamedTuple):
    """Replace the lines `old` with `new`; look for them below the line `below`, if one is given."""

    below: str | None
    old: tuple[str, ...]
    new: tuple[str, ...]
    at_end: bool = False


class Patch(NamedTuple):
    """The hunks of one file of a patch."""

    hunks: tuple[PatchHunk, ...]

    def apply(self, data: bytes, path: str) -> bytes:
        """Return the new content; `EditMismatchError` if the lines are not in the file exactly as given."""
        text = apply(data.decode("utf-8", "surrogateescape"), self.hunks)
        if text is None:
            raise EditMismatchError(path, "The lines of the patch were not found exactly as given.")
        return encode_anyway(text)


def actions(patch: str) -> tuple[Action, ...]:
    """Return what a patch does to files, one action each; `BadRequestError` if it cannot be read."""
    lines = patch.replace("\r\n", "\n").split("\n")
    start = next((at for at, line in enumerate(lines) if line.strip() == BEGIN), None)
    if start is None:
        raise _unreadable(1, f"it does not begin with {BEGIN!r}")
    found: list[Action] = []
    at = start + 1
    while at < len(lines) and lines[at].strip() != END:
        line = lines[at].rstrip()
        if line.startswith(UPDATE):
            at = _update(lines, at, found)
        elif line.startswith(ADD):
            at = _add(lines, at, found)
        elif line.startswith(DELETE):
            found.append(Action("delete", _name(line, DELETE, at)))
            at += 1
        elif not line.strip() or line.startswith("*** Environment ID:"):
            at += 1
        else:
            raise _unreadable(at + 1, f"did not expect {line[:60]!r}")
    if at >= len(lines):
        raise _unreadable(at, f"it does not end with {END!r}")
    if not found:
        raise _unreadable(at, "it changes no file")
    return tuple(found)


def _update(lines: list[str], at: int, found: list[Action]) -> int:
    name = _name(lines[at].rstrip(), UPDATE, at)
    at += 1
    goal = None
    if at < len(lines) and lines[at].startswith(MOVE):
        goal = _name(lines[at].rstrip(), MOVE, at)
        at += 1
    hunks: list[PatchHunk] = []
    below: str | None = None
    old: list[str] = []
    new: list[str] = []

    def close(at_end: bool = False) -> None:
        nonlocal below
        if old or new or below is not None:
            hunks.append(PatchHunk(below, tuple(old), tuple(new), at_end))
        below = None
        old.clear()
        new.clear()

    while at < len(lines):
        line = lines[at]
        if line.strip() == END_OF_FILE:
            close(at_end=True)
        elif line.startswith("*** "):
            break
        elif line.startswith("@@"):
            if old or new:
                close()
            elif below is not None:
                hunks.append(PatchHunk(below, (), ()))
            below = line[2:].strip() or None
        elif line.startswith("-"):
            old.append(line[1:])
        elif line.startswith("+"):
            new.append(line[1:])
        elif line.startswith(" ") or not line:
            old.append(line[1:])
            new.append(line[1:])
        else:
            raise _unreadable(at + 1, f"did not expect {line[:60]!r}")
        at += 1
    close()
    if goal is None:
        found.append(Action("edit", name, change=Patch(tuple(hunks))))
    else:
        found.append(Action("write", goal, change=Patch(tuple(hunks)), moved_from=name))
        found.append(Action("delete", name))
    return at


def _add(lines: list[str], at: int, found: list[Action]) -> int:
    name = _name(lines[at].rstrip(), ADD, at)
    at += 1
    text: list[str] = []
    while at < len(lines) and not lines[at].startswith("*** "):
        if lines[at].startswith("+"):
            text.append(lines[at][1:])
        elif lines[at].strip():
            raise _unreadable(at + 1, "a new file's lines begin with +")
        at += 1
    found.append(Action("write", name, content="".join(f"{line}\n" for line in text)))
    return at


def _name(line: str, opening: str, at: int) -> str:
    name = line[len(opening) :].strip()
    if not name:
        raise _unreadable(at + 1, "the file's name is missing")
    return name


def apply(text: str, hunks: Sequence[PatchHunk]) -> str | None:
    """Return the text after the patch; None if the file does not have the lines exactly as given."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    changes: list[tuple[int, int, tuple[str, ...]]] = []
    at = 0
    for hunk in hunks:
        if hunk.below is not None:
            found = _seek(lines, (hunk.below,), at)
            if found is None:
                return None
            at = found + 1
        old, new = hunk.old, hunk.new
        if not old:
            if new:
                changes.append((len(lines), 0, new))
            continue
        start = max(at, len(lines) - len(old)) if hunk.at_end else at
        found = _seek(lines, old, start)
        if found is None and old[-1] == "" and len(old) > 1:
            old, new = old[:-1], new[:-1] if new and new[-1] == "" else new
            found = _seek(lines, old, start)
        if found is None:
            return None
        changes.append((found, len(old), new))
        at = found + len(old)
    for start, count, new in sorted(changes, key=lambda change: change[0], reverse=True):
        lines[start : start + count] = new
    return "".join(f"{line}\n" for line in lines)


def _seek(lines: list[str], wanted: tuple[str, ...], start: int) -> int | None:
    count = len(wanted)
    first = wanted[0] if wanted else ""
    for at in range(start, len(lines) - count + 1):
        if lines[at] == first and tuple(lines[at : at + count]) == wanted:
            return at
    return None


def _unreadable(line: int, why: str) -> BadRequestError:
    return BadRequestError(
        "",
        f"The patch cannot be read (line {line}: {why}), so what it writes cannot be checked. "
        "Send it again as *** Begin Patch … *** End Patch.",
        line=line,
    )
