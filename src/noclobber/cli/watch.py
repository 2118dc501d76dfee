"""
`noclobber watch`: the status, live. On a terminal it redraws; otherwise it prints one JSON object for each
change.

Looking for locks walks the whole tree, so at most a tenth of the time is spent on looking. In a tree with a
million folders the display is updated less often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.cli import EXIT_OK
from noclobber.cli.clean_output import cleaned, controls
from noclobber.cli.project import add_root, root_of
from noclobber.cli.status import add_refusals, page
from noclobber.cli.terminal import add_json, is_terminal, print_json, rows_high, styled, wait_while_read
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.view.workspace_state import read_state

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

EXAMPLES = """\
examples:
  noclobber watch                                        until Ctrl-C
  noclobber watch --json | jq -c '.refusals[-1]'         for programs: one object for each change
  noclobber watch --changes 1 --json                     one look, like status --json
"""

LEAST_INTERVAL_S, MOST_INTERVAL_S = 0.05, 3600.0
_LOOKING_SHARE = 10
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_ALL, _HIDE_CURSOR, _SHOW_CURSOR = "\x1b[2J", "\x1b[?25l", "\x1b[?25h"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    from argparse import ArgumentTypeError

    def seconds(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if LEAST_INTERVAL_S <= value <= MOST_INTERVAL_S:
            return value
        raise ArgumentTypeError(
            f"takes seconds from {LEAST_INTERVAL_S:g} to {MOST_INTERVAL_S:g}, not {text!r}"
        )

    def count(text: str) -> int:
        if text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text) > 0:
            return int(text)
        raise ArgumentTypeError(f"takes a number from 1, not {text!r}")

    add_root(parser)
    add_json(parser)
    add_refusals(parser)
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="SECONDS", help="how often to look (default: 1)"
    )
    parser.add_argument(
        "--changes", type=count, metavar="N", help="stop after N changes (default: at Ctrl-C)"
    )


def run(args: Namespace) -> int:
    """Watch until Ctrl-C, which is the normal end: exit code 0."""
    draw = is_terminal() and not args.json
    if draw:
        controls().write(_HIDE_CURSOR + _ALL)
    try:
        _watch(args, root_of(args), draw=draw)
    except KeyboardInterrupt:
        pass
    finally:
        if draw:
            controls().write(_SHOW_CURSOR)
            controls().flush()
    return EXIT_OK


def _watch(args: Namespace, root: str, *, draw: bool) -> None:
    shown, last = 0, None
    while True:
        began_s = SYSTEM_CLOCK.monotonic_s()
        state = read_state(root, SYSTEM_CLOCK, refusals=args.n)
        took_s = SYSTEM_CLOCK.monotonic_s() - began_s
        new = state.what_is_new()
        is_changed = new != last
        if draw:
            _draw(page(state), f"{state.time[:19]}Z   Ctrl-C ends")
        elif is_changed:
            print_json(state._asdict())
        last = new
        shown += is_changed
        if args.changes is not None and shown >= args.changes:
            return
        wait_while_read(max(args.interval, took_s * _LOOKING_SHARE))


def _draw(text: str, footer: str) -> None:
    """Draw over the old lines: clearing the screen first would flicker."""
    space = rows_high() - 2
    lines = text.splitlines()
    if len(lines) > space:
        lines = [*lines[: space - 1], f"… {len(lines) - space + 1} more lines; `noclobber status` shows all"]
    picture = "".join(f"{cleaned(line, with_styles=True)}{_REST_OF_LINE}\n" for line in lines)
    out = controls()
    out.write(f"{_HOME}{picture}{_REST_OF_LINE}\n{styled(footer, 'faint')}{_REST_OF_LINE}{_REST_OF_SCREEN}")
    out.flush()
