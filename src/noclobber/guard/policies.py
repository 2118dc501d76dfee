"""
The rules by which a call is let through: pure functions, facts in, decision out.

No rule looks anything up. Whoever asks gathers the facts first, so every rule can be tested as a table and
gives the same answer when asked again. `decide()` takes the first refusal in the order of `RULES`: first
what can never be right, then staleness, because an agent that must read again learns all the rest by it.

A new rule is a function here and its name in `RULES`; its option is a line in `core/options`, and what it
has to know is a field of `Facts`. Library, hooks and MCP ask it from then on.

`facts.actual` is what is on the disk, and None means that nobody looked. The commit compares anyway, so the
engine looks beforehand only if it must say no for another reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from noclobber.core.actions import CREATE, EDIT, MOVE, READ, WRITE
from noclobber.core.switches import base_of, holds_switch, is_at, is_below, is_switch
from noclobber.core.values import ALLOW, Decision
from noclobber.disk.paths import is_reserved
from noclobber.errors import (
    ABSENT,
    DELETED,
    NOT_A_FILE,
    UNKNOWN,
    NotAFileError,
    OutsideScopeError,
    OutsideWorkspaceError,
    PartialReadError,
    ReservedFileError,
    ResubmittedError,
    StaleFileError,
    UnreadFileError,
)
from noclobber.lock.names import LOCK_NAME, is_lock_file

if TYPE_CHECKING:
    from noclobber.guard.facts import Facts


def _names(facts: Facts) -> Sequence[str]:
    """Return the path and what the agent called it: mostly the same, and a command may change thousands."""
    return (facts.path,) if facts.path == facts.name else (facts.path, facts.name)


def own_records(facts: Facts) -> Decision:
    """N-state: an agent neither reads nor edits its own record."""
    if any(is_reserved(path, None) for path in _names(facts)):
        return Decision(
            False,
            OutsideWorkspaceError(facts.path, "These are noclobber's own records; tools do not touch them."),
        )
    return ALLOW


def lock_files(facts: Facts) -> Decision:
    """
    REQ-LOCK-010: lock files are neither read nor written through an agent's tools.

    Nor does a folder get such a name (finding S20): no lock could be taken beside it. A write creates the
    folders that are missing, so every part of the path counts.
    """
    parts = _names(facts)
    if facts.kind in (CREATE, WRITE) and LOCK_NAME in facts.path.casefold():
        parts = [*parts, *facts.path.removeprefix(f"{facts.root}/").split("/")]
    if any(map(is_lock_file, parts)):
        return Decision(
            False,
            ReservedFileError(
                facts.path,
                "This file belongs to a deliverable's lock. Agents neither read nor write it; "
                "ask for the lock's status instead.",
            ),
        )
    return ALLOW


def switches(facts: Facts) -> Decision:
    """Finding S8: an agent changes neither what says how it is checked, nor what `reserved` names."""
    options = facts.options
    if facts.kind == READ:
        return ALLOW
    if facts.is_switch_by_link:
        return Decision(
            False,
            ReservedFileError(
                facts.path,
                "It is a hard link to a file that agents do not change. Ask a person to change it, or delete "
                "this name and write a new file.",
            ),
        )
    for path in _names(facts):
        is_moved = facts.kind in (MOVE, CREATE) or facts.is_around
        if options.switches == "reserved" and (
            _is_switch(path, facts) or (is_moved and holds_switch(path, facts.root))
        ):
            reason = "It decides whether and how agents are checked, so agents do not change it."
        elif _is_reserved(path, facts.root, options.reserved or (), is_moved=is_moved):
            reason = "The project's options reserve it."
        else:
            continue
        return Decision(False, ReservedFileError(facts.path, f"{reason} Ask a person to change it."))
    return ALLOW


def _is_switch(path: str, facts: Facts) -> bool:
    """True for a switch, unless it comes, or goes, with the whole folder whose sessions it decides about."""
    if facts.comes_with is None or (base := base_of(path.casefold())) is None:
        return is_switch(path, facts.root, facts.switch_places)
    is_here = base == facts.root.casefold() or is_at(path.casefold(), facts.switch_places or frozenset())
    return is_here or not is_below(base, facts.comes_with.casefold())


def _is_reserved(path: str, root: str, reserved: tuple[str, ...], *, is_moved: bool) -> bool:
    """True if `reserved` names a path or a folder above it; for a move, also if it names something below."""
    for name in reserved:
        asked = os.path.join(root, name)
        for place in {os.path.normpath(asked), os.path.realpath(asked)}:
            if place == "/" or is_below(path, place) or (is_moved and is_below(place, path)):
                return True
            if is_below(path.casefold(), place.casefold()) and _is_one_place(path, place):
                return True
    return False


def _is_one_place(path: str, place: str) -> bool:
    """True if a path's beginning, which differs from a place in case only, leads to it on this filesystem."""
    beginning = "/".join(path.split("/")[: place.count("/") + 1])
    try:
        return os.path.samefile(beginning, place)
    except OSError:
        return False


