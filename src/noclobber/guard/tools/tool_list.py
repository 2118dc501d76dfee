"""
ToolList: the guarded tools of a turn in one API's format, and the one `call` that does what a model asks.

It is a list, so it goes to an API as it is, alone or as a part of a longer one. `carry_out()` is the same
without an API's format, for adapters of frameworks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noclobber.errors import BadRequestError, NoclobberError, UnknownToolError
from noclobber.guard.tools import answers, arguments
from noclobber.guard.tools.definitions import TOOLS
from noclobber.guard.tools.formats import format_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noclobber.guard.tools.answers import ToolAnswer
    from noclobber.guard.tools.definitions import ModelTool
    from noclobber.guard.turn import Turn


class ToolList(list[dict[str, Any]]):
    """The guarded tools in one format. `call()` takes a model's call in that format and answers it."""

    def __init__(
        self,
        turn: Turn,
        api: str = "openai",
        *,
        only: Iterable[str] | None = None,
        prefix: str = "",
        beside: Iterable[Any] = (),
    ) -> None:
        self._turn, self._format, self._prefix = turn, format_named(api), prefix
        self._tools = chosen(only)
        ours = [prefix + name for name in self._tools]
        refuse_clashes(ours, names_in(beside), 'Rename yours, or pass prefix="fs_".')
        named = [tool._replace(name=prefix + tool.name) for tool in self._tools.values()]
        super().__init__(self._format.tools(named))

    def call(self, tool_call: object) -> dict[str, Any]:
        """
        Carry out a model's tool call, and return the tool's result for the model.

        A refusal is a result, too: the exact 009 object for a stale write. A `tool_call` that is not in this
        format is a `BadRequestError`: that is the program's mistake, and no model can correct it.
        """
        call = self._format.call(tool_call)
        return self._format.result(call, self.answer(call.name, call.arguments, call_id=call.id))

    def answer(self, name: str, given: object, *, call_id: str | None = None) -> ToolAnswer:
        """Carry out a call by its tool's name and arguments; the answer has no API's form."""
        return carry_out(
            self._turn, name.removeprefix(self._prefix), given, call_id=call_id, tools=self._tools
        )


def chosen(only: Iterable[str] | None = None) -> dict[str, ModelTool]:
    """Return the tools with these names, all of them if none are named."""
    if only is None:
        return TOOLS
    names = [only] if isinstance(only, str) else list(only)
    for name in names:
        if name not in TOOLS:
            raise BadRequestError(
                "", f"There is no guarded tool {name!r}. There are: {', '.join(TOOLS)}.", parameter="only"
            )
    return {name: TOOLS[name] for name in names}


def carry_out(
    turn: Turn,
    name: str,
    given: object,
    *,
    call_id: str | None = None,
    tools: dict[str, ModelTool] = TOOLS,
) -> ToolAnswer:
    """Carry out a model's call in a turn. Never raises for what a model or the disk got wrong."""
    tool = tools.get(name)
    try:
        with turn.called(call_id):
            if tool is None:
                raise UnknownToolError(
                    "", f"There is no tool {name!r}. There are: {', '.join(tools)}.", tool=name
                )
            values = _understood(turn, tool, given)
            return answers.told(tool.run(turn, values))
    except (NoclobberError, OSError) as error:
        return answers.refused(error)


def _understood(turn: Turn, tool: ModelTool, given: object) -> dict[str, Any]:
    """Return a model's arguments, checked. What is wrong with them counts as a refused write."""
    try:
        return arguments.checked(tool.name, tool.parameters, arguments.parsed(tool.name, given))
    except BadRequestError as error:
        if not tool.only_reads:
            turn.recorder.refusal(turn.tool_call(tool.name), error)
        raise


# -- two tools with one name: a model could not say which it means -------------------------------------------


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
