"""
Who calls, in CrewAI: which run a call belongs to, what its model still knows, and the call's id.

CrewAI begins an agent's work on a task anew if it failed or a guardrail refused its result, and makes a
summary of messages that have become too long. The model has then lost what it saw. So each call is noted
under the message that asked for it, and all is forgotten once such a message is gone.
"""

from __future__ import annotations

import json
import threading
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from noclobber.adapters import extra

with extra("crewai"):
    from crewai.execution import get_execution_uuid
    from crewai.utilities.string_utils import sanitize_tool_name

from noclobber.adapters.runs import Caller

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class TaskRuns:
    """Which run an agent's work on a task is, and whether its model has a past that is not known here."""

    def __init__(self, is_ours: Callable[[Any], bool]) -> None:
        """`is_ours` knows our tools."""
        self._is_ours = is_ours
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
            sanitize_tool_name(tool.name)
            for tool in getattr(agent, "tools", None) or ()
            if self._is_ours(tool)
        }
        asked = 0
        for message in _messages(agent):
            if message.get("role") != "assistant":
                continue
            calls = message.get("tool_calls") or ()
            names = {sanitize_tool_name(_called(call)) for call in calls}
            text = message.get("content") or ""
            asked += bool(names & ours) or any(
                f"Action: {tool.name}" in text for tool in agent.tools if self._is_ours(tool)
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
