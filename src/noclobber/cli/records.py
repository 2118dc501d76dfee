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

from noclobber.cli.terminal import visible
from noclobber.clock import SYSTEM_CLOCK, iso8601
from noclobber.errors import BadRequestError, LedgerError

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
    paths: tuple[str, ...]


def facts_of(event: Event) -> Facts:
    """Return what people look for. Events of other programs may have anything anywhere."""
    payload, result, identity = (
        member if isinstance(member := event.get(name), dict) else {}
        for name in ("payload", "result", "identity")
    )
    names = ("target_file", "destination", "path", "folder", "deliverable_id")
    paths = tuple(str(payload[name]) for name in names if isinstance(payload.get(name), str))
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


def filter_of(args: Namespace) -> Callable[[Event], bool]:
    """Return the test that an event must pass."""
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
        facts = facts_of(event)
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
    here = os.path.realpath(wanted)
    end = "/" + os.path.normpath(wanted).lstrip("/")
    return lambda path: (
        path in (wanted, here) or path.startswith(here.rstrip("/") + "/") or path.endswith(end)
    )


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


def lines_of(ledger: AgentTraceLedger) -> Iterator[bytes]:
    """Yield every complete line of a ledger. A line too long to be an entry comes in pieces."""
    from noclobber.ledger.handle import FOR_READING, open_ledger
    from noclobber.ledger.line import MAX_LINE_BYTES

    descriptor = open_ledger(ledger.path, FOR_READING)[0]
    with open(descriptor, "rb") as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            if line.endswith(b"\n"):
                yield line[:-1]
            elif len(line) > MAX_LINE_BYTES:
                yield line
            elif _is_whole(line):
                yield line  # Whole but for its newline; anything else at the end is torn, or being written.


def _is_whole(line: bytes) -> bool:
    from noclobber.ledger.line import is_sealed, link_of

    return link_of(line) is not None and is_sealed(line)


def open_existing(path: str) -> AgentTraceLedger:
    """Return a ledger that is there. To the library a missing one is an empty chain; here, a wrong path."""
    from noclobber.ledger import AgentTraceLedger

    if "\0" in path or not os.path.lexists(path):
        shown = path.replace("\0", "\\0")
        raise LedgerError(shown, "there is no ledger here; give its PATH, or --root of the workspace")
    return AgentTraceLedger(path)
