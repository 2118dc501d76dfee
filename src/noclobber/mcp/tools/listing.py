"""
The tools that look at folders: list, tree, search, and what is known of one entry.

Entries come in the order of their bytes. A link counts as a file and is never followed downwards; a search
leaves out links that lead out of the roots. noclobber's own records are not shown.
"""

from __future__ import annotations

import json
import os
import stat

from noclobber.mcp.reference import collation
from noclobber.mcp.reference.globs import BadPatternError, matcher
from noclobber.mcp.reference.os_errors import PlainError, bad_request, failed
from noclobber.mcp.reference.times import birth_s, spelled
from noclobber.mcp.roots import is_ours
from noclobber.mcp.tools.writing import text_answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from noclobber.mcp.connection import Memory
    from noclobber.mcp.dispatch import Answer, Report

REPORT_EVERY = 1000  # Entries.
DEEPEST = 400  # Folders within each other; a tree of more is nothing that a model reads.
_UNITS = ("B", "KB", "MB", "GB", "TB")


def list_directory(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """What is in a folder."""
    folder = memory.roots.locate(given["path"]).real
    return text_answer(
        "\n".join(f"[{'DIR' if is_folder else 'FILE'}] {name}" for name, is_folder in _entries(folder))
    )


def list_directory_with_sizes(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """What is in a folder, with sizes."""
    folder = memory.roots.locate(given["path"]).real
    rows = [(name, is_folder, _size(f"{folder}/{name}")) for name, is_folder in _entries(folder)]
    if given["sortBy"] == "size":
        rows.sort(key=lambda row: -row[2])
    else:
        rows.sort(key=lambda row: collation.key(row[0]))
    lines = []
    for name, is_folder, size in rows:
        shown = "" if is_folder else _spelled_size(size).rjust(10)
        lines.append(f"[{'DIR' if is_folder else 'FILE'}] {_padded(name, 30)} {shown}")
    files = [size for _, is_folder, size in rows if not is_folder]
    lines += (
        "",
        f"Total: {len(files)} files, {len(rows) - len(files)} directories",
        f"Combined size: {_spelled_size(sum(files))}",
    )
    return text_answer("\n".join(lines))


def directory_tree(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """A folder and everything below it, as JSON."""
    top = memory.roots.locate(given["path"]).real
    excluded = _tree_filter(given["excludePatterns"])
    seen = 0

    def branch(folder: str, below: str, depth: int) -> list[dict[str, Any]]:
        nonlocal seen
        if depth > DEEPEST:
            raise bad_request(f"The tree is more than {DEEPEST} folders deep. Ask for a part of it.", folder)
        out = []
        for name, is_folder in _entries(folder):
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


def search_files(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """Files and folders whose path below a folder matches a pattern."""
    top = memory.roots.locate(given["path"]).real
    matches, excluded = _compiled([given["pattern"]]), _compiled(given["excludePatterns"])
    found: list[str] = []
    seen = 0
    # A stack of what is still to be listed, so that the depth of a tree is no matter.
    waiting = [iter(_children(top, "", must_exist=True))]
    while waiting:
        for path, relative, is_folder in waiting[-1]:
            seen += 1
            if seen % REPORT_EVERY == 0:
                report(seen, None, relative)
            if excluded(relative) or not _is_allowed(memory, path):
                continue
            if matches(relative):
                found.append(path)
            if is_folder:
                waiting.append(iter(_children(path, f"{relative}/", must_exist=False)))
                break
        else:
            waiting.pop()
    return text_answer("\n".join(found) or "No matches found")


def get_file_info(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """Size, times, kind and permissions."""
    path = memory.roots.locate(given["path"]).real
    try:
        status = os.stat(path)
    except OSError as error:
        raise failed(error.errno, "stat", path) from None
    facts = {
        "size": status.st_size,
        "created": spelled(birth_s(path, status)),
        "modified": spelled(status.st_mtime),
        "accessed": spelled(status.st_atime),
        "isDirectory": str(stat.S_ISDIR(status.st_mode)).lower(),
        "isFile": str(stat.S_ISREG(status.st_mode)).lower(),
        "permissions": f"{status.st_mode & 0o777:o}"[-3:],
    }
    return text_answer("\n".join(f"{key}: {value}" for key, value in facts.items()))


def list_allowed_directories(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """The roots."""
    return text_answer("Allowed directories:\n" + "\n".join(memory.roots.shown))


# -- inside ----------------------------------------------------------------------------------------


def _entries(folder: str) -> list[tuple[str, bool]]:
    """Names and whether each is a folder, in the order of their bytes."""
    try:
        with os.scandir(folder) as entries:
            found = [
                (_readable(entry.name), entry.is_dir(follow_symlinks=False))
                for entry in entries
                if not is_ours(entry.name)
            ]
    except OSError as error:
        raise failed(error.errno, "scandir", folder) from None
    return sorted(found, key=lambda entry: entry[0].encode())


def _children(folder: str, below: str, *, must_exist: bool) -> Iterable[tuple[str, str, bool]]:
    try:
        entries = _entries(folder)
    except PlainError:
        if must_exist:
            raise
        return []  # Gone, or closed to us, since it was listed.
    return [
        (f"{folder}/{name}" if folder != "/" else f"/{name}", f"{below}{name}", is_folder)
        for name, is_folder in entries
    ]


def _readable(name: str) -> str:
    """A name that is not UTF-8 cannot stand in JSON; it is shown, and cannot be opened by what is shown."""
    return os.fsencode(name).decode("utf-8", "replace")


def _is_allowed(memory: Memory, path: str) -> bool:
    if not os.path.islink(path):
        return True
    try:
        memory.roots.locate(path)
    except PlainError:
        return False
    return True


def _compiled(patterns: Iterable[str]) -> Callable[[str], bool]:
    try:
        tests = [matcher(pattern) for pattern in patterns]
    except BadPatternError as error:
        raise bad_request(str(error)) from None
    return lambda path: any(test(path) for test in tests)


def _tree_filter(patterns: Iterable[str]) -> Callable[[str], bool]:
    """For trees a plain name is left out at any depth, with all that is below it."""
    wider: list[str] = []
    for pattern in patterns:
        wider.append(pattern)
        if "*" not in pattern:
            wider += (f"**/{pattern}", f"**/{pattern}/**")
    return _compiled(wider)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _spelled_size(size: int) -> str:
    unit, value = 0, float(size)
    while value >= 1024 and unit < len(_UNITS) - 1:
        unit, value = unit + 1, value / 1024
    return f"{size} B" if unit == 0 else f"{value:.2f} {_UNITS[unit]}"


def _padded(name: str, width: int) -> str:
    """Pad as UTF-16 counts: the columns of the replaced server."""
    return name + " " * (width - len(name.encode("utf-16-le")) // 2)
