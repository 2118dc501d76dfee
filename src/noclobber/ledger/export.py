"""
Write a ledger for other programs: four formats, each written line by line in constant memory.

| format | a line is | made for |
|---|---|---|
| `jsonl` | an entry, byte for byte | archives; a whole export still verifies |
| `csv` | a row: what every kind has, and the rest of payload and result as JSON | spreadsheets |
| `agent-trace` | a stale write: `action_type`, `payload`, `result`, no more | the research schema |
| `otlp` | OpenTelemetry `LogsData` in OTLP/JSON with up to 512 log records | collectors |
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TextIO

from noclobber.ledger.browse import summary_of
from noclobber.ledger.root import absolute
from noclobber.text.visible import visible_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from noclobber.ledger.browse import Event

    Entries = Iterable[tuple[bytes, Event]]


def export(how: str, entries: Entries, out: TextIO, root: str | None = None) -> None:
    """Write entries in a format. `root`: of the ledger's workspace, for formats that want whole paths."""
    FORMATS[how](entries, root, out)


def _member(event: Event, name: str) -> dict[str, Any]:
    value = event.get(name)
    return value if isinstance(value, dict) else {}


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# JSON lines


def _jsonl(entries: Entries, root: str | None, out: TextIO) -> None:
    for line, _ in entries:
        out.write(line.decode() + "\n")


# CSV

MOST_DEPTH = 50  # Of members in members: no event of ours has four.
_IDENTITY = ("agent_id", "session_id", "turn_id", "call_id", "host", "intent_id")
_PAYLOAD = ("tool_name", "target_file", "baseline_hash", "current_hash", "before_hash", "after_hash", "level")
_RESULT = ("status", "error_type")
CSV_COLUMNS = (
    "seq", "time", "action_type", *_RESULT, *_IDENTITY, *_PAYLOAD, "more", "prev_hash", "hash",
    "workspace_id",
)  # fmt: skip
# A spreadsheet reads a cell that begins with one of these as a formula, and a file may have any name.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _csv(entries: Entries, root: str | None, out: TextIO) -> None:
    import csv

    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for _, event in entries:
        payload, result, identity = (_member(event, name) for name in ("payload", "result", "identity"))
        rest = {
            "payload": {key: value for key, value in payload.items() if key not in _PAYLOAD},
            "result": {key: value for key, value in result.items() if key not in _RESULT},
        }
        more = {name: members for name, members in rest.items() if members}
        values = [
            *(event.get(name) for name in ("seq", "time", "action_type")),
            *(result.get(name) for name in _RESULT),
            *(identity.get(name) for name in _IDENTITY),
            *(payload.get(name) for name in _PAYLOAD),
            more or None,
            *(event.get(name) for name in ("prev_hash", "hash", "workspace_id")),
        ]
        writer.writerow([_csv_cell(value) for value in values])


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else _dump(value)
    # Control characters are spelled out: a table is looked at on a terminal, and no name needs them.
    return visible_lines(f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text)


# The research page's schema

_CONFLICT_PAYLOAD = ("tool_name", "target_file", "baseline_hash", "current_hash")


def _agent_trace(entries: Entries, root: str | None, out: TextIO) -> None:
    for _, event in entries:
        if event.get("action_type") == "MUTATION_CONFLICT":
            payload, result = _member(event, "payload"), _member(event, "result")
            conflict = {
                "action_type": "MUTATION_CONFLICT",
                "payload": {name: payload.get(name) for name in _CONFLICT_PAYLOAD},
                "result": {name: result.get(name) for name in _RESULT},
            }
            out.write(_dump(conflict) + "\n")


# OpenTelemetry

