"""`noclobber blame FILE`: for every line, which agent's write it comes from, or whose else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_OK
from noclobber.cli.project import add_root
from noclobber.cli.terminal import add_json, print_json, styled, visible
from noclobber.core.project import existing_folder, find_project
from noclobber.disk.file_guard import FileGuard
from noclobber.guard.blame import Author, BlamedLine, blame

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

EXAMPLES = """\
examples:
  noclobber blame plan.md
  noclobber blame plan.md --json     one object a line of the file

From the ledger and the versions that are kept (docs/versions.md). Where bytes are gone, it says so.
"""

_KINDS = {
    "outsider": "(an outsider)",
    "first": "(before the first event)",
    "unknown": "(unknown: bytes gone)",
}
WIDEST = 32


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("file", metavar="FILE", help="the file")
    add_root(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    """Print every line with its author."""
    name = args.file if "\0" in args.file or not args.file else os.path.abspath(args.file)
    root = existing_folder(args.root) if args.root is not None else find_project(os.path.dirname(name) or ".")
    found = FileGuard(root).read(name)
    lines = blame(root, found.path, found.content)
    if args.json:
        print_json({"path": found.path, "sha256": found.sha256, "lines": [_as_json(each) for each in lines]})
        return EXIT_OK
    width = max((min(len(_who(each.author)), WIDEST) for each in lines), default=0)
    for number, each in enumerate(lines, 1):
        who = visible(_who(each.author))[:WIDEST]
        time = each.author.write.time[:16] if each.author.kind == "agent" and each.author.write else ""
        text = visible(each.text.decode("utf-8", "replace").rstrip("\r\n"))
        print(f"{styled(f'{who:<{width}} {time:<16}', 'faint')} {number:>5}  {text}")
    return EXIT_OK


def _who(author: Author) -> str:
    return author.write.who if author.kind == "agent" and author.write else _KINDS[author.kind]


def _as_json(each: BlamedLine) -> dict[str, Any]:
    kind, write = each.author
    of_agent = write if kind == "agent" else None
    return {
        "text": each.text.decode("utf-8", "replace"),
        "by": kind,
        "agent": of_agent.agent_id if of_agent else None,
        "session": of_agent.session_id if of_agent else None,
        "turn": of_agent.turn_id if of_agent else None,
        "call": of_agent.call_id if of_agent else None,
        "time": of_agent.time if of_agent else None,
    }
