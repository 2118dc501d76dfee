"""
CrewAI.

    Agent(role=…, tools=file_tools("project"))

`file_tools()` stands in for `[FileReadTool(), FileWriterTool()]` of `crewai_tools`: the same names and
parameters, so that prompts stay as they are.

CrewAI keeps the results of tools and gives the old one to the next call with the same arguments. A file that
was read once would be the old file for ever, so these tools are never answered from that cache.

A refusal is a `ToolFailure`: its message is the exact object, its `details` are the object for a program
(011), and `task_output.tool_failures` lists it.

An agent's work on one task is a run. CrewAI does not tell a tool the id of its call. It is looked up in the
agent's messages; where it is not there, or two calls of a step are the same, the ledger has one of ours.
"""

from __future__ import annotations

import json
import os
import threading
from contextvars import ContextVar
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from noclobber.adapters import extra

with extra("crewai"):
    from crewai.events import TaskCompletedEvent, TaskFailedEvent, crewai_event_bus
    from crewai.execution import get_execution_uuid
    from crewai.hooks import (
        HookAborted,
        register_before_llm_call_hook,
        register_before_tool_call_hook,
    )
    from crewai.tools import BaseTool
    from crewai.tools.tool_failure import ToolFailure, ToolFailureReason
    from crewai.types.callback import SerializableCallable
    from crewai.utilities.string_utils import sanitize_tool_name
    from pydantic import BaseModel, Field, PrivateAttr

from noclobber.adapters import gone
from noclobber.adapters.runs import Caller
from noclobber.adapters.shared import run_turns
from noclobber.aio import in_thread
from noclobber.errors import ABSENT, BadRequestError, NoclobberError, StaleFileError
from noclobber.guard.tools import answers
from noclobber.guard.tools.definitions import as_replacement, read_file
from noclobber.guard.tools.tool_list import refuse_clashes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Unpack

    from noclobber.adapters.runs import RunTurns
    from noclobber.core.options import OptionValues
    from noclobber.guard.tools.answers import ToolAnswer
    from noclobber.guard.turn import Turn

HOST = "crewai"
if not TYPE_CHECKING:  # A type checker misses the names that are gone by itself.
    __getattr__ = gone(__name__)

_CALLER: ContextVar[Caller | None] = ContextVar("noclobber_crewai_caller", default=None)
"""Who calls, as the hook before a tool call was told. The call follows in the same thread."""


def file_tools(workspace: Any, **options: Unpack[OptionValues]) -> list[BaseTool]:
    """Return guarded tools in place of `FileReadTool` and `FileWriterTool`."""
    turns = run_turns(workspace, HOST, **options)
    return [
        _bound(tool(root=turns.workspace.root), turns)
        for tool in (GuardedFileReadTool, GuardedFileWriterTool)
    ]


def _names(tools: Iterable[Any]) -> list[str]:
    """Return tools' names as CrewAI tells them to the model: two that differ only in case are one."""
    return [sanitize_tool_name(tool.name) for tool in tools]


def _never(_args: Any = None, _result: Any = None) -> bool:
    """A file may have changed since it was read: no result is kept for the next call."""
    return False


class _GuardedCrewTool(BaseTool):
    """What these tools share: who calls, and how a refusal is told."""

    root: str
    """The workspace's folder. A tool that a checkpoint restores knows nothing else."""
    cache_function: SerializableCallable = Field(default=_never)
    _turns: Any = PrivateAttr(default=None)

    @property
    def turns(self) -> RunTurns:
        """The workspace's turns."""
        if self._turns is None:
            self._turns = run_turns(self.root, HOST)
        return self._turns

    def _answer(self, work: Callable[[Turn], str]) -> str | ToolFailure:
        try:
            with self.turns.call(_CALLER.get() or Caller()) as turn:
                return answers.sendable(work(turn))
        except (NoclobberError, OSError) as error:
            return _failure(answers.refused(error))

    async def _arun(self, *args: Any, **kwargs: Any) -> Any:
        return await in_thread(self._run, *args, **kwargs)


def _failure(answer: ToolAnswer) -> ToolFailure:
    """Return a refusal in CrewAI's own form."""
    is_input = isinstance(answer.error, BadRequestError)
    resolution = getattr(answer.error, "resolution", "")
    return ToolFailure(
        message=answer.text,
        reason=ToolFailureReason.INVALID_INPUT if is_input else ToolFailureReason.TOOL_REPORTED,
        retryable=resolution in ("RE_READ_REQUIRED", "READ_FIRST", "RETRY_LATER"),
        details=answer.for_controller or {},
    )


def _bound(tool: _GuardedCrewTool, turns: RunTurns) -> BaseTool:
    tool._turns = turns
    return tool


# -- in place of crewai_tools' own -----------------------------------------------------------------------


