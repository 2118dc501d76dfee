"""
What goes on record: one event for each refused write, one for each that landed.

`MUTATION_CONFLICT` is the research page's object, word for word. Other refused writes are
`MUTATION_REFUSED`, landed ones `MUTATION`. A foreign executor's failure is `MUTATION_FAILED`, and a write of
its that an outsider's got mixed up with is `MUTATION_RACE`. What a dead process had begun is
`COMMIT_RECOVERED`; what somebody wrote to a version already replaced is `VERSION_KEPT`. Hashes and paths,
never content. Events carry who asked; the ledger adds when, and the chain.

If the ledger fails: before a commit (`trouble()`), the write is refused, because a write that leaves no
trace is one that a broken ledger let through. While a refusal is recorded, the refusal stands and the
failure travels with it: `error.ledger_error`, and a note in the traceback. After a commit there
is nothing left to refuse: `LedgerError` with `details["landed"]`, the hash that is on the disk.
"""

from __future__ import annotations

import os
import stat

from noclobber.errors import LedgerError, NoclobberError, StaleFileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Protocol

    from noclobber.core.values import Recovered, ToolCall

    class Ledger(Protocol):
        """What is asked of a ledger."""

        path: str

        def append(self, event: Mapping[str, Any]) -> object:
            """Record one event."""


_PROBE = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def trouble(ledger: Ledger) -> LedgerError | None:
    """Return what stands in the way of recording, as far as can be told without recording anything."""
    try:
        descriptor = os.open(ledger.path, _PROBE, 0o666)
    except OSError as error:
        return LedgerError(
            ledger.path,
            f"The ledger cannot be written ({error.strerror}), so nothing may be changed. Mend it and retry.",
            errno=error.errno,
        )
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        # Whatever else an append would meet: a file that is no ledger, say, or is kept busy.
        check = getattr(ledger, "assert_writable", None)
        try:
            if check is not None and status.st_size:
                check()
        except LedgerError as error:
            return error
        return None
    return LedgerError(ledger.path, "The ledger is not a regular file, so nothing may be changed. Mend it.")


def record_refusal(ledger: Ledger, call: ToolCall, error: NoclobberError) -> None:
    """Record a refused write. Never raises: the refusal must reach the caller whatever the ledger does."""
    from noclobber.ledger.line import spell_hash  # Here: what is only judged needs no ledger loaded.

    if isinstance(error, StaleFileError):
        action = "MUTATION_CONFLICT"
        payload: dict[str, Any] = {
            "tool_name": call.tool,
            "target_file": error.path,
            "baseline_hash": spell_hash(error.expected),
            "current_hash": spell_hash(error.actual),
        }
    else:
        action = "MUTATION_REFUSED"
        # A path that is refused for not being UTF-8 cannot stand in JSON as it is.
        path = str(getattr(error, "path", "")).encode("utf-8", "backslashreplace").decode()
        payload = {"tool_name": call.tool, "target_file": path}
    result = {"status": "DENIED", "error_type": error.code}
    try:
        ledger.append(_event(action, payload, result, call))
    except LedgerError as failure:
        error.ledger_error = failure  # type: ignore[attr-defined]
        error.add_note(f"And the refusal is not on record: {failure}")


def record_landed(
    ledger: Ledger, call: ToolCall, path: str, before: str, after: str, level: str, **more: Any
) -> None:
    """Record a write that is on the disk."""
    from noclobber.ledger.line import spell_hash

    payload = {
        "tool_name": call.tool,
        "target_file": path,
        "before_hash": spell_hash(before),
        "after_hash": spell_hash(after),
        "level": level,
        **{key: value for key, value in more.items() if value},
    }
    try:
        ledger.append(_event("MUTATION", payload, {"status": "APPLIED"}, call))
    except LedgerError as failure:
        raise LedgerError(
            path,
            f"The write landed, but it is not on record: {failure}",
            landed=after,
            ledger=failure.path,
        ) from failure


def record_recovered(ledger: Ledger, call: ToolCall, recovered: Iterable[Recovered]) -> None:
    """Record what became of commits whose process died: its own events may never have been written."""
    for found in recovered:
        payload = {"target_file": found.path, "outcome": found.outcome}
        payload |= {"kept": found.kept} if found.kept else {}
        ledger.append(_event("COMMIT_RECOVERED", payload, {"status": "RECOVERED"}, call))


def record_kept(ledger: Ledger, call: ToolCall, kept: list[str]) -> None:
    """Record that somebody wrote to versions that had been replaced: their bytes lie aside."""
    ledger.append(_event("VERSION_KEPT", {"kept": kept}, {"status": "KEPT_ASIDE"}, call))


def record_failed(ledger: Ledger, call: ToolCall, path: str, error: BaseException) -> None:
    """Record that somebody else's executor failed after it had been let through: it may have written."""
    payload = {"tool_name": call.tool, "target_file": path}
    result = {"status": "FAILED", "error_type": type(error).__name__}
    ledger.append(_event("MUTATION_FAILED", payload, result, call))


def record_race(ledger: Ledger, call: ToolCall, path: str, before: str, expected: str, found: str) -> None:
    """Record that after somebody else's executor wrote, something else stood there than what it wrote."""
    from noclobber.ledger.line import spell_hash

    payload = {
        "tool_name": call.tool,
        "target_file": path,
        "before_hash": spell_hash(before),
        "expected_hash": spell_hash(expected),
        "current_hash": spell_hash(found),
    }
    ledger.append(_event("MUTATION_RACE", payload, {"status": "RACED"}, call))


def _event(action: str, payload: dict[str, Any], result: dict[str, Any], call: ToolCall) -> dict[str, Any]:
    who = {
        "agent_id": call.agent_id,
        "session_id": call.session_id,
        "turn_id": call.turn_id,
        "call_id": call.call_id,
        "host": call.host,
        "intent_id": call.intent_id,
    }
    return {
        "action_type": action,
        "payload": payload,
        "result": result,
        "identity": {key: value for key, value in who.items() if value is not None},
    }
