"""
`noclobber lock`: one task agent at a time in a deliverable folder, from a shell.

A command exits, so a lock that is bound to its process would be an orphan at once. `acquire` therefore makes
a lock that is bound to the agent that called it: the process named with `--pid`, or the nearest one above
this command that is not a passing shell; `--lease-only` binds it to none. It prints the id that `renew` and
`release` need, once: nothing else shows it. Prefer `run` where it fits: it holds the lock, with a heartbeat,
exactly as long as a command runs.

| exit code | meaning |
|---|---|
| 0 | done; `status`: locked by a live holder |
| 1 | `status`: not locked, or the lock is an orphan |
| 2 | called wrongly |
| 3 | refused: the lock was lost, the folder is missing, no permission |
| 75 | somebody else holds the lock; `--json` prints the `LOCK_CONTENTION` report |
| other | `run`: the command's own; 128 + n if signal n ended it; 126 and 127 as in a shell |
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from noclobber.cli.parsing import CommandParser

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable
    from typing import Any

    from noclobber.cli.terminal import Cell
    from noclobber.lock.backend import LockStatus

EXAMPLES = """\
examples:
  noclobber lock run reports/q3 -- make report       hold it exactly as long as a command runs
  id=$(noclobber lock acquire reports/q3 --lease 600)  hold it across commands of this shell or agent
  noclobber lock release reports/q3 --id "$id"
  noclobber lock status reports/q3 --json            who holds it; exit code 1 if nobody does
  noclobber lock list                                every lock below this folder
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Describe the subcommands."""
    from noclobber.cli.terminal import add_json
    from noclobber.lock.limits import COORDINATED_LEASE_S, DEFAULT_LEASE_S, MAX_LEASE_S, MIN_LEASE_S

    actions = parser.add_subparsers(
        title="actions", metavar="ACTION", required=True, dest="action", parser_class=_UpToDashes
    )

    def add(
        name: str, act: Callable[[Namespace], int], summary: str, *, folder: bool = True
    ) -> ArgumentParser:
        action = actions.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        action.set_defaults(act=act)
        if folder:
            action.add_argument("folder", metavar="FOLDER", help="the deliverable folder")
        add_json(action)
        return action

    def describe(action: ArgumentParser) -> None:
        action.add_argument("--holder", metavar="NAME", help="who asks (default: user and host)")
        action.add_argument(
            "--deliverable-id", metavar="ID", help="what is locked (default: the folder's name)"
        )
        action.add_argument(
            "--timeout",
            type=float,
            default=0.0,
            metavar="S",
            help="wait at most S seconds (default: 0)",
        )

    lease = f"seconds, {MIN_LEASE_S} to {MAX_LEASE_S}"
    acquire = add(
        "acquire",
        _acquire,
        "take the lock and print its id, which is secret; renew it before its lease is over",
    )
    describe(acquire)
    acquire.add_argument(
        "--lease",
        type=int,
        default=DEFAULT_LEASE_S,
        metavar="S",
        help=f"{lease} (default: {DEFAULT_LEASE_S})",
    )
    bound = acquire.add_mutually_exclusive_group()
    bound.add_argument(
        "--pid",
        type=int,
        help="bind it to this process: when it ends, the lock is an orphan (default: the agent or shell that "
        "runs this command)",
    )
    bound.add_argument("--lease-only", action="store_true", help="bind it to no process, only to its lease")
    renew = add("renew", _renew, "extend the lease: a full one, counted from now")
    renew.add_argument("--id", help="what acquire printed (default: $NOCLOBBER_LOCK_ID)")
    renew.add_argument("--lease", type=int, default=None, metavar="S", help=f"{lease} (default: as acquired)")
    release = add("release", _release, "let go")
    release.add_argument("--id", help="what acquire printed (default: $NOCLOBBER_LOCK_ID)")
    add("status", _status, "who holds it, for how long; exit code 1 if nobody does")
    recover = add("recover", _recover, "clear an orphaned lock (expired, dead or corrupt) and record that")
    retire = add("retire", _retire, "before deleting or archiving it: refuse if locked, clear an orphan")
    for action in (recover, retire):
        action.add_argument(
            "--holder", metavar="NAME", help="who does this, for the record (default: user and host)"
        )
    retire.add_argument("--id", help="of the own lock, which ends with it (default: $NOCLOBBER_LOCK_ID)")
    listing = add("list", _list, "every lock below a folder", folder=False)
    listing.add_argument("root", nargs="?", default=".", metavar="FOLDER", help="default: here")
    run = add("run", _run, "hold the lock, and renew it, while a command runs")
    describe(run)
    run.add_argument(
        "--lease",
        type=int,
        metavar="S",
        help=f"{lease}; it is renewed (default: {DEFAULT_LEASE_S}, with a coordinator {COORDINATED_LEASE_S})",
    )
    run.usage = "noclobber lock run [options] FOLDER -- COMMAND …"
    run.epilog = "The command finds NOCLOBBER_LOCK_ID and NOCLOBBER_LOCK_FOLDER in its environment."


class _UpToDashes(CommandParser):
    """Parse arguments up to `--`, options in any place; what follows is the command to run."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(args or ())
        cut = words.index("--") if "--" in words else len(words)
        parsed, unknown = super().parse_known_args(words[:cut], namespace)
        if unknown and not unknown[0].startswith("-") and self.prog.endswith(" run"):
            self.error(f"write the command after --: FOLDER -- {' '.join(unknown)}")
        parsed.command = words[cut + 1 :]
        return parsed, unknown


