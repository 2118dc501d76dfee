"""
Which workspace a command is about: `--root`, or the nearest one upwards from here, as git does it.

A folder is a workspace if it has `.noclobber/` (somebody wrote through the guard here) or a configuration
of ours. If there is none, the repository around here is meant, because that is where a coding agent's
hook would work, and if there is none either, the current folder: nothing has happened in it yet, and
commands say so.
"""

from __future__ import annotations

import os

from noclobber.core.options_file import configured_in
from noclobber.disk.paths import STATE_FOLDER
from noclobber.errors import MissingFileError, NotAFileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

LEDGER_NAME = "agent_trace.jsonl"


def add_root(parser: ArgumentParser) -> None:
    """Declare `--root`."""
    parser.add_argument(
        "--root", metavar="DIR", help="the workspace (default: the nearest one upwards from here)"
    )


def root_of(args: Namespace) -> str:
    """Return the canonical root of the workspace that is meant."""
    return folder_given(args.root) if args.root is not None else find_root(os.getcwd())


def folder_given(folder: str) -> str:
    """Return a folder that was named, canonical; refuse what is none."""
    if "\0" in folder or not os.path.lexists(folder):
        raise MissingFileError(folder.replace("\0", "\\0"), "there is no such folder.")
    if not os.path.isdir(folder):
        raise NotAFileError(folder, "this is not a folder.")
    return os.path.realpath(folder)


def find_root(start: str) -> str:
    """Return the nearest workspace at or above a folder; else the nearest repository; else the folder."""
    start = os.path.realpath(start)
    above = [start]
    while above[-1] != os.path.dirname(above[-1]):
        above.append(os.path.dirname(above[-1]))
    for folder in above:
        if os.path.isdir(f"{folder}/{STATE_FOLDER}") or configured_in(folder):
            return folder
    return next((folder for folder in above if os.path.lexists(f"{folder}/.git")), start)


def ledger_path(root: str) -> str:
    """Return where a workspace's ledger stands."""
    return f"{root}/{STATE_FOLDER}/{LEDGER_NAME}"
