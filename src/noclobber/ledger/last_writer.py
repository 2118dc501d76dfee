"""
Who wrote the version that a file holds now, as far as the end of the ledger says (ruling 21).

Bounded: the last lines only, because a host waits for the answer and because a version that is in place
was as a rule written lately. Loaded by hooks, so nothing slow is imported here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from noclobber.core.clock import iso8601
from noclobber.core.json_text import parse
from noclobber.disk import hashing
from noclobber.errors import RefusalError
from noclobber.ledger.chosen import is_on_server, recent_lines
from noclobber.ledger.root import relative

KINDS = ("MUTATION", "MUTATION_RACE")
WATCHED = "watched"  # The level of such changes (`shell/watched`).
REFUSALS = ("MUTATION_CONFLICT", "MUTATION_REFUSED")
TAIL_BYTES = 256 << 10  # How far back the ledger is searched.
_LINE_BYTES = 512  # A landed write is about so long.


class LastWriter(NamedTuple):
    """Who wrote a version, by the identity on record, and when."""

    identity: dict[str, Any]
    time: str
    level: str = ""
    """How it was written. `watched`: it changed while that agent's command ran, and nobody knows more."""


def last_writer(root: str, path: str, sha256: str) -> LastWriter | None:
    """Return who wrote the version with this hash to a file; None if the end of the ledger does not say."""
    if not hashing.is_hash(sha256):
        return None
    try:
        lines, _ = _last_lines(root)
    except RefusalError:  # A server that is away. What was asked for can do without this.
        return None
    named = relative(root, path)
    for line in lines:
        if sha256.encode() not in line:
            continue
        try:
            event = parse(line)
            payload, identity = event["payload"], event.get("identity", {})
            # A write that overwrote somebody's version is a race, and landed all the same.
            left = payload.get("after_hash", payload.get("expected_hash"))
            is_it = payload.get("target_file") == named and left == f"sha256:{sha256}"
            if event["action_type"] in KINDS and is_it and isinstance(identity, dict):
                return LastWriter(identity, str(event["time"])[:19] + "Z", str(payload.get("level")))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # Half a line, or not one of ours.
    return None


def is_written_by_others(root: str, path: str, owner: str, since_s: float, seen: str = "") -> bool | None:
    """
    Return whether another agent's write to a file is on record since a moment; None if it cannot be told.

    `owner`: the own host, session and agent. `seen`: what was there at that moment, if the change since
    then is the own one. Then two kinds are not counted: the write that left that and was recorded just after
    it, and what only changed while another agent's command ran, which may be the own change.
    """
    try:
        lines, is_all = _last_lines(root)
    except RefusalError:
        return None
    named, since = relative(root, path), iso8601(since_s)
    for line in lines:
        try:
            event = parse(line)
            if event["time"] < since:
                return False
            payload, who = event["payload"], event.get("identity", {})
            writer = "/".join(who.get(member) or "" for member in ("host", "session_id", "agent_id"))
            is_about = named in (payload.get("target_file"), payload.get("destination"))
            left = payload.get("after_hash", payload.get("expected_hash"))
            is_before = seen and (payload.get("level") == WATCHED or left == f"sha256:{seen}")
            if is_about and event["action_type"] not in REFUSALS and writer != owner and not is_before:
                return True
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # Half a line, or not one of ours.
    return False if is_all else None


def _last_lines(root: str) -> tuple[list[bytes], bool]:
    """Return the last lines, the last one first, and whether these are all."""
    found: list[bytes] = []
    left_bytes = TAIL_BYTES
    for line in recent_lines(root, TAIL_BYTES // _LINE_BYTES):
        if line is not None:
            left_bytes -= len(line) + 1
            if left_bytes < 0:
                return found, False
            found.append(line)
    return found, not is_on_server() or len(found) < TAIL_BYTES // _LINE_BYTES


def plain_name(value: object) -> str:
    """Return a name in plain letters: another agent chose it, and a model or a terminal will show it."""
    text = value if isinstance(value, str) else ""
    return "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "-_.:@/") else "?" for letter in text
    )[:40]


def spelled(writer: LastWriter) -> str:
    """Return who it was, in words: the agent, its host and the beginning of its session."""
    identity = writer.identity
    host, session = plain_name(identity.get("host")), plain_name(identity.get("session_id"))
    where = " ".join(part for part in (host, f"session {session[:8]}" if session else "") if part)
    agent = plain_name(identity.get("agent_id")) or "somebody"
    return f"the agent {agent}{f' ({where})' if where else ''}"
