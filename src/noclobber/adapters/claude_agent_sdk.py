"""
Claude Agent SDK: noclobber's file tools in the place of the built-in ones, or hooks around those.

    from noclobber.adapters.claude_agent_sdk import guarded

    options = ClaudeAgentOptions(**guarded("path/to/project"))

`by="tools"`, the default: our tools, from an MCP server in this process; `Read`, `Write` and `Edit` are
disallowed. Check and write are one step. `by="hooks"`: hooks in this process around the built-in tools. A
save during the write is noticed, not prevented.

With either, a refusal is the exact 009 object. What a shell command writes is not checked: disallow `Bash`,
or see docs/shell.md.

Each subagent has a snapshot of its own: a hook tells the tools who calls. A session may have a past in
another process, so an existing file must be read before it is changed. The built-in tools demand that, too.
"""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING, Any, Literal

import noclobber
from noclobber.adapters import extra

with extra("claude-agent-sdk"):
    from claude_agent_sdk import HookMatcher
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

from noclobber.adapters.runs import Caller
from noclobber.adapters.shared import run_turns
from noclobber.aio import in_thread
from noclobber.errors import BadRequestError
from noclobber.guard.tools.answers import refused
from noclobber.guard.tools.tool_list import carry_out, chosen, refuse_clashes
from noclobber.hook.main import CHECK, NOTE, respond

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Unpack

    from noclobber.adapters.runs import RunTurns
    from noclobber.core.options import OptionValues
    from noclobber.guard.tools.answers import ToolAnswer
    from noclobber.guard.tools.definitions import ModelTool

    Run = Callable[[str, dict[str, Any], str | None], Awaitable[ToolAnswer]]
    """Carries out a call: the tool's name, what the model sent, the call's id."""

HOST = "claude-agent-sdk"
SERVER = "noclobber"
REPLACED = ["Read", "Write", "Edit", "MultiEdit", "NotebookEdit"]
"""The built-in tools that ours take the place of."""
HOOK_TIMEOUT_S = 60.0
MOST_WAITING = 10_000
_NOT_TOLD = (
    "Claude Code did not say who makes this call. Pass on everything that guarded() returns, hooks included, "
    "and use the Claude Code that comes with the SDK."
)


def guarded(
    workspace: Any,
    *,
    by: Literal["tools", "hooks"] = "tools",
    only: Iterable[str] | None = None,
    beside: Mapping[str, Any] | None = None,
    **options: Unpack[OptionValues],
) -> dict[str, Any]:
    """
    Return options for `ClaudeAgentOptions(**guarded("project"))`.

    `beside`: options of your own (`mcp_servers`, `hooks`, `allowed_tools`, `disallowed_tools`, and others),
    which are joined with these.
    """
    if by == "hooks" and options:
        name = next(iter(options))
        raise BadRequestError(
            "",
            f"Hooks take their options from the project, so {name!r} given here would hold for nothing. "
            "Put it into the project's noclobber.toml.",
            option=name,
        )
    turns = run_turns(workspace, HOST, **options)
    if by == "tools":
        ours = _by_tools(turns, chosen(only))
    elif by == "hooks":
        # A hook finds its project by a mark; without one it is the git top level. So the mark comes first.
        if (trouble := turns.workspace.ledger_trouble()) is not None:
            raise trouble
        ours = _by_hooks()
    else:
        raise BadRequestError("", f"There is no way {by!r}. Choose 'tools' or 'hooks'.", parameter="by")
    return _joined({"cwd": turns.workspace.root, **ours}, dict(beside or {}))


