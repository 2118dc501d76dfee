"""
Who calls, in agents of LangChain and deepagents, which run in LangGraph.

It is read from the run's config and from the messages in its state.

| a caller's | is |
|---|---|
| session | the thread; without one, the run, by the first message in which its model called a tool |
| agent | the agent's name (`create_agent(name=…)`) |
| branch | the graph that the call comes from: each subagent's run has one of its own |
| memory | the model's messages that call tools. A checkpoint holds them: a resumed or rewound run has those |

Everything is looked up when a tool is called, so one backend or middleware serves any number of runs at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noclobber.adapters import extra

with extra("deepagents"):
    from langchain_core.messages import AIMessage, ToolMessage
    from langgraph.config import get_config

from noclobber.adapters import gone
from noclobber.adapters.runs import Caller

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOST = "langgraph"
if not TYPE_CHECKING:  # A type checker misses the names that are gone by itself.
    __getattr__ = gone(__name__)
_READ = "__pregel_read"  # What deepagents' own StateBackend reads state with.
_WITHOUT_FILES = {"write_todos", "task"}
"""Tools that show no file's content to the model that calls them."""


def current_caller() -> Caller:
    """Return who calls now; outside of a graph, a caller without a run."""
    try:
        config = get_config()
    except RuntimeError:
        return Caller()
    read = config.get("configurable", {}).get(_READ)
    return caller_of(config, read("messages", False) or () if read is not None else ())


def caller_of(config: Mapping[str, Any], messages: Sequence[Any], call_id: str | None = None) -> Caller:
    """Return who calls, given the run's config and the messages of its state."""
    metadata, configurable = config.get("metadata") or {}, config.get("configurable") or {}
    asking = [message for message in messages if isinstance(message, AIMessage) and _calls_tools(message)]
    ids = [str(message.id) for message in asking]
    namespace = str(metadata.get("langgraph_checkpoint_ns") or configurable.get("checkpoint_ns") or "")
    thread = configurable.get("thread_id")
    return Caller(
        agent_id=str(metadata.get("lc_agent_name") or "agent"),
        session_id=None if thread is None else str(thread),
        run_id=None if thread is not None or not ids else ids[0],
        call_id=call_id or _call_id(metadata, messages),
        # The last part is the task of this very call; the ones before it are the graphs around it.
        branch=_short(namespace.rpartition("|")[0]),
        memory=frozenset(ids) if ids else None,
        mark=ids[-1] if ids else None,
    )


def _calls_tools(message: AIMessage) -> bool:
    return any(call["name"] not in _WITHOUT_FILES for call in message.tool_calls)


def _call_id(metadata: Mapping[str, Any], messages: Sequence[Any]) -> str | None:
    """Return the id of the call that is carried out, where the graph's path says which one it is."""
    last = next((each for each in reversed(messages) if isinstance(each, AIMessage)), None)
    if last is None:
        return None
    answered = {each.tool_call_id for each in messages if isinstance(each, ToolMessage)}
    waiting = [call["id"] for call in last.tool_calls if call["id"] not in answered]
    if len(waiting) == 1:
        return waiting[0]
    match metadata.get("langgraph_path"):
        case ("__pregel_push", int(number), *_) if number < len(waiting) == len(last.tool_calls):
            return waiting[number]
    return None


def _short(namespace: str) -> str:
    """Return what tells one graph around the call from another: the end of its task's id."""
    return namespace.rpartition("|")[2].rpartition(":")[2].replace("-", "")
