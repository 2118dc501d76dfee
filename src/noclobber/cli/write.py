"""
`noclobber write FILE --expect HASH`: a guarded write for scripts. The new content comes from stdin.

The same compare and swap as everywhere: it lands if the file still has that hash, it is on record, and what
it replaces is kept as a past version. `noclobber hash FILE` says the hash.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_OK
from noclobber.cli.terminal import add_json, is_terminal, print_json, visible
from noclobber.core.project import existing_folder, find_project, is_marked, no_project
from noclobber.errors import ABSENT, BadRequestError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

EXAMPLES = """\
examples:
  seen=$(noclobber hash plan.md)                              what the script has seen
  sed s/old/new/ plan.md | noclobber write plan.md --expect "$seen"
  noclobber write new.md --expect ABSENT < draft.md           create it; refused if it exists
  noclobber write plan.md --any --from draft.md               whatever is there now

exit codes: 0 written; 3 refused, nothing was changed (stale: read it again); 2 called wrongly
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("file", metavar="FILE", help="the file to replace or create")
    seen = parser.add_mutually_exclusive_group(required=True)
    seen.add_argument("--expect", metavar="HASH", help=f"the SHA-256 that it must have, or {ABSENT}")
    seen.add_argument("--any", action="store_true", help="whatever it is now; it is kept as a past version")
    parser.add_argument(
        "--from", dest="source", metavar="PATH", help="take the content from here (default: stdin)"
    )
    parser.add_argument("--agent", metavar="NAME", help="who writes, for the record (default: script)")
    parser.add_argument("--session", metavar="ID", help="the session, for the record")
    parser.add_argument("--root", metavar="DIR", help="the project (default: the one that the file is in)")
    add_json(parser)


def run(args: Namespace) -> int:
    """Write it, or refuse."""
    from noclobber.guard.workspace import Workspace

    path = args.file if "\0" in args.file or not args.file else os.path.abspath(args.file)
    root = existing_folder(args.root) if args.root is not None else _project_of(path)
    content = _content(args.source)
    agent_id = args.agent or os.environ.get("NOCLOBBER_AGENT") or "script"
    with (
        Workspace(root) as workspace,
        workspace.turn(agent_id=agent_id, session_id=args.session, on_stale="refuse", unread="allow") as turn,
    ):
        expected = None if args.any else _expected(args.expect)
        done = turn.write_file(path, content, expected_hash=expected)
    if args.json:
        print_json(
            {
                "path": done.path,
                "sha256": done.sha256,
                "previous_sha256": done.previous_sha256,
                "level": done.level,
            }
        )
    else:
        print(f"{visible(done.path)}  {done.sha256}")
    return EXIT_OK


def _project_of(path: str) -> str:
    """
    Return the project that a file is in; refuse if it is in none.

    The record would make one of its folder. From then on everything below would belong to that, every
    repository too (ruling 16).
    """
    root = find_project(folder_of(path))
    is_one = is_marked(root) or os.path.lexists(f"{root}/.git") or root == find_project(os.getcwd())
    if no_project(root) or not is_one:
        raise BadRequestError(
            path,
            f"this file is in no project, and a record in {root} would be one for everything below it. "
            "--root FOLDER says which folder is meant.",
        )
    return root


def _content(source: str | None) -> bytes:
    if source is not None:
        with open(source, "rb") as file:
            return file.read()
    if sys.stdin is None:  # `<&-`
        raise BadRequestError("", "There is nothing to read: stdin is closed. --from names a file.")
    if is_terminal(sys.stdin):
        print("noclobber: write: type the content, then Ctrl-D", file=sys.stderr)
    return sys.stdin.buffer.read()


def _expected(text: str) -> str:
    """A hash as people copy it."""
    wanted = text.strip()
    if wanted.upper() == ABSENT:
        return ABSENT
    wanted = wanted.lower().removeprefix("sha256:")
    if len(wanted) != 64 or set(wanted) - set("0123456789abcdef"):
        raise BadRequestError("", f"--expect takes a whole SHA-256 or {ABSENT}, not {text!r}.")
    return wanted


def folder_of(path: str) -> str:
    """The nearest folder above a path that exists; a file's own folder may be missing."""
    folder = os.path.dirname(path) or "."
    while not os.path.isdir(folder) and folder not in ("/", "."):
        folder = os.path.dirname(folder)
    return folder