class FileReadInput(BaseModel):
    """The parameters of CrewAI's `FileReadTool`."""

    file_path: str = Field(description="Path of the file to read, relative to the workspace.")
    start_line: int | None = Field(1, description="Line number to start reading from (1-indexed)")
    line_count: int | None = Field(
        None, description="Number of lines to read. If None, reads the entire file"
    )


class GuardedFileReadTool(_GuardedCrewTool):
    """`FileReadTool`, and what it shows is remembered."""

    name: str = "Read a file's content"
    description: str = (
        "A tool that reads the content of a file. To use this tool, provide a 'file_path' parameter with the "
        "path to the file you want to read. Optionally, provide 'start_line' to start reading from a "
        "specific line and 'line_count' to limit the number of lines read."
    )
    args_schema: type[BaseModel] = FileReadInput

    def _run(self, file_path: str, start_line: int | None = 1, line_count: int | None = None) -> Any:
        first = start_line or 1
        part = {} if first == 1 and not line_count else {"start_line": first}
        if line_count:
            part["end_line"] = first + line_count - 1
        return self._answer(lambda turn: read_file(turn, {"path": file_path, **part}))


class FileWriterInput(BaseModel):
    """The parameters of CrewAI's `FileWriterTool`."""

    filename: str = Field(description="Name of the file to write, relative to 'directory'.")
    content: str = Field(description="The text content to write to the file.")
    directory: str | None = Field("./", description="Directory to write the file into.")
    overwrite: str | bool = Field(False, description="Whether to replace the file when it already exists.")


class GuardedFileWriterTool(_GuardedCrewTool):
    """`FileWriterTool`, and a file that changed since the agent read it is not replaced."""

    name: str = "File Writer Tool"
    description: str = (
        "A tool to write content to a specified file. Accepts filename, content, and optionally a directory "
        "path and overwrite flag as input. Refused with STALE_FILE if somebody else changed the file after "
        "you read it: then read it again, work their change into yours, and repeat the call."
    )
    args_schema: type[BaseModel] = FileWriterInput

    def _run(
        self, filename: str, content: str, directory: str | None = "./", overwrite: str | bool = False
    ) -> Any:
        path = os.path.normpath(os.path.join(directory or ".", filename))
        return self._answer(lambda turn: _written(turn, path, content, _is_true(overwrite)))


def _written(turn: Turn, path: str, content: str, overwrite: bool) -> str:
    if overwrite:
        turn.write_file(path, as_replacement(turn, path, content))
        return f"Content successfully written to {path}"
    name = turn.context.name_of(path)
    knows_of_none = turn.context.expected_for(name, name) == ABSENT
    exists = f"File {path} already exists and overwrite option was not passed."
    if not knows_of_none and os.path.lexists(name):
        return exists
    try:
        turn.write_file(path, content, expected_hash=ABSENT)
    except StaleFileError as error:
        if knows_of_none or error.expected != ABSENT:
            raise
        return exists  # The agent never looked, so there is nothing for it to read again.
    return f"Content successfully written to {path}"


def _is_true(value: str | bool) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower()
    if word in ("y", "yes", "t", "true", "on", "1"):
        return True
    if word in ("n", "no", "f", "false", "off", "0"):
        return False
    raise BadRequestError("", f"overwrite is {value!r}. Send true or false.", parameter="overwrite")


# -- who calls ---------------------------------------------------------------------------------------------


