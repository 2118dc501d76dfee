"""
From a request to the facts that the policies judge, one target for each file that a call names.

Nothing here looks at a file's content: what the agent saw is in the turn, and the guard compares when it
commits. The one thing asked of the disk is where a path leads.
"""

from __future__ import annotations

from typing import NamedTuple

from noclobber.disk import hashing
from noclobber.errors import AccessDeniedError, BadRequestError, NotAFileError
from noclobber.guard.catalogue import as_bytes
from noclobber.guard.policies import Facts
from noclobber.text.lines import BOM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from noclobber.core.options import Options
    from noclobber.disk.optimistic_guard import OptimisticGuard
    from noclobber.guard.catalogue import Request
    from noclobber.guard.fence import WriteFence
    from noclobber.guard.snapshot import TurnContext

    class OpenTurn(Protocol):
        """What has to be known of the turn that a call belongs to."""

        context: TurnContext
        guard: OptimisticGuard
        options: Options
        write_scope: tuple[str, ...] | None
        fence: WriteFence


class Target(NamedTuple):
    """One file that a call names: the facts, and what it shall hold (None: not a whole new content)."""

    facts: Facts
    data: bytes | None
    given: str


def gather(turn: OpenTurn, request: Request, *, keeps_bom: bool = True) -> list[Target]:
    """Return the targets of a request. `keeps_bom`: whoever writes puts a byte-order mark back."""
    kind = request.tool.kind
    if kind == "write_many":
        return [
            _target(turn, "write", path, content, expected, None, keeps_bom)
            for path, content, expected in request.files
        ]
    first = _target(
        turn,
        kind,
        request.path,
        request.content,
        request.expected_hash,
        request.observation_id,
        keeps_bom,
    )
    if request.destination is None:
        return [first]
    return [first, _target(turn, "create", request.destination, None, None, None, keeps_bom)]


def look(turn: OpenTurn, facts: Facts) -> Facts:
    """Add what stands on the disk now."""
    return facts if facts.kind == "read" else facts._replace(actual=turn.guard.digest(facts.path))


def _target(
    turn: OpenTurn,
    kind: str,
    given: str,
    content: str | bytes | None,
    expected_hash: str | None,
    observation_id: str | None,
    keeps_bom: bool,
) -> Target:
    context, actual = turn.context, None
    name = context.name_of(given)
    try:
        path = turn.guard.locate(given)
    except (NotAFileError, AccessDeniedError):
        # It leads nowhere now. If the agent knows a file under that name, that file is what changed;
        # if not, the guard will meet the same obstacle and say so.
        path, actual = name, None if kind == "read" else turn.guard.digest(given)
    data = None if content is None else as_bytes(content, path)
    if data is not None and keeps_bom and _lost_its_bom(context, name, path, content, data):
        data = BOM + data
    expected, seen_whole = _expectation(context, name, path, expected_hash, observation_id)
    facts = Facts(
        kind,
        path,
        name,
        expected=expected,
        actual=actual,
        seen_whole=seen_whole,
        refuse_resubmitted=context.refuse_resubmitted,
        write_scope=turn.write_scope,
        deny_unread=turn.options.unread == "deny",
        deny_partial=turn.options.partial == "deny",
    )
    if data is not None and context.refuse_resubmitted:
        facts = facts._replace(refused_from=context.refused_from(name, path, hashing.of_bytes(data)))
    return Target(facts, data, given)


def _lost_its_bom(
    context: TurnContext, name: str, path: str, content: str | bytes | None, data: bytes
) -> bool:
    """True for text over a file with a byte-order mark: text does not show it, so nobody meant to drop it."""
    return isinstance(content, str) and not data.startswith(BOM) and context.starts_with_bom(name, path)


def _expectation(
    context: TurnContext, name: str, path: str, expected_hash: str | None, observation_id: str | None
) -> tuple[str | None, bool]:
    """Return what a write is checked against, and whether all of that was seen. The caller's word counts."""
    baseline, coverage = context.expected_for(name, path), context.coverage_for(name, path)
    is_whole = coverage is None or coverage.is_whole
    if observation_id is not None:
        observation = context.observation(observation_id)
        if observation.path != path or expected_hash not in (None, observation.sha256):
            raise BadRequestError(path, "That observation is of another file, or of another hash.")
        return observation.sha256, is_whole if observation.sha256 == baseline else observation.seen.is_whole
    if expected_hash is None or expected_hash == baseline:
        return baseline, is_whole
    return expected_hash, True  # A hash from elsewhere: nothing is known of how much its owner saw.
