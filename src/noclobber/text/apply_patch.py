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
writes cannot be checked. `apply()` returns the outcome as Codex 0.166 makes it: lines are looked for exactly,
then without blanks at their end, then without blanks on either side, then with plain quotes and dashes;
lines of context stay as they are, new lines get the ending that the file's first line has. An older Codex
ends new lines in `\\n`; the plain form of an outcome (`guard/outcome`) is the same for both. None: the lines
are not in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from noclobber.core.actions import Action
from noclobber.errors import BadRequestError, EditMismatchError
from noclobber.text.encoding import encode_anyway

BEGIN, END = "*** Begin Patch", "*** End Patch"
UPDATE, ADD, DELETE, MOVE = "*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: "
END_OF_FILE = "*** End of File"


class PatchHunk(NamedTuple):
    """Replace the lines `old` with `new`; look for them below the line `below`, if one is given."""

    below: str | None
    old: tuple[str, ...]
    new: tuple[str, ...]
    at_end: bool = False
    context: tuple[tuple[int, int], ...] = ()
    """Lines that are in both: their places in `old` and in `new`."""


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

    context: list[tuple[int, int]] = []

    def close(at_end: bool = False) -> None:
        nonlocal below
        if old or new or below is not None:
            hunks.append(PatchHunk(below, tuple(old), tuple(new), at_end, tuple(context)))
        below = None
        old.clear()
        new.clear()
        context.clear()

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
            context.append((len(old), len(new)))
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
    """Return the text after the patch; None if the file does not have the lines."""
    lines, endings = _split(text)
    usual = endings[0] or "\n" if endings else "\n"
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
            changes.append((len(lines), 0, new))
            continue
        found = _seek(lines, old, at, at_end=hunk.at_end)
        if found is None and old[-1] == "" and len(old) > 1:
            # An empty line at the end may stand for the newline that ends the file.
            old, new = old[:-1], new[:-1] if new and new[-1] == "" else new
            found = _seek(lines, old, at, at_end=hunk.at_end)
        if found is None:
            return None
        changes += _between_context(found, old, new, hunk.context)
        at = found + len(old)
    changes.sort(key=lambda change: change[0])
    kept = [line + (ending or usual) for line, ending in zip(lines, endings, strict=True)]
    made: list[str] = []
    done = 0
    for start, count, new in changes:
        made += kept[done:start]
        made += [line + usual for line in new]
        done = start + count
    made += kept[done:]
    return "".join(made)


def _split(text: str) -> tuple[list[str], list[str]]:
    """Split text into lines and their endings: `\\n`, `\\r\\n`, `\\r`, and none for a last line without."""
    lines: list[str] = []
    endings: list[str] = []
    for piece in text.split("\n"):
        # A lone `\r` ends a line, too; one before `\n` belongs to that.
        inner = piece.split("\r")
        is_crlf = len(inner) > 1 and inner[-1] == ""
        if is_crlf:
            inner.pop()
        lines += inner
        endings += ["\r"] * (len(inner) - 1) + ["\r\n" if is_crlf else "\n"]
    if text.endswith("\n") or not text:
        return lines[:-1], endings[:-1]
    endings[-1] = "\r" if endings[-1] == "\r\n" else ""  # After the last piece there is no newline.
    return lines, endings


def _between_context(
    start: int, old: tuple[str, ...], new: tuple[str, ...], context: tuple[tuple[int, int], ...]
) -> list[tuple[int, int, tuple[str, ...]]]:
    """Return what is replaced between lines of context, which stay as the file has them."""
    changes: list[tuple[int, int, tuple[str, ...]]] = []
    old_at = new_at = 0
    for in_old, in_new in (*context, (len(old), len(new))):
        if in_old > len(old) or in_new > len(new):
            break
        if (old_at, new_at) != (in_old, in_new):
            changes.append((start + old_at, in_old - old_at, new[new_at:in_new]))
        old_at, new_at = in_old + 1, in_new + 1
    return changes


def _seek(lines: list[str], wanted: tuple[str, ...], start: int, *, at_end: bool = False) -> int | None:
    """Return where some lines are, from a line on: exactly, or else ever more loosely."""
    count = len(wanted)
    if not count:
        return start
    first = max(start, len(lines) - count) if at_end else start
    for loosely in (str, _without_end, str.strip, _in_plain_letters):
        goal = [loosely(line) for line in wanted]
        for at in range(first, len(lines) - count + 1):
            if loosely(lines[at]) == goal[0] and [loosely(line) for line in lines[at : at + count]] == goal:
                return at
    return None


def _without_end(line: str) -> str:
    return line.rstrip()


def _in_plain_letters(line: str) -> str:
    return line.strip().translate(_PLAIN_LETTERS)


_PLAIN_LETTERS = {
    **dict.fromkeys((*range(0x2010, 0x2016), 0x2212), "-"),
    **dict.fromkeys(range(0x2018, 0x201C), "'"),
    **dict.fromkeys(range(0x201C, 0x2020), '"'),
    **dict.fromkeys((0xA0, *range(0x2002, 0x200B), 0x202F, 0x205F, 0x3000), " "),
}


def _unreadable(line: int, why: str) -> BadRequestError:
    return BadRequestError(
        "",
        f"The patch cannot be read (line {line}: {why}), so what it writes cannot be checked. "
        "Send it again as *** Begin Patch … *** End Patch.",
        line=line,
    )
