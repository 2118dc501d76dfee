"""
Is a shell command plainly read-only? Then it needs no guard: it passes as it is.

Only what can be told for certain counts. Every simple command must be a program in the tables below, with
options that are in the tables too. They list what is harmless, because programs accept abbreviated options,
and their next version has new ones. Redirections may only go to `/dev/null` or join the two outputs. Whatever
has substitutions, groups or keywords, or cannot be read for certain (`syntax`), may write.

Names are taken to mean what they usually mean: an alias or a program of the user's called `ls` that writes is
not seen. `git status` and `git diff` may refresh the dates in git's index; that loses nobody's work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from noclobber.shell import harmless
from noclobber.shell.git_programs import may_run
from noclobber.shell.syntax import RUNNERS, SimpleCommand, parse

if TYPE_CHECKING:
    from noclobber.shell.syntax import Redirection, Word

MOST_DEPTH = 4


def is_read_only(
    command: str, *, cwd: str = "", but_for: Callable[[SimpleCommand], bool] | None = None
) -> bool:
    """
    True if it is certain that a command changes no file. What `but_for` accepts may change its own.

    `cwd`: where it begins, for what git would run there.
    """
    script = parse(command)
    words = [word for one in script.commands for word in one.words]
    if cwd and any(word.text.rpartition("/")[2] == "git" for word in words):
        if any(one.name == "cd" and not all(w.is_literal for w in one.words) for one in script.commands):
            return False
        if may_run(cwd, [word.text for word in words]):
            return False
    return script.is_whole and all(
        (but_for is not None and _may(one, but_for))
        # What a program like `timeout` runs is judged with the program.
        or (one.within[0] in RUNNERS if one.within else _reads(one))
        for one in script.commands
    )


def _may(command: SimpleCommand, accepted: Callable[[SimpleCommand], bool]) -> bool:
    """True for a command that is accepted, or a group of such."""
    if command.separator == "&" or not all(_is_harmless(one) for one in command.redirections):
        return False
    return accepted(command) or not (command.words or command.assignments)


def _reads(command: SimpleCommand, depth: int = 0) -> bool:
    if command.separator == "&" or not all(_is_harmless(one) for one in command.redirections):
        return False
    variables = [word.text.partition("=")[0] for word in command.assignments if word.is_literal]
    if len(variables) < len(command.assignments) or not harmless.VARIABLES.issuperset(variables):
        return False
    if not command.words:
        return True
    name, arguments = command.name, [*command.words[1:]]
    if name in harmless.OPEN:
        return True
    if [word.text for word in arguments] == ["--version"]:
        return name in harmless.VERSIONED
    judge = _JUDGES.get(name)
    if judge is not None:
        return judge(arguments, depth)
    letters = harmless.LETTERS.get(name)
    return letters is not None and _has_options_of(arguments, letters, harmless.LONG[name])


def _is_harmless(redirection: Redirection) -> bool:
    _, operator, target, _ = redirection
    if not target.is_literal:
        return False
    if operator in (">", ">>", "<"):
        return target.text == "/dev/null"
    return operator == ">&" and target.text in ("1", "2")


def _has_options_of(arguments: list[Word], letters: str, long: frozenset[str]) -> bool:
    """
    True if every word that may be an option is one of these.

    Also after `--`: it may be the value of an option before it, and then the options go on.
    """
    for word in arguments:
        if not word.is_bound:
            return False  # It may turn out to be an option.
        text = word.text
        if not text.startswith("-") or text in ("-", "--"):
            continue
        if not word.is_literal:
            return False
        if text.startswith("--"):
            if text[2:].partition("=")[0] not in long:
                return False
        elif not all(letter in letters for letter in text[1:]):
            return False
    return True


# -- programs with rules of their own ----------------------------------------------------------------------


def _cd(arguments: list[Word], depth: int) -> bool:
    return len(arguments) <= 1


def _find(arguments: list[Word], depth: int) -> bool:
    takes = 0
    for word in arguments:
        if takes:
            takes -= 1
            if not word.is_literal:
                return False
        elif not word.is_bound:
            return False
        elif word.text in harmless.FIND_WITH_WORD:
            takes = 1
        elif word.text not in harmless.FIND_ALONE and word.text.startswith(("-", "(", ")", "!", ",")):
            return False
    return takes == 0


def _git(arguments: list[Word], depth: int) -> bool:
    if not all(word.is_bound for word in arguments):
        return False
    words = list(arguments)
    while words and words[0].is_literal and words[0].text in harmless.GIT_BEFORE:
        del words[: 1 + harmless.GIT_BEFORE[words[0].text]]
    if not words or not words[0].is_literal:
        return False
    name, rest = words[0].text, words[1:]
    texts = [word.text for word in rest]
    if not all(word.is_literal for word in rest if word.text.startswith("-")):
        return False
    if name in harmless.GIT_LOOKS:
        letters = harmless.GIT_LETTERS if name != "grep" else harmless.GIT_LETTERS.replace("O", "")
        return _has_options_of(rest, letters, harmless.GIT_LONG)
    if name == "branch":
        lists = ("-a", "-r", "-v", "-vv", "-av", "-avv", "--list", "--all", "--remotes", "--show-current")
        return all(text in lists for text in texts)
    if name == "tag":
        return not texts or (texts[0] in ("-l", "--list") and not any(t.startswith("-") for t in texts[1:]))
    if name == "remote":
        return texts in ([], ["-v"], ["--verbose"]) or (texts[:1] == ["get-url"] and len(texts) == 2)
    if name == "stash":
        return texts in (["list"], ["show"], ["show", "-p"])
    if name == "config":
        return texts[:1] in (["--get"], ["--get-all"], ["--list"], ["-l"]) and len(texts) <= 2
    if name == "cat-file":
        return len(texts) == 2 and texts[0] in ("-p", "-t", "-s", "-e")
    if name == "worktree":
        return texts in (["list"], ["list", "--porcelain"])
    return name == "reflog" and texts in ([], ["show"])


def _sed(arguments: list[Word], depth: int) -> bool:
    """`sed -n '3,9p' file`: a script may write and run anything, so only lines by their numbers."""
    texts = [word.text for word in arguments]
    if len(texts) < 2 or texts[0] != "-n" or not all(word.is_bound for word in arguments):
        return False
    script = texts[1]
    if not arguments[1].is_literal or not script.endswith("p") or script[:-1].strip("0123456789,$"):
        return False
    return not any(text.startswith("-") for text in texts[2:])


def _awk(arguments: list[Word], depth: int) -> bool:
    """A script without output to files or programs, and nothing that runs one."""
    words = list(arguments)
    while words and words[0].text.startswith("-F") and words[0].is_literal:
        del words[: 2 if words[0].text == "-F" else 1]
    if not words or not all(word.is_bound for word in words) or not words[0].is_literal:
        return False
    script = words[0].text
    if script.startswith("-") or any(
        sign in script for sign in (">", "|", "@", "system", "getline", "close")
    ):
        return False
    return not any(word.text.startswith("-") for word in words[1:])


def _test(arguments: list[Word], depth: int) -> bool:
    # `-v` takes a variable, and bash computes the index of one, with whatever that runs.
    return all(word.is_literal and word.text not in ("-v", "-R") for word in arguments)


def _printf(arguments: list[Word], depth: int) -> bool:
    return bool(arguments) and arguments[0].is_literal and not arguments[0].text.startswith("-")


def _uniq(arguments: list[Word], depth: int) -> bool:
    """The second file that it is given is written."""
    operands = [word for word in arguments if not word.text.startswith("-")]
    if len(operands) > 1 or not all(word.is_literal for word in arguments):
        return False
    return _has_options_of(arguments, "cdDuiz", frozenset(("count", "repeated", "unique", "ignore-case")))


def _date(arguments: list[Word], depth: int) -> bool:
    texts = [word.text for word in arguments]
    is_plain = all(text.startswith("+") or text in ("-u", "-I", "-R", "--utc", "-Iseconds") for text in texts)
    return is_plain and all(word.is_literal for word in arguments)


def _alone(arguments: list[Word], depth: int) -> bool:
    return not arguments


def _pager(arguments: list[Word], depth: int) -> bool:
    return all(word.is_bound and not word.text.startswith(("-", "+")) for word in arguments)


def _command(arguments: list[Word], depth: int) -> bool:
    return len(arguments) == 2 and arguments[0].text in ("-v", "-V")


def _set(arguments: list[Word], depth: int) -> bool:
    return bool(arguments) and all(word.is_literal and word.text in harmless.SET for word in arguments)


def _exit(arguments: list[Word], depth: int) -> bool:
    return len(arguments) <= 1 and all(word.is_literal and word.text.isdigit() for word in arguments)


def _timeout(arguments: list[Word], depth: int) -> bool:
    if len(arguments) < 2 or not arguments[0].text[:1].isdigit() or not arguments[0].is_literal:
        return False
    return depth < MOST_DEPTH and _runs_reader(arguments[1:], depth)


def _xargs(arguments: list[Word], depth: int) -> bool:
    """What it reads may be options, so only for programs that write nothing, whatever they are given."""
    words = list(arguments)
    while words and words[0].text in ("-0", "-r", "-0r", "-r0", "--null", "--no-run-if-empty"):
        words.pop(0)
    if not words or not words[0].is_literal:
        return False
    name = SimpleCommand(tuple(words)).name
    return name == "grep" or (name in harmless.OPEN and name not in ("type", ":"))


def _runs_reader(words: list[Word], depth: int) -> bool:
    inner = SimpleCommand(tuple(words))
    # A shell's own commands are no programs: another program cannot run them.
    return inner.name not in ("cd", "set", "exit", "command", ":", "type") and _reads(inner, depth + 1)


_JUDGES: dict[str, Callable[[list[Word], int], bool]] = {
    "cd": _cd,
    "find": _find,
    "git": _git,
    "sed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "test": _test,
    "[": _test,
    "printf": _printf,
    "uniq": _uniq,
    "date": _date,
    "hostname": _alone,
    "env": _alone,
    "less": _pager,
    "more": _pager,
    "command": _command,
    "set": _set,
    "exit": _exit,
    "timeout": _timeout,
    "xargs": _xargs,
}