_BATCH = 512
# Where OpenTelemetry has a name of its own for a fact, that name is used.
_OTEL_NAMES = {
    "agent_id": "gen_ai.agent.id",
    "session_id": "session.id",
    "call_id": "gen_ai.tool.call.id",
    "tool_name": "gen_ai.tool.name",
    "target_file": "file.path",
    "error_type": "error.type",
}
_INFO, _WARN = (9, "INFO"), (13, "WARN")
_WARNING_KINDS = ("LEDGER_TORN_TAIL", "LEDGER_CUT", "LOCK_RECOVERED", "MUTATION_RACE", "VERSION_KEPT")


def _otlp(entries: Entries, root: str | None, out: TextIO) -> None:
    for batch in _batches(entries):
        out.write(_dump(_logs_data([_log_record(event, root) for event in batch])) + "\n")


def _batches(entries: Entries) -> Iterator[list[Event]]:
    batch: list[Event] = []
    for _, event in entries:
        batch.append(event)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _logs_data(records: list[dict[str, Any]]) -> dict[str, Any]:
    from noclobber import __version__

    return {
        "resourceLogs": [
            {
                "resource": {"attributes": [_attribute("service.name", "noclobber")]},
                "scopeLogs": [
                    {"scope": {"name": "noclobber.ledger", "version": __version__}, "logRecords": records}
                ],
            }
        ]
    }


def _log_record(event: Event, root: str | None) -> dict[str, Any]:
    about = summary_of(event, root)
    result = _member(event, "result")
    warns = result.get("status") in ("DENIED", "FAILED") or about.kind in _WARNING_KINDS
    number, word = _WARN if warns else _INFO
    nanoseconds = _unix_nano(str(event.get("time", "")))
    attributes = [_attribute("noclobber.ledger.seq", event.get("seq"))]
    attributes += [_attribute(f"noclobber.ledger.{name}", event.get(name)) for name in ("prev_hash", "hash")]
    if isinstance(workspace_id := event.get("workspace_id"), str):
        attributes.append(_attribute("noclobber.workspace.id", workspace_id))
    for name in ("identity", "payload", "result"):
        attributes += [
            _attribute(_OTEL_NAMES.get(key, f"noclobber.{key}"), _whole(key, value, root))
            for key, value in _member(event, name).items()
            if value is not None
        ]
    return {
        "timeUnixNano": nanoseconds,
        "observedTimeUnixNano": nanoseconds,
        "severityNumber": number,
        "severityText": word,
        "eventName": f"noclobber.{about.kind.lower()}",
        "body": {
            "stringValue": " ".join(word for word in (about.kind, about.outcome, about.subject) if word)
        },
        "attributes": attributes,
    }


def _whole(key: str, value: Any, root: str | None) -> Any:
    """OpenTelemetry means a whole path by `file.path`; an event has the path from the root."""
    return absolute(root, value) if key == "target_file" and root and isinstance(value, str) else value


def _attribute(key: str, value: Any, depth: int = 0) -> dict[str, Any]:
    return {"key": key, "value": _any_value(value, depth)}


def _any_value(value: Any, depth: int = 0) -> dict[str, Any]:
    if depth > MOST_DEPTH:
        return {"stringValue": "(nested too deeply)"}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return {"intValue": str(value)}  # 64-bit numbers are strings in this JSON.
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_any_value(item, depth + 1) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [_attribute(key, item, depth + 1) for key, item in value.items()]}}
    return {} if value is None else {"stringValue": str(value)}


def _unix_nano(time: str) -> str:
    """Return a ledger's time in nanoseconds, as text; "0", which means unknown, for what is not a time."""
    from datetime import datetime

    try:
        whole, _, micros = time.removesuffix("Z").partition(".")
        seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
        return str(max(0, seconds * 1_000_000_000 + int((micros or "0")[:6].ljust(6, "0")) * 1000))
    except (ValueError, OverflowError):
        return "0"


FORMATS: dict[str, Callable[[Entries, str | None, TextIO], None]] = {
    "jsonl": _jsonl,
    "csv": _csv,
    "agent-trace": _agent_trace,
    "otlp": _otlp,
}
