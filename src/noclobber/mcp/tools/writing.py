"""
The tools that change files, each through the connection's turn: engine, commit, ledger.

Texts are those of the replaced server. The structured content adds what that server does not have: the hashes
before and after, and how strongly the write was protected.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from noclobber.errors import BadRequestError, MissingFileError
from noclobber.guard.tools.answers import sendable
from noclobber.guard.tools.answers import written as written_text
from noclobber.mcp.edit_plan import EditPlan
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
from noclobber.text.diff import edit_script, hunks, lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noclobber.mcp.connection import ClientConnection
    from noclobber.mcp.roots import ClientPath
    from noclobber.mcp.tools.definition import Report

# -- write_file ------------------------------------------------------------------------------------------


def write_file(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Create a file or replace all of it."""
    path = connection.roots.locate(given["path"])
    _require_folder(path)
    with connection.writing(path, given) as write:
        # Bytes, which are written as they are: the model was shown a byte-order mark if there is one.
        done = write.turn.write_file(path.name, _encoded(given["content"]), **write.expected)
    return text_answer(written_text(f"Successfully wrote to {given['path']}", done), **written(done))


WRITE_FILE = tool(
    "write_file",
    "Write File",
    "Create a file or replace all of it, in one atomic step. Refused with STALE_FILE if somebody else "
    "changed the file after you read it: read it again, merge their changes into yours, and write again.",
    run=write_file,
    takes={**PATH, "content": TEXT, **EXPECTED, **LOCK_ID},
    required=["path", "content"],
    answers=WRITTEN,
    hints="write",
)

# -- edit_file -------------------------------------------------------------------------------------------


def edit_file(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Replace pieces of a file, or show what that would do."""
    path = connection.roots.locate(given["path"])
    plan = EditPlan([(edit["oldText"], edit["newText"]) for edit in given["edits"]])
    if given["dryRun"]:
        now = connection.turn(path).guard.read(path.name)
        plan.apply(now.content, path.real)
        return text_answer(fenced(plan.before, plan.after, path.real))
    with connection.writing(path, given) as write:
        done = write.turn.change_file(path.name, plan, **write.expected)
    shown = fenced(plan.before, plan.after, path.real)
    return text_answer(written_text(shown, done), **written(done))


EDIT_FILE = tool(
    "edit_file",
    "Edit File",
    "Replace pieces of a text file: each oldText by its newText, one after the other, all or none. Lines "
    "that differ only in their indentation match, too. Answers with a diff; dryRun changes nothing. "
    "Refused with STALE_FILE if somebody else changed the file after you read it.",
    run=edit_file,
    takes={
        **PATH,
        "edits": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "oldText": {"type": "string", "description": "The text to replace."},
                    "newText": {"type": "string", "description": "The text to put in its place."},
                },
                "required": ["oldText", "newText"],
            },
        },
        "dryRun": {"type": "boolean", "default": False, "description": "Only show the diff."},
        **EXPECTED,
        **LOCK_ID,
    },
    required=["path", "edits"],
    answers=WRITTEN,
    hints="change",
)

# -- write_files -----------------------------------------------------------------------------------------


def write_files(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Create or replace several files: all or none."""
    files = [(connection.roots.locate(file["path"]), file) for file in given["files"]]
    for path, _ in files:
        _require_folder(path)
    roots = {connection.roots.root_of(path.real) for path, _ in files}
    if len(roots) > 1 or len({path.real for path, _ in files}) < len(files):
        raise BadRequestError(
            "", "All files of one call must be different files below one root. Nothing was written."
        )
    with connection.writing_many(files, given.get("lock_id")) as (turn, expected):
        contents = {path.name: _encoded(file["content"]) for path, file in files}
        done = turn.write_files(contents, expected_hashes=expected)
    results = [{"path": file["path"], **written(done[path.name])} for path, file in files]
    texts = [written_text(f"Successfully wrote to {file['path']}", done[path.name]) for path, file in files]
    return text_answer("\n".join(texts), files=results)


WRITE_FILES = tool(
    "write_files",
    "Write Files",
    "Create or replace several files: all of them, or none if one of them is stale or cannot be written.",
    run=write_files,
    takes={
        "files": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {**PATH, "content": TEXT, **EXPECTED},
                "required": ["path", "content"],
            },
        },
        **LOCK_ID,
    },
    required=["files"],
    answers={
        "files": {"type": "array", "items": {"type": "object", "properties": {"path": TEXT, **WRITTEN}}}
    },
    hints="write",
)

# -- delete_file -----------------------------------------------------------------------------------------


def delete_file(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Delete a file."""
    path = connection.roots.locate(given["path"])
    with connection.writing(path, given) as write:
        done = write.turn.delete_file(path.name, **write.expected)
    return text_answer(f"Successfully deleted {given['path']}", **written(done))


DELETE_FILE = tool(
    "delete_file",
    "Delete File",
    "Delete a file. Refused with STALE_FILE if somebody else changed it after you read it.",
    run=delete_file,
    takes={**PATH, **EXPECTED, **LOCK_ID},
    required=["path"],
    answers=WRITTEN,
    hints="change",
)

# -- inside ----------------------------------------------------------------------------------------------


def _require_folder(path: ClientPath) -> None:
    if not path.is_there and not os.path.isdir(os.path.dirname(path.real)):
        raise MissingFileError(path.real, "There is no such folder. Create it with create_directory.")


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return sendable(text).encode()


CONTEXT_LINES = 4
_RULE = "=" * 67


def fenced(before: str, after: str, path: str) -> str:
    """Return the patch as the answer's text, in a fence that is longer than any in it."""
    text = unified(before, after, path)
    ticks = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}diff\n{text}{fence}\n\n"


def unified(before: str, after: str, path: str) -> str:
    """Return the patch from one text to another."""
    out = [f"Index: {path}\n{_RULE}\n--- {path}\toriginal\n+++ {path}\tmodified\n"]
    for hunk in hunks(edit_script(lines(before), lines(after)), CONTEXT_LINES):
        old_start = hunk.old_start + bool(hunk.old_count)
        new_start = hunk.new_start + bool(hunk.new_count)
        out.append(f"@@ -{old_start},{hunk.old_count} +{new_start},{hunk.new_count} @@\n{hunk.text}")
    return "".join(out)
