"""
One event of a host, whichever host it is, and readers of parameters that all hosts share.

An `Event` is one call of a hook. Before and after a tool call it carries `actions`: what the call does to
which file. Paths are as the host spelled them; `cwd` is what relative ones are relative to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.actions import Action, CallResult, Shown
from noclobber.core.values import Edit
from noclobber.errors import BadRequestError, RefusalError, UnknownToolError
from noclobber.text.encoding import encode_anyway

if TYPE_CHECKING:
    from noclobber.errors import NoclobberError

PATH_KEYS = (
    "file_path",
    "path",
    "notebook_path",
    "filePath",
    "filename",
    "file",
    "absolute_path",
    "target_file",
)
CONTENT_KEYS = ("content", "contents", "file_text", "text")


class Event(NamedTuple):
    """One call of a hook."""

    host: str
    kind: str
    """`session-start`, `session-end`, `prompt`, `pre`, `post`, `failure`, `stop`, or `other`."""
    name: str = ""
    """The host's own name for it; the answer may have to repeat it."""
    session_id: str = ""
    agent_id: str = "main"
    turn_id: str | None = None
    call_id: str | None = None
    tool: str = ""
    cwd: str = ""
    actions: tuple[Action, ...] = ()
    result: CallResult = CallResult()
    """After a call: what the host says of it."""
    detail: str = ""
    """Of a session's start or end: why."""
    trouble: Any = None
    """What is wrong with the call: an error, if its parameters cannot be read."""
    is_reading: bool = False
    """True for a tool that only reads, whatever its parameters."""
    is_read_asked: bool = False
    """True if the host waits for us before it reads, too: a file can be looked at before and after."""
    is_command: bool = False
    """True for a tool that runs a shell command."""
    command: str = ""
    """The shell command, of such a tool."""
    is_routed: bool = False
    """True for a command whose host asks whether to run it in the guarded shell."""
    is_background: bool = False
    """True for a command that the host does not wait for."""
    is_delegation: bool = False
    """True for a tool that runs another agent, in a host whose events do not name their agent."""
    is_agent_unknown: bool = False
    """True if the event does not say which of the session's agents it is about."""
    parent_agent_id: str | None = None
    """The agent whose knowledge counts for files that this one has not seen itself."""
    formatters: tuple[str, ...] = ()
    """Formatters that the host runs inside its own tools, spelled as in the option of that name."""
    given: Any = None
    """The input of a whole-file write, in a host that takes another one in its place (`rewrite`)."""

    def showing(self, text: str | None, **more: Any) -> Event:
        """Add what the model was given to read."""
        return self._replace(result=self.result._replace(shown=Shown(text, **more)))

    def leaving(self, text: str | None) -> Event:
        """Add the whole new text of the file, if the host says it."""
        return self._replace(
            result=self.result._replace(content=None if text is None else encode_anyway(text))
        )

    @property
    def writes(self) -> bool:
        """True if the call changes a file."""
        return any(action.kind != "read" for action in self.actions)


def acting(
    event: Event, actions: Callable[[str, Any, str], tuple[Action, ...]], given: Any, readers: tuple[str, ...]
) -> Event:
    """Add what a call does to files; or what is wrong with it, and then whether it could be a write."""
    event = event._replace(is_reading=event.tool in readers)
    if event.is_command and isinstance(given, dict):
        is_background = event.is_background or _is_background(given)
        event = event._replace(command=command_of(given), is_background=is_background)
    try:
        if not event.tool:
            raise BadRequestError("", "The tool's name is missing.", parameter="tool_name")
        found = actions(event.tool, given, event.kind)
        if not event.session_id and event.kind == "pre" and any(action.kind != "read" for action in found):
            # What the agent has seen is kept by its session. Without one, any write would pass.
            raise BadRequestError(
                "", "The host does not say which session this is, so the write cannot be checked."
            )
        return event._replace(actions=found) if found else _as_command(event, given)
    except UnknownToolError as error:
        from noclobber.hosts.foreign_tools import may_name_file  # Here: most tools are known.

        return event._replace(trouble=error) if may_name_file(given, event.cwd) else event
    except (RefusalError, ValueError) as error:
        return event._replace(trouble=error)


