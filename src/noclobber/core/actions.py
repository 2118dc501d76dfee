"""
What a tool call does to files, in the words that every judge understands.

A library call, a host's event, an MCP call and a patch all become a tuple of `Action` values, one a file.
What a host or an integrator's executor says afterwards becomes a `CallResult`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class ContentChange(Protocol):
    """How an edit makes new content from old: a value, so that one call can be told from another."""

    def apply(self, data: bytes, path: str) -> bytes:
        """Return the new content; `EditMismatchError` if the change does not fit."""


READ, WRITE, EDIT, DELETE, MOVE, CREATE = "read", "write", "edit", "delete", "move", "create"


class Action(NamedTuple):
    """What a tool call does to one file."""

    kind: str
    """`read`, `write` (the whole file), `edit`, `delete`, `move`, or `create` (a move's destination)."""
    path: str
    """As the caller spelled it."""
    content: str | bytes | None = None
    """Of a write: the whole new content."""
    change: ContentChange | None = None
    """Of an edit, or of a write that starts from another file: the new content from the old one."""
    first_line: int | None = None
    """Of a read: the first line that was asked for, from 1; 0 means the last `line_count` ones."""
    line_count: int | None = None
    is_certain: bool = True
    """False if it may not have happened, or not alone: one of several commands in a line, or a guess."""
    is_removal: bool = False
    """Of a read: True for a command that shows nothing and removes the file; it tells that there is none."""
    moved_from: str | None = None
    """Of a patch that moves: where the text comes from; `change` is applied to that."""
    expected_hash: str | None = None
    """What the caller says that the file holds; it beats what the turn remembers."""
    observation_id: str | None = None
    mode: int | None = None
    """Of a write that creates a file: its permissions. None: as the umask says."""


class Shown(NamedTuple):
    """What the model was given to read. `text` None: nothing that can be compared."""

    text: str | None = None
    first_line: int = 1
    is_part: bool | None = None
    """None: not said."""
    is_mixed: bool = False
    """True if there is other text around it: a shell's output."""


class CallResult(NamedTuple):
    """What is known of a call that somebody else carried out."""

    shown: Shown = Shown()
    content: bytes | None = None
    """The bytes that a read returned, or that a write left, if the executor says so."""
    sha256: str | None = None
    """The hash of what a write left, if the executor says so."""
    duration_s: float | None = None
    happened_at: str = ""
    """When, in the host's words; the same for both deliveries of one event."""
