"""The filters of `noclobber ledger` as options, and the lines of a ledger as events."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from noclobber.cli.terminal import visible
from noclobber.core.clock import SYSTEM_CLOCK, iso8601
from noclobber.core.project import STATE_FOLDER
from noclobber.errors import BadRequestError, LedgerError
from noclobber.ledger.browse import EventFilter, event_in

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator

    from noclobber.ledger import AgentTraceLedger
    from noclobber.ledger.browse import Event

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


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


def is_filtered(args: Namespace) -> bool:
    """True if any filter was given."""
    return any((args.file, args.agent, args.kind, args.since, args.until))


def filter_of(args: Namespace, root: str | None) -> EventFilter:
    """Return which events of a ledger were asked for."""
    now_s = SYSTEM_CLOCK.now_s()
    return EventFilter(
        files=tuple(args.file or ()),
        agents=tuple(args.agent or ()),
        kinds=tuple(kind.upper() for kind in args.kind or ()),
        since=_time("--since", args.since, now_s),
        until=_time("--until", args.until, now_s),
        root=root,
    )


def _time(option: str, text: str | None, now_s: float) -> str | None:
    """Return a time in the ledger's form. Without an offset it is UTC, like everything that we print."""
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


class EventReader:
    """Turns lines into wanted events; says on stderr which lines are not events, and counts those."""

    def __init__(self, wanted: EventFilter) -> None:
        self._is_wanted = wanted.test()
        self.bad_lines = 0

    def events(self, lines: Iterable[bytes]) -> Iterator[tuple[bytes, Event]]:
        """Yield each line that is a wanted event: its bytes, and its value."""
        for line in lines:
            event = event_in(line)
            if event is None:
                self.bad_lines += 1
                shown = visible(line[:60].decode("utf-8", "backslashreplace"))
                print(
                    f"noclobber: this line is not a ledger entry: {shown!r}; run `noclobber ledger verify`",
                    file=sys.stderr,
                )
            elif self._is_wanted(event):
                yield line, event


def open_existing(path: str) -> AgentTraceLedger:
    """Return a ledger that exists. To the library a missing one is an empty chain; here, a wrong path."""
    from noclobber.ledger import AgentTraceLedger

    if "\0" in path or not os.path.lexists(path):
        shown = path.replace("\0", "\\0")
        raise LedgerError(
            shown,
            "nothing is recorded here yet: the first guarded write makes the ledger. "
            "For another one give its PATH, or --root of the workspace",
        )
    return AgentTraceLedger(path)


def lock_ledgers(root: str) -> Iterator[str]:
    """Yield the ledger of every folder below a project that was ever locked."""
    from noclobber.lock.names import LEDGER_NAME

    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in (".git", STATE_FOLDER)]
        if LEDGER_NAME in names:
            yield f"{folder}/{LEDGER_NAME}"