def run(args: Namespace) -> int:
    """Run the action; return the exit code."""
    return int(args.act(args))


def _acquire(args: Namespace) -> int:
    from noclobber.cli.lock_caller import calling_process
    from noclobber.errors import BadRequestError
    from noclobber.lock.git_exclude import keep_lock_files_out_of_git
    from noclobber.lock.lock import DeliverableLock

    pid = args.pid
    if pid is None and not args.lease_only:
        pid = calling_process()
    lock = DeliverableLock(
        args.folder,
        deliverable_id=args.deliverable_id,
        holder=args.holder or default_holder(),
        lease_duration_s=args.lease,
        pid=pid,
        lease_only=pid is None,
    )
    try:
        lock.acquire(timeout_s=args.timeout)
    except ProcessLookupError as error:
        raise BadRequestError("", f"--pid: {error}") from None
    status = lock.status()
    lock_id = lock.detach()
    keep_lock_files_out_of_git(status.folder)
    if args.json:
        _print_json({**status.to_dict(), "lock_id": lock_id})
    else:
        print(lock_id)
        bound = "" if pid is None else f", and as long as process {pid} runs"
        told = f"{_visible(status.folder)} is locked for {status.lease_remaining_s} s{bound}"
        if pid is None and not args.lease_only:
            told += "; no process was found to bind it to (--pid PID), so if its holder crashes, others wait"
        print(told, file=sys.stderr)
    return 0


def _renew(args: Namespace) -> int:
    lock = _attached(args)
    lock.renew(args.lease)
    if args.json:
        _print_json(lock.status().to_dict())
    else:
        _say(f"{_visible(lock.folder)} is locked for another {lock.status().lease_remaining_s} s")
    return 0


def _release(args: Namespace) -> int:
    lock = _attached(args)
    folder = lock.folder
    lock.release()
    if args.json:
        _print_json({"folder": folder, "released": True})
    else:
        _say(f"{_visible(folder)} is free")
    return 0


def _attached(args: Namespace) -> Any:
    from noclobber.errors import BadRequestError
    from noclobber.lock.lock import DeliverableLock
    from noclobber.lock.names import ENVIRONMENT_ID

    lock_id = args.id or os.environ.get(ENVIRONMENT_ID)
    if not lock_id:
        raise BadRequestError("", f"give the id that acquire printed: --id ID, or {ENVIRONMENT_ID}")
    return DeliverableLock.attach(args.folder, lock_id)


