"""
Recognise what a shell command does to files: plain reads, and patches that it gives to `apply_patch`.

This is not a shell. A command is split into words. Words that expand, substitute or redirect are ignored,
because a wrong guess about what was read would be worse than none. Of what a shell *writes* only a removal
is recognised, so that the agent may create the file again. For anything else the agent's next guarded write
finds the file changed, and is refused until the agent has read it.
"""

from __future__ import annotations

from noclobber.core.actions import Action
from noclobber.errors import BadRequestError
from noclobber.lock.names import is_lock_file

TYPE_CHECKING = False

SEPARATORS = ("&&", "||", ";", "|", "&", "\n")
_SIGNS = "*?[]{}$`~"


def actions(command: str, kind: str) -> tuple[Action, ...]:
    """Return what a command reads (after it ran) or patches (before and after)."""
    if "*** Begin Patch" in command:
        from noclobber.text import apply_patch

        folder = _folder_before(command[: command.index("*** Begin Patch")])
        found = apply_patch.actions(command[command.index("*** Begin Patch") :])
        return tuple(_below(folder, action) for action in found)
    words = _split(command)
    if words is None:
        return ()
    simple = _simple_commands(words)
    if any(part[:1] in (["apply_patch"], ["applypatch"]) for part, _ in simple):
        raise BadRequestError(
            "",
            "The patch is not in the command itself, so it cannot be checked. Use the apply_patch tool, or "
            "put the patch into the command as a heredoc.",
        )
    found = _reads(simple)
    # Before a command runs its reads are free, except of lock files (REQ-LOCK-010).
    return tuple(read for read in found if is_lock_file(read.path)) if kind == "pre" else found


def _folder_before(opening: str) -> str:
    """Return the folder of `cd FOLDER && apply_patch <<EOF`, empty if there is none."""
    words = _split(opening.partition("apply_patch")[0])
    for part, _ in _simple_commands(words or []):
        if len(part) == 2 and part[0] == "cd":
            return part[1]
    return ""


def _below(folder: str, action: Action) -> Action:
    if not folder:
        return action

    def join(path: str) -> str:
        return path if path.startswith("/") else f"{folder}/{path}"

    source = action.moved_from
    return action._replace(path=join(action.path), moved_from=None if source is None else join(source))


def _reads(simple: list[tuple[list[str], str]]) -> tuple[Action, ...]:
    """Return what a line shows: for certain only if it is one plain command, after a `cd` at most."""
    found: list[Action] = []
    folder, before = "", ""
    for words, separator in simple:
        words = _without_stderr(words)
        # Redirected: the model may not have seen the output.
        is_redirected = any(word.startswith((">", "<")) or word[:2] in ("1>", "&>") for word in words)
        is_shown = separator not in ("|", "&") and before not in ("|", "||") and not is_redirected
        if len(words) == 2 and words[0] == "cd":
            folder = words[1]
        elif words:
            found += [_below(folder, one) for one in _read_by(words) if is_shown or one.is_removal]
        before = separator
    commands = [words for words, _ in simple if words and words[0] != "cd"]
    is_plain = len(commands) == 1 and all(separator in ("", "&&", ";", "\n") for _, separator in simple)
    return tuple(action._replace(is_certain=is_plain) for action in found)


def _without_stderr(words: list[str]) -> list[str]:
    """Leave out where error messages go: `2>/dev/null`, `2>&1`, and `2> file` as two words."""
    kept: list[str] = []
    is_goal = False
    for word in words:
        if not is_goal and not word.startswith("2>"):
            kept.append(word)
        is_goal = word in ("2>", "2>>")
    return kept


def _read_by(words: list[str]) -> list[Action]:
    """Return what one simple command reads, if it is one of those that show files as they are."""
    name = words[0].rpartition("/")[2]
    if name == "git" and words[1:2] in (["rm"], ["mv"]):
        name, words = words[1], words[1:]
    if name in ("rm", "unlink"):
        return [Action("read", word, is_removal=True) for word in _operands(words[1:])]
    if name == "mv":
        return [Action("read", word, is_removal=True) for word in _operands(words[1:])[:-1]]
    if name in ("cat", "nl", "bat", "less", "more", "tac"):
        return [Action("read", word) for word in _operands(words[1:])]
    if name in ("head", "tail"):
        return _by_count(name, words[1:])
    if name == "sed" and len(words) >= 4 and words[1] == "-n":
        first, last = _line_range(words[2])
        return [
            Action(
                "read", word, first_line=first, line_count=None if last is None else last - (first or 1) + 1
            )
            for word in _operands(words[3:])
            if first is not None
        ]
    return []


def _by_count(name: str, words: list[str]) -> list[Action]:
    count, rest, expects = 10, [], False
    for word in words:
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
            rest.append(word)
    if name == "tail":  # Which lines these are depends on the length of the file, which is not known here.
        return [Action("read", word, line_count=count, first_line=0) for word in _operands(rest)]
    return [Action("read", word, first_line=1, line_count=count) for word in _operands(rest)]


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


def _operands(words: list[str]) -> list[str]:
    return [
        word
        for word in words
        if not word.startswith(("-", ">", "<")) and not any(sign in word for sign in _SIGNS)
    ]


def _simple_commands(words: list[str]) -> list[tuple[list[str], str]]:
    """Group words into simple commands, each with the separator that follows it."""
    found: list[tuple[list[str], str]] = []
    here: list[str] = []
    for word in words:
        if word.startswith("\0"):
            found.append((here, word[1:]))
            here = []
        else:
            here.append(word)
    found.append((here, ""))
    return found


def _split(command: str) -> list[str] | None:
    """Split into words; separators are marked by a NUL before them. None: quotes that do not close."""
    if "\0" in command:
        return None
    words: list[str] = []
    word: str | None = None
    quote = ""
    at = 0
    while at < len(command):
        letter = command[at]
        at += 1
        if quote:
            if letter == quote:
                quote = ""
            elif letter == "\\" and quote == '"' and command[at : at + 1] in ('"', "\\", "$", "`"):
                word = f"{word}{command[at]}"
                at += 1
            else:
                word = f"{word}{letter}"
        elif letter in "'\"":
            quote, word = letter, word or ""
        elif letter == "\\":
            word = f"{word or ''}{command[at : at + 1]}"
            at += 1
        elif letter in " \t" or letter in "&|;\n":
            if word is not None:
                words.append(word)
                word = None
            if letter in "&|;\n":
                double = command[at : at + 1] == letter and letter != "\n"
                at += double
                words.append(f"\0{letter * (1 + double)}")
        elif letter == "#" and word is None:
            at = len(command) if "\n" not in command[at:] else command.index("\n", at)
        else:
            word = f"{word or ''}{letter}"
    if quote:
        return None
    return words if word is None else [*words, word]
