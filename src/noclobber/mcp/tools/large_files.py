"""
The first or the last lines of a large file, in one pass and little memory.

The whole file is hashed on the way, because a later write is checked against the version that was shown.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from typing import TYPE_CHECKING

from noclobber.core.actions import READ
from noclobber.core.values import Coverage, ReadResult
from noclobber.disk.hashing import CHUNK_BYTES
from noclobber.guard.facts import Facts
from noclobber.guard.judge import admit_read
from noclobber.mcp.reference.os_errors import bad_request

if TYPE_CHECKING:
    from noclobber.guard.turn import Turn
    from noclobber.mcp.roots import ClientPath

LARGE_BYTES = 64 << 20  # The most that is kept in memory of one file.


def read_ends(turn: Turn, path: ClientPath, head: int, tail: int) -> tuple[str, ReadResult]:
    """Return the first `head` or the last `tail` lines as text, and remember the version in the turn."""
    name = turn.context.name_of(path.name)

    def consume(descriptor: int, real: str) -> tuple[list[bytes], str, int]:
        admit_read(Facts(READ, real, name, turn.root, turn.options))
        return _scan(descriptor, head, tail, real)

    real, (shown, sha256, total), _ = turn.guard.scan(path.name, consume)
    lines = len(shown) - (bool(tail) and shown[-1:] == [b""])
    first = 0 if head else total - lines
    seen = Coverage(((first, first + lines),) if lines else (), total)
    observation = turn.context.observe(name, real, sha256, None, seen)
    content = b"\n".join(shown)
    text = content.decode("utf-8", "replace")
    return (text if head else text.replace("\r\n", "\n")), ReadResult(
        real, content, sha256, observation.id, seen
    )


def _scan(descriptor: int, head: int, tail: int, path: str) -> tuple[list[bytes], str, int]:
    """Read once; return the requested lines, the whole file's hash, and how many lines it has."""
    digest = hashlib.sha256()
    lines: deque[bytes] = deque()
    rest, last, held, count = b"", b"", 0, 0
    while chunk := os.read(descriptor, CHUNK_BYTES):
        digest.update(chunk)
        count += chunk.count(b"\n")
        last = chunk[-1:]
        if head and len(lines) >= head:
            continue
        *ended, rest = (rest + chunk).split(b"\n")
        for line in ended[: head - len(lines)] if head else ended:
            lines.append(line)
            held += len(line)
        while tail and len(lines) > tail:
            held -= len(lines.popleft())
        if held + len(rest) > LARGE_BYTES:
            raise bad_request(f"Those lines are longer than {LARGE_BYTES} bytes. Request fewer lines.", path)
    if tail or (rest and len(lines) < head):
        lines.append(rest)
        if tail and len(lines) > tail:
            lines.popleft()
    return list(lines), digest.hexdigest(), count + (last not in (b"", b"\n"))
