"""
Tools as data: what each one does to files, and which of its parameters say to which.

A host's tools have their own names and parameters. The engine knows none of them; it asks here, and gets
actions in its own words. A tool that nobody registered may write anything, so it is refused
(`UNKNOWN_TOOL`) until somebody says what it does:

    workspace.catalogue.register(Tool("save_note", "write", path=("note",), content="body"))

A parameter that a tool does not have is refused, too: a misspelled `expected_hash` would otherwise be
dropped, and the write would land unchecked. `Tool.others` names parameters that say nothing about files.

| kind | what the engine makes of it |
|---|---|
| `read` | gives bytes of one file, all or some lines |
| `write` | replaces a whole file, or creates it |
| `edit` | changes a part of a file; `form` says how the change is spelled |
| `delete`, `move` | what they say |
| `write_many` | replaces several files, all or none |
| `harmless` | touches no file's content: listing, searching, asking |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from noclobber.errors import BadRequestError, UnknownToolError
from noclobber.guard import requests
from noclobber.text.edits import Edits, Insertion, Search
from noclobber.text.search_blocks import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from noclobber.core.actions import Action, ContentChange
    from noclobber.core.values import ToolCall

Kind = Literal["read", "write", "edit", "delete", "move", "write_many", "harmless"]
Form = Literal["edits", "replacement", "blocks", "insertion", "search"]

KINDS = ("read", "write", "edit", "delete", "move", "write_many", "harmless")
_PATH = ("path", "file_path")
_EXPLICIT = ("expected_hash", "expected_sha256", "observation_id")


class Tool(NamedTuple):
    """What one tool does, and where in its parameters the engine finds what it needs."""

    name: str
    kind: Kind
    path: tuple[str, ...] = _PATH
    """Names of the parameter that holds the path; a call has one of them."""
    content: str = "content"
    form: Form = "edits"
    destination: tuple[str, ...] = ("destination", "new_path")
    files: str = "files"
    others: tuple[str, ...] = ()
    """Names of parameters that say nothing about files."""


STANDARD = (
    Tool("read_file", "read"),
    Tool("write_file", "write"),
    Tool("write_to_file", "write", others=("line_count",)),
    Tool("edit_file", "edit"),
    Tool("replace", "edit", form="replacement"),
    Tool("apply_diff", "edit", form="blocks"),
    Tool("insert_content", "edit", form="insertion"),
    Tool("search_and_replace", "edit", form="search"),
    Tool("write_files", "write_many"),
    Tool("delete_file", "delete"),
    Tool("move_file", "move", path=("source", "path", "file_path")),
    Tool("list_files", "harmless"),
    Tool("search_files", "harmless"),
    Tool("list_code_definition_names", "harmless"),
    Tool("ask_followup_question", "harmless"),
    Tool("attempt_completion", "harmless"),
    # `execute_command` is left out on purpose: a shell may write anything.
)


class Catalogue:
    """The tools that one workspace knows."""

    def __init__(self, tools: Iterable[Tool] = STANDARD) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def register(self, tool: Tool) -> None:
        """Add a tool, or say anew what one does."""
        if tool.kind not in KINDS:
            raise BadRequestError("", f"The tool {tool.name!r} is of no known kind: {tool.kind!r}.")
        if tool.kind == "edit" and tool.form not in FORMS:
            raise BadRequestError("", f"The tool {tool.name!r} has no known form: {tool.form!r}.")
        if not all(type(names) is tuple for names in (tool.path, tool.destination, tool.others)):
            raise BadRequestError(  # A lone string would be its letters.
                "", f"The tool {tool.name!r} needs tuples of parameter names for its paths."
            )
        self._tools[tool.name] = tool

    def tool(self, name: str) -> Tool:
        """Return what a tool does; `UnknownToolError` if nobody said so."""
        tool = self._tools.get(name)
        if tool is None:
            raise UnknownToolError(
                "",
                f"Nobody has registered a tool {name!r}, so what it writes cannot be checked. "
                "Use a registered tool, or register it.",
                tool=name,
            )
        return tool

    def only_reads(self, name: str) -> bool:
        """True for a tool that is known to change nothing."""
        tool = self._tools.get(name)
        return tool is not None and tool.kind in ("read", "harmless")

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def actions(self, call: ToolCall) -> tuple[Action, ...]:
        """Return what a call does to files, one action a file; none for a tool that touches no file."""
        tool, params = self.tool(call.tool), call.params
        if tool.kind == "harmless":
            return ()
        _refuse_unknown(tool, params)
        if tool.kind == "write_many":
            return requests.write_many(params.get(tool.files), params.get("expected_hashes"))
        path = _one_of(params, tool.path)
        if tool.kind == "read":
            return (requests.read(path, params.get("start_line"), params.get("end_line")),)
        explicit = (_expected_hash(params), params.get("observation_id"))
        if tool.kind == "write":
            return (requests.write(path, params.get(tool.content), *explicit),)
        if tool.kind == "edit":
            return (requests.edit(path, FORMS[tool.form].change(params, path), *explicit),)
        if tool.kind == "delete":
            return (requests.delete(path, *explicit),)
        return requests.move(path, _one_of(params, tool.destination), *explicit)


# -- how tools spell a change ------------------------------------------------------------------------------


class ChangeForm(NamedTuple):
    """One way to spell a change: its parameters, and what they mean."""

    parameters: tuple[str, ...]
    change: Callable[[Mapping[str, Any], Any], ContentChange]


def _edits(params: Mapping[str, Any], path: Any) -> ContentChange:
    return requests.edits(params.get("edits"), path)


def _replacement(params: Mapping[str, Any], path: Any) -> ContentChange:
    return Edits((requests.one_edit(params, 1, path),))


def _blocks(params: Mapping[str, Any], path: Any) -> ContentChange:
    return Blocks(_text(params, "diff", path))


def _insertion(params: Mapping[str, Any], path: Any) -> ContentChange:
    line = requests.whole_number(params.get("line"), "line", path)
    return Insertion(line or 0, _text(params, "content", path))


def _search(params: Mapping[str, Any], path: Any) -> ContentChange:
    return Search(
        _text(params, "search", path),
        _text(params, "replace", path),
        use_regex=requests.flag(params.get("use_regex", False)),
        ignore_case=requests.flag(params.get("ignore_case", False)),
        first_line=requests.whole_number(params.get("start_line"), "start_line", path),
        last_line=requests.whole_number(params.get("end_line"), "end_line", path),
    )


_REPLACEMENT = ("old", "old_string", "oldText", "new", "new_string", "newText", "replace_all")
_SEARCH = ("search", "replace", "use_regex", "ignore_case", "start_line", "end_line")
FORMS: dict[str, ChangeForm] = {
    "edits": ChangeForm(("edits",), _edits),
    "replacement": ChangeForm(_REPLACEMENT, _replacement),
    "blocks": ChangeForm(("diff",), _blocks),
    "insertion": ChangeForm(("line", "content"), _insertion),
    "search": ChangeForm(_SEARCH, _search),
}


# -- parameters --------------------------------------------------------------------------------------------


def parameters_of(tool: Tool) -> tuple[str, ...]:
    """Return the name of every parameter that a tool may have."""
    if tool.kind == "write_many":
        return (tool.files, "expected_hashes", *tool.others)
    if tool.kind == "read":
        return (*tool.path, "start_line", "end_line", *tool.others)
    own: tuple[str, ...] = ()
    if tool.kind == "write":
        own = (tool.content,)
    elif tool.kind == "edit":
        own = FORMS[tool.form].parameters
    elif tool.kind == "move":
        own = tool.destination
    return (*tool.path, *own, *_EXPLICIT, *tool.others)


def _refuse_unknown(tool: Tool, params: Mapping[str, Any]) -> None:
    known = parameters_of(tool)
    for name in params:
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(str(name), known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(known)}."
            raise BadRequestError(
                "", f"The tool {tool.name!r} has no parameter {name!r}. {hint}", parameter=str(name)
            )


def _one_of(params: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the parameter that goes by one of several names. Two of them could name two files."""
    given = [name for name in names if name in params]
    if not given:
        raise BadRequestError("", f"The parameter {names[0]!r} is missing.", parameter=names[0])
    if any(params[name] != params[given[0]] for name in given[1:]):
        both = " and ".join(repr(name) for name in given)
        raise BadRequestError("", f"{both} name two different files. Give one of them.", parameter=given[1])
    return params[given[0]]


def _expected_hash(params: Mapping[str, Any]) -> Any:
    given = {params[name] for name in _EXPLICIT[:2] if params.get(name) is not None}
    if len(given) > 1:
        raise BadRequestError(
            "",
            "expected_hash and expected_sha256 are two names for one thing, and differ.",
            parameter="expected_hash",
        )
    return next(iter(given), None)


def _text(params: Mapping[str, Any], key: str, path: Any) -> str:
    value = params.get(key)
    if isinstance(value, str):
        return value
    raise BadRequestError(str(path), f"The parameter {key!r} must be text.", parameter=key)