def _status(args: Namespace) -> int:
    from noclobber.lock.backend import status_of

    status = status_of(os.path.realpath(args.folder))
    if args.json:
        _print_json(status.to_dict())
    else:
        for name, value in status.to_dict().items():
            if value is not None:
                print(f"{name:<18} {_printable(str(value))}")
        if status.state in ("expired", "dead", "corrupt"):
            _say("\nThe next to acquire takes it over; `noclobber lock recover` clears it now.")
    return 0 if status.is_locked else 1


def _recover(args: Namespace) -> int:
    from noclobber.lock.git_exclude import keep_lock_files_out_of_git
    from noclobber.lock.lock import DeliverableLock

    keep_lock_files_out_of_git(args.folder)
    return _cleared(
        args, DeliverableLock(args.folder, holder=args.holder or default_holder()).recover(), "free"
    )


def _retire(args: Namespace) -> int:
    from noclobber.lock.git_exclude import keep_lock_files_out_of_git
    from noclobber.lock.lock import DeliverableLock

    keep_lock_files_out_of_git(args.folder)
    held_ids = [args.id] if args.id else []
    outcome = DeliverableLock(args.folder, holder=args.holder or default_holder(), held_ids=held_ids).retire()
    return _cleared(args, outcome, "retired: nobody holds it, and it can be deleted or archived")


def _cleared(args: Namespace, recovery: Any, state: str) -> int:
    if args.json:
        _print_json({"folder": os.path.realpath(args.folder), "recovered": recovery and recovery._asdict()})
        return 0
    if recovery is not None:
        who = _printable(recovery.previous_holder or "nobody who can be named")
        _say(f"recovered the lock of {who} ({recovery.recovery_reason}: {_visible(recovery.detail)})")
    _say(f"{_visible(os.path.realpath(args.folder))} is {state}")
    return 0


def _list(args: Namespace) -> int:
    from noclobber.lock.backend import list_locks

    locks = sorted(list_locks(os.path.realpath(args.root)), key=lambda status: status.folder)
    if args.json:
        _print_json([status.to_dict() for status in locks])
    elif not locks:
        _say(f"nothing is locked below {_visible(os.path.realpath(args.root))}")
    else:
        _print_table(locks)
        for status in locks:
            if status.state == "unreadable":
                _say(f"\n{_visible(status.detail)}")
    return 0


def _run(args: Namespace) -> int:
    from noclobber.cli.lock_run import run_locked

    return run_locked(args)


def default_holder() -> str:
    """Who runs this command: user and host."""
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A container's user often has no name.
        user = f"uid {os.getuid()}"
    return f"{user}@{os.uname().nodename}"


COLUMNS = ("state", "holder", ">age", ">remaining", ">pid", "deliverable", "folder")


def _print_table(locks: list[LockStatus]) -> None:
    from noclobber.cli.tables import table

    print(table(COLUMNS, [_row(status) for status in locks]), end="")


def _row(status: LockStatus) -> list[str | Cell]:
    from noclobber.cli.terminal import Cell

    return [
        Cell(status.state, "good" if status.is_locked else "warn"),
        _printable(status.holder or "-"),
        duration(status.age_s),
        duration(status.lease_remaining_s),
        str(status.pid or "-"),
        _printable(status.deliverable_id or "-"),
        status.folder,
    ]


def duration(seconds: int | None) -> str:
    """Spell a time span for people: 42s, 17m, 3h05m, 2d04h."""
    if seconds is None:
        return "-"
    if seconds < 100:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 100:
        return f"{minutes}m"
    hours = minutes // 60
    return f"{hours}h{minutes % 60:02}m" if hours < 48 else f"{hours // 24}d{hours % 24:02}h"


def _printable(text: str) -> str:
    """Escape and shorten what others wrote into a lock file, for the terminal."""
    return _visible(text[:200])


def _say(text: str) -> None:
    from noclobber.cli.terminal import say

    say(text)


def _visible(text: str) -> str:
    from noclobber.cli.terminal import visible

    return visible(text)


def _print_json(value: object) -> None:
    from noclobber.cli.terminal import print_json

    print_json(value)
