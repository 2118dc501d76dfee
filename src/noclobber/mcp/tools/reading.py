"""
The tools that read files, each through the connection's turn.

Texts are those of the replaced server. The structured content adds what that server does not have: the hash
of the whole file and an id of this read. What is shown and what is hashed come from one read.
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
import stat
from collections import deque
from typing import TYPE_CHECKING, Any

from noclobber.core.actions import READ
from noclobber.core.values import Coverage, ReadResult
from noclobber.disk.hashing import CHUNK_BYTES
from noclobber.errors import BadRequestError, RefusalError
from noclobber.guard.facts import Facts
from noclobber.guard.judge import admit_read
from noclobber.guard.tools.answers import sendable
from noclobber.mcp.tools.definition import EXPECTED, PATH, SEEN, TEXT, McpAnswer, text_answer, tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noclobber.core.values import ReadResult
    from noclobber.guard.turn import Turn
    from noclobber.mcp.connection import ClientConnection
    from noclobber.mcp.roots import ClientPath
    from noclobber.mcp.tools.definition import Report

_MEDIA_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".svg": "image/svg+xml",
    ".mp3": "audio/mpeg",
    ".wav": "audio/wav",
    ".ogg": "audio/ogg",
    ".flac": "audio/flac",
}
_AFTER_THE_LAST_LINE = 1 << 40
_LINES = {
    "tail": {"type": "number", "description": "Only this many lines from the end."},
    "head": {"type": "number", "description": "Only this many lines from the beginning."},
}

# -- read_text_file --------------------------------------------------------------------------------------


def read_text_file(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Read all of a file, or its first or last lines."""
    head, tail = given.get("head"), given.get("tail")
    if head and tail:
        raise BadRequestError(given["path"], "Send head or tail, not both.", parameter="tail")
    path = connection.roots.locate(given["path"])
    text, seen = _read_text(connection, path, head, tail)
    return text_answer(text, sha256=seen.sha256, observation_id=seen.observation_id)


READ_TEXT_FILE = tool(
    "read_text_file",
    "Read Text File",
    "Read a file as UTF-8 text: all of it, or the first (head) or last (tail) lines. The answer's sha256 "
    "identifies the version that you saw; pass it as expected_hash when you write the file.",
    run=read_text_file,
    takes={**PATH, **_LINES},
    required=["path"],
    answers=SEEN,
)
READ_FILE = tool(
    "read_file",
    "Read File (Deprecated)",
    "Read a text file, whole or in part. The older name of read_text_file; prefer that one.",
    run=read_text_file,
    takes={**PATH, **_LINES},
    required=["path"],
    answers=SEEN,
)

# -- read_media_file -------------------------------------------------------------------------------------


def read_media_file(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Read a binary file, as base64."""
    path = connection.roots.locate(given["path"])
    seen = _read(connection, path)
    data = base64.b64encode(seen.content).decode()
    media_type = _MEDIA_TYPES.get(os.path.splitext(path.real)[1].lower(), "application/octet-stream")
    family = media_type.partition("/")[0]
    if family in ("image", "audio"):
        block: dict[str, Any] = {"type": family, "data": data, "mimeType": media_type}
    else:
        resource = {"uri": _file_uri(path.real), "mimeType": media_type, "blob": data}
        block = {"type": "resource", "resource": resource}
    structured = {"content": [block], "sha256": seen.sha256, "observation_id": seen.observation_id}
    return McpAnswer([block], structured)


READ_MEDIA_FILE = tool(
    "read_media_file",
    "Read Media File",
    "Read an image, a sound or any other binary file as base64 with its media type.",
    run=read_media_file,
    takes=PATH,
    required=["path"],
    answers={
        "content": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "enum": ["image", "audio", "resource"]},
                    "data": TEXT,
                    "mimeType": TEXT,
                    "resource": {
                        "type": "object",
                        "properties": {"uri": TEXT, "mimeType": TEXT, "blob": TEXT},
                        "required": ["uri", "blob"],
                    },
                },
                "required": ["type"],
            },
        },
        **SEEN,
    },
)

# -- read_multiple_files ---------------------------------------------------------------------------------


def read_multiple_files(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Read several files; one that cannot be read does not keep the others from being read."""
    pieces, files = [], []
    names = given["paths"]
    for number, name in enumerate(names):
        report(number, len(names), name)
        try:
            text, seen = _read_text(connection, connection.roots.locate(name), None, None)
        except RefusalError as error:
            reason = sendable(str(error))
            pieces.append(f"{name}: Error - {reason}")
            files.append({"path": name, "error": reason})
            continue
        pieces.append(f"{name}:\n{text}\n")
        files.append({"path": name, "sha256": seen.sha256, "observation_id": seen.observation_id})
    return text_answer("\n---\n".join(pieces), files=files)


READ_MULTIPLE_FILES = tool(
    "read_multiple_files",
    "Read Multiple Files",
    "Read several text files in one call. One that cannot be read is reported in its place; the others "
    "are read all the same.",
    run=read_multiple_files,
    takes={"paths": {"type": "array", "items": TEXT, "minItems": 1, "description": "Which files."}},
    required=["paths"],
    answers={
        "files": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"path": TEXT, **SEEN, "error": TEXT},
                "required": ["path"],
            },
        }
    },
)

