"""
Tables: by rich on a terminal if it is installed, otherwise aligned columns. In a pipe nothing is folded.

A terminal may be narrower than a table. Columns then give way down to their longest word, and cells are
folded at blanks. Where not even that fits, a table would be shreds of words, so each row becomes a block with
a line for each column.

rich is not imported for a pipe, because that takes longer than most commands take to run.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from noclobber.cli.terminal import (
    RICH_WORDS,
    Cell,
    cells_wide,
    columns_wide,
    is_terminal,
    styled,
    visible,
    wants_colour,
)
from noclobber.text.visible import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TextIO

_GAP, _RICH_GAP = 2, 3
_MOST_WORD_CELLS = 20
_CUT_WORD_CELLS = 12
"""A word that is longer than the first (a path, a hash) may be cut, down to the second."""
_MOST_PADDED_CELLS = 200  # In a pipe. Beside a name of a megabyte every row would be as long.
_MOST_SHOWN = 2000  # Characters of a cell, to a person.


def table(titles: Sequence[str], rows: Iterable[Sequence[str | Cell]], stream: TextIO | None = None) -> str:
    """
    Return a table as text that ends with a newline. A title that begins with ">" aligns its column right.

    Cells are shown literally: rich's markup in them has no effect.
    """
    stream = sys.stdout if stream is None else stream
    cells = [
        [Cell(visible(c)) if isinstance(c, str) else Cell(visible(c.text), c.style) for c in row]
        for row in rows
    ]
    if not is_terminal(stream):
        padded = [min(width, _MOST_PADDED_CELLS) for width in _widths(titles, cells)]
        return "".join(_line(row, titles, padded, stream) for row in [_heading(titles), *cells])
    cells = [[Cell(_cut(cell.text), cell.style) for cell in row] for row in cells]
    if os.environ.get("TERM") != "dumb":
        widths = _fitting(titles, cells, columns_wide() - _RICH_GAP * (len(titles) - 1))
        try:
            return (
                _blocks(titles, cells, stream)
                if widths is None
                else _rich_table(titles, cells, widths, colours=wants_colour(stream))
            )
        except ImportError:
            pass
    widths = _fitting(titles, cells, columns_wide() - _GAP * (len(titles) - 1))
    return _blocks(titles, cells, stream) if widths is None else _plain_table(titles, cells, stream, widths)


def _widths(titles: Sequence[str], rows: list[list[Cell]]) -> list[int]:
    """Return how wide each column is if nothing is folded."""
    return [
        max([cells_wide(title.removeprefix(">")), *(cells_wide(row[number].text) for row in rows)])
        for number, title in enumerate(titles)
    ]


def _fitting(titles: Sequence[str], rows: list[list[Cell]], columns: int) -> list[int] | None:
    """Return widths that fit: the widest column gives first. None if its words would have to be cut."""
    widths = _widths(titles, rows)
    least = [_longest_word(title, rows, number) for number, title in enumerate(titles)]
    while sum(widths) > columns:
        may_give = [number for number, width in enumerate(widths) if width > least[number]]
        if not may_give:
            return None
        widths[max(may_give, key=lambda number: widths[number])] -= 1
    return widths


def _longest_word(title: str, rows: list[list[Cell]], number: int) -> int:
    words = [word for row in rows for word in row[number].text.split(" ")]
    wide = [cells_wide(word) for word in words]
    least = max([0, *(_CUT_WORD_CELLS if cells > _MOST_WORD_CELLS else cells for cells in wide)])
    return max(least, cells_wide(title.removeprefix(">")))


def _blocks(titles: Sequence[str], rows: list[list[Cell]], stream: TextIO) -> str:
    """Return each row as lines of its own, with a blank line between two rows."""
    names = [title.removeprefix(">") for title in titles]
    left = max(map(len, names)) + _GAP
    drawn = []
    for row in rows:
        lines = []
        for name, cell in zip(names, row, strict=True):
            if cell.text:
                first, *more = fold(cell.text, columns_wide() - left).split("\n")
                lines.append(styled(f"{name:<{left}}", "faint", stream) + styled(first, cell.style, stream))
                lines += [" " * left + styled(line, cell.style, stream) for line in more]
        drawn.append("".join(f"{line}\n" for line in lines))
    return "\n".join(drawn)


def _plain_table(titles: Sequence[str], rows: list[list[Cell]], stream: TextIO, widths: list[int]) -> str:
    return "".join(_plain_row(row, titles, widths, stream) for row in [_heading(titles), *rows])


def _heading(titles: Sequence[str]) -> list[Cell]:
    return [Cell(title.removeprefix(">").upper(), "strong") for title in titles]


def _plain_row(row: list[Cell], titles: Sequence[str], widths: list[int], stream: TextIO) -> str:
    folded = [_folded(cell.text, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for at in range(max(map(len, folded))):
        parts = [
            Cell(texts[at] if at < len(texts) else "", cell.style)
            for cell, texts in zip(row, folded, strict=True)
        ]
        lines.append(_line(parts, titles, widths, stream))
    return "".join(lines)


def _line(row: list[Cell], titles: Sequence[str], widths: list[int], stream: TextIO) -> str:
    """Return cells side by side; one that is wider than its column pushes the others aside."""
    words = []
    for cell, title, width in zip(row, titles, widths, strict=True):
        blank = " " * max(0, width - cells_wide(cell.text)) if len(cell.text) < width else ""
        text = styled(cell.text, cell.style, stream)
        words.append(blank + text if title.startswith(">") else text + blank)
    return (" " * _GAP).join(words).rstrip(" ") + "\n"


def _cut(text: str) -> str:
    """For people: a name of a megabyte fills the screen and says no more than its beginning."""
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} … ({len(text):,} characters)"


def _folded(text: str, cells: int) -> list[str]:
    """Return a cell's lines, at blanks where there are any."""
    lines, line = [], ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if cells_wide(joined) <= cells:
            line = joined
            continue
        if line:
            lines.append(line)
        line = word
        while cells_wide(line) > cells:
            at = len(line)
            while at > 1 and cells_wide(line[:at]) > cells:
                at -= 1
            lines.append(line[:at])
            line = line[at:]
    return [*lines, line]


def _rich_table(titles: Sequence[str], rows: list[list[Cell]], widths: list[int], *, colours: bool) -> str:
    import io

    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold" if colours else "")
    for title, width in zip(titles, widths, strict=True):
        drawn.add_column(
            title.removeprefix(">"),
            justify="right" if title.startswith(">") else "left",
            overflow="fold",
            width=width,
        )
    for row in rows:
        drawn.add_row(*(Text(cell.text, RICH_WORDS.get(cell.style, "") if colours else "") for cell in row))
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=columns_wide(),
        force_terminal=colours,
        color_system="standard" if colours else None,
        highlight=False,
    )
    console.print(drawn)
    return "".join(f"{line.rstrip(' ')}\n" for line in buffer.getvalue().splitlines())
