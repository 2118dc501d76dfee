"""
Metrics and traces for OpenTelemetry, from the events that a workspace or a lock records (extra `otel`).

    from noclobber import Workspace
    from noclobber.adapters.otel import OtelObserver

    workspace = Workspace("path/to/project", observer=OtelObserver())

Uses the providers that the program has set up, or those that it is given. Without this observer nothing of
OpenTelemetry is imported.

| instrument | counts |
|---|---|
| `noclobber.writes` | writes that landed, by tool and level |
| `noclobber.refusals` | refused writes, by `error.type` |
| `noclobber.merges` | stale writes that were merged |
| `noclobber.races` | writes of somebody else at the same moment |
| `noclobber.lock.waits` | locks that somebody else had |
| `noclobber.run.commits` | commands whose changes landed |

A span for each event that is on record, below the span that is current in the writer's thread, as a rule that
of the tool call. It has the ids of the ledger as attributes: `noclobber.ledger.seq` and `.hash`. A span of a
call begins when the call does, and ends when its event is on record: so long did the guarded write take, with
checks and waiting. A call that wrote three files has three, with the same `gen_ai.tool.call.id`. Events of
locks and of recovery are moments. Attributes of metrics are few: no file, no agent.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from noclobber.adapters import extra

with extra("otel"):
    from opentelemetry import metrics, trace
    from opentelemetry.trace import SpanKind, Status, StatusCode

from noclobber import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from noclobber.core.values import ToolCall

SCOPE = "noclobber"
COMMAND_TOOLS = ("run_command",)
MOST_CALLS = 1000
_NAMES = {
    "agent_id": "gen_ai.agent.id",
    "session_id": "session.id",
    "call_id": "gen_ai.tool.call.id",
    "tool_name": "gen_ai.tool.name",
    "target_file": "file.path",
    "error_type": "error.type",
}
_REFUSED = frozenset(("MUTATION_CONFLICT", "MUTATION_REFUSED", "MUTATION_FAILED"))
_PLAIN = (str, bool, int, float)


class OtelObserver:
    """Counts events and makes a span of each. Threads may call it at the same time."""

    def __init__(
        self, *, meter_provider: MeterProvider | None = None, tracer_provider: TracerProvider | None = None
    ) -> None:
        meter = metrics.get_meter(SCOPE, __version__, meter_provider)
        self._tracer = trace.get_tracer(SCOPE, __version__, tracer_provider)
        self._writes = meter.create_counter("noclobber.writes", "{write}", "Writes that landed.")
        self._refusals = meter.create_counter("noclobber.refusals", "{write}", "Refused writes.")
        self._merges = meter.create_counter("noclobber.merges", "{write}", "Stale writes that were merged.")
        self._races = meter.create_counter("noclobber.races", "{write}", "Writes at the same moment.")
        self._waits = meter.create_counter("noclobber.lock.waits", "{lock}", "Locks that others had.")
        self._commits = meter.create_counter("noclobber.run.commits", "{command}", "Commands that landed.")
        self._seen_calls: OrderedDict[str, None] = OrderedDict()
        self._began_ns: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()

    def began(self, call: ToolCall) -> None:
        """Remember when a call began, for the spans of its events."""
        with self._lock:
            self._began_ns[call.call_id or ""] = time.time_ns()
            if len(self._began_ns) > MOST_CALLS:
                self._began_ns.popitem(last=False)

    def observe(self, event: Mapping[str, Any]) -> None:
        """Count one event and make a span of it."""
        kind = str(event.get("action_type", ""))
        payload, result, identity = (
            member if isinstance(member := event.get(name), Mapping) else {}
            for name in ("payload", "result", "identity")
        )
        self._count(kind, payload, result, identity)
        self._trace(kind, event, payload, result, identity)

    def _count(
        self, kind: str, payload: Mapping[str, Any], result: Mapping[str, Any], identity: Mapping[str, Any]
    ) -> None:
        tool = str(payload.get("tool_name", ""))
        if kind == "MUTATION":
            self._writes.add(1, {"gen_ai.tool.name": tool, "noclobber.level": str(payload.get("level", ""))})
            if isinstance(payload.get("merged"), Mapping):
                self._merges.add(1)
            if tool in COMMAND_TOOLS and self._is_new_call(str(identity.get("call_id", ""))):
                self._commits.add(1)
        elif kind in _REFUSED:
            self._refusals.add(1, {"error.type": str(result.get("error_type", "")), "gen_ai.tool.name": tool})
        elif kind == "MUTATION_RACE":
            self._races.add(1)
        elif kind == "LOCK_CONTENTION":
            self._waits.add(1)

    def _is_new_call(self, call_id: str) -> bool:
        """True for the first event of a command: it has one for each file that it changed."""
        with self._lock:
            if call_id in self._seen_calls:
                return False
            self._seen_calls[call_id] = None
            if len(self._seen_calls) > MOST_CALLS:
                self._seen_calls.popitem(last=False)
            return True

    def _trace(
        self,
        kind: str,
        event: Mapping[str, Any],
        payload: Mapping[str, Any],
        result: Mapping[str, Any],
        identity: Mapping[str, Any],
    ) -> None:
        attributes: dict[str, Any] = {"noclobber.event": kind}
        for name in ("seq", "hash"):
            if isinstance(event.get(name), _PLAIN):
                attributes[f"noclobber.ledger.{name}"] = event[name]
        if isinstance(event.get("workspace_id"), str):
            attributes["noclobber.workspace.id"] = event["workspace_id"]
        for member in (identity, payload, result):
            for key, value in member.items():
                if isinstance(value, _PLAIN):
                    attributes[_NAMES.get(key, f"noclobber.{key}")] = value
        tool = payload.get("tool_name")
        span = self._tracer.start_span(
            f"noclobber {tool if isinstance(tool, str) else kind}",
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=self._began_ns.get(str(identity.get("call_id", "")) or "-"),
        )
        if kind in _REFUSED or kind == "MUTATION_RACE":
            span.set_status(Status(StatusCode.ERROR, str(result.get("error_type") or kind)))
        span.end()
