"""`noclobber undo`: undo what one agent, session, turn or call wrote, and nothing else."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_NO, EXIT_OK, EXIT_REFUSED
from noclobber.cli.clean_output import data_out
from noclobber.cli.project import add_root, root_of
from noclobber.cli.terminal import add_json, print_json, say, styled, visible
from noclobber.cli.working import Working
from noclobber.disk import hashing
from noclobber.errors import BadRequestError
from noclobber.guard.undo import AGENT_ID, FileUndo, Selection, UndoPlan, carry_out, plan
from noclobber.guard.workspace import Workspace
from noclobber.ledger.history import landed_writes
from noclobber.text.diff import unified
from noclobber.view.shown_events import shortened

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

MOST_NAMES = 10

EXAMPLES = """\
examples:
  noclobber undo --agent builder-1 --dry-run    what would be undone, as a diff
  noclobber undo --session 4f2a91c3             everything of a session; the first digits are enough
  noclobber undo --call toolu_01A --file a.py   one call, one file

`noclobber ledger show` has the names. Changes of others stay; where they are in the way, nothing is done.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--agent", metavar="NAME", help="writes of this agent")
    parser.add_argument("--session", metavar="ID", help="writes of this session, or that begins so")
    parser.add_argument("--turn", metavar="ID", help="writes of this turn")
    parser.add_argument("--call", metavar="ID", help="writes of this tool call")
    parser.add_argument("--file", metavar="FILE", help="only this file")
    parser.add_argument("--dry-run", action="store_true", help="show it as a diff, and change nothing")
    add_root(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    """Plan it, show it, do it."""
    if not any((args.agent, args.session, args.turn, args.call)):
        names = sorted({write.agent_id for write in landed_writes(root_of(args)) if write.agent_id})
        known = f" On record: {', '.join(map(shortened, names[:MOST_NAMES]))}." if names else ""
        raise BadRequestError("", f"Say whose writes: --agent, --session, --turn or --call.{known}")
    root = root_of(args)
    path = None if args.file is None else os.path.realpath(args.file)
    chosen = Selection(args.agent, args.session, args.turn, args.call, path)
    _refuse_ambiguous(root, args.session)
    with Workspace(root) as workspace, workspace.turn(agent_id=AGENT_ID, on_stale="refuse") as turn:
        turn_id = turn.turn_id
        with Working("working out what to undo") as work:
            planned = plan(turn, chosen, work.share)
        is_possible = bool(planned.writes) and not planned.obstacles
        if is_possible and not args.dry_run:
            with Working(f"undoing it in {len(planned.files)} files, all at once"):
                carry_out(turn, planned)
    if args.json:
        print_json(_as_json(planned, turn_id if is_possible and not args.dry_run else None))
    else:
        _print(root, planned, turn_id, dry_run=args.dry_run)
    return EXIT_REFUSED if planned.obstacles else EXIT_OK if planned.writes else EXIT_NO


def _refuse_ambiguous(root: str, session: str | None) -> None:
    if session is None:
        return
    found = {write.session_id or "" for write in landed_writes(root)}
    found = {each for each in found if each.startswith(session)}
    if len(found) > 1 and session not in found:
        raise BadRequestError("", f"{len(found)} sessions begin with {session!r}; give more of it.")


def _as_json(planned: UndoPlan, turn_id: str | None) -> dict[str, Any]:
    return {
        "done": turn_id is not None,
        "turn": turn_id,
        "writes": [
            {"file": each.path, "time": each.time, "agent": each.agent_id, "call": each.call_id}
            for each in planned.writes
        ],
        "files": [
            {"file": each.path, "before": _hash(each.before), "after": _hash(each.after)}
            for each in planned.files
        ],
        "obstacles": [
            {"file": each.path, "reason": each.reason, "time": each.write.time} for each in planned.obstacles
        ],
    }


def _hash(content: bytes | None) -> str | None:
    return None if content is None else hashing.of_bytes(content)


def _print(root: str, planned: UndoPlan, turn_id: str, *, dry_run: bool) -> None:
    if not planned.writes:
        say("There is nothing to undo: no write on record matches, or all of them were undone already.")
        return
    for obstacle in planned.obstacles:
        name, time = visible(os.path.relpath(obstacle.path, root)), obstacle.write.time[:19]
        say(f"{styled('conflict', 'bad')}  {name}, written {time}Z: {visible(obstacle.reason)}")
    if planned.obstacles:
        say("Nothing was changed. --file FILE takes back one file alone.")
        say("`noclobber versions list FILE` has all versions of one, to restore by hand.")
        return
    if not planned.files:
        say("There is nothing to change: the files are already as they were before those writes.")
        return
    count = "1 write" if len(planned.writes) == 1 else f"{len(planned.writes)} writes"
    if dry_run:
        for each in planned.files:
            _write_patch(_diff(root, each))
        print(f"Would undo {count}.", file=sys.stderr)  # So that stdout is a patch.
        return
    print(f"Undid {count}:")
    for each in planned.files:
        what = "removed" if each.after is None else "restored" if each.before is None else "changed"
        print(f"  {what}  {visible(os.path.relpath(each.path, root))}")
    print(f"To undo the undo: noclobber undo --turn {turn_id}")


def _diff(root: str, each: FileUndo) -> str:
    name = f"/{os.path.relpath(each.path, root)}"
    return unified(each.before or b"", each.after or b"", name, "surrogateescape")


def _write_patch(patch: str) -> None:
    """Write a patch for a program byte by byte: of a file that is not UTF-8, too."""
    stream = data_out()
    data = patch.encode("utf-8", "surrogateescape")
    raw = None if stream.isatty() else getattr(stream, "buffer", None)
    if raw is None:
        stream.write(data.decode("utf-8", "replace"))
        return
    stream.flush()
    raw.write(data)
    raw.flush()
