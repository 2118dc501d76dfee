"""
Which level a place gives to shell commands: `guarded` if a private view can be made here, else `watched`.

The probe makes the view and ends: a system that counts namespaces, forbids mounts or has the project on an
overlay itself says so only when it is tried. The state folder must be there.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from noclobber.shell import runs
from noclobber.shell.namespace import PrivateView, UnavailableError
from noclobber.shell.roots import why_not

GUARDED, WATCHED = "guarded", "watched"
MOST_BYTES = 4096


class ShellLevel(NamedTuple):
    """What commands get here, and why it is not more."""

    name: str
    why: str = ""


def probe(root: str) -> ShellLevel:
    """Return the level, by making a private view in a child process and leaving it again."""
    reason = why_not(root)
    if reason is not None:
        return ShellLevel(WATCHED, reason)
    try:
        folder = runs.made(root)
    except OSError as error:
        return ShellLevel(WATCHED, f"{error.strerror}: {error.filename}")
    try:
        return _try(root, folder.path)
    except UnavailableError as error:
        return ShellLevel(WATCHED, str(error))
    except OSError as error:
        return ShellLevel(WATCHED, error.strerror or str(error))
    finally:
        folder.remove()


def _try(root: str, run_folder: str) -> ShellLevel:
    view = PrivateView(root, run_folder)  # Loads what it needs before the fork.
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            view.enter()
            os.write(write_fd, b"+")
        except UnavailableError as error:
            os.write(write_fd, b"-" + str(error).encode("utf-8", "replace")[: MOST_BYTES - 1])
        finally:
            os._exit(0)
    os.close(write_fd)
    try:
        said = os.read(read_fd, MOST_BYTES)
    finally:
        os.close(read_fd)
        os.waitpid(child, 0)
    if said == b"+":
        return ShellLevel(GUARDED)
    return ShellLevel(WATCHED, said[1:].decode("utf-8", "replace") or "the attempt ended without an answer")
