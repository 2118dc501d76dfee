"""
Formatters: whose change was it that came right after the agent's own write?

A user's hook or editor may rewrite a file after each edit of an agent. Who did it cannot be known, but often
what was done can: the bytes that the agent's call left are held, and compared with what is there now. If only
the layout differs (`text/layout`), or the project's option `formatters` names the file and it changed within
seconds of the agent's write, the change counts as the formatter's: the agent's next change is made from it.

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

RIGHT_AFTER_S = 10.0


def is_formatters_work(
    memory: Memory, options: Options, root: str, state: FileState, made: str | None, made_at_s: float
) -> bool:
    """True if what is there is what the agent's call left, but for what a formatter does."""
    if state.content is None:
        return False
    was_made = memory.held(made)
    is_followed = options.layout == "follow" and was_made is not None
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
