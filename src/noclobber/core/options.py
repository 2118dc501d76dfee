"""
The options of a workspace and of a turn: names, values, and errors that say what was meant.

| option | values | meaning |
|---|---|---|
| `rebaseline` | `"on-read"`, `"after-conflict"` | does every whole re-read move the baseline |
| `unread` | `"allow"`, `"deny"` | writes to existing files that the turn has not read |
| `partial` | `"allow"`, `"deny"` | replacing a file of which only a part was seen |
| `scope` | `"turn"`, `"session"` | how long baselines live |
| `write_scope` | None, folders | where the turn may write (K-WRITE-1); None: anywhere |
| `durable` | False, True | flush to the disk before a write counts as done |
| `wait_s` | 0 … 3600 | how long to wait for somebody who has the file open for writing |
| `retained_file_bytes`, `retained_turn_bytes` | ≥ 0 | what is kept of baselines for diffs |
"""

from __future__ import annotations

import os

from noclobber.core.project import OPTIONS_NAME, SHARED_OPTIONS_NAME
from noclobber.errors import BadRequestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal, NamedTuple
else:
    from noclobber.core.light.named_tuples import NamedTuple

LONGEST_WAIT_S = 3600.0
RETAINED_FILE_BYTES = 1 << 20
RETAINED_TURN_BYTES = 64 << 20


class Options(NamedTuple):
    """What a workspace or a turn was asked to do. Build one with `options()`, which checks."""

    rebaseline: Literal["on-read", "after-conflict"] = "on-read"
    unread: Literal["allow", "deny"] = "allow"
    partial: Literal["allow", "deny"] = "allow"
    scope: Literal["turn", "session"] = "turn"
    write_scope: tuple[str, ...] | None = None
    durable: bool = False
    wait_s: float = 1.0
    retained_file_bytes: int = RETAINED_FILE_BYTES
    retained_turn_bytes: int = RETAINED_TURN_BYTES


DEFAULTS = Options()
HOOK_DEFAULTS = DEFAULTS._replace(scope="session")  # A coding agent's model remembers earlier turns.

_CHOICES = {
    "rebaseline": ("on-read", "after-conflict"),
    "unread": ("allow", "deny"),
    "partial": ("allow", "deny"),
    "scope": ("turn", "session"),
}


def options(given: Mapping[str, Any], base: Options = DEFAULTS) -> Options:
    """Return `base` with the given options changed; `BadRequestError` names what is wrong with them."""
    checked: dict[str, Any] = {}
    for name, value in given.items():
        if name not in Options._fields:
            raise BadRequestError("", _unknown(name), option=name)
        checked[name] = _checked(name, value)
    return base._replace(**checked)


def load_options(root: str, base: Options = DEFAULTS) -> Options:
    """Return `base` with what the options file in a project's root changes. `ConfigError` if it is wrong."""
    if not os.path.lexists(f"{root}/{OPTIONS_NAME}") and not os.path.lexists(f"{root}/{SHARED_OPTIONS_NAME}"):
        return base
    from noclobber.core.options_file import load

    given = load(root).given
    return options(given, base) if given else base


def _checked(name: str, value: Any) -> Any:
    if name in _CHOICES:
        if value in _CHOICES[name]:
            return value
        raise _bad(name, value, "one of " + ", ".join(repr(choice) for choice in _CHOICES[name]))
    if name == "durable":
        if isinstance(value, bool):
            return value
        raise _bad(name, value, "True or False")
    if name == "wait_s":
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LONGEST_WAIT_S:
            return float(value)
        raise _bad(name, value, f"seconds from 0 to {LONGEST_WAIT_S:.0f}")
    if name == "write_scope":
        return _folders(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise _bad(name, value, "a number of bytes, 0 or more")


def _folders(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    # A lone string is a sequence of one-letter folders to Python, and surely not to its author.
    if not isinstance(value, (str, bytes, os.PathLike)):
        try:
            folders = tuple(os.fspath(folder) for folder in value)
        except TypeError:
            folders = (b"",)
        if all(isinstance(folder, str) and folder for folder in folders):
            return folders
    raise _bad("write_scope", value, "a list of folders, or None for anywhere in the workspace")


def _bad(name: str, value: Any, wanted: str) -> BadRequestError:
    return BadRequestError("", f"The option {name} must be {wanted}, not {value!r}.", option=name)


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, Options._fields, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(Options._fields)}."
    return f"There is no option {name!r}.{hint}"
