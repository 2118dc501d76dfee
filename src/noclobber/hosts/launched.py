"""
Coding agents that run their commands with `bash -c`, and take their environment from whoever starts them.

None of them has a setting that names a shell, and a hook that answers with another command would have the
user's permission rules judge that one. But bash reads the file that BASH_ENV names before it runs a command,
and what a host is started with, its shell inherits. So `noclobber start HOST` brings its shell to us, and the
command is untouched. Started plainly, its commands are watched.

The shell has no session's id in every one of them. So each start has an id of its own, which the hooks
inherit, too, and notes are left under it (`hook/guarded_calls`).
"""

from __future__ import annotations

import os
import sys

MARK = "NOCLOBBER_SHELL_"
LAUNCH = f"{MARK}LAUNCH"
NOTES = f"{MARK}NOTES"
"""How the paths of the notes of this start begin: without one, no shell needs to come to us."""


def environment(host: str) -> dict[str, str]:
    """Return what has to be in a host's environment."""
    from noclobber.hosts import traits

    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return {
        **traits.of(host).variables,
        "BASH_ENV": f"{package}/hosts/shell_env/bash_env.sh",
        f"{MARK}BASH_ENV": os.environ.get("BASH_ENV", ""),
        f"{MARK}PYTHON": os.path.realpath(sys.executable),
        f"{MARK}START": f"{package}/cli/shell_prefix.py",
        f"{MARK}HOST": host,
        LAUNCH: os.urandom(16).hex(),
        # Cline's shells have a socket as their input. The first shell of all would take that for a login from
        # afar, and read ~/.bashrc instead.
        "SHLVL": os.environ.get("SHLVL", "").lstrip("0") or "1",
    }


def launch_of(host: str) -> str:
    """Return the id of the start that this process comes from; empty if the host was started plainly."""
    return os.environ.get(LAUNCH, "") if os.environ.get(f"{MARK}HOST") == host else ""
