"""
Which files a shell command writes, as far as that can be told for certain from its text.

Far from everything: what a script writes is in the script. So this never says that a command writes nothing
else; it serves the level `watched`, which refuses a command early if one of these files is stale. A target is
a literal word of a simple command: where a redirection goes, or an operand of a program that writes its
operands. A command after `||`, or one that `simple_commands` cannot read, has none.
"""

from __future__ import annotations

from noclobber.core.actions import DELETE, EDIT, WRITE, Action
from noclobber.shell.simple_commands import simple_commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noclobber.shell.simple_commands import SimpleCommand, Word

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
    found: list[Action] = []
    folder: str | None = ""
    before = ""
    for one in simple_commands(command) or ():
        if before != "||" and folder is not None:
            found += [_below(folder, action) for action in _written_by(one)]
        if one.name == "cd":
            folder = _changed(folder, one.words[1:])
        before = one.separator
    return tuple(found)


def _changed(folder: str | None, words: tuple[Word, ...]) -> str | None:
    """Return the folder after a `cd`, None if that cannot be told."""
    if folder is None or len(words) != 1 or not words[0].is_literal or words[0].text in ("", "-"):
        return None
    goal = words[0].text
    return goal if goal.startswith("/") or not folder else f"{folder}/{goal}"


def _below(folder: str, action: Action) -> Action:
    is_relative = folder and not action.path.startswith("/")
    return action._replace(path=f"{folder}/{action.path}") if is_relative else action


def _written_by(command: SimpleCommand) -> list[Action]:
    found = []
    documents = [one.document for one in command.redirections if one.operator in ("<<", "<<-")]
    is_copy = command.name == "cat" and len(command.words) == 1 and len(documents) == 1
    for one in command.redirections:
        if not one.target.is_literal or one.target.text.startswith("/dev/"):
            continue
        if one.operator in (">", ">|") and one.descriptor in (-1, 1) and is_copy:
            found.append(Action(WRITE, one.target.text, content=documents[0], is_certain=False))
        elif one.operator in (">", ">|", ">>", "<>"):
            found.append(_changes(one.target.text))
    words = command.words[1:]
    operands = [word for word in words if not word.text.startswith("-")]
    if not all(word.is_literal for word in words):
        operands = []  # Which operand is which cannot be told.
    name = command.name
    if name == "git" and words[:1] and words[0].text in ("rm", "mv") and words[0].is_literal:
        name, words, operands = words[0].text, words[1:], operands[1:]
    if name == "tee":
        found += [_changes(word.text) for word in operands]
    elif name == "sed" and any(_is_in_place(word.text) for word in words):
        found += [_changes(word.text) for word in _after_script(words)]
    elif name in ("rm", "unlink"):
        found += [Action(DELETE, word.text, is_certain=False) for word in operands]
    elif name == "mv" and len(operands) == 2 and len(words) == 2:
        found += [Action(DELETE, operands[0].text, is_certain=False), _changes(operands[1].text)]
    elif name in ("cp", "install", "ln") and len(operands) == 2:
        found.append(_changes(operands[1].text))
    elif name == "truncate" and operands:
        found.append(_changes(operands[-1].text))
    elif name == "git":
        found += [_changes(word.text) for word in _git_operands(words)]
    elif name in _REWRITERS and any(
        need in ("", *(word.text for word in words)) for need in _REWRITERS[name]
    ):
        found += [_changes(word.text) for word in operands if "." in word.text.rpartition("/")[2][1:]]
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
        elif word.text in ("-e", "-f", "--expression", "--file"):
            has_script = takes = True
        elif word.text.startswith(("-e", "-f", "--expression=", "--file=")):
            has_script = True
        elif not word.text.startswith("-"):
            operands.append(word)
    if not all(word.is_literal for word in (operands if has_script else operands[1:])):
        return []
    return operands if has_script else operands[1:]


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
