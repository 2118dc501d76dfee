"""
Which project a hook's event belongs to, and that project's options.

Both are `core`'s own answers. What hooks add: the folder that the host names, a default scope of "session",
and `write_scope` as canonical folders, because hooks compare it with canonical paths.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.core.project import find_project
from noclobber.errors import HookFailedError

if TYPE_CHECKING:
    from noclobber.core.options import Options

# Set by the host for its hooks. The agent's commands cannot change it.
PROJECT_VARIABLES = ("CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR")


def project_of(cwd: str) -> str:
    """Return the project's root for a working directory; `HookFailedError` if that is not a folder."""
    named = next((folder for name in PROJECT_VARIABLES if (folder := os.environ.get(name))), None)
    cwd = cwd or named or ""  # Not our own: a hook may be started anywhere, and that is nobody's project.
    if not cwd.startswith("/") or "\0" in cwd or not os.path.isdir(cwd):
        raise HookFailedError(
            cwd.replace("\0", "\\0"),
            "The host's event names no working directory that exists, so the write cannot be checked and was "
            "refused. Start the agent again in an existing folder.",
        )
    return find_project(cwd, host_folder=named)


def options_of(root: str) -> Options:
    """Return the options for hooks in a project. `ConfigError` if its file is wrong."""
    from noclobber.core.options import HOOK_DEFAULTS, load_options  # Here: most events need no options.

    # A coding agent's tools have no way to say which version a change is made from.
    options = load_options(root, HOOK_DEFAULTS)._replace(explicit="allow")
    if options.write_scope is None:
        return options
    folders = tuple(os.path.realpath(os.path.join(root, folder)) for folder in options.write_scope)
    return options._replace(write_scope=folders)
