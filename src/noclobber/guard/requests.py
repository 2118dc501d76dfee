"""
Typed requests: what a caller gave, checked, as the actions that the engine takes.

The guarded tools of a turn call these with their own arguments, and the catalogue with a model's
parameters. What is wrong is a `BadRequestError` that names the parameter; nothing has been touched then.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from noclobber.core.actions import CREATE, DELETE, EDIT, MOVE, READ, WRITE, Action
from noclobber.core.values import Edit
from noclobber.errors import ABSENT, BadRequestError
from noclobber.text.edits import Edits

if TYPE_CHECKING:
    from noclobber.core.actions import ContentChange

_HASH = re.compile(f"[0-9a-f]{{64}}|{ABSENT}")


def read(path: Any, start_line: Any = None, end_line: Any = None) -> Action:
    """A read of a file, or of the lines from `start_line` to `end_line`, both counted, the first being 1."""
    where = _path(path, "path")
    first, last = whole_number(start_line, "start_line", where), whole_number(end_line, "end_line", where)
    if first is None and last is None:
        return Action(READ, where)
    start = 1 if first is None else first
    if start < 1 or (last is not None and last < start):
        raise BadRequestError(
            where,
            f"Lines are counted from 1 and a range does not run backwards; asked for {start} to {last}.",
        )
    return Action(READ, where, first_line=start, line_count=None if last is None else last - start + 1)


def write(path: Any, content: Any, expected_hash: Any = None, observation_id: Any = None) -> Action:
    """A whole new content for one file."""
    where = _path(path, "path")
    if isinstance(content, (bytearray, memoryview)):
        content = bytes(content)  # A copy: what is hashed and what is written must not change in between.
    if not isinstance(content, (str, bytes)):
        raise BadRequestError(where, "The content must be text or bytes.", parameter="content")
    expected, observation = _expected(expected_hash, where), _observation(observation_id, where)
    return Action(WRITE, where, content, expected_hash=expected, observation_id=observation)


def write_many(files: Any, expected_hashes: Any = None) -> tuple[Action, ...]:
    """Whole new contents for several files, by path."""
    hashes = {} if expected_hashes is None else expected_hashes
    if not hasattr(files, "items") or not hasattr(hashes, "items"):
        raise BadRequestError("", "Files must be a mapping from paths to contents.", parameter="files")
    contents = {_path(path, "files"): content for path, content in files.items()}
    if not contents:
        raise BadRequestError("", "There are no files to write.", parameter="files")
    expected = {_path(path, "expected_hashes"): value for path, value in hashes.items()}
    if stray := set(expected) - set(contents):
        raise BadRequestError(sorted(stray)[0], "There is an expected hash for a file that is not written.")
    return tuple(write(path, content, expected.get(path)) for path, content in contents.items())


def edit(path: Any, change: ContentChange, expected_hash: Any = None, observation_id: Any = None) -> Action:
    """A change of a part of one file."""
    where = _path(path, "path")
    expected, observation = _expected(expected_hash, where), _observation(observation_id, where)
    return Action(EDIT, where, change=change, expected_hash=expected, observation_id=observation)


def edits(given: Any, path: Any = "") -> Edits:
    """Edits as a program or a model spells them: `Edit` values, or mappings with an old and a new text."""
    if not isinstance(given, (list, tuple)) or isinstance(given, Edit):
        raise BadRequestError(_path(path, "path"), "The edits must be a list.", parameter="edits")
    return Edits(tuple(one_edit(each, number, path) for number, each in enumerate(given, 1)))


def one_edit(given: Any, number: int = 1, path: Any = "") -> Edit:
    """One edit, in any of its spellings."""
    if isinstance(given, Edit):
        return given
    if not hasattr(given, "get"):
        raise BadRequestError(_path(path, "path"), f"Edit {number} is neither an Edit nor a mapping.")
    old = given.get("old", given.get("old_string", given.get("oldText")))
    new = given.get("new", given.get("new_string", given.get("newText")))
    return Edit(old, new, flag(given.get("replace_all", False)))


def delete(path: Any, expected_hash: Any = None, observation_id: Any = None) -> Action:
    """The removal of one file."""
    where = _path(path, "path")
    expected, observation = _expected(expected_hash, where), _observation(observation_id, where)
    return Action(DELETE, where, expected_hash=expected, observation_id=observation)


def move(
    source: Any, destination: Any, expected_hash: Any = None, observation_id: Any = None
) -> tuple[Action, Action]:
    """A file that goes to a free name."""
    where = _path(source, "source")
    expected, observation = _expected(expected_hash, where), _observation(observation_id, where)
    return (
        Action(MOVE, where, expected_hash=expected, observation_id=observation),
        Action(CREATE, _path(destination, "destination")),
    )


def whole_number(value: Any, parameter: str, path: str) -> int | None:
    """Return a whole number; models and XML spell it as text, too."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return int(value)
    except ValueError:
        pass
    raise BadRequestError(path, f"The parameter {parameter!r} must be a whole number.", parameter=parameter)


def flag(value: Any) -> bool:
    """Return true or false; models and XML spell it as text, too."""
    return value.strip().lower() == "true" if isinstance(value, str) else bool(value)


def _path(value: Any, parameter: str) -> str:
    try:
        # Bytes, too: the guard is the one to say what is wrong with a name that is not UTF-8.
        return os.fsdecode(value)
    except TypeError:
        raise BadRequestError(
            "", f"The parameter {parameter!r} must be a path.", parameter=parameter
        ) from None


def _expected(value: Any, path: str) -> str | None:
    if value is None or (isinstance(value, str) and _HASH.fullmatch(value)):
        return value
    raise BadRequestError(
        path,
        f"An expected hash is 64 lower-case hex digits, or {ABSENT} for a file that must not exist yet.",
        parameter="expected_hash",
    )


def _observation(value: Any, path: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise BadRequestError(path, "An observation id is text.", parameter="observation_id")
