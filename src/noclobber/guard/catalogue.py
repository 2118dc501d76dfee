"""
Tools as data: what each one does to files, and which of its parameters say to which.

A host's tools have their own names and parameters. The engine knows none of them; it asks here, and gets a
`Request` in its own words. A tool that nobody registered may write anything, so it is refused
(`UNKNOWN_TOOL`) until somebody says what it does:

    workspace.catalogue.register(Tool("save_note", "write", path=("note",), content="body"))

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

import os
import re
from typing import Any, Literal, NamedTuple

from noclobber.core.values import Edit
from noclobber.errors import ABSENT, BadRequestError, UnknownToolError
from noclobber.text.lines import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from noclobber.core.values import ToolCall

Kind = Literal["read", "write", "edit", "delete", "move", "write_many", "harmless"]
Form = Literal["edits", "replacement", "blocks", "insertion", "search"]

_PATH = ("path", "file_path")
_HASH = re.compile(f"[0-9a-f]{{64}}|{ABSENT}")


class Tool(NamedTuple):
    """What one tool does, and where in its parameters the engine finds what it needs."""

    name: str
    kind: Kind
    path: tuple[str, ...] = _PATH
    """Names of the parameter that holds the path; the first that is present counts."""
    content: str = "content"
    form: Form = "edits"
    destination: tuple[str, ...] = ("destination", "new_path")
    files: str = "files"


STANDARD = (
    Tool("read_file", "read"),
    Tool("write_file", "write"),
    Tool("write_to_file", "write"),
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


class Request(NamedTuple):
    """A tool call in the engine's words. `expected_hash` and `observation_id` are the caller's own."""

    tool: Tool
    path: str
    content: str | bytes | None = None
    destination: str | None = None
    files: tuple[tuple[str, str | bytes, str | None], ...] = ()
    first_line: int | None = None
    last_line: int | None = None
    expected_hash: str | None = None
    observation_id: str | None = None


class Catalogue:
    """The tools that one workspace knows."""

    def __init__(self, tools: Iterable[Tool] = STANDARD) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def register(self, tool: Tool) -> None:
        """Add a tool, or say anew what one does."""
        if tool.kind not in ("read", "write", "edit", "delete", "move", "write_many", "harmless"):
            raise BadRequestError("", f"The tool {tool.name!r} is of no known kind: {tool.kind!r}.")
        if tool.kind == "edit" and tool.form not in FORMS:
            raise BadRequestError("", f"The tool {tool.name!r} has no known form: {tool.form!r}.")
        if not (type(tool.path) is type(tool.destination) is tuple):  # A lone string would be its letters.
            raise BadRequestError(
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

    def __iter__(self) -> Any:
        return iter(self._tools.values())

    def request(self, call: ToolCall) -> Request:
        """Read a call's parameters; `BadRequestError` names the one that is missing or wrong."""
        tool, params = self.tool(call.tool), call.params
        if tool.kind == "harmless":
            return Request(tool, "")
        if tool.kind == "write_many":
            return Request(tool, "", files=_files(tool, params))
        path = _path(params, tool.path)
        expected = _expected(params.get("expected_hash"), path)
        observation_id = params.get("observation_id")
        if observation_id is not None and not isinstance(observation_id, str):
            raise BadRequestError(path, "An observation id is text.", parameter="observation_id")
        return Request(
            tool,
            path,
            content=_content(params, tool.content, path) if tool.kind == "write" else None,
            destination=_path(params, tool.destination) if tool.kind == "move" else None,
            first_line=integer(params, "start_line", path) if tool.kind == "read" else None,
            last_line=integer(params, "end_line", path) if tool.kind == "read" else None,
            expected_hash=expected,
            observation_id=observation_id,
        )


# -- parameters ------------------------------------------------------------------------------------


def _path(params: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        if name in params:
            return _as_path(params[name], name)
    raise BadRequestError("", f"The parameter {names[0]!r} is missing.", parameter=names[0])


def _as_path(value: Any, parameter: str) -> str:
    try:
        # Bytes, too: the guard is the one to say what is wrong with a name that is not UTF-8.
        return os.fsdecode(value)
    except TypeError:
        raise BadRequestError(
            "", f"The parameter {parameter!r} must be a path.", parameter=parameter
        ) from None


def _content(params: Mapping[str, Any], name: str, path: str) -> str | bytes:
    value = params.get(name)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)  # A copy: what is hashed and what is written must not change in between.
    if isinstance(value, (str, bytes)):
        return value
    raise BadRequestError(path, f"The parameter {name!r} must be text or bytes.", parameter=name)


