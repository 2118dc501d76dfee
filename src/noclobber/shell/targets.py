"""
Which files a shell command writes, as far as that can be told for certain from its text.

Far from everything: what a script writes is in the script. So this never says that a command writes nothing
else; it serves the level `watched`, which refuses a command early if one of these files is stale. A target is
a literal word of a simple command: where a redirection goes, or an operand of a program that writes its
operands. A command after `||`, in a branch or in a function has none, nor has a text that
`syntax` cannot read for certain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.core.actions import DELETE, EDIT, WRITE, Action
from noclobber.shell.syntax import Word, located, parse

if TYPE_CHECKING:
    from noclobber.shell.syntax import SimpleCommand

# Formatters and the like that write the files that they are given, and the word that makes them do so.
_REWRITERS = {
    "ruff": ("format", "--fix"),
    "black": ("",),
    "isort": ("",),
    "prettier": ("--write", "-w"),
    "eslint": ("--fix",),
    "gofmt": ("-w",),
    "goimports": ("-w",),
    "rustfmt": ("",),
    "clang-format": ("-i",),
    "shfmt": ("-w",),
    "autopep8": ("-i", "--in-place"),
    "dos2unix": ("",),
    "unix2dos": ("",),
}


def targets(command: str) -> tuple[Action, ...]:
    """Return what a command is certain to write or remove if it gets that far; paths as it spells them."""
    script = parse(command)
    return tuple(
        _below(folder, action)
        for one, folder in located(script.commands if script.is_whole else ())
        if one.is_sure and folder is not None
        for action in _written_by(one)
    )


def _below(folder: str, action: Action) -> Action:
    is_relative = folder and not action.path.startswith("/")
    return action._replace(path=f"{folder}/{action.path}") if is_relative else action


def _written_by(command: SimpleCommand) -> list[Action]:
    found = []
    documents = [one.document for one in command.redirections if one.operator in ("<<", "<<-")]
    opened = [one for one in command.redirections if one.operator in (">", ">|", ">>", "<>")]
    outputs = [one for one in opened if one.descriptor in (-1, 1) and one.operator != "<>"]
    is_copy = command.name == "cat" and len(command.words) == 1 and len(documents) == 1
    for one in opened:
        if not one.target.is_literal or one.target.text.startswith("/dev/"):
            continue
        if is_copy and outputs[-1:] == [one] and one.operator != ">>":
            found.append(Action(WRITE, one.target.text, content=documents[0], is_certain=False))
        else:
            found.append(_changes(one.target.text))
    words = command.words[1:]
    operands = [word for word in words if not word.text.startswith("-")]
    if not all(word.is_literal for word in words):
        operands = []  # Which operand is which cannot be told.
    name = command.name
    texts = [word.text for word in words]
    if name == "git" and texts[:1] in (["rm"], ["mv"]) and not {"--cached", "-n", "--dry-run"} & {*texts}:
        name, words, operands = texts[0], words[1:], operands[1:]
    if name == "tee":
        found += [_changes(word.text) for word in operands]
    elif name == "sed" and any(_is_in_place(word.text) for word in words):
        found += [_changes(word.text) for word in _after_script(words)]
    elif name in ("rm", "unlink"):
        found += [Action(DELETE, word.text, is_certain=False) for word in operands]
    elif name == "mv" and len(operands) == 2 and len(words) == 2:
        found += [Action(DELETE, operands[0].text, is_certain=False), _changes(operands[1].text)]
    elif name in ("cp", "install", "ln") and len(operands) == 2:
        # `-t` and `-d` give the operands another meaning, `-n`, `-u` and `-i` may leave the file alone.
        options = [text for text in texts if text[:1] == "-" and text != "--"]
        if not any(text.startswith("--") or {*"tdnui"} & {*text} for text in options):
            found.append(_changes(operands[1].text))
    elif name == "truncate" and operands:
        found.append(_changes(operands[-1].text))
    elif name == "git":
        found += [_changes(word.text) for word in _git_operands(words)]
    elif name in _REWRITERS and any(need in ("", *texts) for need in _REWRITERS[name]):
        # A word after an option may belong to it. Some options only look.
        free = (*_REWRITERS[name], "--", "-q", "--quiet")
        if operands and not {"--check", "--check-only", "--diff", "--dry-run", "-d", "-n"} & {*texts}:
            for before, text in zip(["", *texts], texts, strict=False):
                is_free = not before.startswith("-") or before in free
                if is_free and text[:1] != "-" and "." in text.rpartition("/")[2][1:]:
                    found.append(_changes(text))
    return found


def _changes(path: str) -> Action:
    return Action(EDIT, path, is_certain=False)


def _is_in_place(option: str) -> bool:
    if option.startswith("--"):
        return option.startswith("--in-place")
    return option.startswith("-") and "i" in option.rstrip("eE")[:4]


def _after_script(words: tuple[Word, ...]) -> list[Word]:
    """Return the files of `sed -i`: all operands, but the first if no `-e` or `-f` has the script."""
    operands: list[Word] = []
    has_script = takes = False
    for word in words:
        if takes:
            takes = False
        elif word.text in ("-e", "-f", "--expression", "--file", "-l"):
            has_script, takes = has_script or word.text != "-l", True
        elif word.text.startswith(("-e", "-f", "--expression=", "--file=")):
            has_script = True
        elif not word.text.startswith("-"):
            operands.append(word)
    if not has_script:  # An empty word before it is the suffix that `-i` has on macOS.
        operands = operands[2:] if operands[:1] == [Word("")] else operands[1:]
    return operands if all(word.is_literal for word in operands) else []


def _git_operands(words: tuple[Word, ...]) -> list[Word]:
    """Return the files of `git checkout [TREE] -- FILE …` and `git restore FILE …`."""
    texts = [word.text for word in words]
    if not texts or not all(word.is_literal for word in words):
        return []
    if texts[0] == "checkout" and "--" in texts:
        return list(words[texts.index("--") + 1 :])
    if texts[0] == "restore" and "--staged" not in texts and "-S" not in texts:
        if "--" in texts:
            return list(words[texts.index("--") + 1 :])
        if not any(text in ("-s", "--source") for text in texts):
            return [word for word in words[1:] if not word.text.startswith("-")]
    return []
