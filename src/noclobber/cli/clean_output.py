"""
The one way out to the terminal, and it cleans (finding S18).

File names, agents' names, lock files, ledgers and error messages are other people's text. A control character
in them can move the cursor, rewrite what was printed, or make a terminal type commands. So `main()` puts a
`CleanOutput` in the place of stdout and stderr before a command runs: whoever prints, prints through it.
Control characters are spelled out. Only line ends, tabs and, on a terminal, the colours of our own tables
have an effect.

Two kinds of output are let through as they are: `controls()` moves the cursor of a live view, and what
programs read (JSON, CSV, a patch) goes to `data_out()`, which is clean only on a terminal.

Nothing slow is imported: `noclobber --help` loads this.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO

# What argparse, rich and `styled()` use: reset, bold, dim, italic, underlined, and colours that can be read
# on any background. Not: hidden text, and black or white.
_STYLES = frozenset(str(number) for number in (0, 1, 2, 3, 4, 22, 23, 24, *range(31, 37), 39, *range(91, 97)))
_LONGEST_STYLE = 8


class CleanOutput:
    """A text stream that spells control characters out, and is otherwise the stream that it stands for."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        """Write text as it is safe to show."""
        self.unfiltered.write(cleaned(text, with_styles=is_shown_to_a_person(self.unfiltered)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


def cleaned(text: str, *, with_styles: bool = False) -> str:
    """Return text in which no control character but line ends, tabs and styles has an effect."""
    from noclobber.text.visible import visible_lines  # Here: most guarded commands print nothing of ours.

    if "\x1b" not in text or not with_styles:
        return visible_lines(text)
    first, *rest = text.split("\x1b")
    return visible_lines(first) + "".join(map(_after_escape, rest))


def _after_escape(text: str) -> str:
    """Return what followed an escape character, with it if that is a style."""
    from noclobber.text.visible import visible_lines

    end = text.find("m", 0, _LONGEST_STYLE)
    if text[:1] == "[" and end > 0 and _STYLES.issuperset(text[1:end].split(";")):
        return f"\x1b{text[: end + 1]}{visible_lines(text[end + 1 :])}"
    return f"\\x1b{visible_lines(text)}"


def install() -> tuple[TextIO, TextIO]:
    """Make stdout and stderr clean; return what they were, for `sys.stdout, sys.stderr = …` at the end."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = CleanOutput(sys.stdout), CleanOutput(sys.stderr)
    return before


def controls(stream: TextIO | None = None) -> TextIO:
    """Return a stream on which the cursor can be moved. What others wrote must be `cleaned()` first."""
    stream = sys.stdout if stream is None else stream
    return getattr(stream, "unfiltered", stream)


def data_out(stream: TextIO | None = None) -> TextIO:
    """Return where data for programs goes: stdout (or another) as it is, unless a person is watching."""
    stream = sys.stdout if stream is None else stream
    return stream if is_shown_to_a_person(stream) else controls(stream)


def is_shown_to_a_person(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # Closed.
        return False
