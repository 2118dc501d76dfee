"""
The guarded tools: what a model is told of each, and the function that carries it out in a turn.

The one source of names, schemas and descriptions for `turn.tools()` and for every adapter. To add a tool:
write its function, define it below the function, list it in `TOOLS`.

A function gets the turn and the checked arguments, and returns the text that the model reads. A refusal is an
exception, as in the rest of the library.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.values import Edit
from noclobber.errors import BadRequestError
from noclobber.guard.tools import listing
from noclobber.guard.tools.answers import written
from noclobber.text.lines import is_uniform, with_ending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noclobber.guard.turn import Turn

    Run = Callable[[Turn, Mapping[str, Any]], str]

MOST_SHOWN_BYTES = 256 << 10  # Of one read without a range of lines; more does not fit a model's memory.


class ModelTool(NamedTuple):
    """One tool, as a model sees it and as it is carried out."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of an object."""
    run: Run
    only_reads: bool = False


_TEXT = {"type": "string"}
_PATH = {"type": "string", "description": "The file's path, relative to the workspace."}
_FOLDER = {"type": "string", "description": "A folder's path, relative to the workspace. Default: all of it."}
_EXPECTED = {
    "type": "string",
    "description": "Optional: the sha256 of the version that this change was made from, or ABSENT if there "
    "must be no file yet. Without it, the version that you last read counts.",
}
_STALE = (
    "Refused with STALE_FILE if somebody else changed the file after you read it: then read it again, work "
    "their change into yours, and repeat the call."
)


