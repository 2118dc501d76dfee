"""
`noclobber ledger`: show the record of writes and refusals, check it, export it.

| command | exit code |
|---|---|
| `show`, `tail`, `export` | 0; 1 if a line is not an entry; 3 if there is no ledger or it cannot be read |
| `verify` | 0 if the chain is whole; 1 if it is broken (the line is named); 3 as above |
| `verify --files` | 1 also if a file went back to a version before the last one on record |

Every answer of `verify` prints the head. Saved somewhere else, `verify --head` later shows whether
the end of the ledger was cut off, which nothing inside the file can show.
"""

from __future__ import annotations

import json
import sys
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_NO, EXIT_OK
from noclobber.cli.clean_output import data_out
from noclobber.cli.ledger_filters import (
    EventReader,
    add_filters,
    filter_of,
    is_filtered,
    lock_ledgers,
    open_existing,
)
from noclobber.cli.parsing import add_root, root_of
from noclobber.cli.tables import table
from noclobber.cli.terminal import (
    Cell,
    Progress,
    add_json,
    add_jsonl,
    cells_wide,
    columns_wide,
    is_terminal,
    moment,
    print_json,
    shortened,
    styled,
    use_utf8,
    visible,
    wait_while_read,
)
from noclobber.core.project import ledger_path
from noclobber.errors import BadRequestError, BrokenChainError
from noclobber.ledger.browse import summary_of
from noclobber.ledger.chosen import is_on_server, ledger_of
from noclobber.ledger.lost_versions import find_lost_versions
from noclobber.ledger.root import root_of_ledger

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable
    from typing import Any

    from noclobber.ledger.lost_versions import LostVersion
    from noclobber.ledger.protocol import Ledger

    Event = dict[str, Any]

EXAMPLES = """\
examples:
  noclobber ledger tail -n 20                        the last events
  noclobber ledger tail --follow --kind '*CONFLICT'  refusals as they happen
  noclobber ledger show --file plan.md --since 2h    what happened to a file
  noclobber ledger show --agent builder-1 --jsonl    one event a line
  noclobber ledger verify                            check the chain; save the head it prints
  noclobber ledger export --format otlp > logs.jsonl
"""