def _joined(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    servers = theirs.get("mcp_servers", {})
    if not isinstance(servers, dict):
        raise BadRequestError("", "Give mcp_servers as a dict, so that noclobber's can be added.")
    refuse_clashes(ours.get("mcp_servers", {}), servers, "Give your MCP server another name.")
    if stray := set(REPLACED) & set(theirs.get("allowed_tools", ())) & set(ours.get("disallowed_tools", ())):
        raise BadRequestError(
            "",
            f"allowed_tools has {sorted(stray)[0]!r}, which the guarded tools take the place of. Leave it "
            "out, or use by='hooks'.",
        )
    hooks = {name: [*matchers] for name, matchers in (theirs.get("hooks") or {}).items()}
    for name, matchers in ours["hooks"].items():
        hooks.setdefault(name, []).extend(matchers)
    joined = {**theirs, "cwd": ours["cwd"], "hooks": hooks}
    for name in ("allowed_tools", "disallowed_tools"):
        joined[name] = [*theirs.get(name, ()), *ours.get(name, ())]
    if "mcp_servers" in ours:
        joined["mcp_servers"] = {**servers, **ours["mcp_servers"]}
    return joined


# -- our tools ---------------------------------------------------------------------------------------------


def _by_tools(turns: RunTurns, tools: Mapping[str, ModelTool]) -> dict[str, Any]:
    callers: dict[str, Caller] = {}

    async def note_caller(event: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Note who calls: what reaches a tool has the call's id, and nothing about the agent."""
        caller = _caller(event)
        call_id = caller.call_id or tool_use_id or ""
        callers[call_id] = caller._replace(call_id=call_id)
        while len(callers) > MOST_WAITING:
            callers.pop(next(iter(callers)))  # Calls that were refused elsewhere, and never came to a tool.
        return {}

    async def forget(event: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """The model's memory is about to be summarised: what it saw no longer counts."""
        await in_thread(turns.forget_session, _caller(event).session_id)
        return {}

    def answer(name: str, given: dict[str, Any], caller: Caller) -> ToolAnswer:
        return carry_out(turns.turn(caller), name, given, call_id=caller.call_id, tools=dict(tools))

    async def run(name: str, given: dict[str, Any], call_id: str | None) -> ToolAnswer:
        caller = callers.pop(call_id or "", None)
        if caller is None:  # It would have an empty snapshot, and be checked against nothing.
            return refused(BadRequestError("", _NOT_TOLD, tool=name))
        return await in_thread(answer, name, given, caller)

    return {
        "mcp_servers": {SERVER: _sdk_server(tools.values(), run)},
        "allowed_tools": [f"mcp__{SERVER}__{name}" for name in tools],
        "disallowed_tools": REPLACED,
        "hooks": {
            "PreToolUse": [_matcher(f"mcp__{SERVER}__.*", note_caller, on_failure="block")],
            "PreCompact": [_matcher(None, forget)],
        },
    }


def _caller(event: Mapping[str, Any]) -> Caller:
    branch = event.get("agent_id") or ""
    return Caller(
        agent_id=str(event.get("agent_type") or "main"),
        session_id=event.get("session_id"),
        run_id=event.get("session_id"),
        call_id=event.get("tool_use_id"),
        branch=str(branch),
    )


# -- hooks around the built-in tools -----------------------------------------------------------------------


def _by_hooks() -> dict[str, Any]:
    """The hooks that `noclobber install claude-code` installs, without a process for each call."""

    async def check(event: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        return await in_thread(_respond, event, CHECK)

    async def note(event: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        return await in_thread(_respond, event, NOTE)

    return {
        "hooks": {
            "PreToolUse": [_matcher("Read|Write|Edit|MultiEdit|NotebookEdit", check, on_failure="block")],
            "PostToolUse": [_matcher("Read|Write|Edit|MultiEdit|NotebookEdit|Bash", note)],
            "PostToolUseFailure": [_matcher("Read|Write|Edit|MultiEdit|NotebookEdit|Bash", note)],
            "Stop": [_matcher(None, note)],
            "SubagentStop": [_matcher(None, note)],
        }
    }


def _respond(event: Mapping[str, Any], duty: str) -> dict[str, Any]:
    with tempfile.TemporaryFile() as given:
        given.write(json.dumps(event, default=str).encode())
        given.seek(0)
        answer = respond("claude-code", duty, given.fileno())
    said: dict[str, Any] = json.loads(answer.stdout) if answer.stdout else {}
    return said


def _matcher(pattern: str | None, hook: Any, **more: Any) -> HookMatcher:
    return HookMatcher(matcher=pattern, hooks=[hook], timeout=HOOK_TIMEOUT_S, **more)


# -- the server ------------------------------------------------------------------------------------------

CALL_ID = "claudecode/toolUseId"
"""Where in a request's `_meta` Claude Code puts the id that the model gave to its call."""


def _sdk_server(tools: Iterable[ModelTool], run: Run) -> dict[str, Any]:
    """
    Return the MCP server that the SDK runs in this process, built without the SDK's `tool()`.

    The SDK's own server takes a call's arguments and drops the rest of the request. We need the rest: the
    call's id is in it, and with it the tool knows who calls. It also checks the schema itself anew at each
    call, which takes longer than a guarded read of 10 KiB. Our check is quicker, and names what is wrong.
    """
    listed = [
        Tool.model_validate(
            {"name": each.name, "description": each.description, "inputSchema": each.parameters}
        )
        for each in tools
    ]
    # Without `alwaysLoad` the model has to search for the tools first, and refusals get a note about that.
    return {"type": "sdk", "name": SERVER, "instance": _server(listed, run), "alwaysLoad": True}


def _server(listed: list[Tool], run: Run) -> Any:
    async def call(tool: str, given: dict[str, Any] | None, meta: Any) -> CallToolResult:
        return _result(await run(tool, given or {}, _call_id(meta)))

    if not hasattr(Server, "call_tool"):  # mcp 2.

        async def on_list_tools(context: Any, params: Any) -> ListToolsResult:
            return ListToolsResult(tools=listed)

        async def on_call_tool(context: Any, params: Any) -> CallToolResult:
            return await call(params.name, params.arguments, context.meta)

        return Server(
            SERVER, version=noclobber.__version__, on_list_tools=on_list_tools, on_call_tool=on_call_tool
        )

    server: Any = Server(SERVER, version=noclobber.__version__)

    async def list_tools() -> list[Tool]:
        return listed

    async def call_tool(tool: str, given: dict[str, Any]) -> CallToolResult:
        return await call(tool, given, server.request_context.meta)

    server.list_tools()(list_tools)
    server.call_tool(validate_input=False)(call_tool)
    return server


def _call_id(meta: Any) -> str | None:
    """Return the call's id. `_meta` is a mapping in mcp 2, and an object with further members in mcp 1."""
    found = (
        meta.get(CALL_ID)
        if isinstance(meta, dict)
        else (getattr(meta, "model_extra", None) or {}).get(CALL_ID)
    )
    return found if isinstance(found, str) else None


def _result(answer: ToolAnswer) -> CallToolResult:
    # Without what there is to say beside a refusal: Claude Code makes one text of an error's parts, and the
    # object would no longer be the whole of it.
    return CallToolResult.model_validate(
        {"content": [TextContent(type="text", text=answer.text)], "isError": answer.is_error}
    )
