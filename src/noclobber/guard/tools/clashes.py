"""Two tools with one name: a model could not say which it means, so it is an error before the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noclobber.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def refuse_clashes(ours: Iterable[str], theirs: Iterable[str], remedy: str) -> None:
    """Raise if a guarded tool has the name of one of the user's own. `remedy` says what to change."""
    if both := sorted(set(ours) & set(theirs)):
        raise BadRequestError(
            "", f"A tool of your own is named {both[0]!r}, as a guarded one is. {remedy}", tool=both[0]
        )


def names_in(tools: Iterable[Any]) -> Iterator[str]:
    """Yield the names of tools as any API has them: texts, definitions, or lists of definitions in one."""
    for tool in tools:
        if isinstance(tool, str):
            yield tool
            continue
        if isinstance(tool, dict):
            for inner in ("functionDeclarations", "function_declarations"):
                yield from names_in(tool.get(inner) or ())
            tool = tool.get("function", tool)
        name = tool.get("name") if isinstance(tool, dict) else getattr(tool, "name", None)
        if isinstance(name, str):
            yield name
