"""
`noclobber ledger`: check the record, and look at its end.

| command | exit code |
|---|---|
| `verify` | 0 the chain holds; 1 it is broken (the line is named); 3 no ledger, or unreadable |
| `tail` | 0; 1 if a line is no entry; 3 as above |

Every answer of `verify` prints the head. Saved somewhere else, `verify --head` later shows whether
the end of the ledger was cut off, which nothing inside the file can show.
"""

from __future__ import annotations

import json
import os
import sys

from noclobber.cli import EXIT_NO, EXIT_OK, EXIT_USAGE
from noclobber.errors import BadRequestError, BrokenChainError, LedgerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable
    from typing import Any

    from noclobber.ledger import AgentTraceLedger

WORKSPACE_LEDGER = os.path.join(".noclobber", "agent_trace.jsonl")
_BAR_CELLS = 30


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the subcommands."""
    subcommands = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", dest="subcommand")
    for name, (declare, _, summary) in SUBCOMMANDS.items():
        subcommand = subcommands.add_parser(name, help=summary, description=summary)
        where = subcommand.add_mutually_exclusive_group()
        where.add_argument("path", nargs="?", metavar="PATH", help="the ledger file")
        where.add_argument(
            "--root", metavar="DIR", help="the workspace whose ledger is meant (default: here)"
        )
        subcommand.add_argument("--json", action="store_true", help="answer in JSON")
        declare(subcommand)
    parser.set_defaults(help_text=parser.format_help())


def run(args: Namespace) -> int:
    """Run a subcommand."""
    if args.subcommand is None:
        print(args.help_text, end="")
        return EXIT_USAGE
    return SUBCOMMANDS[args.subcommand][1](args)


def _open(args: Namespace) -> AgentTraceLedger:
    from noclobber.ledger import AgentTraceLedger

    path = args.path or os.path.join(args.root or os.curdir, WORKSPACE_LEDGER)
    ledger = AgentTraceLedger(path)
    if not os.path.lexists(ledger.path):
        # To the library a missing file is an empty chain. Here it is more likely a mistyped path.
        raise LedgerError(ledger.path, "there is no ledger here; give its PATH, or --root of the workspace")
    return ledger


# verify


def _declare_verify(parser: ArgumentParser) -> None:
    parser.add_argument("--head", metavar="HASH", help="a head saved earlier; it must still be in the chain")


def _verify(args: Namespace) -> int:
    ledger = _open(args)
    try:
        with _Bar() as bar:
            report = ledger.verify(head=args.head, progress=bar.show)
    except BadRequestError as error:
        print(f"noclobber: --head: {error}", file=sys.stderr)
        return EXIT_USAGE
    except BrokenChainError as error:
        answer = {"ok": False, "path": error.path, "message": error.message, **error.details}
        if args.json:
            print(json.dumps(answer))
        else:
            print(f"BROKEN  {error.path}\n  {error.message}.")
            print(f"  events that hold  {answer['event_count']}\n  head of those     {answer['head']}")
        return EXIT_NO
    if args.json:
        print(json.dumps({"ok": True, **report._asdict()}))
        return EXIT_OK
    print(f"OK  {report.path}\n  events  {report.event_count}\n  head    {report.head}")
    if report.saved_head_line is not None:
        print(f"  the saved head is at line {report.saved_head_line}: nothing up to there was cut off")
    if report.torn_bytes:
        print(f"  the last {report.torn_bytes} bytes are torn; the next append sets them aside")
    for path in report.set_aside:
        print(f"  set aside after a crash: {path}")
    return EXIT_OK


class _Bar:
    """A progress bar on a terminal; nothing anywhere else, and nothing for what is done at once."""

    def __init__(self) -> None:
        self._wanted = sys.stderr.isatty()
        self._cells = -1

    def show(self, done_bytes: int, size_bytes: int, event_count: int) -> None:
        cells = _BAR_CELLS * done_bytes // size_bytes
        if self._wanted and cells != self._cells:
            self._cells = cells
            bar = "█" * cells + "░" * (_BAR_CELLS - cells)
            print(
                f"\r{bar} {100 * done_bytes // size_bytes:3d} %  {event_count:,} events",
                end="",
                file=sys.stderr,
            )
            sys.stderr.flush()

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._cells >= 0:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# tail


def _declare_tail(parser: ArgumentParser) -> None:
    parser.add_argument("-n", type=int, default=10, metavar="N", help="how many events (default: 10)")


def _tail(args: Namespace) -> int:
    if args.n < 0:
        print("noclobber: -n takes a number that is not negative", file=sys.stderr)
        return EXIT_USAGE
    exit_code = EXIT_OK
    for line in _open(args).last_lines(args.n):
        try:
            event = json.loads(line)
            text = line.decode() if args.json else _phrase(event)
        except (ValueError, RecursionError, AttributeError):  # What stands around it is worth seeing.
            print(f"noclobber: a line that is no entry: {line[:60]!r}; run ledger verify", file=sys.stderr)
            exit_code = EXIT_NO
        else:
            print(text)
    return exit_code


def _phrase(event: dict[str, Any]) -> str:
    """One event on one line, for a person. Control characters are shown, never sent to the terminal."""
    payload, result, identity = (
        member if isinstance(member := event.get(name), dict) else {}
        for name in ("payload", "result", "identity")
    )
    words = [
        f"{event.get('seq', '?'):>6}",
        str(event.get("time", "?")),
        f"{event.get('action_type', '?')!s:<18}",
        str(result.get("status") or result.get("error_type") or ""),
        str(identity.get("agent_id") or ""),
        str(payload.get("target_file") or payload.get("path") or payload.get("deliverable_id") or ""),
    ]
    line = "  ".join(word for word in words if word)
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)


SUBCOMMANDS: dict[str, tuple[Callable[[ArgumentParser], None], Callable[[Namespace], int], str]] = {
    "verify": (_declare_verify, _verify, "check every line of a ledger, and name the first broken one"),
    "tail": (_declare_tail, _tail, "show the last events"),
}
