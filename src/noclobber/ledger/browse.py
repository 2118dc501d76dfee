"""
Read a ledger for a person: line by line, filtered, without stopping at what is broken.

`AgentTraceLedger.events()` stops at the first line that is no entry, which is right for programs.
Somebody who looks at a damaged ledger wants to see what stands around the damage; so a bad line is
reported, counted and passed over.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, NamedTuple

from noclobber.core.clock import SYSTEM_CLOCK, iso8601
from noclobber.errors import BadRequestError, LedgerError
from noclobber.ledger.root import absolute
from noclobber.text.visible import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable, Iterator

    from noclobber.ledger import AgentTraceLedger

    Event = dict[str, Any]

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_WILD = frozenset("*?[")


class Facts(NamedTuple):
    """What people look for in an event, wherever its kind keeps it."""

    kind: str
    outcome: str
    agent: str
    path: str
    """What the event is about, as the event has it: relative to the root, or absolute."""
    paths: tuple[str, ...]


def facts_of(event: Event, root: str | None = None) -> Facts:
    """
    Return what people look for. Events of other programs may have anything anywhere.

    With the root of the ledger's workspace all paths are absolute, in old lines and new ones.
    """
    payload, result, identity = (
        member if isinstance(member := event.get(name), dict) else {}
        for name in ("payload", "result", "identity")
    )
    names = ("target_file", "destination", "path", "folder", "deliverable_id")
    paths = tuple(str(payload[name]) for name in names if isinstance(payload.get(name), str))
    if root is not None:
        paths = tuple(absolute(root, path) for path in paths)
    agent = identity.get("agent_id") or payload.get("holder") or ""
    return Facts(
        str(event.get("action_type", "?")),
        str(result.get("error_type") or result.get("status") or ""),
        str(agent),
        paths[0] if paths else "",
        paths,
    )


# Filters


def add_filters(parser: ArgumentParser) -> None:
    """Declare the filters. Several of one kind: any of them; of different kinds: all of them."""
    parser.add_argument(
        "--file",
        action="append",
        metavar="FILE",
        help="events about a file, a folder's files, or a pattern (*.md)",
    )
    parser.add_argument("--agent", action="append", metavar="NAME", help="events of an agent, or a pattern")
    parser.add_argument(
        "--kind", action="append", metavar="KIND", help="events of a kind: MUTATION_CONFLICT, LOCK_*"
    )
    when = "2026-11-15, 2026-11-15T20:00Z, or an age: 90s, 15m, 2h, 7d"
    parser.add_argument("--since", metavar="TIME", help=f"events from then on: {when}")
    parser.add_argument("--until", metavar="TIME", help="events before then")


def filter_of(args: Namespace, root: str | None) -> Callable[[Event], bool]:
    """Return the test that an event must pass; `root` is the workspace of the ledger, where known."""
    now_s = SYSTEM_CLOCK.now_s()
    since = _moment("--since", args.since, now_s)
    until = _moment("--until", args.until, now_s)
    files = [_file_test(wanted) for wanted in args.file or ()]
    agents, kinds = args.agent or (), [kind.upper() for kind in args.kind or ()]

    def passes(event: Event) -> bool:
        # Text against text: every time in a ledger is spelled alike, in UTC.
        time = str(event.get("time", ""))
        if (since and time < since) or (until and time >= until):
            return False
        facts = facts_of(event, root)
        return (
            (not kinds or any(_matches(facts.kind, kind) for kind in kinds))
            and (not agents or any(_matches(facts.agent, agent) for agent in agents))
            and (not files or any(test(path) for test in files for path in facts.paths))
        )

    return passes


def _matches(text: str, pattern: str) -> bool:
    from fnmatch import fnmatchcase

    return text == pattern or fnmatchcase(text, pattern)


def _file_test(wanted: str) -> Callable[[str], bool]:
    """A name from here, or the end of a path, or a folder above it, or a pattern for any of these."""
    if _WILD & set(wanted):
        return lambda path: _matches(path, wanted) or _matches(path, f"*/{wanted}")
    if "\0" in wanted:
        return lambda path: False
    here, plain = os.path.realpath(wanted), os.path.normpath(wanted)
    folders = (here.rstrip("/") + "/", plain.rstrip("/") + "/")  # The second: from a root that is not known.
    end = "/" + plain.lstrip("/")
    return lambda path: path in (wanted, plain, here) or path.startswith(folders) or path.endswith(end)


def _moment(option: str, text: str | None, now_s: float) -> str | None:
    """Return a time as the ledger spells it. Without an offset it is UTC, as everything that we print."""
    if text is None:
        return None
    age = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])", text.strip())
    if age:
        return iso8601(max(0.0, now_s - float(age[1]) * _UNITS_S[age[2]]))
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27)
    except (ValueError, OverflowError):
        raise BadRequestError(
            "",
            f"{option} takes a time (2026-11-15T20:00Z) or an age (15m, 2h, 7d), not {text!r}.",
            option=option,
        ) from None


# Lines


class Reader:
    """Turns lines into events; says on stderr which are none, and remembers that there were some."""

    def __init__(self, passes: Callable[[Event], bool] = lambda event: True) -> None:
        self._passes = passes
        self.bad_lines = 0

    def events(self, lines: Iterable[bytes]) -> Iterator[tuple[bytes, Event]]:
        """Yield each line that is an event and passes, as it stands and as a value."""
        for line in lines:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                event = None
            if not isinstance(event, dict):
                self.bad_lines += 1
                shown = visible(line[:60].decode("utf-8", "backslashreplace"))
                print(f"noclobber: a line that is no entry: {shown!r}; run ledger verify", file=sys.stderr)
            elif self._passes(event):
                yield line, event


class Lines:
    """The complete lines of a ledger, once; afterwards it knows up to where it has read which file."""

    def __init__(self, path: str) -> None:
        from noclobber.ledger.open_file import FOR_READING, open_ledger

        self.path = path
        self._file = open(open_ledger(path, FOR_READING)[0], "rb")  # noqa: SIM115 - closed below
        status = os.fstat(self._file.fileno())
        self.identity = status.st_dev, status.st_ino
        self.offset = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield them without their newlines. One too long to be an entry comes in pieces."""
        from noclobber.ledger.line import MAX_LINE_BYTES

        with self._file:
            while line := self._file.readline(MAX_LINE_BYTES + 1):
                is_torn = not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES
                if is_torn and not _is_whole(line):
                    return  # A crash tore it, or it is being written.
                self.offset += len(line) + is_torn  # Its newline comes with the next line.
                yield line.removesuffix(b"\n")

    def appended(self) -> Iterator[bytes]:
        """Yield what has been appended since, in whatever file the path names by now."""
        try:
            again = Lines(self.path)
        except LedgerError:
            return  # Moved away, and nothing was written since.
        # Another file, or a shorter one, is a new beginning; `verify` says whether that is right.
        if again.identity == self.identity and os.fstat(again._file.fileno()).st_size >= self.offset - 1:
            again._file.seek(self.offset)
            again.offset = self.offset
        yield from again
        self.identity, self.offset = again.identity, again.offset


def _is_whole(line: bytes) -> bool:
    from noclobber.ledger.line import is_sealed, link_of

    return link_of(line) is not None and is_sealed(line)  # It lacks nothing but its newline.


def open_existing(path: str) -> AgentTraceLedger:
    """Return a ledger that is there. To the library a missing one is an empty chain; here, a wrong path."""
    from noclobber.ledger import AgentTraceLedger

    if "\0" in path or not os.path.lexists(path):
        shown = path.replace("\0", "\\0")
        raise LedgerError(shown, "there is no ledger here; give its PATH, or --root of the workspace")
    return AgentTraceLedger(path)
