"""
Tools of other MCP servers: which of them plainly change a file of this machine, and how.

Nobody can know every server, so this goes by names that are in common use: what a tool is called, and what
its parameters are called. A tool whose parameters name no file is none of our business (`create_issue`).
Nor is one whose parameters say that the file is elsewhere: a repository on a server, a bucket, an address.

What is left is checked as a host's own tool is. Because it is a guess, a call that left the file as it was
goes without a record: perhaps it was about something else.
"""

from __future__ import annotations

import os
from typing import Any

from noclobber.core.actions import Action
from noclobber.core.values import Edit
from noclobber.errors import BadRequestError
from noclobber.hosts.event import PATH_KEYS, edits_action, maybe_count, maybe_text

_PATHS = (*PATH_KEYS, "relative_path", "relativePath", "filepath", "uri")
_CONTENTS = ("content", "contents", "file_text", "text", "new_content", "data")
_MOVES = (("source", "destination"), ("old_path", "new_path"), ("from", "to"), ("src", "dst"))
_ELSEWHERE = (
    *("owner", "repo", "repository", "repo_id", "branch", "project_id", "workspace_id", "page_id"),
    *("bucket", "host", "hostname", "url", "database", "collection", "channel", "device_id", "drive_id"),
)
_REPLACING = ("write", "create", "save", "overwrite", "put", "set")
_REMOVING = ("delete", "remove", "unlink")
_READING = ("read", "view", "open", "cat", "show", "get")
_OLD = ("oldText", "old_string", "old_str", "oldString", "old_text", "search")
_NEW = ("newText", "new_string", "new_str", "newString", "new_text", "replace")


def actions(words: list[str], given: dict[str, Any], writers: tuple[str, ...]) -> tuple[Action, ...]:
    """Return what a tool of another server does to files here; empty if nobody can tell, or nothing."""
    if any(given.get(name) for name in _ELSEWHERE) or any(
        word in ("directory", "folder", "dir") for word in words
    ):
        return ()
    is_writer = any(word in writers for word in words)
    for source, goal in _MOVES:
        if is_writer and isinstance(given.get(source), str) and isinstance(given.get(goal), str):
            return _move(given[source], given[goal], words)
    named = {_local(given[name]) for name in _PATHS if isinstance(given.get(name), str)} - {""}
    if not named:
        return ()
    if is_writer and len(named) > 1:
        raise BadRequestError("", "Several parameters name a file, so what is written cannot be checked.")
    path = sorted(named)[0]
    if not is_writer:
        return _read(path, given) if any(word in _READING for word in words) else ()
    if any(word in _REMOVING for word in words):
        return (Action("delete", path, is_certain=False),)
    edits = _edits(given)
    if edits is not None:
        return (edits_action(path, edits)._replace(is_certain=False),)
    whole = maybe_text(given, *_CONTENTS)
    if whole is not None and any(word in _REPLACING for word in words):
        return (Action("write", path, content=whole, is_certain=False),)
    return (Action("edit", path, is_certain=False),)


def _local(path: str) -> str:
    """Return a path on this machine, empty for an address of something else."""
    if path.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        return unquote(urlsplit(path).path)
    return "" if "://" in path else path


def _move(source: str, goal: str, words: list[str]) -> tuple[Action, ...]:
    source, goal = _local(source), _local(goal)
    if not source or not goal:
        return ()
    if "copy" in words:
        return (Action("edit", goal, is_certain=False),)
    return (Action("move", source, is_certain=False), Action("create", goal, is_certain=False))


def _read(path: str, given: dict[str, Any]) -> tuple[Action, ...]:
    head, tail = maybe_count(given, "head"), maybe_count(given, "tail")
    if tail is not None:
        return (Action("read", path, first_line=0, line_count=tail),)
    first = maybe_count(given, "offset", "start_line", "startLine")
    count = head if head is not None else maybe_count(given, "limit", "length")
    return (Action("read", path, first_line=first if first else None, line_count=count),)


def _edits(given: dict[str, Any]) -> tuple[Edit, ...] | None:
    """Return replacements, None if the parameters are none."""
    listed = given.get("edits", [given])
    if not isinstance(listed, list) or not listed:
        return None
    found = []
    for one in listed:
        old, new = maybe_text(one, *_OLD), maybe_text(one, *_NEW)
        if old is None or new is None:
            return None
        every = isinstance(one, dict) and (one.get("replace_all") is True or one.get("replaceAll") is True)
        found.append(Edit(old, new, every))
    return tuple(found)


def text_of(response: Any) -> str | None:
    """Return the text of a tool's result, in any of the forms that hosts give it; None if there is none."""
    if isinstance(response, str):
        return response
    if isinstance(response, dict):
        inner = response.get("llmContent", response.get("content", response.get("text")))
        return None if inner is None else text_of(inner)
    if isinstance(response, list):
        found = [text for text in map(text_of, response) if text is not None]
        return "\n".join(found) if found else None
    return None


# -- tools of a host that nobody knows ---------------------------------------------------------------------

_PATCHES = ("*** Begin Patch", "\n@@", "diff --git ")
_MOST_VALUES, _MOST_NAME_LETTERS = 1000, 4096


def may_name_file(given: Any, folder: str) -> bool:
    """
    True if any text in a call's parameters, however deep, could name a file that is there, or be a patch.

    Hosts have tools such as `update_goal` and `MemoryWrite`. Without a file's name they write to none.
    """
    left, looked_at = [given], 0
    while left:
        value = left.pop()
        looked_at += 1
        if looked_at > _MOST_VALUES:
            return True
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str) and _may_name_file(value, folder):
            return True
    return False


def _may_name_file(text: str, folder: str) -> bool:
    if any(mark in text for mark in _PATCHES):
        return True
    if not text or len(text) > _MOST_NAME_LETTERS or "\n" in text or "\0" in text:
        return False
    if not any(letter.isspace() for letter in text) and ("/" in text or "." in text.strip(".")):
        return True
    return os.path.lexists(os.path.join(folder, text))
