"""
Options from a file in the project's root: `noclobber.toml`, or the table `[tool.noclobber]` of
`pyproject.toml`.

    # noclobber.toml
    unread = "deny"
    write_scope = ["docs", "src"]

Names and values are those of `options`. What a program passes to `Workspace` or `turn()` beats the file; the
file beats the defaults. The library, the command line and hooks read the file here and nowhere else, with
TOML's own meaning (ruling 20): however a key is spelled, it gives the same options to all of them.

Nothing is guessed. An unknown name, a wrong value or a file that cannot be read is a `ConfigError` that names
file, line and key, and it stops writes: strict rules must not become lax ones because a file could not be
understood. Options in both files are an error too; which of them counts would be a guess.

A `pyproject.toml` that is not valid TOML, because somebody is in the middle of an edit, is an error only if
our table may be in it. Otherwise every write would be refused, the one that repairs the file included.

Costs: two failed `open()` calls where there is no file. `tomllib` takes as long to import as the rest of a
hook takes to run, so it is imported only if `pyproject.toml` may have our table.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, NamedTuple

from noclobber.core.options import options
from noclobber.core.project import OPTIONS_NAME, SHARED_OPTIONS_NAME
from noclobber.errors import BadRequestError, ConfigError

MAX_BYTES = 4 << 20
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Loaded(NamedTuple):
    """What the options file of a project says."""

    path: str | None
    """The file; None if there is none with options in it."""
    given: dict[str, Any]
    """Option names and values as written, checked."""


NOTHING = Loaded(None, {})


def load(root: str) -> Loaded:
    """Return the options that a project's file sets. `ConfigError` if anything in it is wrong."""
    own = _own(f"{root}/{OPTIONS_NAME}")
    shared = _shared(f"{root}/{SHARED_OPTIONS_NAME}")
    if own is not NOTHING and shared is not NOTHING:
        raise ConfigError(
            f"{root}/{OPTIONS_NAME}",
            f"there are options here and in {SHARED_OPTIONS_NAME} [tool.noclobber]; keep them in one place.",
        )
    return own if own is not NOTHING else shared


def is_in_pyproject(folder: str) -> bool:
    """True if a folder's `pyproject.toml` has our table, right or wrong, or cannot be read."""
    try:
        return _shared(f"{folder}/{SHARED_OPTIONS_NAME}") is not NOTHING
    except ConfigError:
        return True


def _own(path: str) -> Loaded:
    content = _read(path)
    return NOTHING if content is None else _checked(path, content, _parse(path, content))


def _shared(path: str) -> Loaded:
    content = _read(path)
    if content is None or not _may_have_our_table(content):
        return NOTHING
    tool = _parse(path, content).get("tool")
    table = tool.get("noclobber") if isinstance(tool, dict) else None
    if table is None:
        return NOTHING
    if not isinstance(table, dict):
        raise ConfigError(path, "tool.noclobber must be a table of options.", key="tool.noclobber")
    return _checked(path, content, table)


def _read(path: str) -> bytes | None:
    """Return a file's bytes; None if there is none. What is there and cannot be read is an error."""
    try:
        descriptor = os.open(path, _OPEN)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and not os.path.lexists(path):
            return None
        raise ConfigError(path, _cannot_be_read(error)) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(path, "is not a regular file, so its options are unknown. Remove it.")
        if status.st_size > MAX_BYTES:
            raise ConfigError(path, f"has more than {MAX_BYTES} bytes, too many for an options file.")
        content = b""
        while piece := os.read(descriptor, MAX_BYTES):
            content += piece
        return content
    except OSError as error:
        raise ConfigError(path, _cannot_be_read(error)) from None
    finally:
        os.close(descriptor)


def _cannot_be_read(error: OSError) -> str:
    return f"cannot be read ({error.strerror}), so its options are unknown. Make it readable, or remove it."


def _parse(path: str, content: bytes) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(path, f"is not UTF-8 (byte {error.start + 1}); TOML must be.") from None
    except RecursionError:
        raise ConfigError(path, "is nested too deeply.") from None
    except (ValueError, OverflowError) as error:  # TOMLDecodeError, or a number that Python refuses to read.
        raise ConfigError(path, f"is not valid TOML: {str(error).rstrip('.')}.") from None


def _checked(path: str, content: bytes, table: dict[str, Any]) -> Loaded:
    for name, value in table.items():
        try:
            options({name: value})
        except BadRequestError as error:
            where = _line_of(content, name)
            raise ConfigError(
                path,
                f"{f'line {where}: ' if where else ''}{error.message}",
                key=name,
                **({"line": where} if where else {}),
            ) from None
    return Loaded(path, dict(table))


# -- is our table in there? ----------------------------------------------------------------------------

_NAME = b"noclobber"
_SPACES = b" \t"
_QUOTES = b"\"'"
# A key may be written with escapes, "\u006eoclobber". All its letters are in the rows 6 and 7 of ASCII.
_ESCAPED_LETTERS = (b"\\u006", b"\\u007", b"\\U0000006", b"\\U0000007", b"\\x6", b"\\x7")


def _may_have_our_table(content: bytes) -> bool:
    """
    False only if no TOML parser could find a key `noclobber` in there.

    Most files that mention noclobber only list it as a dependency, and parsing those costs a hook more than
    everything else that it does.
    """
    if any(letter in content for letter in _ESCAPED_LETTERS):
        return True
    at = content.find(_NAME)
    while at >= 0:
        if _may_be_a_key(content, at):
            return True
        at = content.find(_NAME, at + 1)
    return False


def _may_be_a_key(content: bytes, at: int) -> bool:
    """True if the word could be a key: `[tool.noclobber]`, `noclobber.unread = …`, `noclobber = {…}`."""
    line_end = content.find(b"\n", at)
    after = content[at + len(_NAME) : line_end if line_end >= 0 else None]
    if after[:1] and after[:1] in _QUOTES:
        after = after[1:]
    after = after.lstrip(_SPACES)
    if after.startswith(b"="):
        return not after.startswith(b"==")  # "noclobber == 0.1" is a dependency.
    if after.startswith(b"."):
        return True
    before = content[content.rfind(b"\n", 0, at) + 1 : at]
    if before[-1:] and before[-1:] in _QUOTES:
        before = before[:-1]
    return after.startswith(b"]") and before.rstrip(_SPACES).endswith(b".")


def _line_of(content: bytes, key: str) -> int | None:
    """Return the line where a key is set, as well as can be told without the parser's help."""
    import re

    spelled = re.escape(key)
    pattern = re.compile(
        rf"""\s*(?:\[.*\b{spelled}\s*["']?\s*\]|["']?{spelled}["']?\s*[=.]|.*\bnoclobber\.{spelled}\s*=)"""
    )
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        if pattern.match(line):
            return number
    return None
