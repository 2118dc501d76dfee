"""
The tools as data: names, parameters, what they promise, what they answer.

The first fourteen are those of the server that this one replaces: same names, same parameters, same
answers. Parameters and answers that are added there, and the tools after them, are ours.

A refusal answers with another object than a success, and many clients check *any* structured content against
the output schema, errors included. So every output schema admits both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from noclobber.lock.liveness import MAX_LEASE_S, MIN_LEASE_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

DRAFT = "http://json-schema.org/draft-07/schema#"

_TEXT = {"type": "string"}
_HASH = {"type": "string", "description": "SHA-256 of the whole file's bytes, 64 hex digits."}
_PATH = {"path": {"type": "string", "description": "Absolute, or relative to the first root."}}
_LINES = {
    "tail": {"type": "number", "description": "Only this many lines from the end."},
    "head": {"type": "number", "description": "Only this many lines from the beginning."},
}
_EXPECTED = {
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
_SHOWN = {
    "lock_id": {
        "type": "string",
        "description": "If the folder is locked: the lock_id that lock_acquire returned. Not needed on the "
        "connection that took the lock.",
    }
}
_EXCLUDE = {"excludePatterns": {"type": "array", "items": _TEXT, "default": []}}
_LOCK_ID = {"type": "string", "description": "The lock_id that lock_acquire returned."}
_FOLDER = {"path": {"type": "string", "description": "The deliverable's folder."}}
_LEASE = {
    "type": "integer",
    "minimum": MIN_LEASE_S,
    "maximum": MAX_LEASE_S,
    "description": "How long the lock lasts unless it is renewed, in seconds.",
}

_SEEN = {
    "sha256": _HASH,
    "observation_id": {"type": "string", "description": "Names this read; good for expected versions."},
}
_WRITTEN = {
    "sha256": _HASH,
    "previous_sha256": {"type": "string", "description": "What was replaced: a hash, or ABSENT."},
    "level": {"type": "string", "description": "How strongly the write was protected."},
}
_MEDIA = {
    "content": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["image", "audio", "resource"]},
                "data": _TEXT,
                "mimeType": _TEXT,
                "resource": {
                    "type": "object",
                    "properties": {"uri": _TEXT, "mimeType": _TEXT, "blob": _TEXT},
                    "required": ["uri", "blob"],
                },
            },
            "required": ["type"],
        },
    }
}
_REFUSAL = dict.fromkeys(
    ("error_type", "file_path", "message", "resolution", "expected_hash", "actual_hash"), _TEXT
)


class Tool(NamedTuple):
    """One tool. `ours` names the parameters that the replaced server does not have, at any depth."""

    name: str
    title: str
    description: str
    parameters: dict[str, Any]
    output: dict[str, Any]
    annotations: dict[str, bool]
    ours: frozenset[str] = frozenset()
    ignores_unknown: bool = False
    """True for the reading tools of the replaced server, which ignores parameters that it does not know."""


def _tool(
    name: str,
    title: str,
    description: str,
    properties: dict[str, Any],
    required: Iterable[str],
    *,
    hints: str = "read",
    ours: Iterable[str] = (),
    answers: dict[str, Any] | None = None,
) -> Tool:
    parameters: dict[str, Any] = {"$schema": DRAFT, "type": "object", "properties": properties}
    if required := list(required):
        parameters["required"] = required
    output = {
        "$schema": DRAFT,
        "type": "object",
        "properties": {"content": _TEXT, **(answers or {}), **_REFUSAL},
        "anyOf": [
            {"required": ["content"]},
            {"required": ["error_type", "file_path", "resolution"]},
            {"required": ["error_type", "deliverable_id", "holder"]},  # A lock's contention.
        ],
    }
    return Tool(name, title, description, parameters, output, _HINTS[hints], frozenset(ours))


_CLOSED = {"openWorldHint": False}
_HINTS: dict[str, dict[str, bool]] = {
    "read": {"readOnlyHint": True, **_CLOSED},
    "write": {"readOnlyHint": False, "idempotentHint": True, "destructiveHint": True, **_CLOSED},
    "change": {"readOnlyHint": False, "idempotentHint": False, "destructiveHint": True, **_CLOSED},
    "add": {"readOnlyHint": False, "idempotentHint": True, "destructiveHint": False, **_CLOSED},
    "hold": {"readOnlyHint": False, "idempotentHint": False, "destructiveHint": False, **_CLOSED},
}

_REFERENCE = (
    _tool(
        "read_file",
        "Read File (Deprecated)",
        "Read a text file, whole or in part. The older name of read_text_file; prefer that one.",
        {**_PATH, **_LINES},
        ["path"],
        answers=_SEEN,
    ),
    _tool(
        "read_text_file",
        "Read Text File",
        "Read a file as UTF-8 text: all of it, or the first (head) or last (tail) lines. The answer's sha256 "
        "names the version that you saw; pass it as expected_hash when you write the file.",
        {**_PATH, **_LINES},
        ["path"],
        answers=_SEEN,
    ),
    _tool(
        "read_media_file",
        "Read Media File",
        "Read an image, a sound or any other binary file as base64 with its media type.",
        _PATH,
        ["path"],
        answers={**_MEDIA, **_SEEN},
    ),
    _tool(
        "read_multiple_files",
        "Read Multiple Files",
        "Read several text files in one call. One that cannot be read is reported in its place; the others "
        "are read all the same.",
        {"paths": {"type": "array", "items": _TEXT, "minItems": 1, "description": "Which files."}},
        ["paths"],
        answers={
            "files": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"path": _TEXT, **_SEEN, "error": _TEXT},
                    "required": ["path"],
                },
            }
        },
    ),
    _tool(
        "write_file",
        "Write File",
        "Create a file or replace all of it, in one atomic step. Refused with STALE_FILE if somebody else "
        "changed the file after you read it: read it again, work their changes in, and write again.",
        {**_PATH, "content": _TEXT, **_EXPECTED, **_SHOWN},
        ["path", "content"],
        hints="write",
        ours=[*_EXPECTED, *_SHOWN],
        answers=_WRITTEN,
    ),
    _tool(
        "edit_file",
        "Edit File",
        "Replace pieces of a text file: each oldText by its newText, one after the other, all or none. Lines "
        "that differ only in their indentation match, too. Answers with a diff; dryRun changes nothing. "
        "Refused with STALE_FILE if somebody else changed the file after you read it.",
        {
            **_PATH,
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "oldText": {"type": "string", "description": "What stands there now."},
                        "newText": {"type": "string", "description": "What shall stand there."},
                    },
                    "required": ["oldText", "newText"],
                },
            },
            "dryRun": {"type": "boolean", "default": False, "description": "Only show the diff."},
            **_EXPECTED,
            **_SHOWN,
        },
        ["path", "edits"],
        hints="change",
        ours=[*_EXPECTED, *_SHOWN],
        answers=_WRITTEN,
    ),
    _tool(
        "create_directory",
        "Create Directory",
        "Create a folder, and the folders above it where they are missing. One that exists already is fine.",
        {**_PATH, **_SHOWN},
        ["path"],
        hints="add",
        ours=_SHOWN,
    ),
    _tool(
        "list_directory",
        "List Directory",
        "List what is in a folder, marked [FILE] or [DIR].",
        _PATH,
        ["path"],
    ),
    _tool(
        "list_directory_with_sizes",
        "List Directory with Sizes",
        "List what is in a folder, with sizes and totals, by name or largest first.",
        {**_PATH, "sortBy": {"type": "string", "enum": ["name", "size"], "default": "name"}},
        ["path"],
    ),
    _tool(
        "directory_tree",
        "Directory Tree",
        "Show a folder and everything below it as JSON: name, type, and a folder's children.",
        {**_PATH, **_EXCLUDE},
        ["path"],
    ),
    _tool(
        "move_file",
        "Move File",
        "Move or rename a file or a folder. The destination must not exist.",
        {"source": _TEXT, "destination": _TEXT, **_EXPECTED, **_SHOWN},
        ["source", "destination"],
        hints="change",
        ours=[*_EXPECTED, *_SHOWN],
        answers=_WRITTEN,
    ),
    _tool(
        "search_files",
        "Search Files",
        "Find files and folders below a folder by a glob pattern: '*.md' in the folder itself, "
        "'**/*.md' at any depth.",
        {**_PATH, "pattern": _TEXT, **_EXCLUDE},
        ["path", "pattern"],
    ),
    _tool(
        "get_file_info",
        "Get File Info",
        "Show size, times, kind and permissions of a file or a folder.",
        _PATH,
        ["path"],
    ),
    _tool(
        "list_allowed_directories",
        "List Allowed Directories",
        "List the folders that these tools may use, and everything below them.",
        {},
        [],
    ),
)

_ADDED = (
    _tool(
        "write_files",
        "Write Files",
        "Create or replace several files: all of them, or none if one of them is stale or cannot be written.",
        {
            "files": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {**_PATH, "content": _TEXT, **_EXPECTED},
                    "required": ["path", "content"],
                },
            },
            **_SHOWN,
        },
        ["files"],
        hints="write",
        ours=[*_EXPECTED, *_SHOWN],
        answers={
            "files": {
                "type": "array",
                "items": {"type": "object", "properties": {"path": _TEXT, **_WRITTEN}},
            }
        },
    ),
    _tool(
        "delete_file",
        "Delete File",
        "Delete a file, if it is still what you saw.",
        {**_PATH, **_EXPECTED, **_SHOWN},
        ["path"],
        hints="change",
        ours=[*_EXPECTED, *_SHOWN],
        answers=_WRITTEN,
    ),
    _tool(
        "changes_since_read",
        "Changes Since Read",
        "Show what changed in a file since you last read or wrote it, as a diff; empty if nothing did. "
        "Looking does not count as reading: to write, read the file again.",
        {**_PATH, "observation_id": _EXPECTED["observation_id"]},
        ["path"],
        ours=["observation_id"],
        answers={"sha256": {"type": "string", "description": "What is there now: a hash, or DELETED."}},
    ),
    _tool(
        "lock_acquire",
        "Acquire Lock",
        "Take the lock of a deliverable's folder, so that no other task works in it. Fails with "
        "LOCK_CONTENTION if somebody has it. Renew it before its lease runs out; release it when done.",
        {
            **_FOLDER,
            "holder": {"type": "string", "description": "Who you are, for others to read."},
            "deliverable_id": {"type": "string", "description": "Default: the folder's name."},
            "lease_duration_s": _LEASE,
            "timeout_s": {"type": "number", "description": "How long to wait for it; default 0."},
        },
        ["path"],
        hints="hold",
        ours=["holder", "deliverable_id", "lease_duration_s", "timeout_s"],
        answers={"lock_id": _TEXT, "expires": _TEXT},
    ),
    _tool(
        "lock_renew",
        "Renew Lock",
        "Extend a lock that you hold to a full lease from now.",
        {**_FOLDER, "lock_id": _LOCK_ID, "lease_duration_s": _LEASE},
        ["path", "lock_id"],
        hints="hold",
        ours=["lease_duration_s"],
        answers={"lock_id": _TEXT, "expires": _TEXT},
    ),
    _tool(
        "lock_release",
        "Release Lock",
        "Give back a lock that you hold.",
        {**_FOLDER, "lock_id": _LOCK_ID},
        ["path", "lock_id"],
        hints="hold",
        answers={"released": {"type": "boolean"}},
    ),
    _tool(
        "lock_status",
        "Lock Status",
        "Show whether a deliverable's folder is locked, by whom and until when.",
        _FOLDER,
        ["path"],
        answers={"state": _TEXT},
    ),
)

TOOLS: dict[str, Tool] = {
    **{tool.name: tool._replace(ignores_unknown=tool.annotations["readOnlyHint"]) for tool in _REFERENCE},
    **{tool.name: tool for tool in _ADDED},
}
REFERENCE_NAMES = tuple(tool.name for tool in _REFERENCE)
