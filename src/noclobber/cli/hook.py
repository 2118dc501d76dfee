"""`noclobber hook HOST`: answer one event of a coding agent, whose hooks call it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.hosts import HOSTS

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

EPILOG = """\
The event is read from stdin, as JSON, in the host's own format; the answer goes to stdout.
`check`: a write waits for the answer, and any failure is a refusal. `note`: nothing waits.
`shell`: a command. `run`: no event; TEXT is run as the host's shell would run it, guarded if the hook before
it has asked for that.
Exit code 0 with an answer; 2 refuses when no answer could be made.

example:
  noclobber hook claude-code check < event.json
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Describe the command line."""
    from noclobber.cli.parsing import FoldedHelp

    parser.formatter_class = FoldedHelp
    parser.epilog = EPILOG
    parser.add_argument("host", metavar="HOST", choices=list(HOSTS), help=f"one of: {', '.join(HOSTS)}")
    parser.add_argument(
        "duty", nargs="?", metavar="DUTY", choices=["check", "note", "shell", "auto", "run"], default="auto"
    )
    parser.add_argument(
        "text", nargs="?", metavar="TEXT", help="with `run`: what the host's shell has to run"
    )


def run(args: Namespace) -> int:
    """Answer the event, or run a command in the place of the host's shell."""
    if args.duty == "run":
        from noclobber.cli.shell_prefix import main as run_text

        return run_text([args.text or ""])
    from noclobber.hook.main import main
    from noclobber.hook.start import MOST_S, end_after

    end_after(MOST_S)
    return main([args.host, args.duty])
