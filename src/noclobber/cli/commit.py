"""`noclobber commit --mine`: a git commit of exactly what one agent or session wrote."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_NO, EXIT_OK, EXIT_REFUSED
from noclobber.cli.clean_output import data_out
from noclobber.cli.parsing import add_root, root_of
from noclobber.cli.terminal import add_json, print_json, say, styled, visible
from noclobber.errors import BadRequestError
from noclobber.guard.git.commit import CommitMade, commit_mine
from noclobber.guard.git.digest import read_recorded
from noclobber.guard.git.mine import FileCommit, Mine
from noclobber.ledger.history import landed_writes
from noclobber.text.diff import unified
from noclobber.view.shown_events import shortened

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

EXAMPLES = """\
examples:
  noclobber commit --mine --agent builder-1 -m Parser
  noclobber commit --mine --session 4f2a91c3 --dry-run     what would be committed, as a patch
  noclobber commit --mine --agent ana --agent bob -m "…"   both together, where their changes touch

Changes of others in the same files stay uncommitted, and what others have staged stays staged.
"""
MOST_NAMED = 8


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--mine", action="store_true", help="what the named agent or session wrote")
    parser.add_argument(
        "-m", "--message", action="append", metavar="TEXT", help="the message; several are paragraphs"
    )
    parser.add_argument(
        "--agent", action="append", metavar="NAME", help="changes of this agent (default: $NOCLOBBER_AGENT)"
    )
    parser.add_argument(
        "--session", action="append", metavar="ID", help="changes of this session, or that begins so"
    )
    parser.add_argument("--file", action="append", metavar="FILE", help="only this file, or files in it")
    parser.add_argument("--dry-run", action="store_true", help="show it as a diff, and commit nothing")
    parser.add_argument(
        "--no-verify", action="store_true", help="without the hooks pre-commit and commit-msg"
    )
    add_root(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    """Plan it, show it, do it."""
    if not args.mine:
        raise BadRequestError("", "Say --mine. For any other commit use git itself.")
    root = root_of(args)
    agents = args.agent or ([] if args.session else [os.environ.get("NOCLOBBER_AGENT")])
    mine = Mine(tuple(filter(None, agents)), tuple(filter(None, args.session or ())))
    _refuse_unclear(root, mine)
    if not args.message and not args.dry_run:
        raise BadRequestError("", "A commit needs a message: -m TEXT.")
    paths = None if args.file is None else [os.path.realpath(name) for name in args.file]
    here = os.path.realpath(os.getcwd())
    made = commit_mine(
        root,
        mine,
        "\n\n".join(args.message or ()),
        folder=here if args.root is None and f"{here}/".startswith(f"{root}/") else root,
        paths=paths,
        dry_run=args.dry_run,
        verify=not args.no_verify,
    )
    if args.json:
        print_json(_as_json(made))
    else:
        _print(root, made, dry_run=args.dry_run)
    return EXIT_REFUSED if made.plan.obstacles else EXIT_OK if made.plan.files else EXIT_NO


def _refuse_unclear(root: str, mine: Mine) -> None:
    """Say whose changes there are, if it was not said, or if several sessions begin so."""
    if not any(mine):
        known = sorted({write.who for write in landed_writes(root)})
        names = "; ".join(map(shortened, known[:MOST_NAMED])) + ("; …" if known[MOST_NAMED:] else "")
        raise BadRequestError(
            "", f"Say whose changes: --agent NAME or --session ID. On record here: {names or 'nobody'}."
        )
    if not mine.sessions:
        return
    authors = {author for file in read_recorded(root).files for author in file.authors}
    sessions = {author.session_id or "" for author in authors}
    for given in mine.sessions:
        found = {each for each in sessions if each.startswith(given)}
        if len(found) > 1 and given not in found:
            raise BadRequestError("", f"{len(found)} sessions begin with {given!r}; give more of it.")


def _as_json(made: CommitMade) -> dict[str, Any]:
    return {
        "done": made.commit is not None,
        "commit": made.commit,
        "files": [
            {"file": each.path, "change": _change(each), "left_by": list(each.left)}
            for each in made.plan.files
        ],
        "obstacles": [
            {
                "file": each.path,
                "reason": each.reason,
                "lines": [[start + 1, max(end, start + 1)] for start, end in each.lines],
                "owners": list(each.owners),
            }
            for each in made.plan.obstacles
        ],
        "skipped": [{"file": path, "reason": reason} for path, reason in made.plan.skipped],
    }


def _change(each: FileCommit) -> str:
    return "deleted" if each.after is None else "created" if each.before is None else "changed"


def _print(root: str, made: CommitMade, *, dry_run: bool) -> None:
    for path, reason in made.plan.skipped:
        print(f"skipped  {visible(os.path.relpath(path, root))}: {visible(reason)}", file=sys.stderr)
    for obstacle in made.plan.obstacles:
        name = visible(os.path.relpath(obstacle.path, root))
        say(f"{styled('conflict', 'bad')}  {name}: {visible(obstacle.reason)}")
    if made.plan.obstacles:
        say("Nothing would be committed. --file FILE commits one file alone.")
        return
    if not made.plan.files:
        say("There is nothing to commit: no change on record of theirs is uncommitted.")
        return
    if dry_run:
        for each in made.plan.files:
            data_out().write(unified(each.before or b"", each.after or b"", f"/{each.path}"))
        print(f"Would commit {_count(made)}.", file=sys.stderr)  # So that stdout is a patch.
        return
    print(f"Committed {_count(made)} as {(made.commit or '')[:12]}:")
    for each in made.plan.files:
        left = (
            f"  (others' changes stay uncommitted: {'; '.join(map(visible, each.left))})" if each.left else ""
        )
        print(f"  {_change(each)}  {visible(each.path)}{left}")


def _count(made: CommitMade) -> str:
    return "1 file" if len(made.plan.files) == 1 else f"{len(made.plan.files)} files"
