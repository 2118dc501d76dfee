"""
Formatters: whose change was it that came right after the agent's own write?

A user's hook or editor may rewrite a file after each edit of an agent. Who did it cannot be known, but often
what was done can: the bytes that the agent's call left are held, and compared with what is there now. If only
the layout differs (`text/layout`), or the project's option `formatters` names the file and it changed within
seconds of the agent's write, the change counts as the formatter's: the agent's next change is made from it.

`formatters` may name commands as well ("ruff format"). What such a command changed when the agent ran it in
its shell is the agent's own version, also of files that it had only read. It may change layout only: a word
more in the file is somebody else's, who saved it at the same moment, and the file must be read again.

Nothing is lost by that, even if it was a person. An edit is made by the host in what is there now, so all of
it stays. A whole-file write over a version that a formatter left and the agent has not read replaces it;
then that version is kept (`.noclobber/kept`), and is on record. docs/decisions/formatters.md has the reasons.

Notes that this uses: `wrote`, the agent's last own version and when it was noted; `formatted`, the version
that a formatter left and that the agent has not read since.
"""

from __future__ import annotations

from noclobber.text.layout import is_same_but_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noclobber.core.options import Options
    from noclobber.disk.reading import FileState
    from noclobber.guard.memory import Memory
    from noclobber.shell.watched import WatchedChange

RIGHT_AFTER_S = 10.0
_RUNNERS = (
    *("npx", "bunx", "pnpx", "npm", "pnpm", "yarn", "bun", "exec", "dlx", "run", "--"),
    *("uv", "uvx", "poetry", "pipx", "hatch", "python", "python3", "-m", "env", "time"),
)
"""Words that may stand before a formatter's name: programs that run other programs."""
_MOST_BEFORE = 4
_FILE_SIGNS = "*?[]/."


def names_a_command(formatters: tuple[str, ...]) -> bool:
    """True if the option has a command among its file patterns: words without the signs of a pattern."""
    return any(not any(sign in entry for sign in _FILE_SIGNS) for entry in formatters)


def runs_a_formatter(text: str, formatters: tuple[str, ...]) -> bool:
    """True if a shell command runs one of the commands that the option names."""
    named = [entry.split() for entry in formatters if entry.strip()]
    if not any(words[0] in text for words in named):
        return False
    from noclobber.shell.simple_commands import simple_commands

    for command in simple_commands(text) or ():
        words = [word.text for word in command.words if word.is_literal]
        if any(_is_call_of(words, entry) for entry in named):
            return True
    return False


def _is_call_of(words: list[str], entry: list[str]) -> bool:
    for at, word in enumerate(words[: _MOST_BEFORE + 1]):
        if word.rpartition("/")[2] == entry[0]:
            return all(part in words[at + 1 :] for part in entry[1:])
        if word not in _RUNNERS:
            return False
    return False


def follow_command(memory: Memory, change: WatchedChange, now_s: float) -> None:
    """Take what a formatter, run by the agent itself, made of a version that the agent knew for its own."""
    from noclobber.core.values import WHOLE
    from noclobber.disk.reading import look_at

    path = change.path
    snapshot, notes = memory.recall(path, path)
    state, was = look_at(path, keep=True), memory.held(change.before)
    if (
        snapshot.expected_for(path, path) == change.before
        and state.sha256 == change.after
        and state.content is not None
        and was is not None
        and is_same_but_layout(was, state.content, path)
    ):
        seen = snapshot.coverage_for(path, path) or WHOLE
        snapshot.wrote(path, path, change.after, None, seen)
        notes["wrote"] = [change.after, now_s]
        notes["formatted"] = change.after  # A whole-file write over it, unread, keeps it.
        memory.hold(path, change.after, state.content)
        memory.keep(snapshot, path, path, notes)


def is_formatters_work(
    memory: Memory, options: Options, root: str, state: FileState, made: str | None, made_at_s: float
) -> bool:
    """True if what is there is what the agent's call left, but for what a formatter does."""
    if state.content is None:
        return False
    was_made = memory.held(made)
    is_followed = was_made is not None and (options.layout == "follow" or names_a_command(options.formatters))
    if is_followed and is_same_but_layout(was_made or b"", state.content, state.path):
        return True
    relative = state.path.removeprefix(f"{root}/")
    return state.changed_at_s <= made_at_s + RIGHT_AFTER_S and any(
        matches(relative, pattern) for pattern in options.formatters
    )


def matches(path: str, pattern: str) -> bool:
    """True if a path fits a pattern with a slash, or its name fits one without."""
    from fnmatch import fnmatchcase  # Here: it is slow to load, and few projects have such a list.

    return fnmatchcase(path if "/" in pattern else path.rpartition("/")[2], pattern)
