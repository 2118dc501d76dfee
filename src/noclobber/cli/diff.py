"""
`noclobber diff FILE`: what changed in a file since an agent read or wrote it.

Two questions, answered apart, because the second may have no answer:

1. *Did it change?* What agents knew is on record: a session of a coding agent remembers what it was
shown, a landed write says what was written, a refused one what had been read. The latest of these is
compared with the disk. 2. *What changed?* Records hold hashes, never content. The lines can be shown if
bytes with that hash still exist somewhere: among the versions that are kept for a week (docs/versions.md),
among displaced ones, in git (the index and the last commits of that file), or in the memory of a coding
agent's session, which holds what it was shown last.

What it cannot show: the reads of a library turn, which live in the memory of its process. Inside that
process, `turn.changes_since_read()` does.

Exit codes as in diff(1): 0 unchanged, 1 changed, and 3 if nobody is known to have seen it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from noclobber.cli import EXIT_NO, EXIT_OK
from noclobber.cli.clean_output import data_out
from noclobber.cli.parsing import add_root
from noclobber.cli.terminal import add_json, is_terminal, print_json, say, styled, visible
from noclobber.core.project import (
    existing_folder,
    find_project,
)
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import ABSENT, DELETED, BadRequestError, MissingFileError, UnreadFileError
from noclobber.guard.past_bytes import find_bytes
from noclobber.ledger.browse import event_in, summary_of
from noclobber.ledger.chosen import lines_of
from noclobber.ledger.root import relative
from noclobber.text.diff import unified

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator
    from typing import Any

EXAMPLES = """\
examples:
  noclobber diff plan.md                       since any agent last knew it
  noclobber diff plan.md --agent builder-1     since that agent did
  noclobber diff plan.md --against 3a7bd3e2…   since it had this SHA-256 (an error message has one)
