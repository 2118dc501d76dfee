"""
`noclobber watch`: what `noclobber view` shows, in the terminal: live, filling the screen (`watch_screen`).
In a pipe it prints the status as one JSON object for each change.

Looking for locks walks the whole tree, so at most a tenth of the time is spent on looking. In a tree with a
million folders the display is updated less often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.cli import EXIT_OK
from noclobber.cli.clean_output import cleaned, controls
from noclobber.cli.parsing import add_root, root_of
from noclobber.cli.status import add_refusals
from noclobber.cli.terminal import (
    add_json,
    columns_wide,
    is_terminal,
    print_json,
    rows_high,
    wait_while_read,
)
from noclobber.cli.watch_screen import screen
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.view.workspace_state import read_state

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

EXAMPLES = """\
examples:
  noclobber watch                                        until Ctrl-C
  noclobber watch --jsonl | jq -c '.refusals[-1]'        for programs: one object for each change
  noclobber watch --json                                 one look, like status --json
"""

LEAST_INTERVAL_S, MOST_INTERVAL_S = 0.05, 3600.0
LEAST_PAUSE_S = 0.1
EVENTS_SHOWN = 500
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
    parser.add_argument(
        "--jsonl",
        action="store_true",
        help="one JSON object for each change, as in a pipe; --json prints one",
    )
    add_refusals(parser)
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="SECONDS", help="how often to look (default: 1)"
    )
    parser.add_argument(
        "--changes", type=count, metavar="N", help="stop after N changes (default: at Ctrl-C)"
    )


def run(args: Namespace) -> int:
    """Watch until Ctrl-C, which is the normal end: exit code 0."""
    root = root_of(args)
    draw = is_terminal() and not args.json and not args.jsonl
    try:
        if draw:
            _draw_live(args, root)
        else:
            _print(args, root)
    except KeyboardInterrupt:
        pass
    return EXIT_OK


def _print(args: Namespace, root: str) -> None:
    """Print one object for each change; with `--json` the first look only."""
    shown, last = 0, None
    most = 1 if args.json else args.changes
    while True:
        began_s = SYSTEM_CLOCK.monotonic_s()
        state = read_state(root, SYSTEM_CLOCK, refusals=args.n)
        took_s = SYSTEM_CLOCK.monotonic_s() - began_s
        new = state.what_is_new()
        if new != last:
            print_json(state._asdict())
            shown += 1
        last = new
        if most is not None and shown >= most:
            return
        wait_while_read(max(args.interval, took_s * _LOOKING_SHARE))


def _draw_live(args: Namespace, root: str) -> None:
    from collections import deque

    from noclobber.view.live import Cursor, Live

    live, cursor, shown = Live(root, state_s=args.interval), Cursor(), 0
    told: dict[str, Any] = {}
    events: deque[dict[str, Any]] = deque(maxlen=EVENTS_SHOWN)
    looked_s = SYSTEM_CLOCK.monotonic_s()
    controls().write(_HIDE_CURSOR + _ALL)
    try:
        live.start()
        live.look_at_state()  # So that the first picture is a whole one.
        while args.changes is None or shown < args.changes:
            news = live.news(cursor, args.interval)
            if "locks" in news:
                looked_s = SYSTEM_CLOCK.monotonic_s()
            new = news.pop("events", None)
            if new is not None:
                if new["from_start"]:
                    events.clear()
                events.extendleft(reversed(new["newest_first"]))
            told |= news
            shown += bool(news or new)
            passed_s = SYSTEM_CLOCK.monotonic_s() - looked_s
            _draw(screen(told, list(events), columns_wide(), rows_high(), passed_s))
            if news or new:
                wait_while_read(min(args.interval, LEAST_PAUSE_S))
    finally:
        live.stop()
        controls().write(_SHOW_CURSOR)
        controls().flush()


def _draw(lines: list[str]) -> None:
    """Draw over the old lines: clearing the screen first would flicker."""
    picture = f"{_REST_OF_LINE}\n".join(cleaned(line, with_styles=True) for line in lines)
    out = controls()
    out.write(f"{_HOME}{picture}{_REST_OF_LINE}{_REST_OF_SCREEN}")
    out.flush()
