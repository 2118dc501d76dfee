"""
The command line: a table of commands, each in a module of its own that is imported when it is called.

A command module has `add_arguments(parser)` and `run(args) -> int`, the exit code. Errors that are
ours become one line on stderr and a documented exit code; a traceback never reaches the user.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the answer is no: unhealthy, broken chain, not locked |
| 2 | the command was called wrongly |
| 3 | refused: stale, busy, outside the workspace and the like |
| 75 | locked by somebody else: try again later |
| 130 | interrupted |
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence

EXIT_OK, EXIT_NO, EXIT_USAGE, EXIT_REFUSED, EXIT_CONTENTION, EXIT_INTERRUPTED = 0, 1, 2, 3, 75, 130

COMMANDS = {
    # name: (module below this package, one line for --help)
    "demo": ("demo", "see it work on a scratch folder, with real processes, in half a minute"),
    "doctor": ("doctor", "what this filesystem can promise, and what a crash left behind"),
    "mcp": ("mcp", "guarded file tools for any MCP client, on stdio or loopback HTTP"),
    "lock": ("lock", "one task agent at a time in a deliverable folder, with leases that cannot get stuck"),
    "ledger": ("ledger", "check the record of writes and refusals, and look at its end"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        parser = _parser(words)
        args = parser.parse_args(words)
        if not getattr(args, "run", None):
            parser.print_help()
            return EXIT_USAGE
        return int(args.run(args))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`). Python would complain again while flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except Exception as error:
        return _explain(error)


def _parser(words: list[str]) -> ArgumentParser:
    import argparse
    from importlib import import_module

    from noclobber import __version__

    parser = argparse.ArgumentParser(
        prog="noclobber",
        description="Keep files safe when several AI agents and people write to them at the same time.",
    )
    parser.add_argument("--version", action="version", version=f"noclobber {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    wanted = next((word for word in words if not word.startswith("-")), None)
    for name, (module_name, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == wanted:  # Only the command that was called is imported: --help stays fast.
            module = import_module(f"noclobber.cli.{module_name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser


def _explain(error: Exception) -> int:
    from noclobber.errors import NoclobberError

    if isinstance(error, NoclobberError):
        print(f"noclobber: {error}", file=sys.stderr)
        return EXIT_CONTENTION if error.code == "LOCK_CONTENTION" else EXIT_REFUSED
    if isinstance(error, OSError):
        print(f"noclobber: {error}", file=sys.stderr)
        return EXIT_REFUSED
    if os.environ.get("NOCLOBBER_DEBUG"):
        raise error
    print(
        f"noclobber: internal error: {type(error).__name__}: {error}\n"
        "This is a bug in noclobber. Run again with NOCLOBBER_DEBUG=1 and report what it prints.",
        file=sys.stderr,
    )
    return EXIT_REFUSED
