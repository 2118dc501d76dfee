"""
Set one option in a project's `noclobber.toml`, for `install`: the rest of the file stays as it is.

Only a key at the top of the file, and only a value that is a word. What comes out is read again before it is
written: a file that would mean something else than before, but for this key, is not written.
"""

from __future__ import annotations

import re
import tomllib

from noclobber.core.options import flat, options
from noclobber.core.options_file import load
from noclobber.core.project import OPTIONS_NAME, SHARED_OPTIONS_NAME
from noclobber.errors import StaleFileError
from noclobber.hosts.install import ConfigChange, read_text, write
from noclobber.hosts.json_edit import BadConfigurationError

ROUNDS = 5


def plan(root: str, name: str, value: str) -> ConfigChange:
    """Return what has to change so that an option has a value. `ConfigError` if the file is wrong already."""
    options({name: value})
    loaded = load(root)
    path = f"{root}/{OPTIONS_NAME}"
    if loaded.path is not None and loaded.path.endswith(f"/{SHARED_OPTIONS_NAME}"):
        if flat(loaded.given).get(name) == value:
            text = read_text(loaded.path)
            return ConfigChange(loaded.path, text, text)
        raise BadConfigurationError(
            loaded.path, f'this project keeps its options here. Add {name} = "{value}" to [tool.noclobber].'
        )
    before = read_text(path)
    if flat(loaded.given).get(name) == value:
        return ConfigChange(path, before, before)
    line = f'{name} = "{value}"\n'
    own = re.compile(rf"^{name}[ \t]*=[^\n]*\n?", re.M)
    text = before or ""
    # At the top, because below a table's title it would be that table's.
    after = own.sub(line, text, count=1) if own.search(text) else line + text
    if tomllib.loads(after) != {**tomllib.loads(text), name: value}:
        raise BadConfigurationError(path, f'it could not be changed. Set {name} = "{value}" in it by hand.')
    return ConfigChange(path, before, after)


def carry_out(root: str, name: str, value: str) -> ConfigChange:
    """Set it; start over if another program changed the file meanwhile."""
    for rounds_left in reversed(range(ROUNDS)):
        change = plan(root, name, value)
        if not change.is_needed:
            return change
        try:
            write(change)
            return change
        except StaleFileError:
            if not rounds_left:
                raise
    raise AssertionError