class _TaskRuns:
    """
    Which run an agent's work on a task is, and whether its model has a past that is not known here.

    CrewAI begins an agent's work on a task anew if it failed or a guardrail refused its result, and makes a
    summary of messages that have become too long. The model has then lost what it saw. So each call is noted
    under the message that asked for it, and all is forgotten once such a message is gone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callers: dict[tuple[str, str], Caller] = {}
        self._turns: dict[str, set[Any]] = {}

    def caller(self, context: Any) -> Caller:
        """Return who calls. The first call of a run decides whether it goes on from elsewhere."""
        agent, task = context.agent, context.task
        task_id = f"{getattr(task, 'id', '')}"
        run_id = f"{get_execution_uuid() or id(context.crew)}/{task_id}"
        key = (run_id, f"{getattr(agent, 'id', '')}")
        with self._lock:
            known = self._callers.get(key)
            if known is None:
                known = self._callers[key] = Caller(
                    agent_id=getattr(agent, "role", None) or "agent",
                    run_id=run_id,
                    branch=key[1][:8],
                    memory=frozenset({"before"} if self._has_past(agent, context.crew) else ()),
                )
            self._turns.setdefault(task_id, set()).add(context.tool._original_tool.turns)
        call_id, step = _call_of(context)
        mark, shown = _memory(agent, task, step)
        return known._replace(
            call_id=call_id,
            step=step and f"{run_id}/{step}",
            mark=mark,
            memory=shown | {mark, *(known.memory or ())},
        )

    def over(self, task_id: str) -> None:
        """A task is done, and so are the runs of those who worked on it."""
        with self._lock:
            over = [key for key in self._callers if key[0].endswith(f"/{task_id}")]
            for key in over:
                del self._callers[key]
            turns = self._turns.pop(task_id, set())
        for each in turns:
            for run_id, _ in over:
                each.end_run(run_id)

    def _has_past(self, agent: Any, crew: Any) -> bool:
        """
        True if an agent's model may know files from before: it has called our tools before the step that is
        under way, or its crew has a checkpoint, and what earlier tasks told of files comes from another
        process.
        """
        if getattr(crew, "checkpoint_kickoff_event_id", None) is not None:
            return True
        ours = {
            sanitize_tool_name(tool.name) for tool in getattr(agent, "tools", None) or () if _is_ours(tool)
        }
        asked = 0
        for message in _messages(agent):
            if message.get("role") != "assistant":
                continue
            calls = message.get("tool_calls") or ()
            names = {sanitize_tool_name(_called(call)) for call in calls}
            text = message.get("content") or ""
            asked += bool(names & ours) or any(
                f"Action: {tool.name}" in text for tool in agent.tools if _is_ours(tool)
            )
        return asked > 1


def _memory(agent: Any, task: Any, step: str | None) -> tuple[str, set[str]]:
    """
    Return what names the message that asked for the call under way, and the names of all that are there.

    With function calls it is the id of the first one. Without, the model's message is not yet in the list,
    and what comes before it is its name. Another try at the task has other names for the same messages.
    """
    refused = getattr(task, "retry_count", 0) + sum(getattr(task, "_guardrail_retry_counts", {}).values())
    tries = f"{getattr(agent, '_times_executed', 0)}.{refused}"
    shown, text = set(), sha256()
    for message in _messages(agent):
        if calls := message.get("tool_calls"):
            shown.add(f"{tries}/{_member(calls[0], 'id')}")
        text.update(f"{message.get('role')}: {message.get('content')}\n".encode("utf-8", "surrogatepass"))
        shown.add(f"{tries}/{text.hexdigest()}")
    return f"{tries}/{step or text.hexdigest()}", shown


def _messages(agent: Any) -> Sequence[Any]:
    executor = getattr(agent, "agent_executor", None)
    state = getattr(executor, "state", None)
    return getattr(state, "messages", None) or getattr(executor, "messages", None) or ()


def _call_of(context: Any) -> tuple[str | None, str | None]:
    """
    Return the id of a call, and what tells its step from others: the id of the step's first call.

    The hook is told the tool and its arguments. The call is looked for in the last message of the model; two
    calls that are the same cannot be told apart, and then there is no id.
    """
    asked: Sequence[Any] = ()
    for message in reversed(_messages(context.agent)):
        if message.get("role") == "assistant":
            asked = message.get("tool_calls") or ()
            break
    same = [
        call
        for call in asked
        if sanitize_tool_name(_called(call)) == sanitize_tool_name(context.tool_name)
        and _arguments(call) == context.tool_input
    ]
    ids = [_member(call, "id") for call in same]
    return ids[0] if len(ids) == 1 else None, _member(asked[0], "id") if asked else None


def _called(call: Any) -> str:
    return f"{_member(_member(call, 'function') or call, 'name') or ''}"


def _arguments(call: Any) -> Any:
    given = _member(_member(call, "function") or call, "arguments")
    try:
        return json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return None


def _member(item: Any, name: str) -> Any:
    return item.get(name) if hasattr(item, "get") else getattr(item, name, None)


# -- what CrewAI tells us ---------------------------------------------------------------------------------


def _is_ours(tool: Any) -> bool:
    return isinstance(tool, _GuardedCrewTool)


_RUNS = _TaskRuns()


def _before_tool_call(context: Any) -> None:
    if _is_ours(getattr(context.tool, "_original_tool", None)):
        _CALLER.set(_RUNS.caller(context))


def _before_model_call(context: Any) -> None:
    """Refuse two tools with one name: CrewAI would silently use one of them."""
    tools = getattr(context.executor, "original_tools", None) or getattr(context.agent, "tools", None) or ()
    ours = _names(tool for tool in tools if _is_ours(tool))
    if not ours:
        return
    try:
        theirs = _names(tool for tool in tools if not _is_ours(tool))
        refuse_clashes(ours, theirs, "Leave yours out, or rename it.")
    except BadRequestError as error:
        # The one exception of a hook that CrewAI passes on. It logs any other, and goes on.
        raise HookAborted(f"{error}", source="noclobber") from error


@crewai_event_bus.on(TaskCompletedEvent)
@crewai_event_bus.on(TaskFailedEvent)
def _after_task(_source: Any, event: Any) -> None:
    _RUNS.over(f"{getattr(event.task, 'id', '')}")


register_before_tool_call_hook(_before_tool_call)
register_before_llm_call_hook(_before_model_call)
