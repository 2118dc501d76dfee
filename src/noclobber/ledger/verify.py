"""
Check a whole ledger and name the first line that is not as it was written.

The file is read in pieces, so that a ledger of any size takes a few MiB of memory. Each line costs one hash,
two comparisons of bytes and one JSON parse; why a line is wrong is worked out only for the one that is.

Calling sequence: `audit()` an open descriptor, up to a size that was read under the mutex.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.errors import BadRequestError, BrokenChainError
from noclobber.ledger.line import (
    GENESIS,
    GENESIS_HEX,
    MAX_LINE_BYTES,
    SEAL_BYTES,
    is_entry,
    is_sealed,
    link_of,
)
from noclobber.ledger.reader import blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn


class Audited(NamedTuple):
    """What a check to the end found."""

    event_count: int
    head: bytes
    torn_bytes: int
    saved_head_line: int | None


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_PARSE = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode


def parse_head(head: str | None) -> bytes | None:
    """Return the hex digits of a head, which may begin with `sha256:`; refuse what is not a head."""
    if head is None:
        return None
    digits = head.strip().removeprefix("sha256:").lower()
    if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
        raise BadRequestError("", f"{head!r:.100} is not a head; a head is sha256: and 64 hex digits")
    return digits.encode()


class ChainCheck:
    """Follows a chain from its first line, wherever its lines are kept."""

    def __init__(self, path: str, saved_head: bytes | None) -> None:
        self._path, self._saved_head = path, saved_head
        self.event_count, self.head = 0, GENESIS_HEX
        self._saved_head_line = 0 if saved_head == GENESIS_HEX else None

    def add(self, line: bytes) -> None:
        """Check the next line, without its newline; `BrokenChainError` if it does not follow."""
        self.event_count += 1
        self.head = head = _next_head(self._path, line, self.event_count, self.head)
        if head == self._saved_head:
            self._saved_head_line = self.event_count

    def finish(self, torn_bytes: int = 0) -> Audited:
        """Return what was found; `BrokenChainError` if the saved head was not among the lines."""
        if self._saved_head is not None and self._saved_head_line is None:
            raise BrokenChainError(
                self._path,
                f"the saved head is not in this ledger, which holds {self.event_count} events: its tail was "
                "cut off, or a new one was begun, or the head belongs to another ledger. Look for a backup",
                line=self.event_count + 1,
                reason="saved head not found",
                event_count=self.event_count,
                head=f"sha256:{self.head.decode()}",
            )
        return Audited(self.event_count, self.head, torn_bytes, self._saved_head_line)


def audit(
    descriptor: int | None,
    size: int,
    path: str,
    saved_head: bytes | None,
    progress: Callable[[int, int, int], None] | None,
) -> Audited:
    """Check every line up to `size`; raise `BrokenChainError` at the first that is wrong."""
    check, rest = ChainCheck(path, saved_head), b""
    for done_bytes, lines in () if descriptor is None else blocks(descriptor, size=size):
        rest = lines.pop()
        for line in lines:
            check.add(line)
        if progress is not None:
            progress(done_bytes, size, check.event_count)
    torn_bytes = len(rest)
    if is_entry(rest):  # Whole but for its newline.
        check.add(rest)
        torn_bytes = 0
    return check.finish(torn_bytes)


def _next_head(path: str, line: bytes, number: int, head: bytes) -> bytes:
    """Return a line's hash if the line follows `head`. This is the whole check of a line."""
    digest = sha256(line[:-SEAL_BYTES]).hexdigest().encode()
    if not (
        line.startswith(b'{"seq":%d,"time":"' % number)
        and line.endswith(b',"prev_hash":"sha256:%b","hash":"sha256:%b"}' % (head, digest))
        and _parses(line, number)
    ):
        _break(path, line, number, head)
    return digest


def read_events(descriptor: int, path: str) -> Iterator[dict[str, Any]]:
    """Yield the events of the lines that are complete."""
    number, rest = 0, b""
    for _, lines in blocks(descriptor, size=os.fstat(descriptor).st_size):
        rest = lines.pop()
        for line in lines:
            number += 1
            yield _event(path, line, number)
    if is_entry(rest):
        yield _event(path, rest, number + 1)


def _parses(line: bytes, seq: int) -> bool:
    try:
        text = line.decode()
        event, end = _PARSE(text)
    except (ValueError, RecursionError):
        return False
    # The number again, as JSON readers see it: of two members with one name they take the last.
    return end == len(text) and event["seq"] == seq


def _event(path: str, line: bytes, number: int) -> dict[str, Any]:
    try:
        event = json.loads(line.decode())
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise _not_an_entry(path, line, number)
    return event


def _not_an_entry(path: str, line: bytes, number: int) -> BrokenChainError:
    reason = _why_no_entry(line) or "it is not a ledger entry"
    return BrokenChainError(path, f"line {number} is broken: {reason}", line=number, reason=reason)


def _break(path: str, line: bytes, number: int, head: bytes) -> NoReturn:
    reason = _why_no_entry(line) or _why_not_next(line, number, head)
    raise BrokenChainError(
        path,
        f"line {number} is broken: {reason}. The {number - 1} events before it are intact",
        line=number,
        reason=reason,
        event_count=number - 1,
        head=f"sha256:{head.decode()}",
    )


def _why_no_entry(line: bytes) -> str | None:
    if len(line) > MAX_LINE_BYTES:
        return f"it is longer than the {MAX_LINE_BYTES} bytes that an entry may have"
    if not line:
        return "it is empty"
    if b"\0" in line:
        return "it contains NUL bytes, as after a power cut"
    try:
        text = line.decode()
        event, end = _PARSE(text)
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 (byte {error.start + 1})"
    except RecursionError:
        return "it is nested too deeply"
    except ValueError:
        return "it is not JSON"
    if end != len(text):
        return f"something follows its JSON (character {end + 1})"
    if not isinstance(event, dict):
        return "it is JSON, but not an object"
    if link_of(line) is None:
        return "it is JSON, but not in the form in which this ledger writes an entry"
    return None


def _why_not_next(line: bytes, number: int, head: bytes) -> str:
    link = link_of(line)
    assert link is not None
    if not is_sealed(line):
        return "its content does not match its hash, so it was altered"
    if link.seq > number:
        return f"it is event {link.seq} where event {number} belongs, so lines before it were removed"
    if link.seq < number:
        return (
            f"it is event {link.seq} where event {number} belongs, so lines were repeated, moved or inserted"
        )
    previous = line[-SEAL_BYTES - 65 : -SEAL_BYTES - 1]
    if previous != head:
        before = f"line {number - 1}" if number > 1 else f"the beginning of a chain ({GENESIS})"
        return f"it does not follow {before}, so one of the two was replaced"
    return "it has members that this ledger does not write"
