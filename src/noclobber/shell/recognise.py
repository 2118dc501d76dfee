"""
Recognise what a shell command does to files: plain reads, and patches that it gives to `apply_patch`.

Words that expand, substitute or redirect are ignored, because a wrong guess about what was read would be
worse than none. Of what a shell *writes* only a removal is recognised, so that the agent may create the file
again. For anything else the agent's next guarded write finds the file changed, and is refused until the agent
has read it. A heredoc is read as commands only if a shell gets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from noclobber.core.actions import Action
from noclobber.errors import BadRequestError
from noclobber.lock.names import is_lock_file
from noclobber.shell.syntax import located, parse

if TYPE_CHECKING:
    from noclobber.shell.syntax import Script, SimpleCommand, Word

BEGIN_PATCH = "*** Begin Patch"


def actions(command: str, kind: str) -> tuple[Action, ...]:
    """Return what a command reads (after it ran) or patches (before and after)."""
    script = parse(command)
    patching = [one for one in located(script.commands) if one[0].name in ("apply_patch", "applypatch")]
    if BEGIN_PATCH in command and (patching or not _is_copied(script)):
        from noclobber.text import apply_patch

        folder = patching[0][1] if patching else ""
        found = apply_patch.actions(command[command.index(BEGIN_PATCH) :])
        return tuple(_below(folder, action) for action in found)
    if patching:
        raise BadRequestError(
            "",
            "The patch is not in the command itself, so it cannot be checked. Use the apply_patch tool, or "
            "put the patch into the command as a heredoc.",
        )
    found = _reads(script)
    # Before a command runs its reads are free, except of lock files (REQ-LOCK-010).
    return tuple(read for read in found if is_lock_file(read.path)) if kind == "pre" else found


def _is_copied(script: Script) -> bool:
    """True if a patch is only text that `cat` or `tee` writes to a file: nothing applies it."""
    copied = [
        one.document
        for command in script.commands
        for one in command.redirections
        if command.name in ("cat", "tee") and one.document and BEGIN_PATCH in one.document
    ]
    words = (word.text for command in script.commands for word in command.words)
    return script.is_whole and len(copied) == 1 and not any(BEGIN_PATCH in text for text in words)


def _below(folder: str | None, action: Action) -> Action:
    if folder == "":
        return action

    def join(path: str) -> str:
        if folder is None and not path.startswith("/"):
            raise BadRequestError(
                "", "The folder that the patch is for cannot be told. Name it without variables."
            )
        return path if path.startswith("/") else f"{folder}/{path}"

    source = action.moved_from
    return action._replace(path=join(action.path), moved_from=None if source is None else join(source))


def _reads(script: Script) -> tuple[Action, ...]:
    """Return what a line shows: for certain only if it is one plain command, after a `cd` at most."""
    found: list[Action] = []
    commands = [one for one in script.commands if one.name != "cd"]
    is_plain = script.is_whole and len(commands) == 1 and not any(one.within for one in script.commands)
    is_plain = is_plain and all(one.separator in ("", "&&", ";", "\n") for one in script.commands)
    for one, folder in located(script.commands):
        if folder is None:
            continue
        is_certain = is_plain and all(word.is_literal for word in one.words)
        for read in _read_by(one):
            # In a pipe, a substitution or a file the model may not have seen it.
            if read.is_removal or _is_shown(one) or is_lock_file(read.path):
                found.append(_below(folder, read._replace(is_certain=is_certain)))
    return tuple(found)


def _is_shown(command: SimpleCommand) -> bool:
    is_piped = command.separator in ("|", "&") or command.before in ("|", "||")
    is_redirected = any(one.descriptor != 2 for one in command.redirections)
    return not is_piped and not is_redirected and all(kind in ("(", "{", "sh") for kind in command.within)


def _read_by(command: SimpleCommand) -> list[Action]:
    """Return what one simple command reads, if it is one of those that show files as they are."""
    name, words = command.name.rpartition("/")[2], command.words
    texts = [word.text for word in words]
    if name == "git" and texts[1:2] in (["rm"], ["mv"]):
        name, words, texts = texts[1], words[1:], texts[1:]
    if name in ("rm", "unlink"):
        return [Action("read", path, is_removal=True) for path in _operands(words[1:])]
    if name == "mv":
        return [Action("read", path, is_removal=True) for path in _operands(words[1:])[:-1]]
    if name in ("cat", "nl", "bat", "less", "more", "tac"):
        return [Action("read", path) for path in _operands(words[1:])]
    if name in ("head", "tail"):
        return _by_count(name, words[1:])
    if name == "sed" and len(words) >= 4 and texts[1] == "-n":
        first, last = _line_range(texts[2])
        count = None if last is None else last - (first or 1) + 1
        paths = _operands(words[3:]) if first is not None else []
        return [Action("read", path, first_line=first, line_count=count) for path in paths]
    return []


def _by_count(name: str, words: tuple[Word, ...]) -> list[Action]:
    count, rest, expects = 10, [], False
    for each in words:
        word = each.text
        if expects or (word.startswith("-") and word[1:].isdigit()) or word.startswith("-n"):
            digits = word.removeprefix("-n") if not expects else word
            digits = digits.removeprefix("-").removeprefix("+")
            expects = word == "-n" and not expects
            if expects:
                continue
            if not digits.isdigit():
                return []
            count = int(digits)
        elif word.startswith("-"):
            return []
        else:
            rest.append(each)
    # Which lines `tail` shows depends on the length of the file, which is not known here.
    first = 0 if name == "tail" else 1
    return [Action("read", path, first_line=first, line_count=count) for path in _operands(rest)]


def _line_range(script: str) -> tuple[int | None, int | None]:
    """Read `3p`, `3,9p` and `3,$p`."""
    if not script.endswith("p"):
        return None, None
    first, comma, last = script[:-1].partition(",")
    if not first.isdigit() or (comma and not (last.isdigit() or last == "$")):
        return None, None
    if not comma:
        return int(first), int(first)
    return int(first), None if last == "$" else int(last)


def _operands(words: Sequence[Word]) -> list[str]:
    return [word.text for word in words if word.is_literal and word.text and not word.text.startswith("-")]
