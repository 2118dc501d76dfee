"""
`noclobber coordinator`: the PostgreSQL server that several machines share.

The server's address is in `NOCLOBBER_COORDINATOR`, and only there: on a command line everybody on this
machine could read it. `init` and `migrate` need the rights of the database's owner; everything else needs
the role `noclobber_agent`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noclobber.cli import EXIT_NO, EXIT_OK
from noclobber.cli.terminal import add_json, print_json, styled, visible
from noclobber.cli.working import Working

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

EXAMPLES = """\
examples:
  export NOCLOBBER_COORDINATOR=postgresql://me@db.example.com/agents
  noclobber coordinator init       once, as the owner of the database
  noclobber coordinator doctor     is it there, is it the right version, may this user use it?
  noclobber coordinator status     workspaces, locks and events that it has

docs/several-machines.md has the whole way.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the subcommands."""
    subcommands = parser.add_subparsers(
        title="subcommands", metavar="SUBCOMMAND", dest="subcommand", required=True
    )
    for name, (_, summary) in SUBCOMMANDS.items():
        add_json(
            subcommands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        )


def run(args: Namespace) -> int:
    """Run a subcommand."""
    return SUBCOMMANDS[args.subcommand][0](args)


def _init(args: Namespace) -> int:
    from noclobber.postgres.coordinator import install

    with Working("making noclobber's tables") as work:
        version = install(work.share)
    _print(args, {"schema_version": version}, [f"noclobber's tables are there, version {version}."])
    if not args.json:
        print("Let others use it: GRANT noclobber_agent TO <user>;")
    return EXIT_OK


def _status(args: Namespace) -> int:
    from noclobber.postgres.coordinator import facts

    found = facts()
    lines = [f"{name.replace('_', ' '):<18} {visible(str(value))}" for name, value in found.items()]
    _print(args, found, lines)
    return EXIT_OK


def _doctor(args: Namespace) -> int:
    from noclobber.postgres.coordinator import findings

    found = findings()
    if args.json:
        print_json([finding._asdict() for finding in found])
    else:
        for finding in found:
            mark = styled("ok  ", "good") if finding.is_well else styled("NO  ", "bad")
            print(f"{mark} {visible(finding.message)}")
            if finding.remedy:
                print(f"     {visible(finding.remedy)}")
    return EXIT_OK if all(finding.is_well for finding in found) else EXIT_NO


def _print(args: Namespace, data: dict[str, Any], lines: list[str]) -> None:
    if args.json:
        print_json(data)
    else:
        print("\n".join(lines))


SUBCOMMANDS: dict[str, tuple[Callable[[Namespace], int], str]] = {
    "init": (_init, "make noclobber's tables in the database; nothing if they are there"),
    "migrate": (_init, "bring the tables of an older noclobber to this version"),
    "status": (_status, "workspaces, locks and events that it has"),
    "doctor": (_doctor, "is it there, is it the right version, what does it promise?"),
}
