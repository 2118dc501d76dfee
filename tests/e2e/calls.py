"""What a scripted model wants done, in nobody's words. A host's driver says it with the host's own tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Read(NamedTuple):
    """Look at a file: all of it, or `line_count` lines from `first_line` (from 1)."""

    path: Path
    first_line: int | None = None
    line_count: int | None = None


class Edit(NamedTuple):
    """Replace one whole line by another, both without their ends."""

    path: Path
    old: str
    new: str


class Write(NamedTuple):
    """Create a file, or replace all of it."""

    path: Path
    content: str


class Shell(NamedTuple):
    """Run a command."""

    command: str


class Delegate(NamedTuple):
    """Have a subagent follow another script, and wait for it."""

    word: str


class Native(NamedTuple):
    """Something that only one host has, in its own words."""

    tool: str
    input: dict[str, Any]


Call = Read | Edit | Write | Shell | Delegate | Native
Calls = Call | list[Call]
Act = Calls | Callable[[], Calls]
"""One message of the model: a call, several at once, or a function that is called at that moment and returns them."""
Acts = Sequence[Act] | Callable[[list[str]], Calls | None]
"""A script: messages one after the other, or a function from what the tools returned to the next message."""


def after(action: Callable[[], object], calls: Calls) -> Callable[[], Calls]:
    """Return a message before which something else happens: a person saves, a file is removed."""

    def act() -> Calls:
        action()
        return calls

    return act
