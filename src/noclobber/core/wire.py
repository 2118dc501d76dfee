"""
The exact JSON objects that leave the library, and their recognition when they come back.

Four shapes, each with a JSON Schema in `schemas/`, which is package data: `schema(name)` loads one.

| schema | who reads it | made by |
|---|---|---|
| `stale-file-controller` | a program that re-reads and retries (011) | `StaleFileError.to_controller()` |
| `stale-file-agent` | a model, as a tool's result (009) | `StaleFileError.to_agent()` |
| `lock-contention` | an orchestrator (REQ-LOCK-007) | `LockContention.to_report()` |
| `refusal` | both, for every other refusal | `RefusalError.to_refusal()` |

Recognition is as exact as production: one key more, a word around it, a hash in capitals, and it is not the
object. A controller that guesses would re-read for a file that merely *talks* about a stale file.
"""

from __future__ import annotations

import re

from noclobber.errors import LockContention, NoclobberError, RefusalError, StaleFileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

SCHEMAS = (
    "stale-file-agent",
    "stale-file-controller",
    "refusal",
    "ledger-event",
    "lock-record",
    "lock-contention",
)

_STALE_KEYS = frozenset(("error_type", "file_path", "expected_hash", "actual_hash", "resolution"))
_REFUSAL_KEYS = frozenset(("error_type", "file_path", "message", "resolution", "details"))
_CONTENTION_KEYS = frozenset(
    ("error_type", "deliverable_id", "holder", "lease_remaining_s", "contention_time")
)
_EXPECTED = re.compile(r"[0-9a-f]{64}|ABSENT")
_ACTUAL = re.compile(r"[0-9a-f]{64}|DELETED|NOT_A_FILE|UNREADABLE")


def to_json(error: NoclobberError, audience: Literal["agent", "controller"] = "agent") -> str:
    """Return a refusal as JSON text for its reader: that object, and not a character around it."""
    import json

    if isinstance(error, StaleFileError):
        value = error.to_agent() if audience == "agent" else error.to_controller()
    elif isinstance(error, RefusalError):
        value = error.to_refusal()
    else:
        raise TypeError(f"{type(error).__name__} is no refusal, so it has no JSON object")
    text = json.dumps(value, ensure_ascii=False)
    # A name that is not UTF-8 is spelled with lone surrogates, which no encoder takes: escape those.
    return text if text.isprintable() else json.dumps(value)


def parse_stale(value: object) -> StaleFileError | None:
    """Return the error if `value` is the controller's object (exception, mapping or JSON text), else None."""
    if isinstance(value, StaleFileError):
        return value
    found = _as_object(value, _STALE_KEYS)
    if found is None or not all(isinstance(part, str) for part in found.values()):
        return None
    if found["error_type"] != StaleFileError.code or found["resolution"] != StaleFileError.resolution:
        return None
    if not _EXPECTED.fullmatch(found["expected_hash"]) or not _ACTUAL.fullmatch(found["actual_hash"]):
        return None
    if not found["file_path"].startswith("/"):
        return None
    return StaleFileError(found["file_path"], found["expected_hash"], found["actual_hash"])


def parse_refusal(value: object) -> tuple[str, str] | None:
    """
    Return code and path if `value` is a refusal other than a stale one, in any of those forms. A lock's
    contention names a deliverable and no path.
    """
    if isinstance(value, RefusalError):
        return value.code, value.path
    contention = _as_object(value, _CONTENTION_KEYS)
    if contention is not None and contention["error_type"] == LockContention.code:
        return LockContention.code, ""
    found = _as_object(value, _REFUSAL_KEYS)
    if found is None or not isinstance(found["details"], dict):
        return None
    words = [found[key] for key in ("error_type", "file_path", "message", "resolution")]
    if not all(isinstance(word, str) for word in words) or found["error_type"] == StaleFileError.code:
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


def _as_object(value: object, keys: frozenset[str]) -> dict[str, Any] | None:
    """Return a mapping, or the mapping that JSON text spells, if it has exactly these keys."""
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
    if not isinstance(value, Mapping) or len(value) != len(keys) or set(value) != keys:
        return None
    return dict(value)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice, and readers differ on which one counts")
    return value
