"""`noclobber status`: open turns and sessions of a workspace, recent refusals, and what needs a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.cli import EXIT_NO, EXIT_OK
from noclobber.cli.parsing import add_root, root_of
from noclobber.cli.tables import table
from noclobber.cli.terminal import (
    Cell,
    add_json,
    columns_wide,
    is_terminal,
    moment,
    print_json,
    styled,
    visible,
)
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.ledger.browse import SHORT_SESSION
from noclobber.view.workspace_state import read_state

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from noclobber.view.workspace_state import WorkspaceView

    Rows = list[list[str | Cell]]
    Section = tuple[str, tuple[str, ...], Rows]

EXAMPLES = """\
examples:
  noclobber status                         this workspace
  noclobber status --root ~/project -n 20  another one, with its last 20 refusals
  noclobber status --json | jq .locks      for programs

A turn that has only read, in a workspace that nobody has written to yet, is not shown:
reading leaves no trace.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    add_root(parser)
    add_json(parser)
    add_refusals(parser)


def add_refusals(parser: ArgumentParser) -> None:
    """Declare `-n`, which `watch` has too."""
    from argparse import ArgumentTypeError

    def count(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) < 7:
            return int(text)
        raise ArgumentTypeError(f"takes a number from 0, not {text!r}")

    parser.add_argument(
        "-n", type=count, default=5, metavar="N", help="how many refusals to show (default: 5)"
    )


def run(args: Namespace) -> int:
    """Print the state of the workspace."""
    state = read_state(root_of(args), SYSTEM_CLOCK, refusals=args.n)
    is_workspace = args.root is not None or _is_workspace(state)
    if args.json:
        print_json(state._asdict())
    elif is_workspace:
        print(page(state), end="")
    else:
        print(f"{visible(state.root)} is not a workspace: no record, options, locks or hooks are here.")
        print("`noclobber` says what can be done here; --root names another folder.")
    return EXIT_OK if is_workspace else EXIT_NO


def _is_workspace(state: WorkspaceView) -> bool:
    """True if there is anything of noclobber's: something to show, a mark, or hooks."""
    from noclobber.core.project import is_marked
    from noclobber.hosts.hook_entries import find_hosts
    from noclobber.hosts.installations import find

    if any((state.turns, state.sessions, state.claims, state.locks, state.refusals, state.kept, state.runs)):
        return True
    if state.ledger["exists"] or state.troubles or is_marked(state.root):
        return True
    return any(find(host, state.root) for host in find_hosts(state.root))


def page(state: WorkspaceView) -> str:
    """Return what goes on in a workspace as text for people."""
    parts = [f"{styled('workspace', 'strong')}  {visible(state.root)}\n"]
    parts += [styled(f"! {visible(trouble)}", "bad") + "\n" for trouble in state.troubles]
    for part in (_turns, _sessions, _claims, _locks, _refusals, _kept, _runs):
        title, titles, rows = part(state)
        if rows:
            parts.append(f"\n{styled(_fitted(title), 'strong')}\n{table(titles, rows)}")
    parts += [_leftovers(state)] if any(state.leftovers.values()) else []
    if len(parts) == 1:
        known = state.ledger["exists"]
        parts.append(
            "\nno turn, session, claim or lock here\n" if known else "\nno guarded write was made here yet\n"
        )
    return "".join(parts)


def _fitted(title: str) -> str:
    from noclobber.text.visible import fold

    return fold(title, columns_wide()) if is_terminal() else title


def _turns(state: WorkspaceView) -> Section:
    rows: Rows = [
        [
            turn["agent_id"],
            turn["session_id"] or "",
            turn["host"] or "",
            _second(turn["started"]),
            str(turn["pid"]),
            Cell(turn["state"], "good" if turn["state"] == "running" else "warn"),
        ]
        for turn in state.turns
    ]
    return "turns", ("agent", "session", "host", "since", ">pid", "state"), rows


def _sessions(state: WorkspaceView) -> Section:
    rows: Rows = [
        [
            session["host"],
            session["session_id"],
            session["agent_id"] or "",
            str(session["file_count"]),
            _second(session["last_event"]),
        ]
        for session in state.sessions
    ]
    return "sessions of coding agents", ("host", "session", "agent", ">files seen", "last event"), rows


def _claims(state: WorkspaceView) -> Section:
    rows: Rows = [
        [
            _near(state, claim["path"]),
            claim["holder"],
            claim["call_id"] or "",
            _seconds(claim["remaining_s"]),
        ]
        for claim in state.claims
    ]
    return "claims", ("file", "by", "call", ">ends in"), rows


def _locks(state: WorkspaceView) -> Section:
    rows: Rows = [
        [
            _near(state, lock["folder"]),
            lock["holder"] or "",
            Cell(lock["state"], "good" if lock["state"] == "live" else "warn"),
            _seconds(lock["lease_remaining_s"]),
            lock["detail"],
        ]
        for lock in state.locks
    ]
    return "locks", ("folder", "holder", "state", ">left", "detail"), rows


def _refusals(state: WorkspaceView) -> Section:
    rows: Rows = [
        [
            _second(refusal["time"]),
            " ".join(filter(None, (refusal["agent_id"], (refusal["session_id"] or "")[:SHORT_SESSION]))),
            Cell(refusal["error_type"], "bad"),
            _near(state, refusal["path"]),
            _who(refusal["written_by"] or ""),
        ]
        for refusal in state.refusals
    ]
    return "last refusals", ("time", "agent", "why", "file", "changed by"), rows


def _who(written_by: str) -> str:
    """Return who it was, short enough for a table; `--json` also says when."""
    name = written_by.partition(" at 20")[0].removesuffix(",")
    return name.removeprefix("the agent ").replace("session ", "")


def _kept(state: WorkspaceView) -> Section:
    rows: Rows = [
        [
            kept["name"],
            str(kept["size_bytes"]),
            _second(kept["changed"]),
            Cell(_near(state, kept["path"]), "warn"),
        ]
        for kept in state.kept
    ]
    title = "kept files (written to after they had been replaced; `noclobber kept` restores or drops them)"
    return title, ("file", ">bytes", "written", "kept as"), rows


def _runs(state: WorkspaceView) -> Section:
    rows: Rows = [
        [
            _second(run["changed"]),
            run["agent_id"],
            Cell(run["error_type"] if run["is_ours"] else "came with this folder", "bad"),
            Cell(run["run_id"], "warn"),
            run["command"],
        ]
        for run in state.runs
    ]
    title = "refused commands (nothing of them landed; `noclobber run` shows, reruns or drops them by ID)"
    return title, ("time", "agent", "why", "id", "command"), rows


def _leftovers(state: WorkspaceView) -> str:
    words = {
        "notes": "commits in progress, or cut off by a crash",
        "swaps": "swap files older than a minute",
        "turns": "turns of processes that have ended",
    }
    found = [f"{words[kind]}: {len(names)}" for kind, names in state.leftovers.items() if names]
    # A process that still runs cleans up at the end of its turn.
    advice = "" if state.turns else "; `noclobber doctor` cleans them up"
    return f"\n{styled('left in .noclobber', 'strong')}\n{', '.join(found)}{advice}\n"


def _near(state: WorkspaceView, path: str) -> str:
    """Return a path relative to the workspace, if it is in it."""
    if path == state.root:
        return "."
    return path.removeprefix(f"{state.root}/")


def _second(time: str | None) -> str:
    """Return a time to the second; `--json` has the microseconds."""
    return moment(time) if time else ""


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} s"
