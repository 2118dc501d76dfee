"""`noclobber blame FILE`: for every line, which agent's write it comes from, or whose else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_OK
from noclobber.cli.parsing import add_root
from noclobber.cli.terminal import (
    add_json,
    cells_wide,
    columns_wide,
    is_terminal,
    print_json,
    shortened,
    styled,
    visible,
)
from noclobber.core.project import existing_folder, find_project
from noclobber.disk.file_guard import FileGuard
from noclobber.guard.blame import Author, BlamedLine, blame
from noclobber.ledger.browse import SHORT_SESSION

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
_SHORT_KINDS = {"outsider": "(outsider)", "first": "(before)", "unknown": "(unknown)"}
WIDEST = 32
NARROW = 72  # In a terminal with fewer columns the file's own text gets the room of the time.


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
    is_narrow = is_terminal() and columns_wide() < NARROW
    widest = max(8, columns_wide() // 3) if is_narrow else WIDEST
    names = [
        shortened(visible(_who(each.author, _SHORT_KINDS if is_narrow else _KINDS)), widest) for each in lines
    ]
    width = max(map(cells_wide, names), default=0)
    for number, (who, each) in enumerate(zip(names, lines, strict=True), 1):
        time = each.author.write.time[:16] if each.author.kind == "agent" and each.author.write else ""
        text = visible(each.text.decode("utf-8", "replace").rstrip("\r\n"))
        padded = who + " " * (width - cells_wide(who))
        beside = padded if is_narrow else f"{padded} {time:<16}"
        print(f"{styled(beside, 'faint')} {number:>{3 if is_narrow else 5}}  {text}")
    return EXIT_OK


def _who(author: Author, kinds: dict[str, str]) -> str:
    """The agent and the beginning of its session, as in other tables."""
    if author.kind != "agent" or not author.write:
        return kinds[author.kind]
    return f"{author.write.agent_id or 'an agent'} {(author.write.session_id or '')[:SHORT_SESSION]}".rstrip()


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