_FOLLOW_S = 0.25
_OUTCOME_CELLS = len("STALE_FILE")  # Longer ones are rarer.
_WITH_DATE = 100  # Columns of a terminal from which on there is room for the date.
_WITH_KIND = 60  # The same for the kind and the number.
_STYLES = {
    "MUTATION_CONFLICT": "bad",
    "MUTATION_REFUSED": "bad",
    "MUTATION_FAILED": "bad",
    "MUTATION_RACE": "bad",
    "LEDGER_CUT": "bad",
    "LEDGER_TORN_TAIL": "warn",
    "COMMIT_RECOVERED": "warn",
    "LOCK_RECOVERED": "warn",
    "VERSION_KEPT": "warn",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the subcommands."""
    subcommands = parser.add_subparsers(
        title="subcommands", metavar="SUBCOMMAND", dest="subcommand", required=True
    )
    for name, (declare, _, summary) in SUBCOMMANDS.items():
        subcommand = subcommands.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False
        )
        where = subcommand.add_mutually_exclusive_group()
        where.add_argument("path", nargs="?", metavar="PATH", help="a ledger file (default: the workspace's)")
        add_root(where)  # type: ignore[arg-type]
        add_json(subcommand)
        if name != "verify":
            add_jsonl(subcommand)
        declare(subcommand)


def run(args: Namespace) -> int:
    """Run a subcommand."""
    if args.json or args.subcommand == "export" or getattr(args, "jsonl", False):
        use_utf8()  # Lines are printed as they are in the file, whatever the terminal's encoding.
    return SUBCOMMANDS[args.subcommand][1](args)


def _open(args: Namespace) -> Ledger:
    if args.path is None and is_on_server():
        return ledger_of(root_of(args))
    return open_existing(args.path if args.path is not None else ledger_path(root_of(args)))


def _root(args: Namespace) -> str | None:
    """The root of the workspace that the ledger is of; None for a file that is in no state folder."""
    return root_of(args) if args.path is None else root_of_ledger(args.path)


# show


def _declare_show(parser: ArgumentParser) -> None:
    add_filters(parser)
    parser.add_argument(
        "--locks", action="store_true", help="with the events of the locks of all folders below, by time"
    )


def _show(args: Namespace) -> int:
    ledger = _open(args)
    reader = EventReader(filter_of(args, _root(args)))
    entries: Iterable[tuple[bytes, Event]] = reader.events(ledger.follow())
    if args.locks:
        entries = _with_locks(args, reader, entries)
    if args.json:
        _print_document(ledger.path, entries, reader)
    elif args.jsonl:
        for line, _ in entries:
            print(line.decode(), file=data_out())
    else:
        rows = [_row(event) for _, event in entries]
        if rows:
            print(table((">seq", "time", "kind", "outcome", "agent", "about"), rows), end="")
        print(styled(f"{len(rows):,} event{'s' if len(rows) != 1 else ''}", "faint"))
        if not rows and is_filtered(args):
            _tell_nothing_passed(args)
    return EXIT_NO if reader.bad_lines else EXIT_OK


def _with_locks(
    args: Namespace, reader: EventReader, entries: Iterable[tuple[bytes, Event]]
) -> list[tuple[bytes, Event]]:
    """Return events with those of the locks below the project: each locked folder has a ledger of its own."""
    root = _root(args)
    if root is None:
        raise BadRequestError("", "--locks needs a project; this ledger is in no state folder.")
    found = list(entries)
    for path in lock_ledgers(root):
        found += reader.events(open_existing(path).follow())
    return sorted(found, key=lambda entry: str(entry[1].get("time", "")))


def _tell_nothing_passed(args: Namespace) -> None:
    """Say why a list is empty: nothing is worse than a filter with a typing mistake and no answer."""
    told = "No event passes these filters."
    if any(kind.upper().startswith("LOCK") for kind in args.kind or ()):
        told += " Events of locks are in the ledgers of the locked folders: `noclobber ledger show --locks`."
    elif args.kind:
        from noclobber.ledger.kinds import KINDS

        unknown = [kind for kind in args.kind if not any(fnmatchcase(each, kind.upper()) for each in KINDS)]
        if unknown:
            near = get_close_matches(unknown[0].upper(), KINDS, n=1)
            told += f" There is no kind {visible(unknown[0])!r}."
            told += f" Did you mean {near[0]}?" if near else f" There are: {', '.join(KINDS)}."
    print(f"noclobber: {told}", file=sys.stderr)


def _print_document(path: str, entries: Iterable[tuple[bytes, Event]], reader: EventReader) -> None:
    """Print events as one JSON document, each as it is in the file. A ledger may be larger than memory."""
    out = data_out()
    print(f'{{"path": {json.dumps(path, ensure_ascii=False)}, "events": [', end="", file=out)
    between = ""
    for line, _ in entries:
        print(f"{between}{line.decode()}", end="", file=out)
        between = ", "
    print(f'], "bad_lines": {reader.bad_lines}}}', file=out, flush=True)


def _row(event: Event) -> list[str | Cell]:
    about = summary_of(event)
    kind = Cell(about.kind, _STYLES.get(about.kind, ""))
    return [str(event.get("seq", "?")), _short_time(event), kind, about.outcome, about.who, about.subject]


def _short_time(event: Event) -> str:
    """Down to the second: what people read. `--json` has the microseconds."""
    return moment(str(event.get("time", "?")))


# tail


def _declare_tail(parser: ArgumentParser) -> None:
    parser.add_argument("-n", type=int, default=10, metavar="N", help="how many events (default: 10)")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with what is appended, until Ctrl-C"
    )
    add_filters(parser)


def _tail(args: Namespace) -> int:
    from collections import deque

    if args.n < 0:
        raise BadRequestError("", f"-n takes a number that is not negative, not {args.n}.")
    if args.follow and args.json:
        raise BadRequestError("", "--follow has no end, so it is no document: use --jsonl.")
    ledger = _open(args)
    reader = EventReader(filter_of(args, _root(args)))
    if is_filtered(args) or args.follow:
        # From the beginning: only then is it known where exactly to go on, with nothing twice or left out.
        source = ledger.follow()
        lines: Iterable[bytes] = source if is_filtered(args) else deque(source, args.n)
    else:
        lines = ledger.last_lines(args.n)
    last = deque(reader.events(lines), args.n)
    if args.json:
        _print_document(ledger.path, last, reader)
        return EXIT_NO if reader.bad_lines else EXIT_OK
    for line, event in last:
        _print_event(args, line, event)
    if not last and is_filtered(args) and not args.follow and args.n:
        _tell_nothing_passed(args)
    if args.follow:
        try:
            while True:
                wait_while_read(_FOLLOW_S)
                for line, event in reader.events(source.appended()):
                    _print_event(args, line, event)
        except KeyboardInterrupt:
            pass  # The only way to end it, so not an interruption.
    return EXIT_NO if reader.bad_lines else EXIT_OK


def _print_event(args: Namespace, line: bytes, event: Event) -> None:
    if args.jsonl:
        print(line.decode(), flush=args.follow, file=data_out())
    else:
        print(_phrase(event), flush=args.follow)


def _phrase(event: Event) -> str:
    """One event on one line, for a person. Control characters are shown, never sent to the terminal."""
    about = summary_of(event)
    kind = styled(f"{visible(about.kind):<18}", _STYLES.get(about.kind, ""))
    words = [f"{about.outcome:<{_OUTCOME_CELLS}}", about.who, about.subject]
    rest = "  ".join(visible(word) for word in words if word)
    number, time = visible(str(event.get("seq", "?"))), visible(_short_time(event))
    if is_terminal():
        columns = columns_wide()
        time = time if columns >= _WITH_DATE else time[11:19]
        if columns < _WITH_KIND:  # Its outcome says most of it, and the file is what one looks for.
            words = [about.outcome or about.kind, about.subject, about.who]
            line = "  ".join([time, *(visible(word) for word in words if word)])
            return line if cells_wide(line) <= columns else f"{line[: columns - 1]}…"
        rest = shortened(rest, columns - max(6, len(number)) - len(time) - max(18, len(about.kind)) - 6)
    return f"{number:>6}  {time}  {kind}  {rest}".rstrip()


# verify


def _declare_verify(parser: ArgumentParser) -> None:
    parser.add_argument("--head", metavar="HASH", help="a head saved earlier; it must still be in the chain")
    parser.add_argument(
        "--files",
        action="store_true",
        help="also find files that have an older version than the last on record, as after a power cut",
    )


def _verify(args: Namespace) -> int:
    ledger = _open(args)
    try:
        with Progress("events") as bar:
            report = ledger.verify(head=args.head, progress=bar.show)
    except BadRequestError as error:
        raise BadRequestError("", f"--head: {error.message}") from None
    except BrokenChainError as error:
        answer = {"ok": False, "path": error.path, "message": error.message, **error.details}
        if args.json:
            print_json(answer)
        else:
            print(f"{styled('BROKEN', 'bad')}  {visible(error.path)}\n  {visible(error.message)}.")
            print(f"  intact events   {answer['event_count']}\n  head of those   {answer['head']}")
        return EXIT_NO
    lost = _lost_versions(args, ledger) if args.files else []
    if args.json:
        found = {"lost": [each._asdict() for each in lost]} if args.files else {}
        print_json({"ok": not lost, **report._asdict(), **found})
        return EXIT_NO if lost else EXIT_OK
    print(f"{styled('LOST', 'bad') if lost else styled('OK', 'good')}  {visible(report.path)}")
    print(f"  events  {report.event_count}\n  head    {report.head}")
    if report.saved_head_line is not None:
        print(f"  the saved head is at line {report.saved_head_line}: nothing up to there was cut off")
    if report.torn_bytes:
        print(f"  the last {report.torn_bytes} bytes are torn; the next append sets them aside")
    for path in report.set_aside:
        print(f"  set aside after a crash: {visible(path)}")
    for each in lost:
        print(
            f"  event {each.seq} recorded {each.recorded_hash} of {visible(each.path)}, which is not"
            f" there: the file has an earlier version ({each.current_hash}). A power cut took it away, or"
            " somebody put the earlier version back; write it again."
        )
    return EXIT_NO if lost else EXIT_OK


def _lost_versions(args: Namespace, ledger: Ledger) -> list[LostVersion]:
    root = _root(args)
    if root is None:
        raise BadRequestError("", "--files needs the ledger of a project; this one is in no state folder.")
    return find_lost_versions(ledger.events(), root)


# export


def _declare_export(parser: ArgumentParser) -> None:
    from noclobber.ledger.export import FORMATS

    parser.add_argument("--format", choices=list(FORMATS), default="jsonl", help="default: jsonl")
    add_filters(parser)


def _export(args: Namespace) -> int:
    from noclobber.ledger.export import export

    if args.format != "jsonl" and (args.json or args.jsonl):
        option = "--json" if args.json else "--jsonl"
        raise BadRequestError("", f"{option} and --format {args.format} contradict each other; choose one.")
    ledger = _open(args)
    wanted = filter_of(args, _root(args))
    reader = EventReader(wanted)
    if args.json:
        _print_document(ledger.path, reader.events(ledger.follow()), reader)
        return EXIT_NO if reader.bad_lines else EXIT_OK
    export(args.format, reader.events(ledger.follow()), data_out(), wanted.root)
    return EXIT_NO if reader.bad_lines else EXIT_OK


SUBCOMMANDS: dict[str, tuple[Callable[[ArgumentParser], None], Callable[[Namespace], int], str]] = {
    "show": (_declare_show, _show, "show every event, or those that pass the filters"),
    "tail": (_declare_tail, _tail, "show the last events, and go on with --follow"),
    "verify": (_declare_verify, _verify, "check every line of a ledger, and name the first broken one"),
    "export": (
        _declare_export,
        _export,
        "write events for other programs: JSON lines, CSV, agent-trace, OTLP",
    ),
}
