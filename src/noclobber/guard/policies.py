"""
The rules by which a call is let through: pure functions, facts in, decision out.

No rule looks anything up. Whoever asks gathers the facts first, so every rule can be tested as a table and
gives the same answer when asked again. `decide()` takes the first refusal in the order of `RULES`: first
what can never be right, then staleness, because an agent that must read again learns all the rest by it.

`actual` is what stands on the disk, and None means that nobody looked. The guard compares at the moment of
the commit anyway, so the engine looks beforehand only if it must say no for another reason.
"""

from __future__ import annotations

from noclobber.core.values import ALLOW, Decision
from noclobber.errors import (
    ABSENT,
    DELETED,
    OutsideScopeError,
    PartialReadError,
    ReservedFileError,
    ResubmittedError,
    StaleFileError,
    UnreadFileError,
)
from noclobber.lock.names import is_lock_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NamedTuple
else:
    from noclobber.core.light.named_tuples import NamedTuple


class Facts(NamedTuple):
    """Everything that the rules may know about one call and one file."""

    kind: str
    """`read`, `write` (the whole file), `edit`, `delete`, `move` or `create` (a move's destination)."""
    path: str
    """Canonical."""
    name: str
    """What the agent called it, absolute."""
    expected: str | None = None
    """What the caller gave, or else the turn's baseline; None: this turn has not read the file."""
    actual: str | None = None
    seen_whole: bool = True
    refused_from: str | None = None
    """If these very bytes were refused before: the baseline they were made from."""
    refuse_resubmitted: bool = False
    write_scope: tuple[str, ...] | None = None
    """Canonical folders."""
    deny_unread: bool = False
    deny_partial: bool = False


def reserved(facts: Facts) -> Decision:
    """REQ-LOCK-010: lock files are neither read nor written through an agent's tools."""
    for path in (facts.path, facts.name):
        if is_lock_file(path):
            return Decision(
                False,
                ReservedFileError(
                    facts.path,
                    "This file belongs to a deliverable's lock. Agents neither read nor write it; "
                    "ask for the lock's status instead.",
                ),
            )
    return ALLOW


def write_scope(facts: Facts) -> Decision:
    """K-WRITE-1: a turn that was given folders writes in them and nowhere else."""
    if facts.kind == "read" or facts.write_scope is None:
        return ALLOW
    for folder in facts.write_scope:
        if facts.path.startswith(folder if folder.endswith("/") else f"{folder}/"):
            return ALLOW
    allowed = ", ".join(facts.write_scope) or "no folder at all"
    return Decision(
        False,
        OutsideScopeError(
            facts.path, f"This turn may write in {allowed}. Choose a path in there.", scope=allowed
        ),
    )


def stale(facts: Facts) -> Decision:
    """009-FR-003, 009-FR-004: what is there must be what the agent saw."""
    if facts.kind in ("read", "create") or facts.expected is None or facts.actual is None:
        return ALLOW
    if facts.actual == facts.expected or (facts.expected == ABSENT and facts.actual == DELETED):
        return ALLOW
    return Decision(False, StaleFileError(facts.path, facts.expected, facts.actual))


def unread(facts: Facts) -> Decision:
    """`unread = "deny"`. A path where nothing stands may be written: there is nothing to read."""
    if not facts.deny_unread or facts.kind in ("read", "create"):
        return ALLOW
    if facts.expected is not None or facts.actual == DELETED:
        return ALLOW
    return Decision(
        False, UnreadFileError(facts.path, "This turn has not read the file. Read it, then write again.")
    )


def partial(facts: Facts) -> Decision:
    """`partial = "deny"`: a whole file is not replaced by who has seen a part of it."""
    if not facts.deny_partial or facts.kind != "write" or facts.seen_whole:
        return ALLOW
    return Decision(
        False,
        PartialReadError(
            facts.path,
            "This turn has seen only a part of the file, and all of it would be replaced. "
            "Read the rest, or change it with edits.",
        ),
    )


def resubmitted(facts: Facts) -> Decision:
    """
    Bytes that were refused as stale do not become right because the file was read again.

    They do if what was read is what they were made from: the file went back to it.
    """
    if not facts.refuse_resubmitted or facts.refused_from in (None, facts.expected):
        return ALLOW
    return Decision(
        False,
        ResubmittedError(
            facts.path,
            "These very bytes were refused before, because the file had changed. Work the changes in: "
            "sending the same again would undo them.",
        ),
    )


RULES: tuple[Callable[[Facts], Decision], ...] = (
    reserved,
    write_scope,
    stale,
    unread,
    partial,
    resubmitted,
)


def decide(facts: Facts) -> Decision:
    """Return the first refusal, or `ALLOW`."""
    for rule in RULES:
        decision = rule(facts)
        if not decision.allowed:
            return decision
    return ALLOW
