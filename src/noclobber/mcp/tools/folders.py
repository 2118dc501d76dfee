"""
The tools for folders: create them, and move files and folders.

A regular file moves through the engine, which checks what is moved. A folder, a FIFO or a socket has no hash;
it moves by one rename that never replaces anything, and the move is recorded. Between two roots a file is
created there and deleted here, each step guarded: if the second is refused, the first is undone.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from noclobber.core.actions import CREATE, Action
from noclobber.disk import paths, renames
from noclobber.disk.hashing import of_bytes
from noclobber.disk.reading import read_all
from noclobber.disk.system_errors import commit_failed, lookup_failed
from noclobber.errors import (
    ABSENT,
    BadRequestError,
    FileExistsAlreadyError,
    MissingFileError,
    NoclobberError,
)
from noclobber.guard import engine, requests
from noclobber.mcp.connection import EXPECTATIONS
from noclobber.mcp.tools.definition import (
    EXPECTED,
    LOCK_ID,
    PATH,
    TEXT,
    WRITTEN,
    McpAnswer,
    text_answer,
    tool,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noclobber.core.values import WriteResult
    from noclobber.mcp.connection import ClientConnection
    from noclobber.mcp.roots import ClientPath
    from noclobber.mcp.tools.definition import Report

# -- create_directory ------------------------------------------------------------------------------------


def create_directory(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Create a folder, and the missing folders above it."""
    path = connection.roots.locate(given["path"])
    if not os.path.isdir(path.real):
        if os.path.lexists(path.real):
            raise FileExistsAlreadyError(path.real, "There is a file of this name. Choose another one.")
        _check_place(connection, "create_directory", path, given)
        try:
            # Pinning a file in it creates the folders one by one, each below an open descriptor.
            root = connection.roots.root_of(path.real)
            paths.pin(root, f"{path.real}/new", make_folders=True).close()
        except OSError as error:
            raise lookup_failed(error, path.real) from None
    return text_answer(f"Successfully created directory {given['path']}")


CREATE_DIRECTORY = tool(
    "create_directory",
    "Create Directory",
    "Create a folder, and the folders above it where they are missing. Does nothing if it exists already.",
    run=create_directory,
    takes={**PATH, **LOCK_ID},
    required=["path"],
    hints="add",
)

# -- move_file -------------------------------------------------------------------------------------------


