"""
What a tool call does to one file, and what the agent was shown of it.

A library call, a host's event, an MCP call and a patch all end up as a tuple of these.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple

    from noclobber.core.values import Edit
else:
    from noclobber.core.light.named_tuples import NamedTuple


class Action(NamedTuple):
    """What a tool call does to one file."""

    kind: str
    """`read`, `write` (the whole file), `edit`, `delete`."""
    path: str
    content: str | None = None
    """Of a write: the whole text."""
    edits: tuple[Edit, ...] = ()
    hunks: tuple[Any, ...] | None = None
    """Of a patch: what `apply_patch.apply` takes."""
    first_line: int | None = None
    line_count: int | None = None
    moved_from: str | None = None
    """Of a patch that moves: where the text comes from; `hunks` are applied to that."""


class Shown(NamedTuple):
    """What the model was given to read. `text` None: nothing that can be compared."""

    text: str | None = None
    first_line: int = 1
    is_part: bool | None = None
    """None: not said."""
    is_mixed: bool = False
    """True if other text stands around it: a shell's output."""
