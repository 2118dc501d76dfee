"""
The tools that look at folders: list, tree, search, and describe one entry.

Entries come in the order of their bytes. A link counts as a file and is never followed downwards; a search
leaves out links that lead out of the roots. noclobber's own files and those of locks are not shown.
"""

from __future__ import annotations

import json
import os
import stat
from datetime import datetime
from typing import TYPE_CHECKING, Any

from noclobber.core.actions import READ
from noclobber.disk.system_errors import lookup_failed
from noclobber.errors import BadRequestError, NoclobberError
from noclobber.guard.facts import Facts
from noclobber.guard.judge import refusal_of
from noclobber.guard.tools.listing import entries_in, glob_test
from noclobber.mcp.tools.definition import PATH, TEXT, McpAnswer, text_answer, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from noclobber.mcp.connection import ClientConnection
    from noclobber.mcp.tools.definition import Report

REPORT_EVERY = 1000  # Entries.
DEEPEST = 400  # Folders within each other. No model reads a deeper tree.
_UNITS = ("B", "KB", "MB", "GB", "TB")
_EXCLUDE = {"excludePatterns": {"type": "array", "items": TEXT, "default": []}}


def list_directory(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """List a folder."""
    folder = _place(connection, given["path"])
    return text_answer(
        "\n".join(f"[{'DIR' if is_folder else 'FILE'}] {name}" for name, is_folder, _ in _entries(folder))
    )


LIST_DIRECTORY = tool(
    "list_directory",
    "List Directory",
    "List what is in a folder, marked [FILE] or [DIR].",
    run=list_directory,
    takes=PATH,
    required=["path"],
)


def list_directory_with_sizes(
    connection: ClientConnection, given: Mapping[str, Any], report: Report
) -> McpAnswer:
    """List a folder, with sizes."""
    folder = _place(connection, given["path"])
    rows = _entries(folder)
    rows.sort(key=lambda row: -row[2] if given["sortBy"] == "size" else row[0].casefold())
    lines = []
    for name, is_folder, size in rows:
        shown = "" if is_folder else _spelled_size(size).rjust(10)
        lines.append(f"[{'DIR' if is_folder else 'FILE'}] {name:<30} {shown}")
    files = [size for _, is_folder, size in rows if not is_folder]
    lines += (
        "",
        f"Total: {len(files)} files, {len(rows) - len(files)} directories",
        f"Combined size: {_spelled_size(sum(files))}",
    )
    return text_answer("\n".join(lines))


LIST_DIRECTORY_WITH_SIZES = tool(
    "list_directory_with_sizes",
    "List Directory with Sizes",
    "List what is in a folder, with sizes and totals, by name or largest first.",
    run=list_directory_with_sizes,
    takes={**PATH, "sortBy": {"type": "string", "enum": ["name", "size"], "default": "name"}},
    required=["path"],
)


def directory_tree(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Show a folder and everything below it, as JSON."""
    top = _place(connection, given["path"])
    excluded = _tree_filter(given["excludePatterns"])
    seen = 0

    def branch(folder: str, below: str, depth: int) -> list[dict[str, Any]]:
        nonlocal seen
        if depth > DEEPEST:
            raise BadRequestError(folder, f"The tree has more than {DEEPEST} levels. Ask for a part of it.")
        out = []
        for name, is_folder, _ in _entries(folder):
            seen += 1
            if seen % REPORT_EVERY == 0:
                report(seen, None, below or name)
            relative = f"{below}{name}"
            if excluded(relative):
                continue
            entry: dict[str, Any] = {"name": name, "type": "directory" if is_folder else "file"}
            if is_folder:
                entry["children"] = branch(f"{folder}/{name}", f"{relative}/", depth + 1)
            out.append(entry)
        return out

    return text_answer(json.dumps(branch(top, "", 1), indent=2, ensure_ascii=False))


DIRECTORY_TREE = tool(
    "directory_tree",
    "Directory Tree",
    "Show a folder and everything below it as JSON: name, type, and a folder's children.",
    run=directory_tree,
    takes={**PATH, **_EXCLUDE},
    required=["path"],
)


def search_files(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Find the files and folders whose path below a folder matches a pattern."""
    top = _place(connection, given["path"])
    matches, excluded = _compiled([given["pattern"]]), _compiled(given["excludePatterns"])
    found: list[str] = []
    seen = 0
    # A stack of folders instead of recursion, so that a tree may have any depth.
    waiting = [iter(_children(top, "", must_exist=True))]
    while waiting:
        for path, relative, is_folder in waiting[-1]:
            seen += 1
            if seen % REPORT_EVERY == 0:
                report(seen, None, relative)
            if excluded(relative) or not _is_allowed(connection, path):
                continue
            if matches(relative):
                found.append(path)
            if is_folder:
                waiting.append(iter(_children(path, f"{relative}/", must_exist=False)))
                break
        else:
            waiting.pop()
    return text_answer("\n".join(found) or "No matches found")


SEARCH_FILES = tool(
    "search_files",
    "Search Files",
    "Find files and folders below a folder by a glob pattern: '*.md' in the folder itself, "
    "'**/*.{md,txt}' at any depth.",
    run=search_files,
    takes={**PATH, "pattern": TEXT, **_EXCLUDE},
    required=["path", "pattern"],
)


def get_file_info(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Show size, times, kind and permissions."""
    path = _place(connection, given["path"])
    try:
        status = os.stat(path)
    except OSError as error:
        raise lookup_failed(error, path) from None
    born = getattr(status, "st_birthtime", min(status.st_ctime, status.st_mtime))
    facts = {
        "size": status.st_size,
        "created": _local_time(born),  # Where the system does not tell: the earliest time that is known.
        "modified": _local_time(status.st_mtime),
        "accessed": _local_time(status.st_atime),
        "isDirectory": str(stat.S_ISDIR(status.st_mode)).lower(),
        "isFile": str(stat.S_ISREG(status.st_mode)).lower(),
        "permissions": f"{status.st_mode & 0o777:o}"[-3:],
    }
    return text_answer("\n".join(f"{key}: {value}" for key, value in facts.items()))


GET_FILE_INFO = tool(
    "get_file_info",
    "Get File Info",
    "Show size, times, kind and permissions of a file or a folder.",
    run=get_file_info,
    takes=PATH,
    required=["path"],
)


def list_allowed_directories(
    connection: ClientConnection, given: Mapping[str, Any], report: Report
) -> McpAnswer:
    """List the roots."""
    return text_answer("Allowed directories:\n" + "\n".join(connection.roots.shown))


LIST_ALLOWED_DIRECTORIES = tool(
    "list_allowed_directories",
    "List Allowed Directories",
    "List the folders that these tools may use. Everything below them may be used, too.",
    run=list_allowed_directories,
    takes={},
)


# -- inside ----------------------------------------------------------------------------------------


def _place(connection: ClientConnection, given: str) -> str:
    """Return where a path really is. What may not be read may not be described either."""
    path = connection.roots.locate(given)
    root = connection.roots.root_of(path.real)
    if (refusal := refusal_of(Facts(READ, path.real, path.name, root))) is not None:
        raise refusal
    return path.real


def _entries(folder: str) -> list[tuple[str, bool, int]]:
    """Return names, whether each is a folder, and sizes, by name."""
    return [
        (_readable(entry.path), entry.is_folder, entry.size_bytes) for entry in entries_in(folder, folder)
    ]


def _children(folder: str, below: str, *, must_exist: bool) -> Iterable[tuple[str, str, bool]]:
    try:
        entries = _entries(folder)
    except NoclobberError:
        if must_exist:
            raise
        return []  # Deleted, or made unreadable, since it was listed.
    return [
        (f"{folder}/{name}" if folder != "/" else f"/{name}", f"{below}{name}", is_folder)
        for name, is_folder, _ in entries
    ]


def _readable(name: str) -> str:
    """Return a name that JSON can spell. One that is not UTF-8 cannot be opened by what is shown."""
    return os.fsencode(name).decode("utf-8", "replace")


def _is_allowed(connection: ClientConnection, path: str) -> bool:
    if not os.path.islink(path):
        return True
    try:
        connection.roots.locate(path)
    except NoclobberError:
        return False
    return True


def _compiled(patterns: Iterable[str]) -> Callable[[str], bool]:
    tests = [glob_test(pattern, at_any_depth=False) for pattern in patterns]
    return lambda path: any(test(path) for test in tests)


def _tree_filter(patterns: Iterable[str]) -> Callable[[str], bool]:
    """In a tree, a name without wildcards is left out at any depth, with everything below it."""
    wider: list[str] = []
    for pattern in patterns:
        wider.append(pattern)
        if "*" not in pattern:
            wider += (f"**/{pattern}", f"**/{pattern}/**")
    return _compiled(wider)


def _spelled_size(size: int) -> str:
    unit, value = 0, float(size)
    while value >= 1024 and unit < len(_UNITS) - 1:
        unit, value = unit + 1, value / 1024
    return f"{size} B" if unit == 0 else f"{value:.2f} {_UNITS[unit]}"


def _local_time(at_s: float) -> str:
    try:
        return datetime.fromtimestamp(at_s).astimezone().isoformat(" ", "seconds")
    except (OverflowError, ValueError, OSError):
        return "unknown"
