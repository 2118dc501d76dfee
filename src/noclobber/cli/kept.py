"""
`noclobber kept list | show | restore | drop`: versions that were kept aside for a person.

Somebody wrote to a version after it had been replaced, or a host wrote over what somebody had just saved.
Only a person can say whether those bytes are still wanted. (`noclobber versions` is about what guarded writes
replaced; that expires by itself.)
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_NO, EXIT_OK
from noclobber.cli.parsing import add_root, root_of
from noclobber.cli.tables import table
from noclobber.cli.terminal import Cell, add_json, is_terminal, moment, print_json, say, visible
from noclobber.guard import kept_versions

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from noclobber.disk.commit.leftovers import Kept

EXAMPLES = """\
examples:
  noclobber kept list                       what is kept, and which file it belongs to
  noclobber kept show kept-3f2a91           print one, by its name or the beginning of it
  noclobber kept restore kept-3f2a91        put it back; what is there now is a past version
  noclobber kept drop kept-3f2a91           it is not wanted any more
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the subcommands."""
    subcommands = parser.add_subparsers(
        title="subcommands", metavar="SUBCOMMAND", dest="subcommand", required=True
    )
    for name, summary in SUMMARIES.items():
        each = subcommands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if name != "list":
            each.add_argument("name", metavar="NAME", help="its name, as `list` shows it, or the beginning")
        if name == "restore":
            each.add_argument("file", metavar="FILE", nargs="?", help="default: the file that it belongs to")
        add_root(each)
        add_json(each)


SUMMARIES = {
    "list": "list what is kept, and which file it belongs to",
    "show": "print a kept version",
    "restore": "make a kept version the content of its file again, by a guarded write",
    "drop": "remove a kept version",
}


def run(args: Namespace) -> int:
    """List, show, put back or remove."""
    root = root_of(args)
    return {"list": _list, "show": _show, "restore": _restore, "drop": _drop}[args.subcommand](args, root)


def _list(args: Namespace, root: str) -> int:
    found = kept_versions.listed(root)
    rows = [_as_json(root, each) for each in found]
    if args.json:
        print_json({"root": root, "kept": rows})
        return EXIT_OK
    if not rows:
        say("Nothing is kept.")
        return EXIT_OK
    shown = [
        [
            Cell(row["name"], "warn"),
            str(row["size_bytes"]),
            moment(row["changed"] or ""),
            os.path.relpath(row["file"], root) if row["file"] else Cell("(not on record)", "faint"),
        ]
        for row in rows
    ]
    print(table(("name", ">bytes", "written", "file"), shown), end="")
    return EXIT_OK


def _as_json(root: str, kept: Kept) -> dict[str, Any]:
    return {
        "name": os.path.basename(kept.path),
        "path": kept.path,
        "file": kept_versions.origin(root, kept),
        "size_bytes": kept.size_bytes,
        "changed": kept.changed,
    }


def _show(args: Namespace, root: str) -> int:
    from noclobber.cli.versions import spelled

    kept = kept_versions.named(root, args.name)
    content, _ = kept_versions.read(kept)
    if args.json:
        row = _as_json(root, kept)
        print_json({**row, "size_bytes": len(content), **spelled(content)})
    elif is_terminal():
        for line in content.decode("utf-8", "replace").splitlines():
            print(visible(line))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
    return EXIT_OK


def _restore(args: Namespace, root: str) -> int:
    name = os.path.basename(kept_versions.named(root, args.name).path)
    file = None if args.file is None else os.path.abspath(args.file)
    path = kept_versions.restore(root, name, file)
    if args.json:
        print_json({"name": name, "path": path})
    else:
        say(f"{visible(path)} is the kept version again; what was there is a past version.")
    return EXIT_OK


def _drop(args: Namespace, root: str) -> int:
    path = kept_versions.drop(root, args.name)
    if args.json:
        print_json({"name": os.path.basename(path), "path": path})
    else:
        say(f"{visible(os.path.basename(path))} is removed.")
    return EXIT_OK if not os.path.lexists(path) else EXIT_NO
