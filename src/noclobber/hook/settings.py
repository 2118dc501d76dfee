"""
Which project an event belongs to, and how strict that project wants its hooks to be.

The project is the nearest folder above the host's working directory that has a `.noclobber` or `.git` in
it; if none has, the working directory itself. Options are read from its configuration file, if there is
one; without one nothing is loaded. Hooks keep baselines for the session, because the model remembers
earlier turns.
"""

from __future__ import annotations

import os

from noclobber.disk.paths import STATE_FOLDER
from noclobber.errors import HookFailedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, NamedTuple
else:
    from noclobber.core.light.named_tuples import NamedTuple

CONFIG_NAME = "noclobber.toml"


class Settings(NamedTuple):
    """What the judge has to know of a project."""

    root: str
    rebaseline: Literal["on-read", "after-conflict"] = "on-read"
    deny_unread: bool = False
    deny_partial: bool = False
    is_per_turn: bool = False
    write_scope: tuple[str, ...] | None = None


def find_root(cwd: str) -> str:
    """Return the project's folder for a working directory; `HookFailedError` if that is no folder."""
    cwd = cwd or os.getcwd()  # Hosts start their hooks in it.
    if not cwd.startswith("/") or "\0" in cwd or not os.path.isdir(cwd):
        raise HookFailedError(
            cwd.replace("\0", "\\0"),
            "The hook was not told a working directory that exists, so it cannot judge.",
        )
    start = here = os.path.realpath(cwd)
    while True:
        if os.path.lexists(f"{here}/{STATE_FOLDER}") or os.path.lexists(f"{here}/.git"):
            return here
        above = os.path.dirname(here)
        if above == here:
            return start
        here = above


def load_settings(cwd: str) -> Settings:
    """Return the settings of the project that a working directory is in."""
    root = find_root(cwd)
    if os.path.lexists(f"{root}/{CONFIG_NAME}") or _is_in_pyproject(f"{root}/pyproject.toml"):
        return _configured(root)
    return Settings(root)


def _is_in_pyproject(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return b"[tool.noclobber" in os.read(descriptor, 1 << 20)
    finally:
        os.close(descriptor)


def _configured(root: str) -> Settings:
    from noclobber.core.options import DEFAULTS, load_options

    options = load_options(root, DEFAULTS._replace(scope="session"))
    scope = options.write_scope
    folders = None if scope is None else tuple(os.path.realpath(os.path.join(root, part)) for part in scope)
    return Settings(
        root,
        rebaseline=options.rebaseline,
        deny_unread=options.unread == "deny",
        deny_partial=options.partial == "deny",
        is_per_turn=options.scope == "turn",
        write_scope=folders,
    )
