"""
What can be told of a call that somebody else's executor carried out, without a second look at the disk.

A second look could see a third party's version and take it for the agent's own. So only what the call
returned and what it was given count: bytes, text (as UTF-8), or a value with `content` and `sha256`.
Where that is not enough nothing is claimed: a part of a file without the whole file's hash leaves no
baseline, and after an edit whose outcome cannot be told the agent has to read again before it writes.
"""

from __future__ import annotations

from noclobber.core.values import WHOLE, ReadResult
from noclobber.disk import hashing
from noclobber.errors import ABSENT, RefusalError
from noclobber.guard.catalogue import FORMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from noclobber.core.values import ToolCall
    from noclobber.guard.catalogue import Request
    from noclobber.guard.facts import Target
    from noclobber.guard.snapshot import TurnContext


def note_read(context: TurnContext, request: Request, target: Target, result: Any) -> None:
    """Take note of what a read returned, or raised."""
    name, path = target.facts.name, target.facts.path
    content, _ = _returned(result)
    if isinstance(result, FileNotFoundError):
        context.observe_absent(name, path)
    elif isinstance(result, BaseException):
        context.observe_error(name, path, getattr(result, "code", type(result).__name__))
    elif isinstance(result, ReadResult):
        whole = content if result.seen.is_whole else None
        context.observe(name, path, result.sha256, whole, result.seen)
    elif content is not None and request.first_line is None and request.last_line is None:
        # Hashed here: what the agent was shown is what counts, whatever hash came along with it.
        context.observe(name, path, hashing.of_bytes(content), content, WHOLE)
    # Else a part without the whole file's hash: it proves nothing that a write could be checked against.


def outcome(
    context: TurnContext, request: Request, target: Target, call: ToolCall, result: Any
) -> tuple[str | None, bytes | None]:
    """Return the hash of what the call left behind, and its bytes; None for what cannot be told."""
    facts = target.facts
    if facts.kind in ("delete", "move"):
        return ABSENT, None
    if target.data is not None:
        return hashing.of_bytes(target.data), target.data
    _, sha256 = _returned(result)
    before = context.baseline_bytes(facts.name, facts.path)
    if sha256 is not None or facts.kind != "edit" or before is None:
        return sha256, None
    try:
        data = FORMS[request.tool.form](before, call.params, facts.path)
    except RefusalError:
        return None, None  # It did something else than we would have done.
    return hashing.of_bytes(data), data


def _returned(result: Any) -> tuple[bytes | None, str | None]:
    """Return the bytes and the hash that an executor's result carries, None for what it does not."""
    if isinstance(result, dict):
        content, sha256 = result.get("content"), result.get("sha256")
    elif isinstance(result, (bytes, str)):
        content, sha256 = result, None
    else:
        content, sha256 = getattr(result, "content", None), getattr(result, "sha256", None)
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogateescape")
    is_hash = isinstance(sha256, str) and len(sha256) == 64
    return (content if isinstance(content, bytes) else None), (sha256 if is_hash else None)
