"""`noclobber start HOST`: start a coding agent so that its shell commands run guarded."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_NO, EXIT_OK
from noclobber.cli.terminal import add_json, print_json
from noclobber.errors import BadRequestError
from noclobber.hook.guarded_calls import notes_of
from noclobber.hosts import traits
from noclobber.hosts.launched import LAUNCH, NOTES, environment

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

EXAMPLES = """\
examples:
  noclobber start gemini
  noclobber start copilot -- -p "Write the parser"    what comes after -- is the agent's own
  noclobber start qwen --json                         show what would be set, and start nothing

Its hooks must be installed (noclobber install HOST). Its permission rules judge its commands as ever.
Claude Code and opencode need no such start: noclobber install does it.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("host", metavar="HOST", help=f"{', '.join(traits.all_to_start())}")
    parser.add_argument("--program", metavar="PATH", help="its program, if that is not on the path")
    add_json(parser)
    parser.usage = "noclobber start [options] HOST [-- WORD …]"
    ours = parser.parse_known_args

    def up_to_dashes(args: Any = None, namespace: Any = None) -> Any:
        """Options in any place; what follows `--` is the agent's own."""
        words = list(args or ())
        cut = words.index("--") if "--" in words else len(words)
        parsed, unknown = ours(words[:cut], namespace)
        parsed.words = words[cut + 1 :]
        return parsed, unknown

    setattr(parser, "parse_known_args", up_to_dashes)  # noqa: B010 - a method of this one parser


def run(args: Namespace) -> int:
    """Become the agent's program."""
    programs = traits.all_to_start()
    if args.host not in programs:
        raise BadRequestError(
            "",
            f"There is no start for {args.host!r}, but for: {', '.join(programs)}. Claude Code's and"
            " opencode's shells are guarded by `noclobber install`, those of others are watched"
            " (docs/shell-in-hooks.md).",
        )
    program = shutil.which(args.program or programs[args.host])
    added = environment(args.host)
    added[NOTES] = notes_of(args.host, added[LAUNCH])
    if args.json:
        print_json({"host": args.host, "program": program, "environment": added})
        return EXIT_OK if program is not None else EXIT_NO
    if program is None:
        raise BadRequestError(
            "",
            f"{args.program or programs[args.host]} is not a program on the path. Install it, or say where it"
            " is: --program PATH.",
        )
    sys.stdout.flush()
    sys.stderr.flush()
    words = [program, *traits.of(args.host).words, *args.words]
    return os.execve(program, words, {**os.environ, **added})  # noqa: S606 - it is what was asked for