def _takes(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


# -- reading ---------------------------------------------------------------------------------------------


def read_file(turn: Turn, given: Mapping[str, Any]) -> str:
    """Read a file, or some of its lines."""
    start, end = given.get("start_line"), given.get("end_line")
    if start is None and end is None:
        _refuse_large(turn, given["path"])
    return turn.read_file(given["path"], start_line=start, end_line=end).text


READ_FILE = ModelTool(
    "read_file",
    "Read a text file: all of it, or the lines from start_line to end_line. Read a file before changing it.",
    _takes(
        ("path",),
        path=_PATH,
        start_line={"type": "integer", "description": "The first line to read; the file's first is 1."},
        end_line={"type": "integer", "description": "The last line to read."},
    ),
    read_file,
    only_reads=True,
)


def list_files(turn: Turn, given: Mapping[str, Any]) -> str:
    """List a folder, or every file below it that fits a pattern."""
    folder, pattern = given.get("path", "."), given.get("pattern")
    found = listing.find(turn, pattern, folder) if pattern else listing.entries(turn, folder)
    lines = [f"{entry.path}/" if entry.is_folder else entry.path for entry in found[: listing.MOST_ENTRIES]]
    if len(found) > len(lines):
        lines.append(f"({len(found) - len(lines)} more are not shown. Name a folder or a narrower pattern.)")
    return "\n".join(lines) if lines else "There are no files."


LIST_FILES = ModelTool(
    "list_files",
    "List what is in a folder; with a pattern, every file below it that fits. Folders end in a slash.",
    _takes(
        (),
        path=_FOLDER,
        pattern={"type": "string", "description": "For example *.py or docs/**/*.md."},
    ),
    list_files,
    only_reads=True,
)


def search_files(turn: Turn, given: Mapping[str, Any]) -> str:
    """Find a text in the files below a folder."""
    found = listing.search(turn, given["text"], given.get("path", "."), given.get("pattern"))
    lines = [f"{match.path}:{match.line}: {match.text[:300]}" for match in found]
    if len(found) >= listing.MOST_MATCHES:
        lines.append("(There may be more. Name a folder or a narrower pattern.)")
    return "\n".join(lines) if lines else "It was not found."


SEARCH_FILES = ModelTool(
    "search_files",
    "Find the lines that contain a text, in the files below a folder. Reading a match here does not count as "
    "reading the file.",
    _takes(
        ("text",),
        text={"type": "string", "description": "The text to look for, as it is; not a regular expression."},
        path=_FOLDER,
        pattern={"type": "string", "description": "Only in files that fit, for example *.py."},
    ),
    search_files,
    only_reads=True,
)

# -- writing ---------------------------------------------------------------------------------------------


def write_file(turn: Turn, given: Mapping[str, Any]) -> str:
    """Replace a file or create it."""
    path = given["path"]
    content = as_replacement(turn, path, given["content"])
    done = turn.write_file(path, content, expected_hash=given.get("expected_hash"))
    return written(f"Wrote {path}.", done)


WRITE_FILE = ModelTool(
    "write_file",
    f"Create a file, or replace all of it, in one step. {_STALE}",
    _takes(
        ("path", "content"),
        path=_PATH,
        content={"type": "string", "description": "The whole new content."},
        expected_hash=_EXPECTED,
    ),
    write_file,
)


def edit_file(turn: Turn, given: Mapping[str, Any]) -> str:
    """Replace pieces of a file."""
    path, edits = given["path"], []
    for number, edit in enumerate(given["edits"], 1):
        if not edit["old_string"] and not edit["new_string"]:
            raise BadRequestError(
                path,
                f"Edit {number}: old_string and new_string are both empty, so there is nothing to change. "
                "Send the text to replace and the text to put in its place.",
                parameter="edits",
            )
        edits.append(Edit(edit["old_string"], edit["new_string"], edit.get("replace_all", False)))
    done = turn.edit_file(path, edits, expected_hash=given.get("expected_hash"))
    return written(f"Edited {path}.", done)


EDIT_FILE = ModelTool(
    "edit_file",
    f"Replace pieces of a file, all of them or none. Each old_string must occur exactly once. {_STALE}",
    _takes(
        ("path", "edits"),
        path=_PATH,
        edits={
            "type": "array",
            "minItems": 1,
            "description": "A list of objects with old_string and new_string.",
            "items": _takes(
                ("old_string", "new_string"),
                old_string={"type": "string", "description": "The text to replace, as it is in the file."},
                new_string={"type": "string", "description": "The text to put in its place."},
                replace_all={"type": "boolean", "description": "Replace every occurrence. Default: false."},
            ),
        },
        expected_hash=_EXPECTED,
    ),
    edit_file,
)


def write_files(turn: Turn, given: Mapping[str, Any]) -> str:
    """Replace or create several files, all or none."""
    files = {file["path"]: as_replacement(turn, file["path"], file["content"]) for file in given["files"]}
    if len(files) < len(given["files"]):
        raise BadRequestError("", "A path occurs twice in files. Send each file once.", parameter="files")
    expected = {file["path"]: file["expected_hash"] for file in given["files"] if "expected_hash" in file}
    done = turn.write_files(files, expected_hashes=expected or None)
    return "\n".join(written(f"Wrote {path}.", done[path]) for path in files)


WRITE_FILES = ModelTool(
    "write_files",
    f"Create or replace several files: all of them, or none. {_STALE}",
    _takes(
        ("files",),
        files={
            "type": "array",
            "minItems": 1,
            "description": "A list of objects with path and content.",
            "items": _takes(("path", "content"), path=_PATH, content=_TEXT, expected_hash=_EXPECTED),
        },
    ),
    write_files,
)


def delete_file(turn: Turn, given: Mapping[str, Any]) -> str:
    """Delete a file."""
    turn.delete_file(given["path"], expected_hash=given.get("expected_hash"))
    return f"Deleted {given['path']}."


DELETE_FILE = ModelTool(
    "delete_file",
    f"Delete a file. {_STALE}",
    _takes(("path",), path=_PATH, expected_hash=_EXPECTED),
    delete_file,
)


def move_file(turn: Turn, given: Mapping[str, Any]) -> str:
    """Move a file to a free name."""
    turn.move_file(given["source"], given["destination"], expected_hash=given.get("expected_hash"))
    return f"Moved {given['source']} to {given['destination']}."


MOVE_FILE = ModelTool(
    "move_file",
    f"Move a file to a name that is free. {_STALE}",
    _takes(("source", "destination"), source=_PATH, destination=_PATH, expected_hash=_EXPECTED),
    move_file,
)

TOOLS: dict[str, ModelTool] = {
    tool.name: tool
    for tool in (
        READ_FILE,
        LIST_FILES,
        SEARCH_FILES,
        WRITE_FILE,
        EDIT_FILE,
        WRITE_FILES,
        DELETE_FILE,
        MOVE_FILE,
    )
}
"""Every guarded tool by its name."""

# -- what a model does not see ---------------------------------------------------------------------------


def as_replacement(turn: Turn, path: str, text: str) -> str:
    """
    Return a whole new content as it must be written, given what the model was not shown of the old one.

    Of a file that is not UTF-8 the model saw U+FFFD in the place of bytes. Written back, they would be lost.
    Line endings: models write `\\n`, whatever they read. If every line that it saw ended in `\\r\\n`, so does
    every line that it writes.
    """
    seen = turn.baseline_bytes(path)
    if seen is None:
        return text
    try:
        seen.decode()
    except UnicodeDecodeError:
        raise BadRequestError(
            path,
            "This file is not UTF-8 text, so you have not seen all of its bytes, and replacing the whole "
            "file would destroy them. Use edit_file: it leaves every other byte alone.",
            parameter="content",
        ) from None
    if b"\n" in seen and is_uniform(seen) and "\r" not in text:
        return with_ending(text.encode("utf-8", "surrogatepass"), b"\r\n").decode("utf-8", "surrogatepass")
    return text


def _refuse_large(turn: Turn, path: str) -> None:

    try:
        size = os.stat(turn.guard.locate(path)).st_size
    except OSError:
        return  # The read says what is wrong.
    if size > MOST_SHOWN_BYTES:
        raise BadRequestError(
            path,
            f"The file has {size} bytes, and one read shows at most {MOST_SHOWN_BYTES}. Read a part of it: "
            "give start_line and end_line.",
            parameter="start_line",
        )
