"""`--root`: which project a command is about. Without it, the one that `find_project` finds from here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.core.project import existing_folder, find_project

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_root(parser: ArgumentParser) -> None:
    """Declare `--root`."""
    parser.add_argument(
        "--root", metavar="DIR", help="the project (default: the nearest one upward from here)"
    )


def root_of(args: Namespace) -> str:
    """Return the canonical root of the project that is meant."""
    return existing_folder(args.root) if args.root is not None else find_project(os.getcwd())