def move_file(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Move a file or a folder to a free name."""
    source = connection.roots.locate(given["source"])
    destination = connection.roots.locate(given["destination"])
    if os.path.lexists(destination.real):
        raise _destination_exists(destination)
    try:
        mode = os.stat(source.real, follow_symlinks=False).st_mode
    except OSError as error:
        mode = 0
        # A file that was expected to be there is stale, not missing: the engine says so.
        is_expected = any(given.get(name) for name in EXPECTATIONS)
        if not is_expected and connection.baseline(source) is None:
            raise lookup_failed(error, source.real) from None
    if mode and not os.path.isdir(os.path.dirname(destination.real)):
        raise MissingFileError(destination.real, "There is no such folder. Create it with create_directory.")
    text = f"Successfully moved {given['source']} to {given['destination']}"
    if mode and not stat.S_ISREG(mode):
        _rename(connection, source, destination, given)
        return text_answer(text)
    if connection.roots.root_of(source.real) == connection.roots.root_of(destination.real):
        done = _move(connection, source, destination, given)
    else:
        done = _move_between_roots(connection, source, destination, given)
    return text_answer(text, **written(done))


MOVE_FILE = tool(
    "move_file",
    "Move File",
    "Move or rename a file or a folder. The destination must not exist.",
    run=move_file,
    takes={"source": TEXT, "destination": TEXT, **EXPECTED, **LOCK_ID},
    required=["source", "destination"],
    answers=WRITTEN,
    hints="change",
)

# -- inside ----------------------------------------------------------------------------------------------


def _move(
    connection: ClientConnection, source: ClientPath, destination: ClientPath, given: Mapping[str, Any]
) -> WriteResult:
    with connection.writing(source, given) as write:
        return write.turn.move_file(source.name, destination.name, **write.expected)


def _move_between_roots(
    connection: ClientConnection, source: ClientPath, destination: ClientPath, given: Mapping[str, Any]
) -> WriteResult:
    with connection.writing(source, given) as here:
        # Before anything is copied: the rules are asked with what the caller said, and nothing else.
        leaving = requests.delete(source.name, **here.expected)
        engine.check(here.turn, here.turn.tool_call("move_file"), [leaving])
        _, (content, mode), _ = here.turn.guard.scan(source.name, _content_and_mode)
        sha256 = of_bytes(content)
        with connection.writing(destination, {"lock_id": given.get("lock_id")}) as there:
            arriving = requests.write(destination.name, content, ABSENT, None)._replace(mode=mode)
            engine.change(there.turn, there.turn.tool_call("write_file"), [arriving])
            try:
                # The very bytes that were copied; and they must be what the client expects, too.
                expected = here.turn.context.last_for(source.name, source.real) or sha256
                if here.expected:
                    deleted = here.turn.delete_file(source.name, **here.expected)
                else:
                    with connection.second_step(here.turn) as step:
                        deleted = step.delete_file(source.name, expected_hash=expected)
                    here.turn.context.removed(source.name, source.real)
                if deleted.previous_sha256 != sha256:  # pragma: no cover - expected is one of the two
                    raise AssertionError(f"{source.real}: deleted another version than was copied")
            except (OSError, NoclobberError):
                there.turn.delete_file(destination.name, expected_hash=sha256)
                raise
            return deleted._replace(path=destination.real, sha256=sha256)


def _content_and_mode(descriptor: int, _: str) -> tuple[bytes, int]:
    """
    Return a file's bytes, and the permissions that its copy gets.

    Without the bits that let a program run as the file's owner or group: the copy has another one.
    """
    return read_all(descriptor), os.fstat(descriptor).st_mode & 0o777


def _check_place(connection: ClientConnection, tool: str, path: ClientPath, given: Mapping[str, Any]) -> None:
    """Ask the rules and the locks about a place. A folder has no version that could be expected."""
    with connection.writing(path, {"lock_id": given.get("lock_id")}) as write:
        engine.check(write.turn, write.turn.tool_call(tool), [Action(CREATE, path.name)])


def _check_locks_in(
    connection: ClientConnection, moved: ClientPath, given: Mapping[str, Any], folder: str
) -> None:
    """Ask for the locks of a folder that is moved, and of those in it (finding S7)."""
    if not os.path.isdir(folder):
        return
    with connection.writing(moved, {"lock_id": given.get("lock_id")}) as write:
        try:
            write.turn.fence.check_tree(folder)
        except NoclobberError as error:
            write.turn.recorder.refusal(write.turn.tool_call("move_file", dict(given)), error)
            raise


def _destination_exists(destination: ClientPath) -> FileExistsAlreadyError:
    return FileExistsAlreadyError(destination.real, "The destination exists already. Choose a free name.")


def _rename(
    connection: ClientConnection, source: ClientPath, destination: ClientPath, given: Mapping[str, Any]
) -> None:
    if f"{destination.real}/".startswith(f"{source.real}/"):
        raise BadRequestError(source.real, "A folder cannot be moved into itself.")
    if source.real in connection.roots.folders:
        raise BadRequestError(source.real, "A root cannot be moved: this server's own records are in it.")
    root = connection.roots.root_of(source.real)
    recorder = connection.workspaces.at(root).recorder
    for moved in (source, destination):
        _check_place(connection, "move_file", moved, given)
    _check_locks_in(connection, source, given, source.real)
    here = paths.pin(root, source.real)
    try:
        there = paths.pin(connection.roots.root_of(destination.real), destination.real)
        try:
            renames.move_without_replacing(here.folder_fd, here.name, there.folder_fd, there.name)
        except FileExistsError:
            raise _destination_exists(destination) from None
        except OSError as error:
            raise commit_failed(error, source.real) from None
        else:
            try:
                # Somebody may have locked a folder in it since we looked.
                connection.folder_moved(source.real, destination.real)
                _check_locks_in(connection, source, given, destination.real)
            except NoclobberError:
                renames.move_without_replacing(there.folder_fd, there.name, here.folder_fd, here.name)
                connection.folder_moved(destination.real, source.real)
                raise
        finally:
            there.close()
    finally:
        here.close()
    call = connection.turn(source).tool_call("move_file", dict(given))
    recorder.landed(call, source.real, "UNKNOWN", "UNKNOWN", "create", destination=destination.real)