def _expected(value: Any, path: str) -> str | None:
    if value is None or (isinstance(value, str) and _HASH.fullmatch(value)):
        return value
    raise BadRequestError(
        path,
        f"An expected hash is 64 lower-case hex digits, or {ABSENT} for a file that must not exist yet.",
        parameter="expected_hash",
    )


def _files(tool: Tool, params: Mapping[str, Any]) -> tuple[tuple[str, str | bytes, str | None], ...]:
    given: Any = params.get(tool.files)
    hashes: Any = params.get("expected_hashes") or {}
    if not hasattr(given, "items") or not hasattr(hashes, "items"):
        raise BadRequestError("", f"The parameter {tool.files!r} must map paths to contents.")
    pairs = {_as_path(path, tool.files): content for path, content in given.items()}
    if not pairs:
        raise BadRequestError("", "There are no files to write.", parameter=tool.files)
    expected = {_as_path(path, "expected_hashes"): _expected(value, "") for path, value in hashes.items()}
    if stray := set(expected) - set(pairs):
        raise BadRequestError(sorted(stray)[0], "There is an expected hash for a file that is not written.")
    return tuple((path, _content(pairs, path, path), expected.get(path)) for path in pairs)


def integer(params: Mapping[str, Any], key: str, path: str) -> int | None:
    """Return a whole number; models and XML spell it as text, too."""
    value = params.get(key)
    if value is None or value == "":
        return None
    try:
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return int(value)
    except ValueError:
        pass
    raise BadRequestError(path, f"The parameter {key!r} must be a whole number.", parameter=key)


def _text(params: Mapping[str, Any], key: str, path: str) -> str:
    value = params.get(key)
    if isinstance(value, str):
        return value
    raise BadRequestError(path, f"The parameter {key!r} must be text.", parameter=key)


def _flag(params: Mapping[str, Any], key: str) -> bool:
    value = params.get(key, False)
    return value.strip().lower() == "true" if isinstance(value, str) else bool(value)


# -- how tools spell a change: file and parameters in, new file out ----------------------------------


def _from_edits(data: bytes, params: Mapping[str, Any], path: str) -> bytes:
    from noclobber.text.edits import apply_edits

    given = params.get("edits")
    if not isinstance(given, (list, tuple)) or isinstance(given, Edit):
        raise BadRequestError(path, "The parameter 'edits' must be a list.", parameter="edits")
    return apply_edits(data, [_edit(edit, number, path) for number, edit in enumerate(given, 1)], path)


def _edit(given: Any, number: int, path: str) -> Edit:
    if isinstance(given, Edit):
        return given
    if not hasattr(given, "get"):
        raise BadRequestError(path, f"Edit {number} is neither an Edit nor a mapping.")
    old = given.get("old", given.get("old_string", given.get("oldText")))
    new = given.get("new", given.get("new_string", given.get("newText")))
    return Edit(old, new, _flag(given, "replace_all"))


def _from_replacement(data: bytes, params: Mapping[str, Any], path: str) -> bytes:
    from noclobber.text.edits import apply_edits

    return apply_edits(data, [_edit(params, 1, path)], path)


def _from_blocks(data: bytes, params: Mapping[str, Any], path: str) -> bytes:
    from noclobber.text.search_blocks import apply_blocks

    return apply_blocks(data, _text(params, "diff", path), path)


def _from_insertion(data: bytes, params: Mapping[str, Any], path: str) -> bytes:
    from noclobber.text.edits import insert_lines

    return insert_lines(data, integer(params, "line", path) or 0, _text(params, "content", path), path)


def _from_search(data: bytes, params: Mapping[str, Any], path: str) -> bytes:
    from noclobber.text.edits import search_and_replace

    return search_and_replace(
        data,
        _text(params, "search", path),
        _text(params, "replace", path),
        use_regex=_flag(params, "use_regex"),
        ignore_case=_flag(params, "ignore_case"),
        first_line=integer(params, "start_line", path),
        last_line=integer(params, "end_line", path),
        path=path,
    )


FORMS: dict[str, Callable[[bytes, Mapping[str, Any], str], bytes]] = {
    "edits": _from_edits,
    "replacement": _from_replacement,
    "blocks": _from_blocks,
    "insertion": _from_insertion,
    "search": _from_search,
}


def as_bytes(content: str | bytes, path: str) -> bytes:
    """Return what a write puts on the disk: bytes as they are, text as UTF-8."""
    return content if isinstance(content, bytes) else encode(content, path)