# -- changes_since_read ----------------------------------------------------------------------------------


def changes_since_read(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Show how a file changed since it was read."""
    path = connection.roots.locate(given["path"])
    turn = connection.turn(path)
    if (observation_id := given.get("observation_id")) is not None:
        seen = turn.context.observation(observation_id)
        baseline = turn.context.expected_for(turn.context.name_of(path.name), path.real)
        if seen.path != path.real or seen.sha256 != baseline:
            raise BadRequestError(
                path.real, "That version is no longer kept, so there is no diff. Read the file again."
            )
    diff = turn.changes_since_read(path.name)
    return text_answer(diff, sha256=turn.guard.digest(path.name))


CHANGES_SINCE_READ = tool(
    "changes_since_read",
    "Changes Since Read",
    "Show what changed in a file since you last read or wrote it, as a diff; empty if nothing did. "
    "This does not count as reading: to write, read the file again.",
    run=changes_since_read,
    takes={**PATH, "observation_id": EXPECTED["observation_id"]},
    required=["path"],
    answers={"sha256": {"type": "string", "description": "The current version: a hash, or DELETED."}},
)

# -- inside ----------------------------------------------------------------------------------------------


def _read_text(
    connection: ClientConnection, path: ClientPath, head: float | None, tail: float | None
) -> tuple[str, ReadResult]:
    if not head and not tail:
        seen = _read(connection, path)
        return seen.content.decode("utf-8", "replace"), seen
    if (head or 0) < 0 or (tail or 0) < 0:
        return "", _read(connection, path, start_line=_AFTER_THE_LAST_LINE)
    if _size(path) > LARGE_BYTES:
        return read_ends(connection.turn(path), path, math.ceil(head or 0), math.floor(tail or 0))
    if head:
        seen = _read(connection, path, start_line=1, end_line=math.ceil(head))
        return seen.content.decode("utf-8", "replace").removesuffix("\n"), seen
    return _read_tail(connection, path, math.floor(tail or 0))


def _read_tail(connection: ClientConnection, path: ClientPath, count: int) -> tuple[str, ReadResult]:
    """Read the last lines. What follows a last newline counts as a line, though it is empty."""
    while True:
        # All lines have to be counted to know where the last ones begin.
        whole = connection.turn(path).guard.read(path.name)
        lines = whole.content.count(b"\n") + 1
        count = count or lines  # To the replaced server, less than one line means all of them.
        seen = _read(connection, path, start_line=max(1, lines - count + 1))
        if seen.sha256 == whole.sha256:
            return seen.content.decode("utf-8", "replace").replace("\r\n", "\n"), seen


def _read(connection: ClientConnection, path: ClientPath, **part: int) -> ReadResult:
    if not part and (size := _size(path)) > LARGE_BYTES:
        raise BadRequestError(
            path.real,
            f"The file is too large to read whole: {size} bytes; the limit is {LARGE_BYTES}. "
            "Read its beginning (head) or its end (tail).",
        )
    return connection.turn(path).read_file(path.name, **part)


def _size(path: ClientPath) -> int:
    try:
        status = os.stat(path.real)
    except OSError:
        return 0  # The read that follows reports why.
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _file_uri(path: str) -> str:
    from urllib.parse import quote

    return "file://" + quote(os.fsencode(path), safe="/!$&'()*+,;=:@-._~")


LARGE_BYTES = 64 << 20  # The most that is kept in memory of one file.


def read_ends(turn: Turn, path: ClientPath, head: int, tail: int) -> tuple[str, ReadResult]:
    """
    Return the first `head` or the last `tail` lines as text, in one pass and little memory.

    The whole file is hashed on the way, because a later write is checked against the version that was shown.
    """
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
            raise BadRequestError(path, f"Those lines have more than {LARGE_BYTES} bytes. Ask for fewer.")
    if tail or (rest and len(lines) < head):
        lines.append(rest)
        if tail and len(lines) > tail:
            lines.popleft()
    return list(lines), digest.hexdigest(), count + (last not in (b"", b"\n"))
