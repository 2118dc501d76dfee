"""
The exact JSON objects that leave the library, and their recognition when they come back.

Four shapes, each with a JSON Schema in `schemas/`, which is package data: `schema(name)` loads one.

| schema | who reads it | made by |
|---|---|---|
| `stale-file-controller` | a program that re-reads and retries (011) | `StaleFileError.to_controller()` |
| `stale-file-agent` | a model, as a tool's result (009) | `StaleFileError.to_agent()` |
| `lock-contention` | an orchestrator (REQ-LOCK-007) | `LockContention.to_report()` |
| `refusal` | both, for every other refusal | `RefusalError.to_refusal()` |

`to_object()` chooses, and `to_json()` spells: the library, hooks, the MCP server and the command line all
answer through them. Hooks load this module, so nothing slow is imported before it is needed.

Recognition is as exact as production. With one key too many, a word around it or a hash in capitals it is
not the object. A controller that guesses would re-read for a file that merely *talks* about a stale file.
"""

from __future__ import annotations

from typing import Any, Literal

from noclobber.core.json_text import spell_for_any_reader
from noclobber.errors import (
    ABSENT,
    DELETED,
    NOT_A_FILE,
    STALE_HINT,
    STALE_MESSAGE,
    UNKNOWN,
    UNREADABLE,
    LockContention,
    NoclobberError,
    RefusalError,
    StaleFileError,
)

Audience = Literal["agent", "controller"]

SCHEMAS = (
    "stale-file-agent",
    "stale-file-controller",
    "refusal",
    "ledger-event",
    "lock-record",
    "lock-contention",
)

_CONTROLLER_KEYS = {"error_type", "file_path", "expected_hash", "actual_hash", "resolution"}
_AGENT_KEYS = {"error_type", "message", "details", "recovery_hint"}
_AGENT_DETAIL_KEYS = {"path", "baseline_hash", "current_disk_hash"}
_REFUSAL_KEYS = {"error_type", "file_path", "message", "resolution", "details"}
_CONTENTION_KEYS = {"error_type", "deliverable_id", "holder", "lease_remaining_s", "contention_time"}
_EXPECTED_WORDS = (ABSENT, UNKNOWN)
_ACTUAL_WORDS = (DELETED, NOT_A_FILE, UNREADABLE)
_HEX_DIGITS = frozenset("0123456789abcdef")


def to_object(error: NoclobberError, audience: Audience = "agent") -> dict[str, Any]:
    """Return the object that a refusal has for its reader. `TypeError` for an error that is no refusal."""
    if isinstance(error, StaleFileError):
        return error.to_agent() if audience == "agent" else dict(error.to_controller())
    if isinstance(error, RefusalError):
        return error.to_refusal()
    raise TypeError(f"{type(error).__name__} is not a refusal, so it has no JSON object")


def to_json(error: NoclobberError, audience: Audience = "agent") -> str:
    """Return a refusal as JSON text for its reader: that object, and not a character around it."""
    return spell_for_any_reader(to_object(error, audience))


def parse_stale(value: object) -> StaleFileError | None:
    """
    Return the error if `value` is one of the two objects of a stale write, else None.

    It may be the exception, a mapping or JSON text; the controller's object (011) or the agent's (009).
    """
    if isinstance(value, StaleFileError):
        return value
    found = _as_object(value)
    if found is None or found.get("error_type") != StaleFileError.code:
        return None
    if found.keys() == _CONTROLLER_KEYS:
        if found["resolution"] != StaleFileError.resolution:
            return None
        path, expected, actual = found["file_path"], found["expected_hash"], found["actual_hash"]
    elif found.keys() == _AGENT_KEYS:
        details = found["details"]
        if found["message"] != STALE_MESSAGE or found["recovery_hint"] != STALE_HINT:
            return None
        if not isinstance(details, dict) or details.keys() != _AGENT_DETAIL_KEYS:
            return None
        path, expected, actual = (details["path"], details["baseline_hash"], details["current_disk_hash"])
    else:
        return None
    if not isinstance(path, str) or not path.startswith("/"):
        return None
    if not _is_hash_or(expected, _EXPECTED_WORDS) or not _is_hash_or(actual, _ACTUAL_WORDS):
        return None
    return StaleFileError(path, expected, actual)


def parse_refusal(value: object) -> tuple[str, str] | None:
    """
    Return code and path if `value` is a refusal other than a stale one, in any of those forms. A lock's
    contention names a deliverable and no path.
    """
    if isinstance(value, RefusalError):
        return value.code, value.path
    found = _as_object(value)
    if found is None:
        return None
    code = found.get("error_type")
    if code == LockContention.code and found.keys() == _CONTENTION_KEYS:
        return LockContention.code, ""
    if found.keys() != _REFUSAL_KEYS or not isinstance(found["details"], dict):
        return None
    words = [found[key] for key in ("error_type", "file_path", "message", "resolution")]
    if not all(isinstance(word, str) for word in words) or code == StaleFileError.code:
        return None
    return found["error_type"], found["file_path"]


def schema(name: str) -> dict[str, Any]:
    """Return one of `SCHEMAS` as a value that a validator takes."""
    if name not in SCHEMAS:
        raise ValueError(f"there is no schema {name!r}; there are: {', '.join(SCHEMAS)}")
    import json
    from importlib.resources import files

    loaded: dict[str, Any] = json.loads(
        files("noclobber.core").joinpath("schemas", f"{name}.schema.json").read_text(encoding="utf-8")
    )
    return loaded


def _is_hash_or(value: object, words: tuple[str, ...]) -> bool:
    """True for 64 lower-case hex digits, or one of the words that take a hash's place."""
    return isinstance(value, str) and (value in words or (len(value) == 64 and _HEX_DIGITS.issuperset(value)))


def _as_object(value: object) -> dict[str, Any] | None:
    """Return a mapping, or the mapping that JSON text spells, as a dict; None for everything else."""
    from collections.abc import Mapping

    if isinstance(value, (str, bytes, bytearray)):
        # A megabyte of tool output is not worth parsing to learn that it is not ours.
        if value[:64].lstrip()[:1] not in ("{", b"{"):
            return None
        import json

        try:
            value = json.loads(value, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError):
            return None
    return dict(value) if isinstance(value, Mapping) else None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key occurs twice, and readers differ on which one counts")
    return value