def _as_command(event: Event, given: Any) -> Event:
    """Take a tool that nobody knows for a shell if it is given a command: hosts rename theirs, too."""
    is_unknown = not event.is_command and not event.is_reading and not event.tool.startswith("mcp__")
    command = command_of(given) if is_unknown and isinstance(given, dict) else ""
    if not command:
        return event
    from noclobber.shell import recognise

    found = recognise.actions(command, event.kind)
    written = tuple(action for action in found if action.kind != "read" or event.kind == "pre")
    background = _is_background(given)
    event = event._replace(is_command=True, command=command, is_background=background, actions=written)
    if event.kind != "post" or not found or written:
        return event
    # It showed a file. Where that is in the event is not known either, so the version is not known.
    trouble = UnknownToolError(
        "", f"{event.tool!r} is not a tool that noclobber knows, so what it showed is unknown."
    )
    return event._replace(trouble=trouble)


def may_rewrite(event: Event, given: Any) -> Event:
    """Add the input of a call that replaces one file, so that the host can be given another one for it."""
    is_whole = event.kind == "pre" and [action.kind for action in event.actions] == ["write"]
    return event._replace(given=given) if is_whole and isinstance(given, dict) else event


def with_content(event: Event, content: bytes) -> dict[str, Any]:
    """
    Return the whole input of a call with other content in it.

    All of it: hosts that were given the changed member alone wrote nothing, or to no file.
    """
    text = content.decode()
    return {name: text if name in CONTENT_KEYS else value for name, value in event.given.items()}


def command_of(values: dict[str, Any]) -> str:
    """Return the text of a shell command, however a host spells it; empty if there is none."""
    said = values.get("command", values.get("cmd"))
    if isinstance(said, str):
        return said
    if isinstance(said, list) and all(isinstance(word, str) for word in said):
        from noclobber.shell.syntax import quote

        # ["bash", "-lc", "…"]: the last word is the script.
        is_script = len(said) > 2 and "sh" in said[0].rpartition("/")[2] and said[1].startswith("-")
        return str(said[-1]) if is_script else " ".join(map(quote, said))
    several = values.get("commands")
    listed = several if isinstance(several, list) else [several]
    lines = [one if isinstance(one, str) else maybe_text(one, "command") for one in listed]
    return "\n".join(line for line in lines if line)


def _is_background(values: dict[str, Any]) -> bool:
    return (
        values.get("run_in_background") is True
        or values.get("is_background") is True
        or values.get("isBackground") is True
        or values.get("mode") in ("async", "detached")
    )


class Answer(NamedTuple):
    """What a hook process leaves behind."""

    stdout: str = ""
    stderr: str = ""
    code: int = 0
    watch: Any = None
    """What to look at until the host has written: a `Watch`, once the answer is out."""
    is_rewrite: bool = False
    """True if the host is given other content: what the model sent must not be written."""
    versions: Any = ()
    """Versions of files to keep once the answer is out: each a `HostVersion`."""

    @property
    def is_refusal(self) -> bool:
        """True if the host is told to refuse: all hosts have one word for it. In a text it is escaped."""
        return '"deny"' in self.stdout


NOTHING = Answer()
GUARD = Answer('{"decision": "guard"}')
"""To a plugin of ours: run the command in the guarded shell."""


def told_to_model(error: NoclobberError) -> str:
    """Return an error's exact JSON object as text, and on the lines below it what helps to go on."""
    from noclobber.core.wire import to_json  # Here: most calls are let through, and load no serialiser.

    return f"{to_json(error)}\n{error.beside}" if error.beside else to_json(error)


# -- reading parameters -----------------------------------------------------------------------------


def text(values: Mapping[str, Any], *names: str) -> str:
    """Return the member that goes by one of several names: text, and the same under each of them."""
    given = [name for name in names if name in values]
    if not given:
        raise BadRequestError("", f"The parameter {names[0]!r} is missing.", parameter=names[0])
    for name in given:
        if not isinstance(values[name], str):
            raise BadRequestError("", f"The parameter {name!r} must be text.", parameter=name)
        if values[name] != values[given[0]]:  # Hosts differ in which one they use. The other is a decoy.
            raise BadRequestError(
                "",
                f"{given[0]!r} and {name!r} say different things. Send only {names[0]!r}.",
                parameter=name,
            )
    found: str = values[given[0]]
    return found


def path(values: Mapping[str, Any], *names: str) -> str:
    """Return a path: text, and not empty."""
    own = names or PATH_KEYS
    found = text(values, *own)
    if not found:
        raise BadRequestError("", f"The parameter {own[0]!r} is empty.")
    text(values, *own, *(name for name in PATH_KEYS if name not in own))  # No other name of a path differs.
    return found


def maybe_text(values: Any, *names: str) -> str | None:
    """Return the first of some members that is text, or None."""
    if isinstance(values, dict):
        for name in names:
            if isinstance(values.get(name), str):
                found: str = values[name]
                return found
    return None


