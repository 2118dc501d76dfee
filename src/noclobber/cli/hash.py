"""`noclobber hash FILE …`: the SHA-256 that a guarded write compares with; `ABSENT` if there is no file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_NO, EXIT_OK
from noclobber.cli.parsing import add_root
from noclobber.cli.terminal import add_json, print_json, visible
from noclobber.cli.write import folder_of
from noclobber.core.project import existing_folder, find_project
from noclobber.errors import ABSENT, DELETED, NOT_A_FILE, UNREADABLE

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

WHY = {
    ABSENT: "there is no such file",
    NOT_A_FILE: "this is not a file",
    UNREADABLE: "this user may not read it",
}

EXAMPLES = """\
examples:
  seen=$(noclobber hash plan.md)     for `noclobber write plan.md --expect "$seen"`
  noclobber hash src/*.py            several: a hash and a name on each line

exit code 1 if one of them does not exist (its hash is ABSENT), or is no file that can be read
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="a file")
    add_root(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    """Print the hashes."""
    from noclobber.disk.file_guard import FileGuard

    rows = []
    for name in args.files:
        path = name if "\0" in name or not name else os.path.abspath(name)
        root = existing_folder(args.root) if args.root is not None else find_project(folder_of(path))
        guard = FileGuard(root)
        found = guard.locate(path)
        sha256 = guard.digest(found)
        rows.append({"path": found, "sha256": ABSENT if sha256 == DELETED else sha256})
    if args.json:
        print_json({"files": rows})
    elif len(rows) == 1:
        print(rows[0]["sha256"])
    else:
        for name, row in zip(args.files, rows, strict=True):
            print(f"{row['sha256']:<64}  {visible(name)}")
    without = [row for row in rows if row["sha256"] in WHY]
    if not args.json:
        for row in without:
            print(f"noclobber: {visible(row['path'])}: {WHY[row['sha256']]}", file=sys.stderr)
    return EXIT_NO if without else EXIT_OK