def write_scope(facts: Facts) -> Decision:
    """K-WRITE-1: a turn that was given folders writes in them and nowhere else."""
    if facts.kind == READ or facts.write_scope is None:
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
    """
    009-FR-003, 009-FR-004, C12: the one rule. What is there must be what the change was made from.

    That is what the agent saw or named; for a command that began with what was there, what was there then.
    What the change makes of the file plays no part.
    """
    if facts.kind == READ or facts.actual is None:
        return ALLOW
    if facts.is_changed:  # Also if it is what the agent saw: changed, and changed back, meanwhile.
        expected = UNKNOWN if facts.expected in (None, facts.actual) else facts.expected
        return Decision(False, StaleFileError(facts.path, expected, facts.actual))
    if facts.expected is None:
        return ALLOW
    if facts.kind == CREATE and not facts.is_explicit:
        return ALLOW  # A move's destination: the commit takes a free name only.
    if facts.actual == facts.expected or (facts.expected == ABSENT and facts.actual == DELETED):
        return ALLOW
    return Decision(False, StaleFileError(facts.path, facts.expected, facts.actual))


def not_a_file(facts: Facts) -> Decision:
    """Ruling 12: a folder, a device or a socket is neither written nor edited."""
    if facts.kind not in (WRITE, EDIT) or facts.actual != NOT_A_FILE:
        return ALLOW
    return Decision(
        False, NotAFileError(facts.path, "This is not a regular file, so it is not written. Choose a file.")
    )


def unknown_version(facts: Facts) -> Decision:
    """Ruling 22: what the agent saw is not known to be any version of the file, so it must look again."""
    if facts.expected != UNKNOWN or facts.kind in (READ, CREATE):
        return ALLOW
    return Decision(
        False,
        UnreadFileError(
            facts.path,
            "It is not known which version of this file the agent saw. Read all of it, then write again.",
        ),
    )


def explicit(facts: Facts) -> Decision:
    """`explicit = "require"`: a change of an existing file says which version it is made from."""
    if facts.options.explicit != "require" or facts.is_explicit or facts.kind in (READ, CREATE):
        return ALLOW
    if facts.actual == DELETED:
        return ALLOW
    return Decision(
        False,
        UnreadFileError(
            facts.path,
            "A change of an existing file must say which version it is made from. "
            "Read the file, and pass the hash that you get as expected_hash.",
        ),
    )


def explicit_hash(facts: Facts) -> Decision:
    """
    `explicit_hash = "seen"`, finding S10: the hash that a refusal shows is not a read.

    A version that the agent never saw does not count, even if it is the present one. If the agent saw an
    older version then the write is stale, and the refusal is the one that it would get without the hash.
    """
    if facts.options.explicit_hash != "seen" or facts.is_expected_seen or facts.kind in (READ, CREATE):
        return ALLOW
    if facts.baseline not in (None, UNKNOWN) and facts.actual not in (None, facts.baseline):
        return Decision(False, StaleFileError(facts.path, facts.baseline, facts.actual))
    return Decision(
        False,
        UnreadFileError(
            facts.path,
            "expected_hash names a version that was neither read nor written in this session, and a hash "
            "from a refusal does not count as read. Read the file, then write with the hash that you get.",
        ),
    )


def unread(facts: Facts) -> Decision:
    """`unread = "deny"`. A path where there is no file may be written: there is nothing to read."""
    is_left = facts.is_unseen and facts.kind == WRITE  # Ruling 30: by its own command, and not seen.
    is_denied = facts.options.unread == "deny" or facts.is_memory_lost or is_left
    if not is_denied or facts.kind in (READ, CREATE):
        return ALLOW
    if facts.expected is not None or facts.actual == DELETED:
        return ALLOW
    if is_left:
        return Decision(
            False,
            UnreadFileError(
                facts.path,
                "Your own command changed this file, and you have not read it since. Read it, then write "
                "again; an edit of a part needs no reading.",
            ),
        )
    return Decision(
        False, UnreadFileError(facts.path, "This turn has not read the file. Read it, then write again.")
    )


def partial(facts: Facts) -> Decision:
    """`partial = "deny"`: an agent that has read only part of a file does not replace all of it."""
    if facts.options.partial != "deny" or facts.kind != WRITE or facts.seen_whole:
        return ALLOW
    return Decision(
        False,
        PartialReadError(
            facts.path,
            "This turn has read only part of the file, and all of it would be replaced. "
            "Read the rest, or change it with edits.",
        ),
    )


def resubmitted(facts: Facts) -> Decision:
    """
    `resubmitted = "deny"`: bytes that were refused as stale are refused again after a re-read.

    Unless what was read is what they were made from: the file went back to it.
    """
    if facts.options.resubmitted != "deny" or facts.refused_from in (None, facts.expected):
        return ALLOW
    return Decision(
        False,
        ResubmittedError(
            facts.path,
            "These very bytes were refused before, because the file had changed. Work the changes in: "
            "sending the same bytes again would undo them.",
        ),
    )


RULES: tuple[Callable[[Facts], Decision], ...] = (
    own_records,
    lock_files,
    switches,
    write_scope,
    unknown_version,
    stale,
    not_a_file,
    explicit,
    explicit_hash,
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