"""


class Known(NamedTuple):
    """A version that an agent knew."""

    sha256: str
    """A hash, `ABSENT` or `DELETED`."""
    agent_id: str | None
    session_id: str | None
    time: str | None
    how: str
    """`read`, `wrote`, `refused` (what had been read before), or `given`."""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("file", metavar="FILE", help="the file")
    parser.add_argument(
        "--agent", metavar="NAME", help="since this agent, or session, knew it (default: any)"
    )
    parser.add_argument(
        "--against", metavar="HASH", help="since it had this SHA-256, or its first 8 digits or more"
    )
    add_root(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    """Compare what was known with what is there."""
    guard, path = _place(args)
    known = _given(args.against) if args.against is not None else _last_known(guard.root, path, args.agent)
    now = guard.digest(path)
    is_same = known.sha256 in (ABSENT, DELETED) if now == DELETED else now.startswith(known.sha256)
    changed = not is_same
    before, source = find_bytes(guard.root, path, known.sha256) if changed else (None, None)
    if changed and before is None:
        before, source = _held_by_sessions(known.sha256)
    after = _content(guard, path) if changed and before is not None else b""
    # Named from the root, so that `patch -p1` and `git apply` find the file there.
    name = path.removeprefix(guard.root.rstrip("/"))
    text = unified(before, after, name) if changed and before is not None else None
    answer = {
        "path": path,
        "known": known._asdict(),
        "current_hash": now,
        "changed": changed,
        "source": source,
        "diff": text,
    }
    if args.json:
        print_json(answer)
    else:
        _print(answer, known)
    return EXIT_NO if changed else EXIT_OK


def _place(args: Namespace) -> tuple[FileGuard, str]:
    if args.root is not None:
        root = existing_folder(args.root)
    else:
        folder = os.path.dirname(os.path.abspath(args.file)) if "\0" not in args.file else os.getcwd()
        root = find_project(folder)
    guard = FileGuard(root)
    name = args.file if "\0" in args.file or not args.file else os.path.abspath(args.file)
    return guard, guard.locate(name)


# What was known


def _given(text: str) -> Known:
    wanted = text.strip().lower().removeprefix("sha256:").rstrip("….")
    if not 8 <= len(wanted) <= 64 or set(wanted) - set("0123456789abcdef"):
        raise BadRequestError("", f"--against takes a SHA-256, at least its first 8 digits, not {text!r}.")
    return Known(wanted, None, None, None, "given")


def _last_known(root: str, path: str, agent: str | None) -> Known:
    found: Known | None = None
    on_record = list(_from_ledger(root, path))
    names = {name for known in on_record for name in (known.agent_id, known.session_id) if name}
    names |= {agent} if agent else set()
    for known in (*on_record, *_from_sessions(path, names)):
        later = found is None or (known.time or "") >= (found.time or "")
        if later and agent in (None, known.agent_id, known.session_id):
            found = known
    if found is None:
        who = f"the agent {agent!r}" if agent else "an agent"
        raise UnreadFileError(
            path,
            f"nothing on record says that {who} has read or written it, so there is nothing to compare with. "
            "Reads of a library turn are known to its own process only; --against takes a hash.",
        )
    return found


def _from_ledger(root: str, path: str) -> Iterator[Known]:
    import json

    # As lines have it now, and as earlier versions wrote it.
    needles = [json.dumps(name, ensure_ascii=False).encode() for name in (relative(root, path), path)]
    for line in lines_of(root):
        if not any(needle in line for needle in needles):
            continue
        event = event_in(line)
        if event is not None and (known := _known(event, root, path)) is not None:
            yield known


_ZEROS = "0" * 64  # What older records have for a version that nobody could name.


def _known(event: dict[str, Any], root: str, path: str) -> Known | None:
    from noclobber.errors import UNKNOWN

    about, payload = summary_of(event, root), event.get("payload")
    if not isinstance(payload, dict) or path not in about.subjects:
        return None
    how, member = {
        "MUTATION": ("wrote", "after_hash"),
        "MUTATION_CONFLICT": ("refused", "baseline_hash"),
    }.get(about.kind, ("", ""))
    sha256 = payload.get(member)
    if not isinstance(sha256, str) or sha256.removeprefix("sha256:") in (UNKNOWN, _ZEROS):
        return None
    if about.subject == path and payload.get("destination"):
        sha256 = DELETED  # Moved away from here.
    identity = event.get("identity")
    session_id = identity.get("session_id") if isinstance(identity, dict) else None
    time = str(event.get("time", ""))
    return Known(
        sha256.removeprefix("sha256:"), about.agent or None, session_id and str(session_id), time, how
    )


def _from_sessions(path: str, names: set[str]) -> Iterator[Known]:
    from noclobber.errors import UNKNOWN
    from noclobber.view import session_memories

    known = {session_memories.key_of(name): name for name in (*names, "main")}
    for agent in session_memories.agents():
        seen = session_memories.seen_by(agent, path)
        if seen is not None and seen.sha256 != UNKNOWN:
            who, session = (known.get(key, f"#{key[:8]}") for key in (agent.agent_key, agent.session_key))
            yield Known(seen.sha256, who, session, seen.time, "read")


# Where its bytes are


def _held_by_sessions(sha256: str) -> tuple[bytes | None, str | None]:
    """Return the bytes of a version that a session of a coding agent saw, if its memory still holds them."""
    from noclobber.view import session_memories

    for agent in session_memories.agents():
        data = session_memories.held_by(agent, sha256)
        if data is not None:
            return data, f"the memory of a session of {agent.host}"
    return None, None


def _content(guard: FileGuard, path: str) -> bytes:
    try:
        return guard.read(path).content
    except MissingFileError:
        return b""


# Saying so


def _print(answer: dict[str, Any], known: Known) -> None:
    import sys

    who = f" by {visible(known.agent_id)}" if known.agent_id else ""
    who += f" (session {visible(known.session_id)})" if who and known.session_id else ""
    when = f" at {known.time[:19]}Z" if known.time else ""
    since = {
        "read": f"since it was read{who}{when}",
        "wrote": f"since it was written{who}{when}",
        "refused": f"since it was read{who}, whose write was refused{when}",
        "given": f"since it had the hash {known.sha256[:12]}",
    }[known.how]
    verdict = styled("changed", "warn", sys.stderr) if answer["changed"] else "unchanged"
    # On stderr, so that stdout is a patch.
    say(f"{visible(answer['path'])}: {verdict} {since}", sys.stderr)
    if not answer["changed"]:
        return
    if answer["diff"] is None:
        print(
            f"was {known.sha256}\nis  {answer['current_hash']}\n"
            "The bytes of that version are kept nowhere (aside, in git, by a session): "
            "no lines can be shown.",
            file=sys.stderr,
        )
        return
    say(f"what it was comes from: {visible(answer['source'])}", sys.stderr)
    for line in answer["diff"].splitlines(keepends=True):
        data_out().write(_for_terminal(line))


def _for_terminal(line: str) -> str:
    """A line of a diff for a terminal; anywhere else it goes out as it is, for `patch`."""
    if not is_terminal():
        return line
    text = line.rstrip("\n")
    shown = "\t".join(visible(part) for part in text.split("\t"))
    style = {"+": "good", "-": "bad", "@": "faint"}.get(text[:1], "")
    return styled(shown, style) + "\n"
