"""
Which tools a host asks us about: all of its own, except those that are known to write nothing.

A list of the tools that write would be shorter. But hosts rename their tools and get new ones, and what is
not on such a list is written unchecked, with no word from anybody. So the list is of the others. They start
no process; a tool that nobody knows starts one, and the hook judges it (`event.unknown_tool`).

Tools of MCP servers are asked about if their names say that they change or read something.

Used by `install` and `doctor`. A hook call does not load this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MCP = "mcp__"
MCP_WRITERS = "mcp__.*(write|edit|create|delete|remove|move|rename|patch|replace|insert|save|update|append).*"
MCP_READERS = "mcp__.*(read|view|open).*"


def all_but(names: Iterable[str], *more: str, mcp: str = MCP) -> str:
    """
    Return a regular expression for every tool except some and those of MCP servers, and for `more`.

    For hosts that are written in JavaScript, whose regular expressions look ahead.
    """
    others = f"(?!({'|'.join(names)})$)(?!{mcp}).*"
    return f"^({'|'.join((others, *more))})$"


def all_but_spelled_out(names: Iterable[str], *more: str) -> str:
    """
    Return the same for a host whose regular expressions cannot look ahead: Codex is written in Rust.

    It branches at each letter of a name, so it is long; give it few names.
    """
    others = _others({*names, f"{MCP}*"})
    return f"^({'|'.join((others, *more))})$"


def _others(names: set[str]) -> str:
    """Return an expression for what is none of some names. `*` stands for whatever may follow."""
    letters = sorted({name[0] for name in names if name})
    branches = [f"[^{''.join(letters)}].*" if letters else ".+"]
    for letter in letters:
        rest = {name[1:] for name in names if name[:1] == letter}
        if "*" not in rest:
            branches.append(f"{letter}{_others(rest)}")
    return f"({'|'.join(branches)})" + ("" if "" in names else "?")
