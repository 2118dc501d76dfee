"""
The tools that read and change files, each through the connection's turn: engine, guard, ledger.

Texts are those of the replaced server; beside them, in the structured content, stands what it has not:
hashes, observation ids, how strongly a write was protected. What is shown and what is hashed come from
one read.
"""

from __future__ import annotations

import base64
import errno
import math
import os
import stat

from noclobber.core.values import ReadResult
from noclobber.errors import (
    AccessDeniedError,
    BadRequestError,
    MissingFileError,
    NotAFileError,
    RefusalError,
)
from noclobber.mcp.reference import patch
from noclobber.mcp.reference.editing import EditPlan
from noclobber.mcp.reference.os_errors import PlainError, bad_request, failed
from noclobber.mcp.tools.large_files import LARGE_BYTES, read_ends

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from noclobber.core.values import WriteResult
    from noclobber.mcp.connection import Memory
    from noclobber.mcp.dispatch import Answer, Report
    from noclobber.mcp.roots import Located

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
_BEYOND = 1 << 40  # A line that no file has.

# -- reading ---------------------------------------------------------------------------------------


def read_text_file(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """All of a file, or its first or last lines."""
    head, tail = given.get("head"), given.get("tail")
    if head and tail:
        raise bad_request("Cannot specify both head and tail parameters simultaneously", given["path"])
    located = memory.roots.locate(given["path"])
    text, seen = _read_text(memory, located, head, tail)
    return text_answer(text, sha256=seen.sha256, observation_id=seen.observation_id)


def read_media_file(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """A binary file, as base64."""
    located = memory.roots.locate(given["path"])
    seen = _read(memory, located)
    data = base64.b64encode(seen.content).decode()
    kind = _MEDIA_TYPES.get(os.path.splitext(located.real)[1].lower(), "application/octet-stream")
    family = kind.partition("/")[0]
    if family in ("image", "audio"):
        block: dict[str, Any] = {"type": family, "data": data, "mimeType": kind}
    else:
        resource = {"uri": _file_uri(located.real), "mimeType": kind, "blob": data}
        block = {"type": "resource", "resource": resource}
    seen_as = {"sha256": seen.sha256, "observation_id": seen.observation_id}
    return [block], {"content": [block], **seen_as}


def read_multiple_files(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """Several files; one that cannot be read does not keep the others from being read."""
    pieces, files = [], []
    paths = given["paths"]
    for number, path in enumerate(paths):
        report(number, len(paths), path)
        try:
            text, seen = _read_text(memory, memory.roots.locate(path), None, None)
        except (PlainError, RefusalError) as error:
            said = error.text if isinstance(error, PlainError) else str(error)
            pieces.append(f"{path}: Error - {said}")
            files.append({"path": path, "error": said})
            continue
        pieces.append(f"{path}:\n{text}\n")
        files.append({"path": path, "sha256": seen.sha256, "observation_id": seen.observation_id})
    return text_answer("\n---\n".join(pieces), files=files)


def _read_text(
    memory: Memory, located: Located, head: float | None, tail: float | None
) -> tuple[str, ReadResult]:
    if not head and not tail:
        seen = _read(memory, located)
        return seen.content.decode("utf-8", "replace"), seen
    if (head or 0) < 0 or (tail or 0) < 0:
        return "", _read(memory, located, "stat" if tail else "open", start_line=_BEYOND)
    if _size(located) > LARGE_BYTES:
        turn, first, last = memory.turn(located), math.ceil(head or 0), math.floor(tail or 0)
        ends: tuple[str, ReadResult] = translated(located, lambda: read_ends(turn, located, first, last))
        return ends
    if head:
        seen = _read(memory, located, start_line=1, end_line=math.ceil(head))
        return seen.content.decode("utf-8", "replace").removesuffix("\n"), seen
    return _read_tail(memory, located, math.floor(tail or 0))


def _read_tail(memory: Memory, located: Located, count: int) -> tuple[str, ReadResult]:
    """The last lines; what follows a last newline counts as one, though nothing stands there."""
    while True:
        # Where the last lines begin can be told only by who has counted them all.
        whole = translated(located, lambda: memory.turn(located).guard.read(located.name), "stat")
        lines = whole.content.count(b"\n") + 1
        count = count or lines  # Less than one line is all of them, to the replaced server.
        seen = _read(memory, located, start_line=max(1, lines - count + 1))
        if seen.sha256 == whole.sha256:
            text = seen.content.decode("utf-8", "replace").replace("\r\n", "\n")
            return text, seen


def _read(memory: Memory, located: Located, call: str = "open", **part: int) -> ReadResult:
    if not part and (size := _size(located)) > LARGE_BYTES:
        raise bad_request(
            f"File is too large to be read whole: {size} bytes, and the most is {LARGE_BYTES}. "
            "Read its beginning (head) or its end (tail).",
            located.real,
        )
    turn = memory.turn(located)
    seen: ReadResult = translated(located, lambda: turn.read_file(located.name, **part), call)
    return seen


def _size(located: Located) -> int:
    try:
        status = os.stat(located.real)
    except OSError:
        return 0  # Whoever opens it will say why.
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def translated(located: Located, work: Callable[[], Any], call: str = "open") -> Any:
    """Do work, and give the refusals that the replaced server has too in its words."""
    try:
        return work()
    except MissingFileError:
        raise failed(errno.ENOENT, call, located.real) from None
    except AccessDeniedError:
        raise failed(errno.EACCES, call, located.real) from None
    except NotAFileError:
        if os.path.isdir(located.real):
            asked = ("read",) if call in ("open", "stat") else (call, located.real)
            raise failed(errno.EISDIR, *asked) from None
        raise


# -- writing ---------------------------------------------------------------------------------------


def write_file(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """Create a file or replace all of it."""
    located = memory.roots.locate(given["path"])
    _require_folder(located)
    with memory.writing("write_file", located, given) as writing:
        # Bytes, so that they are written as they are: the model was shown a byte-order mark if there is one.
        data = _encoded(given["content"])
        done = translated(
            located, lambda: writing.turn.write_file(located.name, data, **writing.expected), "rename"
        )
    return text_answer(f"Successfully wrote to {given['path']}", **landed(done))


def edit_file(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """Replace pieces of a file, or show what that would do."""
    located = memory.roots.locate(given["path"])
    plan = EditPlan([(edit["oldText"], edit["newText"]) for edit in given["edits"]])
    if given["dryRun"]:
        now = translated(located, lambda: memory.turn(located).guard.read(located.name))
        plan.apply(now.content, located.real)
        return text_answer(patch.fenced(plan.before, plan.after, located.real))
    with memory.writing("edit_file", located, given) as writing:
        params = {"path": located.name, "plan": plan, **writing.expected}
        done = translated(located, lambda: writing.turn.call("edit_file", params))
    return text_answer(patch.fenced(plan.before, plan.after, located.real), **landed(done))


def write_files(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """Create or replace several files: all or none."""
    files = [(memory.roots.locate(file["path"]), file) for file in given["files"]]
    for located, _ in files:
        _require_folder(located)
    homes = {memory.roots.home_of(located.real) for located, _ in files}
    if len(homes) > 1 or len({located.real for located, _ in files}) < len(files):
        raise BadRequestError(
            "", "All files of one call must be different files below one root: nothing was written."
        )
    with memory.writing_many(files, given.get("lock_id")) as (turn, expected):
        contents = {located.name: _encoded(file["content"]) for located, file in files}
        done: dict[str, WriteResult] = turn.write_files(contents, expected_hashes=expected)
    written = [{"path": file["path"], **landed(done[located.name])} for located, file in files]
    return text_answer("\n".join(f"Successfully wrote to {one['path']}" for one in written), files=written)


def delete_file(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """Delete a file."""
    located = memory.roots.locate(given["path"])
    with memory.writing("delete_file", located, given) as writing:
        done = translated(
            located, lambda: writing.turn.delete_file(located.name, **writing.expected), "unlink"
        )
    return text_answer(f"Successfully deleted {given['path']}", **landed(done))


def changes_since_read(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """What became of a file since it was seen."""
    located = memory.roots.locate(given["path"])
    turn = memory.turn(located)
    if (observation_id := given.get("observation_id")) is not None:
        seen = turn.context.observation(observation_id)
        baseline = turn.context.expected_for(turn.context.name_of(located.name), located.real)
        if seen.path != located.real or seen.sha256 != baseline:
            raise BadRequestError(
                located.real, "That version is no longer kept, so there is no diff. Read the file again."
            )
    diff = turn.changes_since_read(located.name)
    return text_answer(diff, sha256=turn.guard.digest(located.name))


def _require_folder(located: Located) -> None:
    if not os.path.isdir(os.path.dirname(located.real)):
        raise failed(errno.ENOENT, "open", located.real)


def landed(done: WriteResult) -> dict[str, str]:
    """What a write's answer says beside its text."""
    return {"sha256": done.sha256, "previous_sha256": done.previous_sha256, "level": done.level}


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # Lone surrogates, which JSON can spell and no file can hold.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def text_answer(text: str, **beside: Any) -> Answer:
    """A text, and the same in the structured content with what else there is to say."""
    return [{"type": "text", "text": text}], {"content": text, **beside}


def _file_uri(path: str) -> str:
    from urllib.parse import quote

    return "file://" + quote(path, safe="/!$&'()*+,;=:@-._~")
