"""
Output of every command: for a person's terminal, for a file or pipe, or as JSON for a program.

- On a terminal: sentences are folded, and there are colours, unless `NO_COLOR` is set or `TERM=dumb`.
- Otherwise: plain text, no escape codes.
- With `--json`: only JSON on stdout. `print_json` prints one document on one line.

File names and agents' names are untrusted text. Whatever is printed goes through `clean_output`. `visible()`
also spells out line ends and tabs, so that a name cannot draw a table row or cell of its own.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from noclobber.cli.clean_output import controls, data_out
from noclobber.text.visible import visible as visible

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from typing import Any, TextIO

# A style is a meaning; its looks are decided here: SGR codes, and rich's names for the same.
_CODES = {"good": "32", "bad": "31", "warn": "33", "faint": "2", "strong": "1"}
RICH_WORDS = {"good": "green", "bad": "red", "warn": "yellow", "faint": "dim", "strong": "bold"}
_BAR_CELLS = 30
_BESIDE_BAR_CELLS = 20  # A share, and a number of up to eleven digits.
_FIRST_WIDE = 0x300  # Below it every character is one cell wide.


class Cell(NamedTuple):
    """A table's cell with a meaning: one of `good`, `bad`, `warn`, `faint`, `strong`, or "" for none."""

    text: str
    style: str = ""


# The terminal


def is_terminal(stream: TextIO | None = None) -> bool:
    """True if a person is watching. Streams may be closed, missing or replaced."""
    stream = sys.stdout if stream is None else stream
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # Closed.
        return False


def wants_colour(stream: TextIO | None = None) -> bool:
    """True on a terminal whose user has not asked for none (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def add_json(parser: ArgumentParser) -> None:
    """Declare `--json`, which every command has."""
    parser.add_argument("--json", action="store_true", help="answer in JSON, for programs")


def add_jsonl(parser: ArgumentParser) -> None:
    """Declare `--jsonl`, for a list that may be long or has no end."""
    parser.add_argument("--jsonl", action="store_true", help="one JSON object a line, for programs")


# Text


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return text in a style, where colours are wanted."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and wants_colour(stream) else text


def moment(time: str, stream: TextIO | None = None) -> str:
    """Return a time of the ledger down to the second; for a person with a blank, where it may be folded."""
    if len(time) < len("2026-11-16T22:39:01") or not time[:4].isdigit():
        return time
    return f"{time[:10]} {time[11:19]}Z" if is_terminal(stream) else f"{time[:19]}Z"


def shortened(text: str, columns: int) -> str:
    """Return text that is at most so wide, cut in the middle: a path's end says most, its start the place."""
    if cells_wide(text) <= columns:
        return text
    kept = max(columns - 1, 1)
    head, tail = (kept + 1) // 3, kept - (kept + 1) // 3
    cut = f"{text[:head]}…{text[len(text) - tail :]}"
    while cells_wide(cut) > columns and len(cut) > 1:  # Letters of two cells.
        tail = max(tail - 1, 0)
        head = head if tail else max(head - 1, 0)
        cut = f"{text[:head]}…{text[len(text) - tail :] if tail else ''}"
        if not head and not tail:
            break
    return cut


def use_utf8() -> None:
    """Switch stdout to UTF-8, which JSON between programs always is."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # JSON readers accept that.


def print_json(value: Any) -> None:
    """Print one JSON document on one line, and flush it: a reader of `watch --jsonl` waits for it."""
    import json

    use_utf8()
    print(json.dumps(value, ensure_ascii=False), flush=True, file=data_out())


def columns_wide() -> int:
    """Return how wide the terminal is, 80 if it does not say."""
    from shutil import get_terminal_size

    return get_terminal_size((80, 24)).columns


def rows_high() -> int:
    """Return how many lines the terminal has, 24 if it does not say."""
    from shutil import get_terminal_size

    return get_terminal_size((80, 24)).lines


def cells_wide(text: str) -> int:
    """Return how many cells a terminal needs: two for East Asian letters, none for combining marks."""
    if not text or ord(max(text)) < _FIRST_WIDE:
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def say(text: str, stream: TextIO | None = None) -> None:
    """Print sentences: folded at words where a person is watching, as they are for programs."""
    if is_terminal(stream):
        from noclobber.text.visible import fold

        text = fold(text, columns_wide())
    print(text, file=stream)


# Progress


class Progress:
    """A progress bar on stderr if that is a terminal; it is removed at the end."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._wanted = is_terminal(sys.stderr)
        self._cells = -1

    def show(self, done: int, total: int, count: int) -> None:
        """Show the share that is done, and how many items that was."""
        # What is wider than the terminal would go on in the next line, and stay there.
        whole = max(0, min(_BAR_CELLS, columns_wide() - _BESIDE_BAR_CELLS - len(self._noun)))
        cells = whole * done // max(total, 1)
        if self._wanted and cells != self._cells:
            self._cells = cells
            bar = "█" * cells + "░" * (whole - cells)
            out = controls(sys.stderr)
            print(f"\r{bar} {100 * done // max(total, 1):3d} %  {count:,} {self._noun}", end="", file=out)
            out.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._cells >= 0:
            print("\r\x1b[K", end="", file=controls(sys.stderr), flush=True)


# Waiting


def wait_while_read(seconds: float) -> None:
    """
    Sleep; raise `BrokenPipeError` at once if stdout is a pipe that nobody reads any more.

    `noclobber watch --jsonl | head -1` prints only when something changes. Without this it would notice that
    its reader has gone at the next change, which may never come.
    """
    import select

    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # Closed, missing, or replaced by something in memory.
        select.select([], [], [], seconds)
        return
    poller = select.poll()
    poller.register(descriptor, 0)  # Errors and hang-ups are always reported.
    if poller.poll(seconds * 1000):
        raise BrokenPipeError