def maybe_count(values: Mapping[str, Any], *names: str) -> int | None:
    """Return a whole number from 0 on, or None for anything else."""
    for name in names:
        value = values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def table(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return a member that must be an object."""
    for name in names:
        if name in values:
            if isinstance(values[name], dict):
                found: dict[str, Any] = values[name]
                return found
            raise BadRequestError("", f"The parameter {name!r} must be an object.", parameter=name)
    raise BadRequestError("", f"The parameter {names[0]!r} is missing.", parameter=names[0])


def read_action(values: Mapping[str, Any], *names: str) -> Action:
    """A read of one file, or of some of its lines (`offset` counts from 1)."""
    return Action(
        "read",
        path(values, *names),
        first_line=maybe_count(values, "offset", "start_line"),
        line_count=maybe_count(values, "limit"),
    )


def edit_action(values: Mapping[str, Any], old: tuple[str, ...], new: tuple[str, ...]) -> Action:
    """One replacement in one file; an empty `old` makes the file."""
    every = values.get("replace_all", values.get("replaceAll", values.get("allow_multiple")))
    many = values.get("expected_replacements")
    several = isinstance(many, int) and many > 1
    change = Edit(text(values, *old), text(values, *new), every is True or several)
    return edits_action(path(values), (change,))


def edits_action(where: str, edits: tuple[Edit, ...]) -> Action:
    """Replacements in one file, one after the other."""
    from noclobber.text.host_edits import HostEdits  # Here: only edits need it.

    return Action("edit", where, change=HostEdits(edits))


# -- tools that no host module knows ------------------------------------------------------------------

_WRITING = (
    *("write", "edit", "create", "delete", "remove", "move", "rename", "patch", "replace", "insert", "save"),
    *("update", "append", "modify", "put", "set", "change", "apply", "overwrite", "copy"),
)
_READING = (
    *("read", "view", "list", "ls", "search", "grep", "glob", "find", "get", "fetch", "show", "open", "stat"),
    *("tree", "diff", "info", "query", "lookup", "inspect", "describe"),
)


def unknown_tool(tool: str, values: Any) -> tuple[Action, ...]:
    """
    Judge a tool that no host file lists by its name and parameters: what may write is checked or refused.

    A tool whose parameters name a file, and whose name does not say that it only reads, counts as an edit
    with an unknown outcome. One whose name says that it writes, and whose parameters do not say what, is
    refused, if they could name a file at all (`acting`).
    """
    given = values if isinstance(values, dict) else {}
    if tool.startswith("mcp__"):  # As hosts call the tools of MCP servers: `mcp__server__tool`.
        from noclobber.hosts import foreign_tools

        return foreign_tools.actions(_words(tool.rpartition("__")[2]), given, _WRITING)
    words = _words(tool)
    is_writer = any(word in _WRITING for word in words)
    named = {given[name] for name in PATH_KEYS if isinstance(given.get(name), str)}
    if is_writer and len(named) > 1:
        raise BadRequestError("", "Several parameters name a file, so what is written cannot be checked.")
    where = maybe_text(given, *PATH_KEYS)
    if not is_writer and any(word in _READING for word in words):
        return (Action("read", where),) if where else ()
    if where:
        whole = maybe_text(given, *CONTENT_KEYS)
        if whole is not None and any(word in ("write", "create", "save", "overwrite") for word in words):
            return (Action("write", where, content=whole),)
        return (Action("edit", where),)
    if is_writer:
        raise UnknownToolError(
            "",
            f"{tool!r} is not a tool that noclobber knows, and its parameters name no file, so what it "
            "writes cannot be checked. Use the host's own file tools.",
            tool=tool,
        )
    return ()


def _words(name: str) -> list[str]:
    """Split `mcp__fs__writeFile` into words."""
    spaced = "".join(
        f" {letter}" if letter.isupper() else letter if letter.isalnum() else " " for letter in name
    )
    return spaced.lower().split()


def same_moment(value: Any) -> str:
    """
    Return a time as milliseconds within its minute, however it was spelled.

    Copilot says epoch milliseconds to its own hooks and ISO 8601 to Claude's for one and the same event.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value % 60_000)
    if isinstance(value, str) and len(value) >= 20 and value[10:11] == "T":
        whole, _, fraction = value[17:].rstrip("Z").partition(".")
        if whole.isdigit() and (fraction.isdigit() or not fraction):
            return str(int(whole) * 1000 + int((fraction + "000")[:3]))
    return ""
