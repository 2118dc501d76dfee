"""
Options from a file at the workspace's root: `noclobber.toml`, or the table `[tool.noclobber]` of
`pyproject.toml`.

    # noclobber.toml
    unread = "deny"
    write_scope = ["docs", "src"]

The names and values are those of `config`. What a program passes to `Workspace` or `turn()` beats the file;
the file beats the defaults. Nothing of it is guessed: an unknown name, a wrong value or a file that cannot be
read is a `ConfigError` that names file, line and key. A workspace with strict rules must not become a lax one
because its file could not be understood.

Two files that both have options are refused too. Which one counts would be a matter of reading this page.

A `pyproject.toml` that is not TOML (somebody is in the middle of editing it) is no business of ours
unless it has our table in it: refusing every write for it would keep an agent from repairing that very
file.

Costs: two failed `open()` calls where there is no file. `tomllib` is imported only where there is
something to parse.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, NamedTuple

from noclobber.core.options import options
from noclobber.errors import BadRequestError, ConfigError

OWN_NAME, SHARED_NAME = "noclobber.toml", "pyproject.toml"
MAX_BYTES = 4 << 20
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Loaded(NamedTuple):
    """What the file of a workspace says."""

    path: str | None
    """The file; None if there is none with options in it."""
    given: dict[str, Any]
    """Option names and values as written, checked."""


NOTHING = Loaded(None, {})


def load(root: str) -> Loaded:
    """Return the options that a workspace's file sets. `ConfigError` if it is wrong in any way."""
    own = _own(f"{root}/{OWN_NAME}")
    shared = _shared(f"{root}/{SHARED_NAME}")
    if own is not NOTHING and shared is not NOTHING:
        raise ConfigError(
            f"{root}/{OWN_NAME}",
            f"there are options here and in [tool.noclobber] of {SHARED_NAME}; keep them in one place.",
        )
    return own if own is not NOTHING else shared


def configured_in(folder: str) -> bool:
    """True if a folder has a file of ours, right or wrong."""
    if os.path.lexists(f"{folder}/{OWN_NAME}"):
        return True
    try:
        return _shared(f"{folder}/{SHARED_NAME}") is not NOTHING
    except ConfigError:
        return True


def _own(path: str) -> Loaded:
    content = _read(path)
    return NOTHING if content is None else _checked(path, content, _parse(path, content))


def _shared(path: str) -> Loaded:
    content = _read(path)
    if content is None or b"noclobber" not in content:
        return NOTHING
    try:
        tool = _parse(path, content).get("tool")
    except ConfigError:
        if _has_our_table(content):
            raise
        return NOTHING
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
        raise ConfigError(path, f"cannot be read ({error.strerror}), so its rules are not known.") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(path, "is not a regular file, so its rules are not known.")
        if status.st_size > MAX_BYTES:
            raise ConfigError(path, f"has more than {MAX_BYTES} bytes; that is no configuration.")
        content = b""
        while piece := os.read(descriptor, MAX_BYTES):
            content += piece
        return content
    except OSError as error:
        raise ConfigError(path, f"cannot be read ({error.strerror}), so its rules are not known.") from None
    finally:
        os.close(descriptor)


def _parse(path: str, content: bytes) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(path, f"is not UTF-8 (byte {error.start + 1}); TOML must be.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(path, f"is not valid TOML: {error}.") from None
    except RecursionError:
        raise ConfigError(path, "is nested too deeply.") from None


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


def _has_our_table(content: bytes) -> bool:
    import re

    pattern = rb"""(?m)^[ \t]*\[?[ \t]*["']?tool["']?[ \t]*\.[ \t]*["']?noclobber\b"""
    return re.search(pattern, content) is not None


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
