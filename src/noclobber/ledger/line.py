"""
One line of the ledger: how an event is encoded, sealed and recognised.

A line is one JSON object in UTF-8, without spaces between its members, ended by a newline:

    {"seq":7,"time":"…Z", …the event's own members… ,"prev_hash":"sha256:<64 hex>","hash":"sha256:<64 hex>"}

The order is fixed, for a reason. `hash` is the last member, so that the hashed bytes are a plain prefix of
the line: everything before `,"hash":`. `prev_hash` comes right before it and `seq` first, so that the
chain can be followed by comparing bytes at known places. Parsing JSON is a check of its own; the chain
does not depend on it.

The encoding is not a canonical form of JSON, and none is needed: what is hashed is what is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from noclobber.core.json_text import spell
from noclobber.disk.hashing import sha256
from noclobber.errors import BadEventError

# A record holds hashes and paths. What is larger than this is content, and does not belong here. The limit
# also lets a reader find the last line without reading the file.
MAX_LINE_BYTES = 1 << 20
# Far more than any event has, and far less than a JSON parser can take.
MAX_DEPTH = 64

GENESIS_HEX = b"0" * 64
GENESIS = f"sha256:{GENESIS_HEX.decode()}"

OWN_MEMBERS = ("seq", "time", "prev_hash", "hash")
_OWN = frozenset(OWN_MEMBERS)
_PLAIN = frozenset((str, int, float, bool, type(None)))
ENVELOPE_BYTES = 256  # At most: what the four members above add to an event.
SEAL_BYTES = len(b',"hash":"sha256:') + 64 + len(b'"}')
_LINKS_BYTES = len(b',"prev_hash":"sha256:') + 64 + len(b'"') + SEAL_BYTES
_HEX = frozenset(b"0123456789abcdef")
_SEQ_DIGITS = 19


class Link(NamedTuple):
    """The end of a chain: the last event's number, and its hash as hex digits."""

    seq: int
    hex: bytes


START = Link(0, GENESIS_HEX)


def spell_hash(sha256_or_word: str) -> str:
    """Return a content hash in the ledger's form, `sha256:<hex>`; words like `DELETED` stay as they are."""
    return f"sha256:{sha256_or_word}" if len(sha256_or_word) == 64 else sha256_or_word


def encode(path: str, event: Mapping[str, Any]) -> bytes:
    """
    Return an event's own members as JSON, without braces; `path` is the ledger's, for the error.

    Everything that can be wrong with an event is found here, before anything is locked or written.
    """
    try:
        event = dict(event)
    except (TypeError, ValueError):
        raise BadEventError(path, f"an event is a mapping, not a {type(event).__name__}") from None
    if not _OWN.isdisjoint(event):
        name = next(name for name in OWN_MEMBERS if name in event)
        raise BadEventError(path, f"the ledger sets {name!r} itself; leave it out of the event")
    kind = event.get("action_type")
    if not isinstance(kind, str) or not kind:
        raise BadEventError(path, "an event needs an 'action_type', a non-empty string")
    if not _is_plain(event):
        _check(path, event, "", 1)
    try:
        body = spell(event)[1:-1].encode()  # It does not contain itself: `_check` has refused what is deep.
    except UnicodeEncodeError as error:
        raise BadEventError(
            path, f"the event holds text that is not Unicode, near {error.object[: error.start][-40:]!r}"
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise BadEventError(path, f"the event cannot be written as JSON: {error}") from None
    if len(body) > MAX_LINE_BYTES - ENVELOPE_BYTES:
        raise BadEventError(
            path,
            f"the event has {len(body)} bytes and the ledger takes {MAX_LINE_BYTES - ENVELOPE_BYTES}: "
            "record hashes and paths, not content",
            event_bytes=len(body),
        )
    return body


def _is_plain(event: dict[Any, Any]) -> bool:
    """True for plain values and mappings of plain values, which nearly all events are. False says nothing."""
    for key, member in event.items():
        if type(key) is not str:
            return False
        kind = type(member)
        if kind is dict:
            for inner, value in member.items():
                if type(inner) is not str or type(value) not in _PLAIN:
                    return False
        elif kind not in _PLAIN:
            return False
    return True


def _check(path: str, value: Any, where: str, depth: int) -> None:
    """
    Refuse what JSON cannot express.

    The encoder would silently turn keys into strings, and what is read back would differ from the event.
    """
    if depth > MAX_DEPTH:
        raise BadEventError(path, f"the event is nested deeper than {MAX_DEPTH} levels, or contains itself")
    if isinstance(value, dict):
        for key, member in value.items():
            if not isinstance(key, str):
                raise BadEventError(
                    path,
                    f"in {where[1:] or 'the event'} the key {key!r:.60} is not a string, as JSON requires",
                )
            if (
                type(member) is not str
            ):  # Most are strings, and a call for each would cost more than the check.
                _check(path, member, f"{where}.{key}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for member in value:
            if type(member) is not str:
                _check(path, member, f"{where}[]", depth + 1)
    elif not (value is None or isinstance(value, (str, int, float))):
        raise BadEventError(path, f"{where[1:]} is a {type(value).__name__}, which JSON cannot express")


def seal(body: bytes, after: Link, time: str) -> tuple[bytes, Link]:
    """Return the line that follows `after`, with its newline, and the new end of the chain."""
    seq = after.seq + 1
    hashed = b'{"seq":%d,"time":"%b",%b,"prev_hash":"sha256:%b"' % (seq, time.encode(), body, after.hex)
    digest = sha256(hashed).hexdigest().encode()
    return b'%b,"hash":"sha256:%b"}\n' % (hashed, digest), Link(seq, digest)


def link_of(line: bytes) -> Link | None:
    """
    Return the number and the hash that a line (without its newline) has; None if it is not an entry.

    They are not checked against its content: `is_sealed` and `verify` do that.
    """
    if not line.startswith(b'{"seq":') or not line.endswith(b'"}') or len(line) > MAX_LINE_BYTES:
        return None
    digits = line[7 : line.find(b",", 7, 7 + _SEQ_DIGITS + 1)]
    if not digits.isdigit() or line[-SEAL_BYTES:-66] != b',"hash":"sha256:':
        return None
    if line[-_LINKS_BYTES : -_LINKS_BYTES + 21] != b',"prev_hash":"sha256:':
        return None
    digest = line[-66:-2]
    return Link(int(digits), digest) if _HEX.issuperset(digest) else None


def is_sealed(line: bytes) -> bool:
    """True if the hash in a line is the hash of its bytes."""
    digest: bytes = sha256(line[:-SEAL_BYTES]).hexdigest().encode()
    return digest == line[-66:-2]


def is_entry(line: bytes) -> bool:
    """True for a line, without its newline, that is an entry as it was written."""
    return link_of(line) is not None and is_sealed(line)
