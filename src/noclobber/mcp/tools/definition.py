"""
What a tool is: its name, what it takes, what it answers, and the function that carries it out.

A tool is defined beside its function, in `reading`, `writing`, `folders`, `listing` or `locks`, and listed in
`noclobber.mcp.tools`. This module has what the definitions share.

A refusal answers with another object than a success, and many clients check *any* structured content against
the output schema, errors included. So every output schema admits both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from noclobber.core.values import WriteResult
    from noclobber.mcp.connection import ClientConnection

    Report = Callable[[int, int | None, str], None]
    """Tells the client how far the work is: done, of how many (None: unknown), what is being looked at."""
    Run = Callable[["ClientConnection", Mapping[str, Any], Report], "McpAnswer"]
    """Carries out a call. The arguments are checked and have their defaults."""

DRAFT = "http://json-schema.org/draft-07/schema#"


class McpAnswer(NamedTuple):
    """What a client is told: content blocks for the model, structured content for programs."""

    content: list[dict[str, Any]]
    structured: dict[str, Any]
    is_error: bool = False


class McpTool(NamedTuple):
    """One tool, as it is listed and as it is carried out."""

    name: str
    title: str
    description: str
    parameters: dict[str, Any]
    output: dict[str, Any]
    annotations: dict[str, bool]
    run: Run
    ignores_unknown: bool = False
    """True for the reading tools of the replaced server, which ignores parameters that it does not know."""


# -- parameters that several tools take ------------------------------------------------------------------

TEXT = {"type": "string"}
HASH = {"type": "string", "description": "SHA-256 of the whole file's bytes, 64 hex digits."}
PATH = {"path": {"type": "string", "description": "Absolute, or relative to the first root."}}
EXPECTED = {
    "expected_hash": {
        "type": "string",
        "description": "The sha256 that your read returned, or ABSENT if there must be no file yet. "
        "If the file has changed, nothing is written and the call fails with STALE_FILE.",
    },
    "observation_id": {
        "type": "string",
        "description": "Instead of expected_hash: the observation_id that your read returned.",
    },
}
LOCK_ID = {
    "lock_id": {
        "type": "string",
        "description": "If the folder is locked: the lock_id that lock_acquire returned. Not needed on the "
        "connection that acquired the lock.",
    }
}

# -- answers that several tools give ---------------------------------------------------------------------

SEEN = {
    "sha256": HASH,
    "observation_id": {"type": "string", "description": "Identifies this read; a later write may name it."},
}
WRITTEN = {
    "sha256": HASH,
    "previous_sha256": {"type": "string", "description": "What was replaced: a hash, or ABSENT."},
    "level": {"type": "string", "description": "How strongly the write was protected."},
    "merged": {
        "type": "object",
        "description": "Only if the file had changed and the write was merged with that.",
        "properties": {
            "base_sha256": HASH,
            "theirs_sha256": HASH,
            "ours_sha256": HASH,
            "changes": {"type": "string", "description": "What others changed since you read it: a diff."},
            "by": {"type": "string", "description": "Who changed it."},
        },
    },
}


def text_answer(text: str, **more: Any) -> McpAnswer:
    """A text, and the same text in the structured content, with what programs want to know as well."""
    return McpAnswer([{"type": "text", "text": text}], {"content": text, **more})


def written(done: WriteResult) -> dict[str, Any]:
    """What the answer to a write says in the structured content (`WRITTEN`)."""
    said: dict[str, Any] = {
        "sha256": done.sha256,
        "previous_sha256": done.previous_sha256,
        "level": done.level,
    }
    if done.merged is not None:
        said["merged"] = done.merged._asdict()
    return said


# -- definitions -----------------------------------------------------------------------------------------

_REFUSAL: dict[str, Any] = {
    **dict.fromkeys(
        ("error_type", "file_path", "message", "resolution", "expected_hash", "actual_hash"), TEXT
    ),
    "details": {"type": "object"},
}
_CONTENTION = {
    "deliverable_id": {"type": ["string", "null"]},
    "holder": {"type": ["string", "null"]},
    "lease_remaining_s": {"type": ["integer", "null"]},
    "contention_time": TEXT,
}
_CLOSED = {"openWorldHint": False}
_HINTS: dict[str, dict[str, bool]] = {
    "read": {"readOnlyHint": True, **_CLOSED},
    "write": {"readOnlyHint": False, "idempotentHint": True, "destructiveHint": True, **_CLOSED},
    "change": {"readOnlyHint": False, "idempotentHint": False, "destructiveHint": True, **_CLOSED},
    "add": {"readOnlyHint": False, "idempotentHint": True, "destructiveHint": False, **_CLOSED},
    "lock": {"readOnlyHint": False, "idempotentHint": False, "destructiveHint": False, **_CLOSED},
}


def tool(
    name: str,
    title: str,
    description: str,
    *,
    run: Run,
    takes: dict[str, Any],
    required: Iterable[str] = (),
    answers: dict[str, Any] | None = None,
    hints: str = "read",
) -> McpTool:
    """Define a tool. `takes` and `answers` are JSON Schemas by name."""
    parameters: dict[str, Any] = {"$schema": DRAFT, "type": "object", "properties": takes}
    if required := list(required):
        parameters["required"] = required
    output = {
        "$schema": DRAFT,
        "type": "object",
        "properties": {**_REFUSAL, **_CONTENTION, "content": TEXT, **(answers or {})},
        "anyOf": [
            {"required": ["content"]},
            {"required": ["error_type", "file_path", "resolution"]},
            {"required": ["error_type", *_CONTENTION]},
        ],
    }
    return McpTool(name, title, description, parameters, output, _HINTS[hints], run)
