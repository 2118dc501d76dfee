"""`noclobber undo`: undo what one agent, session, turn or call wrote, and nothing else."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_NO, EXIT_OK, EXIT_REFUSED
from noclobber.cli.clean_output import data_out
from noclobber.cli.parsing import add_root, root_of
from noclobber.cli.terminal import add_json, print_json, say, styled, visible
from noclobber.cli.working import Working
from noclobber.disk import hashing
from noclobber.errors import BadRequestError
from noclobber.guard.git.refs_back import RefUndo
from noclobber.guard.undo import AGENT_ID, FileUndo, Selection, UndoPlan, carry_out, plan
from noclobber.guard.undo_beside import LinkText
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
    parser.add_argument(
        "--except", metavar="FILE", action="append", default=[], dest="but", help="not this file; repeatable"
    )
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
    path = None if args.file is None else _canonical(args.file)
    but = frozenset(map(_canonical, args.but))
    chosen = Selection(args.agent, args.session, args.turn, args.call, path, but)
    _refuse_ambiguous(root, args.session)
    done: list[str] = []
    with Workspace(root) as workspace, workspace.turn(agent_id=AGENT_ID, on_stale="refuse") as turn:
        turn_id = turn.turn_id
        with Working("working out what to undo") as work:
            planned = plan(turn, chosen, work.share)
        is_possible = bool(planned.writes) and not planned.obstacles
        if is_possible and not args.dry_run:
            with Working(f"undoing it in {len(planned.files)} files, all at once"):
                done = [result.path for result in carry_out(turn, planned)]
    if args.json:
        print_json(_as_json(planned, turn_id if is_possible and not args.dry_run else None))
    else:
        _print(root, planned, turn_id, done, dry_run=args.dry_run)
    return EXIT_REFUSED if planned.obstacles else EXIT_OK if planned.writes else EXIT_NO


def _canonical(name: str) -> str:
    """Return a path as the ledger has it: the last name is not followed, so that a link can be meant."""
    if os.path.islink(name):
        return os.path.join(os.path.realpath(os.path.dirname(name) or "."), os.path.basename(name))
    return os.path.realpath(name)


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
        "refs": [
            {"repository": each.repository, "ref": each.ref, "before": each.now, "after": each.then}
            for each in planned.refs
        ],
        "left": [{"file": each.path, "reason": each.reason} for each in planned.left],
    }


def _hash(content: bytes | None) -> str | None:
    return None if content is None else hashing.of_bytes(content)


def _print(root: str, planned: UndoPlan, turn_id: str, done: list[str], *, dry_run: bool) -> None:
    if not planned.writes:
        say("There is nothing to undo: no write on record matches, or all of them were undone already.")
        _say_what_stays(root, planned)
        return
    for obstacle in planned.obstacles:
        name, time = visible(os.path.relpath(obstacle.path, root)), obstacle.write.time[:19]
        say(f"{styled('conflict', 'bad')}  {name}, written {time}Z: {visible(obstacle.reason)}")
    if planned.obstacles:
        say("Nothing was changed. --file FILE takes back one file alone.")
        if offered := _the_rest(root, planned):
            say(f"To undo the rest, add: {offered}")
        say("`noclobber versions list FILE` has all versions of one, to restore by hand.")
        return
    count = "1 write" if len(planned.writes) == 1 else f"{len(planned.writes)} writes"
    if dry_run:
        for each in planned.files:
            _write_patch(_diff(root, each))
        for ref in planned.refs:
            print(f"Would move {_ref_line(root, ref)}", file=sys.stderr)
        _say_what_stays(root, planned)
        print(f"Would undo {count}.", file=sys.stderr)  # So that stdout is a patch.
        return
    if not planned.files and not planned.refs and not done:
        say("There is nothing to change: the files are already as they were before those writes.")
    else:
        print(f"Undid {count}:")
    for each in planned.files:
        print(f"  {_what(each)}  {visible(os.path.relpath(each.path, root))}")
    for ref in planned.refs:
        is_moved = ref.path in done
        print(f"  {'moved' if is_moved else 'not moved, somebody was faster:'}  {_ref_line(root, ref)}")
    _say_what_stays(root, planned)
    if done:
        print(f"To undo the undo: noclobber undo --turn {turn_id}")


def _what(each: FileUndo) -> str:
    if each.before == each.after:
        return "mode of"
    return "removed" if each.after is None else "restored" if each.before is None else "changed"


def _the_rest(root: str, planned: UndoPlan) -> str:
    """Return the options that leave out what is in the way; nothing if nothing would be left, or too many."""
    blocked = dict.fromkeys(obstacle.path for obstacle in planned.obstacles)
    is_all = all(write.path in blocked for write in planned.writes)
    if is_all or len(blocked) > MOST_NAMES:
        return ""
    return " ".join(f"--except {shlex.quote(visible(os.path.relpath(path, root)))}" for path in blocked)


def _ref_line(root: str, ref: RefUndo) -> str:
    name = visible(os.path.relpath(ref.path, root))
    return f"{name} from {(ref.now or 'nothing')[:12]} to {(ref.then or 'nothing')[:12]}"


def _say_what_stays(root: str, planned: UndoPlan) -> None:
    for each in planned.left:
        say(f"  stays  {visible(os.path.relpath(each.path, root))}: {visible(each.reason)}")


def _diff(root: str, each: FileUndo) -> str:
    name = f"/{os.path.relpath(each.path, root)}"
    before, after = (
        each.target.encode("utf-8", "surrogateescape") if isinstance(each, LinkText) else each or b""
        for each in (each.before, each.after)
    )
    return unified(before, after, name, "surrogateescape")


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
