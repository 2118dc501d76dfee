"""
Folders: create them, and move whatever is no single guarded file.

A regular file moves through the engine, which checks what is moved. A folder, a FIFO or a socket has no hash;
it moves by one rename that never replaces anything, and the move is on record. Between two roots a file is
created there and deleted here, each step guarded: if the second is refused, the first is taken back.
"""

from __future__ import annotations

import errno
import os
import stat

from noclobber.core.values import ToolCall
from noclobber.disk import paths, renames
from noclobber.errors import ABSENT, NoclobberError, NotAFileError
from noclobber.mcp.reference.os_errors import bad_request, exists, failed
from noclobber.mcp.tools.writing import landed, text_answer, translated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from noclobber.core.values import WriteResult
    from noclobber.mcp.connection import Memory
    from noclobber.mcp.dispatch import Answer, Report
    from noclobber.mcp.roots import Located


def create_directory(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """Create a folder and what is missing above it."""
    located = memory.roots.locate(given["path"])
    if not os.path.isdir(located.real):
        if os.path.lexists(located.real):
            raise failed(errno.EEXIST, "mkdir", located.real)
        with memory.writing("create_directory", located, {**given, "expected_hash": ABSENT}) as writing:
            writing.turn.fence.check(located.real)
        try:
            # Pinning a file in it makes the folders one by one, below an open descriptor each.
            paths.pin(memory.roots.home_of(located.real), f"{located.real}/new", make_folders=True).close()
        except NotAFileError:
            raise failed(errno.ENOTDIR, "mkdir", located.real) from None
        except OSError as error:
            raise failed(error.errno, "mkdir", located.real) from None
    return text_answer(f"Successfully created directory {given['path']}")


def move_file(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """Move a file or a folder to a free name."""
    source, destination = memory.roots.locate(given["source"]), memory.roots.locate(given["destination"])
    if os.path.lexists(destination.real):
        raise exists(destination.real)
    both = (source.real, destination.real)
    try:
        mode = os.stat(source.real, follow_symlinks=False).st_mode
    except OSError as error:
        mode = 0
        if memory.turn(source).context.expected_for(source.name, source.real) is None and not any(
            given.get(key) for key in ("expected_hash", "observation_id")
        ):
            raise failed(error.errno, "rename", *both) from None
    if mode and not os.path.isdir(os.path.dirname(destination.real)):
        raise failed(errno.ENOENT, "rename", *both)
    said = f"Successfully moved {given['source']} to {given['destination']}"
    if mode and not stat.S_ISREG(mode):
        _rename(memory, source, destination, given)
        return text_answer(said)
    done = _move(memory, source, destination, given)
    return text_answer(said, **landed(done))


def _move(memory: Memory, source: Located, destination: Located, given: Mapping[str, Any]) -> WriteResult:
    is_one_root = memory.roots.home_of(source.real) == memory.roots.home_of(destination.real)
    with memory.writing("move_file", source, given) as writing:
        if is_one_root:
            turn, expected = writing.turn, writing.expected
            moved: WriteResult = translated(
                source, lambda: turn.move_file(source.name, destination.name, **expected), "rename"
            )
            return moved
        now = translated(source, lambda: writing.turn.guard.read(source.name))
        with memory.writing("move_file", destination, {**given, "expected_hash": ABSENT}) as there:
            there.turn.write_file(destination.name, now.content, expected_hash=ABSENT)
            try:
                os.chmod(destination.real, stat.S_IMODE(os.stat(source.real).st_mode))
                # The very bytes that were copied; and they must be what the client expects, too.
                expected = writing.expected or {
                    "expected_hash": _baseline(writing.turn, source) or now.sha256
                }
                deleted = writing.turn.delete_file(source.name, **expected)
                if deleted.previous_sha256 != now.sha256:  # pragma: no cover - expected is one of the two
                    raise AssertionError(f"{source.real}: deleted another version than was copied")
            except (OSError, NoclobberError):
                there.turn.delete_file(destination.name, expected_hash=now.sha256)
                raise
            return deleted._replace(path=destination.real, sha256=now.sha256)


def _baseline(turn: Any, located: Located) -> str | None:
    known: str | None = turn.context.expected_for(located.name, located.real)
    return known


def _rename(memory: Memory, source: Located, destination: Located, given: Mapping[str, Any]) -> None:
    if f"{destination.real}/".startswith(f"{source.real}/"):
        raise failed(errno.EINVAL, "rename", source.real, destination.real)
    if source.real in memory.roots.folders:
        raise bad_request("A root cannot be moved: this server's own records are in it.", source.real)
    home = memory.roots.home_of(source.real)
    recorder = memory.house.workspace(home).recorder
    for moved in (source, destination):
        with memory.writing("move_file", moved, {**given, "expected_hash": ABSENT}) as writing:
            writing.turn.fence.check(moved.real)
    here = paths.pin(home, source.real)
    try:
        there = paths.pin(memory.roots.home_of(destination.real), destination.real)
        try:
            if broken := memory.house.workspace(home).ledger_trouble():
                raise broken
            renames.move_without_replacing(here.folder_fd, here.name, there.folder_fd, there.name)
        except FileExistsError:
            raise exists(destination.real) from None
        except OSError as error:
            raise failed(error.errno, "rename", source.real, destination.real) from None
        finally:
            there.close()
    finally:
        here.close()
    call = ToolCall(
        "move_file", dict(given), agent_id=memory.agent_id, session_id=memory.session_id, host="mcp"
    )
    recorder.landed(call, source.real, "UNKNOWN", "UNKNOWN", "create", destination=destination.real)
