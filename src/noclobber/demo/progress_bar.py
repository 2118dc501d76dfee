"""
A progress bar on one line of a terminal; whole lines if the output is no terminal.

An output that is not a terminal gets text only: no escape codes, no carriage returns. On a terminal the line
is never wider than the terminal: one that wraps cannot be drawn over, and fills the screen (finding U1).
"""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import TextIO

MOST_BAR_COLUMNS = 28


class Bar:
    """Call it with the share that is done and a description. Use it as a context manager."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._is_terminal = self._stream.isatty()
        self._last_told = ""
        self._drawn = 0

    def __enter__(self) -> Bar:
        return self

    def __call__(self, share: float, told: str) -> None:
        if self._is_terminal:
            columns = get_terminal_size((80, 24)).columns - 1
            bar_columns = min(MOST_BAR_COLUMNS, columns // 3)
            full = round(share * bar_columns)
            line = f"[{'#' * full}{'.' * (bar_columns - full)}] {share:4.0%}  {told}"
            line = line if len(line) <= columns else f"{line[: columns - 1]}…"
            self._stream.write(f"\r{line:<{min(self._drawn, columns)}}")
            self._stream.flush()
            self._drawn = len(line)
        elif told != self._last_told:
            self._stream.write(f"{share:4.0%}  {told}\n")
            self._stream.flush()
        self._last_told = told

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_terminal and self._drawn:
            self._stream.write(f"\r{'':<{self._drawn}}\r")
            self._stream.flush()
