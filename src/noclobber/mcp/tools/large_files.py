"""
The first or the last lines of a large file, in one pass and little memory.

The whole file is hashed on the way: what the model saw of it belongs to a version, and a later write is
checked against that.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque

from noclobber.core.values import Coverage, ReadResult
from noclobber.disk.hashing import CHUNK_BYTES
from noclobber.guard.policies import Facts, decide
from noclobber.mcp.reference.os_errors import bad_request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noclobber.guard.turn import Turn
    from noclobber.mcp.roots import Located

LARGE_BYTES = 64 << 20  # What is held in memory at most, for one file.


def read_ends(turn: Turn, located: Located, head: int, tail: int) -> tuple[str, ReadResult]:
    """Return the first `head` or the last `tail` lines as text, and take note of the version."""
    name = turn.context.name_of(located.name)

    def consume(descriptor: int, path: str) -> tuple[list[bytes], str, int]:
        decision = decide(Facts("read", path, name))
        if not decision.allowed:
            raise decision.error
        return _pass(descriptor, head, tail, path)

    path, (shown, sha256, total), _ = turn.guard.scan(located.name, consume)
    lines = len(shown) - (bool(tail) and shown[-1:] == [b""])
    first = 0 if head else total - lines
    seen = Coverage(((first, first + lines),) if lines else (), total)
    observation = turn.context.observe(name, path, sha256, None, seen)
    content = b"\n".join(shown)
    text = content.decode("utf-8", "replace")
    return (text if head else text.replace("\r\n", "\n")), ReadResult(
        path, content, sha256, observation.id, seen
    )


def _pass(descriptor: int, head: int, tail: int, path: str) -> tuple[list[bytes], str, int]:
    """Read once; return the lines that were asked for, the whole file's hash, how many lines there are."""
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
            raise bad_request(f"Those lines are longer than {LARGE_BYTES} bytes. Ask for fewer.", path)
    if tail or (rest and len(lines) < head):
        lines.append(rest)
        if tail and len(lines) > tail:
            lines.popleft()
    return list(lines), digest.hexdigest(), count + (last not in (b"", b"\n"))
